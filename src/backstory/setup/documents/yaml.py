"""Editing a block mapping of a YAML file as text: an entry is added to it, or its lines are cut out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_DEFAULT_INDENT = 2


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
    place = line_of(lines, mapping)
    if place is None:
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += newline
        return "".join(lines) + newline.join([f"{mapping}:", *_block(name, entry, _DEFAULT_INDENT)]) + newline
    indent = next((indent_of(line) for line in lines[place + 1 :] if is_content(line)), 0) or _DEFAULT_INDENT
    opening = re.sub(r":[ \t]*(?:\{[ \t]*\}|null|~)", ":", lines[place].rstrip("\r\n"), count=1)
    added = [opening, *_block(name, entry, indent)]
    lines[place] = newline.join(added) + newline
    return "".join(lines)


def drop(text: str, path: Sequence[str]) -> str:
    """Cut out the lines of an entry; a mapping that is empty then becomes `{}`."""
    mapping, name = path
    lines = text.splitlines(keepends=True)
    place = line_of(lines, mapping)
    if place is None:
        raise ValueError(f"{mapping} has no line of its own")
    start = next(
        number
        for number in range(place + 1, len(lines))
        if re.match(rf"[ ]+(['\"]?){re.escape(name)}\1:", lines[number])
    )
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or indent_of(lines[end]) > indent_of(lines[start])):
        end += 1
    while end > start + 1 and not lines[end - 1].strip():
        end -= 1
    rest = lines[:start] + lines[end:]
    if not (parse("".join(rest)) or {}).get(mapping):
        rest[place] = re.sub(r":", ": {}", rest[place], count=1)
    return "".join(rest)


def line_of(lines: list[str], mapping: str) -> int | None:
    return next((number for number, line in enumerate(lines) if re.match(rf"{re.escape(mapping)}[ \t]*:", line)), None)


def is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _block(name: str, entry: Mapping[str, Any], indent: int) -> list[str]:
    """Values are written as in JSON, which is YAML too."""
    inner = " " * 2 * indent
    return [f"{' ' * indent}{name}:", *(f"{inner}{key}: {json.dumps(value)}" for key, value in entry.items())]
