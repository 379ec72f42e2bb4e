"""A scripted stand-in for a language model, and a place without a network to run an agent against it.

    python scripted_model.py COMMAND...

runs a command with the model on 127.0.0.1:8080, in both wire formats that the tested agents speak: Anthropic Messages
and OpenAI Responses. A prompt `FIND words` makes it call `search_sessions` with the words until something is
found, and answer with that; any other prompt is answered at once. `SCRIPTED_LOG` names a file that gets every request.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

PORT = 8080
TOOL = "search_sessions"
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_NUMBERS = count(1)
_MOST_TRIES, _PAUSE_SECONDS = 20, 0.5


class Call(NamedTuple):
    """A tool as an API names it, with the arguments of a call."""

    kind: str
    name: str
    arguments: Any
    namespace: str | None = None


class Seen(NamedTuple):
    """The contents of a request: texts of the user, results of tools, and tools that can be called."""

    prompts: list[str]
    results: list[str]
    tools: list[dict[str, Any]]


def decide(seen: Seen) -> str | Call:
    """The next step: a call, or the answer."""
    words = next((text.partition("FIND ")[2].splitlines()[0] for text in seen.prompts if "FIND " in text), None)
    if words is None:
        return "Noted."
    if seen.results and ('"rank":1' in seen.results[-1].replace("\\", "") or len(seen.results) >= _MOST_TRIES):
        return f"FOUND {seen.results[-1][:4000]}"
    if seen.results:  # the server is as new as the session that is looked for
        time.sleep(_PAUSE_SECONDS)
    question = {"query": words}
    for tool in seen.tools:
        if tool["name"].endswith(TOOL):
            return Call(tool.get("type", "function"), tool["name"], question, tool.get("namespace"))
    for tool in seen.tools:
        if tool["name"] == "ToolSearch":
            return Call("function", "ToolSearch", {"query": f"select:mcp__backstory__{TOOL}", "max_results": 1})
        if tool.get("type") == "custom" and "JavaScript" in tool.get("description", ""):
            script = f"text(await tools.mcp__backstory__{TOOL}({json.dumps(question)}));"
            return Call("custom", tool["name"], script)
    return "FAILED no tool " + ", ".join(tool["name"] for tool in seen.tools)


def flat(content: Any) -> str:
    """The text of a content of any shape."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    return "\n".join(flat(part.get("text") or part.get("content") or "") for part in content or ())


def read_messages(body: dict[str, Any]) -> Seen:
    seen = Seen([], [], body.get("tools") or [])
    for message in body["messages"]:
        blocks = message["content"]
        for block in [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks:
            if block["type"] == "tool_result":
                seen.results.append(flat(block.get("content")))
            elif block["type"] == "text" and message["role"] == "user":
                seen.prompts.append(block["text"])
    return seen


def read_responses(body: dict[str, Any]) -> Seen:
    seen = Seen([], [], [])
    offered = list(body.get("tools") or [])
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "message" and item.get("role") == "user":
            seen.prompts.append(flat(item["content"]))
        elif kind == "additional_tools":
            offered += item.get("tools") or []
        elif kind.endswith("_output"):
            seen.results.append(flat(item.get("output")))
    for tool in offered:
        inner = tool.get("tools") if tool.get("type") == "namespace" else [tool]
        space = {"namespace": tool["name"]} if tool.get("type") == "namespace" else {}
        seen.tools.extend({"name": one.get("type", ""), **one, **space} for one in inner or ())
    return seen


def write_messages(step: str | Call, model: str) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 100, "output_tokens": 20}
    head = {"id": f"msg_{next(_NUMBERS)}", "type": "message", "role": "assistant", "model": model, "content": []}
    yield {"type": "message_start", "message": {**head, "stop_reason": None, "stop_sequence": None, "usage": usage}}
    if isinstance(step, str):
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": step}}
    else:
        block = {"type": "tool_use", "id": f"toolu_{next(_NUMBERS)}", "name": step.name, "input": {}}
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(step.arguments)}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = "end_turn" if isinstance(step, str) else "tool_use"
    yield {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


def write_responses(step: str | Call, model: str) -> Iterator[dict[str, Any]]:
    number = next(_NUMBERS)
    if isinstance(step, str):
        text = {"type": "output_text", "text": step, "annotations": []}
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [text]}
    elif step.kind == "custom":
        item = {"type": "custom_tool_call", "name": step.name, "input": step.arguments}
    else:
        item = {"type": "function_call", "name": step.name, "arguments": json.dumps(step.arguments)}
    if isinstance(step, Call):
        item |= {"id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed"}
        if step.namespace:
            item["namespace"] = step.namespace
    usage = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    head = {"id": f"resp_{number}", "object": "response", "model": model, "status": "in_progress", "output": []}
    yield {"type": "response.created", "response": head}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {**head, "status": "completed", "output": [item], "usage": usage}}


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """An agent that ends while it is answered is no error."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""

    def do_GET(self) -> None:
        self._send(b'{"data": [], "models": []}', "application/json")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}"
        if log := os.environ.get("SCRIPTED_LOG"):
            with Path(log).open("ab") as file:
                file.write(data + b"\n")
        body = json.loads(data)
        path = self.path.partition("?")[0]
        if path.endswith("/messages"):
            frames = write_messages(decide(read_messages(body)), body["model"])
        elif path.endswith("/responses"):
            frames = write_responses(decide(read_responses(body)), body["model"])
        else:
            self._send(b'{"input_tokens": 100}', "application/json")
            return
        events = "".join(f"event: {frame['type']}\ndata: {json.dumps(frame)}\n\n" for frame in frames)
        self._send(events.encode(), "text/event-stream")

    def _send(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def bring_loopback_up() -> None:
    """In a new network namespace not even loopback is up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def main() -> int:
    bring_loopback_up()
    server = Server(("127.0.0.1", PORT), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    return subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
