"""The command by which agents start this installation of Backstory."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

# Folders of environments that `uvx` and `pipx run` make and delete again.
_PASSING = {"uvx": ("uv", "archive-v0"), "pipx": (".cache", "pipx")}
_SCRIPTS = ("backstory", "backstory.exe")


def own_command() -> tuple[str, ...]:
    """The absolute path of the program, with arguments where it is started by another one.

    Agents start servers with a search path of their own, so a name alone is not enough. The environment of `uvx` and
    `pipx run` does not last: there it is the command that makes it again.
    """
    prefix = Path(sys.prefix).parts
    if _lies_in(prefix, _PASSING["uvx"]) and (uvx := shutil.which("uvx")):
        return (str(Path(uvx).absolute()), "backstory")
    if _lies_in(prefix, _PASSING["pipx"]) and (pipx := shutil.which("pipx")):
        return (str(Path(pipx).absolute()), "run", "backstory")
    for name in _SCRIPTS:
        script = Path(sys.executable).absolute().with_name(name)
        if script.is_file():
            return (str(script),)
    return (str(Path(sys.executable).absolute()), "-m", "backstory")


def _lies_in(parts: tuple[str, ...], folders: tuple[str, ...]) -> bool:
    return any(parts[number : number + len(folders)] == folders for number in range(len(parts)))
