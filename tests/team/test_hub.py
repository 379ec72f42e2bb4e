"""A hub, its members and their rights, over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any

import httpx
import pytest

from backstory.archive.base import ArchiveError, SessionsRequest, Writer
from backstory.faces.http.hub import Hub
from backstory.library import Library
from backstory.team import TeamError, Unreachable, wire
from backstory.team import remote as hub_client
from backstory.team.intake import Intake
from backstory.team.remote import HubClient
from tests.team_world import Laptop, ServedHub, project, serving, stored

SHOP, SITE = "/home/dev/shop", "/home/dev/site"
_ALL = SessionsRequest(empty=True)


def laptop_of(folder: Path, hub: ServedHub, name: str = "alice", **more: Any) -> Laptop:
    token = more.pop("token", None) or hub.token(name)
    return Laptop(folder, name, **{"url": hub.url, "token": token, "projects": ["*"], **more})


def refusal(laptop: Laptop) -> str:
    with pytest.raises(TeamError) as error:
        laptop.push()
    return str(error.value)


class TestPush:
    def test_shares(self, hub: ServedHub, tmp_path: Path) -> None:
        """The hub has what the laptop has, under the name of the member."""
        laptop = laptop_of(tmp_path, hub)
        laptop.write(project("a", SHOP, "the gateway times out", "raised it"))
        report = laptop.push()

        assert (report.sessions, report.events, report.waiting) == (1, 2, 0)
        with laptop.library() as library:
            assert stored(hub.archive) == stored(library.archive)
        (session,) = hub.archive.sessions(_ALL)
        assert (session.user, session.machine) == ("alice", "alice-laptop")

    def test_server_down_and_back(self, tmp_path: Path) -> None:
        """Everything arrives when the hub is back."""
        with serving(tmp_path / "hub") as first:
            laptop = laptop_of(tmp_path, first)
            talk = project("a", SHOP, "one", "two")
            laptop.write(talk)
            laptop.push()
        laptop.write(talk.prompt("three").answer("four"))
        with pytest.raises(Unreachable, match="does not answer: check the network"):
            laptop.push()
        with laptop.library() as library:
            status = library.team.status()
        assert [session.state for session in status.sessions] == ["changed"]
        assert "does not answer" in (status.error or "")
        with serving(tmp_path / "hub", first.port) as second:
            laptop.push()
            with laptop.library() as library:
                assert stored(second.archive) == stored(library.archive)
                assert library.team.status().error is None

    def test_database_away_and_back(self, hub: ServedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The hub writes again when its database answers, and nothing is lost."""
        laptop = laptop_of(tmp_path, hub)
        laptop.write(project("a", SHOP, "one", "two"))
        make_writer = hub.archive.writer

        def away(*_: object) -> None:
            raise ArchiveError("the database is away")

        def writer_without_database() -> Writer:
            writer = make_writer()
            monkeypatch.setattr(writer, "recover", away)
            return writer

        with monkeypatch.context() as patched:
            patched.setattr(hub.archive, "writer", writer_without_database)
            patched.setattr(Intake, "push", away)
            for _ in range(2):
                with pytest.raises(Unreachable, match="the database is away"):
                    laptop.push()
        laptop.push()
        with laptop.library() as library:
            assert stored(hub.archive) == stored(library.archive)

    def test_a_restored_hub(self, hub: ServedHub, tmp_path: Path) -> None:
        """A hub with a new identity gets everything again."""
        laptop = laptop_of(tmp_path, hub)
        laptop.write(project("a", SHOP, "one", "two"))
        laptop.push()
        assert laptop.push().events == 0
        hub.hub.identity = "another"

        assert laptop.push().events == 2
        with laptop.library() as library:
            assert stored(hub.archive) == stored(library.archive)


class TestHome:
    """The home of a hub has the archive of the team, and nothing of its own machine."""

    def test_own_sessions_are_not_served(self, tmp_path: Path) -> None:
        laptop = Laptop(tmp_path, "alice")
        laptop.write(project("a", SHOP, "one"))
        laptop.sync()
        with laptop.library() as library, pytest.raises(TeamError, match="has sessions of this machine"):
            Hub(library.home, library.archive)

    def test_transcripts_are_not_read_into_it(self, hub: ServedHub, tmp_path: Path) -> None:
        home = Laptop(tmp_path, "owner")
        home.write(project("a", SHOP, "one"))
        hub.close()
        with Library(tmp_path / "hub", agents_home=home.home, environ={}) as library:
            library.catch_up()
            assert library.archive.sessions(_ALL) == []
            with pytest.raises(ArchiveError, match="has the archive of a team"):
                library.sync()


