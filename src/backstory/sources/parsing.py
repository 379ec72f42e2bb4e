"""The bases of parsers: `RecordParser` for records that an agent only adds, `StatelessParser` for those it rewrites."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from ..model import EventType, digest
from .base import About, Event, Item, Transcript, TurnEnd, Usage
from .content import command_exit_code, is_unknown, raw_text
from .fields import Payload, integer, list_of

_MAX_CALLS = 512
_MAX_PENDING = 256
_MAX_SESSIONS = 128
_BY_MODEL = (EventType.ASSISTANT_RESPONSE, EventType.REASONING, EventType.TOOL_CALL)
_OF_TOOL = (EventType.TOOL_CALL, EventType.TOOL_RESPONSE)


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


class PendingMemory(Memory):
    """The state for an agent whose results do not name their calls: results come in the order of the calls."""

    pending: list[str] = []
    """The ids of the calls that wait for their results."""

    def await_result(self, call_id: str) -> None:
        self.pending = [*self.pending[1 - _MAX_PENDING :], call_id]


M = TypeVar("M", bound=Memory)
V = TypeVar("V")


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

    def add_unknown_blocks(self, content: Any, *identity: str, unknown: Callable[[Any], bool] = is_unknown) -> None:
        """Events for the blocks of a message that its text leaves out."""
        for number, block in enumerate(list_of(content)):
            if unknown(block):
                self.add_unknown(block, *identity, f"block {number}")

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


def remember(table: dict[str, V], key: str, value: V, limit: int) -> None:
    """Add an entry as the newest one; the oldest one is dropped beyond the limit."""
    table.pop(key, None)
    table[key] = value
    if len(table) > limit:
        del table[next(iter(table))]


class StatelessParser:
    """A parser that keeps nothing between two reads: each begins anew, and its events replace earlier ones. A subclass
    has `parse`."""

    def __init__(self, transcript: Transcript) -> None:
        self.source = transcript.source
        self.session = transcript.session
        self.tools: dict[str, str] = {}
        """The names of the tools that were called so far, by call id."""

    def parse(self, record: Any) -> Iterable[Item]:
        raise NotImplementedError

    def finish(self) -> Iterable[Item]:
        return (TurnEnd(provisional=True),)

    def state(self) -> dict[str, Any]:
        return {}

    def writer(self, *identity: str, **fields: Any) -> Writer:
        """A writer for a record that is identified within its session."""
        return Writer(self.source, self.session, *identity, **fields)


class Writer:
    """Makes the items of one record that the agent may rewrite. All have its identity, its time and its model, and
    events have `replaces`."""

    def __init__(self, *identity: str, ts: Any = None, model: Any = None, cwd: Any = None) -> None:
        """Values of another type than the expected one count as missing, as in `fields`."""
        self._identity = identity
        self.ts: int | None = integer(ts)
        self.model: str | None = model if isinstance(model, str) else None
        self._cwd: str | None = cwd if isinstance(cwd, str) else None
        self.usage_key: bytes | None = None

    def uid(self, *part: str) -> bytes:
        return digest(*self._identity, *part)

    def event(self, part: str, kind: EventType, text: str = "", **fields: Any) -> Event:
        """An event of the record; `part` is its name within the record."""
        if not isinstance(text, str):
            raise ValueError(f"a text that is {type(text).__name__}")
        fields["ts"] = fields.get("ts") or self.ts
        fields.setdefault("cwd", self._cwd)
        if kind in _BY_MODEL:
            fields.setdefault("model", self.model)
            fields.setdefault("usage_key", self.usage_key)
        if kind in _OF_TOOL:
            fields.setdefault("originating_model", self.model)
        return Event(uid=self.uid(part), type=kind, text=text, replaces=True, **fields)

    def prompt(self, part: str, text: str, **fields: Any) -> Event:
        return self.event(part, EventType.USER_INPUT, text, starts_turn=True, **fields)

    def answer(self, part: str, text: str, **fields: Any) -> Event:
        return self.event(part, EventType.ASSISTANT_RESPONSE, text, **fields)

    def thought(self, part: str, text: str, **fields: Any) -> Event:
        return self.event(part, EventType.REASONING, text, **fields)

    def call(self, part: str, tool: str, call_id: str | None, arguments: Any, **fields: Any) -> Event:
        return self.event(part, EventType.TOOL_CALL, tool=tool, call_id=call_id, arguments=arguments, **fields)

    def result(self, part: str, tool: str | None, call_id: str | None, text: str, **fields: Any) -> Event:
        return self.event(part, EventType.TOOL_RESPONSE, text, tool=tool, call_id=call_id, **fields)

    def text_result(
        self, part: str, tool: str | None, call_id: str | None, text: str, *, failed: bool = False, **fields: Any
    ) -> Event:
        """A result of an agent that writes exit codes into texts alone. One that is not zero is a failure."""
        exit_code = command_exit_code(text, tool)
        failed = failed or bool(exit_code)
        return self.result(part, tool, call_id, text, exit_code=exit_code, failed=failed, **fields)

    def usage(
        self,
        *,
        fresh: Any = 0,
        output: Any = 0,
        cache_read: Any = 0,
        cache_write: Any = 0,
        reasoning: Any = 0,
        cost: Any = None,
        **fields: Any,
    ) -> list[Usage]:
        """The tokens of the model call behind the record, if it has any: `fresh` are those of the input that were
        neither read from the cache nor written to it, `output` includes reasoning. Events that follow name the call."""
        numbers = [integer(value) or 0 for value in (fresh, output, cache_read, cache_write, reasoning)]
        if not any(numbers):
            return []
        fresh, output, cache_read, cache_write, reasoning = numbers
        self.usage_key = self.uid("usage")
        usage = Usage(
            key=self.usage_key,
            model=self.model,
            ts=fields.pop("ts", None) or self.ts,
            input_tokens=fresh + cache_read + cache_write,
            output_tokens=output,
            cache_read_tokens=cache_read,
            cache_write_5m_tokens=cache_write,
            reasoning_tokens=reasoning,
            cost=float(cost) if isinstance(cost, int | float) and cost > 0 else None,
            **fields,
        )
        return [usage]


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
