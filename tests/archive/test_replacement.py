"""Events that are replaced: agents that rewrite their records give the same event with another text."""

from __future__ import annotations

from pathlib import Path

import pytest

from backstory.archive.base import Archive, Batch, SearchRequest
from backstory.archive.spans import TraceQuery
from backstory.model import DEFAULT_TYPES, EventType, turn_id
from tests.archive_world import (
    Rewriting,
    event_row,
    found,
    found_exchanges,
    ingest,
    record,
    span_names,
    sync,
    turn_row,
    uid,
)

KEY = "claude-code/s"
MUCH = 1 << 30


@pytest.fixture
def source(tmp_path: Path) -> Rewriting:
    return Rewriting(tmp_path / "agent")


def texts(archive: Archive, turn: int = 1) -> list[str]:
    return [event.text for event in archive.events(KEY, turn)]


class TestText:
    """Record, search and traces have the text that the agent wrote last."""

    def test_across_syncs(self, engine: Archive, source: Rewriting) -> None:
        source.save("s", record("p", "prompt", "question"), record("a", "answer", "partial apricot"))
        sync(engine, source)
        before = event_row(engine, uid("a"))
        source.save("s", record("p", "prompt", "question"), record("a", "answer", "complete banana", may_end_turn=True))
        assert sync(engine, source) == 0
        after = event_row(engine, uid("a"))
        assert before is not None
        assert after is not None
        assert (after.session, after.turn, after.ordinal) == (before.session, before.turn, before.ordinal)
        assert texts(engine) == ["question", "complete banana"]
        assert found(engine, "apricot") == []
        assert found(engine, "banana") == ["complete banana"]
        assert found_exchanges(engine, "question banana") == [0]
        assert found_exchanges(engine, "apricot") == []
        trace = engine.spans.trace(turn_id(KEY, 1))
        assert trace is not None
        assert [span.output for span in trace[1] if span.type == "GENERATION"] == ["complete banana"]

    def test_a_former_text_is_no_evidence(self, engine: Archive, source: Rewriting) -> None:
        """An event that no longer has the words adds nothing to the other hits of its session."""
        source.save("s", record("p", "prompt", "apricot question"), record("a", "answer", "apricot apricot"))
        sync(engine, source)
        request = SearchRequest(query="apricot", types=DEFAULT_TYPES)
        assert all(hit.evidence is not None and hit.evidence.session > 0 for hit in engine.search(request).hits)
        source.save("s", record("p", "prompt", "apricot question"), record("a", "answer", "banana"))
        sync(engine, source)
        (hit,) = engine.search(request).hits
        assert hit.event.text == "apricot question"
        assert hit.evidence is not None
        assert hit.evidence.session == 0

    def test_within_one_commit(self, engine: Archive, source: Rewriting) -> None:
        source.save(
            "s",
            record("p", "prompt", "question"),
            record("a", "answer", "first apricot"),
            record("b", "answer", "other"),
            record("a", "answer", "second banana"),
        )
        assert sync(engine, source) == 3
        assert texts(engine) == ["question", "second banana", "other"]
        assert (found(engine, "apricot"), found(engine, "banana")) == ([], ["second banana"])

    def test_across_commits_of_one_writer(self, engine: Archive, source: Rewriting) -> None:
        """The last version alone is found, also where an earlier one had reached the index."""
        source.save("s", record("p", "prompt", "question"), record("a", "answer", "version0"))
        sync(engine, source)
        writer = engine.writer()
        session, turn, event = writer.session(KEY), turn_row(writer, KEY, 1), writer.events(KEY, 1)[1]
        assert session is not None
        assert turn is not None
        for number in range(1, 7):
            event.text = f"version{number}"
            writer.write(Batch(sessions=[session], turns=[turn], replaced=[event]))
            if number in (1, 4):
                writer.flush()
                assert [found(engine, f"version{old}") for old in range(number)] == [[]] * number
                assert found(engine, f"version{number}") == [f"version{number}"]
        writer.close()
        assert [len(found(engine, f"version{number}")) for number in range(7)] == [0, 0, 0, 0, 0, 0, 1]
        assert engine.sync_state().recovered

    def test_many_turns(self, engine: Archive, source: Rewriting) -> None:
        def talk(word: str, turns: int = 60) -> list[dict[str, object]]:
            pairs = [
                (record(f"p{n}", "prompt", f"question {n}"), record(f"a{n}", "answer", f"{word} {n}"))
                for n in range(turns)
            ]
            return [item for pair in pairs for item in pair]

        source.save("s", *talk("apricot"))
        sync(engine, source)
        source.save("s", *talk("banana", 61))
        assert sync(engine, source) == 2
        assert found(engine, "apricot") == []
        assert len(found(engine, "banana")) == 50
        assert [turn.event_count for turn in engine.turns(KEY)] == [2] * 61
        counts = engine.counts()
        assert (counts.turns, counts.events) == (61, 122)

    def test_unchanged_records_change_nothing(self, engine: Archive, source: Rewriting) -> None:
        records = (
            record("p", "prompt", "question", cwd="/x"),
            record("c", "call", tool="Bash", arguments={"command": "ls", "deep": [1, {"a": None}]}, call_id="1"),
            record("r", "result", "out", call_id="1", exit_code=0, extra={"k": 1}),
            record("a", "answer", "done", ends_turn=True),
        )
        source.save("s", *records)
        sync(engine, source)
        written: list[Batch] = []
        writer = engine.writer()
        keep = writer.write
        writer.write = lambda batch: (written.append(batch), keep(batch))[1]  # type: ignore[method-assign, func-returns-value]
        source.save("s", *records, record("p2", "prompt", "more"))
        ingest(writer, source).sync()
        writer.close()
        assert [event.text for batch in written for event in batch.events] == ["more"]
        assert not any(batch.replaced for batch in written)

    def test_only_where_it_is_asked_for(self, engine: Archive, source: Rewriting) -> None:
        source.save("s", record("p", "prompt", "question"))
        sync(engine, source)
        source.save("s", record("p", "prompt", "otherwise", replaces=False))
        sync(engine, source)
        assert texts(engine) == ["question"]

    def test_another_session_cannot(self, engine: Archive, source: Rewriting) -> None:
        """There it is a replay of what belongs elsewhere."""
        source.save("s", record("p", "prompt", "question"))
        sync(engine, source)
        source.save("t", record("p", "prompt", "otherwise"), record("q", "prompt", "own"))
        sync(engine, source)
        assert texts(engine) == ["question"]

    def test_rebuilt_index(self, engine: Archive, source: Rewriting) -> None:
        for word in ("apricot", "banana", "cherry"):
            source.save("s", record("p", "prompt", word))
            sync(engine, source)
        writer = engine.writer()
        writer.recover(reindex=True)
        writer.close()
        assert engine.counts().documents == 1
        assert [len(found(engine, word)) for word in ("apricot", "banana", "cherry")] == [0, 0, 1]

    def test_a_second_process_follows(self, engine: Archive, source: Rewriting) -> None:
        source.save("s", record("p", "prompt", "question"), record("a", "answer", "apricot"))
        sync(engine, source)
        writer = engine.writer()
        session, turn, event = writer.session(KEY), turn_row(writer, KEY, 1), writer.events(KEY, 1)[1]
        assert session is not None
        assert turn is not None
        with writer.bulk(MUCH):
            for word in ("banana", "cherry"):
                event.text = word
                writer.write(Batch(sessions=[session], turns=[turn], replaced=[event]))
                writer.flush(wait=word == "cherry")
            assert [len(found(engine, word)) for word in ("apricot", "banana", "cherry")] == [0, 0, 1]
        writer.close()
        assert [len(found(engine, word)) for word in ("apricot", "banana", "cherry")] == [0, 0, 1]


