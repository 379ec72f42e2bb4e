"""Configuration files of agents in JSON with comments, TOML and YAML: one entry is read, set or removed as text.

Every edit is checked by parsing the text before and after it. An edit that changes more than the entry is refused.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from . import json_text

Format = Literal["json", "toml", "yaml", "yaml list"]
"""`yaml list`: YAML in which the entries are a list, each with its name in it."""
_HEADER = re.compile(r"^[ \t]*\[\[?[ \t]*(?P<name>[^\[\]]+?)[ \t]*\]\]?[ \t]*(?:#.*?)?\r?$", re.MULTILINE)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_YAML_INDENT = 2
_EMPTY = re.compile(r":[ \t]*(?:\{[ \t]*\}|\[[ \t]*\]|null|~)")


class Refused(Exception):
    """A file that is left as it is; the message says why."""


class _Editor(NamedTuple):
    parse: Callable[[str], Any]
    put: Callable[[str, Sequence[str], Mapping[str, Any]], str]
    drop: Callable[[str, Sequence[str]], str]


def read_entry(text: str, format: Format, path: Sequence[str]) -> Any:
    """The value at a path, or None. Raises Refused for a text that cannot be parsed."""
    value = _parse(_EDITORS[format], text)
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def set_entry(text: str, format: Format, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """The text with the entry at the path. Keys of an entry that is there already and not in the new one stay."""
    before = read_entry(text, format, path)
    whole = {**before, **entry} if isinstance(before, dict) else dict(entry)
    if whole == before:
        return text
    editor = _EDITORS[format]
    expected = copy.deepcopy(_parse(editor, text))
    inner = expected
    for key in path[:-1]:
        if not isinstance(inner, dict):
            raise Refused("its structure is not the expected one")
        if inner.get(key) is None:  # missing, or `key:` without a value in YAML
            inner[key] = {}
        inner = inner[key]
    if not isinstance(inner, dict):
        raise Refused(f"{'.'.join(path[:-1])} is not a table of entries")
    inner[path[-1]] = whole
    return _checked(editor, lambda: editor.put(text, path, whole), expected)


def drop_entry(text: str, format: Format, path: Sequence[str]) -> str:
    """The text without the entry at the path."""
    if read_entry(text, format, path) is None:
        return text
    editor = _EDITORS[format]
    expected = copy.deepcopy(_parse(editor, text))
    inner = expected
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return _checked(editor, lambda: editor.drop(text, path), expected)


def _parse(editor: _Editor, text: str) -> Any:
    try:
        value = editor.parse(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"it cannot be parsed ({error})") from None
    if not isinstance(value, dict):
        raise Refused("it holds no table of settings")
    return value


def _checked(editor: _Editor, edit: Callable[[], str], expected: Any) -> str:
    try:
        changed = edit()
        if _without_empty(editor.parse(changed)) == _without_empty(expected):
            return changed
    except (ValueError, KeyError, IndexError, StopIteration, RecursionError):
        pass
    raise Refused("its layout cannot be edited without changing more than the entry")


def _without_empty(table: Any) -> Any:
    """TOML forgets a table whose last entry is cut out; an empty one says the same."""
    return {key: value for key, value in table.items() if value != {}} if isinstance(table, dict) else table


# TOML: a table is appended, changed in its lines, or cut out


def _put_table(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """Append the table at a path, or set its keys if it is there."""
    span = _table_span(text, path, subtables=False)
    if span is not None:
        section = text[span[0] : span[1]]
        for key, value in entry.items():
            section = _set_key(section, key, value)
        return text[: span[0]] + section + text[span[1] :]
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text.strip() else newline if text.endswith("\n") else 2 * newline
    lines = [f"[{'.'.join(map(_toml_key, path))}]", *(f"{key} = {_toml_value(value)}" for key, value in entry.items())]
    return text + gap + newline.join(lines) + newline


def _drop_table(text: str, path: Sequence[str]) -> str:
    """Cut out the table at a path with the tables below it, and the blank line before it."""
    while (span := _table_span(text, path, subtables=True)) is not None:
        head, tail = text[: span[0]], text[span[1] :]
        if not tail.strip():
            head = re.sub(r"(\r?\n)[ \t]*\r?\n$", r"\1", head)
        text = head + tail
    return text


def _table_span(text: str, path: Sequence[str], *, subtables: bool) -> tuple[int, int] | None:
    """The place of a table: from its header up to the next header."""
    headers = list(_headers(text))
    for number, (start, name) in enumerate(headers):
        if name == list(path) or (subtables and name[: len(path)] == list(path)):
            return start, headers[number + 1][0] if number + 1 < len(headers) else len(text)
    return None


def _headers(text: str) -> Iterator[tuple[int, list[str]]]:
    for found in _HEADER.finditer(text):
        try:
            yield found.start(), _header_names(tomllib.loads(f"[{found['name']}]"))
        except tomllib.TOMLDecodeError:
            continue


def _header_names(table: dict[str, Any]) -> list[str]:
    names = []
    while table:
        name, table = next(iter(table.items()))
        names.append(name)
    return names


def _set_key(section: str, key: str, value: Any) -> str:
    line = re.compile(rf"^([ \t]*{re.escape(key)}[ \t]*=[ \t]*)[^\n]*?(\r?)$", re.MULTILINE)
    changed, count = line.subn(lambda found: f"{found[1]}{_toml_value(value)}{found[2]}", section, count=1)
    if count:
        return changed
    head, newline, rest = section.partition("\n")
    return f"{head}{newline or chr(10)}{key} = {_toml_value(value)}\n{rest}"


def _toml_key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _toml_value(value: Any) -> str:
    """Strings, numbers, booleans and lists of them are written in TOML as in JSON."""
    return json.dumps(value, ensure_ascii=False)


# YAML: an entry of a block mapping, or an item of a block sequence, is added or cut out. A sequence of items with names
# reads as a mapping of names to items.


class _Yaml(NamedTuple):
    """A form in which a top-level key of YAML holds entries. `path` is the name of the key and that of the entry."""

    parse: Callable[[str], Any]
    first_line: re.Pattern[str]
    """The first line of an entry."""
    is_named: Callable[[str, str], bool]
    """True if the lines of an entry are those of a name."""
    write: Callable[[str, Mapping[str, Any], int], list[str]]
    """The lines of an entry: its name, its content, its indentation."""
    empty: str

    def put(self, text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
        """Set an entry, as the first one."""
        key, name = path
        if name in (self.parse(text).get(key) or {}):
            text = self.drop(text, path)
        lines = text.splitlines(keepends=True)
        newline = "\r\n" if "\r\n" in text else "\n"
        place = _line_of(lines, key)
        if place is None:
            if lines and not lines[-1].endswith("\n"):
                lines[-1] += newline
            return "".join(lines) + newline.join([f"{key}:", *self.write(name, entry, _YAML_INDENT)]) + newline
        entries = self._spans(lines, place)
        indent = _indent_of(lines[entries[0][0]]) if entries else _YAML_INDENT
        opening = _EMPTY.sub(":", lines[place].rstrip("\r\n"), count=1)
        lines[place] = newline.join([opening, *self.write(name, entry, indent)]) + newline
        return "".join(lines)

    def drop(self, text: str, path: Sequence[str]) -> str:
        """Cut out the lines of an entry. A key without entries keeps an empty value."""
        key, name = path
        lines = text.splitlines(keepends=True)
        place = _line_of(lines, key)
        if place is None:
            raise ValueError(f"{key} has no line of its own")
        entries = self._spans(lines, place)
        start, end = next(span for span in entries if self.is_named("".join(lines[slice(*span)]), name))
        rest = lines[:start] + lines[end:]
        if len(entries) == 1:
            rest[place] = rest[place].replace(":", f": {self.empty}", 1)
        return "".join(rest)

    def _spans(self, lines: list[str], place: int) -> list[tuple[int, int]]:
        """The lines of each entry below a line, without the comments and blank lines after it."""
        found: list[tuple[int, int]] = []
        indent = None
        for number in range(place + 1, len(lines)):
            line = lines[number]
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            if indent is None:
                indent = _indent_of(line)
            if _indent_of(line) == indent and self.first_line.match(line):
                found.append((number, number + 1))
            elif _indent_of(line) <= indent:
                break
            elif found:
                found[-1] = (found[-1][0], number + 1)
        return found


def _line_of(lines: list[str], key: str) -> int | None:
    return next((number for number, line in enumerate(lines) if re.match(rf"{re.escape(key)}[ \t]*:", line)), None)


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _parse_yaml(text: str) -> Any:
    """The value of a text; that of an empty one is an empty mapping. Raises ValueError for what is not YAML."""
    if not text.strip():
        return {}
    try:
        value = msgspec.yaml.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    return {} if value is None else value


def _pair_lines(name: str, entry: Mapping[str, Any], indent: int) -> list[str]:
    """Values are written as in JSON, which is YAML too."""
    inner = " " * 2 * indent
    return [f"{' ' * indent}{name}:", *(f"{inner}{key}: {json.dumps(value)}" for key, value in entry.items())]


def _parse_lists(text: str) -> Any:
    """The value of a text, with the sequences of its top level as mappings. Raises ValueError for what is not YAML."""
    value = _parse_yaml(text)
    if not isinstance(value, dict):
        return value
    return {key: _by_name(inner) if isinstance(inner, list) else inner for key, inner in value.items()}


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


def _item_lines(name: str, entry: Mapping[str, Any], indent: int) -> list[str]:
    first, *others = (f"{key}: {json.dumps(value)}" for key, value in {"name": name, **entry}.items())
    return [f"{' ' * indent}- {first}", *(f"{' ' * indent}  {other}" for other in others)]


_PAIRS = _Yaml(
    _parse_yaml,
    re.compile(r" +\S"),
    lambda lines, name: re.match(rf" +(['\"]?){re.escape(name)}\1:", lines) is not None,
    _pair_lines,
    "{}",
)
_ITEMS = _Yaml(
    _parse_lists,
    re.compile(r" *-(\s|$)"),
    lambda lines, name: name in _by_name(_parse_yaml(lines)),
    _item_lines,
    "[]",
)
_EDITORS: dict[Format, _Editor] = {
    "json": _Editor(json_text.parse, json_text.put, json_text.drop),
    "toml": _Editor(tomllib.loads, _put_table, _drop_table),
    "yaml": _Editor(_PAIRS.parse, _PAIRS.put, _PAIRS.drop),
    "yaml list": _Editor(_ITEMS.parse, _ITEMS.put, _ITEMS.drop),
}
