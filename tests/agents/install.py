"""Installs agents from npm and PyPI below `.agents/`, the newest version of each: `python -m tests.agents.install`.

One that is there is brought up to date with `--update`, which `make test-agents` gives.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.agents.programs import PROGRAMS, Program

FOLDER = Path(__file__).parents[2] / ".agents"
# The newest agents need a newer Node than systems have.
_NODE = "node@24"
_SECONDS = 900


class NotInstalled(Exception):
    """The package cannot be installed here."""


def install(program: Program, *, update: bool = False) -> None:
    """Raises NotInstalled with the reason."""
    kind, _, names = program.package.partition(":")
    folder = FOLDER / program.source
    if executable(program).exists() and not update:
        return
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "npm":
        if not _node().exists():
            (FOLDER / "node").mkdir(exist_ok=True)
            _npm(FOLDER / "node", _NODE)
        main, *others = names.split()
        try:
            _npm(folder, f"{main}@latest", *others)
        except NotInstalled:
            if not program.older:
                raise
            _npm(folder, f"{main}@{program.older}", *others)
    else:
        if not (folder / "bin/python").exists():
            _run([_uv(), "venv", "--quiet", "--python", _python(), str(folder)])
        place = ("--python", str(folder / "bin/python"))
        _run([_uv(), "pip", "install", "--quiet", "--upgrade", *place, *names.split()])
    if not executable(program).exists():
        raise NotInstalled(f"the package {program.name} has no {program.program}")


def executable(program: Program) -> Path:
    return FOLDER / program.source / program.program


def version_of(program: Program) -> str:
    folder = FOLDER / program.source
    if program.package.startswith("npm:"):
        return str(json.loads((folder / "node_modules" / program.name / "package.json").read_bytes())["version"])
    wheel = program.name.replace("-", "_")
    found = next(folder.glob(f"lib/python3*/site-packages/{wheel}-*.dist-info"))
    return found.name.removesuffix(".dist-info").rpartition("-")[2]


def search_path(program: Program) -> str:
    """The folders of programs that the agent needs."""
    own = FOLDER / program.source / "node_modules/.bin"
    return os.pathsep.join(map(str, (own, _node().parent, "/usr/local/bin", "/usr/bin", "/bin")))


def shown(program: Program) -> list[Path]:
    """The folders outside of its home that the agent needs."""
    folders = [FOLDER]
    if program.package.startswith("pypi:"):
        folders.append(Path(os.path.realpath(FOLDER / program.source / "bin/python")).parents[1])
    return folders


def _python() -> str:
    """A Python that most agents take: 3.12, or else this one. A name on the path may be that of a version manager,
    which keeps versions beside the one that runs this."""
    beside = sorted(Path(sys.base_prefix).parent.glob("3.12.*/bin/python3.12"))
    for found in filter(None, (shutil.which("python3.12"), *beside)):
        if subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(found)
    return sys.executable


def _node() -> Path:
    return FOLDER / "node/node_modules/node/bin/node"


def _uv() -> str:
    """The installer of Python packages, which takes a fraction of the time of pip."""
    folder = FOLDER / "uv"
    if not (folder / "bin/uv").exists():
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "uv"])
    return str(folder / "bin/uv")


def _npm(folder: Path, *packages: str) -> None:
    path = f"{_node().parent}{os.pathsep}{os.environ['PATH']}"
    flags = ("--no-audit", "--no-fund", "--loglevel", "error")
    _run(["npm", "install", "--prefix", str(folder), *flags, *packages], {**os.environ, "PATH": path})


def _run(command: list[str], environ: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{command[0]}: {error}") from None
    if done.returncode:
        raise NotInstalled(f"{Path(command[0]).name} failed: {(done.stderr or done.stdout).strip()[-300:]}")


def main(arguments: list[str]) -> None:
    names = [name for name in arguments if not name.startswith("-")]
    for program in PROGRAMS:
        if names and program.source not in names:
            continue
        try:
            install(program, update="--update" in arguments)
            line = f"{program.source} {version_of(program)}"
        except NotInstalled as reason:
            line = f"{program.source} is not installed: {reason}"
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
