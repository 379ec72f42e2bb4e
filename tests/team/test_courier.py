"""The way of sessions from a laptop to the archive of a team, which may be cut anywhere."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backstory.archive import open_engine, open_journal
from backstory.archive.base import Batch, SearchRequest, SessionsRequest
from backstory.config import TeamSettings
from backstory.library import Library
from backstory.model import SEARCHABLE_TYPES
from backstory.team import sharing as parcel
from backstory.team.courier import Courier
from backstory.team.intake import Intake
from backstory.team.outbox import Outbox
from backstory.team.sharing import TEXTS, Sharing
from tests.archive_world import PROJECTION
from tests.team_world import SECRET, Cut, CutServer, Laptop, only, project, stored
from tests.transcripts import Transcript

SHOP = "/home/dev/shop"
_ALL = SessionsRequest(empty=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CutServer]:
    with closing(open_engine("local", tmp_path / "server", PROJECTION)) as archive:
        made = CutServer(archive)
        yield made
        made.intake.close()


@pytest.fixture
def laptop(tmp_path: Path) -> Laptop:
    return Laptop(tmp_path, "alice", projects=[SHOP])


@contextmanager
def courier(library: Library, server: CutServer, **rules: object) -> Iterator[Courier]:
    sharing = Sharing(TeamSettings(**{"projects": (SHOP,), **rules}))  # type: ignore[arg-type]
    with closing(Outbox(library.home)) as outbox, closing(open_journal(library.home)) as journal:
        yield Courier(library.archive, journal, outbox, server, sharing, library.team.machine)


def push(laptop: Laptop, server: CutServer, **rules: object) -> None:
    with laptop.library() as library:
        library.sync()
        with courier(library, server, **rules) as found:
            found.push()


def texts(server: CutServer, query: str) -> list[str]:
    server.intake.flush()
    found = server.archive.search(SearchRequest(query=query, types=SEARCHABLE_TYPES, limit=50))
    return [hit.event.text for hit in found.hits]


class TestPush:
    """The server has what is shared, and nothing else."""

    def test_everything_of_a_session(self, laptop: Laptop, server: CutServer) -> None:
        """Turns, events, usage and exchanges are as on the laptop, with member and machine."""
        laptop.write(project("a", SHOP, "the gateway times out", "raised it", "thanks", "welcome"))
        push(laptop, server)

        with laptop.library() as library:
            assert stored(server.archive) == stored(library.archive)
        (session,) = server.archive.sessions(_ALL)
        assert (session.user, session.machine) == ("alice", "alice-laptop")
        assert texts(server, "gateway") == ["the gateway times out"]

    def test_only_what_is_asked_for(self, laptop: Laptop, server: CutServer) -> None:
        laptop.write(project("a", SHOP, "in the shop"), project("b", "/home/dev/diary", "in the diary"))
        push(laptop, server)

        assert [session.cwd for session in server.archive.sessions(_ALL)] == [SHOP]
        assert b"diary" not in b"".join(msgspec.msgpack.encode(parcel) for parcel in server.parcels)

    def test_nothing_without_rules(self, laptop: Laptop, server: CutServer) -> None:
        laptop.write(project("a", SHOP, "in the shop"))
        push(laptop, server, projects=())

        assert server.parcels == []

    def test_news(self, laptop: Laptop, server: CutServer) -> None:
        """Only the events that are new are sent."""
        talk = project("a", SHOP, "one", "two")
        laptop.write(talk)
        push(laptop, server)
        laptop.write(talk.prompt("three").answer("four"))
        push(laptop, server)

        sent = [event.text for event in server.parcels[-1].batch.events]
        assert sent == ["three", "four"]
        with laptop.library() as library:
            assert stored(server.archive) == stored(library.archive)

    def test_no_news(self, laptop: Laptop, server: CutServer) -> None:
        """Nothing is sent again, also by another process."""
        laptop.write(project("a", SHOP, "one", "two"))
        push(laptop, server)
        push(laptop, server)

        assert len(server.parcels) == 1

    def test_large_session(self, laptop: Laptop, server: CutServer, monkeypatch: pytest.MonkeyPatch) -> None:
        """It travels in pieces of a bounded size."""
        monkeypatch.setattr(parcel, "MOST_EVENTS", 40)
        talk = Transcript("a", SHOP).prompt("begin")
        for number in range(100):
            talk.answer(f"step {number}", stop=None)
        laptop.write(talk)
        push(laptop, server)

        assert len(server.parcels) == 3
        with laptop.library() as library:
            assert stored(server.archive) == stored(library.archive)

    def test_an_archive_that_grows_meanwhile(
        self, laptop: Laptop, server: CutServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Events that were read after the row of their session arrive with the next push."""
        monkeypatch.setattr(parcel, "MOST_EVENTS", 40)
        small = project("small", SHOP, "one", "two")
        large = Transcript("large", SHOP, start_ms=1_790_000_000_000).prompt("begin")
        for number in range(45):
            large.answer(f"step {number}", stop=None)
        laptop.write(small, large)
        with laptop.library() as library:
            library.sync()

            def grow() -> None:
                laptop.write(small.prompt("three").answer("four"))
                library.sync()

            server.meanwhile = grow
            with courier(library, server) as found:
                found.push()
                found.push()
            assert server.meanwhile is None
            assert stored(server.archive) == stored(library.archive)

    def test_a_new_rule(self, laptop: Laptop, server: CutServer) -> None:
        """The sessions that it covers are sent as a whole, also those that were read long ago."""
        laptop.write(project("a", SHOP, "in the shop"), project("b", "/home/dev/site", "on the site", "yes"))
        push(laptop, server)
        push(laptop, server, projects=(SHOP, "/home/dev/site"))

        assert sorted(texts(server, "shop site")) == ["in the shop", "on the site"]

    def test_a_rule_that_comes_back(self, laptop: Laptop, server: CutServer) -> None:
        """Changes made while it was gone are sent."""
        talk = project("a", SHOP, "one", "two")
        laptop.write(talk)
        push(laptop, server)
        laptop.write(talk.prompt("three").answer("four"))
        push(laptop, server, projects=("/elsewhere",))
        push(laptop, server)

        with laptop.library() as library:
            assert stored(server.archive) == stored(library.archive)

    def test_a_new_server(self, laptop: Laptop, server: CutServer, tmp_path: Path) -> None:
        """It gets everything."""
        laptop.write(project("a", SHOP, "one", "two"))
        push(laptop, server)
        with closing(open_engine("local", tmp_path / "other", PROJECTION)) as archive:
            other = CutServer(archive)
            other.name = "second"
            push(laptop, other)
            other.intake.close()

            assert stored(archive) == stored(server.archive)

    def test_a_server_that_lost_a_session(self, laptop: Laptop, server: CutServer) -> None:
        """It gets the whole session with the next change of it."""
        talk = project("a", SHOP, "one", "two")
        laptop.write(talk)
        push(laptop, server)
        (session,) = server.archive.sessions(_ALL)
        server.intake.close()
        writer = server.archive.writer()
        writer.write(Batch(removed=[session.key]))
        writer.close()
        server.intake = Intake(server.archive, server.archive.writer())
        laptop.write(talk.prompt("three").answer("four"))
        push(laptop, server)
        push(laptop, server)

        with laptop.library() as library:
            assert stored(server.archive) == stored(library.archive)

    def test_a_server_is_asked_for_what_it_has_lost(self, laptop: Laptop, server: CutServer) -> None:
        """Not with every push; a session that it gets again is not lost any more."""
        talk = project("a", SHOP, "one", "two")
        laptop.write(talk, project("b", SHOP, "three"))
        push(laptop, server)
        keys = sorted(row.key for row in server.archive.sessions(_ALL))
        lost = f"claude-code/{talk.id}"
        server.intake.close()
        writer = server.archive.writer()
        writer.write(Batch(removed=[lost]))
        writer.close()
        server.intake = Intake(server.archive, server.archive.writer())
        push(laptop, server)
        with closing(Outbox(laptop.backstory)) as outbox:
            assert outbox.lost() == set()
            outbox.ask_again()
        push(laptop, server)
        with closing(Outbox(laptop.backstory)) as outbox:
            assert outbox.lost() == {lost}
        assert [parcel.asked for parcel in server.parcels if parcel.asked] == [keys]

        laptop.write(talk.prompt("four"))
        push(laptop, server)
        push(laptop, server)
        with closing(Outbox(laptop.backstory)) as outbox:
            assert outbox.lost() == set()
        assert sorted(row.key for row in server.archive.sessions(_ALL)) == keys

    def test_an_archive_that_was_read_anew(self, laptop: Laptop, server: CutServer) -> None:
        """Nothing is doubled, and nothing that is the same is sent."""
        laptop.write(project("a", SHOP, "one", "two"))
        push(laptop, server)
        for path in laptop.backstory.glob("archive.db*"):
            path.unlink()
        for path in sorted((laptop.backstory / "index").rglob("*")):
            _ = path.is_file() and path.unlink()
        push(laptop, server)

        assert sum(len(parcel.batch.events) for parcel in server.parcels) == 2
        with laptop.library() as library:
            assert stored(server.archive) == stored(library.archive)

    def test_a_session_that_was_rewritten(self, laptop: Laptop, server: CutServer) -> None:
        """The server has the rows of the latest reading, and none of those before."""
        laptop.write(project("a", SHOP, "one", "two", "three", "four"))
        push(laptop, server)
        with laptop.library() as library:
            (session,) = library.archive.sessions(_ALL)
            writer = library.archive.writer()
            writer.recover()
            writer.write(Batch(removed=[session.key]))
            writer.close()
        path = next((laptop.home / ".claude").rglob("*.jsonl"))
        path.write_text("".join(path.read_text().splitlines(keepends=True)[2:]))
        push(laptop, server)
        push(laptop, server)

        with laptop.library() as library:
            assert [event.text for event in stored(library.archive).events] != []
            assert stored(server.archive) == stored(library.archive)


