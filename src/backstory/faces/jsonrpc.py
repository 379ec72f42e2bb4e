"""JSON-RPC 2.0 in lines: messages, errors, and lines that are no messages."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, TypeGuard

import msgspec
from msgspec import UNSET, Struct

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
UNSUPPORTED_VERSION = -32022

# Nesting beyond this is refused: not every reader of JSON can follow it.
_MAX_DEPTH = 200
_NO_MESSAGE = "not a JSON-RPC 2.0 message"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\],:]|[^\s"{}\[\],:]++')
_MAX_SCANNED_CHARS = 1 << 20


class ProtocolError(Exception):
    """A JSON-RPC error to answer a request with."""

    def __init__(self, code: int, message: str, data: Any = UNSET) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Notification(Struct, frozen=True):
    method: str
    params: dict[str, Any]


class Request(Struct, frozen=True):
    id: str | int
    method: str
    params: dict[str, Any]


class Unreadable(ProtocolError):
    """A line that is no message, with the id of its request if it has one."""

    def __init__(self, code: int, message: str, value: Any = None) -> None:
        super().__init__(code, message)
        given = value.get("id") if isinstance(value, dict) and "method" in value else None
        self.id = given if _is_id(given) else None


def decode_line(line: bytes) -> Request | Notification | None:
    """The message in a line. None for a blank line and for responses, which nothing here waits for."""
    if not line.strip():
        return None
    value = _parse(line)
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        raise Unreadable(INVALID_REQUEST, _NO_MESSAGE, value)
    if "method" not in value and (isinstance(value.get("result"), dict) or isinstance(value.get("error"), dict)):
        return None
    method, params = value.get("method"), value.get("params")
    if not isinstance(method, str) or not (params is None or isinstance(params, dict)):
        raise Unreadable(INVALID_REQUEST, _NO_MESSAGE, value)
    given = value.get("id")
    return Request(given, method, params or {}) if _is_id(given) else Notification(method, params or {})


def _parse(line: bytes) -> Any:
    if line.count(b"[") + line.count(b"{") > _MAX_DEPTH:
        text = line.decode("utf-8", "replace")
        if _depth(text) > _MAX_DEPTH:
            raise Unreadable(PARSE_ERROR, "nested too deeply", top_of(text))
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    # Half a character (a cut emoji, a stray byte) is replaced: the rest of the request is still a request.
    import json

    try:
        value = json.loads(line.decode("utf-8", "replace"))
        return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except ValueError:
        raise Unreadable(PARSE_ERROR, "not a line of JSON") from None


def _is_id(value: Any) -> TypeGuard[str | int]:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _depth(text: str) -> int:
    depth = deepest = 0
    for match in _TOKEN.finditer(text):
        if match[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif match[0] in "]}":
            depth -= 1
    return deepest


def top_of(line: str) -> dict[str, Any]:
    """The plain values at the top of a JSON object that cannot be decoded."""
    depth, key, colon = 0, "", False
    found: dict[str, Any] = {}
    for match in _TOKEN.finditer(line, 0, _MAX_SCANNED_CHARS):
        token = match[0]
        if token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
        elif depth == 1 and colon and token[0] in '"-0123456789':
            with suppress(msgspec.DecodeError):
                found[key] = msgspec.json.decode(token)
        if depth == 1:
            key, colon = (token[1:-1] if token[0] == '"' else key), token == ":"
    return found
