"""Installing: a built wheel in a clean environment, with the newest and with the oldest dependencies."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "src" / "backstory" / "faces" / "cli" / "sample"

pytestmark = pytest.mark.slow


def run(*command: str | Path, **variables: str) -> str:
    environ = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), **variables}
    done = subprocess.run([*map(str, command)], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def pip(*arguments: str | Path) -> None:
    """Needs the package index, as installing does; where there is none, the test is skipped."""
    done = subprocess.run([*map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode and re.search(r"connection|Could not fetch|Temporary failure", done.stderr, re.IGNORECASE):
        pytest.skip("no package index")
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


def oldest() -> str:
    """Constraints: every dependency in the oldest version that it may have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    bounds = (re.fullmatch(r"([\w-]+)>=([\w.]+)(;.*)?", entry) for entry in project["dependencies"])
    return "".join(f"{found[1]}=={found[2]}{found[3] or ''}\n" for found in bounds if found)


class TestWheel:
    def test_has_everything(self, wheel: Path) -> None:
        """The package with its data, and nothing else."""
        names = zipfile.ZipFile(wheel).namelist()

        assert "backstory/py.typed" in names or "backstory/__main__.py" in names
        assert "backstory/setup/texts/SKILL.md" in names
        assert any(name.startswith("backstory/faces/cli/sample/") for name in names)
        assert {name.split("/")[0].partition("-")[0] for name in names} == {"backstory"}

    @pytest.mark.parametrize("versions", ["newest", "oldest"])
    def test_works_in_a_clean_environment(self, wheel: Path, tmp_path: Path, versions: str) -> None:
        """Reads, searches, serves MCP and wires an agent, with every dependency of that age."""
        environment = tmp_path / "environment"
        run(sys.executable, "-m", "venv", environment)
        constraints = tmp_path / "constraints.txt"
        constraints.write_text(oldest() if versions == "oldest" else "")
        pip(environment / "bin" / "pip", "install", "--quiet", wheel, "--constraint", constraints)
        program = environment / "bin" / "backstory"
        home = tmp_path / "home"
        shutil.copytree(SAMPLE, home)

        assert json.loads(run(program, "sync", "--json", HOME=str(home)))["sessions"] == 3
        found = json.loads(run(program, "search", "flaky", "checkout", "--json", HOME=str(home)))
        assert found["data"]["result_count"] > 0
        done = json.loads(run(program, "setup", "--yes", "--json", HOME=str(home)))
        assert [change["probe"]["works"] for change in done["changes"]] == [True, True]
        assert str(program) in (home / ".claude.json").read_text()
        assert json.loads(run(program, "usage", "--json", "--since", "5y", HOME=str(home)))
