"""The ClickHouse engine beyond the protocol: the schema, machines that share a server, and failures in words."""

from __future__ import annotations

import string
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backstory.archive import open_engine
from backstory.archive.base import (
    Archive,
    ArchiveError,
    Batch,
    ExchangeRow,
    ExchangesRequest,
    FileRow,
    FolderRow,
    Part,
    SearchRequest,
    SessionsRequest,
    Writer,
)
from backstory.archive.clickhouse import retrieval, sending
from backstory.archive.clickhouse.cluster import statements
from backstory.archive.clickhouse.common import PAIRS_END
from backstory.archive.clickhouse.documents import event_document, text_tokens
from backstory.archive.clickhouse.migrations import MIGRATIONS
from backstory.archive.clickhouse.schema import TABLES
from backstory.archive.clickhouse.server import Server
from backstory.archive.glance import last_session
from backstory.config import ClickHouseSettings
from backstory.model import DEFAULT_TYPES, EVENT_TYPES, EventRef, EventType, session_id
from tests.archive import clickhouse_server
from tests.archive.test_conformance import KEY, batch, found, session, talk, write


@pytest.fixture
def server(clickhouse_url: str) -> Iterator[ClickHouseSettings]:
    """A new database of a server."""
    database = f"test_{uuid.uuid4().hex}"
    yield ClickHouseSettings(url=f"{clickhouse_url}/{database}")
    clickhouse_server.command(clickhouse_url, f"DROP DATABASE IF EXISTS {database}")


def opened(folder: Path, settings: ClickHouseSettings) -> Archive:
    return open_engine("clickhouse", folder, None, settings)


def run(settings: ClickHouseSettings, sql: str) -> str:
    url, _, database = settings.url.rpartition("/")
    return clickhouse_server.command(f"{url}/?database={database}", sql)


# The size of a text of so many words, in the byte that postings have for it.
LONG, LONG_SIZE = 96, 57


def as_before(settings: ClickHouseSettings, version: int) -> None:
    """Take the tables of a few events back to an older version of the schema."""
    for table in ("session", "turn", "event", "posting", "document", "place"):
        run(settings, f"ALTER TABLE {table} RESET SETTING default_compression_codec")
    run(settings, "ALTER TABLE document MODIFY SETTING min_compress_block_size = 8192")
    if version < 8:
        run(settings, f"ALTER TABLE posting DELETE WHERE term < {PAIRS_END} SETTINGS mutations_sync = 2")
    run(settings, "DROP TABLE posting_view")
    # Sizes of short texts are their lengths; one text is longer.
    lengths = f"arrayMap(size -> if(size = {LONG_SIZE}, {LONG}, size), sizes)"
    run(settings, f"ALTER TABLE posting ADD COLUMN lengths Array(UInt16) DEFAULT {lengths}")
    run(settings, "ALTER TABLE posting MATERIALIZE COLUMN lengths SETTINGS mutations_sync = 2")
    run(settings, "ALTER TABLE posting MODIFY COLUMN lengths REMOVE DEFAULT")
    run(settings, "ALTER TABLE posting DROP COLUMN sizes")
    run(settings, "CREATE MATERIALIZED VIEW posting_view TO posting AS SELECT 0 AS term FROM arrival WHERE false")
    if version < 6:
        _as_before_rows_were_read_as_a_whole(settings, version)
    run(settings, "DELETE FROM schema_version WHERE true")
    run(settings, f"INSERT INTO schema_version (version) VALUES ({version})")


def _as_before_rows_were_read_as_a_whole(settings: ClickHouseSettings, version: int) -> None:
    run(settings, "DROP TABLE replaced")
    for table in ("document", "event"):
        run(settings, f"ALTER TABLE {table} DROP COLUMN row")
    for table, version_of, order in (("turn", "version", "session, ordinal"), ("session", "version_of_row", "key")):
        engine = f"ReplacingMergeTree({version_of}) ORDER BY ({order})"
        run(settings, f"CREATE TABLE {table}_before AS {table} ENGINE = {engine}")
        run(settings, f"INSERT INTO {table}_before SELECT * FROM {table}")
        run(settings, f"ALTER TABLE {table}_before DROP COLUMN row")
        run(settings, f"EXCHANGE TABLES {table} AND {table}_before")
        run(settings, f"DROP TABLE {table}_before")
    if version < 5:
        _as_before_the_server_split_texts(settings, version)