class TestSecrets:
    """A secret in a shared project does not leave the laptop."""

    @pytest.mark.parametrize("redact", ["egress", "off"])
    def test_in_a_prompt_and_a_call(self, laptop: Laptop, server: CutServer, redact: str) -> None:
        """Whatever the setting for the archive is."""
        config = laptop.backstory / "config.toml"
        config.write_text(f'redact = "{redact}"\n' + config.read_text())
        talk = Transcript("a", SHOP).prompt(f"the token is {SECRET}")
        talk.call("Bash", {"command": f"curl -H 'Authorization: {SECRET}'", SECRET: 1}, f"welcome {SECRET}")
        for record in talk.records:
            record["gitBranch"] = SECRET
            if record["type"] == "assistant":
                record["message"] |= {"model": SECRET, "stop_reason": SECRET}
                record["requestId"] = SECRET
        laptop.write(talk)
        push(laptop, server)

        assert server.parcels
        assert SECRET.encode() not in b"".join(msgspec.msgpack.encode(parcel) for parcel in server.parcels)
        assert any("[redacted:" in event.text for parcel in server.parcels for event in parcel.batch.events)

    def test_every_text_is_looked_at(self) -> None:
        """Of each row, only keys, sources and origins are sent without."""
        never = {"key", "session", "source", "parent", "forked_from", "mode", "user", "machine"}
        never |= {"type", "terminal_type", "types", "prompt_head", "response_head"}
        for kind, looked_at in TEXTS.items():
            holding = {field.name for field in msgspec.structs.fields(kind) if _may_hold_text(field.type)}
            assert holding - set(looked_at) <= never


