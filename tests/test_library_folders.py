"""The folders that the settings and the variables of agents name, with `~` for the home folder of the agents."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from backstory.library import Library
from tests.transcripts import Transcript


@pytest.fixture
def agents_home(tmp_path: Path) -> Path:
    """A home folder with one session, where nobody looks by default."""
    home = tmp_path / "ann"
    Transcript("elsewhere").prompt("Where is the teapot?").write(home)
    shutil.move(home / ".claude", home / "odd")
    return home


class TestFolders:
    @pytest.mark.parametrize("folder", ["~/odd", "~/odd/projects", "~"])
    def test_extra_roots(self, agents_home: Path, tmp_path: Path, folder: str) -> None:
        (tmp_path / "config.toml").write_text(f'[extra_roots]\nclaude-code = ["{folder}"]\n')
        with Library(tmp_path, agents_home=agents_home, environ={}) as library:
            assert library.sync().events == 1
            (source,) = (each for each in library.sources if each.name == "claude-code")
            assert library.looked_for(source)[-1] == agents_home / folder[2:]

    def test_a_home_of_nobody_is_not_there(self, agents_home: Path, tmp_path: Path) -> None:
        folders = '["~nobody-of-that-name/odd", "~/odd"]'
        with Library(
            tmp_path,
            agents_home=agents_home,
            environ={"BACKSTORY_EXTRA_ROOTS": f'{{"claude-code": {folders}}}'},
        ) as library:
            assert library.sync().events == 1

    @pytest.mark.parametrize(
        ("variable", "value", "folder"),
        [
            ("CLAUDE_CONFIG_DIR", "~/odd", "odd"),
            ("CLAUDE_CONFIG_DIR", "~", ""),
            ("CLAUDE_CONFIG_DIR", "/nowhere, ~", ""),
            ("XDG_CONFIG_HOME", "~/set", "set/claude"),
        ],
    )
    def test_variables(self, agents_home: Path, tmp_path: Path, variable: str, value: str, folder: str) -> None:
        (agents_home / folder).mkdir(parents=True, exist_ok=True)
        if folder != "odd":
            shutil.move(agents_home / "odd/projects", agents_home / folder / "projects")
        with Library(tmp_path, agents_home=agents_home, environ={variable: value}) as library:
            assert library.sync().events == 1

    def test_a_relative_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As in `HOME=copy backstory sync`: agents of the table are read as well."""
        shutil.copytree(Path(__file__).parent / "sources/agents/copilot-cli/home", tmp_path / "copy")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", "copy")
        for home in (Path("copy"), None):
            with Library(tmp_path / f"archive-{home}", agents_home=home, environ={}) as library:
                assert library.sync().sessions
