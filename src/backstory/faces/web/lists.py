"""Lists of sessions: their entries and addresses, the relations of a session, and the filters of a search.

A session is related to the one that started it, to its subagents, its neighbours in the project, and its capsules. The
filters are in the address, facets with counts to choose from, and chips to remove.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import quote

from msgspec import Struct

from ...archive.base import Hit, OpenedSession, SessionRow, SessionsRequest, Totals
from ...archive.rows import has_failed
from ...model import EventType, session_id
from ...toolsets.history.types import CapsuleLink
from ...toolsets.history.views import Views
from ..words import home_path, parse_moment
from . import address

if TYPE_CHECKING:
    from ...library import Library

_SECONDS = 5.0
# Sessions of the project that are looked at for the next one: many of them may be subagents.
_BESIDE = 50

KINDS: dict[EventType, str] = {
    EventType.USER_INPUT: "you",
    EventType.ASSISTANT_RESPONSE: "agent",
    EventType.TOOL_RESPONSE: "output",
    EventType.TOOL_CALL: "tool call",
    EventType.REASONING: "reasoning",
    EventType.COMPACTION: "compaction",
    EventType.SYSTEM: "system",
    EventType.RUNTIME: "runtime",
}
"""The words for types of events."""
_OPTIONS = 8
_PERIODS = (("24h", "last 24 hours"), ("7d", "last 7 days"), ("30d", "last 30 days"), ("1y", "last year"))


class SessionLine(Struct, frozen=True):
    id: str
    url: str
    title: str
    source: str
    project: str | None
    """The path of its working directory, with `~` for the home folder."""
    project_name: str | None
    branch: str | None
    started_at: str
    updated_at: str
    turn_count: int
    event_count: int
    completed: bool
    summary: str | None = None


def session_lines(library: Library, rows: Sequence[SessionRow]) -> list[SessionLine]:
    listings = Views(library.settings.redact).listings(rows)
    places = library.egress([[row.cwd or "", row.branch or ""] for row in rows])
    lines = []
    for listing, (cwd, branch) in zip(listings, places, strict=True):
        session = listing.session
        lines.append(
            SessionLine(
                id=session.id,
                url=session_url(session.id),
                title=session.title,
                source=session.source,
                project=home_path(cwd) if cwd else None,
                project_name=folder_name(cwd) if cwd else None,
                branch=branch or None,
                started_at=session.started_at,
                updated_at=session.updated_at,
                turn_count=session.turn_count,
                event_count=session.event_count,
                completed=session.completed,
                summary=session.session_summary,
            )
        )
    return lines


def session_url(id: str, *, at: str = "", find: str = "", event: str = "") -> str:
    """The page of a session; `at` is a place in it (`3` or `3.12`: turn and event), `event` the id to jump to."""
    url = address(f"/s/{quote(id, safe=':')}", [("at", at), ("find", find)])
    return f"{url}#{event}" if event else url


# Relations


class Related(Struct, frozen=True, kw_only=True):
    parent: SessionLine | None
    children: list[SessionLine]
    previous: SessionLine | None
    next: SessionLine | None
    capsules: list[CapsuleLink]
    traces_url: str


def read_related(library: Library, opened: OpenedSession) -> Related:
    id = session_id(opened.session.key)
    named = tuple(key for key in (opened.parent, *opened.children) if key)
    rows = library.archive.sessions(SessionsRequest(keys=named, empty=True)) if named else []
    beside = [_beside(library, opened.session, ascending=ascending) for ascending in (False, True)]
    rows = [*rows, *(row for row in beside if row)]
    lines = dict(zip((row.key for row in rows), session_lines(library, rows), strict=True))
    previous, following = (lines[row.key] if row else None for row in beside)
    return Related(
        parent=lines.get(opened.parent or ""),
        previous=previous,
        next=following,
        children=[lines[key] for key in opened.children if key in lines],
        capsules=[library.egress(link) for link in library.capsules_of(opened.session.key)],
        traces_url=address("/traces", [("session", id)]),
    )


def _beside(library: Library, session: SessionRow, *, ascending: bool) -> SessionRow | None:
    """The next session of the project, or the one before, of any agent; subagents stand at the session that started
    them."""
    project = session.project or session.cwd
    if not project:
        return None
    rows = library.archive.sessions(
        SessionsRequest(
            project=project,
            order="started_at",
            ascending=ascending,
            after=(session.started_at, session_id(session.key)),
            limit=_BESIDE,
            deadline=time.monotonic() + _SECONDS,
        )
    )
    return next((row for row in rows if not row.parent and project in (row.project, row.cwd)), None)


# Filters


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

    @property
    def selects(self) -> bool:
        """True if a filter is set that is no field of the index."""
        return bool(self.model or self.branch or self.failed)

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


def is_selected(hit: Hit, filters: Filters) -> bool:
    return (
        (not filters.model or _model(hit) == filters.model)
        and (not filters.branch or hit.session.branch == filters.branch)
        and (not filters.failed or has_failed(hit.event))
    )


def _model(hit: Hit) -> str | None:
    return hit.event.originating_model or hit.event.model


def facets_of_hits(library: Library, filters: Filters, hits: Sequence[Hit], totals: Totals | None) -> list[Facet]:
    """With the counts of all matches where they are known, otherwise of the hits."""
    if totals is None:
        agents = Counter(hit.session.source for hit in hits)
        projects = Counter(hit.session.cwd for hit in hits if hit.session.cwd)
        types = Counter(hit.event.type for hit in hits)
        models = Counter(model for hit in hits if (model := _model(hit)))
        branches = Counter(hit.session.branch for hit in hits if hit.session.branch)
        failed = sum(has_failed(hit.event) for hit in hits)
    else:
        agents, projects, types = Counter(totals.sources), Counter(totals.projects), Counter(totals.types)
        models, branches, failed = Counter(totals.models), Counter(totals.branches), totals.failed
    shown = library.egress
    folders = shown(list(projects.most_common(_OPTIONS)))
    return [
        _facet(filters, "agent", "Agent", agents.most_common(_OPTIONS)),
        _facet(filters, "project", "Project", folders, _telling(path for path, _ in folders)),
        _types(filters, types, every=totals is not None),
        _times(filters, None if totals is None else totals.since),
        _facet(filters, "model", "Model", shown(list(models.most_common(_OPTIONS)))),
        _facet(filters, "branch", "Branch", shown(list(branches.most_common(_OPTIONS)))),
        Facet("failed", "Tool calls", [_option(filters, "failed", "1", "failed only", failed)]),
    ]


def facets_of_sessions(library: Library, filters: Filters, rows: Sequence[SessionRow]) -> list[Facet]:
    agents = Counter(row.source for row in rows)
    branches = Counter(row.branch for row in rows if row.branch)
    return [
        _facet(filters, "agent", "Agent", agents.most_common(_OPTIONS)),
        _times(filters),
        _facet(filters, "branch", "Branch", library.egress(list(branches.most_common(_OPTIONS)))),
    ]


def folder_name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path


def _telling(paths: Iterable[str]) -> Callable[[str], str]:
    """Shortens paths to their last part; to two parts where another path has the same last one."""
    names = Counter(map(folder_name, paths))
    return lambda path: folder_name(path) if names[folder_name(path)] < 2 else "/".join(PurePath(path).parts[-2:])


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


def _types(filters: Filters, counts: Counter[EventType], *, every: bool) -> Facet:
    none = 0 if every else None
    options = [_option(filters, "type", str(kind), label, counts.get(kind, none)) for kind, label in KINDS.items()]
    return Facet("type", "Said by", options)


def period_starts() -> tuple[int, ...]:
    """The times that the periods to choose from begin at."""
    return tuple(parse_moment(value) or 0 for value, _ in _PERIODS)


def _times(filters: Filters, counts: Sequence[int] | None = None) -> Facet:
    numbers: Sequence[int | None] = counts or [None] * len(_PERIODS)
    options = [
        _option(filters, "since", value, label, count) for (value, label), count in zip(_PERIODS, numbers, strict=True)
    ]
    return Facet("since", "Time", options)


def chips_of(filters: Filters) -> list[Chip]:
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