def _as_before_the_server_split_texts(settings: ClickHouseSettings, version: int) -> None:
    split = "if(lines = '', [], splitByChar('\\n', lines))"
    terms = "terms Array(UInt32) DEFAULT arrayMap(token -> toUInt32(cityHash64(token)), {})"
    rows = [line.split("\t") for line in run(settings, "SELECT hex(uid), type, body FROM event").splitlines()]
    columns = "* EXCEPT number" if version < 4 else "*"
    names = [line.split("\t")[0] for line in run(settings, f"DESCRIBE (SELECT {columns} FROM event)").splitlines()]
    run(settings, "CREATE TABLE event_before AS event")
    run(settings, "ALTER TABLE event_before ADD COLUMN words UInt32, ADD COLUMN stems UInt32")
    run(settings, "ALTER TABLE event_before ADD COLUMN lines String EPHEMERAL")
    if version < 4:
        run(settings, "ALTER TABLE event_before DROP COLUMN number, DROP INDEX version_index")
        run(settings, f"ALTER TABLE event_before ADD COLUMN tokens Array(String) DEFAULT arrayDistinct({split})")
    run(settings, f"ALTER TABLE event_before ADD COLUMN {terms.format(split)}")
    for uid, kind, text in rows:
        words, stems = text_tokens(text), event_document(text, EVENT_TYPES[int(kind)], is_body=True).stems.split()
        lines = "\n".join(words if version == 4 else [*words, *stems])
        run(
            settings,
            f"INSERT INTO event_before ({', '.join(names)}, words, stems, lines) SELECT {columns}, {len(words)}, "
            f"{len(stems)}, unhex('{lines.encode().hex()}') FROM event WHERE uid = unhex('{uid}')",
        )
    run(settings, "EXCHANGE TABLES event AND event_before")
    for table in ("event_before", "posting_view", "document_view", "event_view", "place_view", "arrival"):
        run(settings, f"DROP TABLE {table}")
    if version == 4:
        run(settings, "ALTER TABLE document DROP COLUMN words, DROP COLUMN stems, DROP COLUMN terms")
    else:
        for table in ("posting", "document"):
            run(settings, f"DROP TABLE {table}")
    if version == 1:
        for table in ("span", "trace", "turn_trace", "place"):
            run(settings, f"DROP TABLE {table}")
        for table in ("event", "exchange"):
            run(settings, f"ALTER TABLE {table} MODIFY COLUMN tokens REMOVE DEFAULT")
            run(settings, f"ALTER TABLE {table} DROP COLUMN IF EXISTS terms, DROP COLUMN lines")
        run(settings, "ALTER TABLE turn DROP INDEX version_index, DROP COLUMN machine")
        run(settings, "ALTER TABLE session DROP COLUMN user, DROP COLUMN machine")


class Cut(Exception):
    """The process is killed here."""


def scores(archive: Archive, query: str) -> list[float]:
    return [hit.score for hit in archive.search(SearchRequest(query=query, types=DEFAULT_TYPES)).hits]


def found_as_before(archive: Archive) -> None:
    """The events of `talk("needle of all deployments")` are found by their words, stems and phrases."""
    assert len(found(archive, "needle")) == 2
    for query in ("deployments", "deployment", '"needle of"', '"of all"', '"needle of all deployments"'):
        assert found(archive, query), query
    for query in ('"deployments of"', '"all of"', '"find of all"'):
        assert found(archive, query) == []
    uids = tuple(event.uid for event in archive.events(KEY, 1))
    assert len(archive.events(part=Part(uids=uids))) == 4