class TestBackground:
    def test_watch_pushes(self, hub: ServedHub, tmp_path: Path) -> None:
        """A process that keeps the archive live shares what it reads."""
        laptop = laptop_of(tmp_path, hub)
        laptop.write(talk := project("a", SHOP, "one", "two"))
        stop = Event()
        with laptop.library() as library:
            thread = Thread(target=library.watch, args=(stop,))
            thread.start()
            try:
                _wait_until(lambda: len(stored(hub.archive).events) == 2)
                laptop.write(talk.prompt("three").answer("four"))
                _wait_until(lambda: len(stored(hub.archive).events) == 4)
            finally:
                stop.set()
                thread.join(30)

    def test_the_server_is_away_at_first(self, tmp_path: Path) -> None:
        """It is asked again until it answers."""
        with serving(tmp_path / "hub") as first:
            laptop = laptop_of(tmp_path, first)
        laptop.write(project("a", SHOP, "one", "two"))
        laptop.sync()
        with laptop.library() as library, library.team.pushing():
            _wait_until(lambda: bool(library.team.status().error))
            with serving(tmp_path / "hub", first.port) as second:
                _wait_until(lambda: len(stored(second.archive).events) == 2)

    def test_nothing_is_shared(self, hub: ServedHub, tmp_path: Path) -> None:
        """Without projects no thread is started and no outbox made."""
        laptop = laptop_of(tmp_path, hub, projects=[])
        with laptop.library() as library, library.team.pushing():
            assert not [thread for thread in enumerate_threads() if thread.name == "backstory-team"]
        assert not (laptop.backstory / "outbox.db").exists()


def _wait_until(happened: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.02)


class TestTokens:
    """Each refusal says why."""

    def test_missing(self, hub: ServedHub, tmp_path: Path) -> None:
        laptop = Laptop(tmp_path, "alice", url=hub.url, projects=["*"])
        assert "a token is missing: set BACKSTORY_TEAM_TOKEN" in refusal(laptop)

    def test_wrong(self, hub: ServedHub, tmp_path: Path) -> None:
        assert "the token is not known" in refusal(laptop_of(tmp_path, hub, token="bst_0_wrong"))

    def test_revoked(self, hub: ServedHub, tmp_path: Path) -> None:
        """From the moment on at which it is."""
        made, text = hub.hub.tokens.create("alice", ("read", "write"), ("*",))
        laptop = laptop_of(tmp_path, hub, token=text)
        laptop.push()
        hub.hub.tokens.revoke(made.id)

        assert "was revoked" in refusal(laptop)

    def test_read_only(self, hub: ServedHub, tmp_path: Path) -> None:
        laptop = laptop_of(tmp_path, hub, token=hub.token("alice", ("read",)))
        laptop.write(project("a", SHOP, "one"))

        assert "may only read, this needs the right to write" in refusal(laptop)
        assert hub.archive.sessions(_ALL) == []

    def test_write_only(self, hub: ServedHub, tmp_path: Path) -> None:
        """A CI agent shares, and cannot search."""
        laptop = laptop_of(tmp_path, hub, token=hub.token("ci", ("write",)))
        laptop.write(project("a", SHOP, "one"))
        laptop.push()
        with laptop.library("team") as library:
            answer = library.search("one")

        assert "may only write, this needs the right to read" in answer["error"]["message"]

    def test_of_another_project(self, hub: ServedHub, tmp_path: Path) -> None:
        """Sessions that the token does not cover are refused, the rest is accepted; the status says so."""
        laptop = laptop_of(tmp_path, hub, token=hub.token("alice", projects=(SHOP,)))
        laptop.write(project("a", SHOP, "one"), project("b", SITE, "two"))
        report = laptop.push()

        assert (report.sessions, report.refused) == (1, 1)
        assert [session.cwd for session in hub.archive.sessions(_ALL)] == [SHOP]
        with laptop.library() as library:
            states = {each.project: (each.state, each.reason) for each in library.team.status().sessions}
        assert states[SHOP] == ("shared", None)
        assert states[SITE] == ("refused", f"the token does not cover its project ({SITE})")

    def test_file(self, hub: ServedHub, tmp_path: Path) -> None:
        """The token may be in a file."""
        (tmp_path / "token").write_text(hub.token("alice") + "\n")
        laptop = Laptop(tmp_path, "alice", url=hub.url, token_file=str(tmp_path / "token"), projects=["*"])
        laptop.push()


class TestVersions:
    """A machine and a hub of different versions say which one is to be updated."""

    @pytest.mark.parametrize(("version", "named"), [(2, "update the hub"), (0, "update Backstory on this machine")])
    def test_of_the_machine(
        self, hub: ServedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, named: str
    ) -> None:
        monkeypatch.setattr(hub_client, "PROTOCOL", version)
        message = refusal(laptop_of(tmp_path, hub))
        assert f"speaks version {wire.PROTOCOL} of the team protocol, this Backstory {version}: {named}" in message

    def test_other_clients(self, hub: ServedHub) -> None:
        answer = httpx.get(f"{hub.url}/team/v1/hello", headers={wire.VERSION_HEADER: "7"})
        assert answer.status_code == 426
        assert answer.json()["error"]["code"] == "wrong_version"

    def test_no_hub(self, tmp_path: Path) -> None:
        """Another server at that address is recognised."""
        from http.server import BaseHTTPRequestHandler, HTTPServer

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"hi")

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Page)
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            client = HubClient(f"http://127.0.0.1:{server.server_port}", "bst_x_y")
            with closing(client), pytest.raises(TeamError, match="is not a Backstory hub"):
                client.hello()
        finally:
            server.shutdown()
            server.server_close()

    def test_no_address(self) -> None:
        with pytest.raises(TeamError, match="is not the address of a hub"):
            HubClient("hub.example.com", "bst_x_y")