class TestTurn:
    """The fields of a turn and its session follow from the events as they are now."""

    def test_title_and_prompt(self, engine: Archive, source: Rewriting) -> None:
        source.save("s", record("p", "prompt", "queston"), record("a", "answer", "x"))
        sync(engine, source)
        source.save("s", record("p", "prompt", "question"), record("a", "answer", "x"))
        sync(engine, source)
        session, turn = engine.session(KEY), turn_row(engine, KEY, 1)
        assert session is not None
        assert turn is not None
        assert session.title == "question"
        assert turn.prompt == uid("p")
        (trace,) = engine.spans.traces(TraceQuery(sort="createdAt")).rows
        assert trace.name == "question"

    def test_a_title_of_its_own_stays(self, engine: Archive, source: Rewriting) -> None:
        source.save("s", record("p", "prompt", "same"), title="same", title_rank=3)
        sync(engine, source)
        source.save("s", record("p", "prompt", "other"), title="same", title_rank=3)
        sync(engine, source)
        session = engine.session(KEY)
        assert session is not None
        assert session.title == "same"

    def test_types_and_tools(self, engine: Archive, source: Rewriting) -> None:
        """A record that turns out to be something else: its traces are those of what it is."""
        prompt, done = record("p", "prompt", "q"), record("a", "answer", "done")
        source.save("s", prompt, record("x", "call", tool="Bsh", arguments={}, call_id="1"), done)
        sync(engine, source)
        assert "Bsh" in span_names(engine)
        source.save("s", prompt, record("x", "call", tool="Bash", arguments={"command": "ls"}, call_id="1"), done)
        sync(engine, source)
        turn = turn_row(engine, KEY, 1)
        assert turn is not None
        assert turn.tools == ("Bash",)
        assert found(engine, "ls") == ['Bash(command="ls")']
        assert {"Bash", "Bsh"} & set(span_names(engine)) == {"Bash"}
        source.save("s", prompt, record("x", "think", "no tool after all"), done)
        sync(engine, source)
        turn = turn_row(engine, KEY, 1)
        assert turn is not None
        assert turn.tools == ()
        assert turn.types == (EventType.USER_INPUT, EventType.REASONING, EventType.ASSISTANT_RESPONSE)
        assert "Bash" not in span_names(engine)

    @pytest.mark.parametrize(
        ("before", "after", "completed"),
        [
            ({}, {"ends_turn": True}, True),
            ({"ends_turn": True}, {"ends_turn": True}, True),
            ({"may_end_turn": True}, {}, False),
        ],
    )
    def test_end(
        self, engine: Archive, source: Rewriting, before: dict[str, bool], after: dict[str, bool], completed: bool
    ) -> None:
        source.save("s", record("p", "prompt", "q"), record("a", "answer", "one", **before))
        sync(engine, source)
        source.save("s", record("p", "prompt", "q"), record("a", "answer", "two", **after))
        sync(engine, source)
        turn, session = turn_row(engine, KEY, 1), engine.session(KEY)
        assert turn is not None
        assert session is not None
        assert (turn.terminal, session.completed) == (uid("a") if completed else None, completed)

    def test_an_end_told_by_another_record_stays(self, engine: Archive, source: Rewriting) -> None:
        source.save("s", record("p", "prompt", "q"), record("a", "answer", "one"), {"end": True})
        sync(engine, source)
        source.save("s", record("p", "prompt", "q"), record("a", "answer", "two"))
        sync(engine, source)
        turn = turn_row(engine, KEY, 1)
        assert turn is not None
        assert turn.terminal == uid("a")

    def test_what_came_later_is_not_the_end_of_it(self, engine: Archive, source: Rewriting) -> None:
        records = (record("p", "prompt", "q"), record("a", "answer", "one"), record("c", "call", tool="Bash"))
        source.save("s", *records)
        sync(engine, source)
        source.save("s", records[0], record("a", "answer", "two", ends_turn=True), records[2])
        sync(engine, source)
        turn = turn_row(engine, KEY, 1)
        assert turn is not None
        assert turn.terminal is None
