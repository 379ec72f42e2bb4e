"""Reading JSONL that is still being written: whole lines only, torn tails wait, a broken line costs only itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from ..sources.decoding import UNDECODABLE, decode_fast, decode_prefix

_CHUNK_BYTES = 1 << 20
# A line is held in memory, several times over while it is decoded.
MAX_LINE_BYTES = 64 << 20
# Where an object may begin after a broken one on the same line; trying more places than this is not worth it.
_MAX_RESUMES = 64


class BrokenLine(ValueError):
    """A line that is not JSON as a whole; `records` are the JSON objects found in it."""

    def __init__(self, message: str, records: list[Any]) -> None:
        super().__init__(message)
        self.records = records


def lines(stream: BinaryIO, offset: int) -> Iterator[tuple[int, bytes]]:
    """(end offset, line) of every complete line of a stream that stands at `offset`.

    A last line without a newline counts when it is a whole JSON object: nothing that follows could change it.
    A line longer than MAX_LINE_BYTES comes as its first bytes, which no decoder will take for JSON.
    """
    parts: list[bytes] = []
    held = 0
    while chunk := stream.read(_CHUNK_BYTES):
        start = 0
        # Several times as fast as `split`, which looks at byte after byte.
        while (end := chunk.find(b"\n", start)) >= 0:
            line, start = chunk[start:end], end + 1
            if parts:
                offset += held + len(line) + 1
                line = b"".join(parts)[:MAX_LINE_BYTES] + line if held <= MAX_LINE_BYTES else parts[0]
                parts, held = [], 0
            else:
                offset += len(line) + 1
            yield offset, line
        if rest := chunk[start:]:
            held += len(rest)
            if held <= MAX_LINE_BYTES or not parts:
                parts.append(rest)
    if parts and held <= MAX_LINE_BYTES:
        tail = b"".join(parts)
        if _is_whole_object(tail):
            yield offset + held, tail


def _is_whole_object(data: bytes) -> bool:
    data = data.strip()
    if not (data.startswith(b"{") and data.endswith(b"}")):
        return False
    try:
        decode_line(data)
    except BrokenLine:
        return False
    return True


def decode_line(line: bytes) -> list[Any]:
    """The JSON values on a line: one, none on a blank line, several when a writer forgot the newline.

    Raises BrokenLine when something on it is not JSON. Lone surrogates become U+FFFD.
    """
    try:
        return [decode_fast(line)]
    except UNDECODABLE:
        return decode_leniently(line)


def decode_leniently(line: bytes) -> list[Any]:
    """As `decode_line`, for a line that is known not to be one JSON value."""
    # NUL bytes are what a file system leaves behind after a crash.
    text = line.replace(b"\0", b"").decode("utf-8-sig", "replace").strip()
    records: list[Any] = []
    problem = ""
    position = resumes = 0
    while position < len(text):
        try:
            value, position = decode_prefix(text, position)
            problem_here = ""
            records.append(value)
        except (ValueError, RecursionError) as error:
            problem_here = str(error)[:200]
        if problem_here:
            problem = problem or problem_here
            resumes += 1
            position = text.find('{"', position + 1) if resumes <= _MAX_RESUMES else -1
            if position < 0:
                break
        else:
            while position < len(text) and text[position].isspace():
                position += 1
    if problem:
        raise BrokenLine(problem, [record for record in records if isinstance(record, dict)])
    return records
