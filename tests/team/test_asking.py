"""Asking the archive of a team: through a hub, with the rights of a token, and together with that of the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backstory.archive.base import (
    Archive,
    ArchiveError,
    ExchangesRequest,
    Part,
    SearchRequest,
    SessionsRequest,
    any_folder,
)
from backstory.archive.spans import TraceQuery, Window
from backstory.model import EVENT_TYPES, SEARCHABLE_TYPES, EventRef, SessionRef, TurnRef, session_id
from backstory.team.access import LimitedArchive
from backstory.team.remote import HubClient, RemoteArchive
from backstory.team.sharing import Projects
from tests.team_world import Laptop, ServedHub, project, serving, stored
from tests.transcripts import Transcript

SHOP, SITE = "/home/dev/shop", "/home/dev/site"
EVER = {"start_datetime": "2020-01-01T00:00:00Z", "end_datetime": "2030-01-01T00:00:00Z"}


class Team:
    """Two laptops that share with a hub, and a third that does not share anything."""

    def __init__(self, folder: Path, hub: ServedHub) -> None:
        self.hub = hub
        self.alice = self._laptop(folder, "alice", projects=["*"])
        self.bob = self._laptop(folder, "bob", projects=[SHOP])
        shop = Transcript("a", SHOP).prompt("the gateway times out").answer("raised the limit of the gateway")
        self.alice.write(shop.call("Bash", {"command": "make gateway"}, "ok"), project("b", SITE, "paint the gateway"))
        self.bob.write(project("c", SHOP, "bob looks at the gateway", "fine"), project("d", SITE, "bobs own gateway"))
        for laptop in (self.alice, self.bob):
            laptop.push()
        hub.settle()

    def _laptop(self, folder: Path, name: str, **more: Any) -> Laptop:
        return Laptop(folder, name, url=self.hub.url, token=self.hub.token(name), **more)


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    folder = tmp_path_factory.mktemp("team")
    with serving(folder / "hub") as hub:
        yield Team(folder, hub)


def titles(answer: dict[str, Any]) -> list[str]:
    return [entry["session"]["title"] for entry in answer["data"]["results"]]


def search(archive: Archive, query: str, **options: Any) -> list[str]:
    found = archive.search(SearchRequest(query=query, types=SEARCHABLE_TYPES, limit=20, **options))
    return [hit.event.text for hit in found.hits]


class TestRemoteArchive:
    """It answers like the archive behind the hub."""

    @pytest.fixture
    def remote(self, team: Team) -> Iterator[Archive]:
        with closing(RemoteArchive(HubClient(team.hub.url, team.hub.token("carol", ("read",))))) as archive:
            yield archive

    def test_rows(self, team: Team, remote: Archive) -> None:
        assert stored(remote) == stored(team.hub.archive)
        assert remote.counts().events == team.hub.archive.counts().events
        assert remote.sync_state().first_finished_at is not None

    def test_sessions(self, team: Team, remote: Archive) -> None:
        requests = (
            SessionsRequest(project="shop"),
            SessionsRequest(limit=1, ascending=True, order="started_at"),
            SessionsRequest(source="claude-code", folders=any_folder),
            SessionsRequest(source="claude-code", folders=lambda name: name.endswith("site")),
            SessionsRequest(start=0, end=1 << 50, deadline=10**9),
        )
        for request in requests:
            assert remote.sessions(request) == team.hub.archive.sessions(request)
            assert remote.sessions(request)

    def test_search(self, team: Team, remote: Archive) -> None:
        request = SearchRequest(query="gateway", types=SEARCHABLE_TYPES, explain=True)
        assert remote.search(request) == team.hub.archive.search(request)
        assert len(remote.search(request).hits) >= 4

    def test_open(self, team: Team, remote: Archive) -> None:
        for row in team.hub.archive.sessions(SessionsRequest()):
            refs: list[Any] = [SessionRef(row.key), TurnRef(row.key, 1)]
            refs += [EventRef(event.uid) for event in team.hub.archive.events(row.key, 1)]
            for ref in refs:
                part = Part(types=EVENT_TYPES, heads=20)
                assert remote.open(ref, part) == team.hub.archive.open(ref, part)
        assert remote.open(SessionRef("claude-code/none")) is None

    def test_traces(self, team: Team, remote: Archive) -> None:
        query = TraceQuery(sort="createdAt", limit=10)
        own, theirs = team.hub.archive.spans, remote.spans
        assert theirs.traces(query) == own.traces(query)
        spans = TraceQuery(sort="startTime", limit=10)
        assert theirs.spans(spans, 200) == own.spans(spans, 200)
        trace = own.traces(query).rows[0].id
        assert theirs.trace(trace) == own.trace(trace)
        assert theirs.trace(trace, texts=False) == own.trace(trace, texts=False)
        assert theirs.usage(Window()) == own.usage(Window()) != []
        assert theirs.stats(Window(), "name") == own.stats(Window(), "name") != []

    def test_writing(self, remote: Archive) -> None:
        for write in (remote.writer, lambda: remote.forget("claude-code/a")):
            with pytest.raises(ArchiveError, match="written by sharing sessions only"):
                write()


class TestLimitedArchive:
    """A token for some projects answers as if there were no others."""

    @pytest.fixture
    def limited(self, team: Team) -> Archive:
        return LimitedArchive(team.hub.archive, Projects((SHOP,)))

    def test_search(self, limited: Archive) -> None:
        for options in ({}, {"project": "dev"}):
            found = search(limited, "gateway", **options)
            assert "the gateway times out" in found
            assert "bob looks at the gateway" in found
            assert "paint the gateway" not in found

    def test_search_in_a_session(self, team: Team, limited: Archive) -> None:
        """One of another project is not known."""
        rows = {row.cwd: row.key for row in team.hub.archive.sessions(SessionsRequest())}
        request = SearchRequest(query="gateway", types=SEARCHABLE_TYPES, session=rows[SITE])
        found = limited.search(request)
        assert (found.known, found.hits, found.documents) == (False, [], 0)
        assert search(limited, "gateway", session=rows[SHOP])

    def test_rows(self, team: Team, limited: Archive) -> None:
        everything = stored(team.hub.archive)
        shop = {key for key, row in everything.sessions.items() if row.cwd == SHOP}
        assert set(stored(limited).sessions) == shop
        assert limited.counts().sessions == len(shop) == 2
        assert len(limited.sessions(SessionsRequest(limit=1))) == 1
        (hidden,) = set(everything.sessions) - shop
        assert limited.turns(hidden) == []
        assert limited.events(hidden, 1) == []
        uids = tuple(event.uid for event in everything.events)
        assert {event.session for event in limited.events(part=Part(uids=uids))} == shop

    def test_open(self, team: Team, limited: Archive) -> None:
        for row in team.hub.archive.sessions(SessionsRequest()):
            assert (limited.open(SessionRef(row.key)) is None) == (row.cwd != SHOP)
            assert (limited.open(TurnRef(row.key, 1)) is None) == (row.cwd != SHOP)

    def test_usage(self, team: Team, limited: Archive) -> None:
        """That of its projects; lists of traces need a token for all."""
        everything = team.hub.archive.spans.usage(Window())
        calls = sum(line.calls for line in everything if line.project == SHOP)
        assert sum(line.calls for line in limited.spans.usage(Window())) == calls > 0
        with pytest.raises(ArchiveError, match="some projects only"):
            limited.spans.traces(TraceQuery(sort="startTime"))

    def test_over_http(self, team: Team) -> None:
        token = team.hub.token("carol", ("read",), (SITE,))
        with closing(RemoteArchive(HubClient(team.hub.url, token))) as archive:
            assert search(archive, "gateway") == ["paint the gateway"]


class TestScopes:
    """The tools answer from the machine, from the team, or from both."""

    def test_local(self, team: Team) -> None:
        with team.bob.library() as library:
            assert sorted(set(titles(library.search("gateway")))) == ["bob looks at the gateway", "bobs own gateway"]

    def test_team(self, team: Team) -> None:
        """Sessions that bob does not share are not there; answers name members and machines among their warnings."""
        with team.bob.library("team") as library:
            answer = library.search("gateway")
            found = set(titles(answer))
            listed = library.sessions(**EVER)["data"]["sessions"]
            opened = library.open(listed[0]["id"])

        assert found == {"bob looks at the gateway", "the gateway times out", "paint the gateway"}
        assert len(listed) == 3
        assert opened["data"]["kind"] == "session"
        assert any(warning.startswith("From alice on alice-laptop: session:") for warning in answer["warnings"])
        assert any(warning.startswith("From bob on bob-laptop: session:") for warning in answer["warnings"])

    def test_both(self, team: Team) -> None:
        """Each session once, by score; that of the machine where both have it."""
        with team.bob.library("both") as library:
            answer = library.search("gateway", n_hits=20)
            listed = [entry["session"]["title"] for entry in library.sessions(**EVER)["data"]["sessions"]]
            scores = [hit["score"] for hit in answer["data"]["results"]]

        assert sorted(listed) == sorted(
            ["bob looks at the gateway", "bobs own gateway", "the gateway times out", "paint the gateway"]
        )
        assert set(titles(answer)) == set(listed)
        assert scores == sorted(scores, reverse=True)
        ids = [hit["id"] for hit in answer["data"]["results"]]
        assert len(ids) == len(set(ids))
        assert not any("bob on" in warning for warning in answer["warnings"])

    def test_rows_of_both(self, team: Team) -> None:
        """Rows come from the archive that has the session."""
        with team.bob.library("both") as library:
            both, own, shared = library.asked, library.archive, team.hub.archive
            mine = {row.key: own for row in own.sessions(SessionsRequest())}
            places = {row.key: shared for row in shared.sessions(SessionsRequest())} | mine
            assert len(places) == 4
            for key, archive in places.items():
                request = ExchangesRequest(session=key)
                assert both.turns(key) == archive.turns(key) != []
                assert both.events(key, 1) == archive.events(key, 1) != []
                assert list(both.exchanges(request)) == list(archive.exchanges(request)) != []
            events = [event for key, archive in places.items() for event in archive.events(key, 1)]
            found = both.events(part=Part(uids=tuple(event.uid for event in events)))
            assert sorted(event.uid for event in found) == sorted(event.uid for event in events)
            assert both.counts().by_source == {"claude-code": 3}

    def test_a_session_of_the_team(self, team: Team) -> None:
        """It is opened, searched and read as a conversation like one of the machine."""
        with team.bob.library("both") as library:
            hit = next(hit for hit in library.search("raised limit")["data"]["results"])["open"]
            opened = library.open(hit["session_id"])
            within = library.search("gateway", within_id=hit["session_id"])
            turn = library.read_turn(hit["turn_id"])
            found = library.call("search_conversations", {"query": "gateway"})["results"]
            read = [library.call("read_conversation", {"session_id": result["session_id"]}) for result in found]
            unknown = library.search("gateway", within_id=session_id("claude-code/none"))

        assert opened["data"]["session"]["title"] == "the gateway times out"
        assert {each["session"]["id"] for each in within["data"]["results"]} == {hit["session_id"]}
        assert [each.content.text for each in turn][:1] == ["the gateway times out"]
        assert len({each["session_id"] for each in found}) == 4
        assert all("gateway" in str(each["turns"]) for each in read)
        assert unknown["error"]["code"] == "not_found"

    def test_pages_of_both(self, team: Team) -> None:
        """A cursor leads through the sessions of both, each once."""
        with team.bob.library("both") as library:
            seen, cursor = [], None
            while True:
                page = library.sessions(**EVER, limit=1, **({"cursor": cursor} if cursor else {}))["data"]
                seen += [entry["id"] for entry in page["sessions"]]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
        assert len(seen) == len(set(seen)) == 4

    def test_traces_of_both(self, team: Team) -> None:
        """Each once, in one order, page by page; those of a session that both have are of the machine."""
        with team.bob.library("both") as library:
            spans = library.asked.spans
            found = spans.traces(TraceQuery(sort="createdAt", limit=10))
            own = library.archive.spans.traces(TraceQuery(sort="createdAt", limit=10))
            pages, after = [], None
            while True:
                page = spans.traces(TraceQuery(sort="createdAt", limit=1, after=after))
                pages += page.rows
                if not page.more:
                    break
                after = page.last
            rising = spans.traces(TraceQuery(sort="createdAt", limit=10, descending=False))
            by_name = spans.spans(TraceQuery(sort="name", limit=50), 100)

        assert {row.id for row in own.rows} < {row.id for row in found.rows}
        assert len(found.rows) == len({row.id for row in found.rows}) == found.total == 4
        assert [row.start for row in found.rows] == sorted((row.start for row in found.rows), reverse=True)
        assert pages == found.rows
        assert sorted(row.id for row in rising.rows) == sorted(row.id for row in found.rows)
        names = [row.name for row in by_name.rows]
        assert names == sorted(names, reverse=True)
        assert len({(row.trace, row.id) for row in by_name.rows}) == len(names) == by_name.total

    def test_usage_of_both(self, team: Team) -> None:
        """A session that both have is counted once."""
        with team.bob.library("both") as library:
            mine = {row.key for row in library.archive.sessions(SessionsRequest())}
            both, own = library.asked.spans.usage(Window()), library.archive.spans.usage(Window())
            lines = library.asked.spans.usage(Window(), "session")
        theirs = [line for line in team.hub.archive.spans.usage(Window(), "session") if line.session not in mine]
        calls = sum(line.calls for line in own) + sum(line.calls for line in theirs)
        assert sum(line.calls for line in both) == sum(line.calls for line in lines) == calls
        assert len(theirs) == 1
        assert len(lines) == len({line.session for line in lines}) == 2

    def test_both_with_a_token_for_some_projects(self, team: Team, tmp_path: Path) -> None:
        """It is refused the traces of all, and searches its projects as before."""
        token = team.hub.token("frank", ("read",), (SITE,))
        laptop = Laptop(tmp_path, "frank", url=team.hub.url, token=token)
        laptop.write(project("f", SHOP, "franks own gateway", "fine"))
        laptop.sync()
        with laptop.library("both") as library:
            traces = library.asked.spans.traces(TraceQuery(sort="createdAt"))
            found = titles(library.search("gateway", n_hits=20))
        assert [row.name for row in traces.rows] == ["franks own gateway"]
        assert set(found) == {"franks own gateway", "paint the gateway"}

    def test_both_without_the_team(self, team: Team, tmp_path: Path) -> None:
        """The machine answers alone, and says so."""
        laptop = Laptop(tmp_path, "dave", url="http://127.0.0.1:1", token="bst_x_y")
        laptop.write(project("e", SHOP, "daves gateway"))
        laptop.sync()
        with laptop.library("both") as library:
            answer = library.search("gateway")

        assert titles(answer) == ["daves gateway"]
        assert any("The archive of the team was not searched" in warning for warning in answer["warnings"])

    def test_team_without_a_server(self, tmp_path: Path) -> None:
        laptop = Laptop(tmp_path, "dave", url="http://127.0.0.1:1", token="bst_x_y")
        with laptop.library("team") as library:
            assert "does not answer" in library.search("gateway")["error"]["message"]

    def test_origin(self, team: Team) -> None:
        """The location of a session names its member; its agent's command is of no use here."""
        with team.bob.library("team") as library:
            row = next(row for row in library.asked.sessions(SessionsRequest()) if row.user == "alice")
            location = library.locate(session_id(row.key))
        assert location is not None
        assert (location.origin, location.resume) == ("alice on alice-laptop", None)

    def test_conversations(self, team: Team) -> None:
        with team.bob.library("team") as library:
            answer = library.call("search_conversations", {"query": "gateway"})
        assert "raised the limit" in str(answer)


class TestMcp:
    """The setting `team.scope` decides what agents search."""

    @pytest.mark.parametrize(("scope", "found"), [("local", False), ("team", True), ("both", True)])
    def test_scope(self, team: Team, tmp_path: Path, scope: str, found: bool) -> None:
        from mcp.client.session import ClientSession

        from tests.faces.direct import direct

        laptop = Laptop(tmp_path, "erin", url=team.hub.url, token=team.hub.token("erin"), scope=scope)

        async def ask() -> Any:
            with laptop.library() as library:
                asked = library.in_scope(library.settings.team.scope)
                async with direct(asked, ("history",)) as streams, ClientSession(*streams) as session:
                    await session.initialize()
                    answer = await session.call_tool("search_sessions", {"query": "limit of the gateway"})
                asked.close()
                return answer.structured_content

        answer = asyncio.run(ask())
        assert bool(answer["data"]["results"]) is found
        assert any("From alice on alice-laptop" in warning for warning in answer["warnings"]) is found
