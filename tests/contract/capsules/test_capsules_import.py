"""moss.import: collisions, the three modes, and the way back of an export."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.capsule_world import GOOD, HEADER, World, capsule_text, record


class TestLongLines:
    def test_whatever_the_store_accepts_is_read_again(self, new_world: Callable[..., World]) -> None:
        """A text of control characters takes six times its length in JSON."""
        settings = "max_chars = 3_000_000"
        old, new = new_world("old", settings), new_world("new", settings)
        old.store("a", "x" + "\x01" * 2_900_000, allow_thin=True)
        path = new.write("backup.jsonl", Path(old.ok("export")["path"]).read_bytes().rstrip())

        assert new.ok("import", path=str(path))["imported"] == 1


class Importing:
    def lines(self, world: World, *lines: Any, **arguments: Any) -> dict[str, Any]:
        path = world.write("in.jsonl", *lines)
        return world.ok("import", path=str(path), **arguments)

    def codes(self, answer: dict[str, Any]) -> list[tuple[int, str]]:
        return [(error["line"], error["code"]) for error in answer["errors"]]


class TestReading(Importing):
    def test_a_moss_export(self, world: World) -> None:
        """Norms and counts are computed anew; times and ids are kept."""
        given = record(1, tags=["x"], source="moss", run_id="r", phase=None, role=None)
        answer = self.lines(world, HEADER, given)

        assert answer == {"imported": 1, "skipped": 0, "errors": []}
        item = world.ok("fetch", name="task 1")
        assert item["id"] == given["id"]
        assert (item["workspace_norm"], item["name_norm"]) == ("default", "task 1")
        assert item["capsule_chars"] == len(GOOD)
        assert (item["created_at"], item["updated_at"]) == (given["created_at"], given["updated_at"])
        assert (item["tags"], item["source"], item["run_id"]) == (["x"], "moss", "r")

    def test_blank_lines_and_a_byte_order_mark(self, world: World) -> None:
        """Blank lines, a byte order mark and other line ends are accepted; line numbers count all lines."""
        header = b"\xef\xbb\xbf" + json.dumps(HEADER).encode() + b"\r"
        answer = self.lines(world, header, b"", b"  \r", record(1), b"\t", b"nonsense", mode="rename")

        assert answer["imported"] == 1
        assert self.codes(answer) == [(6, "PARSE_ERROR")]

    def test_nothing(self, world: World) -> None:
        assert self.lines(world) == {"imported": 0, "skipped": 0, "errors": []}
        assert self.lines(world, HEADER) == {"imported": 0, "skipped": 0, "errors": []}

    def test_a_header_is_not_needed(self, world: World) -> None:
        """Records without a header are read, and two files can be joined."""
        assert self.lines(world, record(1), HEADER, record(2))["imported"] == 2

    def test_a_format_of_the_future(self, world: World) -> None:
        answer = self.lines(world, HEADER | {"schema_version": "2.0"}, record(1))

        assert answer["imported"] == 0
        assert self.codes(answer) == [(1, "PARSE_ERROR")]

    BAD: tuple[tuple[dict[str, Any], str], ...] = (
        ({"id": ""}, "INVALID_RECORD"),
        ({"id": None}, "INVALID_RECORD"),
        ({"id": "x" * 129}, "INVALID_RECORD"),
        ({"capsule_text": ""}, "INVALID_RECORD"),
        ({"capsule_text": 5}, "INVALID_RECORD"),
        ({"capsule_text": "thin"}, "CAPSULE_TOO_THIN"),
        ({"capsule_text": GOOD + "x" * 12_000}, "CAPSULE_TOO_LARGE"),
        ({"capsule_text": "x" * 12_001, "allow_thin": True}, "CAPSULE_TOO_LARGE"),
        ({"tags": "x"}, "INVALID_RECORD"),
        ({"tags": ["x"] * 101}, "INVALID_RECORD"),
        ({"title": "x" * 1001}, "INVALID_RECORD"),
        ({"created_at": "now"}, "INVALID_RECORD"),
        ({"updated_at": -1}, "INVALID_RECORD"),
        ({"deleted_at": 10**18}, "INVALID_RECORD"),
    )

    def test_a_bad_record_is_an_entry(self, new_world: Callable[..., World]) -> None:
        """The entry has line, id and name; the record is not stored, the others are."""
        for number, (fields, code) in enumerate(self.BAD):
            world = new_world(str(number))
            answer = self.lines(world, HEADER, record(1, **fields), record(2), mode="replace")

            assert answer["imported"] == 1, fields
            assert self.codes(answer) == [(2, code)]
            assert world.names(include_deleted=True) == ["Task 2"]
            if isinstance(fields.get("id", "x"), str):
                assert answer["errors"][0]["name"] == "Task 1"

    def test_missing_fields_have_defaults(self, world: World) -> None:
        self.lines(world, {"id": "made-by-hand", "capsule_text": GOOD, "workspace_raw": " ", "name_raw": ""})

        item = world.ok("fetch", id="made-by-hand")
        assert item["workspace"] == "default"
        assert "name" not in item
        assert item["created_at"] == item["updated_at"] > 1_700_000_000

    def test_thin_records_can_be_allowed(self, world: World) -> None:
        """Either the mark of a record or an argument allows them: Moss does not mark them."""
        thin = record(1, capsule_text="thin")
        assert self.codes(self.lines(world, HEADER, thin)) == [(2, "CAPSULE_TOO_THIN")]
        assert self.lines(world, HEADER, thin | {"allow_thin": True})["imported"] == 1
        assert self.lines(world, HEADER, record(2, capsule_text="thin"), allow_thin=True)["imported"] == 1


class TestProblems(Importing):
    def test_are_redacted_before_they_are_cut(self, world: World) -> None:
        """Half a secret would not be recognised as one."""
        for length in range(540, 600, 4):
            name = "n" * length + " SG." + "aBcDeFgHiJkLmNoPqRsTuv." + "q1W2" * 11
            answer = self.lines(world, HEADER, record(1, name_raw=name), record(2, name_raw=name))
            assert self.codes(answer) == [(3, "NAME_COLLISION")]
            assert "SG.aB" not in json.dumps(answer)


class TestError(Importing):
    def test_all_or_nothing(self, world: World) -> None:
        """One problem is enough. Every collision is listed with its line."""
        world.store("Taken")
        existing = world.ok("fetch", name="taken")["id"]
        answer = self.lines(
            world,
            HEADER,
            record(1),
            record(2, name_raw=" TAKEN"),
            record(3, id=existing),
            record(4, name_raw="task  1"),
            b"{",
            record(5),
        )

        assert (answer["imported"], answer["skipped"]) == (0, 0)
        assert self.codes(answer) == [
            (3, "NAME_COLLISION"),
            (4, "ID_COLLISION"),
            (5, "NAME_COLLISION"),
            (6, "PARSE_ERROR"),
        ]
        assert answer["errors"][0]["name"] == " TAKEN"
        assert answer["errors"][1]["id"] == existing
        assert world.names(include_deleted=True) == ["Taken"]

    def test_many_collisions(self, world: World) -> None:
        """Broken records beside them are listed up to a bound, and counted."""
        world.store("taken")
        answer = self.lines(world, HEADER, *[record(number, name_raw="taken") for number in range(150)], *[b"{"] * 150)

        codes = self.codes(answer)
        assert codes[:150] == [(line, "NAME_COLLISION") for line in range(2, 152)]
        assert [code for _, code in codes[150:]] == ["PARSE_ERROR"] * 100 + ["TOO_MANY_PROBLEMS"]
        assert answer["errors"][-1]["message"] == "50 more problems are not listed"

    def test_is_the_default(self, world: World) -> None:
        world.store("task 1")

        assert self.codes(self.lines(world, HEADER, record(1))) == [(2, "NAME_COLLISION")]

    def test_identical_records_are_skipped(self, world: World) -> None:
        """A record that equals the stored capsule is no collision."""
        self.lines(world, HEADER, record(1), record(2))

        assert self.lines(world, HEADER, record(1), record(2), record(3)) == {"imported": 1, "skipped": 2, "errors": []}
        assert self.codes(self.lines(world, HEADER, record(1, title="other"))) == [(2, "ID_COLLISION")]


class TestReplace(Importing):
    def test_by_id_else_by_name(self, world: World) -> None:
        """The stored id stays; everything else is the record's, its times included."""
        self.lines(world, HEADER, record(1), record(2))
        answer = self.lines(
            world,
            HEADER,
            record(1, name_raw="renamed", capsule_text=capsule_text("new")),
            record(9, name_raw="TASK 2", title="by name", updated_at=1_800_000_000),
            mode="replace",
        )

        assert answer == {"imported": 2, "skipped": 0, "errors": []}
        assert "new" in world.ok("fetch", name="renamed")["capsule_text"]
        by_name = world.ok("fetch", name="task 2")
        assert by_name["id"] == record(2)["id"]
        assert (by_name["title"], by_name["updated_at"]) == ("by name", 1_800_000_000)
        assert by_name["created_at"] == record(9)["created_at"]
        assert world.ok("history", name="task 2")["version"] == 2

    def test_id_and_name_of_two_capsules(self, world: World) -> None:
        """The record is an error; the rest is imported."""
        self.lines(world, HEADER, record(1), record(2))
        answer = self.lines(world, HEADER, record(1, name_raw="task 2"), record(3), mode="replace")

        assert answer["imported"] == 1
        assert self.codes(answer) == [(2, "AMBIGUOUS_COLLISION")]
        assert sorted(map(str, world.names())) == ["Task 1", "Task 2", "Task 3"]

    def test_identical_records_are_skipped(self, world: World) -> None:
        self.lines(world, HEADER, record(1))

        assert self.lines(world, HEADER, record(1), mode="replace") == {"imported": 0, "skipped": 1, "errors": []}
        assert world.ok("history", name="task 1")["version"] == 1

    def test_recovers_what_was_deleted_since(self, world: World) -> None:
        """A live record brings its capsule back."""
        self.lines(world, HEADER, record(1))
        world.ok("delete", name="task 1")

        assert self.lines(world, HEADER, record(1), mode="replace")["imported"] == 1
        assert "deleted_at" not in world.ok("fetch", name="task 1")


