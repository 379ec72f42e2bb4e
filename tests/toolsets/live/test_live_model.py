"""Any calls in any order, with crashes in between: the store answers as a dictionary would."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.live_world import World, text, user

NewWorld = Callable[..., World]
QUICK = {"adapter": {"name": "fs", "config": {"fsync": "off"}}}


class Model:
    """Sessions as plain objects: entries by id with their parent and text, and a leaf."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.sessions: dict[str, dict[str, Any]] = {}
        self.events = 0

    def step(self) -> None:
        actions = [self.create, self.append, self.append, self.append, self.branch, self.update, self.update, self.many]
        actions += [self.leaf, self.fork, self.delete, self.status, self.retry, self.restart]
        action = self.random.choice(actions)
        if self.sessions or action in (self.create, self.restart):
            action()

    def pick(self) -> tuple[str, dict[str, Any]]:
        name = self.random.choice(list(self.sessions))
        return name, self.sessions[name]

    def entry(self, session: dict[str, Any]) -> str | None:
        return self.random.choice(list(session["entries"])) if session["entries"] else None

    def create(self) -> None:
        name = self.world.session()
        self.sessions[name] = {"entries": {}, "leaf": None, "status": "idle"}
        self.events += 1

    def append(self, parent: str | None = None) -> None:
        name, session = self.pick()
        if parent is not None and parent not in session["entries"]:
            parent = None
        words = f"é{self.random.random()}"
        entry_id = self.world.append(name, user(words), parent_id=parent)
        session["entries"][entry_id] = [parent or session["leaf"], words]
        session["leaf"] = entry_id
        self.events += 1

    def branch(self) -> None:
        _, session = self.pick()
        self.append(self.entry(session))

    def many(self) -> None:
        name, session = self.pick()
        words = [f"{self.random.random()}" for _ in range(self.random.randint(1, 5))]
        made = self.world.call("append-many", session_id=name, messages=[user(word) for word in words])
        for entry_id, word in zip(made["entry_ids"], words, strict=True):
            session["entries"][entry_id] = [session["leaf"], word]
            session["leaf"] = entry_id
        self.events += len(words)

    def update(self) -> None:
        name, session = self.pick()
        if entry_id := self.entry(session):
            words = f"{self.random.random()}" * self.random.choice((1, 1, 500))
            self.world.call("update-message", session_id=name, entry_id=entry_id, content=text(words))
            session["entries"][entry_id][1] = words
            self.events += 1

    def retry(self) -> None:
        name, session = self.pick()
        if entry_id := self.entry(session):
            again = self.world.call("append", session_id=name, message=user("again"), entry_id=entry_id)
            assert again["parent_id"] == session["entries"][entry_id][0]

    def leaf(self) -> None:
        name, session = self.pick()
        if entry_id := self.entry(session):
            self.world.call("set-active-leaf", session_id=name, entry_id=entry_id)
            session["leaf"] = entry_id

    def fork(self) -> None:
        name, session = self.pick()
        if entry_id := self.entry(session):
            path = self.path(session, entry_id)
            made = self.world.call("fork", session_id=name, entry_id=entry_id)["session_id"]
            ids = self.world.entry_ids(made)
            copies = {new: [parent, words] for new, parent, words in zip(ids, [None, *ids], path, strict=False)}
            self.sessions[made] = {"entries": copies, "leaf": ids[-1], "status": "idle"}
            self.events += 1

    def delete(self) -> None:
        if self.random.random() < 0.3:
            name, _ = self.pick()
            self.world.call("delete", session_id=name)
            del self.sessions[name]
            self.events += 1

    def status(self) -> None:
        name, session = self.pick()
        status = self.random.choice(("idle", "working", "done", "error"))
        self.world.call("set-status", session_id=name, status=status)
        self.events += status != session["status"]
        session["status"] = status

    def restart(self) -> None:
        how = self.random.random()
        if how < 0.2:
            self.world.reopen()
        elif how < 0.4:
            self.world.crash_and_reopen()
        elif how < 0.5:
            self.world.close()
            for path in (self.world.folder / ".store").glob("index.db*"):
                path.unlink()
            self.world.live = self.world._start()
        elif self.sessions:
            store: Any = self.world.live._adapter._store  # type: ignore[attr-defined]
            self.world.run(store.compact(self.pick()[0]))

    def path(self, session: dict[str, Any], entry_id: str | None) -> list[str]:
        words: list[str] = []
        while entry_id is not None:
            entry_id, word = session["entries"][entry_id]
            words.append(word)
        return words[::-1]

    def check(self) -> None:
        listed = self.world.call("list", limit=500)["sessions"]
        assert {meta["session_id"] for meta in listed} == set(self.sessions)
        for meta in listed:
            session = self.sessions[meta["session_id"]]
            assert (meta["status"], meta["message_count"]) == (session["status"], len(session["entries"]))
            assert self.world.said(meta["session_id"]) == self.path(session, session["leaf"])
            if some := self.entry(session):
                assert self.world.said(meta["session_id"], from_entry_id=some) == self.path(session, some)
        assert self.world.live.last_seq == self.events


class TestAgainstAModel:
    """Hundreds of random steps, checked along the way."""

    @pytest.mark.parametrize("seed", range(4))
    def test_steps(self, new_world: NewWorld, seed: int) -> None:
        self.run(new_world(config=QUICK), seed, 150)

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(100, 112))
    def test_many_steps(self, new_world: NewWorld, seed: int) -> None:
        self.run(new_world(config=QUICK), seed, 1500)

    def run(self, world: World, seed: int, steps: int) -> None:
        model = Model(world, seed)
        for number in range(steps):
            model.step()
            if number % 25 == 0:
                model.check()
        model.check()
        world.reopen()
        model.check()
