"""JSON as agents write it: values, documents in files, the first records of JSON Lines files, and typed fields.

Decoding accepts control characters, NaN, numbers of any size and halves of surrogate pairs. A field of another type
than the expected one counts as missing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from ..model import parse_time

Payload = dict[str, Any]
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
MAX_DOCUMENT_BYTES = 256 << 20
"""A document is held in memory, several times over while it is decoded."""
MAX_SIDECAR_BYTES = 8 << 20
_HEAD_BYTES = 65_536
_MAX_FIRST_LINE = 64 << 20
_MOST_URL_CHARS = 300
_SCP_LIKE = re.compile(r"(?:[^@/]*@)?([^:/@]+):(?!//)(.+)")
_ADDRESS = re.compile(r"[\w.-]+(?:/[\w.~+-]+)+")

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


def read_document(path: Path, limit: int = MAX_DOCUMENT_BYTES) -> Any:
    """The JSON document in a file of at most `limit` bytes. Raises OSError, and ValueError for anything else."""
    if path.stat().st_size > limit:
        raise ValueError(f"{path.name} has more than {limit >> 20} MiB")
    return decode(path.read_bytes())


def read_or_none(path: Path, limit: int = MAX_DOCUMENT_BYTES) -> Any:
    """The JSON document in a file, or None for anything else."""
    try:
        return read_document(path, limit)
    except (OSError, ValueError):
        return None


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
        try:
            record = msgspec.json.decode(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


def begun_at(records: Iterable[Payload], *names: str) -> int:
    """The time of the first record that has one, in milliseconds; 0 if none has."""
    for record in records:
        for name in names:
            if (time := parse_time(record.get(name))) is not None:
                return time
    return 0


def text_of(payload: Any, key: str, *others: str) -> str | None:
    """The first of the fields that is a non-empty string."""
    if not isinstance(payload, dict):
        return None
    value = payload.get(key)
    if isinstance(value, str) and value:
        return value
    for key in others:
        value = payload.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def mapping_of(payload: Any, *path: str) -> Payload:
    """The mapping at the end of a path; an empty one if the path leads nowhere."""
    for key in path:
        payload = payload.get(key) if isinstance(payload, dict) else None
    return payload if isinstance(payload, dict) else {}


def list_of(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def mappings_of(value: Any) -> list[Payload]:
    """The mappings in a list. Another entry becomes an empty mapping, so that the others keep their positions."""
    return [mapping_of(entry) for entry in list_of(value)]


def integer(value: Any) -> int | None:
    """The value if it is an integer below 2**53, which is what JSON can carry exactly; else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53 else None


def local_path(place: str) -> str:
    """A path, which newer versions write as a `file:` URL."""
    if not place.startswith("file://"):
        return place
    try:
        return unquote(urlsplit(place).path) or place
    except ValueError:
        return place


def remote_address(url: object) -> str | None:
    """The address of a remote without protocol, port, user and password, in lower case: `github.com/acme/demo`. None
    for a folder, and for what is no URL."""
    if not isinstance(url, str) or len(url) > _MOST_URL_CHARS:
        return None
    url = url.strip()
    scp_like = _SCP_LIKE.fullmatch(url)
    if "://" in url:
        try:
            parts = urlsplit(url)
            host, path = parts.hostname or "", parts.path
        except ValueError:
            return None
    elif scp_like and len(scp_like[1]) > 1:  # not `C:\folder`
        host, path = scp_like[1], scp_like[2]
    else:
        return None
    path = path.strip("/").removesuffix(".git").rstrip("/")
    address = f"{host}/{path}".lower()
    return address if host and _ADDRESS.fullmatch(address) else None


def arguments_of(value: Any) -> Any:
    """The arguments of a tool call: a mapping, also when it was written as JSON in a string; else the value itself."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            decoded = msgspec.json.decode(value)
        except (ValueError, RecursionError):
            return value
        return decoded if isinstance(decoded, dict) else value
    return value