class TestRename(Importing):
    def test_keeps_both(self, world: World) -> None:
        """New ids and suffixed names, counting up."""
        world.store("Task 1")
        world.store("task 1-1")
        self.lines(world, HEADER, record(2))
        answer = self.lines(
            world,
            HEADER,
            record(1),
            record(3, name_raw="TASK 1 "),
            record(2, title="changed"),
            record(4, name_raw=None),
            mode="rename",
        )

        assert answer == {"imported": 4, "skipped": 0, "errors": []}
        assert world.ok("fetch", name="task 1-2")["id"] == record(1)["id"]
        assert world.ok("fetch", name="task 1-3")["name"] == "TASK 1-3"
        copy = world.ok("fetch", name="task 2-1")
        assert copy["id"] != record(2)["id"]
        assert len(copy["id"]) == 26
        assert copy["updated_at"] == record(2)["updated_at"]

    def test_identical_records_are_skipped(self, world: World) -> None:
        self.lines(world, HEADER, record(1))

        assert self.lines(world, HEADER, record(1), mode="rename") == {"imported": 0, "skipped": 1, "errors": []}

    def test_many_of_one_name(self, world: World) -> None:
        """Suffixes count up without trying all of them for each record."""
        records = [record(1, id=f"id-{number}", name_raw="same") for number in range(400)]

        assert self.lines(world, HEADER, *records, mode="rename")["imported"] == 400
        assert world.ok("fetch", name="same-399")["id"] == "id-399"


