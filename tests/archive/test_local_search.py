"""Searching the local archive."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backstory.archive import open_engine, ranking
from backstory.archive.base import Batch, DeadlineExceeded, EventRow, SearchRequest, SessionRow, TurnRow
from backstory.archive.local import retrieval
from backstory.model import DEFAULT_TYPES, SEARCHABLE_TYPES, EventType, digest, event_id

NOW = 1_780_000_000_000


class Shelf:
    """An archive to which texts are added one turn at a time."""

    def __init__(self, home: Path) -> None:
        self.archive = open_engine("local", home)
        self._count = 0

    def add(self, *texts: str, type: EventType = EventType.USER_INPUT, session: str = "codex/a", ts: int | None = None,
            cwd: str = "/home/dev/shop") -> list[bytes]:  # fmt: skip
        writer = self.archive.writer()
        writer.recover()
        row = writer.session(session) or SessionRow(key=session, source=session.split("/")[0], title="t", cwd=cwd)
        row.turn_count += 1
        row.event_count += len(texts)
        row.started_at = row.updated_at = NOW
        events = []
        for ordinal, text in enumerate(texts, 1):
            self._count += 1
            call = type is EventType.TOOL_CALL
            events.append(
                EventRow(
                    uid=digest(str(self._count)),
                    session=session,
                    turn=row.turn_count,
                    ordinal=ordinal,
                    type=type,
                    ts=NOW + self._count if ts is None else ts,
                    text="" if call else text,
                    tool="Bash" if call else None,
                    arguments={"command": text} if call else None,
                    cwd=cwd,
                )
            )
        turn = TurnRow(session=session, ordinal=row.turn_count, event_count=len(texts))
        writer.write(Batch(sessions=[row], turns=[turn], events=events))
        writer.close()
        return [event.uid for event in events]

    def find(self, query: str, limit: int = 10, **options: object) -> list[str]:
        return [hit.event.text for hit in self.search(query, limit, **options).hits]

    def search(self, query: str, limit: int = 10, **options: object):  # type: ignore[no-untyped-def]
        options.setdefault("types", DEFAULT_TYPES)
        return self.archive.search(SearchRequest(query=query, limit=limit, **options))  # type: ignore[arg-type]


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path)
    yield shelf
    shelf.archive.close()


class TestWords:
    """All terms first, then any of them."""

    def test_all_terms_come_before_some(self, shelf: Shelf) -> None:
        shelf.add("the migration of the schema", "migration migration migration migration", "unrelated words")
        assert shelf.find("schema migration") == [
            "the migration of the schema",
            "migration migration migration migration",
        ]

    def test_enough_documents_with_all_terms_leave_out_the_rest(self, shelf: Shelf) -> None:
        shelf.add("red apple", "red apple pie", "red car")
        found = shelf.search("red apple", limit=1)
        assert [hit.event.text for hit in found.hits] == ["red apple"]
        assert found.more

    def test_stop_words_do_not_decide(self, shelf: Shelf) -> None:
        shelf.add("how do you do", "fix the parser")
        assert shelf.find("how do I fix the parser") == ["fix the parser"]

    def test_a_question_of_stop_words_is_still_answered(self, shelf: Shelf) -> None:
        shelf.add("to be or not to be", "something else")
        assert shelf.find("to be") == ["to be or not to be"]

    def test_nothing_matches(self, shelf: Shelf) -> None:
        shelf.add("something")
        found = shelf.search("nonexistent")
        assert (found.hits, found.more, found.documents) == ([], False, 1)

    def test_an_empty_archive(self, shelf: Shelf) -> None:
        assert shelf.find("anything") == []

    def test_no_query_syntax_can_break_it(self, shelf: Shelf) -> None:
        shelf.add("and or not foo")
        for query in ("?", '"', "AND OR NOT", "text:foo", "a* b~2 (c", "\\", "+-&|!{}[]^", "\0"):
            shelf.find(query)


class TestWholeAndParts:
    """Identifiers, paths and text in any script are found whole and by part."""

    @pytest.mark.parametrize(
        ("text", "queries"),
        [
            ("call getUserName() now", ["getUserName", "getusername", "user name", "name"]),
            ("rename user_name please", ["user_name", "user", "name"]),
            ("데이터베이스를 고쳤다", ["데이터베이스", "데이터베이스를", "고쳤다"]),
            ("open src/auth/token.py first", ["src/auth/token.py", "auth/token.py", "token.py", "token"]),
            ("class HTTPServerError", ["HTTPServerError", "server error"]),
            ("commit 3f786850e387550fdab836ed7e6dc881de23001b", ["3f786850e387550fdab836ed7e6dc881de23001b"]),
            ("version 2.1.39 fails", ["2.1.39"]),
            ("the naïve café", ["naive cafe", "café"]),
            ("数据库连接失败", ["数据库", "连接", "失败"]),
            ("データベースのエラー", ["エラー"]),
            ("ошибка соединения", ["ошибка", "СОЕДИНЕНИЯ"]),
            ("خطأ في الاتصال", ["الاتصال"]),
            ("डेटाबेस कनेक्शन विफल", ["कनेक्शन"]),
            ("ฐานข้อมูลล้มเหลว", ["ข้อมูล"]),
        ],
    )
    def test_found(self, shelf: Shelf, text: str, queries: list[str]) -> None:
        shelf.add(text, "something entirely different")
        for query in queries:
            assert shelf.find(query)[:1] == [text], query

    def test_a_sentence_without_spaces(self, shelf: Shelf) -> None:
        shelf.add("数据库迁移失败", "今天天气很好")
        assert shelf.find("数据库迁移失败了应该怎么处理")[:1] == ["数据库迁移失败"]

    def test_composed_and_decomposed(self, shelf: Shelf) -> None:
        shelf.add("re\u0301sume\u0301 draft")
        for query in ("résumé", "re\u0301sume\u0301", "resume"):
            assert len(shelf.find(query)) == 1, query

    def test_the_exact_path_is_better_than_its_parts(self, shelf: Shelf) -> None:
        shelf.add("token and auth in src with py", "src/auth/token.py")
        assert shelf.find("src/auth/token.py") == ["src/auth/token.py", "token and auth in src with py"]

    def test_quotes_mean_exactly(self, shelf: Shelf) -> None:
        shelf.add("connection was refused", "refused the connection", "connection refused")
        assert shelf.find('"connection refused"') == ["connection refused"]

    def test_quotes_stay_required_when_the_rest_is_relaxed(self, shelf: Shelf) -> None:
        shelf.add("connection refused by the proxy", "the proxy said hello")
        assert shelf.find('"connection refused" proxy hello') == ["connection refused by the proxy"]

    def test_tool_calls_are_found_by_their_arguments(self, shelf: Shelf) -> None:
        shelf.add("cargo test --workspace", type=EventType.TOOL_CALL)
        assert shelf.find("cargo workspace", types=(EventType.TOOL_CALL,)) == ['Bash(command="cargo test --workspace")']
        assert shelf.find("cargo workspace") == []


class TestFilters:
    """A filter never lets anything else through."""

    def test_types(self, shelf: Shelf) -> None:
        for kind in SEARCHABLE_TYPES:
            shelf.add("needle", type=kind)
        for kind in SEARCHABLE_TYPES:
            found = shelf.search("needle", types=(kind,))
            assert [hit.event.type for hit in found.hits] == [kind]

    def test_types_from_both_fields(self, shelf: Shelf) -> None:
        for other in SEARCHABLE_TYPES:
            shelf.add("needle in hay", type=other)
        types = (EventType.USER_INPUT, EventType.REASONING)
        found = shelf.search("needle hay", types=types)
        assert {hit.event.type for hit in found.hits} == set(types)

    def test_unknown_events_are_never_found(self, shelf: Shelf) -> None:
        shelf.add("needle", type=EventType.UNKNOWN)
        assert shelf.find("needle", types=SEARCHABLE_TYPES) == []

    def test_session_and_turn(self, shelf: Shelf) -> None:
        shelf.add("needle one", session="codex/a")
        shelf.add("needle two", session="codex/a")
        shelf.add("needle three", session="codex/b")
        assert sorted(shelf.find("needle", session="codex/a")) == ["needle one", "needle two"]
        assert shelf.find("needle", session="codex/a", turn=2) == ["needle two"]
        assert shelf.find("needle", session="codex/c") == []

    def test_source_and_project(self, shelf: Shelf) -> None:
        shelf.add("needle", session="codex/a", cwd="/home/dev/Shop")
        shelf.add("needle", session="claude-code/b", cwd="/home/dev/bank")
        assert [hit.session.source for hit in shelf.search("needle", source="codex").hits] == ["codex"]
        assert [hit.session.key for hit in shelf.search("needle", project="shop").hits] == ["codex/a"]
        assert shelf.find("needle", project="garden") == []
        assert shelf.find("needle", source="aider") == []

    def test_time_window_is_half_open(self, shelf: Shelf) -> None:
        for ts in (NOW, NOW + 1, NOW + 2):
            shelf.add(f"needle {ts}", ts=ts)
        assert [hit.event.ts for hit in shelf.search("needle", since=NOW, until=NOW + 2).hits] == [NOW + 1, NOW]
        assert [hit.event.ts for hit in shelf.search("needle", since=NOW + 1).hits] == [NOW + 2, NOW + 1]
        assert [hit.event.ts for hit in shelf.search("needle", until=NOW + 1).hits] == [NOW]


class TestRanking:
    """Score descending, then newest, then event id; exactly."""

    def test_equal_scores_newest_first(self, shelf: Shelf) -> None:
        shelf.add("same text", ts=NOW)
        shelf.add("same text", ts=NOW + 5)
        shelf.add("same text", ts=NOW + 3)
        assert [hit.event.ts for hit in shelf.search("same").hits] == [NOW + 5, NOW + 3, NOW]

    def test_the_better_of_two_phrases_first(self, shelf: Shelf) -> None:
        """Also when the newer one is the worse one."""
        shelf.add("src/auth/token.py", ts=NOW)
        shelf.add("src/auth/token.py " + "and many other words that make it longer " * 5, ts=NOW + 5)
        found = shelf.search("src/auth/token.py").hits
        assert [hit.event.ts for hit in found] == [NOW, NOW + 5]
        assert found[0].score > found[1].score

    def test_equal_times_by_event_id(self, shelf: Shelf) -> None:
        uids = [uid for _ in range(30) for uid in shelf.add("same text", ts=NOW)]
        assert [hit.event.uid for hit in shelf.search("same", limit=7).hits] == sorted(uids, key=event_id)[:7]

    def test_ties_across_the_end_of_a_page(self, shelf: Shelf) -> None:
        """The newest of many equals is found even if it was written last."""
        shelf.add(*["same text"] * 200, ts=NOW)
        shelf.add("same text", ts=NOW + 9)
        assert shelf.search("same", limit=1).hits[0].event.ts == NOW + 9

    def test_scores_are_between_zero_and_one(self, shelf: Shelf) -> None:
        shelf.add("alpha", "alpha beta gamma", "alpha " * 50, "beta filler words here")
        for query in ("alpha", "alpha beta", "gamma delta", '"alpha beta"'):
            scores = [hit.score for hit in shelf.search(query).hits]
            assert scores
            assert scores == sorted(scores, reverse=True)
            assert all(0 < score <= 1 and math.isfinite(score) for score in scores)

    def test_page_size_does_not_change_the_best(self, shelf: Shelf) -> None:
        shelf.add(*[f"common word number{n}" for n in range(40)])
        whole = shelf.find("common number7", limit=40)
        assert shelf.find("common number7", limit=1) == whole[:1]


class TestIdentifiers:
    """A camelCase word is found whole and by its parts."""

    def test_an_identifier_that_many_have_is_found_as_it_is_written(
        self, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Other spellings are asked for where that finds too little."""
        monkeypatch.setattr(retrieval, "CANDIDATES", 3)
        shelf.add(*(f"call retryPolicy {number}" for number in range(4)))
        shelf.add("retry_policy = 3", session="codex/b")
        found = shelf.search("retryPolicy", limit=3)
        assert found.more
        assert all("retryPolicy" in hit.event.text for hit in found.hits)
        assert shelf.find("retryPolicy", limit=10)[-1] == "retry_policy = 3"
        assert shelf.find("retryPolicy", session="codex/b") == ["retry_policy = 3"]


