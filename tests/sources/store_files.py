"""The files of made-up homes: `stores/<agent>` with native paths, databases as the SQL that builds them."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

STORES = Path(__file__).parent / "stores"
AGENTS = sorted(path.name for path in STORES.iterdir())
GOLDEN = "golden.txt"


def paths(made_up: Path) -> list[Path]:
    """The files of a made-up home, relative to it."""
    files = [path for path in made_up.rglob("*") if path.is_file() and path.name != GOLDEN]
    return sorted(path.relative_to(made_up) for path in files)


def put(made_up: Path, path: Path, folder: Path) -> None:
    """Put a file of a made-up home into another one."""
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".sql":
        with sqlite3.connect(target.with_suffix("")) as database:
            database.executescript((made_up / path).read_text("utf-8"))
        database.close()
    elif path.name == "projects.json":  # Crush names its projects by their whole paths
        target.write_text((made_up / path).read_text("utf-8").replace("HOME", str(folder)))
    else:
        shutil.copy(made_up / path, target)
