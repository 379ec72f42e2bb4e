"""The drawing in docs/architecture.md is true: its tree is the package, and imports point up the tree only."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "backstory"
_ENTRY = re.compile(r"^(?P<indent> +)(?P<name>\w+(?:\.py|/))(?: |$)")

# Beyond the order of the tree: sources are read by ingest alone, and contracts know nothing of reading.
FORBIDDEN = {"archive": {"sources"}, "toolsets": {"sources", "ingest"}}


@cache
def tree() -> list[str]:
    """The entries of the drawing below `src/backstory/`, as paths, in their order."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    drawing = text.partition("    src/backstory/\n")[2].partition("\n\n")[0]
    folders: list[str] = []
    entries = []
    for line in drawing.splitlines():
        if entry := _ENTRY.match(line):
            depth = len(entry["indent"]) // 2 - 3
            entries.append("".join([*folders[:depth], entry["name"]]))
            folders = [*folders[:depth], entry["name"]]
    return entries


@cache
def imports() -> dict[Path, list[str]]:
    """Per module of the package, every module of the package that it imports, as dotted names below `backstory`."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        package = ("backstory", *path.relative_to(SOURCE).parent.parts)
        names = []
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
                names.append(".".join(part for part in (base, node.module or "") if part))
        own = [name for name in names if name.split(".")[0] == "backstory"]
        found[path.relative_to(SOURCE)] = [name.removeprefix("backstory").removeprefix(".") for name in own]
    return found


def part_of(path: Path) -> str:
    """The folder or module directly below the package."""
    return path.parts[0].removesuffix(".py")


class TestDrawing:
    def test_everything_in_the_tree_exists(self) -> None:
        assert tree()
        assert [entry for entry in tree() if not (SOURCE / entry).exists()] == []

    def test_every_module_is_in_the_tree(self) -> None:
        """By its own line, or by that of its folder; a folder with lines of its own has one for each module."""
        entries = set(tree())
        drawn = {entry.rpartition("/")[0] + "/" for entry in entries if not entry.endswith("/") and "/" in entry}
        missing = []
        for path in imports():
            name = path.as_posix()
            folders = {f"{folder.as_posix()}/" for folder in path.parents if folder != Path()}
            inside = any(folder in entries for folder in folders - drawn)
            if path.name not in ("__init__.py", "__main__.py") and name not in entries and not inside:
                missing.append(name)
        assert missing == []


class TestLayers:
    def test_imports_point_up_the_tree(self) -> None:
        """A part imports only what stands above it in the drawing."""
        order = list(dict.fromkeys(entry.split("/")[0].removesuffix(".py") for entry in tree()))
        wrong = []
        for path, names in imports().items():
            part = part_of(path)
            if part.startswith("__"):
                continue
            allowed = {*order[: order.index(part) + 1]} - FORBIDDEN.get(part, set())
            # The root of the package has the version and `open_archive`, for programs like the faces.
            allowed |= {""} if part == "faces" else set()
            wrong += [f"{path} imports {name}" for name in names if name.split(".")[0] not in allowed]
        assert wrong == []

    def test_engines_are_private(self) -> None:
        """Only `open_engine` knows them."""
        for engine in ("local", "clickhouse"):
            users = [
                path.as_posix()
                for path, names in imports().items()
                if path.parts[:2] != ("archive", engine) and any(n.startswith(f"archive.{engine}") for n in names)
            ]
            assert users == ["archive/__init__.py"]

    def test_toolsets_do_not_know_one_another(self) -> None:
        wrong = []
        for path, names in imports().items():
            if part_of(path) == "toolsets" and len(path.parts) > 2:
                others = [name for name in names if name.startswith("toolsets.")]
                wrong += [f"{path} imports {n}" for n in others if n.split(".")[1] not in (path.parts[1], "base")]
        assert wrong == []
