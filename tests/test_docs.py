"""The docs say everything there is to use: a command, an option, a tool or a setting without words there fails here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
from msgspec import Struct

from backstory.config import Settings
from backstory.faces.cli.app import COMMANDS, program
from backstory.library import TOOLSETS, Library

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="module")
def docs() -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted(DOCS.glob("*.md")))


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its name as it is typed."""
    for name in COMMANDS:
        command = program.get_command(click.Context(program), name)
        assert command is not None
        if isinstance(command, click.Group):
            for inner in command.list_commands(click.Context(command)):
                found = command.get_command(click.Context(command), inner)
                assert found is not None
                yield f"{name} {inner}", found
        else:
            yield name, command


def settings(kind: type[Struct] = Settings, prefix: str = "") -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, Struct):
            yield from settings(field.type, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


class TestCommands:
    @pytest.mark.parametrize(("name", "command"), list(commands()), ids=lambda value: str(value).partition(" at ")[0])
    def test_are_documented(self, docs: str, name: str, command: click.Command) -> None:
        """With every option they take."""
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
    @pytest.mark.parametrize("name", list(settings()))
    def test_are_documented(self, name: str) -> None:
        """In the file and as a variable, in the page about them."""
        page = (DOCS / "configuration.md").read_text("utf-8")
        variable = f"BACKSTORY_{name.replace('.', '_').upper()}"

        assert f"| `{name}` | `{variable}` |" in page
