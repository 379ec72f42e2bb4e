"""Arrows point down only: the import rules of the architecture."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "backstory"

# Which parts of the package each part may import. A part is a folder (or module) directly below the package; toolsets
# may import their own folder and `toolsets.base`, but not one another.
ALLOWED = {
    "model": set[str](),
    "config": set(),
    "redact": set(),
    "priority": set(),
    "money": {"model"},
    "raw": set(),
    "checkouts": set(),
    "livefiles": {"model", "config"},
    "otelfiles": {"model", "livefiles"},
    "sources": {"model", "livefiles", "otelfiles"},
    "archive": {"model", "config", "money", "priority"},
    "ingest": {"model", "config", "redact", "sources", "archive"},
    "toolsets": {"model", "config", "redact", "money", "archive", "livefiles", "otelfiles"},
    "library": {
        "model",
        "config",
        "redact",
        "raw",
        "checkouts",
        "otelfiles",
        "sources",
        "archive",
        "ingest",
        "toolsets",
    },
    "setup": {"model", "config", "sources"},
    "live": {"config", "toolsets", "library"},
    "faces": {
        "model",
        "config",
        "priority",
        "redact",
        "money",
        "sources",
        "archive",
        "ingest",
        "toolsets",
        "library",
        "live",
        "raw",
        "setup",
        "",
    },
}


def imported_modules(path: Path) -> list[str]:
    """Every module of the package that a file imports, as dotted names below `backstory`."""
    package = ("backstory", *path.relative_to(SOURCE).parent.parts)
    names = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            names.append(".".join(part for part in (base, node.module or "") if part))
    return [name.removeprefix("backstory").removeprefix(".") for name in names if name.split(".")[0] == "backstory"]


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem in ALLOWED)


class TestLayers:
    """No module imports what lies above it, and nobody reaches into the local archive from outside."""

    @pytest.mark.parametrize("path", modules(), ids=lambda path: path.relative_to(SOURCE).as_posix())
    def test_imports_point_down(self, path: Path) -> None:
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for name in imported_modules(path):
            target = name.split(".")[0]
            assert target == part or target in ALLOWED[part], f"{path.name} imports backstory.{name}"

    @pytest.mark.parametrize("path", modules(), ids=lambda path: path.relative_to(SOURCE).as_posix())
    def test_the_local_archive_is_private(self, path: Path) -> None:
        inside = path.is_relative_to(SOURCE / "archive") or path == SOURCE / "library.py"
        assert inside or not any(name.startswith("archive.local") for name in imported_modules(path))

    @pytest.mark.parametrize(
        "path", sorted((SOURCE / "toolsets").rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix()
    )
    def test_toolsets_do_not_know_one_another(self, path: Path) -> None:
        own = path.relative_to(SOURCE / "toolsets").parts[0]
        for name in imported_modules(path):
            if name.startswith("toolsets."):
                assert name.split(".")[1] in (own, "base"), f"{path.name} imports backstory.{name}"