def _may_hold_text(kind: Any) -> bool:
    return kind is Any or "str" in str(kind) or "dict" in str(kind) or "Head" in str(kind)


class TestWithholding:
    """A session that is taken back is gone from the server, and does not come again."""

    def test_take_back(self, laptop: Laptop, server: CutServer) -> None:
        talk = project("a", SHOP, "one secret plan", "two")
        laptop.write(talk, project("b", SHOP, "kept", "yes"))
        push(laptop, server)
        key = f"claude-code/{talk.id}"
        with closing(Outbox(laptop.backstory)) as outbox:
            outbox.withhold([key])
        laptop.write(talk.prompt("three"))
        push(laptop, server)

        assert server.archive.session(key) is None
        assert texts(server, "plan kept") == ["kept"]
        with closing(Outbox(laptop.backstory)) as outbox:
            assert outbox.withheld()[key].withdrawn_at is not None

    def test_while_the_server_is_away(self, laptop: Laptop, server: CutServer) -> None:
        """It is taken back when the server answers again."""
        laptop.write(talk := project("a", SHOP, "one"))
        push(laptop, server)
        with closing(Outbox(laptop.backstory)) as outbox:
            outbox.withhold([f"claude-code/{talk.id}"])
        server.chance = random.Random(0)
        for _ in range(50):
            try:
                push(laptop, server)
            except Cut:
                continue
            break

        assert server.archive.sessions(_ALL) == []

    def test_from_another_machine(self, laptop: Laptop, server: CutServer, tmp_path: Path) -> None:
        """The server does not take it again from a machine that does not know."""
        other = Laptop(tmp_path, "second")
        laptop.write(talk := project("a", SHOP, "one"))
        other.write(talk)
        push(laptop, server)
        with closing(Outbox(laptop.backstory)) as outbox:
            outbox.withhold([f"claude-code/{talk.id}"])
        push(laptop, server)
        push(other, server)

        assert server.archive.sessions(_ALL) == []


