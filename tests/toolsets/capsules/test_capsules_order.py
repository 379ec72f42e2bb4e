"""The order of changes: time stamps and ids that only grow, and the capsules of a session by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backstory.toolsets.capsules.capsule import SECOND
from backstory.toolsets.capsules.requests import DeleteInput, InventoryInput, LatestInput, StoreInput, UpdateInput
from backstory.toolsets.capsules.service import Capsules
from backstory.toolsets.capsules.store import Store
from tests.capsule_world import GOOD

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
def capsules(tmp_path: Path, clock: Clock) -> Iterator[Capsules]:
    made = Capsules(tmp_path, store=Store(tmp_path, clock))
    yield made
    made.close()


class TestOfSession:
    def test_newest_first(self, capsules: Capsules) -> None:
        """Only live capsules of that session are listed."""
        for name, session in (("a", "session:x"), ("b", "session:y"), ("c", "session:x"), ("d", "session:x")):
            capsules.store(StoreInput(capsule_text=GOOD, name=name, source_session=session))
        capsules.delete(DeleteInput(name="d"))

        assert [capsule.name for capsule in capsules.of_session("session:x")] == ["c", "a"]
        assert capsules.of_session("session:z") == []


class TestTime:
    def names(self, capsules: Capsules) -> list[str | None]:
        return [item.name for item in capsules.inventory(InventoryInput()).items]

    def test_order_holds_when_the_clock_stands_still_or_steps_back(self, capsules: Capsules, clock: Clock) -> None:
        """The last change is the latest."""
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
        """A clock that was a year ahead once does not affect later times."""
        clock.us = NOW + 365 * 86_400 * SECOND
        capsules.store(StoreInput(capsule_text=GOOD, name="future"))
        clock.us = NOW
        capsules.store(StoreInput(capsule_text=GOOD, name="now"))

        assert {item.name: item.created_at for item in capsules.inventory(InventoryInput()).items} == {
            "future": (NOW // SECOND) + 365 * 86_400,
            "now": NOW // SECOND,
        }

    def test_updated_at_is_the_time(self, capsules: Capsules, clock: Clock) -> None:
        """Many changes in one second do not move `updated_at` ahead of the clock."""
        capsules.store(StoreInput(capsule_text=GOOD, name="a"))
        for _ in range(60):
            clock.us += 1000
            capsules.update(UpdateInput(name="a", title="x"))
        capsules.store(StoreInput(capsule_text=GOOD, name="b"))

        for item in capsules.inventory(InventoryInput()).items:
            assert (item.created_at, item.updated_at) == (NOW // SECOND, NOW // SECOND)

    def test_the_clock_is_set_back_for_long(self, capsules: Capsules, clock: Clock) -> None:
        """After hours back the latest is still the newest, ids sort, and no update precedes its creation."""
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
