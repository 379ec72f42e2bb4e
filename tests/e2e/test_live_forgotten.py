"""A live session that is deleted is deleted from the archive too, whichever process deletes it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backstory import live
from backstory.archive.base import SearchRequest
from backstory.library import Library
from backstory.model import SEARCHABLE_TYPES
from backstory.toolsets.live import Live
from tests.e2e.served import Served, eventually


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    with Library(tmp_path / ".backstory", agents_home=tmp_path, environ={}) as opened:
        yield opened


def sessions_with(library: Library, word: str) -> set[str]:
    hits = library.archive.search(SearchRequest(query=word, types=SEARCHABLE_TYPES, limit=50)).hits
    return {hit.session.key.removeprefix("live/") for hit in hits}


class TestServed:
    """`backstory serve` forgets at once. A fork lives on, and an id that is used again is another session."""

    def test_deleted_everywhere(self, library: Library, tmp_path: Path) -> None:
        with Served(tmp_path) as server:

            def say(session_id: str, words: str) -> str:
                server.call("ensure", {"session_id": session_id})
                message = live.user(words)
                entry_id: str = server.call("append", {"session_id": session_id, "message": message})["entry_id"]
                return entry_id

            entry_id = say("s", "the quokka")
            fork = server.call("fork", {"session_id": "s", "entry_id": entry_id})["session_id"]
            say("t", "the wallaby")
            eventually(lambda: sessions_with(library, "quokka") == {"s", fork})
            eventually(lambda: sessions_with(library, "wallaby") == {"t"})
            server.call("delete", {"session_id": "s"})
            eventually(lambda: sessions_with(library, "quokka") == {fork})
            assert library.archive.session("live/s") is None
            say("s", "the numbat")
            eventually(lambda: sessions_with(library, "numbat") == {"s"})
            server.call("delete", {"session_id": fork})
            eventually(lambda: sessions_with(library, "quokka") == set())
            assert sessions_with(library, "wallaby") == {"t"}
            assert sessions_with(library, "numbat") == {"s"}

    def test_deleted_before_it_was_read(self, library: Library, tmp_path: Path) -> None:
        """The process beside the server may have the file open when the session is deleted."""
        with Served(tmp_path) as server:
            for number in range(20):
                session_id = f"s{number}"
                server.call("ensure", {"session_id": session_id})
                server.call("append", {"session_id": session_id, "message": live.user("the quokka")})
                server.call("delete", {"session_id": session_id})
            server.call("ensure", {"session_id": "t"})
            server.call("append", {"session_id": "t", "message": live.user("the wallaby")})
            eventually(lambda: sessions_with(library, "wallaby") == {"t"})
            eventually(lambda: library.archive.sync_state().forgetting == ())
            assert sessions_with(library, "quokka") == set()


class TestInPython:
    """Without a server the process that deletes a session forgets it, or the next one."""

    def talk(self, library: Library) -> None:
        async def scenario() -> None:
            async with live.open(library.home) as sessions:
                await sessions.ensure("s")
                await sessions.append("s", live.user("the quokka"))

        asyncio.run(scenario())
        library.sync()
        assert sessions_with(library, "quokka") == {"s"}

    def test_deleted(self, library: Library) -> None:
        self.talk(library)

        async def scenario() -> None:
            async with live.open(library.home) as sessions:
                assert await sessions.delete("s")

        asyncio.run(scenario())
        assert sessions_with(library, "quokka") == set()
        self.talk(library)

    def test_no_file_of_the_home_holds_its_words(self, tmp_path: Path) -> None:
        """Files of the live sessions, of the archive and of its index."""
        home, word = tmp_path / ".backstory", b"xylophagous"

        def holding() -> list[str]:
            return [path.name for path in home.rglob("*") if path.is_file() and word in path.read_bytes()]

        async def talk() -> None:
            async with live.open(home) as sessions:
                await sessions.ensure("s", title=word.decode(), metadata={"owner": word.decode()})
                await sessions.append("s", live.user(f"the {word.decode()}"))
                await sessions.ensure("t", title="nougat")
                await sessions.append("t", live.user("the nougat"))

        async def delete() -> None:
            async with live.open(home) as sessions:
                assert await sessions.delete("s")

        asyncio.run(talk())
        with Library(home, agents_home=tmp_path, environ={}) as library:
            library.sync()
            assert sessions_with(library, word.decode()) == {"s"}
            assert holding()
        asyncio.run(delete())
        assert holding() == []

    def test_another_folder_is_not_of_this_home(self, library: Library, tmp_path: Path) -> None:
        self.talk(library)

        async def scenario() -> None:
            async with live.open(library.home, data_dir=tmp_path / "elsewhere") as sessions:
                await sessions.ensure("s")
                assert await sessions.delete("s")

        asyncio.run(scenario())
        assert library.archive.sync_state().forgetting == ()
        assert sessions_with(library, "quokka") == {"s"}

    def test_what_could_not_be_forgotten_is_later(self, library: Library, caplog: pytest.LogCaptureFixture) -> None:
        self.talk(library)
        deleted: list[str] = []

        def refuse(session_id: str) -> None:
            raise OSError("the archive is away")

        async def delete(forget: Any) -> None:
            async with Live(library.home, forget=forget, environ={}) as sessions:
                await sessions.call("session::delete", {"session_id": "s"})

        asyncio.run(delete(refuse))
        assert "the archive is away" in caplog.text
        asyncio.run(delete(None))
        asyncio.run(delete(deleted.append))
        assert deleted == ["s"]
        asyncio.run(delete(deleted.append))
        assert deleted == ["s"]

    def test_deleted_again_meanwhile(self, library: Library) -> None:
        """Another session under the same id, deleted while the first is being forgotten, is forgotten too."""
        deleted: list[str] = []

        async def scenario() -> None:
            loop = asyncio.get_running_loop()

            async def once_more() -> None:
                await sessions.call("session::ensure", {"session_id": "s"})
                await sessions.call("session::append", {"session_id": "s", "message": live.user("the numbat")})
                await sessions.call("session::delete", {"session_id": "s"})

            def forget(session_id: str) -> None:
                deleted.append(session_id)
                if len(deleted) == 1:
                    asyncio.run_coroutine_threadsafe(once_more(), loop).result(60)

            async with Live(library.home, forget=forget, environ={}) as sessions:
                await sessions.call("session::ensure", {"session_id": "s"})
                await sessions.call("session::delete", {"session_id": "s"})
                while not deleted:
                    await asyncio.sleep(0.01)

        asyncio.run(scenario())
        assert deleted == ["s", "s"]
        kept = b"".join(path.read_bytes() for path in (library.home / "live").rglob("*.jsonl"))
        assert b"numbat" not in kept

    def test_a_crash_between_the_two(self, tmp_path: Path) -> None:
        from tests.live_world import World

        world = World(tmp_path, {"adapter": {"name": "fs", "config": {"fsync": "off"}}})
        try:
            world.call("ensure", session_id="s")
            world.call("delete", session_id="s")
            world.crash_and_reopen()
            store: Any = world.live._adapter._store  # type: ignore[attr-defined]
            assert list(store.index.deleted("archive")) == ["s"]
        finally:
            world.end()