class TestHostileRequests:
    """A body that is no message is refused, and nothing is written."""

    @pytest.mark.parametrize(
        ("body", "headers"),
        [
            (b"", {}),
            (b"\xc1", {}),
            (b"{}", {}),
            (b"\x28\xb5\x2f\xfd", {"Content-Encoding": "zstd"}),
            (b"x", {"Content-Encoding": "br"}),
        ],
    )
    def test_bodies(self, hub: ServedHub, body: bytes, headers: dict[str, str]) -> None:
        bearer = {"Authorization": f"Bearer {hub.token('alice')}", **headers}
        for path in ("push", "forget", "read/search"):
            answer = httpx.post(f"{hub.url}/team/v1/{path}", content=body, headers=bearer)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unreadable")

    def test_unknown_read(self, hub: ServedHub) -> None:
        bearer = {"Authorization": f"Bearer {hub.token('alice')}"}
        assert httpx.post(f"{hub.url}/team/v1/read/writer", headers=bearer).status_code == 404


class TestOperations:
    def test_health(self, hub: ServedHub) -> None:
        """A sign of life needs no token."""
        assert httpx.get(f"{hub.url}/health").json()["status"] == "ok"

    def test_health_without_the_archive(self, hub: ServedHub, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail() -> None:
            raise TeamError("the database is away")

        monkeypatch.setattr(hub.archive, "sync_state", fail)
        answer = httpx.get(f"{hub.url}/health")
        assert (answer.status_code, answer.json()["error"]["message"]) == (503, "the database is away")

    def test_metrics(self, hub: ServedHub, tmp_path: Path) -> None:
        """In the text format of Prometheus, for members only."""
        laptop = laptop_of(tmp_path, hub)
        laptop.write(project("a", SHOP, "one", "two"))
        laptop.push()
        assert httpx.get(f"{hub.url}/metrics").status_code == 401
        bearer = {"Authorization": f"Bearer {hub.token('prometheus', ('read',), ())}"}
        lines = httpx.get(f"{hub.url}/metrics", headers=bearer).text.splitlines()

        assert "backstory_hub_events 2" in lines
        assert "backstory_hub_events_received_total 2" in lines
        assert "backstory_hub_sessions_forgotten_total 0" in lines
        assert 'backstory_hub_requests_total{method="push",status="200"} 1' in lines
        assert all(line.startswith("#") or len(line.rsplit(" ", 1)) == 2 for line in lines)


class TestForget:
    """A member takes back what it has shared, and nothing else."""

    def test_own(self, hub: ServedHub, tmp_path: Path) -> None:
        laptop = laptop_of(tmp_path, hub)
        laptop.write(talk := project("a", SHOP, "one"), project("b", SHOP, "two"))
        laptop.push()
        with laptop.library() as library:
            library.team.withhold([f"claude-code/{talk.id}"])
            assert library.team.push().withdrawn == 1
            states = sorted(each.state for each in library.team.status().sessions)

        assert states == ["shared", "taken back"]
        assert len(hub.archive.sessions(_ALL)) == 1
        assert laptop.push().events == 0

    def test_of_others(self, hub: ServedHub, tmp_path: Path) -> None:
        laptop = laptop_of(tmp_path, hub)
        laptop.write(project("a", SHOP, "one"))
        laptop.push()
        (session,) = hub.archive.sessions(_ALL)
        with closing(HubClient(hub.url, hub.token("mallory"))) as mallory:
            receipt = mallory.forget([session.key])

        assert receipt.refused[session.key].code == "owner"
        assert len(hub.archive.sessions(_ALL)) == 1

    def test_local_forget(self, hub: ServedHub, tmp_path: Path) -> None:
        """`backstory forget` deletes everywhere: the team's copy goes with the next push."""
        laptop = laptop_of(tmp_path, hub)
        laptop.write(talk := project("a", SHOP, "one"))
        laptop.push()
        with laptop.library() as library:
            library.forget(f"session:{_encoded(f'claude-code/{talk.id}')}")
            library.team.push()

        assert hub.archive.sessions(_ALL) == []

    def test_requested_at_the_hub(self, hub: ServedHub, tmp_path: Path) -> None:
        """The owner of the hub forgets a session with the archive's own command."""
        laptop = laptop_of(tmp_path, hub)
        laptop.write(project("a", SHOP, "one"))
        laptop.push()
        (session,) = hub.archive.sessions(_ALL)
        hub.archive.forget(session.key)
        hub.hub._receiver.submit(lambda intake: intake.finish_forgetting()).result(30)

        assert hub.archive.sessions(_ALL) == []


def _encoded(key: str) -> str:
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(key.encode()).decode().rstrip("=")
