"""Forgetting a session: nothing of it is found, nothing of it is left in the files, and it is not read again."""

from __future__ import annotations

import os
import random
import sqlite3
import string
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from backstory.archive import open_engine
from backstory.archive.base import Archive, Part, SessionsRequest
from backstory.archive.spans import Origin, SpanRow, TraceQuery
from backstory.config import load_settings
from tests.archive import clickhouse_server
from tests.archive_world import (
    START,
    Rewriting,
    children_of,
    conversations,
    event_row,
    exchanges_of,
    found,
    found_exchanges,
    ingest,
    is_forgotten,
    record,
    span_names,
    sync,
    uid,
    usage_of,
)

# For tests that change or count on files of the local engine.
local_only = pytest.mark.parametrize("engine", ["local"], indirect=True)
SECRET = "xylophagous"
KEY = "claude-code/s"


@pytest.fixture
def source(tmp_path: Path) -> Rewriting:
    return Rewriting(tmp_path / "agent")


def talk(name: str, word: str) -> list[dict[str, object]]:
    """A session that says a word wherever a session says something."""
    return [
        record(f"{name}p", "prompt", f"question about {word}", cwd=f"/home/dev/{word}", tokens=5),
        record(f"{name}c", "call", tool=f"Tool-{word}", arguments={"command": word}, call_id=f"{name}1"),
        record(f"{name}r", "result", f"{word} was found " * 40, call_id=f"{name}1", extra={"note": word}),
        record(f"{name}t", "think", f"thinking of {word}"),
        record(f"{name}a", "answer", f"the answer is {word}", ends_turn=True),
    ]


def forget(archive: Archive, key: str = KEY, *, remember: bool = True, wipe: bool = True) -> None:
    archive.forget(key, remember=remember, wipe=wipe)
    assert archive.sync_state().forgetting == (key,)
    writer = archive.writer()
    writer.recover()
    writer.close()
    assert archive.sync_state().forgetting == ()


def put_span(archive: Archive, session: str | None, trace: str = "t1", id: int = 1, word: str = SECRET) -> None:
    span = SpanRow(
        trace=trace,
        id=id,
        name=f"span {word}",
        start=START,
        end=START + 1,
        model=f"model {word}",
        stop_reason=f"stop {word}",
        input=word,
        attributes={"w": word, f"key.{word}": 1},
    )
    archive.spans.put([span], {trace: Origin(session=session)})


def holding(folder: Path, word: str = SECRET) -> list[str]:
    """The files below a home folder that hold a word, or the tables of its archive on a server."""
    settings = load_settings(folder, {}).archive
    if settings.engine == "clickhouse":
        server, _, database = settings.clickhouse.url.rpartition("/")
        run = partial(clickhouse_server.command, f"{server}/?database={database}")
        tables = run(f"SELECT name FROM system.tables WHERE database = '{database}'").split()
        return [
            table for table in tables if int(run(f"SELECT countIf(toString(tuple(*)) LIKE '%{word}%') FROM {table}"))
        ]
    needle = word.encode()
    return [
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and needle in path.read_bytes()
    ]


def check_gone(archive: Archive, key: str = KEY) -> None:
    assert found(archive, SECRET) == []
    assert found_exchanges(archive, SECRET) == []
    assert archive.session(key) is None
    assert archive.turns(key) == []
    assert usage_of(archive, key) == []
    assert children_of(archive, key) == []
    assert event_row(archive, uid("sa")) is None
    assert key not in [row.key for row in archive.sessions(SessionsRequest(start=0, end=1 << 53, limit=100))]
    assert not [name for name in span_names(archive) if SECRET in name]
    traces = archive.spans.traces(TraceQuery(sort="createdAt"))
    assert key not in [trace.session for trace in traces.rows]
    assert archive.sync_state().recovered


