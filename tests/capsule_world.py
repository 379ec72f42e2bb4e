"""Capsules for tests: a store in a home of its own, called through the tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from backstory.config import load_settings
from backstory.toolsets.capsules.sections import SECTIONS
from backstory.toolsets.capsules.tools import toolset

Json = dict[str, Any]


class Answer(msgspec.Struct):
    """The answer to a call, by the handler or over MCP."""

    data: Json
    text: str
    is_error: bool


Call = Callable[[str, Json], Answer]


def capsule_text(about: str = "work", **sections: str) -> str:
    """A capsule with all six sections, filled in or saying what it is about."""
    given = {name.replace("_", " ").lower(): body for name, body in sections.items()}
    return "\n\n".join(f"## {section}\n{given.get(section.lower(), f'- {about}')}" for section in SECTIONS) + "\n"


GOOD = capsule_text()


class World:
    """The tools of one home."""

    def __init__(self, home: Path, call: Call) -> None:
        self.home = home
        self.call = call

    @property
    def exports(self) -> Path:
        return self.home / "exports"

    def ok(self, verb: str, /, **arguments: Any) -> Json:
        answer = self.call(f"moss.{verb}", arguments)
        assert not answer.is_error, answer.text
        return answer.data

    def refused(self, verb: str, /, **arguments: Any) -> Json:
        """The error object of a call that must fail."""
        answer = self.call(f"moss.{verb}", arguments)
        assert answer.is_error, answer.text
        assert set(answer.data) == {"error"}
        error: Json = answer.data["error"]
        return error

    def store(self, name: str | None = None, text: str = GOOD, /, **arguments: Any) -> str:
        if name is not None:
            arguments["name"] = name
        stored: str = self.ok("store", capsule_text=text, **arguments)["id"]
        return stored

    def names(self, verb: str = "inventory", /, **arguments: Any) -> list[str | None]:
        return [item.get("name") for item in self.ok(verb, **arguments)["items"]]

    def write(self, name: str, *lines: Any) -> Path:
        """An import file in the exports folder; objects become JSON lines."""
        self.exports.mkdir(mode=0o700, exist_ok=True)
        path = self.exports / name
        encoded = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
        path.write_bytes(b"".join(line + b"\n" for line in encoded))
        return path


HEADER: Json = {"_moss_export": True, "schema_version": "1.0", "exported_at": 1_700_000_000}


def record(number: int = 1, **fields: Any) -> Json:
    """A line of an export, as Moss writes it."""
    return {
        "id": f"01HZZZZZZZZZZZZZZZZZZZZZ{number:02d}",
        "workspace_raw": "Default",
        "workspace_norm": "not trusted",
        "name_raw": f"Task {number}",
        "name_norm": "not trusted",
        "title": f"Task {number}",
        "capsule_text": GOOD,
        "capsule_chars": 1,
        "tokens_estimate": 1,
        "tags": None,
        "source": None,
        "created_at": 1_700_000_000 + number,
        "updated_at": 1_700_000_100 + number,
        "deleted_at": None,
    } | fields


def handler_call(home: Path) -> Call:
    """Calls that go to the tools' handlers."""
    tools = toolset(home, load_settings(home, {}).capsules).tools
    handlers = {name: tool.handler for tool in tools for name in (tool.name, *tool.aliases)}

    def call(name: str, arguments: Json) -> Answer:
        reply = handlers[name](arguments)
        return Answer(reply.data, reply.text, reply.is_error)

    return call
