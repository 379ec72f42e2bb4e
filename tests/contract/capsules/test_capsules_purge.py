"""moss.purge: deleted capsules are gone for good."""

from __future__ import annotations

import time

from tests.capsule_world import GOOD, HEADER, World, record

DAY = 86_400


class TestPurge:
    def test_only_what_was_deleted(self, world: World) -> None:
        capsule_id = world.store("a")
        world.store("b")
        world.ok("delete", name="a")
        answer = world.ok("purge")

        assert set(answer) == {"purged", "message"}
        assert answer["purged"] == 1
        assert "1 deleted capsule" in answer["message"]
        assert world.refused("fetch", id=capsule_id, include_deleted=True)["code"] == "NOT_FOUND"
        assert world.refused("restore", id=capsule_id)["code"] == "NOT_FOUND"
        assert world.names(include_deleted=True) == ["b"]
        assert world.ok("purge")["purged"] == 0

    def test_of_one_workspace(self, world: World) -> None:
        """A blank workspace is the default one, not all of them."""
        for workspace in ("default", "A b", "c"):
            world.store("x", workspace=workspace)
            world.ok("delete", name="x", workspace=workspace)

        assert world.ok("purge", workspace=" a  B")["purged"] == 1
        assert world.ok("purge", workspace=" ")["purged"] == 1
        assert world.ok("purge")["purged"] == 1

    def test_strictly_older_than(self, world: World) -> None:
        """Seven days and a bit are more than seven days; six days and a bit are not."""
        now = int(time.time())
        lines = [record(days, deleted_at=now - days * DAY - DAY // 2, capsule_text=GOOD) for days in (0, 1, 6, 7, 8)]
        path = str(world.write("in.jsonl", HEADER, *lines))
        world.ok("import", path=path)

        assert world.ok("purge", older_than_days=7)["purged"] == 2
        assert world.ok("purge", older_than_days=7)["purged"] == 0
        assert world.ok("purge", older_than_days=10**30)["purged"] == 0
        assert world.ok("purge", older_than_days=0)["purged"] == 3

    def test_zero_days_is_any_age(self, world: World) -> None:
        """With 0 days a capsule deleted just now is purged."""
        world.store("a")
        world.ok("delete", name="a")

        assert world.ok("purge", older_than_days=0)["purged"] == 1
