"""moss.export: the content of the file, its place, and its atomic replacement."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.capsule_world import GOOD, World

FIELDS = [
    "id",
    "workspace_raw",
    "workspace_norm",
    "name_raw",
    "name_norm",
    "title",
    "capsule_text",
    "capsule_chars",
    "tokens_estimate",
    "tags",
    "source",
    "created_at",
    "updated_at",
    "deleted_at",
]


def lines_of(path: str | Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestFile:
    def test_header_and_records(self, world: World) -> None:
        """Every field of the format, null or not, in the order of creation."""
        first = world.store(None)
        world.store("B  b", workspace="W", tags=["x"], source="codex")
        before = int(time.time())
        answer = world.ok("export")

        header, nameless, named = lines_of(answer["path"])
        assert header == {"_moss_export": True, "schema_version": "1.0", "exported_at": answer["exported_at"]}
        assert before <= answer["exported_at"] <= time.time()
        assert answer["count"] == 2
        assert list(nameless) == list(named) == FIELDS
        assert nameless["id"] == first
        absent = ("name_raw", "name_norm", "title", "tags", "source", "deleted_at")
        assert [nameless[field] for field in absent] == [None] * len(absent)
        assert (named["workspace_raw"], named["workspace_norm"], named["name_norm"]) == ("W", "w", "b b")
        assert (named["tags"], named["capsule_text"], named["capsule_chars"]) == (["x"], GOOD, len(GOOD))

    def test_what_is_added_is_there_only_when_set(self, world: World) -> None:
        """A thin capsule is marked, and labels beyond the format are written."""
        world.ok("store", capsule_text="thin", allow_thin=True, name="a", run_id="r", source_session="session:x")
        _, line = lines_of(world.ok("export")["path"])

        assert list(line) == [*FIELDS, "allow_thin", "run_id", "source_session"]
        assert line["allow_thin"] is True

    def test_deleted_capsules_on_request(self, world: World) -> None:
        world.store("a")
        world.ok("delete", name="a")

        assert world.ok("export")["count"] == 0
        answer = world.ok("export", include_deleted=True)
        assert answer["count"] == 1
        assert lines_of(answer["path"])[1]["deleted_at"] is not None

    def test_of_one_workspace(self, world: World) -> None:
        world.store("a", workspace="Project A")
        world.store("b")

        assert world.ok("export", workspace=" project  a")["count"] == 1


class TestPlace:
    def test_is_named_for_you(self, world: World) -> None:
        """The file is named after the workspace and lies in the exports folder; it replaces no other."""
        world.store("a", workspace="../Evil / Project")
        paths = [Path(world.ok("export")["path"]) for _ in range(3)]
        paths.append(Path(world.ok("export", workspace="../Evil / Project")["path"]))

        assert len(set(paths)) == 4
        assert all(path.parent == world.exports for path in paths)
        assert all(path.name.startswith("all-") for path in paths[:3])
        assert paths[3].name.startswith("evil-project-")

    def test_is_named_within_the_bytes_that_a_file_name_can_have(self, world: World) -> None:
        workspace = "\u6f22" * 80
        world.store("a", workspace=workspace)

        assert Path(world.ok("export", workspace=workspace)["path"]).is_file()

    def test_is_private(self, world: World) -> None:
        """Files 0600, also over an old one; folders that are made 0700."""
        world.store("a")
        path = world.exports / "deep" / "er" / "backup.jsonl"
        world.ok("export", path=str(path))
        path.chmod(0o644)
        world.ok("export", path=str(path))

        assert mode_of(path) == 0o600
        assert [mode_of(folder) for folder in (world.exports, *list(path.parents)[:2])] == [0o700] * 3
        assert sorted(file.name for file in path.parent.iterdir()) == ["backup.jsonl"]

    def test_configured_folders(self, new_world: Callable[..., World], tmp_path: Path) -> None:
        """Settings and paths may start with `~`."""
        world = new_world(settings=f'export_folders = ["~/backups", "{tmp_path}/more"]')

        assert world.ok("export", path="~/backups/x.jsonl")["path"] == str(Path("~/backups/x.jsonl").expanduser())
        world.ok("export", path=f"{tmp_path}/more/x.jsonl")

    FORBIDDEN = (
        "/tmp/backup.jsonl",
        "{home}/backup.jsonl",
        "{exports}/../backup.jsonl",
        "{exports}/a/../backup.jsonl",
        "{exports}/..",
        "{exports}/backup.json",
        "{exports}/backup",
        "{exports}-not/backup.jsonl",
        "backup.jsonl",
        "~nobody-of-that-name/backup.jsonl",
        "{exports}/a\x00b.jsonl",
    )

    @pytest.mark.parametrize("verb", ["export", "import"])
    def test_nowhere_else(self, world: World, verb: str) -> None:
        """Outside the allowed folders, with `..` or another extension nothing is written or read."""
        for path in self.FORBIDDEN:
            error = world.refused(verb, path=path.format(home=world.home, exports=world.exports))

            assert error["code"] == "INVALID_REQUEST", path
            assert error["details"] == {"field": "path"}

    def test_a_name_no_file_can_have(self, world: World) -> None:
        """The reason of the system is in the message."""
        error = world.refused("export", path=str(world.exports / f"{'x' * 300}.jsonl"))

        assert (error["code"], error["details"]) == ("INVALID_REQUEST", {"field": "path"})

    def test_says_where(self, world: World) -> None:
        """The message names the allowed folders and the setting."""
        message = world.refused("export", path="/elsewhere/x.jsonl")["message"]

        assert str(world.exports) in message
        assert "export_folders" in message

    @pytest.mark.parametrize("verb", ["export", "import"])
    def test_no_symlinks(self, world: World, tmp_path: Path, verb: str) -> None:
        """Neither the file nor a folder above it may be a symlink; their targets are not touched."""
        outside = tmp_path / "outside"
        outside.mkdir()
        secret = outside / "secret.jsonl"
        secret.write_text("precious")
        world.exports.mkdir()
        (world.exports / "link.jsonl").symlink_to(secret)
        (world.exports / "folder").symlink_to(outside)
        (world.exports / "dangling.jsonl").symlink_to(outside / "new.jsonl")

        for path in ("link.jsonl", "folder/secret.jsonl", "folder/new.jsonl", "dangling.jsonl"):
            assert "symlink" in world.refused(verb, path=str(world.exports / path))["message"]
        assert secret.read_text() == "precious"
        assert [file.name for file in outside.iterdir()] == ["secret.jsonl"]

    def test_a_folder_of_that_name(self, world: World) -> None:
        (world.exports / "x.jsonl").mkdir(parents=True)

        assert world.refused("export", path=str(world.exports / "x.jsonl"))["code"] == "INVALID_REQUEST"
        assert world.refused("import", path=str(world.exports / "x.jsonl"))["code"] == "INVALID_REQUEST"

    def test_a_pipe_is_not_waited_for(self, world: World) -> None:
        world.exports.mkdir()
        os.mkfifo(world.exports / "pipe.jsonl")

        assert "regular file" in world.refused("import", path=str(world.exports / "pipe.jsonl"))["message"]

    def test_a_missing_file_is_404(self, world: World) -> None:
        path = str(world.exports / "missing.jsonl")
        error = world.refused("import", path=path)

        assert (error["code"], error["status"], error["details"]) == ("NOT_FOUND", 404, {"path": path})


class TestProject:
    """`.backstory.toml` in the working directory narrows what is allowed and never widens it."""

    @pytest.fixture
    def project(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder = tmp_path / "project"
        folder.mkdir()
        monkeypatch.chdir(folder)
        return folder

    def set(self, project: Path, text: str) -> None:
        (project / ".backstory.toml").write_text(text, "utf-8")

    def test_narrows(self, new_world: Callable[..., World], project: Path, tmp_path: Path) -> None:
        """Only folders of the project file are allowed, relative to it."""
        world = new_world(settings=f'export_folders = ["{tmp_path}"]')
        self.set(project, '[capsules]\nexport_folders = ["out"]')

        world.ok("export", path="out/x.jsonl")
        assert (project / "out" / "x.jsonl").is_file()
        for path in (f"{tmp_path}/x.jsonl", str(world.exports / "x.jsonl")):
            assert world.refused("export", path=path)["code"] == "INVALID_REQUEST"
        assert world.refused("export")["code"] == "INVALID_REQUEST"

    def test_never_widens(self, world: World, project: Path) -> None:
        self.set(project, '[capsules]\nexport_folders = ["/", "."]')

        assert world.refused("export", path=str(project / "x.jsonl"))["code"] == "INVALID_REQUEST"
        world.ok("export", path=str(world.exports / "x.jsonl"))

    def test_can_forbid_all(self, world: World, project: Path) -> None:
        self.set(project, "[capsules]\nexport_folders = []")

        assert "allows none" in world.refused("export")["message"]

    @pytest.mark.parametrize("text", ["[capsules", "[capsules]\nexport_folder = []", "[capsules]\nexport_folders = 3"])
    def test_a_broken_file_allows_nothing(self, world: World, project: Path, text: str) -> None:
        """A restriction that cannot be read is not lifted."""
        self.set(project, text)

        assert ".backstory.toml" in world.refused("export")["message"]

    def test_other_tables_are_not_its_business(self, world: World, project: Path) -> None:
        self.set(project, "[other]\nx = 1")
        world.ok("export")


class TestAtomic:
    def test_what_a_killed_export_left_is_removed(self, world: World) -> None:
        """A fresh temporary file may belong to a running export and stays."""
        world.store("a")
        world.ok("export")
        stale, fresh = world.exports / ".backstory-0123.part", world.exports / ".backstory-4567.part"
        for path in (stale, fresh):
            path.write_bytes(b"half")
        os.utime(stale, (1, 1))
        world.ok("export")

        assert not stale.exists()
        assert fresh.exists()

    @pytest.mark.parametrize("name", ["x" * 250 + ".jsonl", "/".join(["d" * 200] * 30) + "/x.jsonl"])
    def test_a_path_that_is_too_long(self, world: World, name: str) -> None:
        """It is an error of the request, with the reason."""
        world.store("a")
        error = world.refused("export", path=str(world.exports / name))

        assert (error["code"], error["details"]["field"]) == ("INVALID_REQUEST", "path")
        assert "too long" in error["message"]

    def test_a_failure_leaves_the_old_file(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """The old file stays as it was, and the temporary file is removed."""
        import backstory.toolsets.capsules.files as paths

        world.store("a")
        path = world.exports / "x.jsonl"
        world.ok("export", path=str(path))
        before = path.read_bytes()
        world.store("b")

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(paths.os, "fsync", full)
        error = world.refused("export", path=str(path))
        assert (error["code"], error["status"]) == ("INTERNAL", 500)
        assert "No space left" in error["message"]
        assert path.read_bytes() == before
        assert [file.name for file in world.exports.iterdir()] == ["x.jsonl"]
