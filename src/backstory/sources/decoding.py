"""JSON as agents write it: values, documents in files, and the first records of JSON Lines files.

Decoding accepts control characters, NaN, numbers of any size and halves of surrogate pairs.
"""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Any

import msgspec

from ..model import parse_time
from .fields import Payload, mapping_of

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
MAX_DOCUMENT_BYTES = 256 << 20
"""A document is held in memory, several times over while it is decoded."""
MAX_SIDECAR_BYTES = 8 << 20
_HEAD_BYTES = 65_536
_MAX_FIRST_LINE = 64 << 20

_decoder = msgspec.json.Decoder()
decode_fast = _decoder.decode


def _number(text: str) -> float | None:
    """The nearest float; None for NaN and for a number beyond the range of floats."""
    number = float(text)
    return number if math.isfinite(number) else None


_lenient = json.JSONDecoder(
    strict=False,
    parse_int=lambda text: int(text) if len(text) < 19 else _number(text),
    parse_float=_number,
    parse_constant=lambda _: None,
)


def decode(data: bytes | str) -> Any:
    """One JSON value. Raises ValueError for anything else."""
    try:
        return decode_fast(data)
    except UNDECODABLE:
        pass
    text = data.replace(b"\0", b"").decode("utf-8-sig", "replace") if isinstance(data, bytes) else data
    text = text.strip()
    try:
        value, end = decode_prefix(text, 0)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if end != len(text):
        raise ValueError("more than one JSON value")
    return value


def decode_prefix(text: str, position: int) -> tuple[Any, int]:
    """The JSON value that begins at a position, and where it ends. Lone surrogates become U+FFFD."""
    value, end = _lenient.raw_decode(text, position)
    plain = json.dumps(value, ensure_ascii=False)
    try:
        return decode_fast(plain.encode()), end
    except UnicodeEncodeError:
        return decode_fast(plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()), end


def decode_or_none(data: bytes | str | None) -> Any:
    """One JSON value, or None for anything else."""
    if not data:
        return None
    try:
        return decode(data)
    except ValueError:
        return None


def encode(value: Any) -> str:
    """A value as JSON text, without spaces."""
    return msgspec.json.encode(value).decode()


def read_file(path: Path, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
    """The bytes of a file beside or within a transcript. Raises OSError, also for what is no regular file, such as a
    pipe, which may have no end; and ValueError for more than `limit` bytes."""
    status = path.stat()
    if not S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    if status.st_size > limit:
        raise ValueError(f"{path.name} has more than {limit >> 20} MiB")
    return path.read_bytes()


def read_document(path: Path, limit: int = MAX_DOCUMENT_BYTES) -> Any:
    """The JSON document in a file of at most `limit` bytes. Raises OSError, and ValueError for anything else."""
    return decode(read_file(path, limit))


def read_or_none(path: Path, limit: int = MAX_DOCUMENT_BYTES) -> Any:
    """The JSON document in a file, or None for anything else."""
    try:
        return read_document(path, limit)
    except (OSError, ValueError):
        return None


def decompress(data: bytes, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Decompress a zstd document, up to `limit` bytes of it. Raises ValueError for anything else."""
    import zstandard

    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 28).stream_reader(data) as stream:
            return stream.read(limit)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


def read_mapping(path: Path) -> Payload:
    """The JSON object in a small file beside a transcript; an empty one if the file is missing, torn, large or holds
    something else."""
    return mapping_of(read_or_none(path, MAX_SIDECAR_BYTES))


def head_records(path: Path, head: bytes) -> Iterator[Payload]:
    """The JSON objects on the whole lines of a file's first bytes. Where the first line is longer, such as a prompt
    with a book in it, that line and what follows are read from the file."""
    if len(head) >= _HEAD_BYTES and b"\n" not in head:
        try:
            with path.open("rb") as file:
                head = file.readline(_MAX_FIRST_LINE) + file.read(_HEAD_BYTES)
        except OSError:
            return
    yield from records_in(head)


def records_in(data: bytes) -> Iterator[Payload]:
    """The JSON objects on the whole lines of some bytes; the last line counts if it is whole."""
    for line in data.splitlines():
        yield from records_on(line)


def records_on(line: bytes) -> list[Payload]:
    """The JSON objects on a line: mostly one, several where a writer forgot the newline, and of a torn line those
    before the damage."""
    try:
        values = [decode_fast(line)]
    except UNDECODABLE:
        values = _values_on(line.replace(b"\0", b"").decode("utf-8-sig", "replace").strip())
    return [value for value in values if isinstance(value, dict)]


def _values_on(text: str) -> list[Any]:
    values: list[Any] = []
    position = 0
    try:
        while position < len(text):
            value, position = decode_prefix(text, position)
            values.append(value)
            while position < len(text) and text[position].isspace():
                position += 1
    except (ValueError, RecursionError):
        pass
    return values


def begun_at(records: Iterable[Payload], *names: str) -> int:
    """The time of the first record that has one, in milliseconds; 0 if none has."""
    for record in records:
        for name in names:
            if (time := parse_time(record.get(name))) is not None:
                return time
    return 0
