"""The contract's rules for requests: first the shape (unknown fields, types), then the values, in its order.

A question is a request with defaults applied and its ids and times parsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar, get_args

import msgspec
from msgspec import UNSET, Struct

from ...archive.base import Mode
from ...model import (
    DEFAULT_TYPES,
    EVENT_TYPES,
    SEARCHABLE_TYPES,
    EventRef,
    EventType,
    InvalidId,
    Ref,
    SessionRef,
    TurnRef,
    digest,
    parse_id,
    parse_rfc3339,
    rfc3339,
)
from ..base import NUMBER_AS_STRING, BadArgument, decode_arguments
from .answers import Call, Refusal
from .types import BadCursor, ListSessions, Open, Position, SearchSessions, read_cursor

T = TypeVar("T", bound=Struct)

MAX_QUERY_CHARS = 4096
MODES: tuple[Mode, ...] = get_args(Mode)
# IDs as the specification's examples have them. They are well-formed by its text, and stand for nothing here.
_SPECIFIED_ID = re.compile(r"(session:ses|turn:turn|event:evt)_[0-9A-Z]{26,32}")
DEFAULT_NEIGHBOURS = 5
DEFAULT_PAGE = 50

_A_TIME = "an RFC 3339 date and time with an offset or Z, e.g. 2026-04-30T09:00:00-04:00"
_SHARED_RULES = {
    "project": "project must be a non-empty string",
    "source": "source must be a non-empty string",
}
_SEARCH_RULES = {
    **_SHARED_RULES,
    "query": "query must be a non-empty string",
    "within_id": "within_id must be a session or turn ID, or null",
    "event_types": "event_types must be a list of event type names, or null",
    "n_hits": "n_hits must be an integer from 1 to 50",
    "since": f"since must be {_A_TIME}",
    "until": f"until must be {_A_TIME}",
}
_LIST_RULES = {
    **_SHARED_RULES,
    "start_datetime": f"start_datetime must be {_A_TIME}",
    "end_datetime": f"end_datetime must be {_A_TIME}",
    "limit": "limit must be an integer from 1 to 50",
    "cursor": "cursor must be a next_cursor that list_sessions returned, or null",
    "mode": f"mode must be one of {', '.join(MODES)}, or null",
    "sort": "sort must be desc or asc",
}
_OPEN_RULES = {
    "id": "id must be a non-empty string",
    "event_types": "event_types must be a list of event type names",
    "around": "around must be a turn or event ID",
    "before": "before must be an integer from 0 to 200",
    "after": "after must be an integer from 0 to 200",
    "limit": "limit must be an integer from 1 to 500",
    "cursor": "cursor must be a page.next_cursor that open returned",
}


class SearchQuestion(Struct, frozen=True, kw_only=True):
    request: SearchSessions
    types: tuple[EventType, ...]
    n_hits: int
    scope: SessionRef | TurnRef | None
    project: str | None
    source: str | None
    since: int | None
    until: int | None


class ListQuestion(Struct, frozen=True, kw_only=True):
    request: ListSessions
    start: int
    end: int
    limit: int
    mode: Mode | None
    ascending: bool
    project: str | None
    source: str | None
    identity: tuple[object, ...]
    """The values that its cursors are bound to."""
    after: Position | None


class OpenQuestion(Struct, frozen=True, kw_only=True):
    request: Open
    ref: Ref
    types: tuple[EventType, ...] | None
    around: Ref | None
    before: int | None
    after: int | None
    limit: int | None
    identity: tuple[object, ...]
    """The values that its cursors are bound to."""
    beyond: int
    """The ordinal after which the page starts."""

    @property
    def partial(self) -> bool:
        """True if only a part of the turns or events was requested."""
        return self.types is not None or self.around is not None or self.limit is not None


def read_search(call: Call) -> SearchQuestion:
    given = _shape(SearchSessions, call, _SEARCH_RULES)
    query = given.query.strip()
    if not query:
        _refuse("query", _SEARCH_RULES)
    if len(query) > MAX_QUERY_CHARS:
        raise Refusal("invalid_request", f"query must be at most {MAX_QUERY_CHARS} characters", field="query")
    scope = _scope(given.within_id)
    if scope is not None:
        call.sla_target_ms = 500 if isinstance(scope, SessionRef) else 300
    types = DEFAULT_TYPES if given.event_types is None else _event_types(given.event_types, SEARCHABLE_TYPES)
    n_hits = _within(given.n_hits, 10, range(1, 51), "n_hits", _SEARCH_RULES)
    since, until = (_optional_time(given, field) for field in ("since", "until"))
    if since is not None and until is not None and until <= since:
        raise Refusal("invalid_request", "until must be later than since", field="until")
    project, source = _filters(given, _SEARCH_RULES)
    request = SearchSessions(
        query,
        given.within_id,
        [str(kind) for kind in types],
        n_hits,
        _or_unset(project),
        _or_unset(source),
        UNSET if since is None else rfc3339(since),
        UNSET if until is None else rfc3339(until),
    )
    return SearchQuestion(
        request=request,
        types=types,
        n_hits=n_hits,
        scope=scope,
        project=project,
        source=source,
        since=since,
        until=until,
    )


def read_list(call: Call) -> ListQuestion:
    given = _shape(ListSessions, call, _LIST_RULES)
    start = _time(given.start_datetime, "start_datetime", _LIST_RULES)
    end = _time(given.end_datetime, "end_datetime", _LIST_RULES)
    if end <= start:
        raise Refusal("invalid_request", "end_datetime must be later than start_datetime", field="end_datetime")
    limit = _within(given.limit, 20, range(1, 51), "limit", _LIST_RULES)
    if given.mode is not None and given.mode not in MODES:
        _refuse("mode", _LIST_RULES)
    mode = given.mode
    sort = "desc" if given.sort is None else given.sort
    if sort not in ("desc", "asc"):
        _refuse("sort", _LIST_RULES)
    project, source = _filters(given, _LIST_RULES)
    identity = ("list_sessions", start, end, mode, sort, project, source)
    after = None if given.cursor is None else _cursor(given.cursor, identity)
    request = ListSessions(
        rfc3339(start), rfc3339(end), limit, given.cursor, mode, sort, _or_unset(project), _or_unset(source)
    )
    return ListQuestion(
        request=request,
        start=start,
        end=end,
        limit=limit,
        mode=mode,
        ascending=sort == "asc",
        project=project,
        source=source,
        identity=identity,
        after=after,
    )


def read_open(call: Call) -> OpenQuestion:
    given = _shape(Open, call, _OPEN_RULES)
    if not given.id.strip():
        _refuse("id", _OPEN_RULES)
    ref = _ref(given.id, "id")
    call.sla_target_ms = {SessionRef: 500, TurnRef: 300, EventRef: 200}[type(ref)]
    names = _given(given.event_types)
    types = None if names is None else _event_types(names, EVENT_TYPES)
    around = None if _given(given.around) is None else _around(given, ref)
    near = around is not None or isinstance(ref, EventRef)
    before, after = (_neighbours(given, name, near) for name in ("before", "after"))
    if isinstance(ref, EventRef) and types is not None and before is None:
        raise Refusal("invalid_request", "event_types needs before or after when id is an event", field="event_types")
    limit, cursor = _given(given.limit), _given(given.cursor)
    if near and (limit is not None or cursor is not None):
        field = "cursor" if limit is None else "limit"
        raise Refusal(
            "invalid_request", f"{field} pages through all of a session's turns or a turn's events", field=field
        )
    if limit is not None or cursor is not None:
        limit = _within(limit, DEFAULT_PAGE, range(1, 501), "limit", _OPEN_RULES)
    identity = ("open", given.id, types)
    beyond = 0 if cursor is None else _cursor(cursor, identity)[0]
    request = Open(
        given.id,
        UNSET if types is None else [str(kind) for kind in types],
        _or_unset(_given(given.around)),
        _or_unset(before),
        _or_unset(after),
        _or_unset(limit),
        _or_unset(cursor),
    )
    return OpenQuestion(
        request=request,
        ref=ref,
        types=types,
        around=around,
        before=before,
        after=after,
        limit=limit,
        identity=identity,
        beyond=beyond,
    )


# Rules for one field.


def _refuse(field: str, rules: Mapping[str, str]) -> NoReturn:
    raise Refusal("invalid_request", rules[field], field=field)


def _shape(kind: type[T], call: Call, rules: Mapping[str, str]) -> T:
    arguments = call.arguments
    if not isinstance(arguments, Mapping) or not _is_json(arguments):
        raise Refusal("invalid_request", "arguments must be a JSON object in valid Unicode", field="arguments")
    known = kind.__struct_fields__
    for name in arguments:
        if name not in known:
            message = f"unknown field: {name} ({call.tool} takes {', '.join(known)})"
            raise Refusal("invalid_request", message, field=str(name))
    try:
        return decode_arguments(kind, arguments)
    except BadArgument as bad:
        field = (bad.field or "").partition("[")[0]
        asked = f"; {NUMBER_AS_STRING}" if bad.message.endswith(NUMBER_AS_STRING) else ""
        raise Refusal("invalid_request", rules[field] + asked, field=field) from None


def _is_json(value: object) -> bool:
    """True if a value can be written as JSON. A program may pass lone surrogates, or objects of other types."""
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _given(value: Any) -> Any:
    """The value of an argument beyond the contract; None if it was left out."""
    return None if value is UNSET else value


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value


def _ref(text: str, field: str) -> Ref:
    try:
        return parse_id(text)
    except InvalidId:
        if not (specified := _SPECIFIED_ID.fullmatch(text)):
            raise Refusal("invalid_id", "id is not a valid Moraine MCP ID", field=field) from None
    # A reference of its kind to what no archive has: no source has this name, and the digest is of no record.
    nowhere = f"?/{text}"
    match specified[1]:
        case "event:evt":
            return EventRef(digest(nowhere))
        case "turn:turn":
            return TurnRef(nowhere, 1)
    return SessionRef(nowhere)


def _scope(within_id: str | None) -> SessionRef | TurnRef | None:
    if within_id is None:
        return None
    ref = _ref(within_id, "within_id")
    if isinstance(ref, EventRef):
        message = "within_id accepts session and turn IDs, not event IDs"
        raise Refusal("invalid_request", message, field="within_id")
    return ref


def _event_types(names: Sequence[str], supported: Sequence[EventType]) -> tuple[EventType, ...]:
    if not names:
        raise Refusal("invalid_request", "event_types must contain at least one event type", field="event_types")
    for name in names:
        if name not in supported:
            raise Refusal(
                "unsupported_event_type",
                f"unsupported event type: {name}",
                field="event_types",
                supported=[str(kind) for kind in supported],
            )
    return tuple(kind for kind in supported if kind in names)


def _within(value: int | None, default: int, allowed: range, field: str, rules: Mapping[str, str]) -> int:
    if value is None:
        return default
    if value not in allowed:
        _refuse(field, rules)
    return value


def _time(text: str, field: str, rules: Mapping[str, str]) -> int:
    ms = parse_rfc3339(text)
    if ms is None:
        _refuse(field, rules)
    return ms


def _optional_time(given: SearchSessions, field: str) -> int | None:
    text = _given(getattr(given, field))
    return None if text is None else _time(text, field, _SEARCH_RULES)


def _filters(given: SearchSessions | ListSessions, rules: Mapping[str, str]) -> tuple[str | None, str | None]:
    project, source = _given(given.project), _given(given.source)
    for field, value in (("project", project), ("source", source)):
        if value is not None and not value.strip():
            _refuse(field, rules)
        if value is not None and len(value) > MAX_QUERY_CHARS:
            message = f"{field} must be at most {MAX_QUERY_CHARS} characters"
            raise Refusal("invalid_request", message, field=field)
    return project, source


def _cursor(text: str, identity: tuple[object, ...]) -> Position:
    try:
        return read_cursor(text, *identity)
    except BadCursor as bad:
        raise Refusal("invalid_request", str(bad), field="cursor") from None


def _around(given: Open, ref: Ref) -> Ref:
    """A turn or event of the session, or an event of the turn, by its type. The archive checks that it is in there."""
    around = _ref(_given(given.around), "around")
    inside = {SessionRef: (TurnRef, EventRef), TurnRef: (EventRef,), EventRef: ()}[type(ref)]
    if not isinstance(around, inside):
        message = "around takes a turn or event of the session, or an event of the turn, that id opens"
        raise Refusal("invalid_request", message, field="around")
    return around


def _neighbours(given: Open, field: str, near: bool) -> int | None:
    value = _given(getattr(given, field))
    if not near:
        if value is not None:
            raise Refusal("invalid_request", f"{field} needs around, or the ID of an event", field=field)
        return None
    asked = _given(given.around) is not None or _given(given.before) is not None or _given(given.after) is not None
    return _within(value, DEFAULT_NEIGHBOURS, range(201), field, _OPEN_RULES) if asked else None
