"""Editing JSON and JSON with comments as text: what is not edited keeps every byte.

Comments (`//`, `/* */`), trailing commas and a byte order mark are read over, as editors and agents do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

_BLANK = re.compile(r"(?:[\s\ufeff]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"[-+.\w]+")
_DEFAULT_INDENT = "  "


class Node(Struct):
    """A value and the place of its text."""

    value: Any
    start: int
    end: int
    children: list[Child] = []

    def child(self, key: str) -> Child | None:
        """The member of an object; the last one where a key is there twice, as every reader takes it."""
        return next((child for child in reversed(self.children) if child.key == key), None)


class Child(Struct):
    """A member of an object with its key, or an item of an array."""

    key: str | None
    start: int
    node: Node


def parse(text: str) -> Any:
    """The value of a text; that of an empty one is an empty object. Raises ValueError for what is not JSON."""
    return _scan(text).value


def put(text: str, path: Sequence[str], value: Any) -> str:
    """Set the value at a path; objects that are missing on the way are added."""
    if _skip(text, 0) == len(text):
        text = "{}\n"
    node = _scan(text)
    for depth, key in enumerate(path):
        if not isinstance(node.value, dict):
            raise ValueError(f"{'.'.join(path[:depth]) or 'it'} is not an object")
        child = node.child(key)
        if child is None:
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            return _insert(text, node, key, value)
        node = child.node
    return text[: node.start] + _render(text, value, _line_indent(text, node.start)) + text[node.end :]


def append(text: str, path: Sequence[str], item: Any) -> str:
    """Add an item to the array at a path; an array that is missing is added."""
    node = _at(text, path)
    return put(text, path, [item]) if node is None else _insert(text, node, None, item)


def drop(text: str, path: Sequence[str]) -> str:
    """Remove the member at a path, with the comma that separates it; other members stay as they are."""
    node = _at(text, path[:-1])
    child = node.child(path[-1]) if node is not None else None
    if node is None or child is None:
        return text
    return _cut(text, node, node.children.index(child))


def drop_items(text: str, path: Sequence[str], is_own: Callable[[Any], bool]) -> str:
    """Remove items of the array at a path."""
    node = _at(text, path)
    for number in reversed(range(len(node.children) if node is not None else 0)):
        assert node is not None
        if is_own(node.children[number].node.value):
            text = _cut(text, node, number)
            node = _at(text, path)
    return text


def _at(text: str, path: Sequence[str]) -> Node | None:
    node = _scan(text)
    for key in path:
        child = node.child(key)
        if child is None:
            return None
        node = child.node
    return node


def _cut(text: str, node: Node, number: int) -> str:
    child = node.children[number]
    start, end = _start_of_line(text, child.start), child.node.end
    comma = _skip(text, end)
    if text[comma] == ",":
        return text[:start] + text[comma + 1 :]
    if number:
        before = _skip(text, node.children[number - 1].node.end)
        return text[:before] + text[before + 1 : start] + text[end:]
    rest = text[:start] + text[end:]
    alone = len(node.children) == 1 and not text[node.start + 1 : start].strip()
    return rest[: node.start + 1] + rest[start:].lstrip() if alone else rest


def _insert(text: str, node: Node, key: str | None, value: Any) -> str:
    """Add a member at the end of an object, or an item at the end of an array."""
    close = node.end - 1
    inner = text[node.start + 1 : close]
    label = "" if key is None else f"{json.dumps(key)}: "
    last = node.children[-1] if node.children else None
    needs_comma = last is not None and text[_skip(text, last.node.end)] != ","
    trailing = "," if last is not None and not needs_comma else ""
    position = node.start + 1 + len(inner.rstrip())
    if last is not None and "\n" not in inner:
        added = f" {label}{json.dumps(value, ensure_ascii=False)}{trailing}"
        return text[:position] + ("," if needs_comma else "") + added + text[position:]
    newline, outer = _newline(text), _line_indent(text, node.start)
    indent = _line_indent(text, last.start) if last is not None else outer + _unit(text)
    head = text[:position]
    if last is not None and needs_comma:  # before a comment that follows it
        head = f"{text[: last.node.end]},{text[last.node.end : position]}"
    tail = text[position:] if "\n" in text[position:close] else newline + outer + text[close:]
    return f"{head}{newline}{indent}{label}{_render(text, value, indent)}{trailing}{tail}"


def _render(text: str, value: Any, indent: str) -> str:
    unit, newline = _unit(text), _newline(text)
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", newline + indent)


def _unit(text: str) -> str:
    """The indentation of one level: that of the first indented line."""
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else _DEFAULT_INDENT


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_indent(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _start_of_line(text: str, position: int) -> int:
    """The position before the blanks in front of a member, and before its line break where it begins a line."""
    start = len(text[:position].rstrip(" \t"))
    if start and text[start - 1] == "\n":
        start -= 1
        if start and text[start - 1] == "\r":
            start -= 1
    return start


def _scan(text: str) -> Node:
    start = _skip(text, 0)
    if start == len(text):
        return Node({}, start, start)
    node = _value(text, start)
    if _skip(text, node.end) != len(text):
        raise ValueError(f"unexpected text after the end, at character {node.end}")
    return node


def _skip(text: str, position: int) -> int:
    """The next position that is neither blank nor a comment."""
    found = _BLANK.match(text, position)
    assert found is not None
    return found.end()


def _value(text: str, start: int) -> Node:
    opening = text[start : start + 1]
    if opening == "{":
        return _object(text, start)
    if opening == "[":
        return _array(text, start)
    pattern = _STRING if opening == '"' else _SCALAR
    if found := pattern.match(text, start):
        return Node(json.loads(found[0]), start, found.end())
    raise ValueError(f"no value at character {start}")


def _object(text: str, start: int) -> Node:
    node = Node({}, start, start, [])
    position = _skip(text, start + 1)
    while text[position : position + 1] != "}":
        key = _STRING.match(text, position)
        if key is None:
            raise ValueError(f"no key at character {position}")
        colon = _skip(text, key.end())
        if text[colon : colon + 1] != ":":
            raise ValueError(f"no colon at character {colon}")
        name = json.loads(key[0])
        inner = _value(text, _skip(text, colon + 1))
        node.value[name] = inner.value
        node.children.append(Child(name, position, inner))
        position = _after_item(text, inner.end, "}")
    node.end = position + 1
    return node


def _array(text: str, start: int) -> Node:
    node = Node([], start, start, [])
    position = _skip(text, start + 1)
    while text[position : position + 1] != "]":
        inner = _value(text, position)
        node.value.append(inner.value)
        node.children.append(Child(None, position, inner))
        position = _after_item(text, inner.end, "]")
    node.end = position + 1
    return node


def _after_item(text: str, end: int, closing: str) -> int:
    """The position of the next item, or of the closing bracket."""
    position = _skip(text, end)
    if text[position : position + 1] == ",":
        return _skip(text, position + 1)
    if text[position : position + 1] != closing:
        raise ValueError(f"no comma at character {position}")
    return position
