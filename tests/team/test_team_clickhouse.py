"""The archive of a team on ClickHouse: behind a hub, without one, and its backups."""

from __future__ import annotations

import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from backstory.archive import open_engine
from backstory.archive.base import Archive, ArchiveError, SearchRequest, SessionsRequest
from backstory.archive.spans import TraceQuery, Window
from backstory.config import ClickHouseSettings
from backstory.library import Scope
from backstory.model import SEARCHABLE_TYPES
from tests.archive import clickhouse_server
from tests.archive_world import PROJECTION
from tests.e2e.served import run
from tests.team_world import SECRET, Laptop, project, serving, stored

pytestmark = pytest.mark.clickhouse

SHOP, DIARY = "/home/dev/shop", "/home/dev/diary"
_TABLES = ("session", "turn", "event", "place", "exchange", "usage", "project", "repository", "span", "trace")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if reason := clickhouse_server.missing():
        pytest.skip(reason)
    with clickhouse_server.serving(tmp_path_factory.mktemp("clickhouse")) as url:
        yield url


@pytest.fixture
def url(server: str) -> Iterator[str]:
    """A database of its own for each test."""
    name = f"team_{uuid.uuid4().hex}"
    yield f"{server}/{name}"
    clickhouse_server.command(server, f"DROP DATABASE IF EXISTS {name}")


def opened(folder: Path, url: str, projection: str | None = None) -> Archive:
    return open_engine("clickhouse", folder, projection, ClickHouseSettings(url=url))


def everything(server: str, url: str) -> bytes:
    """All rows of a database."""
    name = url.rpartition("/")[2]
    found = b""
    for table in _TABLES:
        with urllib.request.urlopen(server, f"SELECT * FROM {name}.{table}".encode()) as answer:
            found += answer.read()
    return found


def found(archive: Archive, query: str) -> list[str]:
    hits = archive.search(SearchRequest(query=query, types=SEARCHABLE_TYPES)).hits
    return [hit.event.text for hit in hits]


class TestHub:
    def test_push_search_forget(self, server: str, url: str, tmp_path: Path) -> None:
        """As with the local engine; no secret and nothing private is in any table."""
        with closing(opened(tmp_path / "hub", url)) as archive, serving(tmp_path / "hub", archive=archive) as hub:
            alice = Laptop(tmp_path, "alice", url=hub.url, token=hub.token("alice"), projects=[SHOP])
            bob = Laptop(tmp_path, "bob", url=hub.url, token=hub.token("bob"))
            alice.write(
                project("a", SHOP, f"the gateway needs {SECRET}", "it works", "good", "yes"),
                project("b", DIARY, "a private gateway"),
            )
            alice.push()
            with alice.library() as library:
                own = stored(library.archive)
            assert len(stored(archive).events) == 4
            assert set(stored(archive).turns) == {place for place in own.turns if place[0] in stored(archive).sessions}
            rows = everything(server, url)
            assert b"gateway" in rows
            assert SECRET.encode() not in rows
            assert b"private" not in rows
            with bob.library("team") as library:
                answer = library.search("gateway")
                assert len(answer["data"]["results"]) == 1
                assert any("From alice on alice-laptop" in warning for warning in answer["warnings"])
                (session,) = library.asked.sessions(SessionsRequest())
            with alice.library() as library:
                library.team.withhold([session.key])
                assert library.team.push().withdrawn == 1
            assert everything(server, url) == b""

    def test_traces_and_usage(self, url: str, tmp_path: Path) -> None:
        """Of the team, and of both: a session that both have counts once."""
        with (
            closing(opened(tmp_path / "hub", url, PROJECTION)) as archive,
            serving(tmp_path / "hub", archive=archive) as hub,
        ):
            alice = Laptop(tmp_path, "alice", url=hub.url, token=hub.token("alice"), projects=["*"])
            bob = Laptop(tmp_path, "bob", url=hub.url, token=hub.token("bob"), projects=[SHOP])
            alice.write(project("a", SHOP, "the gateway", "it works", "good", "yes"))
            bob.write(project("b", SHOP, "bobs gateway", "fine"), project("c", DIARY, "bobs own", "fine"))
            for laptop in (alice, bob):
                laptop.push()
            hub.settle()
            calls, traces = {}, {}
            scopes: tuple[Scope, ...] = ("local", "team", "both")
            for scope in scopes:
                with bob.library(scope) as library:
                    spans = library.asked.spans
                    calls[scope] = sum(line.calls for line in spans.usage(Window()))
                    traces[scope] = spans.traces(TraceQuery(sort="createdAt", limit=10)).total
        assert calls == {"local": 2, "team": 3, "both": 4}
        assert traces == {"local": 2, "team": 3, "both": 4}