class TestForget:
    def test_nothing_is_found_and_nothing_is_left(self, engine: Archive, source: Rewriting, tmp_path: Path) -> None:
        source.save("s", *talk("s", SECRET), title=f"about {SECRET}", summary=SECRET)
        source.save("other", *talk("o", "marzipan"))
        sync(engine, source)
        put_span(engine, KEY)
        put_span(engine, "claude-code/other", "t2", word="marzipan")
        assert holding(tmp_path / "backstory")
        forget(engine)
        check_gone(engine)
        assert holding(tmp_path / "backstory") == []
        assert len(found(engine, "marzipan")) == 5
        assert found_exchanges(engine, "marzipan") == [0]
        assert "span marzipan" in span_names(engine)
        assert engine.counts().sessions == 1

    def test_it_is_not_read_again(self, engine: Archive, source: Rewriting, tmp_path: Path) -> None:
        """Not untouched, touched, grown, renamed, copied or restored, and not after the index was built anew."""
        path = source.save("s", *talk("s", SECRET), title=SECRET)
        sync(engine, source)
        before = path.read_bytes()
        forget(engine)
        more = record("s2", "prompt", f"more of {SECRET}")

        def check() -> None:
            sync(engine, source)
            check_gone(engine)
            assert engine.counts().events == 0
            assert holding(tmp_path / "backstory") == []

        check()
        os.utime(path, ns=(1, 1))
        check()
        source.save("s", *talk("s", SECRET), more, title=SECRET)
        check()
        source.save("copy", *talk("s", SECRET), title=SECRET)
        check()
        source.save("copy", title=SECRET, title_rank=3)  # which it says again by itself
        check()
        path.unlink()
        check()
        path.write_bytes(before)
        check()
        writer = engine.writer()
        writer.recover(reindex=True)
        writer.close()
        assert engine.counts().documents == 0
        check()

    @local_only
    def test_free_space_of_pages(self, engine: Archive, source: Rewriting, tmp_path: Path) -> None:
        """Rows that were moved from page to page leave copies behind, whatever is deleted later."""
        names = [f"{SECRET}{number:03d}z" for number in range(150)]
        random.Random(1).shuffle(names)
        for length in (1, 4):
            for name in names:
                prompt = record(name, "prompt", f"{name} " * length, cwd=f"/home/dev/{name * length}")
                source.save(name, prompt, title=f"{name} " * length, title_rank=3)
            sync(engine, source)
        for name in names[:60]:
            engine.forget(f"claude-code/{name}")
        writer = engine.writer()
        writer.recover()
        writer.close()
        assert [name for name in names[:60] if holding(tmp_path / "backstory", name)] == []
        assert all(found(engine, name) for name in names[60:])

    def test_a_fork_keeps_its_own(self, engine: Archive, source: Rewriting, tmp_path: Path) -> None:
        """The turns that it inherited do not come back through it."""
        source.save("s", *talk("s", SECRET))
        sync(engine, source)
        forget(engine)
        own = [record("f1", "prompt", "own question"), record("f2", "answer", "own answer", ends_turn=True)]
        source.save("fork", *talk("s", SECRET), *own, title=SECRET, title_rank=3)
        sync(engine, source)
        check_gone(engine)
        assert [event.text for event in engine.events("claude-code/fork", 1)] == ["own question", "own answer"]
        session = engine.session("claude-code/fork")
        assert session is not None
        assert (session.title, session.turn_count, session.event_count) == ("own question", 1, 2)
        assert holding(tmp_path / "backstory") == []

    def test_a_fork_that_was_read_before(self, engine: Archive, source: Rewriting) -> None:
        source.save("s", *talk("s", SECRET))
        sync(engine, source)
        source.save("fork", *talk("s", SECRET), record("f1", "prompt", "own question"))
        sync(engine, source)
        forget(engine)
        check_gone(engine)
        assert found(engine, "own question") == ["own question"]
        assert [exchange.user_text for exchange in exchanges_of(engine, "claude-code/fork")] == ["own question"]
        assert found_exchanges(engine, "own question") == [0]
        session = engine.session("claude-code/fork")
        assert session is not None
        assert (session.exchange_count, session.first_at) == (1, session.started_at)
        source.save("fork", *talk("s", SECRET), record("f1", "prompt", "own question"), record("f2", "answer", "aye"))
        sync(engine, source)
        assert [event.text for event in exchanges_of(engine, "claude-code/fork")[0].said] == ["aye"]
        assert found_exchanges(engine, "aye") == [0]

    def test_a_fork_with_words_of_both(self, engine: Archive, source: Rewriting, tmp_path: Path) -> None:
        """Of an exchange that the fork inherited, only its additions are left. A copy without anything of
        its own is no session any more."""
        whole = f"<tag>{SECRET}</tag> "
        shared = [record("sq", "prompt", SECRET, user_text=whole * 9), record("sx", "answer", SECRET)]
        source.save("s", *shared)
        sync(engine, source)
        source.save("fork", *shared, record("f1", "answer", "own answer"), record("f2", "prompt", "own question"))
        source.save("copy", *shared)
        sync(engine, source)
        assert [exchange.user_text for exchange in exchanges_of(engine, "claude-code/fork")] == [
            whole * 9,
            "own question",
        ]
        assert len(conversations(engine)) == 3
        forget(engine)
        check_gone(engine)
        exchanges = exchanges_of(engine, "claude-code/fork")
        assert [(exchange.row.number, exchange.user_text) for exchange in exchanges] == [(0, None), (1, "own question")]
        assert [event.text for event in exchanges[0].said] == ["own answer"]
        assert sorted(found_exchanges(engine, "own answer question")) == [0, 1]
        assert [row.key for row in conversations(engine)] == ["claude-code/fork"]
        assert holding(tmp_path / "backstory") == []

    def test_what_it_started_goes_with_it(self, engine: Archive, source: Rewriting) -> None:
        """Also what it starts later."""
        source.save("s", *talk("s", "harmless"))
        source.save("child@s", *talk("c", SECRET), parent="s", parent_call="s1")
        source.save("grandchild@child", *talk("g", SECRET), parent="child")
        sync(engine, source)
        assert found(engine, SECRET)
        forget(engine)
        check_gone(engine)
        assert engine.counts().sessions == 0
        source.save("later@s", *talk("l", SECRET), parent="s")
        sync(engine, source)
        check_gone(engine)

    def test_only_what_it_started(self, engine: Archive, source: Rewriting) -> None:
        """A subagent that is forgotten by itself leaves the trace that it was in."""
        source.save("s", *talk("s", "harmless"))
        source.save("child@s", *talk("c", SECRET), parent="s", parent_call="s1", title=SECRET, title_rank=2)
        sync(engine, source)
        assert SECRET in span_names(engine)
        forget(engine, "claude-code/child")
        assert not [name for name in span_names(engine) if SECRET in name]
        assert len(found(engine, "harmless")) == 5
        sync(engine, source)
        assert found(engine, SECRET) == []

    def test_numbers_are_not_given_twice(self, engine: Archive, source: Rewriting) -> None:
        """Sessions that come after the newest one was forgotten are found, in this process and the next."""
        source.save("first", *talk("f", "marzipan"))
        sync(engine, source)
        source.save("s", *talk("s", SECRET))
        sync(engine, source)
        forget(engine)
        source.save("next", *talk("n", "nougat"))
        sync(engine, source)
        check_gone(engine)
        assert [len(found(engine, word)) for word in ("marzipan", "nougat")] == [5, 5]
        assert [found_exchanges(engine, word) for word in ("marzipan", "nougat")] == [[0], [0]]
        assert "Tool-nougat" in span_names(engine)

    def test_one_that_was_never_read(self, engine: Archive, source: Rewriting) -> None:
        forget(engine)
        source.save("s", *talk("s", SECRET))
        sync(engine, source)
        check_gone(engine)
        assert is_forgotten(engine, KEY)
        assert not is_forgotten(engine, "claude-code/other")

    def test_without_a_trace_in_memory(self, engine: Archive, source: Rewriting) -> None:
        """A session whose id may come again, as another one."""
        path = source.save("s", *talk("s", SECRET))
        sync(engine, source)
        path.unlink()
        forget(engine, remember=False, wipe=False)
        check_gone(engine)
        source.save("s", *talk("s", "nougat"))
        sync(engine, source)
        assert len(found(engine, "nougat")) == 5

    def test_a_writer_at_work_takes_requests(self, engine: Archive, source: Rewriting) -> None:
        path = source.save("s", *talk("s", SECRET))
        writer = engine.writer()
        reading = ingest(writer, source)
        reading.sync()
        engine.forget(KEY)
        source.save("s", *talk("s", SECRET), record("s2", "prompt", f"{SECRET} again"))
        reading.sync_paths([path])
        assert engine.sync_state().forgetting == ()
        check_gone(engine)
        source.save("other", *talk("o", "nougat"))
        reading.sync()
        writer.close()
        check_gone(engine)
        assert len(found(engine, "nougat")) == 5


