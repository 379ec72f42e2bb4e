"""Conditions and sort orders as SQL. Values are bound, never written into the text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....model import InvalidId, SessionRef, parse_id
from ...spans import (
    CODES,
    METADATA,
    NAMES,
    NUMBERS,
    OF_TRACE,
    TRACE_NUMBERS,
    TRACE_TEXTS,
    Condition,
    Operator,
    Value,
    is_comparable,
    unnegated,
    within_integers,
)
from .rows import marked

_SIGNS = {"eq": "=", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_COST_SOURCE = "if(s.cost IS NULL, NULL, if(s.cost_reported, 'reported', 'computed'))"
_TIME = "concat(replaceOne(toString(fromUnixTimestamp64Milli({}, 'UTC')), ' ', 't'), 'z')"
_HEX = "lower(hex(reinterpretAsUInt64({})))"
# An unknown parent makes a root, which has none.
_KNOWN_PARENT = "(s.trace, s.parent) IN (SELECT trace, uid FROM span FINAL)"
# The kinds of values in the order that they sort in (`rows.marked`).
_KINDS = "nsb"


class Values(dict[str, Any]):
    """The values that a statement binds."""

    def bind(self, value: Any) -> str:
        name = f"v{len(self)}"
        self[name] = value
        return f"%({name})s"


def span_test(condition: Condition, values: Values) -> str:
    """The condition on a row `s` of `span`. `ne` matches every value that is not equal, and a missing one."""
    positive = Condition(condition.field, unnegated(condition.operator), condition.value)
    test = _sent_or_ours(positive, values) if condition.field in METADATA else _span_test(positive, values)
    return _negated(condition.operator, test)


def _negated(operator: Operator, test: str) -> str:
    """A missing value makes a test NULL, which is neither true nor false."""
    return f"NOT ifNull({test}, false)" if operator == "ne" else f"({test})"


def _span_test(condition: Condition, values: Values) -> str:
    field, operator, value = condition.field, condition.operator, condition.value
    if column := NUMBERS.get(field):
        return _number(f"s.{column}", operator, value, values)
    if column := NAMES.get(field):
        return _text(f"s.{column}", operator, value, values)
    if field in CODES:
        column, words = CODES[field]
        return _code(f"s.{column}", words, operator, value)
    if field == "traceId":
        return _text("s.trace", operator, value, values)
    if column := OF_TRACE.get(field):
        inner = (
            _session(operator, str(value), values)
            if column == "session"
            else _text(f"t.{column}", operator, value, values)
        )
        return f"s.trace IN (SELECT t.uid FROM trace t FINAL WHERE {inner})"
    if field == "data.metadata.costSource":
        return _text(_COST_SOURCE, operator, value, values)
    if field == "id":
        return _hex("s.uid", operator, value, values)
    if field == "parentId":
        return f"{_hex('s.parent', operator, value, values)} AND {_KNOWN_PARENT}"
    return _attribute(condition, values)


def _sent_or_ours(condition: Condition, values: Values) -> str:
    """Metadata that was sent goes before a column of the same name."""
    sent = _attribute(condition, values)
    if not is_comparable(condition):
        return sent
    is_sent = f"has(s.paths, {values.bind(condition.field.removeprefix('data.'))})"
    return f"{sent} OR (ifNull({_span_test(condition, values)}, false) AND NOT {is_sent})"


def trace_test(condition: Condition, values: Values) -> str:
    """The condition on a row `t` of `trace`: on its own fields, or on those of any of its spans."""
    field, operator, value = condition.field, condition.operator, condition.value
    positive = unnegated(operator)
    if column := TRACE_NUMBERS.get(field):
        if operator == "contains":  # of times only, which are texts to callers
            return _text(_TIME.format(f"t.{column}"), operator, value, values)
        return _negated(operator, _number(f"t.{column}", positive, value, values))
    if field == "status":
        return _negated(operator, _code("t.status", CODES["status"][1], positive, value))
    if field == "sessionId":
        return _negated(operator, _session(positive, str(value), values))
    if column := TRACE_TEXTS.get(field):
        return _negated(operator, _text(f"t.{column}", positive, value, values))
    test = span_test(condition, values)
    return f"t.uid IN (SELECT s.trace FROM span s FINAL WHERE s.twin IS NULL AND {test})"


def _number(column: str, operator: Operator, value: Value, values: Values) -> str:
    if isinstance(value, str | bool):
        return "false"
    return f"{column} {_SIGNS[operator]} {values.bind(within_integers(value))}"


def _text(column: str, operator: Operator, value: Value, values: Values) -> str:
    if operator == "contains":
        return f"position(caseFoldUTF8({column}), {values.bind(str(value).casefold())}) > 0"
    return f"{column} = {values.bind(str(value))}"


def _code(column: str, words: tuple[str, ...], operator: Operator, value: Value) -> str:
    text = str(value)
    codes = [
        str(code)
        for code, word in enumerate(words)
        if word == text or (operator == "contains" and text.casefold() in word.casefold())
    ]
    return f"{column} IN ({', '.join(codes)})" if codes else "false"


def _session(operator: Operator, value: str, values: Values) -> str:
    """A session by our id or by the agent's own."""
    if operator == "contains":
        return _text("t.session", operator, value, values)
    try:
        ref = parse_id(value)
    except InvalidId:
        ref = None
    if isinstance(ref, SessionRef):
        return f"t.session = {values.bind(ref.key)}"
    given = values.bind(value)
    return f"(t.native = {given} OR t.session = {given})"


