"""The base of parsers: events with identities, tool calls joined to their responses, facts yielded when they change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from ..model import EventType, digest, parse_time
from .base import About, Event, Item, Transcript, TurnEnd, Usage
from .content import raw_text
from .fields import Payload, integer

_MAX_CALLS = 512
_MAX_SIDECAR_BYTES = 8 << 20
_HEAD_BYTES = 65_536
_MAX_FIRST_LINE = 64 << 20
_MAX_SESSIONS = 128


class Call(Struct, array_like=True):
    """A tool call that waits for its response."""

    tool: str
    model: str | None = None


class Memory(Struct, omit_defaults=True):
    """The state that every parser keeps between two reads. A parser that needs more extends it."""

    model: str | None = None
    cwd: str | None = None
    calls: dict[str, Call] = {}
    facts: dict[str, dict[str, Any]] = {}
    """The facts yielded so far, by session; the file's own session is ""."""
    count: int = 0
    """The number of records so far: a part of the identity of records without an id."""
    beside: str = ""
    """The version of the file beside the transcript that was read last."""


M = TypeVar("M", bound=Memory)


def restored(kind: type[M], state: dict[str, Any] | None) -> M:
    """The memory of a parser that goes on, or a new one. Raises ValueError for a state that does not fit."""
    return kind() if state is None else msgspec.convert(state, kind)


class RecordParser(Generic[M]):
    """A parser whose `read` adds the items of one record to `items`, mostly by the methods here."""

    def __init__(self, transcript: Transcript, memory: M) -> None:
        self.transcript = transcript
        self.source = transcript.source
        self.memory = memory
        self.items: list[Item] = []
        self.ts: int | None = None
        """The time of the record that is read."""
        self.session: str | None = None
        """The session of the record that is read, if it is not the file's own."""

    def parse(self, record: Any) -> Iterable[Item]:
        if type(record) is not dict:
            raise ValueError(f"not a JSON object but {type(record).__name__}")
        self.reset()
        self.memory.count += 1
        self.read(record)
        return self.items

    def reset(self) -> None:
        """Begin anew: no items, no time, the file's own session."""
        self.items, self.ts, self.session = [], None, None

    def read(self, record: Payload) -> None:
        raise NotImplementedError

    def finish(self) -> Iterable[Item]:
        return ()

    def state(self) -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(self.memory)
        return built

    # ---- items

    def add(self, kind: EventType, text: str, *identity: str, **more: Any) -> Event:
        """An event. Its identity is what the agent wrote: the same wherever the record is copied to."""
        event = Event(
            uid=digest(self.source, *identity),
            type=kind,
            text=text,
            ts=self.ts,
            session=self.session,
            cwd=self.memory.cwd,
            **more,
        )
        self.items.append(event)
        return event

    def add_prompt(self, text: str, *identity: str, **more: Any) -> Event:
        return self.add(EventType.USER_INPUT, text, *identity, starts_turn=True, **more)

    def add_answer(self, text: str, *identity: str, **more: Any) -> Event:
        more.setdefault("model", self.memory.model)
        return self.add(EventType.ASSISTANT_RESPONSE, text, *identity, **more)

    def add_reasoning(self, text: str, *identity: str, **more: Any) -> Event:
        more.setdefault("model", self.memory.model)
        return self.add(EventType.REASONING, text, *identity, **more)

    def add_call(self, tool: str, call_id: str | None, arguments: Any, *identity: str, **more: Any) -> Event:
        """A tool call of the current model. Its response finds tool and model by the call id."""
        model = more.setdefault("model", self.memory.model)
        if call_id:
            remember(self.memory.calls, call_id, Call(tool, model), _MAX_CALLS)
        return self.add(
            EventType.TOOL_CALL,
            "",
            *identity,
            tool=tool,
            call_id=call_id,
            arguments=arguments,
            originating_model=model,
            **more,
        )

    def add_response(self, text: str, call_id: str | None, *identity: str, **more: Any) -> Event:
        call = self.memory.calls.pop(call_id, None) if call_id else None
        if call:
            more["tool"] = more.get("tool") or call.tool
            more["originating_model"] = more.get("originating_model") or call.model
        return self.add(EventType.TOOL_RESPONSE, text, *identity, call_id=call_id, **more)

    def add_unknown(self, record: Any, *identity: str) -> Event:
        return self.add(EventType.UNKNOWN, raw_text(record), *identity)

    def add_usage(self, *identity: str, **tokens: Any) -> bytes:
        """The tokens of one model call; the key joins events to it."""
        key = self.usage_key(*identity)
        tokens.setdefault("model", self.memory.model)
        tokens.setdefault("ts", self.ts)
        self.items.append(Usage(key=key, session=self.session, **tokens))
        return key

    def usage_key(self, *identity: str) -> bytes:
        return digest(self.source, "usage", *identity)

    def end_turn(self) -> None:
        self.items.append(TurnEnd(session=self.session))

    def note(self, **facts: Any) -> None:
        """Facts about the session. Those that are None or not new are left out."""
        session = self.session or ""
        known = self.memory.facts.get(session, {})
        rank = facts.pop("title_rank", 0)
        new = {name: value for name, value in facts.items() if value and known.get(name) != value}
        if "title" in new and rank < known.get("title_rank", -2):
            del new["title"]
        if not new:
            return
        if "title" in new:
            new["title_rank"] = rank
        remember(self.memory.facts, session, {**known, **new}, _MAX_SESSIONS)
        if cwd := new.get("cwd"):
            self.memory.cwd = self.memory.cwd if self.session else cwd
        self.items.append(About(session=self.session, **new))


