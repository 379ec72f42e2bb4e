"""Editing a block sequence of named mappings in a YAML file as text: an item is added to it, or its lines are cut out.

To the rest of this package such a sequence is a mapping of names to items.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from . import yaml

_EMPTY = re.compile(r":[ \t]*(?:\[[ \t]*\]|null|~)")


def parse(text: str) -> Any:
    """The value of a text, with the sequences of its top level as mappings. Raises ValueError for what is not YAML."""
    value = yaml.parse(text)
    if not isinstance(value, dict):
        return value
    return {key: _by_name(inner) if isinstance(inner, list) else inner for key, inner in value.items()}


def put(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """Set an item of a top-level sequence; `path` is the name of the sequence and that of the item."""
    sequence, name = path
    if name in (parse(text).get(sequence) or {}):
        text = drop(text, path)
    lines = text.splitlines(keepends=True)
    newline = "\r\n" if "\r\n" in text else "\n"
    place = yaml.line_of(lines, sequence)
    if place is None:
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += newline
        lines.append("")
        opening, indent = f"{sequence}:", 2
    else:
        items = _items(lines, place)
        opening = _EMPTY.sub(":", lines[place].rstrip("\r\n"), count=1)
        indent = yaml.indent_of(lines[items[0][0]]) if items else 2
    lines[-1 if place is None else place] = newline.join([opening, *_block(name, entry, indent)]) + newline
    return "".join(lines)


def drop(text: str, path: Sequence[str]) -> str:
    """Cut out the lines of an item; a sequence that is empty then becomes `[]`."""
    sequence, name = path
    lines = text.splitlines(keepends=True)
    place = yaml.line_of(lines, sequence)
    if place is None:
        raise ValueError(f"{sequence} has no line of its own")
    items = _items(lines, place)
    start, end = next((start, end) for start, end in items if name in _by_name(yaml.parse("".join(lines[start:end]))))
    rest = lines[:start] + lines[end:]
    if len(items) == 1:
        rest[place] = rest[place].replace(":", ": []", 1)
    return "".join(rest)


def _by_name(items: list[Any]) -> dict[str, Any]:
    """The rest of each item by its name; an item without one is named by its content. Raises ValueError for two items
    of one name."""
    named = dict(map(_named, items))
    if len(named) < len(items):
        raise ValueError("two items of a list have the same name")
    return named


def _named(item: Any) -> tuple[str, Any]:
    if isinstance(item, dict) and isinstance(item.get("name"), str):
        return item["name"], {key: value for key, value in item.items() if key != "name"}
    return json.dumps(item, default=str), item


def _items(lines: list[str], place: int) -> list[tuple[int, int]]:
    """The lines of each item of the sequence below a line, without the comments and blank lines after it."""
    found: list[tuple[int, int]] = []
    indent = None
    for number in range(place + 1, len(lines)):
        line = lines[number]
        if not yaml.is_content(line):
            continue
        is_item = re.match(r" *-(\s|$)", line) is not None
        if indent is None:
            indent = yaml.indent_of(line)
        if is_item and yaml.indent_of(line) == indent:
            found.append((number, number + 1))
        elif yaml.indent_of(line) <= indent:
            break
        elif found:
            found[-1] = (found[-1][0], number + 1)
    return found


def _block(name: str, entry: Mapping[str, Any], indent: int) -> list[str]:
    """Values are written as in JSON, which is YAML too."""
    pairs = {"name": name, **entry}
    first, *others = (f"{key}: {json.dumps(value)}" for key, value in pairs.items())
    return [f"{' ' * indent}- {first}", *(f"{' ' * indent}  {other}" for other in others)]
