"""Editing a YAML file as text: an entry of a block mapping, or an item of a block sequence, is added or cut out.

A sequence of items with names (`put_item`, `drop_item`) reads as a mapping of names to items, by `parse_lists`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_DEFAULT_INDENT = 2
_EMPTY = re.compile(r":[ \t]*(?:\[[ \t]*\]|null|~)")


def parse(text: str) -> Any:
    """The value of a text; that of an empty one is an empty mapping. Raises ValueError for what is not YAML."""
    if not text.strip():
        return {}
    try:
        value = msgspec.yaml.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    return {} if value is None else value


def put(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """Set an entry in a top-level mapping; `path` is the name of the mapping and that of the entry."""
    mapping, name = path
    if name in (parse(text).get(mapping) or {}):
        text = drop(text, path)
    lines = text.splitlines(keepends=True)
    newline = "\r\n" if "\r\n" in text else "\n"
    place = _line_of(lines, mapping)
    if place is None:
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += newline
        return "".join(lines) + newline.join([f"{mapping}:", *_block(name, entry, _DEFAULT_INDENT)]) + newline
    indent = next((_indent_of(line) for line in lines[place + 1 :] if _is_content(line)), 0) or _DEFAULT_INDENT
    opening = re.sub(r":[ \t]*(?:\{[ \t]*\}|null|~)", ":", lines[place].rstrip("\r\n"), count=1)
    added = [opening, *_block(name, entry, indent)]
    lines[place] = newline.join(added) + newline
    return "".join(lines)


def drop(text: str, path: Sequence[str]) -> str:
    """Cut out the lines of an entry; a mapping that is empty then becomes `{}`."""
    mapping, name = path
    lines = text.splitlines(keepends=True)
    place = _line_of(lines, mapping)
    if place is None:
        raise ValueError(f"{mapping} has no line of its own")
    start = next(
        number
        for number in range(place + 1, len(lines))
        if re.match(rf"[ ]+(['\"]?){re.escape(name)}\1:", lines[number])
    )
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or _indent_of(lines[end]) > _indent_of(lines[start])):
        end += 1
    while end > start + 1 and not lines[end - 1].strip():
        end -= 1
    rest = lines[:start] + lines[end:]
    if not (parse("".join(rest)) or {}).get(mapping):
        rest[place] = re.sub(r":", ": {}", rest[place], count=1)
    return "".join(rest)


def parse_lists(text: str) -> Any:
    """The value of a text, with the sequences of its top level as mappings. Raises ValueError for what is not YAML."""
    value = parse(text)
    if not isinstance(value, dict):
        return value
    return {key: _by_name(inner) if isinstance(inner, list) else inner for key, inner in value.items()}


def put_item(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """Set an item of a top-level sequence; `path` is the name of the sequence and that of the item."""
    sequence, name = path
    if name in (parse_lists(text).get(sequence) or {}):
        text = drop_item(text, path)
    lines = text.splitlines(keepends=True)
    newline = "\r\n" if "\r\n" in text else "\n"
    place = _line_of(lines, sequence)
    if place is None:
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += newline
        lines.append("")
        opening, indent = f"{sequence}:", 2
    else:
        items = _items(lines, place)
        opening = _EMPTY.sub(":", lines[place].rstrip("\r\n"), count=1)
        indent = _indent_of(lines[items[0][0]]) if items else 2
    lines[-1 if place is None else place] = newline.join([opening, *_item_block(name, entry, indent)]) + newline
    return "".join(lines)


def drop_item(text: str, path: Sequence[str]) -> str:
    """Cut out the lines of an item; a sequence that is empty then becomes `[]`."""
    sequence, name = path
    lines = text.splitlines(keepends=True)
    place = _line_of(lines, sequence)
    if place is None:
        raise ValueError(f"{sequence} has no line of its own")
    items = _items(lines, place)
    start, end = next((start, end) for start, end in items if name in _by_name(parse("".join(lines[start:end]))))
    rest = lines[:start] + lines[end:]
    if len(items) == 1:
        rest[place] = rest[place].replace(":", ": []", 1)
    return "".join(rest)


def _line_of(lines: list[str], mapping: str) -> int | None:
    return next((number for number, line in enumerate(lines) if re.match(rf"{re.escape(mapping)}[ \t]*:", line)), None)


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _block(name: str, entry: Mapping[str, Any], indent: int) -> list[str]:
    """Values are written as in JSON, which is YAML too."""
    inner = " " * 2 * indent
    return [f"{' ' * indent}{name}:", *(f"{inner}{key}: {json.dumps(value)}" for key, value in entry.items())]


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
        if not _is_content(line):
            continue
        is_item = re.match(r" *-(\s|$)", line) is not None
        if indent is None:
            indent = _indent_of(line)
        if is_item and _indent_of(line) == indent:
            found.append((number, number + 1))
        elif _indent_of(line) <= indent:
            break
        elif found:
            found[-1] = (found[-1][0], number + 1)
    return found


def _item_block(name: str, entry: Mapping[str, Any], indent: int) -> list[str]:
    """Values are written as in JSON, which is YAML too."""
    pairs = {"name": name, **entry}
    first, *others = (f"{key}: {json.dumps(value)}" for key, value in pairs.items())
    return [f"{' ' * indent}- {first}", *(f"{' ' * indent}  {other}" for other in others)]
