"""Conditions as SQL. Values are bound, never written into the text; names of columns come from the tables below."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from ....model import InvalidId, SessionRef, parse_id
from ...spans import (
    CODES,
    MAX_VALUE_CHARS,
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
    paths_of,
    unnegated,
    within_integers,
)

_SIGNS = {"eq": "=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}

Sql = tuple[str, list[Any]]

_COST_SOURCE = "CASE WHEN s.cost IS NOT NULL THEN iif(s.cost_reported, 'reported', 'computed') END"


class Term(NamedTuple):
    """A condition on a row `s` (span) or `t` (trace). `driver` finds the matching rows from the other side: a FROM
    clause that ends with the row's own table. Where it is given, it is the way to go while matches are few.
    `probe` is the same test where looking at one row costs less, and looking at all of them far more."""

    test: str
    parameters: list[Any]
    driver: str | None = None
    driver_parameters: tuple[Any, ...] = ()
    probe: str | None = None
    probe_parameters: tuple[Any, ...] = ()

    def probing(self) -> Term:
        return self if self.probe is None else self._replace(test=self.probe, parameters=list(self.probe_parameters))


def span_term(condition: Condition, sent: Collection[str] = ()) -> Term:
    """`sent` are the paths of metadata with the names of our own facts that senders have used."""
    field, operator, value = condition.field, condition.operator, condition.value
    if field in METADATA:
        if not set(paths_of([field])).isdisjoint(sent):
            return _sent_or_ours(condition)
        if not is_comparable(condition):
            return Term("1" if operator == "ne" else "0", [])
    if column := NUMBERS.get(field):
        return Term(*_number(f"s.{column}", operator, value))
    if column := NAMES.get(field):
        return Term(*_through(f"s.{column}", "name", "text", operator, value))
    if field in CODES:
        return Term(*_code(condition))
    if field == "traceId":
        return Term(*_through("s.trace", "trace", "uid", operator, value))
    if column := OF_TRACE.get(field):
        return Term(*_of_trace(column, operator, value))
    if field == "data.metadata.costSource":
        return Term(*_text(_COST_SOURCE, condition))
    if field == "id":
        return Term(*_hex("s.uid", operator, value))
    if field == "parentId":
        return Term(*_parent(operator, value))
    return _attribute(condition)


def trace_term(condition: Condition, sent: Collection[str] = ()) -> Term:
    field, operator, value = condition.field, condition.operator, condition.value
    if column := TRACE_NUMBERS.get(field):
        if operator == "contains":  # of times only, which are texts to callers
            return Term(*_holds(f"strftime('%Y-%m-%dt%H:%M:%fz', t.{column} / 1000.0, 'unixepoch')", str(value)))
        return Term(*_number(f"t.{column}", operator, value))
    if field == "status":
        return Term(*_code(condition, "t"))
    if field == "sessionId":
        return Term(*_session("t", operator, str(value)))
    if column := TRACE_TEXTS.get(field):
        return Term(*_text(f"t.{column}", condition))
    inner = span_term(condition, sent)
    test = "EXISTS (SELECT 1 FROM span s WHERE s.trace = t.id AND s.twin IS NULL AND {})"
    source = inner.driver or "span s"
    driver = (
        f"{source} CROSS JOIN trace t ON t.id = s.trace AND s.twin IS NULL AND {'1' if inner.driver else inner.test}"
    )
    parameters = inner.driver_parameters if inner.driver else inner.parameters
    probe = None if inner.probe is None else test.format(inner.probe)
    return Term(test.format(inner.test), inner.parameters, driver, tuple(parameters), probe, inner.probe_parameters)


def span_sort(field: str, sent: Collection[str] = ()) -> Sql:
    """The expression spans are sorted by."""
    if field in METADATA and paths_of([field])[0] in sent:
        ours, parameters = span_sort(field)
        custom = "(SELECT fact(data, ?) FROM facts WHERE span = s.id)"
        return f"coalesce({custom}, {ours})", [field.removeprefix("data."), *parameters]
    if column := NUMBERS.get(field):
        return f"s.{column}", []
    if column := NAMES.get(field):
        return f"(SELECT text FROM name WHERE id = s.{column})", []
    if field in CODES:
        return f"s.{CODES[field][0]}", []
    if field == "id":
        return "printf('%016x', s.uid)", []
    if field == "parentId":  # an unknown parent makes a root, which has none
        return "(SELECT printf('%016x', p.uid) FROM span p WHERE p.uid = s.parent AND p.trace = s.trace)", []
    if field == "traceId" or field in OF_TRACE:
        return f"(SELECT {OF_TRACE.get(field, 'uid')} FROM trace WHERE id = s.trace)", []
    if field == "data.metadata.costSource":
        return _COST_SOURCE, []
    return "(SELECT fact(data, ?) FROM facts WHERE span = s.id)", [field.removeprefix("data.")]


def trace_sort(field: str) -> Sql:
    if field == "status":
        return "t.status", []
    return f"t.{TRACE_NUMBERS.get(field) or TRACE_TEXTS[field]}", []


def bindable(value: Value) -> Any:
    """A value as SQLite compares it: booleans are neither numbers nor texts there, so they are kept as bytes."""
    if isinstance(value, str):
        return value if len(value) <= MAX_VALUE_CHARS else value[:MAX_VALUE_CHARS]
    if isinstance(value, bool):
        return b"\1" if value else b"\0"
    return within_integers(value)


def _negated(operator: Operator, sql: Sql) -> Sql:
    """`ne` matches every value that is not equal, and a missing one."""
    return (f"({sql[0]}) IS NOT TRUE", sql[1]) if operator == "ne" else (f"({sql[0]})", sql[1])


def _number(column: str, operator: Operator, value: Value) -> Sql:
    if operator == "ne":
        return f"{column} IS NOT ?", [bindable(value)]
    return f"{column} {_SIGNS[operator]} ?", [bindable(value)]


def _holds(column: str, value: str) -> Sql:
    folded = value.casefold()
    if not value.isascii():
        return f"holds({column}, ?)", [folded]
    # SQLite folds ASCII only, and fast. Other letters may fold to it: "strasse" is in "Straße".
    beyond_ascii = f"length(CAST({column} AS BLOB)) > length({column})"
    return f"(instr(lower({column}), ?) > 0 OR ({beyond_ascii} AND holds({column}, ?)))", [folded, folded]


def _text(column: str, condition: Condition) -> Sql:
    value = str(condition.value)
    if condition.operator == "contains":
        return _holds(column, value)
    return f"{column} {'IS NOT' if condition.operator == 'ne' else '='} ?", [value]


def _through(column: str, table: str, text: str, operator: Operator, value: Value) -> Sql:
    """A text that is kept once, in a table that numbers it."""
    if operator == "contains":
        test, parameters = _holds(text, str(value))
        return f"{column} IN (SELECT id FROM {table} WHERE {test})", parameters
    test = f"{column} = (SELECT id FROM {table} WHERE {text} = ?)"
    return _negated(operator, (test, [str(value)]))


def _code(condition: Condition, row: str = "s") -> Sql:
    column, words = CODES[condition.field]
    value = str(condition.value)
    if condition.operator == "contains":
        codes = [code for code, word in enumerate(words) if value.casefold() in word.casefold()]
        return f"{row}.{column} IN ({', '.join('?' * len(codes))})", list(codes)
    code = words.index(value) if value in words else -1
    if condition.operator == "ne":
        others = [other for other in range(len(words)) if other != code]
        return f"{row}.{column} IN ({', '.join('?' * len(others))})", list(others)
    return f"{row}.{column} = ?", [code]


def _of_trace(column: str, operator: Operator, value: Value) -> Sql:
    positive = unnegated(operator)
    test, parameters = (
        _session("trace", positive, str(value))
        if column == "session"
        else _text(f"trace.{column}", Condition(column, positive, value))
    )
    return _negated(operator, (f"s.trace IN (SELECT trace.id FROM trace WHERE {test})", parameters))


def _session(row: str, operator: Operator, value: str) -> Sql:
    """A session by our id or by the agent's own."""
    if operator == "contains":
        return _holds(f"{row}.session", value)
    try:
        ref = parse_id(value)
    except InvalidId:
        ref = None
    if isinstance(ref, SessionRef):
        return _negated(operator, (f"{row}.session = ?", [ref.key]))
    return _negated(operator, (f"{row}.native = ? OR {row}.session = ?", [value, value]))


