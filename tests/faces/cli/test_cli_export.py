"""`export` writes one session as a file; `ui` leads to the pages."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from .conftest import Program, World


class TestExport:
    @pytest.mark.parametrize(("format", "start"), [("html", "<!doctype html>"), ("md", "# "), ("jsonl", '{"kind":')])
    def test_writes_a_private_file(
        self, world: World, backstory: Program, tmp_path: Path, format: str, start: str
    ) -> None:
        path = tmp_path / f"session.{format}"
        result = backstory("export", world.login.id[:8], f"--{format}", "-o", str(path), "--json")
        assert result.code == 0, result.err
        assert path.read_text("utf-8").lstrip().startswith(start)
        assert path.stat().st_size == result.json["bytes"]
        assert path.stat().st_mode & 0o777 == 0o600

    def test_replaces_a_file_that_others_can_read(self, world: World, backstory: Program, tmp_path: Path) -> None:
        path, link = tmp_path / "session.md", tmp_path / "link.md"
        path.write_text("former")
        path.chmod(0o644)
        link.symlink_to(path)
        assert backstory("export", world.login.id, "--md", "-o", str(link)).code == 0
        assert (link.is_symlink(), path.stat().st_mode & 0o777) == (True, 0o600)
        assert path.read_text("utf-8").startswith("# ")

    def test_names_the_file_that_cannot_be_written(self, world: World, backstory: Program, tmp_path: Path) -> None:
        path = tmp_path / "missing" / "session.md"
        result = backstory("export", world.login.id, "--md", "-o", str(path))
        assert (result.code, f"No such file or directory: {path}" in result.err) == (1, True)

    def test_goes_to_stdout(self, world: World, backstory: Program) -> None:
        assert "The login test is flaky" in backstory("export", world.login.id, "--md", "-o", "-").out

    def test_by_a_part_of_the_session(self, world: World, backstory: Program) -> None:
        """A turn or an event, as search shows them: all of its session."""
        event = backstory("search", "flaky", "--json").json["data"]["results"][0]["event"]["id"]
        whole = backstory("export", world.login.id, "--md", "-o", "-").out
        for part in (f"{world.login.id[:8]}:1", event):
            assert backstory("export", part, "--md", "-o", "-").out == whole, part

    def test_of_an_unknown_session(self, world: World, backstory: Program) -> None:
        result = backstory("export", "ffffffff")
        assert (result.code, "No session" in result.err) == (1, True)


class TestUi:
    def test_says_if_the_server_runs(self, world: World, backstory: Program) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        expected = {"url": f"http://127.0.0.1:{port}", "running": False}
        assert backstory("ui", "--port", str(port), "--json").json == expected
