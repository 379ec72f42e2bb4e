"""The search page: results as one types, grouped by session, with filters in the address."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route

from ...archive.base import Found, Hit, SearchRequest, SessionsRequest, Totals
from ...archive.rows import has_failed
from ...model import DEFAULT_TYPES, SEARCHABLE_TYPES, EventType, rfc3339
from ...toolsets.history.rules import MAX_QUERY_CHARS
from ...toolsets.history.views import Views
from ..words import home_path, parse_moment
from .lists import (
    KINDS,
    Chip,
    Facet,
    Filters,
    SessionLine,
    chips_of,
    facets_of_hits,
    facets_of_sessions,
    folder_name,
    is_selected,
    period_starts,
    session_lines,
    session_url,
)
from .site import Nav, Site

if TYPE_CHECKING:
    from ...library import Library

_SECONDS = 5.0
_HITS = 60
# Model, branch and failure narrow no search: they select among so many of the best matches.
_SELECTED_HITS = 400
_GROUPS = 20
_MAX_GROUPS = 100
_SHOWN_PER_SESSION = 3
_CAPSULES = 3
_RECENT = 30
_RECENT_READ = 400
_PROJECTS = 12


class FoundEvent(Struct, frozen=True):
    id: str
    url: str
    type: EventType
    label: str
    timestamp: str
    turn: int
    tool: str | None
    failed: bool
    snippet: str
    marks: list[tuple[int, int]]
    """The matches in the snippet: (start, end)."""


class Group(Struct, frozen=True):
    """The matches of one session, the best ones first."""

    session: SessionLine
    events: list[FoundEvent]
    more: int
    more_url: str


class Project(Struct, frozen=True):
    name: str
    path: str
    url: str
    sessions: int
    updated_at: str


class SearchPage(Struct, frozen=True, kw_only=True):
    filters: Filters
    chips: list[Chip]
    facets: list[Facet]
    warnings: list[str]
    groups: list[Group] = []
    found: int = 0
    """The number of matches; if `counted_best`, of those that were looked at."""
    truncated: bool = False
    """There are more than those that were looked at."""
    looked_at: int = 0
    """The number of best matches, or without words of the last sessions, that the page is made of. Model, branch and
    failure select among them."""
    counted_best: bool = False
    """Counts are of what was looked at, otherwise of all matches."""
    more_url: str | None = None
    capsules: list[dict[str, Any]] = []
    recent: list[SessionLine] = []
    projects: list[Project] = []
    sessions: int = 0
    """Sessions with matches; where nothing is searched for, those that were looked at, or else all in the archive."""
    elapsed_ms: float = 0.0


def routes(site: Site) -> list[Route]:
    def build(request: Request) -> SearchPage:
        return search_page(site.library, request.query_params)

    return site.page("/", "search.html", build, nav=Nav("Search", "/", "s"), parts=["found"])


def search_page(library: Library, given: Any) -> SearchPage:
    started = time.perf_counter()
    filters = Filters(**{name: (given.get(name) or "").strip() for name in Filters.__struct_fields__})
    if filters.failed != "1":  # `failed=0` says the same as no filter
        filters = msgspec.structs.replace(filters, failed="")
    if len(filters.q) > MAX_QUERY_CHARS:
        raise HTTPException(400, f"A search may have {MAX_QUERY_CHARS:,} characters.")
    shown = library.egress(filters)
    since, until = _period(filters)
    warnings = list(_warnings(library, filters, since, until))
    if not filters.q:
        return _start_page(library, filters, shown, warnings, since, until)
    found = library.archive.search(_request(filters, since, until))
    hits = [hit for hit in found.hits if is_selected(hit, filters)]
    totals = None if filters.selects else found.totals
    most = _number(given.get("n"), _GROUPS, _MAX_GROUPS)
    sessions = len({hit.session.key for hit in hits})
    return SearchPage(
        filters=shown,
        chips=chips_of(shown),
        facets=facets_of_hits(library, shown, hits, totals),
        warnings=warnings,
        groups=_groups(library, shown, hits, found, most, totals),
        sessions=sessions,
        # A session may match by its title alone.
        found=len(hits) if totals is None else max(totals.events, len(hits)),
        truncated=found.more,
        looked_at=len(found.hits),
        counted_best=totals is None,
        more_url=f"{shown.url()}&n={most + _GROUPS}" if sessions > most and most < _MAX_GROUPS else None,
        capsules=_capsules(library, filters, since, until),
        elapsed_ms=round((time.perf_counter() - started) * 1000, 1),
    )


def _number(text: str | None, default: int, most: int) -> int:
    return min(int(text), most) if text and text.isascii() and text.isdecimal() and int(text[:6]) else default


def _period(filters: Filters) -> tuple[int | None, int | None]:
    since = parse_moment(filters.since) if filters.since else None
    until = parse_moment(filters.until, end=True) if filters.until else None
    return since, until


def _warnings(library: Library, filters: Filters, since: int | None, until: int | None) -> Iterator[str]:
    state = library.archive.sync_state()
    if state.first_finished_at is None:
        yield f"The first read of transcripts is under way: {state.files_done:,} of {state.files_total:,} are done."
    if state.index_behind:
        yield "The search index is missing or out of date, so events may not be found: backstory sync builds it."
    if (filters.since and since is None) or (filters.until and until is None):
        yield "The time cannot be read. Examples: 7d, yesterday, 2026-09-14."
    elif since is not None and until is not None and until <= since:
        yield "The time ends before it begins."
    if filters.type and filters.type not in SEARCHABLE_TYPES:
        yield f"The type is not known, so the usual ones are shown. Types: {', '.join(SEARCHABLE_TYPES)}."


def _request(filters: Filters, since: int | None, until: int | None) -> SearchRequest:
    types = tuple(kind for kind in SEARCHABLE_TYPES if kind == filters.type) or DEFAULT_TYPES
    if filters.failed:
        types = (EventType.TOOL_RESPONSE,)
    return SearchRequest(
        query=filters.q,
        types=types,
        limit=_SELECTED_HITS if filters.selects else _HITS,
        project=filters.project or None,
        source=filters.agent or None,
        since=since,
        until=until,
        totals=None if filters.selects else period_starts(),
        deadline=time.monotonic() + _SECONDS,
    )


# Results


def _groups(
    library: Library, filters: Filters, hits: Sequence[Hit], found: Found, most: int, totals: Totals | None
) -> list[Group]:
    every: dict[str, list[Hit]] = {}
    for hit in hits:
        every.setdefault(hit.session.key, []).append(hit)
    by_session = dict(islice(every.items(), most))
    lines = session_lines(library, [group[0].session for group in by_session.values()])
    shown = [hit for group in by_session.values() for hit in group[:_SHOWN_PER_SESSION]]
    events = iter(_found_events(library, shown, found, filters.q))
    return [
        Group(
            session=line,
            events=[next(events) for _ in group[:_SHOWN_PER_SESSION]],
            more=max(len(group), totals.sessions.get(key, 0) if totals else 0) - len(group[:_SHOWN_PER_SESSION]),
            more_url=session_url(line.id, find=filters.q),
        )
        for line, (key, group) in zip(lines, by_session.items(), strict=True)
    ]


def _found_events(library: Library, hits: Sequence[Hit], found: Found, query: str) -> list[FoundEvent]:
    mark = marker(found)
    views = Views(library.settings.redact).hits(hits, found.query)
    tools = library.egress([hit.event.tool or "" for hit in hits])
    return [
        FoundEvent(
            id=view.event.id,
            url=session_url(
                view.session.id, at=f"{view.turn.ordinal}.{view.event.ordinal}", find=query, event=view.event.id
            ),
            type=view.event.type,
            label=KINDS.get(view.event.type, str(view.event.type)),
            timestamp=view.event.timestamp,
            turn=view.turn.ordinal,
            tool=tool or None,
            failed=has_failed(hit.event),
            snippet=view.snippet.text,
            marks=mark(view.snippet.text),
        )
        for hit, view, tool in zip(hits, views, tools, strict=True)
    ]


def marker(found: Found) -> Callable[[str], list[tuple[int, int]]]:
    """Finds the words of a query in a text: as words, or else as parts of words."""
    words = {*found.query.terms, *(word for term in found.terms for word in term.read_as)}
    if not words:
        return lambda text: []
    some = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    whole = re.compile(rf"(?<![^\W_])(?:{some})(?![^\W_])", re.IGNORECASE)

    def places(text: str) -> list[tuple[int, int]]:
        found = [match.span() for match in whole.finditer(text)]
        return found or [match.span() for match in re.finditer(some, text, re.IGNORECASE)]

    return places


def _capsules(library: Library, filters: Filters, since: int | None, until: int | None) -> list[dict[str, Any]]:
    """Matching capsules; the filters that capsules do not have leave them out."""
    if filters.agent or filters.project or filters.type or filters.model or filters.branch or filters.failed:
        return []
    if not (library.home / "capsules.db").exists():
        return []
    times = {"since": since, "until": until}
    options: dict[str, Any] = {name: rfc3339(moment) for name, moment in times.items() if moment is not None}
    answer = library.search(filters.q, source="capsules", n_hits=_CAPSULES, **options)
    found: list[dict[str, Any]] = answer.get("capsules", [])
    return found


# Without words


def _start_page(
    library: Library, filters: Filters, shown: Filters, warnings: list[str], since: int | None, until: int | None
) -> SearchPage:
    """Recent sessions and projects; the filters that sessions have apply."""
    rows = library.archive.sessions(
        SessionsRequest(
            source=filters.agent or None,
            project=filters.project or None,
            start=since,
            end=until,
            limit=_RECENT_READ,
            deadline=time.monotonic() + _SECONDS,
        )
    )
    is_cut, looked_at = len(rows) == _RECENT_READ, len(rows)
    rows = [row for row in rows if not row.parent and (not filters.branch or row.branch == filters.branch)]
    projects: dict[str, list[int]] = {}
    for row in rows:
        if row.cwd:
            projects.setdefault(row.cwd, []).append(row.updated_at)
    latest = sorted(projects.items(), key=lambda item: -max(item[1]))[:_PROJECTS]
    paths = library.egress([path for path, _ in latest])
    return SearchPage(
        filters=shown,
        chips=chips_of(shown),
        facets=facets_of_sessions(library, shown, rows),
        warnings=warnings,
        recent=session_lines(library, rows[:_RECENT]),
        projects=[
            Project(folder_name(path), home_path(path), shown.url(project=path), len(times), rfc3339(max(times)))
            for path, (_, times) in zip(paths, latest, strict=True)
        ],
        sessions=len(rows) or library.archive.counts().sessions,
        truncated=is_cut,
        looked_at=looked_at,
        counted_best=True,
    )
