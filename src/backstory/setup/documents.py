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
_EMPTY = re.compile(r":[ \t]*(?:\[[ \t]*\]|null|~)")


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


def _parse_yaml(text: str) -> Any:
    """The value of a text; that of an empty one is an empty mapping. Raises ValueError for what is not YAML."""
    if not text.strip():
        return {}
    try:
        value = msgspec.yaml.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    return {} if value is None else value


def _put_pair(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """Set an entry in a top-level mapping; `path` is the name of the mapping and that of the entry."""
    mapping, name = path
    if name in (_parse_yaml(text).get(mapping) or {}):
        text = _drop_pair(text, path)
    lines = text.splitlines(keepends=True)
    newline = "\r\n" if "\r\n" in text else "\n"
    place = _line_of(lines, mapping)
    if place is None:
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += newline
        return "".join(lines) + newline.join([f"{mapping}:", *_block(name, entry, _YAML_INDENT)]) + newline
    indent = next((_indent_of(line) for line in lines[place + 1 :] if _is_content(line)), 0) or _YAML_INDENT
    opening = re.sub(r":[ \t]*(?:\{[ \t]*\}|null|~)", ":", lines[place].rstrip("\r\n"), count=1)
    added = [opening, *_block(name, entry, indent)]
    lines[place] = newline.join(added) + newline
    return "".join(lines)


def _drop_pair(text: str, path: Sequence[str]) -> str:
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
    if not (_parse_yaml("".join(rest)) or {}).get(mapping):
        rest[place] = re.sub(r":", ": {}", rest[place], count=1)
    return "".join(rest)


def _parse_lists(text: str) -> Any:
    """The value of a text, with the sequences of its top level as mappings. Raises ValueError for what is not YAML."""
    value = _parse_yaml(text)
    if not isinstance(value, dict):
        return value
    return {key: _by_name(inner) if isinstance(inner, list) else inner for key, inner in value.items()}


def _put_item(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """Set an item of a top-level sequence; `path` is the name of the sequence and that of the item."""
    sequence, name = path
    if name in (_parse_lists(text).get(sequence) or {}):
        text = _drop_item(text, path)
    lines = text.splitlines(keepends=True)
    newline = "\r\n" if "\r\n" in text else "\n"
    place = _line_of(lines, sequence)
    if place is None:
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += newline
        lines.append("")
        opening, indent = f"{sequence}:", 2
    else:
        items = _item_lines(lines, place)
        opening = _EMPTY.sub(":", lines[place].rstrip("\r\n"), count=1)
        indent = _indent_of(lines[items[0][0]]) if items else 2
    lines[-1 if place is None else place] = newline.join([opening, *_item_block(name, entry, indent)]) + newline
    return "".join(lines)


def _drop_item(text: str, path: Sequence[str]) -> str:
    """Cut out the lines of an item; a sequence that is empty then becomes `[]`."""
    sequence, name = path
    lines = text.splitlines(keepends=True)
    place = _line_of(lines, sequence)
    if place is None:
        raise ValueError(f"{sequence} has no line of its own")
    items = _item_lines(lines, place)
    start, end = next((start, end) for start, end in items if name in _by_name(_parse_yaml("".join(lines[start:end]))))
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


def _item_lines(lines: list[str], place: int) -> list[tuple[int, int]]:
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


_EDITORS: dict[Format, _Editor] = {
    "json": _Editor(json_text.parse, json_text.put, json_text.drop),
    "toml": _Editor(tomllib.loads, _put_table, _drop_table),
    "yaml": _Editor(_parse_yaml, _put_pair, _drop_pair),
    "yaml list": _Editor(_parse_lists, _put_item, _drop_item),
}