@local_only
class TestInterrupted:
    def test_exchanges_that_were_fed_again(self, engine: Archive, source: Rewriting, tmp_path: Path) -> None:
        """The note that a session's exchanges are numbered anew outlived a crash: they are fed once more, not less."""
        source.save("s", *talk("s", "nougat"))
        sync(engine, source)
        assert found_exchanges(engine, "nougat") == [0]
        with closing(sqlite3.connect(tmp_path / "backstory" / "archive.db", isolation_level=None)) as db:
            db.execute("INSERT INTO stale (session, turn, event) SELECT id, 0, 0 FROM session")
        sync(engine, source)
        assert found_exchanges(engine, "nougat") == [0]
        assert engine.sync_state().recovered


class TestTelemetry:
    """Spans that were received, of a session that has a transcript or not."""

    def test_later_spans(self, engine: Archive, source: Rewriting, tmp_path: Path) -> None:
        source.save("s", *talk("s", SECRET))
        sync(engine, source)
        put_span(engine, KEY, "t1", 1)
        forget(engine)
        put_span(engine, KEY, "t1", 2)  # the same trace goes on
        put_span(engine, None, "t1", 3)  # and does not say of which session
        put_span(engine, KEY, "t2", 4)  # another trace of the session
        put_span(engine, None, "t2", 5)
        put_span(engine, None, "t3", 6, "nougat")
        check_gone(engine)
        assert [name for name in span_names(engine) if "span" in name] == ["span nougat"]

    def test_sessions_without_a_transcript(self, engine: Archive) -> None:
        for name in ("a", "b"):
            put_span(engine, f"claude-code/{name}", name)
            engine.forget(f"claude-code/{name}")
        put_span(engine, "claude-code/c", "c", word="nougat")
        writer = engine.writer()
        writer.recover()
        writer.close()
        assert span_names(engine) == ["span nougat"]

    @local_only
    def test_damaged_traces(self, engine: Archive, source: Rewriting, tmp_path: Path) -> None:
        """The rest is forgotten, and the note stays until there are traces that can be written."""
        source.save("s", *talk("s", SECRET))
        sync(engine, source)
        engine.close()
        files = list((tmp_path / "backstory").glob("traces.db*"))
        for path in files:
            path.write_bytes(b"junk" * 4096)
        archive = open_engine("local", tmp_path / "backstory")
        archive.forget(KEY)
        writer = archive.writer()
        writer.recover()
        writer.close()
        assert found(archive, SECRET) == []
        assert not archive.sync_state().recovered
        for path in files:
            path.unlink(missing_ok=True)
        sync(archive, source)
        check_gone(archive)
        archive.close()

    def test_attributes_of_others_stay(self, engine: Archive, tmp_path: Path) -> None:
        for number in range(1, 7):
            put_span(engine, KEY if number % 2 else "claude-code/other", f"t{number % 2}", number, f"word{number}")
        forget(engine)
        from tests.traces_world import caller

        call = caller(engine)  # type: ignore[arg-type]
        for number in range(1, 7):
            filters = [{"field": "data.attributes.w", "operator": "eq", "value": f"word{number}"}]
            assert len(call("search_spans", filters=filters)["items"]) == (number + 1) % 2
        assert holding(tmp_path / "backstory", "word3") == []

    @local_only
    def test_names_that_another_writer_knows(self, engine: Archive, tmp_path: Path) -> None:
        """A process that has sent a name before goes on sending it after the name was forgotten."""
        other = open_engine("local", tmp_path / "backstory")
        put_span(other, KEY, "t1", 1, "nougat")
        forget(engine)
        put_span(other, None, "t9", 2, "nougat")
        assert span_names(engine) == ["span nougat"]
        from tests.traces_world import caller

        filters = [{"field": "data.attributes.key.nougat", "operator": "eq", "value": 1}]
        assert len(caller(engine)("search_spans", filters=filters)["items"]) == 1  # type: ignore[arg-type]
        other.close()


