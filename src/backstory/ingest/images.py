"""Images of transcripts. The archive keeps texts; an image is read from the record of its event when it is looked at.

An event does not store the place of its record. The record is found by the id of its tool call, or else by its time.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..archive.base import Archive, FilesRequest
from ..archive.rows import EventRow, SessionRow
from ..model import parse_time
from ..raw import RawStore
from .scan import open_transcript

MAX_BYTES = 20 << 20
_MAX_LINE_BYTES = 3 * MAX_BYTES
_MAX_DEPTH = 40
_DATA_URL = "data:image/"
# The names that agents give the id of a call in the record of its output.
_CALL_IDS = ("tool_use_id", "call_id", "toolCallId", "tool_call_id")
_MEDIA_TYPES = ("media_type", "mimeType", "mime_type", "mime")
_OUTPUT_SIGNS = tuple(f'"{name}"'.encode() for name in _CALL_IDS)
_NEAR_MS = 2_000
_MAX_PARENTS = 4


class Image(NamedTuple):
    media_type: str
    content: bytes


def has_transcript(archive: Archive, raw: RawStore, session: SessionRow) -> bool:
    """True if the transcript of a session is on disk, or its raw records are kept."""
    return any(path.is_file() or kept for path, kept in _files(archive, raw, session).items())


def find_image(archive: Archive, raw: RawStore, event: EventRow, number: int) -> Image | None:
    """An image of an event, counted from 1; None if its record is gone, or has no such image that can be shown."""
    session = archive.session(event.session)
    for path, kept in (_files(archive, raw, session) if session is not None else {}).items():
        for lines in _contents(raw, path, kept):
            images = _images_in(lines, event)
            if images is not None:
                return decode_image(images[number - 1]) if 0 < number <= len(images) else None
    return None


def _files(archive: Archive, raw: RawStore, session: SessionRow) -> dict[Path, bool]:
    """The transcripts of a session, and if they are kept as raw records. A subagent's may be those of its parent."""
    found: dict[Path, bool] = {}
    names, at = list[str](), session
    while len(names) < _MAX_PARENTS:
        names.append(at.key.partition("/")[2])
        parent = archive.session(at.parent) if at.parent else None
        if parent is None:
            break
        at = parent
    files = list(archive.files(FilesRequest(source=session.source, states=False)))
    for name in names:
        found |= {Path(row.path): False for row in files if row.session == name}
        found |= {file.path: True for file in raw.files(session.source, [name])}
    return found


def _contents(raw: RawStore, path: Path, kept: bool) -> Iterator[Iterator[bytes]]:
    """The lines of a transcript: those of the file, then those that are kept of it."""
    try:
        with open_transcript(path) as stream:
            yield _lines(iter(lambda: stream.read(1 << 20), b""))
    except (OSError, ValueError):
        pass
    if kept:
        yield _lines(raw.read(path))


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a file that comes in pieces; without those that are longer than any image may be."""
    start, skips = bytearray(), False
    for piece in pieces:
        first, *rest = piece.split(b"\n")
        start += first
        if len(start) > _MAX_LINE_BYTES:
            start.clear()
            skips = True
        for line in rest:
            if not skips:
                yield bytes(start)
            start[:], skips = line, False
    yield bytes(start)


def _images_in(lines: Iterable[bytes], event: EventRow) -> list[Any] | None:
    """The images of the record of an event as they stand in it; None where no record of it has one."""
    return _images_of_output(lines, event.call_id) if event.call_id else _images_of_prompt(lines, event.ts)


def _images_of_output(lines: Iterable[bytes], call: str) -> list[Any] | None:
    sign = msgspec.json.encode(call)[1:-1]
    for line in lines:
        if b"image" in line and sign in line:
            images = [image for node in _outputs(_decode(line), call) for image in _walk(node)]
            if images:
                return images
    return None


def _images_of_prompt(lines: Iterable[bytes], ts: int) -> list[Any] | None:
    """The images of the record at a time, or else of the one nearest to it: Codex writes a prompt twice, and its images
    may be in the other record."""
    nearest, found = _NEAR_MS, None
    for line in lines:
        if b"image" not in line or any(sign in line for sign in _OUTPUT_SIGNS):
            continue
        record = _decode(line)
        at = parse_time(record.get("timestamp")) if isinstance(record, dict) else None
        if at is not None and abs(at - ts) < nearest and (images := list(_walk(record))):
            nearest, found = abs(at - ts), images
        if nearest == 0:
            break
    return found


def _decode(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _outputs(value: Any, call: str, depth: int = 0) -> Iterator[Any]:
    """The parts of a record that are the output of a call."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, dict) and any(value.get(name) == call for name in _CALL_IDS):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _outputs(inner, call, depth + 1)


def _walk(value: Any, depth: int = 0) -> Iterator[Any]:
    """The images in a value, in order: data URLs, and mappings with the data and its type."""
    if isinstance(value, str):
        if value.startswith(_DATA_URL):
            yield value
    elif isinstance(value, dict) and isinstance(value.get("data"), str) and _media_type(value).startswith("image/"):
        yield value
    elif isinstance(value, dict | list) and depth <= _MAX_DEPTH:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _walk(inner, depth + 1)


def _media_type(value: Mapping[str, Any]) -> str:
    return next((name for key in _MEDIA_TYPES if isinstance(name := value.get(key), str)), "")


def decode_image(value: Any) -> Image | None:
    """An image as a record has it; None for one that is damaged, too large, or of a kind that may hold scripts."""
    data = value.partition(",")[2] if isinstance(value, str) else value["data"]
    if len(data) > MAX_BYTES * 4 // 3 + 4:
        return None
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    kind = _kind(content)
    return Image(kind, content) if kind else None


def _kind(content: bytes) -> str | None:
    """The type of an image by its first bytes; its record's word for it is not asked."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    return None
