"""The drawing in docs/architecture.md is true: its tree is the package, and imports point up the tree only."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import get_args, get_type_hints

from backstory.archive.base import Archive, Reader, Writer
from backstory.archive.spans import Spans
from backstory.config import ArchiveSettings

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

    def test_the_protocols_are_as_small_as_it_says(self) -> None:
        """The numbers of methods that an engine implements."""
        text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
        drawn = [int(number) for number in re.findall(r"(\d+) methods", text.partition("\n\n## To change")[0])]
        given = {"session"}  # defined by the protocol itself

        def methods(*protocols: type) -> int:
            return sum(
                callable(member) and not name.startswith("_") and name not in given
                for protocol in protocols
                for name, member in vars(protocol).items()
            )

        assert drawn == [methods(Reader, Archive, Writer), methods(Spans)]
        assert sum(drawn) <= 25


# Modules under 40 lines, and the reason that each is one.
SMALL = {
    "archive/errors.py": "everything that calls an archive knows them",
    "faces/log.py": "every process imports it when it starts, and few import more of a face",
}


class TestSizes:
    def test_a_module_has_40_to_400_lines(self) -> None:
        lines = {path.as_posix(): len((SOURCE / path).read_text("utf-8").splitlines()) for path in imports()}
        assert {name for name, count in lines.items() if count > 400} == set()
        assert {name for name, count in lines.items() if count < 40 and "/__" not in f"/{name}"} == SMALL.keys()


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
                allowed = (path.parts[1], "base")
                wrong += [f"{path} imports {n}" for n in others if n.split(".")[1] not in allowed]
        assert wrong == []


# A change -> the places where it is made, by which every existing one is found.
CHANGES = {
    "an agent": ("sources/base.py", "sources/agents.py"),
    "an engine": ("archive/base.py", "archive/__init__.py", "config.py"),
    "a tool": ("toolsets/*/tools.py", "toolsets/*/service.py"),
    "a page": ("faces/web/pages.py",),
    "a command": ("faces/cli/app.py",),
}


class TestChanges:
    """Someone who knows only the drawing finds the modules to change."""

    def test_the_table_names_the_places(self) -> None:
        """Each row of `To change something` names files and objects that exist."""
        text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
        rows = dict(re.findall(r"^\| (an? [a-z]+) \| (.+?) \|", text.partition("## To change something")[2], re.M))
        assert rows.keys() >= CHANGES.keys()
        for change, row in rows.items():
            for name in re.findall(r"`([\w/]+(?:/|\.py))`", row):
                inside = SOURCE / "toolsets" if change in ("a tool", "a toolset") else SOURCE
                assert (SOURCE / name).exists() or any(inside.glob(f"*/{name}")), (change, name)

    def test_the_picture_names_the_places(self) -> None:
        """Each place for a change in the picture exists, and is one of the table's."""
        picture = (ROOT / "docs" / "images" / "architecture.svg").read_text("utf-8")
        for change in ("agent", "engine", "tool", "page"):
            label = re.search(rf'>an? new {change}</text>\s*<text class="outside path"[^>]*>([^<]+)</text>', picture)
            assert label is not None, change
            assert label[1] in CHANGES[f"an {change}" if change in ("agent", "engine") else f"a {change}"]
            assert list(SOURCE.glob(label[1])), label[1]

    def test_every_agent_is_in_its_table(self) -> None:
        """A module of `sources` with a source is named by a row; the other modules are shared by several."""
        table = (SOURCE / "sources" / "agents.py").read_text("utf-8")
        for path in (SOURCE / "sources").glob("*.py"):
            classes = re.findall(r"^class ([A-Z]\w+)\((?:\w*Source|Folder|Database)\b", path.read_text("utf-8"), re.M)
            if path.stem not in ("base", "agents", "parsing", "database"):
                assert not classes or any(f'"{path.stem}:{name}"' in table for name in classes), path.name

    def test_every_engine_is_opened_in_one_place(self) -> None:
        """`open_engine` has a case for each name of the setting, and each has its folder."""
        engines = set(get_args(get_type_hints(ArchiveSettings)["engine"]))
        folders = {path.name for path in (SOURCE / "archive").iterdir() if (path / "archive.py").exists()}
        assert engines == folders
        opened = (SOURCE / "archive" / "__init__.py").read_text("utf-8")
        assert all(f'case "{engine}"' in opened for engine in engines)

    def test_every_toolset_has_its_tools_and_rules(self) -> None:
        """In the modules that the table names."""
        for toolset in (path for path in (SOURCE / "toolsets").iterdir() if (path / "__init__.py").exists()):
            assert (toolset / "tools.py").exists(), toolset
            assert (toolset / "service.py").exists(), toolset

    def test_every_page_is_in_the_list(self) -> None:
        """A module with routes for pages has its line in `pages.py`; access control has its own."""
        listed = (SOURCE / "faces" / "web" / "pages.py").read_text("utf-8")
        for path in (SOURCE / "faces" / "web").glob("*.py"):
            if re.search(r"^def routes\(site", path.read_text("utf-8"), re.M):
                assert f"*{path.stem}.routes(site)" in listed, path.name