class TestCommonWords:
    """Words that very many events have choose no candidates beside rarer ones, and nothing else shows it."""

    @pytest.fixture(autouse=True)
    def common(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(retrieval, "COMMON", 3)

    @pytest.fixture
    def mixed(self, shelf: Shelf) -> Shelf:
        shelf.add(*[f"deploy number{n}" for n in range(30)])
        shelf.add(*[f"rare deploy number{n}" for n in range(3)])
        return shelf

    def test_they_count(self, mixed: Shelf) -> None:
        mixed.add("rare and some other words")
        assert mixed.find("deploy rare", limit=3) == [
            "rare deploy number2",
            "rare deploy number1",
            "rare deploy number0",
        ]

    def test_pages_are_exact(self, mixed: Shelf) -> None:
        """Where rarer words find too little for a page, common ones find the rest."""
        whole = mixed.search("deploy rare", limit=50)
        assert (len(whole.hits), whole.more) == (33, False)
        for limit in (1, 3, 10, 32, 33):
            found = mixed.search("deploy rare", limit=limit)
            assert (len(found.hits), found.more) == (limit, limit < 33)

    def test_quoted(self, mixed: Shelf) -> None:
        """In quotes they are required, as any other."""
        mixed.add("rare and some other words")
        assert sorted(mixed.find('"deploy" rare', limit=3)) == [f"rare deploy number{n}" for n in range(3)]
        assert all(0 < hit.score <= 1 for hit in mixed.search('"deploy" rare').hits)

    def test_alone(self, mixed: Shelf) -> None:
        assert len(mixed.find("deploy", limit=50)) == 33

    def test_parts_of_paths(self, shelf: Shelf) -> None:
        shelf.add(*[f"src/main{n}.py" for n in range(10)], "src/auth/token.py")
        assert shelf.find("src/auth/token.py")[0] == "src/auth/token.py"
        assert len(shelf.find("src/unknown/file.py", limit=50)) == 11


class TestNeighbours:
    """Words side by side in question and text count more than the same words apart."""

    def test_order(self, shelf: Shelf) -> None:
        shelf.add("budget of the retry", "the retry budget it", "budget of the retry")
        assert shelf.find("retry budget")[0] == "the retry budget it"

    def test_equals_stay_equal(self, shelf: Shelf) -> None:
        """The newest of many equal texts is first, also where more of them tie than are weighed closely."""
        shelf.add(*["the retry budget is spent"] * (ranking.MOST_WEIGHED_CLOSELY + 40))
        found = shelf.search("retry budget spent", limit=50).hits
        assert len({hit.evidence.event for hit in found}) == 1
        assert [hit.event.ts for hit in found] == sorted((hit.event.ts for hit in found), reverse=True)


class TestFreshness:
    """A commit is seen by the next search, in this process and in others."""

    def test_nothing_stale_is_answered(self, shelf: Shelf) -> None:
        assert shelf.find("needle") == []
        shelf.add("needle")
        assert shelf.find("needle") == ["needle"]

    def test_another_reader(self, shelf: Shelf, tmp_path: Path) -> None:
        other = open_engine("local", tmp_path)
        request = SearchRequest(query="needle", types=DEFAULT_TYPES)
        assert other.search(request).hits == []
        for count in (1, 2, 3):
            shelf.add("needle")
            assert len(other.search(request).hits) == count
        other.close()

    def test_a_rebuilt_index_answers_the_same(self, shelf: Shelf) -> None:
        shelf.add("getUserName failed", "数据库", "other")
        shelf.add("cargo test", type=EventType.TOOL_CALL)
        before = [shelf.find(query, types=SEARCHABLE_TYPES) for query in ("user name", "数据", "cargo")]
        writer = shelf.archive.writer()
        writer.recover(reindex=True)
        writer.close()
        assert shelf.archive.counts().documents == 4
        assert [shelf.find(query, types=SEARCHABLE_TYPES) for query in ("user name", "数据", "cargo")] == before

    def test_a_deadline_that_has_passed(self, shelf: Shelf) -> None:
        shelf.add("needle")
        with pytest.raises(DeadlineExceeded):
            shelf.search("needle", deadline=time.monotonic() - 1)


class TestThreads:
    """Any number of threads may ask, and they leave nothing behind."""

    def test_connections_end_with_their_threads(self, shelf: Shelf) -> None:
        from threading import Thread

        shelf.add("needle")
        shelf.find("needle")
        open_files = Path("/proc/self/fd")
        before = len(list(open_files.iterdir()))
        for _ in range(20):
            thread = Thread(target=shelf.find, args=("needle",))
            thread.start()
            thread.join()
        assert len(list(open_files.iterdir())) <= before + 2


class TestRecovery:
    """The index follows from what is committed, whatever happened to it."""

    def test_events_a_dead_writer_did_not_index(self, shelf: Shelf) -> None:
        shelf.add("first needle")
        writer = shelf.archive.writer()
        row = writer.session("codex/a")
        assert row is not None
        event = EventRow(uid=digest("x"), session="codex/a", turn=1, ordinal=9, type=EventType.USER_INPUT, ts=NOW,
                         text="second needle")  # fmt: skip
        writer._db.execute("BEGIN")
        writer._write_rows(Batch(events=[event]))
        writer._db.execute("COMMIT")  # and here it died
        writer.close()
        shelf.add("third needle")
        assert sorted(shelf.find("needle")) == ["first needle", "second needle", "third needle"]

    def test_an_index_that_is_ahead(self, shelf: Shelf, tmp_path: Path) -> None:
        shelf.add("first needle")
        shelf.add("second needle")
        with closing(sqlite3.connect(tmp_path / "archive.db")) as record, record:
            record.execute("DELETE FROM event WHERE id = (SELECT max(id) FROM event)")
        writer = shelf.archive.writer()
        writer.recover()
        writer.close()
        assert shelf.find("needle") == ["first needle"]
        assert shelf.search("needle").documents == 1

    def test_an_index_that_is_gone(self, shelf: Shelf, tmp_path: Path) -> None:
        import shutil

        shelf.add("needle")
        shutil.rmtree(tmp_path / "index")
        assert shelf.find("needle") == []
        writer = shelf.archive.writer()
        writer.recover()
        writer.close()
        assert shelf.find("needle") == ["needle"]
