"""Configuration: what it accepts, and what happens when it changes while running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backstory.config import ConfigError, expand_placeholders, live_folder
from backstory.toolsets import live as runtime
from backstory.toolsets.live import Live
from backstory.toolsets.live.adapters import FsAdapter
from backstory.toolsets.live.types import BridgeSettings, FsSettings, parse_settings
from tests.live_world import World, short, text, user, without

NewWorld = Callable[..., World]
APPLIED = {"last_outcome": "applied", "last_error": None, "rejected_reloads": 0}


def fs(folder: str | None = None, **more: Any) -> dict[str, Any]:
    config: dict[str, Any] = {"fsync": "off", **more}
    return {"adapter": {"name": "fs", "config": config | ({"data_dir": folder} if folder else {})}}


class TestTable:
    """The table is checked field by field; what is wrong with it is said."""

    def test_defaults(self, tmp_path: Path) -> None:
        settings = parse_settings({}, tmp_path, {})
        assert settings.adapter == FsSettings(data_dir=str(tmp_path / "live"))
        assert (settings.default_list_limit, settings.max_list_limit) == (50, 500)
        assert [settings.limit(given) for given in (None, 0, 7, 900)] == [50, 1, 7, 500]

    def test_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/me")
        for given, expected in (("x", tmp_path / "x"), ("/abs", Path("/abs")), ("~/s", Path("/home/me/s"))):
            settings = parse_settings(fs(given), tmp_path, {})
            assert isinstance(settings.adapter, FsSettings)
            assert settings.adapter.data_dir == str(expected)
            assert live_folder(fs(given), tmp_path, {}) == expected

    def test_bridge(self, tmp_path: Path) -> None:
        table = {"adapter": {"name": "bridge", "config": {"url": "ws://h:1"}}}
        assert parse_settings(table, tmp_path, {}).adapter == BridgeSettings("ws://h:1", 5000)
        assert live_folder(table, tmp_path, {}) is None

    def test_refused(self, tmp_path: Path) -> None:
        for table, wrong in [
            ({"unknown": 1}, "unknown"),
            ({"max_list_limit": 0}, "max_list_limit"),
            ({"max_list_limit": True}, "max_list_limit"),
            ({"default_list_limit": "5"}, "default_list_limit"),
            ({"default_list_limit": 5.0}, "default_list_limit"),
            ({"adapter": "fs"}, "adapter"),
            ({"adapter": {"name": "s3"}}, "s3"),
            ({"adapter": {"name": "fs", "more": 1}}, "more"),
            ({"adapter": {"name": "fs", "config": {"url": "ws://x"}}}, "url"),
            ({"adapter": {"name": "fs", "config": {"fsync": "sometimes"}}}, "fsync"),
            ({"adapter": {"name": "bridge"}}, "url"),
            ({"adapter": {"name": "bridge", "config": {"url": "ws://h", "data_dir": "x"}}}, "data_dir"),
            ({"adapter": {"name": "bridge", "config": {"url": "http://h"}}}, "http://h"),
            ({"adapter": {"name": "bridge", "config": {"url": "ws://"}}}, "WebSocket URL"),
            ({"adapter": {"name": "bridge", "config": {"url": "ws://h:99999"}}}, "99999"),
            ({"adapter": {"name": "bridge", "config": {"url": "ws://h", "timeout_ms": 0}}}, "timeout_ms"),
            ({"adapter": {"name": "fs", "config": {"data_dir": "${NOT_SET}"}}}, "NOT_SET is not set"),
        ]:
            with pytest.raises(ConfigError, match=wrong):
                parse_settings(table, tmp_path, {})


class TestPlaceholders:
    """`${NAME:default}` is filled in; a value that is nothing else takes the type its text reads as."""

    def test_expanded(self) -> None:
        for written, expanded in [
            ("${A:50}", 50),
            ("${A:1.5}", 1.5),
            ("${A:true}", True),
            ("${A:null}", None),
            ("${A:text}", "text"),
            ("${A:}", ""),
            ("${SET:50}", "value"),
            ("${SET}", "value"),
            ("${NUMBER:0}", 7),
            ("${NUMBER}0", "70"),
            ("x${A:1}y${SET:2}", "x1yvalue"),
            ("${A:ws://h:1/p}", "ws://h:1/p"),
            ("$A ${} {A}", "$A ${} {A}"),
            (5, 5),
            (["${A:1}", {"k": "${A:2}"}], [1, {"k": 2}]),
        ]:
            assert expand_placeholders(written, {"SET": "value", "NUMBER": "7"}) == expanded

    def test_in_use(self, tmp_path: Path) -> None:
        table = {
            "max_list_limit": "${LIMIT:20}",
            "adapter": {"name": "${NAME:fs}", "config": {"data_dir": "${DIR:/d}/x"}},
        }
        settings = parse_settings(table, tmp_path, {"LIMIT": "30"})
        assert settings.max_list_limit == 30
        assert settings.adapter == FsSettings(data_dir="/d/x")


class TestBoot:
    """A bad configuration is fatal at boot."""

    def test_bad_table(self, tmp_path: Path, new_world: NewWorld) -> None:
        with pytest.raises(ConfigError):
            new_world(config={"adapter": {"name": "bridge"}})

    def test_bad_file(self, tmp_path: Path) -> None:
        """The error names the file."""
        for wrong in ("limit = 1", "adapter = {name = 'fs', config = {data_dir = '${NOT_SET}'}}"):
            (tmp_path / "config.toml").write_text(f"[live]\n{wrong}\n")
            with pytest.raises(ConfigError, match=r"config\.toml: \[live\]: .*(limit|NOT_SET)"):
                asyncio.run(Live(tmp_path, environ={}).start())

    def test_folder_that_cannot_be_used(self, tmp_path: Path, new_world: NewWorld) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(Exception, match="session/storage: cannot use"):
            new_world(config=fs(str(tmp_path / "file")))

    def test_file(self, tmp_path: Path) -> None:
        (tmp_path / "config.toml").write_text("[live]\nadapter = {name = 'fs', config = {data_dir = 'elsewhere'}}\n")

        async def scenario() -> None:
            async with Live(tmp_path, environ={}) as live:
                await live.call("session::ensure", {"session_id": "x"})

        asyncio.run(scenario())
        assert (tmp_path / "elsewhere" / "x.jsonl").exists()


class TestReload:
    """A running instance takes what can be taken, keeps the last good configuration otherwise, and says which."""

    def test_status(self, world: World) -> None:
        assert world.call("config-status") == APPLIED

    def test_limits(self, world: World) -> None:
        for _ in range(3):
            world.session()
        world.config = fs() | {"max_list_limit": 2}
        assert world.call("on-config-change", id="session-manager") == {"ok": True}
        assert len(world.call("list")["sessions"]) == 2
        assert world.call("config-status") == APPLIED

    def test_rejected(self, world: World, tmp_path: Path) -> None:
        session_id = world.session()
        world.config = {"adapter": {"name": "bridge", "config": {}}}
        assert world.call("on-config-change") == {"ok": False}
        status = world.call("config-status")
        assert (status["last_outcome"], status["rejected_reloads"]) == ("rejected", 1)
        assert "url" in status["last_error"]
        (tmp_path / "file").write_text("")
        world.config = fs(str(tmp_path / "file"))
        assert world.call("on-config-change") == {"ok": False}
        assert world.call("config-status")["rejected_reloads"] == 2
        assert world.call("get", session_id=session_id) is not None
        world.config = fs() | {"max_list_limit": 3}
        world.call("on-config-change")
        assert world.call("config-status") == {"last_outcome": "applied", "last_error": None, "rejected_reloads": 2}

    def test_self_reference(self, world: World) -> None:
        world.live.own_urls = ["ws://127.0.0.1:7717"]
        world.config = {"adapter": {"name": "bridge", "config": {"url": "ws://localhost:7717/"}}}
        assert world.call("on-config-change") == {"ok": False}
        assert "this very server" in world.call("config-status")["last_error"]
        assert world.live.adapter == "fs"

    def test_sync_policy_of_the_same_folder(self, world: World) -> None:
        session_id = world.session()
        got = world.bind("session::created")
        for policy in ("always", "interval", "off"):
            world.config = fs(fsync=policy)
            assert world.call("on-config-change") == {"ok": True}
            world.append(session_id, user(policy))
        world.settle()
        assert world.said(session_id) == ["always", "interval", "off"]
        assert got == []


class TestExchange:
    """Another store replaces the current one at once, and subscribers get its content."""

    def test_state_is_told_parents_first(self, world: World, tmp_path: Path, new_world: NewWorld) -> None:
        other = new_world(tmp_path / "other", config=fs(str(tmp_path / "b")))
        source = other.session(title="source", metadata={"owner": "u"})
        root = other.append(source, user("root"))
        other.append(source, user("left"))
        right = other.append(source, user("right"), parent_id=root)
        other.call("update-message", session_id=source, entry_id=right, content=text("RIGHT"))
        fork = other.call("fork", session_id=source, entry_id=right)["session_id"]
        other.close()

        gone = world.session(metadata={"owner": "u"})
        feed = world.bind("session::store::events")
        mine = world.bind("session::message-added", {"metadata": {"owner": "u"}, "session_id": source})
        nobody = world.bind("session::created", {"metadata": {"owner": "x"}})
        world.config = fs(str(tmp_path / "b"))
        assert world.call("on-config-change") == {"ok": True}
        world.until(lambda: len(feed) >= 8)
        world.settle()
        received = [(short(envelope["trigger_type"]), envelope["payload"]["session_id"]) for envelope in feed]
        assert received[0] == ("deleted", gone)
        assert received[1] == ("created", source)
        assert received[2:6] == [
            (kind, source) for kind in ("message-added", "message-added", "message-added", "message-updated")
        ]
        assert received[6] == ("created", fork)
        parents: set[str | None] = {None}
        for payload in (
            envelope["payload"] for envelope in feed if envelope["trigger_type"] == "session::message-added"
        ):
            assert payload["parent_id"] in parents
            parents.add(payload["entry_id"])
        assert len(mine) == 3
        assert nobody == []
        assert feed[5]["payload"]["revision"] == 1

        before = len(feed)
        world.append(source, user("more"))
        world.settle()
        assert len(feed) == before + 1
        assert feed[-1]["seq"] == world.live.last_seq
        assert world.call("get", session_id=gone) is None

    def test_what_happens_while_the_state_is_gathered(
        self, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        got = world.bind("session::created")
        gather = FsAdapter.metas

        async def busy(self: FsAdapter) -> Any:
            metas = await gather(self)
            if self is world.live._adapter:
                await world.live.call("session::ensure", {"session_id": "meanwhile"})
            return metas

        monkeypatch.setattr(FsAdapter, "metas", busy)
        world.config = fs(str(tmp_path / "b"))
        assert world.call("on-config-change") == {"ok": True}
        world.session(title="after")
        world.until(lambda: "after" in [payload["title"] for payload in got])
        assert "meanwhile" in [payload["session_id"] for payload in got]

    def test_and_back(self, world: World, tmp_path: Path) -> None:
        session_id = world.session()
        got = world.bind("session::created")
        for folder, there in ((str(tmp_path / "b"), False), (None, True)):
            world.config = fs(folder)
            assert world.call("on-config-change") == {"ok": True}
            assert (world.call("get", session_id=session_id) is not None) is there
        world.until(lambda: got)
        assert [payload["session_id"] for payload in got] == [session_id]
        assert without(got[0], "seq")["title"] == ""

    def test_calls_under_way_are_answered(self, new_world: NewWorld, tmp_path: Path) -> None:
        world = new_world(config={})
        session_id = world.session()

        async def scenario() -> list[Any]:
            call = world.live.call
            appends = [
                asyncio.create_task(call("session::append", {"session_id": session_id, "message": user(f"{number}")}))
                for number in range(20)
            ]
            await asyncio.sleep(0)
            world.config = fs(str(tmp_path / "b"))
            assert await world.live.reload()
            return await asyncio.gather(*appends)

        answers = world.run(scenario())
        world.config = {}
        world.call("on-config-change")
        assert world.entry_ids(session_id) == [answer["entry_id"] for answer in answers]


class TestWatchedFile:
    """A change of config.toml is noticed."""

    def test_noticed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runtime, "_WATCH_SECONDS", 0.01)
        path = tmp_path / "config.toml"

        async def scenario() -> None:
            async with Live(tmp_path, environ={}) as live:
                for _ in range(3):
                    await live.call("session::create", {})
                path.write_text("[live]\nmax_list_limit = 2\n")
                await self.eventually(lambda: live._adapter._service.settings.max_list_limit == 2)  # type: ignore[attr-defined]
                assert len((await live.call("session::list", {}))["sessions"]) == 2
                path.write_text("[live]\nnonsense = 1\n")
                await self.eventually(lambda: live.status()["config"]["last_outcome"] == "rejected")
                path.write_text("this is no TOML")
                await self.eventually(lambda: live.status()["config"]["rejected_reloads"] == 2)
                path.unlink()
                await self.eventually(lambda: live.status()["config"]["last_outcome"] == "applied")
                assert len((await live.call("session::list", {}))["sessions"]) == 3

        asyncio.run(scenario())

    async def eventually(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not true():
                await asyncio.sleep(0.01)
