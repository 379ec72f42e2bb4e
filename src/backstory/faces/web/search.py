"""The search page: results as one types, grouped by session, with filters in the address."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route

from ...archive.base import Found, Hit, SearchRequest, SessionsRequest
from ...model import DEFAULT_TYPES, SEARCHABLE_TYPES, EventType, rfc3339
from ...toolsets.history.rules import MAX_QUERY_CHARS
from ...toolsets.history.views import Views
from ..cli.words import home_path, parse_moment
from .lines import KINDS, SessionLine, session_lines, session_url
from .rendering import address
from .site import Nav, Site

if TYPE_CHECKING:
    from ...library import Library

_SECONDS = 5.0
_HITS = 60
# Model, branch and failure are no fields of the index: they select among so many of the best matches.
_SELECTED_HITS = 400
_GROUPS = 20
_MAX_GROUPS = 100
_SHOWN_PER_SESSION = 3
_CAPSULES = 3
_RECENT = 30
_RECENT_READ = 400
_PROJECTS = 12
_OPTIONS = 8
_PERIODS = (("24h", "last 24 hours"), ("7d", "last 7 days"), ("30d", "last 30 days"), ("1y", "last year"))


class Filters(Struct, frozen=True):
    """The address of the page, as fields; empty is not set."""

    q: str = ""
    agent: str = ""
    project: str = ""
    type: str = ""
    since: str = ""
    until: str = ""
    model: str = ""
    branch: str = ""
    failed: str = ""

    def url(self, **changed: str) -> str:
        fields = {name: changed.get(name, getattr(self, name)) for name in self.__struct_fields__}
        return address("/", list(fields.items()))


class Option(Struct, frozen=True):
    """A value of a facet; its address sets the filter, or clears it where it is on."""

    label: str
    url: str
    on: bool
    count: int | None = None
    value: str = ""


class Facet(Struct, frozen=True):
    name: str
    label: str
    options: list[Option]


class Chip(Struct, frozen=True):
    """A filter that is set; its address is the page without it."""

    label: str
    url: str


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
    """The number of matches that were looked at; there are more if `truncated`."""
    truncated: bool = False
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
    if len(filters.q) > MAX_QUERY_CHARS:
        raise HTTPException(400, f"A search may have {MAX_QUERY_CHARS:,} characters.")
    shown = library.egress(filters)
    since, until = _period(filters)
    warnings = list(_warnings(library, filters, since, until))
    if not filters.q:
        return _start_page(library, filters, shown, warnings, since, until)
    found = library.archive.search(_request(filters, since, until))
    hits = [hit for hit in found.hits if _is_selected(hit, filters)]
    wanted = _number(given.get("n"), _GROUPS, _MAX_GROUPS)
    sessions = len({hit.session.key for hit in hits})
    return SearchPage(
        filters=shown,
        chips=_chips(shown),
        facets=_facets(library, shown, hits),
        warnings=warnings,
        groups=_groups(library, shown, hits, found, wanted),
        sessions=sessions,
        found=len(hits),
        truncated=found.more,
        more_url=f"{shown.url()}&n={wanted + _GROUPS}" if sessions > wanted and wanted < _MAX_GROUPS else None,
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
        yield "The search index is behind the archive; the newest events may not be found yet."
    if (filters.since and since is None) or (filters.until and until is None):
        yield "The time cannot be read. Examples: 7d, yesterday, 2026-09-14."
    elif since is not None and until is not None and until <= since:
        yield "The time ends before it begins."


def _request(filters: Filters, since: int | None, until: int | None) -> SearchRequest:
    types = tuple(kind for kind in SEARCHABLE_TYPES if kind == filters.type) or DEFAULT_TYPES
    if filters.failed:
        types = (EventType.TOOL_RESPONSE,)
    selects = filters.model or filters.branch or filters.failed
    return SearchRequest(
        query=filters.q,
        types=types,
        limit=_SELECTED_HITS if selects else _HITS,
        project=filters.project or None,
        source=filters.agent or None,
        since=since,
        until=until,
        deadline=time.monotonic() + _SECONDS,
    )


def _is_selected(hit: Hit, filters: Filters) -> bool:
    return (
        (not filters.model or _model(hit) == filters.model)
        and (not filters.branch or hit.session.branch == filters.branch)
        and (not filters.failed or _has_failed(hit))
    )


def _model(hit: Hit) -> str | None:
    return hit.event.originating_model or hit.event.model


def _has_failed(hit: Hit) -> bool:
    return bool(hit.event.failed or hit.event.exit_code)


# Results


def _groups(library: Library, filters: Filters, hits: Sequence[Hit], found: Found, wanted: int) -> list[Group]:
    every: dict[str, list[Hit]] = {}
    for hit in hits:
        every.setdefault(hit.session.key, []).append(hit)
    by_session = dict(islice(every.items(), wanted))
    lines = session_lines(library, [group[0].session for group in by_session.values()])
    shown = [hit for group in by_session.values() for hit in group[:_SHOWN_PER_SESSION]]
    events = iter(_found_events(library, shown, found))
    return [
        Group(
            session=line,
            events=[next(events) for _ in group[:_SHOWN_PER_SESSION]],
            more=len(group) - len(group[:_SHOWN_PER_SESSION]),
            more_url=session_url(line.id, find=filters.q),
        )
        for line, group in zip(lines, by_session.values(), strict=True)
    ]


def _found_events(library: Library, hits: Sequence[Hit], found: Found) -> list[FoundEvent]:
    mark = marker(found)
    views = Views(library.settings.redact).hits(hits, found.query)
    tools = library.egress([hit.event.tool or "" for hit in hits])
    return [
        FoundEvent(
            id=view.event.id,
            url=session_url(view.session.id, at=f"{view.turn.ordinal}.{view.event.ordinal}", event=view.event.id),
            type=view.event.type,
            label=KINDS.get(view.event.type, str(view.event.type)),
            timestamp=view.event.timestamp,
            turn=view.turn.ordinal,
            tool=tool or None,
            failed=_has_failed(hit),
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
    part = re.compile(some, re.IGNORECASE)

    def places(text: str) -> list[tuple[int, int]]:
        return [match.span() for match in whole.finditer(text)] or [match.span() for match in part.finditer(text)]

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


# Facets and chips


def _facets(library: Library, filters: Filters, hits: Sequence[Hit]) -> list[Facet]:
    agents = Counter(hit.session.source for hit in hits)
    projects = Counter(hit.session.cwd for hit in hits if hit.session.cwd)
    models = Counter(model for hit in hits if (model := _model(hit)))
    branches = Counter(hit.session.branch for hit in hits if hit.session.branch)
    types = Counter(hit.event.type for hit in hits)
    failed = sum(map(_has_failed, hits))
    shown = library.egress
    folders = shown(list(projects.most_common(_OPTIONS)))
    return [
        _facet(filters, "agent", "Agent", agents.most_common(_OPTIONS)),
        _facet(filters, "project", "Project", folders, _telling(path for path, _ in folders)),
        _types(filters, types),
        _times(filters),
        _facet(filters, "model", "Model", shown(list(models.most_common(_OPTIONS)))),
        _facet(filters, "branch", "Branch", shown(list(branches.most_common(_OPTIONS)))),
        Facet("failed", "Tool calls", [_option(filters, "failed", "1", "failed only", failed)]),
    ]


def _folder(path: str) -> str:
    return PurePath(path).name or path


def _telling(paths: Iterable[str]) -> Callable[[str], str]:
    """Shortens paths to their last part; to two parts where another path has the same last one."""
    names = Counter(map(_folder, paths))
    return lambda path: _folder(path) if names[_folder(path)] < 2 else "/".join(PurePath(path).parts[-2:])


def _facet(
    filters: Filters,
    name: str,
    label: str,
    counts: Iterable[tuple[str, int]],
    shorten: Callable[[str], str] = str,
) -> Facet:
    counted: dict[str, int | None] = dict(counts)
    if (chosen := getattr(filters, name)) and chosen not in counted:
        counted = {chosen: None, **counted}
    options = [_option(filters, name, value, shorten(value), count) for value, count in counted.items()]
    return Facet(name, label, options)


def _option(filters: Filters, name: str, value: str, label: str, count: int | None = None) -> Option:
    on = getattr(filters, name) == value
    return Option(label, filters.url(**{name: "" if on else value}), on, count, value)


def _types(filters: Filters, counts: Counter[EventType]) -> Facet:
    options = [_option(filters, "type", str(kind), label, counts.get(kind)) for kind, label in KINDS.items()]
    return Facet("type", "Said by", options)


def _times(filters: Filters) -> Facet:
    return Facet("since", "Time", [_option(filters, "since", value, label) for value, label in _PERIODS])


def _chips(filters: Filters) -> list[Chip]:
    periods = dict(_PERIODS)
    texts = {
        "agent": filters.agent,
        "project": home_path(filters.project),
        "type": next((label for kind, label in KINDS.items() if kind == filters.type), filters.type),
        "since": periods.get(filters.since, f"since {filters.since}"),
        "until": f"until {filters.until}",
        "model": filters.model,
        "branch": f"branch {filters.branch}",
        "failed": "failed tool calls",
    }
    return [Chip(text, filters.url(**{name: ""})) for name, text in texts.items() if getattr(filters, name)]


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
    rows = [row for row in rows if not row.parent and (not filters.branch or row.branch == filters.branch)]
    agents = Counter(row.source for row in rows)
    branches = Counter(row.branch for row in rows if row.branch)
    projects: dict[str, list[int]] = {}
    for row in rows:
        if row.cwd:
            projects.setdefault(row.cwd, []).append(row.updated_at)
    latest = sorted(projects.items(), key=lambda item: -max(item[1]))[:_PROJECTS]
    paths = library.egress([path for path, _ in latest])
    return SearchPage(
        filters=shown,
        chips=_chips(shown),
        facets=[
            _facet(shown, "agent", "Agent", agents.most_common(_OPTIONS)),
            _times(shown),
            _facet(shown, "branch", "Branch", library.egress(list(branches.most_common(_OPTIONS)))),
        ],
        warnings=warnings,
        recent=session_lines(library, rows[:_RECENT]),
        projects=[
            Project(_folder(path), home_path(path), shown.url(project=path), len(times), rfc3339(max(times)))
            for path, (_, times) in zip(paths, latest, strict=True)
        ],
        sessions=len(rows) or library.archive.counts().sessions,
    )