def _parent(operator: Operator, value: Value) -> Sql:
    """An unknown parent makes a root."""
    test, parameters = _hex("s.parent", unnegated(operator), value)
    if operator == "contains":
        known = "EXISTS (SELECT 1 FROM span p WHERE p.trace = s.trace AND p.uid = s.parent)"
        return f"({test} AND {known})", parameters
    found = f"s.trace IN (SELECT p.trace FROM span p WHERE p.uid = ?) AND {test}" if parameters else test
    return _negated(operator, (found, [*parameters, *parameters]))


def _hex(column: str, operator: Operator, value: Value) -> Sql:
    text = str(value).lower()
    if operator == "contains":
        return f"instr(printf('%016x', {column}), ?) > 0 AND {column} IS NOT NULL", [text]
    try:
        number = int.from_bytes(bytes.fromhex(text), "big", signed=True) if len(text) == 16 else None
    except ValueError:
        number = None
    if number is None:
        return ("1" if operator == "ne" else "0"), []
    return f"{column} {'IS NOT' if operator == 'ne' else '='} ?", [number]


def _sent_or_ours(condition: Condition) -> Term:
    """Metadata that was sent goes before a column of the same name."""
    positive = Condition(condition.field, unnegated(condition.operator), condition.value)
    sent, ours = _attribute(positive), span_term(positive)
    name = condition.field.removeprefix("data.metadata.")
    is_sent = (
        "s.id IN (SELECT m.value FROM part a CROSS JOIN json_each('[' || a.spans || ']') m "
        "ON a.path = (SELECT id FROM path WHERE text = ?)) AND (s.id NOT IN (SELECT span FROM resent) "
        "OR EXISTS (SELECT 1 FROM facts f WHERE f.span = s.id AND json_type(f.data, ?) IS NOT NULL))"
    )
    test = f"({sent.test} OR ({ours.test} AND NOT ({is_sent})))"
    parameters = [*sent.parameters, *ours.parameters, f"metadata.{name}", f'$.metadata."{name}"']
    return Term(*_negated(condition.operator, (test, parameters)))


