"""What others build on: the change log, the sessions' capsules, and time stamps that keep their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backstory.toolsets.capsules.capsule import SECOND
from backstory.toolsets.capsules.inputs import (
    AppendInput,
    DeleteInput,
    InventoryInput,
    LatestInput,
    PurgeInput,
    RestoreInput,
    StoreInput,
    UpdateInput,
)
from backstory.toolsets.capsules.service import Capsules
from backstory.toolsets.capsules.store import Store
from tests.capsule_world import GOOD, capsule_text

NOW = 1_800_000_000 * SECOND


class Clock:
    def __init__(self) -> None:
        self.us = NOW

    def __call__(self) -> int:
        return self.us


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def told() -> list[int]:
    return []


@pytest.fixture
def capsules(tmp_path: Path, clock: Clock, told: list[int]) -> Iterator[Capsules]:
    made = Capsules(tmp_path, store=Store(tmp_path, lambda: told.append(1), clock))
    yield made
    made.close()


class TestChangesSince:
    def test_each_capsule_once_with_its_last_change(self, capsules: Capsules) -> None:
        """In the order of the changes; asked again from there, only what is new."""
        first = capsules.store(StoreInput(capsule_text=GOOD, name="a")).id
        second = capsules.store(StoreInput(capsule_text=GOOD, name="b")).id
        capsules.update(UpdateInput(id=first, capsule_text=capsule_text("new")))
        changes = list(capsules.changes_since(0))

        assert [change.id for change in changes] == [second, first]
        assert changes[1].capsule is not None
        assert "new" in changes[1].capsule.text
        assert list(capsules.changes_since(changes[-1].seq)) == []
        capsules.append(AppendInput(id=second, section="goal", content="- more"))
        (change,) = capsules.changes_since(changes[-1].seq)
        assert change.id == second
        assert change.seq > changes[-1].seq

    def test_deleted_and_purged_capsules(self, capsules: Capsules) -> None:
        """Are told as gone; a restored one is back."""
        capsule_id = capsules.store(StoreInput(capsule_text=GOOD, name="a")).id
        seq = 0
        for change, is_there in (
            (lambda: capsules.delete(DeleteInput(id=capsule_id)), False),
            (lambda: capsules.restore(RestoreInput(id=capsule_id)), True),
            (lambda: capsules.delete(DeleteInput(id=capsule_id)), False),
            (lambda: capsules.purge(PurgeInput()), False),
        ):
            change()
            (told,) = capsules.changes_since(seq)
            assert told.id == capsule_id
            assert told.seq > seq
            assert (told.capsule is not None) is is_there
            seq = told.seq

    def test_of_many(self, capsules: Capsules) -> None:
        """More than are read at a time."""
        ids = []
        with capsules._store.writing() as writer:
            from backstory.toolsets.capsules.capsule import Capsule

            ids = [writer.create(Capsule(workspace="w", text="x", chars=1, tokens=1)).id for _ in range(1203)]

        assert [change.id for change in capsules.changes_since(0)] == ids


class TestListener:
    def test_is_called_after_each_change(self, capsules: Capsules, told: list[int]) -> None:
        """And for nothing else."""
        capsules.store(StoreInput(capsule_text=GOOD, name="a"))
        assert len(told) == 1
        capsules.inventory(InventoryInput())
        capsules.purge(PurgeInput())
        assert len(told) == 1
        capsules.delete(DeleteInput(name="a"))
        assert len(told) == 2

    def test_its_failure_is_not_that_of_the_call(self, tmp_path: Path) -> None:
        """What was committed is committed."""

        def fail() -> None:
            raise RuntimeError

        capsules = Capsules(tmp_path, listener=fail)
        assert capsules.store(StoreInput(capsule_text=GOOD, name="a")).created
        assert capsules.latest(LatestInput()).item is not None
        capsules.close()


class TestOfSession:
    def test_newest_first(self, capsules: Capsules) -> None:
        """Live ones of that session only."""
        for name, session in (("a", "session:x"), ("b", "session:y"), ("c", "session:x"), ("d", "session:x")):
            capsules.store(StoreInput(capsule_text=GOOD, name=name, source_session=session))
        capsules.delete(DeleteInput(name="d"))

        assert [capsule.name for capsule in capsules.of_session("session:x")] == ["c", "a"]
        assert capsules.of_session("session:z") == []


class TestTime:
    def names(self, capsules: Capsules) -> list[str | None]:
        return [item.name for item in capsules.inventory(InventoryInput()).items]

    def test_order_holds_when_the_clock_stands_still_or_steps_back(self, capsules: Capsules, clock: Clock) -> None:
        """The last change is the latest, whatever the clock says."""
        hour = 3600 * SECOND
        for name, step in (("a", 0), ("b", 0), ("c", -3 * SECOND), ("d", -hour), ("e", hour)):
            clock.us += step
            capsules.store(StoreInput(capsule_text=GOOD, name=name))
            latest = capsules.latest(LatestInput()).item
            assert latest is not None
            assert latest.name == name
        clock.us -= 5 * SECOND
        capsules.update(UpdateInput(name="b", title="x"))

        assert self.names(capsules) == ["b", "e", "d", "c", "a"]

    def test_a_wrong_clock_is_forgotten(self, capsules: Capsules, clock: Clock) -> None:
        """A year ahead once does not mean a year ahead for ever."""
        clock.us = NOW + 365 * 86_400 * SECOND
        capsules.store(StoreInput(capsule_text=GOOD, name="future"))
        clock.us = NOW
        capsules.store(StoreInput(capsule_text=GOOD, name="now"))

        assert {item.name: item.created_at for item in capsules.inventory(InventoryInput()).items} == {
            "future": (NOW // SECOND) + 365 * 86_400,
            "now": NOW // SECOND,
        }

    def test_updated_at_is_the_time(self, capsules: Capsules, clock: Clock) -> None:
        """However many changes a second has, of this capsule and of others."""
        capsules.store(StoreInput(capsule_text=GOOD, name="a"))
        for _ in range(60):
            clock.us += 1000
            capsules.update(UpdateInput(name="a", title="x"))
        capsules.store(StoreInput(capsule_text=GOOD, name="b"))

        for item in capsules.inventory(InventoryInput()).items:
            assert (item.created_at, item.updated_at) == (NOW // SECOND, NOW // SECOND)

    def test_the_clock_is_set_back_for_long(self, capsules: Capsules, clock: Clock) -> None:
        """By more than any drift: the latest is still the newest, ids sort, nothing is updated before it was made."""
        first = capsules.store(StoreInput(capsule_text=GOOD, name="a")).id
        clock.us -= 3 * 3600 * SECOND
        second = capsules.store(StoreInput(capsule_text=GOOD, name="b")).id
        capsules.update(UpdateInput(name="a", title="x"))

        latest = capsules.latest(LatestInput()).item
        assert latest is not None
        assert latest.name == "a"
        assert latest.updated_at >= latest.created_at
        assert first < second

    def test_ids_carry_the_time_of_creation(self, capsules: Capsules) -> None:
        from ulid import ULID

        made = [capsules.store(StoreInput(capsule_text=GOOD)).id for _ in range(20)]

        assert {ULID.from_str(one).milliseconds for one in made} == {NOW // 1000}
        assert made == sorted(set(made))