class TestDirect:
    """A small team shares with a server without a hub."""

    def test_push_search_forget(self, url: str, tmp_path: Path) -> None:
        alice = Laptop(tmp_path, "alice", clickhouse=url, projects=[SHOP], user="alice")
        bob = Laptop(tmp_path, "bob", clickhouse=url, user="bob")
        talk = project("a", SHOP, "the gateway", "it works")
        alice.write(talk)
        alice.push()
        alice.write(talk.prompt("more").answer("done"))
        assert alice.push().events == 2
        with bob.library("team") as library:
            answer = library.search("gateway")
            assert [hit["session"]["title"] for hit in answer["data"]["results"]] == ["the gateway"]
            assert any("From alice on alice-laptop" in warning for warning in answer["warnings"])
            assert not any("indexed" in warning for warning in answer["warnings"])
        with alice.library() as library:
            library.team.withhold([f"claude-code/{talk.id}"])
            assert library.team.push().withdrawn == 1
        with bob.library("team") as library:
            assert library.search("gateway")["data"]["results"] == []

    def test_newer_schema(self, server: str, url: str, tmp_path: Path) -> None:
        """A server of another version is an error that says what to update."""
        opened(tmp_path / "first", url).close()
        clickhouse_server.command(server, f"INSERT INTO {url.rpartition('/')[2]}.schema_version (version) VALUES (999)")
        alice = Laptop(tmp_path, "alice", clickhouse=url, projects=[SHOP])
        alice.write(project("a", SHOP, "one"))

        with pytest.raises(ArchiveError, match=r"has schema version 999, this Backstory knows \d+: update Backstory"):
            alice.push()
        with alice.library() as library:
            assert "schema version 999" in (library.team.status().error or "")

    def test_server_down(self, tmp_path: Path) -> None:
        alice = Laptop(tmp_path, "alice", clickhouse="http://127.0.0.1:1/backstory", projects=[SHOP])
        alice.write(project("a", SHOP, "one"))
        with pytest.raises(ArchiveError, match="cannot be reached"):
            alice.push()

    def test_hub_without_server(self, tmp_path: Path) -> None:
        """One line says why it does not start; those of the client's library are left out."""
        engine = {"BACKSTORY_ARCHIVE_ENGINE": "clickhouse", "BACKSTORY_ARCHIVE_CLICKHOUSE_URL": "http://127.0.0.1:1/x"}
        ended = run(tmp_path, "serve", "--hub", "--port", "0", **engine)
        assert ended.returncode == 1
        (line,) = ended.stderr.splitlines()
        assert line.startswith("error: the ClickHouse server 127.0.0.1 cannot be reached: ")
        assert line.endswith("(Connection refused)")


class TestBackup:
    def test_restore(self, server: str, url: str, tmp_path: Path) -> None:
        """ClickHouse's own statements put everything back, also what is searched."""
        alice = Laptop(tmp_path, "alice", clickhouse=url, projects=[SHOP], user="alice")
        alice.write(project("a", SHOP, "the gateway", "it works"))
        alice.push()
        with closing(opened(tmp_path / "reader", url)) as archive:
            before = stored(archive)
        name = url.rpartition("/")[2]
        # To memory: files need a setting of the server, which chDB does not take. It is that of one connection.
        with closing(HTTPConnection(server.removeprefix("http://"))) as connection:
            for sql in (
                "BACKUP DATABASE {0} TO Memory('{0}')",
                "DROP DATABASE {0}",
                "RESTORE DATABASE {0} FROM Memory('{0}')",
            ):
                connection.request("POST", "/", sql.format(name))
                answer = connection.getresponse()
                assert answer.status == 200, answer.read()
                answer.read()
        with closing(opened(tmp_path / "reader", url)) as archive:
            assert stored(archive) == before
            assert found(archive, "gateway") == ["the gateway"]
