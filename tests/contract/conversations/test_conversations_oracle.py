"""Turn by turn against a second, plain reader of the same lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conversation_oracle import check, check_home, expected, oracle_turns, shown
from tests.conversation_world import Json, Session, World
from tests.examples import examples

Step = Callable[[Session], Any]
Lines = list[bytes]

# Few words, so that texts repeat; what is typed into the queue is never typed elsewhere.
WORDS = st.sampled_from(["go on", "  blank\n\nlines  ", "<div>x</div>", "日本語", "Stop hook feedback: no"])
MACHINERY = st.sampled_from(
    [
        "<command-name>/clear</command-name>\n<command-args></command-args>",
        "<local-command-stdout>ok</local-command-stdout>",
        "<bash-input>ls</bash-input>",
        "<task-notification><task-id>b7</task-id></task-notification>",
        "<system-reminder>Today is Monday.</system-reminder>",
        "Fix it\n<system-reminder>Today is Monday.</system-reminder>",
    ]
)


def synthetic(text: str) -> Step:
    def add(session: Session) -> None:
        session.answer(text, "stop_sequence")
        session.records[-1]["message"]["model"] = "<synthetic>"

    return add


def queued(session: Session) -> None:
    text = f"queued {len(session.records)}"
    session.add("queue-operation", operation="enqueue", content=text).add("queue-operation", operation="remove")
    session.answer("Handed over.", None)


def submitted(text: str) -> Step:
    def add(session: Session) -> None:
        session.add("queue-operation", operation="enqueue", content=text).add("queue-operation", operation="dequeue")
        session.prompt(text)

    return add


def again(number: int) -> Step:
    """A record of the conversation that was written before."""

    def add(session: Session) -> None:
        spoken = [record for record in session.records if "message" in record]
        session.records += spoken[number % len(spoken) : number % len(spoken) + 1] if spoken else []

    return add


def step(build: Callable[[Any], Step], words: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.builds(build, words)


STEPS: st.SearchStrategy[Step] = st.one_of(
    step(lambda text: lambda session: session.prompt(text), WORDS),
    step(lambda text: lambda session: session.answer(text), WORDS),
    step(lambda text: lambda session: session.answer(text, None), WORDS),
    step(lambda text: lambda session: session.call("Bash", {"command": text}, "out"), WORDS),
    step(lambda text: lambda session: session.user(text), MACHINERY),
    step(lambda text: lambda session: session.user([{"type": "text", "text": text}]), WORDS),
    step(lambda text: lambda session: session.user(text, isMeta=True), WORDS),
    step(lambda text: lambda session: session.user(text, isCompactSummary=True), WORDS),
    step(synthetic, WORDS),
    step(submitted, WORDS),
    st.just(queued),
    step(again, st.integers(0, 50)),
)


def turns_of(world: World, session_id: str) -> list[Json]:
    """None if the file holds nothing but metadata: then it is no session."""
    turns: list[Json] = world.ask("read_conversation", session_id=session_id, limit=10_000).get("turns", [])
    return turns


class TestAnyTranscript:
    """Whatever stands in it, and however it was cut into reads."""

    @settings(
        max_examples=examples(0.4),
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.reuse, Phase.generate),  # each example is several syncs: shrinking takes minutes
    )
    @given(
        steps=st.lists(STEPS, min_size=1, max_size=25),
        fork_at=st.integers(1, 25),
        fork_steps=st.lists(STEPS, max_size=8),
        cuts=st.lists(st.tuples(st.booleans(), st.floats(0, 1)), max_size=5),
    )
    def test_any_cut(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        steps: list[Step],
        fork_at: int,
        fork_steps: list[Step],
        cuts: list[tuple[bool, float]],
    ) -> None:
        """A session and a fork of it, read in pieces that end anywhere, also within a line and in any order."""
        home = tmp_path_factory.mktemp("home")
        original, fork = Session("original", "/srv/engine").bare(type="mode", sessionId="s"), Session("fork")
        for add in steps[:fork_at]:
            add(original)
        origin = {"sessionId": original.id, "messageUuid": "m"}
        fork.records = [{**record, "sessionId": fork.id, "forkedFrom": origin} for record in original.records]
        fork._ms = original._ms
        for session, more in ((original, steps[fork_at:]), (fork, fork_steps)):
            for add in more:
                add(session)
        whole = {session.path(home): session.text().encode() for session in (original, fork)}
        world = World(home)
        try:
            for is_fork, share in (*cuts, (False, 1.0), (True, 1.0)):
                path = (fork if is_fork else original).path(home)
                path.parent.mkdir(parents=True, exist_ok=True)
                size = max(int(share * len(whole[path])), path.stat().st_size if path.exists() else 0)
                path.write_bytes(whole[path][:size])
                world.library.sync()
            for session in (original, fork):
                assert shown(turns_of(world, session.id)) == expected(oracle_turns(session.path(home)))
            for turn in turns_of(world, fork.id):
                assert world.ask("read_turn", session_id=fork.id, turn_number=turn["turn_number"]) == turn
        finally:
            world.library.close()


@pytest.mark.corpus
class TestRealTranscripts:
    """Every assistant text of every session is in exactly one turn, and every turn is as the lines have it."""

    def test_recorded_home(self, corpus: Path, tmp_path: Path) -> None:
        home = corpus / "agents" / "claude-code" / "home"
        world = World(tmp_path, {"BACKSTORY_REDACT": "off", "BACKSTORY_SOURCES": "claude-code"}, agents_home=home)
        try:
            world.library.sync()
            check_home(home, world.list(limit=100_000), lambda id: turns_of(world, id))
        finally:
            world.library.close()

    def test_odd_ones(self, corpus: Path, tmp_path: Path) -> None:
        for number, path in enumerate(sorted((corpus / "odd" / "claude-code").rglob("*.jsonl"))):
            home = tmp_path / str(number)
            folder = home / ".claude" / "projects" / "-odd"
            folder.mkdir(parents=True)
            (folder / path.name).write_bytes(path.read_bytes())
            world = World(home, {"BACKSTORY_REDACT": "off", "BACKSTORY_SOURCES": "claude-code"})
            try:
                world.library.sync()
                (conversation,) = world.list()
                check(turns_of(world, conversation["session_id"]), path)
            finally:
                world.library.close()