class TestDeletedRecords(Importing):
    """Stay deleted, and never touch a live capsule."""

    DELETED = 1_700_000_500

    @pytest.mark.parametrize("mode", ["error", "replace", "rename"])
    def test_arrive_deleted(self, world: World, mode: str) -> None:
        """They do not collide with a live capsule of the same name."""
        live = world.store("Task 1")
        answer = self.lines(world, HEADER, record(1, deleted_at=self.DELETED), mode=mode)

        assert answer == {"imported": 1, "skipped": 0, "errors": []}
        assert world.ok("fetch", name="task 1")["id"] == live
        arrived = world.ok("fetch", id=record(1)["id"], include_deleted=True)
        assert (arrived["name"], arrived["deleted_at"]) == ("Task 1", self.DELETED)

    def test_leave_a_live_capsule_of_their_id_alone(self, world: World) -> None:
        self.lines(world, HEADER, record(1))
        deleted = record(1, deleted_at=self.DELETED, capsule_text=capsule_text("old"))

        assert self.lines(world, HEADER, deleted, mode="replace") == {"imported": 0, "skipped": 1, "errors": []}
        assert self.codes(self.lines(world, HEADER, deleted, mode="error")) == [(2, "ID_COLLISION")]
        assert self.lines(world, HEADER, deleted, mode="rename")["imported"] == 1
        assert world.ok("fetch", name="task 1")["capsule_text"] == GOOD
        assert world.ok("inventory")["pagination"]["total"] == 1

    def test_replace_a_deleted_capsule_of_their_id(self, world: World) -> None:
        self.lines(world, HEADER, record(1, deleted_at=self.DELETED))
        answer = self.lines(world, HEADER, record(1, deleted_at=self.DELETED, title="x"), mode="replace")

        assert answer["imported"] == 1
        assert world.ok("fetch", id=record(1)["id"], include_deleted=True)["title"] == "x"
        assert world.ok("inventory")["pagination"]["total"] == 0

    def test_identical_ones_are_skipped(self, world: World) -> None:
        for mode in ("error", "replace", "rename"):
            self.lines(world, HEADER, record(1, deleted_at=self.DELETED), mode=mode)

        assert world.ok("inventory", include_deleted=True)["pagination"]["total"] == 1


