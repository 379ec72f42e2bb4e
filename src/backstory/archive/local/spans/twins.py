"""Calls that a transcript and telemetry both report: one span, with what each knows.

The span of the turn shows the call. A received span that reports the same call keeps its place in its own trace, but
nothing is found or counted by it: `twin` is the number of the span that shows it. Everything is worked out again from
the spans at hand whenever one of them is written, so it does not matter which comes first.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ....model import digest
from ...spans import SPAN_TYPES

__all__ = ["enriched", "scope_of", "unite"]

_ERROR, _PENDING = 0, 1
_GENERATION = SPAN_TYPES.index("GENERATION")
# Reports of a model call start at about the same time. Some agents name calls by their token counts, which may repeat.
_NEAR_MS = 3_600_000
_COUNTS = ("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")
_KNOWN = ("model", "stop_reason", "exit_code")
_COLUMNS = (
    "id", "trace", "uid", "parent", "type", "status", "start", "end", *_COUNTS, *_KNOWN, "cost", "cost_reported",
    "waiting",
)  # fmt: skip

Row = dict[str, Any]


class _Member(Struct, frozen=True):
    """A span that reports a call."""

    id: int
    trace: int
    call: str
    alias: str | None
    scope: int
    projected: bool
    of_model: bool
    logged: bool
    start: int
    twin: int | None


def scope_of(session: str | None) -> int | None:
    """What the reports of a session's calls have in common. Subagents of Claude Code (`<session>/agent-...`) report
    under the id of the session that started them."""
    if session is None:
        return None
    return int.from_bytes(digest("scope", session.partition("/")[0])[:8], "big", signed=True)


def unite(
    db: sqlite3.Connection, traces: Collection[int], written: Collection[int] | None = None
) -> tuple[dict[int, list[int]], set[int]]:
    """Find the twins among all spans that report the same calls as those of the traces.

    Gives the received spans for each span of a turn that shows them, the best source first, and the traces in which
    something changed. With `written` (numbers of received spans) only those for which there is news.
    """
    if db.execute("SELECT 1 FROM span WHERE session IS NULL AND call IS NOT NULL LIMIT 1").fetchone() is None:
        return {}, set()
    news = None if written is None else _with_parents(db, written)
    listed = msgspec.json.encode(sorted(traces)).decode()
    _set_scopes(db, listed)
    names, scopes = _names(db, listed)
    members = _members(db, names, scopes)
    pairs = _all_pairs(members, names)
    known = {member.id: member for member in members}
    shown: dict[int, list[int]] = defaultdict(list)
    renewed: set[int] = set()
    touched: set[int] = set()
    changes: list[tuple[int | None, int]] = []
    for member in members:
        twin = pairs.get(member.id)
        if twin is not None:
            shown[twin].append(member.id)
        if twin != member.twin and (twin is not None or _name_by_tokens(member) in names):
            changes.append((twin, member.id))
        elif news is not None and member.id not in news:
            continue
        touched.add(member.trace)
        if twin is not None:
            renewed.add(twin)
            touched.add(known[twin].trace)
    db.executemany("UPDATE span SET twin = ? WHERE id = ?", changes)
    return {twin: shown[twin] for twin in renewed}, touched


def _with_parents(db: sqlite3.Connection, numbers: Collection[int]) -> set[int]:
    """What is inside a call tells of it, too."""
    rows = db.execute(
        "SELECT p.id FROM span s JOIN span p ON p.trace = s.trace AND p.uid = s.parent "
        "WHERE s.waiting IS NOT NULL AND s.id IN (SELECT value FROM json_each(?))",
        (msgspec.json.encode(list(numbers)).decode(),),
    )
    return {*numbers, *(number for (number,) in rows)}


def _set_scopes(db: sqlite3.Connection, traces: str) -> None:
    """Which session a trace belongs to may be known only after some of its spans."""
    rows = db.execute(
        "SELECT id, native FROM trace WHERE id IN (SELECT value FROM json_each(?)) AND NOT projected", (traces,)
    ).fetchall()
    db.executemany(
        "UPDATE span SET scope = ?1 WHERE trace = ?2 AND call IS NOT NULL AND scope IS NOT ?1",
        [(scope_of(native), trace) for trace, native in rows],
    )


def _names(db: sqlite3.Connection, traces: str) -> tuple[set[str], set[int]]:
    """Names of the calls in the traces, and the scopes of these."""
    rows = db.execute(
        "SELECT call, alias, scope FROM span WHERE trace IN (SELECT value FROM json_each(?)) AND call IS NOT NULL "
        "AND scope IS NOT NULL",
        (traces,),
    ).fetchall()
    return {name for *names, _ in rows for name in names if name is not None}, {scope for _, _, scope in rows}


def _members(db: sqlite3.Connection, names: Collection[str], scopes: Collection[int]) -> list[_Member]:
    """The spans that report the calls, and those with which these may be twins by another name. Spans come before log
    records: they know more."""
    rows = db.execute(
        "WITH name AS (SELECT value FROM json_each(?)), scope AS (SELECT value FROM json_each(?)), "
        "one AS (SELECT call FROM span WHERE scope IN scope AND call IN name "
        "UNION SELECT call FROM span WHERE scope IN scope AND alias IN name) "
        "SELECT id, trace, call, alias, scope, session IS NOT NULL, type = ?, logged, start, twin FROM span "
        "WHERE scope IN scope AND call IN one ORDER BY logged, start, id",
        (msgspec.json.encode(sorted(names)).decode(), msgspec.json.encode(sorted(scopes)).decode(), _GENERATION),
    )
    return [
        _Member(id, trace, call, alias, scope, bool(projected), bool(of_model), bool(logged), start, twin)
        for id, trace, call, alias, scope, projected, of_model, logged, start, twin in rows
    ]


def _name_by_tokens(member: _Member) -> str:
    return member.alias or member.call


def _all_pairs(members: Iterable[_Member], names: Collection[str]) -> dict[int, int]:
    """Received spans with the projected ones that show them: by the ids of their calls, then by their tokens."""
    by_call: dict[Any, list[_Member]] = defaultdict(list)
    for member in members:
        by_call[member.call, member.scope, member.of_model].append(member)
    pairs: dict[int, int] = {}
    for group in by_call.values():
        pairs |= _pairs(group)
    paired = {*pairs, *pairs.values()}
    by_tokens: dict[Any, list[_Member]] = defaultdict(list)
    for member in members:
        if member.of_model and member.id not in paired and (name := _name_by_tokens(member)) in names:
            by_tokens[name, member.scope].append(member)
    for group in by_tokens.values():
        pairs |= _pairs(group)
    return pairs


def _pairs(members: Sequence[_Member]) -> dict[int, int]:
    """The nearest in time: each projected span with one span and one log record, as far as there are enough of them."""
    distances = sorted(
        (abs(shown.start - member.start), member.id, shown.id, member.logged)
        for shown in members
        if shown.projected
        for member in members
        if not member.projected
    )
    near = [entry for entry in distances if entry[0] <= _NEAR_MS or not members[0].of_model]
    pairs: dict[int, int] = {}
    taken: set[tuple[int, bool]] = set()
    for _, received, shown, logged in near:
        if received not in pairs and (shown, logged) not in taken:
            pairs[received] = shown
            taken.add((shown, logged))
    for _, received, shown, _ in near:
        pairs.setdefault(received, shown)
    return pairs


def enriched(db: sqlite3.Connection, shown: int, received: Iterable[int]) -> Row:
    """The columns of a span of a turn, with what the received spans know beside it or better."""
    own = _row(db, shown)
    for number in received:
        other = _row(db, number)
        if other["end"] is not None:
            if own["type"] == _GENERATION and other["end"] > other["start"] and not own.get("timed"):
                # The transcript tells only when the record of an answer was written.
                own |= {"start": other["start"], "end": other["end"], "timed": True}
            if own["status"] == _PENDING:
                own |= {"status": other["status"], "end": max(own["start"], other["end"])}
        if other["status"] == _ERROR:
            own["status"] = _ERROR
        for name in _COUNTS:
            if other[name] is not None:
                own[name] = max(own[name] or 0, other[name])
        for name in _KNOWN:
            own[name] = other[name] if own[name] is None else own[name]
        if other["cost_reported"] or own["cost"] is None:
            own |= {"cost": other["cost"], "cost_reported": other["cost_reported"]}
        waited = [own["waiting"], other["waiting"], _waiting_inside(db, other)]
        own["waiting"] = max((ms for ms in waited if ms), default=None)
    own.pop("timed", None)
    return own


def _row(db: sqlite3.Connection, number: int) -> Row:
    row = db.execute(f"SELECT {', '.join(_COLUMNS)} FROM span WHERE id = ?", (number,)).fetchone()
    return dict(zip(_COLUMNS, row, strict=True))


def _waiting_inside(db: sqlite3.Connection, span: Row) -> int | None:
    (waited,) = db.execute(
        "SELECT sum(waiting) FROM span WHERE trace = ? AND parent = ? AND session IS NULL",
        (span["trace"], span["uid"]),
    ).fetchone()
    return int(waited) if waited else None
