"""Editing tables of a TOML file as text: a table is appended, changed in its lines, or cut out."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_HEADER = re.compile(r"^[ \t]*\[\[?[ \t]*(?P<name>[^\[\]]+?)[ \t]*\]\]?[ \t]*(?:#.*?)?\r?$", re.MULTILINE)
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def parse(text: str) -> Any:
    """Raises ValueError for what is not TOML."""
    return tomllib.loads(text)


def put(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """Append the table at a path, or set its keys if it is there."""
    span = _span(text, path, subtables=False)
    if span is not None:
        section = text[span[0] : span[1]]
        for key, value in entry.items():
            section = _set(section, key, value)
        return text[: span[0]] + section + text[span[1] :]
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text.strip() else newline if text.endswith("\n") else 2 * newline
    lines = [f"[{'.'.join(map(_key, path))}]", *(f"{key} = {_value(value)}" for key, value in entry.items())]
    return text + gap + newline.join(lines) + newline


def drop(text: str, path: Sequence[str]) -> str:
    """Cut out the table at a path with the tables below it, and the blank line before it."""
    while (span := _span(text, path, subtables=True)) is not None:
        head, tail = text[: span[0]], text[span[1] :]
        if not tail.strip():
            head = re.sub(r"(\r?\n)[ \t]*\r?\n$", r"\1", head)
        text = head + tail
    return text


def _span(text: str, path: Sequence[str], *, subtables: bool) -> tuple[int, int] | None:
    """The place of a table: from its header up to the next header."""
    headers = list(_headers(text))
    for number, (start, name) in enumerate(headers):
        if name == list(path) or (subtables and name[: len(path)] == list(path)):
            return start, headers[number + 1][0] if number + 1 < len(headers) else len(text)
    return None


def _headers(text: str) -> Iterator[tuple[int, list[str]]]:
    for found in _HEADER.finditer(text):
        try:
            yield found.start(), _names(tomllib.loads(f"[{found['name']}]"))
        except tomllib.TOMLDecodeError:
            continue


def _names(table: dict[str, Any]) -> list[str]:
    names = []
    while table:
        name, table = next(iter(table.items()))
        names.append(name)
    return names


def _set(section: str, key: str, value: Any) -> str:
    line = re.compile(rf"^([ \t]*{re.escape(key)}[ \t]*=[ \t]*)[^\n]*?(\r?)$", re.MULTILINE)
    changed, count = line.subn(lambda found: f"{found[1]}{_value(value)}{found[2]}", section, count=1)
    if count:
        return changed
    head, newline, rest = section.partition("\n")
    return f"{head}{newline or chr(10)}{key} = {_value(value)}\n{rest}"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _value(value: Any) -> str:
    """Strings, numbers, booleans and lists of them are written in TOML as in JSON."""
    return json.dumps(value, ensure_ascii=False)
