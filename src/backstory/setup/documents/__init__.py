"""Configuration files of agents in JSON with comments, TOML and YAML: one entry is read, set or removed as text.

Every edit is checked by parsing the text before and after it. An edit that changes more than the entry is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from . import json, toml, yaml

Format = Literal["json", "toml", "yaml", "yaml list"]
"""`yaml list`: YAML in which the entries are a list, each with its name in it."""


class Refused(Exception):
    """A file that is left as it is; the message says why."""


class _Editor(NamedTuple):
    parse: Callable[[str], Any]
    put: Callable[[str, Sequence[str], Mapping[str, Any]], str]
    drop: Callable[[str, Sequence[str]], str]


_EDITORS: dict[Format, _Editor] = {
    "json": _Editor(json.parse, json.put, json.drop),
    "toml": _Editor(toml.parse, toml.put, toml.drop),
    "yaml": _Editor(yaml.parse, yaml.put, yaml.drop),
    "yaml list": _Editor(yaml.parse_lists, yaml.put_item, yaml.drop_item),
}


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
