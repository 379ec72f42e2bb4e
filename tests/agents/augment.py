"""The wire format of Augment's service, which Auggie talks to: nodes instead of messages, a stream of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.agents.script import Answer, Request, Said, Tool
from tests.agents.wire import Format, Frame, text_of

_TEXT, _CALL, _THOUGHT, _TOKENS = 0, 5, 8, 10
_STOPPED, _CALLED = 1, 3


class Augment(Format):
    is_lines = True

    def read(self, body: dict[str, Any]) -> Request:
        said: list[Said] = []
        for exchange in body.get("chat_history") or ():
            said += _said(exchange.get("request_nodes"), exchange.get("request_message"), "user")
            said += _said(exchange.get("response_nodes"), exchange.get("response_text"), "assistant")
        said += _said(body.get("nodes"), body.get("message"), "user")
        tools = [
            Tool(tool.get("name", ""), json.loads(tool.get("input_schema_json") or "{}"))
            for tool in body.get("tool_definitions") or ()
        ]
        return Request(said, tools)

    def is_streamed(self, body: dict[str, Any], path: str) -> bool:
        return True

    def whole(self, answer: Answer, model: str, number: int) -> dict[str, Any]:
        raise NotImplementedError

    def stream(self, answer: Answer, model: str, number: int) -> Iterator[Frame]:
        if answer.thought:
            yield _line({"type": _THOUGHT, "thinking": {"summary": answer.thought}})
        yield _line({"type": _TEXT, "content": answer.text}, text=answer.text)
        for at, (tool, arguments) in enumerate(answer.calls):
            call = {"tool_use_id": f"toolu_{number:04d}{at}", "tool_name": tool.name}
            yield _line({"type": _CALL, "tool_use": {**call, "input_json": json.dumps(arguments)}})
        tokens = {
            "input_tokens": answer.fresh,
            "output_tokens": answer.output + answer.thinking,
            "cache_read_input_tokens": answer.cached,
            "cache_creation_input_tokens": 0,
        }
        stop = _CALLED if answer.calls else _STOPPED
        yield _line({"type": _TOKENS, "token_usage": tokens}, stop_reason=stop)


def models(name: str) -> dict[str, Any]:
    """The reply to the question for models and for the user."""
    model = {"name": name, "suggested_prefix_char_count": 8_000, "suggested_suffix_char_count": 8_000}
    user = {"id": "dev", "email": "dev@example.com"}
    return {
        "default_model": name,
        "models": [model],
        "languages": [],
        "feature_flags": {},
        "user": user,
        "user_tier": "COMMUNITY_TIER",
    }


def _said(nodes: Any, text: Any, by: str) -> Iterator[Said]:
    for node in nodes or [{"text_node": {"content": text}}]:
        if result := node.get("tool_result_node"):
            yield Said("result", text_of(result.get("content")))
        elif node.get("tool_use"):
            yield Said("call")
        elif content := text_of(node.get("text_node") or node.get("content")):
            yield Said(by, content)


def _line(node: dict[str, Any], text: str = "", **more: Any) -> Frame:
    nodes = [{"id": node["type"] + 1, "content": "", **node}]
    lists: dict[str, Any] = {"unknown_blob_names": [], "workspace_file_chunks": [], "checkpoint_not_found": False}
    return None, {"text": text, "nodes": nodes, **lists, **more}