@pytest.mark.clickhouse
class TestSchema:
    def test_a_newer_server_is_refused(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        opened(tmp_path, server).close()
        run(server, f"INSERT INTO schema_version (version) VALUES ({len(MIGRATIONS) + 1})")
        with pytest.raises(ArchiveError, match="update Backstory on this machine"):
            opened(tmp_path, server)

    def test_rows_stay_when_it_is_opened_again(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        with closing(opened(tmp_path, server)) as archive:
            write(archive, batch(session(), talk()))
        with closing(opened(tmp_path, server)) as archive:
            assert archive.counts().events == 4

    @pytest.mark.parametrize("version", [1, 3, 4, 5, 7, 8, 9])
    def test_an_older_server_is_migrated(self, tmp_path: Path, server: ClickHouseSettings, version: int) -> None:
        """Rows of an older version are found as before, and what is written next goes beside them."""
        with closing(opened(tmp_path, server)) as archive:
            write(archive, batch(session(), talk("needle of all deployments")))
        as_before(server, version)
        with closing(opened(tmp_path, server)) as archive:
            found_as_before(archive)
            write(archive, batch(session("codex/two"), talk()))
            assert len(found(archive, "needle")) == 4
            write(archive, batch(session("codex/three"), talk("needle of all")))
            assert len(found(archive, '"of all"')) == 4

    def test_lengths_of_texts_are_migrated(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        with closing(opened(tmp_path, server)) as archive:
            write(archive, batch(session(), talk("needle" + " and" * (LONG - 1))))
            before = scores(archive, "needle")
        assert str(LONG_SIZE) in run(server, "SELECT DISTINCT arrayJoin(sizes) FROM posting").split()
        as_before(server, 9)
        with closing(opened(tmp_path, server)) as archive:
            assert scores(archive, "needle") == before

    def test_an_older_server_reads_as_quickly(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        """Its tables get the compression of new ones."""
        settings = (
            "SELECT name, arraySort(splitByString(', ', splitByString('SETTINGS ', engine_full)[2])) AS settings "
        )
        settings += f"FROM system.tables WHERE database = '{server.url.rpartition('/')[2]}' ORDER BY name"
        opened(tmp_path, server).close()
        new = run(server, settings)
        as_before(server, 6)
        assert run(server, settings) != new
        opened(tmp_path, server).close()
        assert run(server, settings) == new
        assert new.count("default_compression_codec = \\'LZ4\\'") == 6

    @pytest.mark.parametrize("version", [3, 4, 5, 7, 8, 9])
    def test_a_migration_that_was_cut_goes_on(
        self, tmp_path: Path, server: ClickHouseSettings, version: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It fails after each of its statements in turn, and the next start takes up from there. Nothing is lost, and
        nothing is there twice."""
        with closing(opened(tmp_path, server)) as archive:
            write(archive, batch(session(), talk("needle of all deployments")))
        as_before(server, version)
        command, insert = Server.command, Server.insert
        allowed = left = 0

        def cut(self: Server, *given: Any) -> None:
            nonlocal left
            if left == 0:
                raise Cut
            left -= 1
            (command if len(given) < 3 else insert)(self, *given)

        monkeypatch.setattr(Server, "command", cut)
        monkeypatch.setattr(Server, "insert", cut)
        while True:
            allowed += 1
            left = allowed
            try:
                archive = opened(tmp_path, server)
                break
            except Cut:
                continue
        monkeypatch.undo()
        with closing(archive):
            assert allowed > (10 if version < 7 else 5)
            found_as_before(archive)
            assert archive.counts().documents == 4
            names = "SELECT count() AS times FROM posting ARRAY JOIN numbers AS number GROUP BY term, version, number"
            assert run(server, f"SELECT max(times) FROM ({names})") == "1\n"

    def test_old_rows_are_deleted_by_setting(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        with closing(opened(tmp_path, msgspec.structs.replace(server, keep_days=30))) as archive:
            write(archive, batch(session(start=1_600_000_000_000), talk()))
            run(server, "OPTIMIZE TABLE event FINAL")
            assert found(archive, "needle") == []


@pytest.mark.clickhouse
class TestSize:
    def test_a_batch_of_many_blocks(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        """The client sends a large insert in several blocks, each compressed by itself."""
        turns = [talk(f"{number} " + "long text " * 300) for number in range(1_000)]
        with closing(opened(tmp_path, server)) as archive:
            write(archive, batch(session(), *turns))
            assert archive.counts().documents == 4_000

    def test_a_batch_of_many_months(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        """ClickHouse refuses an insert into more than 100 partitions, and a month is one."""
        made = batch(session(), *(talk() for _ in range(30)))
        for number, event in enumerate(made.events):
            event.ts = number * 32 * 86_400_000
        with closing(opened(tmp_path, server)) as archive:
            write(archive, made)
            assert archive.counts().documents == 120
            assert len(run(server, "SELECT DISTINCT _partition_id FROM event").split()) > 100


@pytest.mark.clickhouse
class TestWords:
    def test_the_server_splits_texts_of_ascii(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        """The words are those that the client would have sent, in their order, without long ones."""
        text = f"Needle/of the_hay-stack.py(9) {string.printable} {'x' * 79} {'y' * 80} getUserName"
        with closing(opened(tmp_path, server)) as archive:
            write(archive, batch(session(), talk(text)))
            words = run(server, "SELECT toString(terms) FROM document WHERE type = 0").strip()
            expected = ", ".join(f"cityHash64('{word}')" if word else "0" for word in text_tokens(f"find the {text}"))
            assert words == run(server, f"SELECT arrayMap(term -> toUInt32(term), [{expected}])").strip()
            assert found(archive, '"needle of the hay stack py 9"')
            assert found(archive, '"get user name"')
            assert found(archive, '"getusername get"') == []

    def test_a_phrase_of_words_that_do_not_count_alone(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        """`what_is` is looked for as it stands: events that have its words apart are no matches."""
        with closing(opened(tmp_path, server)) as archive:
            write(
                archive, batch(session(), talk("the what_is field")), batch(session("codex/b"), talk("is it what then"))
            )
            texts = found(archive, "what_is")
            assert texts
            assert all("what_is" in text for text in texts)


def of_common_words() -> Batch:
    """A few events have the phrase "to who"; many short ones, which their words promise more of, have it not."""
    apart = [f"who goes to number {number}" for number in range(900)]
    phrases = [f"number {number} " + "and so on " * (number % 7 + 3) + "to who" for number in range(250)]
    phrases += ["to who it may be to who it was", "from to who", "who to who to"]
    said = [[(EventType.USER_INPUT, text)] for text in (*apart, *phrases)]
    return batch(session(), *said)


def of_pairs() -> Batch:
    """Phrases of common words, of which some are repeated, apart, or without spaces between them."""
    texts = [
        "this is the end of the file, and the the is there",
        "the is this of end: the file the",
        "This is. The end-of_the/file; of (the) the the of the",
        "isTheEnd ofThe file in this.is.the.end",
        "it is what it is what it is",
        "what it was is what is",
        "是的 他的是我的 不是我",
        "我的是 我 的 他是的的的",
        "これは私の本です。この本は",
        "это не то, что я это и не это",
        "Für die Größe der Datei und für die und der",
        "0 0 0 1 10 100: line 10, 1 0",
    ]
    said = [[(EventType.USER_INPUT, text + f" number {each} " * (each % 3))] for text in texts for each in range(4)]
    return batch(session(), *said)


@pytest.mark.clickhouse
class TestQuoted:
    QUERIES = ('"to who"', '"number 7"', '"to who" "so on"', '"to who" goes', '"who to who"')
    OF_PAIRS = (
        *('"of the"', '"the the the"', '"is the end of the"', '"of the file"', '"end of the file"', '"end of file"'),
        *('"what it is what"', '"is what is"', '"the of"', '"of the" "this is"', '"is it"', '"is-the/end"'),
        *(
            '"is. The"',
            '"this is" "the end"',
            '"我的"',
            '"是的"',
            '"他的是"',
            '"我是"',
            '"この本"',
            '"の本"',
            '"не это"',
        ),
        *('"что я это"', '"für die"', '"und der"', '"die und"', '"0 0 0"', '"0 1 0"', '"line 10"', '"10 1"'),
        *("of_the", "is.the.end", "的是我"),
    )
    # The local engine counts phrases that overlap, which changes their scores.
    OVERLAPPING = ('"the the"', '"it is what it is"', '"的的"', '"0 0"')

    def test_pairs_of_common_words(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        with closing(opened(tmp_path / "a", server)) as archive, closing(open_engine("local", tmp_path / "b")) as local:
            write(archive, of_pairs())
            write(local, of_pairs())
            for query in self.OF_PAIRS + self.OVERLAPPING:
                asked = SearchRequest(query=query, types=DEFAULT_TYPES, limit=60)
                hits, expected = archive.search(asked).hits, local.search(asked).hits
                uids, uids_expected = ([hit.event.uid for hit in given] for given in (hits, expected))
                if query in self.OVERLAPPING:
                    assert uids, query
                    assert set(uids) == set(uids_expected), query
                else:
                    assert uids == uids_expected, query
                    assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], rel=0.01), (
                        query
                    )

    def test_events_with_the_words_alone_are_not_looked_at(
        self, tmp_path: Path, server: ClickHouseSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Common words are in very many events. Their pairs are looked up."""
        rows = Server.rows
        counts: list[int] = []

        def counted(self: Server, sql: str, *given: Any, **named: Any) -> Any:
            answer = rows(self, sql, *given, **named)
            if "ORDER BY reach" in sql:
                counts.append(len(answer))
            return answer

        with closing(opened(tmp_path, server)) as archive:
            write(archive, of_common_words())
            monkeypatch.setattr(Server, "rows", counted)
            assert found(archive, '"to who it was"')
            assert found(archive, '"was who"') == []
            assert counts == [1]

    @pytest.mark.parametrize("cost", [1, 128])
    def test_hits_and_scores_are_those_of_the_local_engine(
        self, tmp_path: Path, server: ClickHouseSettings, monkeypatch: pytest.MonkeyPatch, cost: int
    ) -> None:
        monkeypatch.setattr(retrieval, "_MUCH_SLOWER", cost)
        with closing(opened(tmp_path / "a", server)) as archive, closing(open_engine("local", tmp_path / "b")) as local:
            write(archive, of_common_words())
            write(local, of_common_words())
            for query in self.QUERIES:
                asked = SearchRequest(query=query, types=DEFAULT_TYPES, limit=30)
                hits, expected = archive.search(asked).hits, local.search(asked).hits
                assert [hit.event.uid for hit in hits] == [hit.event.uid for hit in expected], query
                assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], rel=1e-3), query

    def test_the_best_events_are_tested_before_all(
        self, tmp_path: Path, server: ClickHouseSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """To read the words of all takes seconds in a large archive. Here, in a small one, it would be cheaper."""
        monkeypatch.setattr(retrieval, "_MUCH_SLOWER", 1)
        rows = Server.rows

        def not_all(self: Server, sql: str, *given: Any, **named: Any) -> Any:
            assert "FROM document d GLOBAL ANY JOIN" not in sql
            return rows(self, sql, *given, **named)

        with closing(opened(tmp_path, server)) as archive:
            write(archive, of_common_words())
            monkeypatch.setattr(Server, "rows", not_all)
            assert all("to who" in text for text in found(archive, '"to who"', limit=30))


@pytest.mark.clickhouse
class TestStatements:
    def test_postings_and_documents_are_read_by_their_keys(
        self, tmp_path: Path, server: ClickHouseSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A statement that has to go through all of them is refused here, as it would take minutes in a large
        archive."""
        rows = Server.rows

        def by_key(self: Server, sql: str, *given: Any, **named: Any) -> Any:
            is_large = "FROM posting" in sql or "FROM document" in sql
            return rows(self, f"{sql} SETTINGS force_primary_key = 1" if is_large else sql, *given, **named)

        with closing(opened(tmp_path, server)) as archive:
            write(archive, batch(session(), talk("needle in src/hay/stack.py")), batch(session("codex/b"), talk()))
            assert found(archive, "needle")  # the averages are read once
            monkeypatch.setattr(Server, "rows", by_key)
            for query in ("needle", "find the needle", "needel", "src/hay/stack.py", '"find the needle"'):
                assert found(archive, query)
                assert found(archive, query, session=KEY)

    @pytest.mark.parametrize("part", ["title_stems", "arrayStringConcat"])
    def test_a_failure_of_one_that_runs_beside_others(
        self, tmp_path: Path, server: ClickHouseSettings, monkeypatch: pytest.MonkeyPatch, part: str
    ) -> None:
        """The search fails with its error, and the next one is answered."""
        rows = Server.rows

        def failing(self: Server, sql: str, *given: Any, **named: Any) -> Any:
            if part in sql:
                raise ArchiveError(f"no {part}")
            return rows(self, sql, *given, **named)

        with closing(opened(tmp_path, server)) as archive:
            write(archive, batch(session(), talk("needle in src/hay/stack.py")))
            with monkeypatch.context() as patched:
                patched.setattr(Server, "rows", failing)
                with pytest.raises(ArchiveError, match=f"no {part}"):
                    found(archive, "needle src/hay/stack.py")
            assert found(archive, "needle src/hay/stack.py")

    def test_there_are_few(self, tmp_path: Path, server: ClickHouseSettings, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each costs client and server some milliseconds, whatever it reads."""
        rows = Server.rows
        sent: list[str] = []

        def counted(self: Server, sql: str, *given: Any, **named: Any) -> Any:
            sent.append(sql)
            return rows(self, sql, *given, **named)

        with closing(opened(tmp_path, server)) as archive:
            write(archive, batch(session(), talk("needle in src/hay/stack.py")))
            found(archive, "needle")  # the averages and projects are read once
            monkeypatch.setattr(Server, "rows", counted)
            assert found(archive, "needle src/hay/stack.py")
            assert len(sent) == 6
            (prompt, *_) = archive.events(KEY, 1, Part(types=(EventType.USER_INPUT,)))
            sent.clear()
            assert archive.open(EventRef(prompt.uid)) is not None
            assert len(sent) == 2

    def test_keys_with_any_characters(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        """Those that mean something in SQL, or to the client, are a part of the key."""
        key, folder = "codex/%(keys)s {a:String} 'q\\' \n\0 é", "/it's 100% {b}\\"
        with closing(opened(tmp_path, server)) as archive:
            write(archive, batch(session(key, cwd=folder), talk()))
            (hit, *_) = archive.search(SearchRequest(query="needle", types=DEFAULT_TYPES)).hits
            assert (hit.session.key, hit.session.cwd, hit.event.session) == (key, folder, key)
            assert found(archive, "needle", session=key)


@pytest.mark.clickhouse
class TestSending:
    """Large amounts are sent in the background, several batches at once."""

    def test_batches_that_are_sent_together(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        """A read of the writer waits for them, and later rows take the place of earlier ones."""
        one, two = batch(session(title="one"), talk()), batch(session("codex/two"), talk("hay"))
        longer = batch(session(title="longer"), talk(), talk("thread"))
        longer.events = [each for each in longer.events if each.turn == 2]
        with closing(opened(tmp_path, server)) as archive:
            with closing(archive.writer()) as writer:
                writer.recover()
                with writer.bulk(1 << 30):
                    for made, offset in ((one, 1), (two, 2), (longer, 3)):
                        made.files = [FileRow(path="/t/x", source="codex", session="x", offset=offset)]
                        writer.write(made)
                    assert archive.session(KEY) is None
                    assert [file.offset for file in writer.files()] == [3]
                    assert archive.session(KEY) == longer.sessions[0]
                    writer.write(batch(session("codex/three"), talk()))
                assert archive.session("codex/three") is not None
            assert (archive.counts().events, len(found(archive, "thread"))) == (16, 2)
            assert run(server, "SELECT uniq(version) FROM posting") == "2\n"

    def test_events_do_not_wait_for_other_batches(
        self, tmp_path: Path, server: ClickHouseSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The events of two are sent at the same time, and what says how far transcripts were read in its order."""
        insert, at_once, files = Server.insert, threading.Barrier(2, timeout=60), []

        def inserting(self: Server, table: str, names: Any, rows: Any) -> None:
            if table == "arrival":
                at_once.wait()
            files.extend(row[names.index("offset")] for row in rows if table == "file")
            insert(self, table, names, rows)

        monkeypatch.setattr(Server, "insert", inserting)
        monkeypatch.setattr(sending, "_EVENTS_AT_ONCE", 1)
        with closing(opened(tmp_path, server)) as archive, closing(archive.writer()) as writer:
            with writer.bulk(1 << 30):
                for offset in range(1, 5):
                    made = batch(session(f"codex/{offset}"), talk())
                    made.files = [FileRow(path="/t/x", source="codex", session="x", offset=offset)]
                    writer.write(made)
            assert (files, archive.counts().sessions) == ([1, 2, 3, 4], 4)

    @pytest.mark.parametrize("is_flushed", [False, True])
    def test_nothing_is_sent_after_a_failure(
        self, tmp_path: Path, server: ClickHouseSettings, monkeypatch: pytest.MonkeyPatch, is_flushed: bool
    ) -> None:
        """The next batches may go on where one ended that is not there."""
        insert = Server.insert

        def failing(self: Server, table: str, names: Any, rows: Any) -> None:
            if table == "turn" and any("codex/b" in row for row in rows):
                raise ArchiveError("no turns")
            insert(self, table, names, rows)

        def write_all(writer: Writer) -> None:
            with writer.bulk(1 << 30):
                for key, offset in (("codex/a", 1), ("codex/b", 2), ("codex/c", 3)):
                    made = batch(session(key), talk())
                    made.files = [FileRow(path="/t/x", source="codex", session="x", offset=offset)]
                    writer.write(made)
                    if is_flushed and offset > 1:
                        writer.flush()

        monkeypatch.setattr(Server, "insert", failing)
        monkeypatch.setattr(sending, "_EVENTS_AT_ONCE", 1)
        with closing(opened(tmp_path, server)) as archive:
            with closing(archive.writer()) as writer, pytest.raises(ArchiveError, match="no turns"):
                write_all(writer)
            assert [file.offset for file in archive.files()] == [1]
            assert archive.session("codex/c") is None

    def test_folders_are_sent_again_after_a_failure(
        self, tmp_path: Path, server: ClickHouseSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The same writer goes on when the server is there again."""

        def failing(self: Server, *given: Any) -> None:
            raise ArchiveError("no server")

        with closing(opened(tmp_path, server)) as archive, closing(archive.writer()) as writer:
            with monkeypatch.context() as away:
                away.setattr(Server, "insert", failing)
                with pytest.raises(ArchiveError), writer.bulk(1 << 30):
                    writer.write(batch(session(folder="/home/dev/shop"), talk()))
            writer.write(batch(session(folder="/home/dev/shop"), talk()))
            assert run(server, "SELECT count() FROM project") == "1\n"


@pytest.mark.clickhouse
class TestMachines:
    def test_the_same_session_from_two_is_one(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        made = batch(session(), talk())
        with closing(opened(tmp_path / "a", server)) as one, closing(opened(tmp_path / "b", server)) as two:
            write(one, made)
            write(two, made)
            for archive in (one, two):
                assert (archive.counts().events, archive.counts().documents) == (4, 4)
                assert len(archive.events(KEY, 1)) == 4
                assert len(found(archive, "needle")) == 2

    def test_files_are_those_of_a_machine(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        with closing(opened(tmp_path / "a", server)) as one, closing(opened(tmp_path / "b", server)) as two:
            write(one, Batch(files=[FileRow(path="/t/x", source="codex", session="x", offset=7)]))
            assert [file.offset for file in one.files()] == [7]
            assert list(two.files()) == []

    def test_folders_are_those_of_a_machine(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        with closing(opened(tmp_path / "a", server)) as one, closing(opened(tmp_path / "b", server)) as two:
            write(one, Batch(folders=[FolderRow("/t", "codex", 1)]))
            assert [row.path for row in one.sync_state(folders=True).folders] == ["/t"]
            assert two.sync_state(folders=True).folders == ()

    def test_they_write_at_the_same_time(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        with closing(opened(tmp_path / "a", server)) as one, closing(opened(tmp_path / "b", server)) as two:
            with closing(one.writer()) as first, closing(two.writer()) as second:
                first.write(batch(session(), talk()))
                second.write(batch(session("codex/two"), talk()))
            assert len(found(one, "needle")) == 4


@pytest.mark.clickhouse
class TestRepositories:
    def test_removed_sessions_stay_removed(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        """A batch that removes a session and names the repository of its folder does not write it again."""
        with closing(opened(tmp_path, server)) as archive:
            write(archive, batch(session(cwd="/shop"), talk()), batch(session("codex/two", cwd="/shop"), talk()))
            write(archive, Batch(removed=[KEY], projects={"/shop": "example.com/shop"}))
            found = archive.sessions(SessionsRequest(project="example.com"))
            assert [row.key for row in found] == ["codex/two"]


@pytest.mark.clickhouse
class TestForgetting:
    def test_no_name_of_a_folder_is_left(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        with closing(opened(tmp_path, server)) as archive:
            for key, folder in ((KEY, "/secret"), ("codex/other", "/open")):
                row = session(key, folder=folder, cwd=folder, project=f"example.com{folder}")
                write(archive, batch(row, talk()))
            archive.forget(KEY)
            write(archive)
            for table in ("project", "repository"):
                assert run(server, f"SELECT path FROM {table}") == "/open\n"
            assert run(server, "SELECT DISTINCT session FROM place") == "codex/other\n"

    def test_words_leave_the_postings(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        """The words of other events of the same batch stay."""
        made, other = batch(session(), talk("secret")), batch(session("codex/other"), talk("open"))
        made.sessions += other.sessions
        made.turns += other.turns
        made.events += other.events
        count = "SELECT sum(length(numbers)) FROM posting WHERE term = cityHash64('{}')"
        with closing(opened(tmp_path, server)) as archive:
            write(archive, made)
            assert run(server, count.format("secret")) == "3\n"
            archive.forget(KEY)
            write(archive)
            assert run(server, "SELECT count() FROM posting WHERE term = cityHash64('secret')") == "0\n"
            assert (run(server, count.format("open")), run(server, count.format("here"))) == ("3\n", "1\n")
            assert run(server, "SELECT DISTINCT session FROM document") == "codex/other\n"
            assert len(found(archive, "open")) == 2

    def test_forgotten_events_leave_the_exchanges_of_a_fork(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        """The remaining exchanges are numbered anew; an exchange with nothing left is gone."""
        made, fork = batch(session(), talk("secret")), batch(session("codex/fork", exchange_count=2), talk("own"))
        copied = ExchangeRow(session="codex/fork", number=0, ts=1, user=made.events[0].uid)
        mixed = ExchangeRow(session="codex/fork", number=1, ts=2, user=fork.events[0].uid)
        mixed.said += made.events[3].uid + fork.events[3].uid
        with closing(opened(tmp_path, server)) as archive:
            write(archive, made, msgspec.structs.replace(fork, exchanges=[copied, mixed]))
            archive.forget(KEY)
            write(archive)
            (left,) = archive.exchanges(ExchangesRequest(session="codex/fork"))
            assert (left.row.number, [each.uid for each in left.said]) == (0, [fork.events[3].uid])
            assert list(archive.exchanges(ExchangesRequest(query="secret"))) == []
            assert archive.sessions(SessionsRequest(keys=("codex/fork",)))[0].exchange_count == 1


@pytest.mark.clickhouse
class TestHooks:
    """Hooks read the newest sessions of the machine from a local file."""

    def test_the_last_session(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        with closing(opened(tmp_path, server)) as archive:
            write(archive, batch(session(cwd="/shop", title="mend the till"), talk()))
        glance = last_session(tmp_path, ["/shop"], "")
        assert glance is not None
        assert (glance.title, glance.id) == ("mend the till", session_id(KEY))

    def test_one_that_another_machine_has_forgotten(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        with closing(opened(tmp_path / "a", server)) as one, closing(opened(tmp_path / "b", server)) as two:
            write(one, batch(session(cwd="/shop", title="mend the till"), talk()))
            two.forget(KEY)
            write(two)
            write(one)
        assert last_session(tmp_path / "a", ["/shop"], "") is None


@pytest.mark.clickhouse
class TestFailures:
    def test_no_server(self, tmp_path: Path, clickhouse_url: str) -> None:
        with pytest.raises(ArchiveError, match=r"cannot be reached: .* \(Connection refused\)$"):
            opened(tmp_path, ClickHouseSettings(url="http://127.0.0.1:9/backstory"))

    def test_a_cluster_without_tables(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        """The error has the command that prints them. A table of one node would stand in the way of the cluster's."""
        database = server.url.rpartition("/")[2]
        with pytest.raises(ArchiveError, match=rf"clickhouse\.cluster team {database}` prints"):
            opened(tmp_path, msgspec.structs.replace(server, cluster="team"))
        assert run(server, "SHOW TABLES") == ""

    def test_a_cluster_with_older_tables(self, tmp_path: Path, server: ClickHouseSettings) -> None:
        """The statements for new tables would only say that they are new."""
        opened(tmp_path, server).close()
        as_before(server, 6)
        with pytest.raises(ArchiveError, match="migrated by hand"):
            opened(tmp_path, msgspec.structs.replace(server, cluster="team"))


class TestCluster:
    @pytest.mark.clickhouse
    def test_connections(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By default an insert returns before the shards have its rows, and subqueries over all shards are refused."""
        given: dict[str, object] = {}
        monkeypatch.setattr("clickhouse_connect.get_client", lambda **options: given.update(options))
        Server("http://127.0.0.1:9/backstory", "team")
        assert given["settings"] == {
            "distributed_foreground_insert": 1,
            "distributed_product_mode": "global",
            "allow_nondeterministic_mutations": 1,
        }

    def test_every_table_is_replicated_and_distributed(self) -> None:
        """Checked as text: replication needs Keeper, which is not in process."""
        sql = list(statements("team", "backstory"))
        for table in TABLES:
            assert sum(f".`{table.name}_local` ON CLUSTER `team` (" in each for each in sql) == 1
            assert sum(f"Distributed(`team`, `backstory`, `{table.name}_local`" in each for each in sql) == 1
        assert (
            "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/backstory/turn', '{replica}', version)" in sql[3]
        )
