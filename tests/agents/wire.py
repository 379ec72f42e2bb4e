"""Wire formats of model services: a request as the script takes it, an answer as the agent expects it.

Each format reads the body of a request and writes an answer, whole or as the events of a stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

from tests.agents.script import Answer, Request, Said, Tool

Frame = tuple[str | None, Any]
"""The name of an event of a stream, if it has one, and its data."""


class Format(Protocol):
    is_lines: bool = False
    """A stream is JSON lines, not events."""

    def read(self, body: dict[str, Any]) -> Request: ...
    def is_streamed(self, body: dict[str, Any], path: str) -> bool: ...
    def whole(self, answer: Answer, model: str, number: int) -> dict[str, Any]: ...
    def stream(self, answer: Answer, model: str, number: int) -> Iterator[Frame]: ...


def text_of(content: Any) -> str:
    """The text of a message, which may be a string, a block or a list of blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return text_of(content.get("text") or content.get("output") or content.get("content"))
    return "\n".join(filter(None, map(text_of, content))) if isinstance(content, list) else ""


class Anthropic(Format):
    """Anthropic Messages."""

    def read(self, body: dict[str, Any]) -> Request:
        said = []
        for message in body.get("messages", ()):
            content = message.get("content") or ()
            for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                kinds = {"tool_result": "result", "tool_use": "call", "text": message.get("role")}
                if by := kinds.get(block.get("type")):
                    said.append(Said(by, text_of(block)))
        tools = [Tool(tool.get("name", ""), tool.get("input_schema") or {}) for tool in body.get("tools", ())]
        form = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
        return Request(said, tools, form.get("schema"))

    def is_streamed(self, body: dict[str, Any], path: str) -> bool:
        return bool(body.get("stream"))

    def whole(self, answer: Answer, model: str, number: int) -> dict[str, Any]:
        blocks: list[dict[str, Any]] = []
        if answer.thought:
            blocks.append({"type": "thinking", "thinking": answer.thought, "signature": "c2lnbmF0dXJl"})
        blocks.append({"type": "text", "text": answer.text})
        blocks += [
            {"type": "tool_use", "id": f"toolu_{number:04d}{at}", "name": tool.name, "input": arguments}
            for at, (tool, arguments) in enumerate(answer.calls)
        ]
        return {
            "id": f"msg_{number:06d}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": blocks,
            "stop_reason": "tool_use" if answer.calls else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": answer.fresh,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": answer.cached,
                "output_tokens": answer.output + answer.thinking,
            },
        }

    def stream(self, answer: Answer, model: str, number: int) -> Iterator[Frame]:
        message = self.whole(answer, model, number)
        yield _typed("message_start", message={**message, "content": [], "stop_reason": None})
        for index, block in enumerate(message["content"]):
            yield from self._block(index, block)
        end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield _typed("message_delta", delta=end, usage=message["usage"])
        yield _typed("message_stop")

    def _block(self, index: int, block: dict[str, Any]) -> Iterator[Frame]:
        empty = {name: "" if name in ("text", "thinking", "signature") else value for name, value in block.items()}
        if block["type"] == "tool_use":
            empty["input"] = {}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        elif block["type"] == "thinking":
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        else:
            deltas = [{"type": "text_delta", "text": block["text"]}]
        yield _typed("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield _typed("content_block_delta", index=index, delta=delta)
        yield _typed("content_block_stop", index=index)


class Chat(Format):
    """OpenAI Chat Completions."""

    def read(self, body: dict[str, Any]) -> Request:
        said = []
        for message in body.get("messages", ()):
            role, text = message.get("role"), text_of(message.get("content"))
            if role in ("tool", "function"):
                said.append(Said("result", text))
            elif role in ("user", "assistant") and text:
                said.append(Said(role, text))
            said += [Said("call") for _ in message.get("tool_calls") or ()]
        functions = [tool.get("function") or tool for tool in body.get("tools") or ()]
        tools = [Tool(function.get("name", ""), function.get("parameters") or {}) for function in functions]
        form = body.get("response_format") or {}
        schema = (form.get("json_schema") or {}).get("schema")
        if form.get("type") == "json_object":
            schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
        return Request(said, tools, schema)

    def is_streamed(self, body: dict[str, Any], path: str) -> bool:
        return bool(body.get("stream"))

    def whole(self, answer: Answer, model: str, number: int) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.thought:
            message["reasoning_content"] = answer.thought
        if answer.calls:
            message["tool_calls"] = self._calls(answer, number)
        choice = {"index": 0, "message": message, "finish_reason": self._stop(answer)}
        return {**self._head(model, number, "chat.completion"), "choices": [choice], "usage": self._usage(answer)}

    def stream(self, answer: Answer, model: str, number: int) -> Iterator[Frame]:
        head = self._head(model, number, "chat.completion.chunk")

        def chunk(delta: dict[str, Any], stop: str | None = None) -> Frame:
            return None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": stop}]}

        yield chunk({"role": "assistant", "content": ""})
        if answer.thought:
            yield chunk({"reasoning_content": answer.thought})
        yield chunk({"content": answer.text})
        for index, call in enumerate(self._calls(answer, number)):
            yield chunk({"tool_calls": [{"index": index, **call}]})
        yield chunk({}, self._stop(answer))
        yield None, {**head, "choices": [], "usage": self._usage(answer)}
        yield None, "[DONE]"

    def _head(self, model: str, number: int, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{number:06d}", "object": kind, "created": 1_790_000_000, "model": model}

    def _calls(self, answer: Answer, number: int) -> list[dict[str, Any]]:
        return [
            {
                "id": f"call_{number:06d}{at}",
                "type": "function",
                "function": {"name": tool.name, "arguments": json.dumps(arguments)},
            }
            for at, (tool, arguments) in enumerate(answer.calls)
        ]

    def _stop(self, answer: Answer) -> str:
        return "tool_calls" if answer.calls else "stop"

    def _usage(self, answer: Answer) -> dict[str, Any]:
        prompt, output = answer.fresh + answer.cached, answer.output + answer.thinking
        return {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": answer.cached},
            "completion_tokens_details": {"reasoning_tokens": answer.thinking},
        }


class Responses(Format):
    """OpenAI Responses."""

    def read(self, body: dict[str, Any]) -> Request:
        items = body.get("input") or ()
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        said, offered = [], list(body.get("tools") or ())
        for item in items:
            kind = item.get("type", "message")
            if kind == "message" and item.get("role") in ("user", "assistant"):
                said.append(Said(item["role"], text_of(item.get("content"))))
            elif kind == "additional_tools":
                offered += item.get("tools") or ()
            elif kind.endswith("_output"):
                said.append(Said("result", text_of(item.get("output"))))
            elif kind.endswith("_call"):
                said.append(Said("call"))
        schema = ((body.get("text") or {}).get("format") or {}).get("schema")
        return Request(said, [tool for each in offered for tool in self._tools(each)], schema)

    def _tools(self, offered: dict[str, Any]) -> Iterator[Tool]:
        is_namespace = offered.get("type") == "namespace"
        for tool in offered.get("tools") or () if is_namespace else [offered]:
            kind = tool.get("type", "function")
            namespace = offered.get("name", "") if is_namespace else ""
            description = tool.get("description") or ""
            yield Tool(tool.get("name", kind), tool.get("parameters") or {}, kind, namespace, description)

    def is_streamed(self, body: dict[str, Any], path: str) -> bool:
        return bool(body.get("stream"))

    def whole(self, answer: Answer, model: str, number: int) -> dict[str, Any]:
        prompt, output = answer.fresh + answer.cached, answer.output + answer.thinking
        return {
            **self._begun(model, number),
            "status": "completed",
            "output": self._items(answer, number),
            "usage": {
                "input_tokens": prompt,
                "input_tokens_details": {"cached_tokens": answer.cached},
                "output_tokens": output,
                "output_tokens_details": {"reasoning_tokens": answer.thinking},
                "total_tokens": prompt + output,
            },
        }

    def stream(self, answer: Answer, model: str, number: int) -> Iterator[Frame]:
        whole = self.whole(answer, model, number)
        yield _typed("response.created", response=self._begun(model, number))
        for index, item in enumerate(whole["output"]):
            place = {"item_id": item["id"], "output_index": index}
            if item["type"] == "reasoning":
                yield _typed("response.output_item.added", output_index=index, item={**item, "summary": []})
                part = {"type": "summary_text", "text": ""}
                yield _typed("response.reasoning_summary_part.added", **place, summary_index=0, part=part)
                yield _typed("response.reasoning_summary_text.delta", **place, summary_index=0, delta=answer.thought)
                yield _typed("response.reasoning_summary_text.done", **place, summary_index=0, text=answer.thought)
            elif item["type"] == "message":
                yield _typed("response.output_item.added", output_index=index, item={**item, "content": []})
                part = {"type": "output_text", "text": "", "annotations": []}
                yield _typed("response.content_part.added", **place, content_index=0, part=part)
                yield _typed("response.output_text.delta", **place, content_index=0, delta=answer.text)
                yield _typed("response.output_text.done", **place, content_index=0, text=answer.text)
            else:
                yield _typed("response.output_item.added", output_index=index, item=item)
            if item["type"] == "function_call":
                arguments = item["arguments"]
                yield _typed("response.function_call_arguments.delta", **place, delta=arguments)
                yield _typed("response.function_call_arguments.done", **place, arguments=arguments)
            yield _typed("response.output_item.done", output_index=index, item=item)
        yield _typed("response.completed", response=whole)

    def _begun(self, model: str, number: int) -> dict[str, Any]:
        begun = {"id": f"resp_{number:06d}", "object": "response", "created_at": 1_790_000_000, "model": model}
        return {**begun, "status": "in_progress", "output": [], "tools": [], "error": None}

    def _items(self, answer: Answer, number: int) -> list[dict[str, Any]]:
        text = {"type": "output_text", "text": answer.text, "annotations": []}
        items: list[dict[str, Any]] = []
        if answer.thought:
            summary = [{"type": "summary_text", "text": answer.thought}]
            items.append({"type": "reasoning", "id": f"rs_{number:06d}", "summary": summary})
        items.append({"type": "message", "id": f"msg_{number:06d}", "role": "assistant", "status": "completed"})
        items[-1] |= {"content": [text], "phase": "commentary" if answer.calls else "final_answer"}
        for at, (tool, arguments) in enumerate(answer.calls):
            item = {"id": f"fc_{number:06d}{at}", "call_id": f"call_{number:06d}{at}", "status": "completed"}
            if tool.kind == "custom":
                item |= {"type": "custom_tool_call", "name": tool.name, "input": arguments}
            elif tool.kind == "local_shell":
                item |= {"type": "local_shell_call", "action": arguments}
            else:
                item |= {"type": "function_call", "name": tool.name, "arguments": json.dumps(arguments)}
            if tool.namespace not in ("", "functions"):
                item["namespace"] = tool.namespace
            items.append(item)
        return items


class Gemini(Format):
    """Gemini generateContent."""

    def read(self, body: dict[str, Any]) -> Request:
        said = []
        for message in body.get("contents", ()):
            for part in message.get("parts", ()):
                if "functionResponse" in part:
                    said.append(Said("result", json.dumps(part["functionResponse"].get("response"))))
                elif "functionCall" in part:
                    said.append(Said("call"))
                elif part.get("text") and not part.get("thought"):
                    said.append(Said("user" if message.get("role") == "user" else "assistant", part["text"]))
        declared = [each for group in body.get("tools") or () for each in group.get("functionDeclarations") or ()]
        tools = [
            Tool(each.get("name", ""), each.get("parametersJsonSchema") or each.get("parameters") or {})
            for each in declared
        ]
        form = body.get("generationConfig") or {}
        return Request(said, tools, form.get("responseJsonSchema") or form.get("responseSchema"))

    def is_streamed(self, body: dict[str, Any], path: str) -> bool:
        return ":stream" in path

    def whole(self, answer: Answer, model: str, number: int) -> dict[str, Any]:
        return self._frame(answer, model, number, self._parts(answer, number), "STOP")

    def stream(self, answer: Answer, model: str, number: int) -> Iterator[Frame]:
        *parts, last = self._parts(answer, number)
        for part in parts:
            yield None, self._frame(answer, model, number, [part], None)
        yield None, self._frame(answer, model, number, [last], "STOP")

    def _parts(self, answer: Answer, number: int) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        if answer.thought:
            parts.append({"text": f"**Plan**\n{answer.thought}", "thought": True})
        parts.append({"text": answer.text})
        for at, (tool, arguments) in enumerate(answer.calls):
            call = {"id": f"call{number:06d}{at}", "name": tool.name, "args": arguments}
            parts.append({"functionCall": call, "thoughtSignature": "c2lnbmF0dXJl"})
        return parts

    def _frame(self, answer: Answer, model: str, number: int, parts: list[Any], stop: str | None) -> dict[str, Any]:
        prompt = answer.fresh + answer.cached
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if stop:
            candidate["finishReason"] = stop
        return {
            "candidates": [candidate],
            "modelVersion": model,
            "responseId": f"response{number:06d}",
            "usageMetadata": {
                "promptTokenCount": prompt,
                "candidatesTokenCount": answer.output,
                "cachedContentTokenCount": answer.cached,
                "thoughtsTokenCount": answer.thinking,
                "totalTokenCount": prompt + answer.output + answer.thinking,
            },
        }


def _typed(kind: str, **data: Any) -> Frame:
    return kind, {"type": kind, **data}
