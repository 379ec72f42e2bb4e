"""The words everything else uses: event types, ids, times."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from datetime import UTC, date, datetime
from enum import StrEnum
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from msgspec import Struct


class EventType(StrEnum):
    """The kinds of events, in the canonical order. The position is the code that the archive stores: append only."""

    USER_INPUT = "user_input"
    ASSISTANT_RESPONSE = "assistant_response"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"
    TOOL_RESPONSE = "tool_response"
    COMPACTION = "compaction"
    SYSTEM = "system"
    RUNTIME = "runtime"
    UNKNOWN = "unknown"

    @property
    def code(self) -> int:
        return _CODES[self]


EVENT_TYPES: tuple[EventType, ...] = tuple(EventType)
_CODES: dict[EventType, int] = {kind: code for code, kind in enumerate(EVENT_TYPES)}
SEARCHABLE_TYPES: tuple[EventType, ...] = EVENT_TYPES[:-1]
DEFAULT_TYPES: tuple[EventType, ...] = (
    EventType.USER_INPUT,
    EventType.ASSISTANT_RESPONSE,
    EventType.TOOL_RESPONSE,
)


class InvalidId(ValueError):
    """Not one of our typed ids."""


class SessionRef(Struct, frozen=True):
    """`key` is `<source>/<the agent's own session id>`."""

    key: str

    def __str__(self) -> str:
        return session_id(self.key)


class TurnRef(Struct, frozen=True):
    key: str
    ordinal: int

    def __str__(self) -> str:
        return turn_id(self.key, self.ordinal)


class EventRef(Struct, frozen=True):
    uid: bytes

    def __str__(self) -> str:
        return event_id(self.uid)


Ref = SessionRef | TurnRef | EventRef

UID_BYTES = 16
# Ordinals are one-based, without leading zeros, and below 2**20: the index packs (session, turn) into one integer.
_ORDINAL = re.compile(r"[1-9][0-9]{0,6}")
MAX_TURNS = 1 << 20
_MAX_ID_CHARS = 4096


def digest(*parts: str) -> bytes:
    """A 16-byte digest of the parts; each is framed by its length, so ("ab", "c") and ("a", "bc") differ."""
    return hashlib.blake2b(_framed(parts), digest_size=UID_BYTES).digest()


class Digest:
    """Digests whose first parts are the same: `Digest(a)(b)` is `digest(a, b)`, at half the price."""

    __slots__ = ("_begun",)

    def __init__(self, *first: str) -> None:
        self._begun = hashlib.blake2b(_framed(first), digest_size=UID_BYTES)

    def __call__(self, *parts: str) -> bytes:
        hasher = self._begun.copy()
        hasher.update(_framed(parts))
        return hasher.digest()


def _framed(parts: tuple[str, ...]) -> bytes:
    if len(parts) == 2:  # what nearly all calls have, these or one more, and three times as fast as a list
        one, other = parts
        text = f"{len(one)}:{one}{len(other)}:{other}"
    elif len(parts) == 3:
        one, other, last = parts
        text = f"{len(one)}:{one}{len(other)}:{other}{len(last)}:{last}"
    else:
        text = "".join([f"{len(part)}:{part}" for part in parts])
    if text.isascii():
        return text.encode()
    # The length is that of the bytes.
    coded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join([b"%d:%b" % (len(data), data) for data in coded])


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def _encode(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).translate(_URL_SAFE, b"=").decode("ascii")


def _decode(text: str) -> bytes:
    """Strict base64url without padding: a text that its data does not encode to again is refused."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidId(text) from None
    if not data or _encode(data) != text:
        raise InvalidId(text)
    return data


@lru_cache(maxsize=1024)  # a session with a thousand turns says it several thousand times
def _session_part(key: str) -> str:
    return _encode(key.encode())


def session_mark(key: str) -> bytes:
    """The digest by which a session that was forgotten is recognised."""
    return digest("session", key)


def session_id(key: str) -> str:
    return f"session:{_session_part(key)}"


def turn_id(key: str, ordinal: int) -> str:
    return f"turn:{_session_part(key)}:{ordinal}"


def event_id(uid: bytes) -> str:
    return f"event:{_encode(uid)}"


def _session_key(text: str) -> str:
    try:
        key = _decode(text).decode()
    except UnicodeDecodeError:
        raise InvalidId(text) from None
    source, slash, native = key.partition("/")
    if not (source and slash and native):
        raise InvalidId(text)
    return key


FILE_SUFFIX = ".jsonl"
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
_ENCODED = [chr(byte) if _PLAIN.match(chr(byte)) else f"%{byte:02X}" for byte in range(256)]


