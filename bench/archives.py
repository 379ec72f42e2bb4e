"""Archives of any size, written as ingest writes them but without the files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from backstory.archive import open_engine
from backstory.archive.base import Archive, Batch, EventRow, SessionRow, TurnRow, Writer
from backstory.model import EventType, digest

START_MS = 1_760_000_000_000
SESSION_EVENTS = 200
TURN_EVENTS = 10
LONG_SESSION = "claude-code/long"
_BATCH = 4_000
_FLUSH_SECONDS = 3.0
_MUCH = 1 << 30
# Prompts, answers and tool output, as often as they are: all of them are searched by default, as the peers search all.
_TYPES = (
    EventType.USER_INPUT,
    *(EventType.TOOL_RESPONSE, EventType.ASSISTANT_RESPONSE) * 4,
    EventType.ASSISTANT_RESPONSE,
)


def session_key(number: int) -> str:
    return f"claude-code/session-{number}"


def write_events(archive: Archive, texts: Iterable[str], *, first: int = 0) -> float:
    """Write every text as an event, in sessions of 200; gives the seconds until all of it can be found."""
    started = flushed = time.perf_counter()
    writer = archive.writer()
    writer.recover()
    with writer.bulk(_MUCH):
        for batch in batches(texts, first):
            writer.write(batch)
            if time.perf_counter() - flushed > _FLUSH_SECONDS:
                writer.flush(wait=False)
                flushed = time.perf_counter()
        writer.flush()
    writer.close()
    return time.perf_counter() - started


def batches(texts: Iterable[str], first: int = 0, *, size: int = _BATCH) -> Iterator[Batch]:
    """Texts as events in sessions of 200, in batches of so many."""
    batch = Batch()
    for number, text in enumerate(texts, first):
        session, place = divmod(number, SESSION_EVENTS)
        turn, ordinal = divmod(place, TURN_EVENTS)
        key, ts = session_key(session), START_MS + number * 1000
        if place == 0:
            batch.sessions.append(
                SessionRow(
                    key=key,
                    source="claude-code",
                    title=" ".join(text.split()[:8]),
                    cwd=f"/home/dev/project{session % 40}",
                    started_at=ts,
                    updated_at=ts + SESSION_EVENTS * 1000,
                    turn_count=SESSION_EVENTS // TURN_EVENTS,
                    event_count=SESSION_EVENTS,
                    completed=True,
                )
            )
        uid = digest("bench", str(number))
        if ordinal == 0:
            batch.turns.append(
                TurnRow(session=key, ordinal=turn + 1, event_count=TURN_EVENTS, started_at=ts, prompt=uid)
            )
        batch.events.append(
            EventRow(
                uid=uid,
                session=key,
                turn=turn + 1,
                ordinal=ordinal + 1,
                type=_TYPES[ordinal],
                ts=ts,
                text=text,
                cwd=f"/home/dev/project{session % 40}",
            )
        )
        if len(batch.events) >= size:
            yield batch
            batch = Batch()
    yield batch


def write_long_session(archive: Archive, turns: int) -> list[bytes]:
    """One session with many turns, each a prompt and an answer; gives the ids of its events."""
    writer = archive.writer()
    writer.recover()
    batch = Batch(
        sessions=[
            SessionRow(
                key=LONG_SESSION,
                source="claude-code",
                title="A long session",
                started_at=START_MS,
                updated_at=START_MS + turns,
                turn_count=turns,
                event_count=2 * turns,
            )
        ]
    )
    for turn in range(1, turns + 1):
        prompt, answer = digest("long", str(turn), "p"), digest("long", str(turn), "a")
        for ordinal, (uid, kind) in enumerate(
            ((prompt, EventType.USER_INPUT), (answer, EventType.ASSISTANT_RESPONSE)), 1
        ):
            text = f"step {turn}: " + "what was decided about the schema and why " * 20
            batch.events.append(
                EventRow(
                    uid=uid, session=LONG_SESSION, turn=turn, ordinal=ordinal, type=kind, ts=START_MS + turn, text=text
                )
            )
        batch.turns.append(
            TurnRow(
                session=LONG_SESSION,
                ordinal=turn,
                event_count=2,
                prompt=prompt,
                terminal=answer,
                terminal_type=EventType.ASSISTANT_RESPONSE,
            )
        )
    writer.write(batch)
    writer.close()
    return [event.uid for event in batch.events]


def write_sessions(home: Path, count: int) -> Archive:
    """An archive of many sessions with nothing in them worth reading: for listing."""
    archive = open_engine("local", home)
    writer: Writer = archive.writer()
    writer.recover()
    modes = ("chat", "tool_calling", "tool_calling", "web_search")
    for start in range(0, count, 10_000):
        batch = Batch()
        for number in range(start, min(start + 10_000, count)):
            ts = START_MS + number * 60_000
            batch.sessions.append(
                SessionRow(
                    key=f"claude-code/listed-{number}",
                    source="claude-code" if number % 3 else "codex",
                    title=f"Session {number}",
                    cwd=f"/home/dev/project{number % 40}",
                    started_at=ts,
                    updated_at=ts + 1_800_000,
                    turn_count=5,
                    event_count=50,
                    completed=bool(number % 5),
                    mode=modes[number % 4],  # type: ignore[arg-type]
                )
            )
        writer.write(batch)
    writer.close()
    return archive