@local_only
class TestDictionary:
    """Texts are compressed with a dictionary that was learned from some of them."""

    def test_its_words_are_forgotten_too(self, engine: Archive, source: Rewriting, tmp_path: Path) -> None:
        chance = random.Random(7)
        words = ["".join(chance.choices(string.ascii_lowercase, k=7)) for _ in range(300)]

        def text(extra: str = "") -> str:
            return " ".join([*chance.choices(words, k=30), extra, *chance.choices(words, k=30)])

        other = [
            record(f"o{n}", "prompt", text(), user_text=text()) if n % 5 == 0 else record(f"o{n}", "answer", text())
            for n in range(800)
        ]
        os.utime(source.save("other", *other), ns=(1, 1))  # the newest is read first, and taught the dictionary
        source.save("s", *[record(f"s{n}", "prompt", text(f"shared {SECRET} phrase")) for n in range(400)])
        sync(engine, source)
        assert holding(tmp_path / "backstory")
        texts = [
            event.text
            for turn in engine.turns("claude-code/other")
            for event in engine.events(turn.session, turn.ordinal)
        ]
        exchanges = exchanges_of(engine, "claude-code/other")
        reader = open_engine("local", tmp_path / "backstory")  # knows the dictionary as it was
        assert reader.events("claude-code/other", 1, Part(limit=1))[0].text == texts[0]
        forget(engine)
        assert holding(tmp_path / "backstory") == []
        for archive in (engine, reader):
            again = [
                event.text
                for turn in archive.turns("claude-code/other")
                for event in archive.events(turn.session, turn.ordinal)
            ]
            assert again == texts
            assert exchanges_of(archive, "claude-code/other") == exchanges
        reader.close()
        source.save("new", *[record(f"n{n}", "prompt", text("nougat")) for n in range(500)])
        sync(engine, source)
        assert len(found(engine, "nougat")) == 50