def file_name(native_id: str) -> str:
    """The file of a session with this id of its own: `[A-Za-z0-9._-]` as they are, every other byte as `%XX`."""
    if _PLAIN.fullmatch(native_id):
        return native_id + FILE_SUFFIX
    return "".join(_ENCODED[byte] for byte in native_id.encode()) + FILE_SUFFIX


def session_of_file(name: str) -> str | None:
    """The session's own id in a file name; None for a name that `file_name` does not give."""
    stem = name.removesuffix(FILE_SUFFIX)
    if stem == name or not stem:
        return None
    if _PLAIN.fullmatch(stem):
        return stem
    try:
        native_id = unquote_to_bytes(stem).decode()
        return native_id if file_name(native_id) == name else None
    except UnicodeError:
        return None


def call_by_tokens(agent: str, input: int, output: int, cache_read: int, cache_write: int) -> str:
    """The name of a model call whose id the agent does not record: the same in transcripts and in telemetry."""
    return f"{agent}:{input}/{output}/{cache_read}/{cache_write}"


def parse_id(text: str) -> Ref:
    """The object behind one of our ids; raises InvalidId for every other string."""
    if len(text) > _MAX_ID_CHARS:
        raise InvalidId(text[:80])
    kind, _, rest = text.partition(":")
    if kind == "session":
        return SessionRef(_session_key(rest))
    if kind == "turn":
        part, _, ordinal = rest.rpartition(":")
        if not _ORDINAL.fullmatch(ordinal) or int(ordinal) >= MAX_TURNS:
            raise InvalidId(text)
        return TurnRef(_session_key(part), int(ordinal))
    if kind == "event":
        uid = _decode(rest)
        if len(uid) == UID_BYTES:
            return EventRef(uid)
    raise InvalidId(text)


def rfc3339(ms: int) -> str:
    """Milliseconds since the epoch as RFC 3339 in UTC with exactly three decimals."""
    days, ms = divmod(ms, 86_400_000)
    seconds, millis = divmod(ms, 1000)
    return f"{_date(days)}T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{millis:03d}Z"


@lru_cache(maxsize=1024)  # a page of history knows few days and many times
def _date(days: int) -> str:
    # Not strftime: it writes the year 1, which callers use for "ever since", with one digit.
    return date.fromordinal(_EPOCH + days).isoformat()


_EPOCH = date(1970, 1, 1).toordinal()


# Outside 2001..2100 a "time" is a counter, a duration or a broken clock. It also bounds what rfc3339 has to print.
_EARLIEST_MS = 978_307_200_000
_LATEST_MS = 4_102_444_800_000


def parse_time(value: object) -> int | None:
    """Milliseconds since the epoch from what agents write: ISO 8601 text, epoch seconds, ms, us or ns; else None."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        ms = round(moment.timestamp() * 1000)
        return ms if _EARLIEST_MS <= ms < _LATEST_MS else None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    if not 0 < value < 1e19:  # beyond nanoseconds; integers may be too large to be scaled
        return None
    for scale in (1000, 1, 1e-3, 1e-6):
        if _EARLIEST_MS <= value * scale < _LATEST_MS:
            return int(value * scale)
    return None


_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt]((?:[01]\d|2[0-3]):\d\d)(?::(\d\d)(?:[.,](\d+))?)?(?:[Zz]|([+-])([01]\d|2[0-3]):?([0-5]\d)?)",
    re.ASCII,
)
# The years 1 to 9999 in UTC: what can be written in this form again.
_FIRST_YEAR_MS = -62_135_596_800_000
_LAST_YEAR_END_MS = 253_402_300_800_000


def parse_rfc3339(text: str) -> int | None:
    """Milliseconds since the epoch, rounded up, of an RFC 3339 time with an explicit offset; None for any other text.

    Events are kept to the millisecond: rounded up, `>= start` and `< end` hold for the exact times too.
    """
    form = _RFC3339.fullmatch(text)
    if form is None:
        return None
    date, minute, second, fraction, sign, hours, minutes = form.groups()
    leap = second == "60"
    try:
        moment = datetime.fromisoformat(f"{date}T{minute}:{'59' if leap else second or '00'}").replace(tzinfo=UTC)
    except ValueError:
        return None
    digits = (fraction or "").ljust(3, "0")
    ms = int(moment.timestamp() + leap) * 1000 + int(digits[:3]) + (digits[3:].strip("0") != "")
    if sign:
        offset = (int(hours) * 60 + int(minutes or 0)) * 60_000
        ms += offset if sign == "-" else -offset
    if ms == _LAST_YEAR_END_MS and digits[3:].strip("0"):  # the end of time as some write it, 23:59:59.999999
        ms -= 1
    return ms if _FIRST_YEAR_MS <= ms < _LAST_YEAR_END_MS else None
