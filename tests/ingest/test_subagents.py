"""Subagents lie below the calls that started them, in whatever order sessions are read, removed and read again."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from backstory.archive import open_engine
from backstory.archive.base import Archive, Batch
from backstory.archive.spans import TraceQuery
from tests.archive.test_conformance import ANSWER, CALL, PROMPT, RESULT, batch, session, write
from tests.archive_world import PROJECTION
from tests.examples import examples

PLAIN = [(PROMPT, "go"), (ANSWER, "done")]
CALLING = [(PROMPT, "go"), (CALL, "start an agent"), (RESULT, "it is done"), (ANSWER, "done")]
UNANSWERED = [(PROMPT, "go"), (CALL, "look")]


def family() -> dict[str, Batch]:
    """A session whose second turn starts a subagent, which starts another one in its first turn."""
    made = {
        "a": batch(session("codex/a"), PLAIN, CALLING, PLAIN),
        "b": batch(session("codex/b", parent="codex/a", parent_call="codex/a 2"), CALLING, UNANSWERED),
        "c": batch(session("codex/c", parent="codex/b", parent_call="codex/b 1"), PLAIN, UNANSWERED),
    }
    for each in made.values():
        for event in each.events:
            event.call_id = event.call_id and f"{event.session} {event.turn}"
    return made


def step(whole: Batch, turn: int) -> Batch:
    """Rows that another turn of a session adds."""
    return Batch(
        sessions=[msgspec.structs.replace(whole.sessions[0], turn_count=turn)],
        turns=[row for row in whole.turns if row.ordinal == turn],
        events=[row for row in whole.events if row.turn == turn],
    )


def spans(archive: Archive) -> set[tuple[object, ...]]:
    found = archive.spans.spans(TraceQuery(sort="startTime", limit=200), chars=20)
    assert found.total == len({(row.trace, row.id) for row in found.rows})
    return {(row.trace, row.id, row.parent, row.name, row.status, row.start, row.end) for row in found.rows}


@cache
def expected() -> set[tuple[object, ...]]:
    with TemporaryDirectory() as folder:
        archive = open_engine("local", Path(folder), PROJECTION)
        write(archive, *family().values())
        result = spans(archive)
        archive.close()
    return result


class TestAnyOrder:
    @given(st.lists(st.sampled_from("abcABC"), max_size=12), st.integers(1, 4))
    @settings(max_examples=examples(0.4))
    def test_the_result_is_the_same(self, steps: list[str], size: int) -> None:
        """A small letter reads one more turn of a session, a capital removes the session; at last all is read."""
        made = family()
        batches: list[Batch] = []
        read = dict.fromkeys(made, 0)
        for name in [*steps, *(name for name in made for _ in range(3))]:
            if name.isupper():
                batches.append(Batch(removed=[f"codex/{name.lower()}"]))
                read[name.lower()] = 0
            elif read[name] < len(made[name].turns):
                read[name] += 1
                batches.append(step(made[name], read[name]))
        with TemporaryDirectory() as folder:
            archive = open_engine("local", Path(folder), PROJECTION)
            for start in range(0, len(batches), size):
                write(archive, *batches[start : start + size])
            result = spans(archive)
            archive.close()
        assert result == expected()