def remember(table: dict[str, Any], key: str, value: Any, limit: int) -> None:
    """Put it in as the newest entry; the oldest one goes when there are too many."""
    table.pop(key, None)
    table[key] = value
    if len(table) > limit:
        del table[next(iter(table))]


def tokens_of(usage: Any, **names: str | tuple[str, ...]) -> dict[str, int]:
    """The counts of a usage mapping: by the name of the `Usage` field, the first of the agent's names that has one."""
    if not isinstance(usage, dict):
        return {}
    found: dict[str, int] = {}
    for field, keys in names.items():
        for key in (keys,) if isinstance(keys, str) else keys:
            if (count := integer(usage.get(key))) is not None and count > 0:
                found[field] = count
                break
    return found


def with_cached(tokens: dict[str, int]) -> dict[str, int]:
    """Counts whose input leaves out the tokens of the cache, with those added to the input."""
    if not tokens:
        return tokens
    cached = tokens.get("cache_read_tokens", 0) + tokens.get("cache_write_5m_tokens", 0)
    return {**tokens, "input_tokens": tokens.get("input_tokens", 0) + cached}


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


def read_json(path: Path) -> Payload:
    """A small JSON object beside a transcript; an empty one if it is missing, torn or something else."""
    try:
        with path.open("rb") as file:
            value = msgspec.json.decode(file.read(_MAX_SIDECAR_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def version_of(*paths: Path) -> str:
    """A text that changes when one of the files does."""
    return " ".join(_version(path) for path in paths)


def _version(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return "-"
    return f"{status.st_size}.{status.st_mtime_ns}"


def with_news(read: Iterable[tuple[str, str, Mapping[str, Any]]], *names: str) -> Iterator[str]:
    """Of transcripts that were read, the paths of those beside which one of the named files has changed. A name may
    begin with `../`, and `*` stands for the name of the transcript without its suffix."""
    for path, _, state in read:
        if version_of(*beside(Path(path), *names)) != state.get("beside", ""):
            yield path


def beside(path: Path, *names: str) -> list[Path]:
    """The named files beside a transcript."""
    return [path.parent / name.replace("*", path.stem) for name in names]