class TestRoundTrip:
    def fill(self, world: World) -> None:
        world.store("First  One", workspace=" A b ", tags=["x", "y"], source="codex", title="T")
        world.store(None)
        world.ok("store", capsule_text="a thin note \U0001f600\u2028\x00", name="thin", allow_thin=True)
        world.store("run", run_id="r", phase="p", role="q", source_session="session:s")
        for _ in range(2):
            world.store("gone")
            world.ok("delete", name="gone")
        world.store("gone")
        for name in ("thin", "run", "gone", "thin"):
            world.ok("update", name=name, source="again")
        world.store("last")

    def test_restores_everything(self, new_world: Callable[..., World]) -> None:
        """Into an empty store: every capsule, deleted ones too, to the last field and in the same order."""
        old, new = new_world("old"), new_world("new")
        self.fill(old)
        exported = Path(old.ok("export", include_deleted=True)["path"])
        new.exports.mkdir()
        copied = new.exports / "backup.jsonl"
        copied.write_bytes(exported.read_bytes())

        assert new.ok("import", path=str(copied)) == {"imported": 8, "skipped": 0, "errors": []}
        for include_deleted in (False, True):
            listing = old.ok("inventory", include_deleted=include_deleted)
            assert new.ok("inventory", include_deleted=include_deleted) == listing
            for item in listing["items"]:
                address = {"id": item["id"], "include_deleted": True}
                ours, theirs = new.ok("fetch", **address), old.ok("fetch", **address)
                assert ours.pop("version") == 1  # past versions stay where they are
                assert theirs.pop("version") >= 1
                assert ours == theirs
        for workspace in ("a B", "default"):
            newest = [world.ok("latest", workspace=workspace)["item"]["id"] for world in (old, new)]
            assert newest[0] == newest[1]
        again = Path(new.ok("export", include_deleted=True)["path"])
        assert again.read_bytes().split(b"\n")[1:] == exported.read_bytes().split(b"\n")[1:]

    def test_of_a_renamed_capsule(self, new_world: Callable[..., World]) -> None:
        """A name that was as long as names may be is shortened for its suffix, so that its export can be imported."""
        old, new = new_world("old"), new_world("new")
        old.store("n" * 1000)
        clash = record(name_raw="n" * 1000)
        assert old.ok("import", path=str(old.write("in.jsonl", clash)), mode="rename")["imported"] == 1

        exported = Path(old.ok("export")["path"])
        new.exports.mkdir()
        (new.exports / "backup.jsonl").write_bytes(exported.read_bytes())

        assert new.ok("import", path=str(new.exports / "backup.jsonl"))["imported"] == 2

    @pytest.mark.parametrize("mode", ["replace", "rename"])
    def test_a_bad_line_costs_that_line(self, world: World, mode: str) -> None:
        path = world.write("in.jsonl", record(1, capsule_text="thin"), record(2))
        answer = world.ok("import", path=str(path), mode=mode)

        assert (answer["imported"], [error["line"] for error in answer["errors"]]) == (1, [1])

    @pytest.mark.parametrize("mode", ["error", "replace", "rename"])
    def test_into_itself_does_nothing(self, world: World, mode: str) -> None:
        self.fill(world)
        exported = world.ok("export", include_deleted=True)["path"]
        before = world.ok("inventory", include_deleted=True)

        assert world.ok("import", path=exported, mode=mode) == {"imported": 0, "skipped": 8, "errors": []}
        assert world.ok("inventory", include_deleted=True) == before