class TestTwoMachines:
    """A session that two machines of a member have is one."""

    def test_the_same(self, laptop: Laptop, server: CutServer, tmp_path: Path) -> None:
        other = Laptop(tmp_path, "second")
        for each in (laptop, other):
            each.write(project("a", SHOP, "one", "two"))
            push(each, server)

        with laptop.library() as library:
            assert stored(server.archive) == stored(library.archive)

    def test_one_is_behind(self, laptop: Laptop, server: CutServer, tmp_path: Path) -> None:
        """It does not undo what the other has sent."""
        other = Laptop(tmp_path, "second")
        other.write(project("a", SHOP, "one", "two"))
        laptop.write(project("a", SHOP, "one", "two", "three", "four"))
        push(laptop, server)
        push(other, server)

        with laptop.library() as library:
            assert stored(server.archive) == stored(library.archive)

    def test_of_another_member(self, laptop: Laptop, server: CutServer, tmp_path: Path) -> None:
        """A member cannot write into a session of another one."""
        other = Laptop(tmp_path, "mallory", projects=[SHOP], url="http://127.0.0.1:1")
        laptop.write(project("a", SHOP, "one", "two"))
        push(laptop, server)
        other.write(project("a", SHOP, "one", "two", "three"))
        server.member = "mallory"
        push(other, server)

        with laptop.library() as library:
            assert stored(server.archive) == stored(library.archive)
        with other.library() as library:
            (session,) = library.team.status().sessions
        assert (session.state, session.reason) == ("refused", "alice shares a session with this id")


class TestCuts:
    """Cut anywhere, nothing is lost and nothing is doubled."""

    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
    def test_random(self, laptop: Laptop, server: CutServer, seed: int) -> None:
        server.chance = random.Random(seed)
        talks = [project(f"{number}", SHOP if number % 2 else "/home/dev/diary") for number in range(4)]
        with laptop.library() as library:
            for step in range(8):
                talk = server.chance.choice(talks)
                laptop.write(talk.prompt(f"question {step}").answer(f"answer {step}"))
                library.sync()
                with courier(library, server) as found, suppress(Cut):
                    found.push()
            server.chance = None
            with courier(library, server) as found:
                found.push()

            shop = {key for key, row in stored(library.archive).sessions.items() if row.cwd == SHOP}
            assert shop
            assert stored(server.archive) == only(stored(library.archive), shop)