def _attribute(condition: Condition) -> Term:
    path = condition.field.removeprefix("data.")
    paths = (path, "attributes." + path.removeprefix("metadata.")) if path.startswith("metadata.") else (path,)
    value = str(condition.value).casefold() if condition.operator == "contains" else bindable(condition.value)
    test_parameters = [unnegated(condition.operator), value]
    found = (
        "part a CROSS JOIN json_each(matching(a.spans, a.data, ?, ?)) m "
        f"ON a.path IN (SELECT id FROM path WHERE text IN ({', '.join('?' * len(paths))})) "
        "AND (m.value NOT IN (SELECT span FROM resent) "
        "OR EXISTS (SELECT 1 FROM facts f WHERE f.span = m.value AND has_value(f.data, ?, ?, ?)))"
    )
    parameters = [*test_parameters, *paths, path, *test_parameters]
    test = f"s.id IN (SELECT m.value FROM {found})"
    probe = "EXISTS (SELECT 1 FROM facts f WHERE f.span = s.id AND has_value(f.data, ?, ?, ?))"
    own = (path, *test_parameters)
    if condition.operator == "ne":
        return Term(f"NOT {test}", parameters, probe=f"NOT {probe}", probe_parameters=own)
    return Term(test, parameters, f"{found} CROSS JOIN span s ON s.id = m.value", tuple(parameters), probe, own)
