"""The docs are complete and their links lead somewhere; the files around the project name commands that exist."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
import yaml
from msgspec import Struct

from backstory.config import Settings
from backstory.faces.cli.app import COMMANDS, program
from backstory.library import TOOLSETS, Library
from backstory.sources import OWN_SOURCES
from backstory.sources.agents import AGENTS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = (*sorted(DOCS.glob("*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")))
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def docs() -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted(DOCS.glob("*.md")))


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its name as it is typed."""
    for name in COMMANDS:
        command = program.get_command(click.Context(program), name)
        assert command is not None
        yield from _inner(name, command)


def _inner(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for inner in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), inner)
            assert found is not None
            yield from _inner(f"{name} {inner}", found)
    else:
        yield name, command


def settings(kind: type[Struct] = Settings, prefix: str = "") -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, Struct):
            yield from settings(field.type, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def prose(path: Path) -> str:
    return _FENCED.sub("", path.read_text("utf-8"))


def anchors(path: Path) -> set[str]:
    """The anchors that MkDocs gives the headings of a page."""
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in _HEADING.findall(prose(path)))
    return {re.sub(r"[-\s]+", "-", heading) for heading in plain}


class TestCommands:
    def test_are_documented(self, docs: str) -> None:
        """With every option they take."""
        for name, command in commands():
            assert f"backstory {name}" in docs
            for parameter in command.params:
                for option in parameter.opts if isinstance(parameter, click.Option) else ():
                    assert f"`{option}" in docs, f"backstory {name} {option}"


class TestTools:
    def test_are_documented(self, docs: str, tmp_path: Path) -> None:
        """By the name agents call them."""
        with Library(tmp_path) as library:
            for toolset in TOOLSETS:
                assert f"`{toolset}`" in docs
                for tool in library.toolset(toolset).tools:
                    assert f"`{tool.name}`" in docs, tool.name


class TestSettings:
    def test_are_documented(self) -> None:
        """In the file and as a variable, in the page about them."""
        page = (DOCS / "configuration.md").read_text("utf-8")

        for name in settings():
            variable = f"BACKSTORY_{name.replace('.', '_').upper()}"
            assert f"| `{name}` | `{variable}` |" in page


class TestSources:
    def test_are_documented(self) -> None:
        """Each in a row of the page about them, with its title, every variable that moves its folders, what it was
        checked against, and the command that continues a session."""
        page = (DOCS / "sources.md").read_text("utf-8").partition("## Tested versions")[0]
        for source in AGENTS:
            if source.name in OWN_SOURCES:
                continue
            (row,) = re.findall(rf"^\| .+ \| `{source.name}` \| .+ \|$", page, re.MULTILINE)
            title, _, places, checked, resumed = (cell.strip() for cell in row.strip("|").split("|"))
            assert title == source.title
            assert checked
            environ = Mentioned()
            source.roots(Path("/home/dev"), environ)
            for variable in environ.names - {"BACKSTORY_HOME"}:
                assert f"`{variable}`" in places, f"{source.name} {variable}"
            assert resumed.strip("`") == " ".join(source.resume("ID") or ()), source.name


class Mentioned(dict[str, str]):
    """An empty environment that notes what is looked for in it."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return default


class TestLinks:
    def test_lead_to_files_and_headings(self) -> None:
        """Within the docs, and from README and the guides into them."""
        for page in PAGES:
            for link in _LINK.findall(prose(page)):
                if "://" in link:
                    continue
                name, _, anchor = link.partition("#")
                target = page.parent / name if name else page
                assert target.is_file(), f"{page.name}: {link}"
                if anchor:
                    assert anchor in anchors(target), f"{page.name}: {link}"

    def test_of_the_docs_stay_within_them(self) -> None:
        """The site has nothing but the docs."""
        for page in DOCS.glob("*.md"):
            assert not [link for link in _LINK.findall(prose(page)) if link.startswith("..")], page.name

    def test_the_navigation_has_every_page_once(self) -> None:
        """A page that is missing there cannot be found in the site."""
        navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("nav:")[2].partition("theme:")[0]
        named = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)

        assert sorted(named) == sorted(path.name for path in DOCS.glob("*.md"))

    def test_pictures_can_be_read(self) -> None:
        """They are valid, load nothing, and describe themselves."""
        for path in DOCS.glob("images/*.svg"):
            picture = ElementTree.parse(path).getroot()
            names = {element.tag.rpartition("}")[2] for element in picture.iter()}
            assert {"title", "desc"} <= names
            assert not {"image", "script", "use"} & names


class TestProjectFiles:
    def test_issues_ask_for_the_report(self) -> None:
        """Every template does, and the command exists."""
        templates = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
        doctor = dict(commands())["doctor"]

        assert templates
        for path in templates:
            asked = {field["id"]: field for field in yaml.safe_load(path.read_text("utf-8"))["body"]}
            assert "backstory doctor --report" in asked["report"]["attributes"]["description"]
            assert asked["report"]["validations"]["required"]
        assert any("--report" in parameter.opts for parameter in doctor.params)

    def test_make_targets_exist(self) -> None:
        """Those that the guides, the hooks and the workflows name."""
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
        files = [ROOT / ".pre-commit-config.yaml", *(ROOT / ".github" / "workflows").glob("*.yml")]
        named = {
            name for path in files for name in re.findall(r"(?:run|entry): make ([a-z-]+)", path.read_text("utf-8"))
        }
        guides = (ROOT / name for name in ("README.md", "CONTRIBUTING.md"))
        named |= {name for path in guides for name in re.findall(r"`make ([a-z-]+)`", path.read_text("utf-8"))}

        assert {"check", "test", "docs"} <= named
        assert named <= targets