def _hex(column: str, operator: Operator, value: Value, values: Values) -> str:
    text = str(value).lower()
    if operator == "contains":
        return f"position({_HEX.format(column)}, {values.bind(text)}) > 0"
    try:
        number = int.from_bytes(bytes.fromhex(text), "big", signed=True) if len(text) == 16 else None
    except ValueError:
        number = None
    return "false" if number is None else f"{column} = {values.bind(number)}"


def _paths(path: str) -> list[str]:
    """`metadata.x` also finds a plain attribute `x`: senders put metadata in either place."""
    return [path, "attributes." + path.removeprefix("metadata.")] if path.startswith("metadata.") else [path]


def _attribute(condition: Condition, values: Values) -> str:
    paths = values.bind(_paths(condition.field.removeprefix("data.")))
    test, hint = _value_test(condition.operator, condition.value, values)
    return f"hasAny(s.paths, {paths}){hint} AND arrayExists((p, v) -> has({paths}, p) AND {test}, s.paths, s.values)"


def _value_test(operator: Operator, value: Value, values: Values) -> tuple[str, str]:
    """The test of a stored value `v`, and a condition by which an index finds its rows."""
    if operator == "contains":
        part = values.bind(str(value).casefold())
        return f"startsWith(v, 's') AND position(caseFoldUTF8(substring(v, 2)), {part}) > 0", ""
    if isinstance(value, str | bool):
        given = values.bind(marked(value))
        return f"v = {given}", f" AND has(s.values, {given})"
    number = within_integers(value)
    test = f"startsWith(v, 'n') AND toFloat64OrNull(substring(v, 2)) {_SIGNS[operator]} {values.bind(number)}"
    if operator == "eq" and isinstance(number, int):  # a large one is not the float next to it
        exact = values.bind(marked(number))
        test = f"(v = {exact} OR (match(v, '[.eE]') AND {test}))"
    return f"ifNull({test}, false)", ""


class Sort:
    """An order of rows: the expressions that they are sorted by, in turn, and the condition that they have a value."""

    def __init__(self, keys: list[str], present: str, bound: Callable[[Value], list[Any]]) -> None:
        self.keys = keys
        self.present = present
        self.bound = bound

    def value(self, row: list[Any]) -> Value:
        """The value of a row, by its keys."""
        if len(row) == 1:
            value: Value = row[0]
            return value
        kind, number, text = row
        return bool(number) if _KINDS[int(kind) - 1] == "b" else text if _KINDS[int(kind) - 1] == "s" else number


def span_sort(field: str, values: Values) -> Sort:
    plain = _span_expression(field)
    if plain is not None and field not in METADATA:
        return _plain_sort(plain)
    paths = _paths(field.removeprefix("data."))
    at = [f"s.values[indexOf(s.paths, {values.bind(path)})]" for path in paths]
    stored = at[0] if len(at) == 1 else f"if({at[0]} != '', {at[0]}, {at[1]})"
    if plain is not None:
        kind = "n" if field in NUMBERS else "s"
        stored = f"if({at[0]} != '', {at[0]}, ifNull(concat('{kind}', toString({plain})), ''))"
    return Sort(
        [
            f"position('{_KINDS}', substring({stored}, 1, 1))",
            f"if(startsWith({stored}, 'b'), toFloat64({stored} = 'btrue'), toFloat64OrZero(substring({stored}, 2)))",
            f"if(startsWith({stored}, 's'), substring({stored}, 2), '')",
        ],
        f"{stored} != ''",
        _sorted_value,
    )


def _sorted_value(value: Value) -> list[Any]:
    kind = marked(value)[0]
    text = value if isinstance(value, str) else ""
    number = 0.0 if isinstance(value, str) else float(value)
    return [_KINDS.index(kind) + 1, number, text]


def _span_expression(field: str) -> str | None:
    if column := NUMBERS.get(field) or NAMES.get(field):
        return f"s.{column}"
    if field in CODES:
        return f"s.{CODES[field][0]}"
    if field == "id":
        return _HEX.format("s.uid")
    if field == "parentId":
        return f"if({_KNOWN_PARENT}, {_HEX.format('s.parent')}, NULL)"
    if field == "traceId":
        return "s.trace"
    if column := OF_TRACE.get(field):
        return f"t.{column}"
    return _COST_SOURCE if field == "data.metadata.costSource" else None


def trace_sort(field: str) -> Sort:
    if field == "status":
        return _plain_sort("t.status")
    return _plain_sort(f"t.{TRACE_NUMBERS.get(field) or TRACE_TEXTS[field]}")


def _plain_sort(expression: str) -> Sort:
    return Sort([expression], f"{expression} IS NOT NULL", lambda value: [value])
