"""Attributes of spans as they are kept: one after the other, sent once more, and from before they lay by path."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstory.archive import open_engine
from backstory.archive.base import ArchiveError, SessionsRequest
from backstory.archive.local.spans import database
from backstory.archive.spans import SpanRow, UsageTotal, Window
from backstory.model import session_id
from tests.examples import examples
from tests.traces_world import START, Call, World, caller, fill, hex_id, open_world
from tests.transcripts import Transcript


def span(number: int, **attributes: Any) -> SpanRow:
    return SpanRow(trace="t", id=number, name="x", start=START + number, end=START + number, attributes=attributes)


def where(path: str, operator: str, value: Any) -> dict[str, Any]:
    return {"field": f"data.attributes.{path}", "operator": operator, "value": value}


def found(call: Call, path: str, operator: str, value: Any) -> list[str]:
    page = call("search_spans", filters=[where(path, operator, value)], sortOrder="asc", limit=200)
    return [item["id"] for item in page["items"]]


class TestAttributes:
    """A span is found by what it says now, however it came."""

    def test_one_at_a_time(self, tmp_path: Path) -> None:
        """Exporters without batches send every span by itself; rows take up to 512 values all the same."""
        archive = open_engine("local", tmp_path)
        for number in range(1, 41):
            fill(archive, [span(number, user=f"u{number % 4}", n=number)])
        fill(archive, [span(number, user="many") for number in range(41, 1241)])
        call = caller(archive)
        assert found(call, "user", "eq", "u3") == [hex_id(number) for number in range(3, 41, 4)]
        assert found(call, "n", "gte", 39) == [hex_id(39), hex_id(40)]
        assert call("search_spans", filters=[where("user", "eq", "many")])["total"] == 1200
        archive.close()
        with sqlite3.connect(tmp_path / "traces.db") as db:
            counts = [count for (count,) in db.execute("SELECT count FROM part ORDER BY id")]
        assert sum(counts) == 40 * 2 + 1200
        assert len(counts) == 5
        assert max(counts) == 512

    def test_sent_once_more(self, tmp_path: Path) -> None:
        archive = open_engine("local", tmp_path)
        fill(archive, [span(1, user="ann", step=1), span(2, user="bob"), span(3, user="ann")])
        fill(archive, [span(1, user="bob", done=True), span(2), span(3, user="ann")])
        call = caller(archive)
        assert found(call, "user", "eq", "ann") == [hex_id(3)]
        assert found(call, "user", "contains", "B") == [hex_id(1)]
        assert found(call, "user", "ne", "bob") == [hex_id(2), hex_id(3)]
        assert found(call, "step", "gt", 0) == []
        assert found(call, "done", "eq", True) == [hex_id(1)]
        fill(archive, [span(1, user="ann", step=1)])
        assert found(call, "user", "eq", "ann") == [hex_id(1), hex_id(3)]
        assert found(call, "done", "eq", True) == []
        archive.close()

    def test_names_with_dots(self, tmp_path: Path) -> None:
        archive = open_engine("local", tmp_path)
        fill(archive, [span(1, **{"a.b.c": 1}), span(2, a={"b.c": 1}), span(3, a={"b": {"c": 1}}), span(4, a={"b": 1})])
        fill(archive, [span(5, a={"b": {"c": 2}}), span(6, tags=["x", "y"])])
        fill(archive, [span(5, a={"b": {"c": 1}})])
        call = caller(archive)
        assert found(call, "a.b.c", "eq", 1) == [hex_id(number) for number in (1, 2, 3, 5)]
        assert found(call, "tags", "eq", '["x","y"]') == [hex_id(6)]
        archive.close()

    def test_any_text(self, tmp_path: Path) -> None:
        values = ["", "\0", 'quote " and \\', "line\nbreak", "ſtraße", "😀", "a" * 5000, "1,2"]
        archive = open_engine("local", tmp_path)
        fill(archive, [span(number, text=value, end="x") for number, value in enumerate(values, 1)])
        call = caller(archive)
        for number, value in enumerate(values, 1):
            assert found(call, "text", "eq", value) == [hex_id(number)], value
            assert hex_id(number) in found(call, "text", "contains", value[:1000].upper()), value
        archive.close()

    def test_numbers_beyond(self, tmp_path: Path) -> None:
        archive = open_engine("local", tmp_path)
        fill(
            archive, [span(1, n=float("nan")), span(2, n=float("inf")), span(3, n=1 << 63), span(4, n=-1), span(5, n=0)]
        )
        call = caller(archive)
        assert found(call, "n", "gt", 0) == [hex_id(3)]
        assert found(call, "n", "lte", 0) == [hex_id(4), hex_id(5)]
        assert found(call, "n", "eq", False) == []
        archive.close()


def report(number: int, trace: str, call: str, **fields: Any) -> SpanRow:
    usage = {"input_tokens": 100, "output_tokens": 7, **fields}
    return SpanRow(trace=trace, id=number, name="x", type="GENERATION", start=START + number, call=call, **usage)


class TestCalls:
    """A call that spans and log records both report counts once, in whatever order they come."""

    REPORTS = (
        SpanRow(trace="turn", id=10, name="around", start=START, model="gpt-4o"),
        report(1, "turn", "r1", parent=9),
        SpanRow(trace="turn", id=9, name="between", start=START, parent=10),
        report(2, "turn", "r2", cost=0.5),
        report(3, "logs", "r1", logged=True, model="gpt-5", cost=0.25, cost_reported=True),
        report(4, "logs", "r2", logged=True, cost=0.125),
        report(5, "logs", "r3", logged=True, cost=1.0),
        report(6, "logs", "r3", logged=True, cost=1.0),
        report(7, "turn", "r3"),
        report(8, "turn", "r4", total_tokens=50, input_tokens=None, output_tokens=None),
    )

    @given(st.permutations(REPORTS), st.integers(1, len(REPORTS)))
    @settings(max_examples=examples(0.4))
    def test_any_order(self, reports: list[SpanRow], size: int) -> None:
        with TemporaryDirectory() as folder:
            archive = open_engine("local", Path(folder))
            for start in range(0, len(reports), size):
                archive.spans.put(reports[start : start + size], {})
            turn, spans = archive.spans.trace("turn") or (None, [])
            logs, _ = archive.spans.trace("logs") or (None, [])
            total = sum(line.input_tokens + line.output_tokens for line in archive.spans.usage(Window()))
            archive.close()
        assert turn is not None
        assert logs is not None
        # Log records report r3 twice and a span once: the log records count.
        assert (turn.tokens, turn.cost) == (107 + 107 + 50, 0.75)
        assert (logs.tokens, logs.cost) == (2 * 107, 2.0)
        assert total == 107 * 4 + 50
        by_id = {found.id: found for found in spans}
        assert (by_id[1].model, by_id[1].cost, by_id[1].cost_reported) == ("gpt-4o", 0.25, True)
        assert (by_id[2].cost, by_id[2].cost_reported) == (0.5, False)

    def test_the_same_name_hours_later(self, tmp_path: Path) -> None:
        """Is another call: a log record of today does not stand for a span of yesterday."""
        archive = open_engine("local", tmp_path)
        later = [report(7_200_000, "later", "r1", logged=True), report(7_200_001, "later", "r1", logged=True)]
        archive.spans.put([report(1, "turn", "r1"), *later], {})
        assert sum(line.calls for line in archive.spans.usage(Window())) == 3
        archive.close()


class TestFirstVersion:
    """Spans that were received before attributes lay by path are there afterwards, and found alike."""

    def test_migrated(self, tmp_path: Path) -> None:
        db = sqlite3.connect(tmp_path / "traces.db", isolation_level=None)
        db.executescript(database._MIGRATIONS[0])
        db.execute("PRAGMA user_version=1")
        db.execute("INSERT INTO name VALUES (1, 'x')")
        db.execute(
            "INSERT INTO trace (id, uid, named, status, start, updated, projected) VALUES (1, 't', 0, 2, ?1, ?1, 0)",
            (START,),
        )
        values: dict[str, Any] = {"user": 'a "b"', "score": 0.1, "n": 7, "yes": True, "no": False}
        for number in (1, 2, 600):
            given = values if number != 2 else {"user": "c"}
            db.execute(
                "INSERT INTO span (id, trace, uid, name, type, status, start, cost_reported, counts) "
                "VALUES (?1, 1, ?1, 1, 2, 2, ?2, 0, 1)",
                (number, START + number),
            )
            facts = msgspec.json.encode({"metadata": {}, "attributes": given}).decode()
            db.execute("INSERT INTO facts VALUES (?, ?)", (number, facts))
            for path, value in given.items():
                db.execute("INSERT OR IGNORE INTO path (text) VALUES (?)", (f"attributes.{path}",))
                stored = bytes([value]) if isinstance(value, bool) else value
                db.execute(
                    "INSERT INTO attribute SELECT id, ?, ? FROM path WHERE text = ?",
                    (number, stored, f"attributes.{path}"),
                )
        db.close()
        archive = open_engine("local", tmp_path)
        call = caller(archive)
        assert len(call("get_trace", traceId="t")["trace"]["spans"]) == 3
        for path, value in values.items():
            assert found(call, path, "eq", value) == [hex_id(1), hex_id(600)]
        fill(archive, [span(600, user="new"), span(601, user="new")])
        assert found(call, "user", "eq", "new") == [hex_id(600), hex_id(601)]
        assert found(call, "score", "lt", 1) == [hex_id(1)]
        archive.close()


class TestPlacesOfTurns:
    """The places of turns are found in an archive from before they were kept, so that nothing is projected twice."""

    def test_migrated(self, tmp_path: Path) -> None:
        world = World(tmp_path)
        talk = Transcript("one").prompt("go").call("Bash", {"command": "ls"}, "a.txt").answer("done")
        world.sync(talk.prompt("more"))
        before = [world.spans(trace) for trace in world.traces()]
        places = "SELECT session, turn, trace, root FROM turn ORDER BY session, turn"
        world.library.close()
        with closing(sqlite3.connect(tmp_path / "backstory" / "traces.db", isolation_level=None)) as db:
            kept = db.execute(places).fetchall()
            db.executescript("DROP TABLE turn; DROP TRIGGER usage_of_deleted; DROP TABLE usage")
            db.execute("CREATE TABLE host (session INTEGER PRIMARY KEY, parent INTEGER, turn INTEGER, uid INTEGER)")
            db.execute("PRAGMA user_version=8")
        world = World(tmp_path)
        assert [world.spans(trace) for trace in world.traces()] == before
        world.sync(talk.answer("and more"))
        assert [len(world.spans(trace)) for trace in world.traces()] == [4, 2]
        world.library.close()
        with closing(sqlite3.connect(tmp_path / "backstory" / "traces.db")) as db:
            assert db.execute(places).fetchall() == kept


def rounded(totals: list[UsageTotal]) -> list[UsageTotal]:
    """Sums of costs depend on their order in the last digits."""
    return [msgspec.structs.replace(total, cost=total.cost and round(total.cost, 9)) for total in totals]


class TestUsage:
    """Usage is kept added up by quarter hour; what is added up from the spans is the same."""

    def test_of_any_time_is_the_same_as_of_whole_quarters(self, tmp_path: Path) -> None:
        archive, spans = open_world(tmp_path)
        fill(archive, spans[:60], source="codex", project="/home/dev/shop", session="codex/one")
        last = max(span.start for span in spans)
        whole = archive.spans.usage(Window())
        assert sum(total.calls for total in whole) > 10
        assert rounded(archive.spans.usage(Window(since=START - 1, until=last + 1))) == rounded(whole)
        assert archive.spans.usage(Window(since=START + 1, until=last), "session") != whole

    def test_is_gone_with_its_trace(self, tmp_path: Path) -> None:
        world = World(tmp_path)
        world.sync(Transcript("one").prompt("go").answer("done"))
        key = world.library.archive.sessions(SessionsRequest())[0].key
        assert world.library.archive.spans.usage(Window())
        world.library.forget(session_id(key))
        assert world.library.archive.spans.usage(Window()) == []

    def test_migrated(self, tmp_path: Path) -> None:
        archive, _ = open_world(tmp_path)
        before = archive.spans.usage(Window())
        archive.close()
        with closing(sqlite3.connect(tmp_path / "traces.db", isolation_level=None)) as db:
            db.executescript("DROP TRIGGER usage_of_deleted; DROP TABLE usage; PRAGMA user_version=9")
        assert open_engine("local", tmp_path).spans.usage(Window()) == before


class TestFullDisk:
    def test_names_that_were_not_kept_are_forgotten(self, tmp_path: Path) -> None:
        archive = open_engine("local", tmp_path)
        archive.spans.put([named(1, "first")], {})
        db = archive.spans._writer.db  # type: ignore[union-attr]
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count={pages + 2}")
        with pytest.raises(ArchiveError, match="full"):
            archive.spans.put([named(number, "lost", "x" * number * 100) for number in range(2, 60)], {})
        db.execute("PRAGMA max_page_count=1000000")
        for number, name in ((100, "other"), (101, "lost"), (102, "first")):
            archive.spans.put([named(number, name)], {})
        page = archive.spans.trace("t")
        assert page is not None
        assert [found.name for found in page[1]] == ["first", "other", "lost", "first"]
        archive.close()


def named(number: int, name: str, text: str = "") -> SpanRow:
    return SpanRow(trace="t", id=number, name=name, start=START + number, end=START + number, attributes={"x": text})
