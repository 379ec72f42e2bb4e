"""A model service on loopback that follows the script: `python -m tests.agents.model_server PORT LOG CWD`.

It speaks the wire formats that agents use, and logs each answer as one line of JSON, with its tokens. Numbers of
answers go on from the log, because an agent may tell records apart by them.
"""

from __future__ import annotations

import gzip
import json
import sys
import threading
import time
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from tests.agents import augment
from tests.agents.script import Tool, answer
from tests.agents.wire import Anthropic, Chat, Format, Gemini, Responses

MODEL = "scripted-model"
WITHOUT_TOOLS = f"{MODEL}-without-tools"
"""The name of the model for agents that offer it no tools. Others do so for requests beside the conversation."""
WAITING = "model-waits"
"""The name of a file in the home of the agent: it is there once an answer has stopped in the middle."""
_SLOW_SECONDS = 600
_FORMATS: dict[str, Format] = {
    "/messages": Anthropic(),
    "/chat/completions": Chat(),
    "/responses": Responses(),
    ":generateContent": Gemini(),
    ":streamGenerateContent": Gemini(),
    "/chat-stream": augment.Augment(),
}


class Service(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, log: Path, cwd: str) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.cwd = cwd
        self._lock = threading.Lock()
        # Open from the beginning: later the path may be covered.
        self._log = log.open("a+")
        self._log.seek(0)
        self._number = len(self._log.readlines())

    def server_close(self) -> None:
        super().server_close()
        self._log.close()

    def note(self, entry: dict[str, Any]) -> int:
        """Log an answer, and give its number."""
        with self._lock:
            self._number += 1
            self._log.write(json.dumps(entry) + "\n")
            self._log.flush()
            return self._number


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def log_message(self, *_: Any) -> None:
        """Standard error stays empty."""

    def do_GET(self) -> None:
        facts = {"context_length": 200_000, "max_model_len": 200_000, "owned_by": "tests", "type": "model"}
        model = {"id": MODEL, "object": "model", "display_name": MODEL, "created": 1_790_000_000, **facts}
        named = {"name": f"models/{MODEL}", "inputTokenLimit": 200_000, "outputTokenLimit": 8_192}
        is_list = urlparse(self.path).path.endswith("/models")
        self._reply({"object": "list", "data": [model], "models": [named]} if is_list else {})

    def do_POST(self) -> None:
        path = urlparse(self.path).path
        body = self._body()
        found = next((wire for tail, wire in _FORMATS.items() if path.endswith(tail)), None)
        if path.endswith("/get-models"):
            self._reply(augment.models(MODEL))
            return
        if found is None:
            # Counts of tokens, and what agents report about themselves.
            self._reply({"input_tokens": 1_234, "totalTokens": 1_234} if "ount" in path else {})
            return
        request = found.read(body)
        if body.get("model") == WITHOUT_TOOLS:
            request = replace(request, tools=[Tool("none", {})])
        given = answer(request, self.server.cwd)
        entry = {**asdict(given), "thinking": given.thinking, "calls": [tool.name for tool, _ in given.calls]}
        entry["tools"] = [tool.name for tool in request.tools]
        number = self.server.note(entry)
        model = body.get("model") or path.rsplit("/", 1)[-1].split(":")[0]
        if not found.is_streamed(body, path):
            self._reply(found.whole(given, model, number))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for name, data in found.stream(given, model, number):
            text = data if isinstance(data, str) else json.dumps(data)
            event = f"event: {name}\n" if name else ""
            self._chunk(f"{text}\n" if found.is_lines else f"{event}data: {text}\n\n")
            if given.is_slow and given.text in text:
                (Path(self.server.cwd).parent / WAITING).touch()
                time.sleep(_SLOW_SECONDS)
        self._chunk("")

    def _body(self) -> dict[str, Any]:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            raw = b"".join(parts)
        else:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            raw = gzip.decompress(raw)
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}

    def _reply(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


if __name__ == "__main__":
    Service(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]).serve_forever()
