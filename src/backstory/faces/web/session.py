"""The session page: the conversation in parts, the rail with its turns, what a search finds, what belongs to it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ...archive.base import OpenedSession, Part, SearchRequest, TurnRow
from ...archive.spans import Condition, TraceQuery, TraceRow
from ...model import SEARCHABLE_TYPES, EventRef, InvalidId, SessionRef, TurnRef, parse_id, rfc3339, session_id, turn_id
from ...toolsets.history.views import Views
from ..export import MEDIA_TYPES, Format, export
from ..words import resume_command
from . import address
from .conversation import HEAD_CHARS, ON_PAGE, PART_EVENTS, Conversation, Item, Passage, Place, ShownTurn, ToolUse
from .lists import KINDS, Related, SessionLine, read_related, session_lines, session_url
from .search import marker
from .site import Site

if TYPE_CHECKING:
    from ...library import Library

_SECONDS = 5.0
_RAIL_CHARS = 120
# Turns in the rail of a page; scripts add the others as one scrolls there.
_RAIL_TURNS = 100
# Events before one that is asked for, far within its turn.
_BEFORE = 6
_FOUND = 50
_AT = re.compile(r"([1-9]\d{0,6})(?:\.([1-9]\d{0,8}))?")


class RailTurn(Struct, frozen=True):
    ordinal: int
    url: str
    prompt: str
    started_at: str
    event_count: int
    tokens: int | None
    cost: float | None
    failed: bool


class FoundLine(Struct, frozen=True):
    """A match in a session."""

    id: str
    """Of the event."""
    url: str
    label: str
    turn: int
    snippet: str
    marks: list[tuple[int, int]]


class FindResult(Struct, frozen=True):
    query: str
    lines: list[FoundLine]
    truncated: bool


class SessionPage(Struct, frozen=True, kw_only=True):
    session: SessionLine
    turns: list[ShownTurn]
    earlier_url: str | None
    later_url: str | None
    find: FindResult | None
    native_id: str = ""
    version: str | None = None
    resume: str | None = None
    """The command that continues it in its agent."""
    tokens: int = 0
    cost: float | None = None
    rail: list[RailTurn] = []
    """Of at most a hundred turns, around the first one on the page."""
    rail_earlier_url: str | None = None
    rail_later_url: str | None = None
    related: Related | None = None


def routes(site: Site) -> list[Route]:
    library = site.library

    def build(request: Request) -> SessionPage | Response:
        return _find_session(library, request) or session_page(library, request.path_params["id"], request.query_params)

    async def text(request: Request) -> Response:
        return await site.answer(request, lambda: _whole_text(library, request.path_params["event"]))

    async def image(request: Request) -> Response:
        path = request.path_params
        return await site.answer(request, lambda: _image(library, path["event"], path["number"]))

    def file_route(format: Format) -> Route:
        async def file(request: Request) -> Response:
            def build() -> Response:
                return _find_session(library, request) or _file(library, request.path_params["id"], format)

            return await site.answer(request, build)

        return Route(f"/s/{{id}}.{format}", file, methods=["GET"])

    return [
        Route("/s/{id}/{event}.txt", text, methods=["GET"]),
        Route("/s/{id}/{event}/image/{number:int}", image, methods=["GET"]),
        *map(file_route, MEDIA_TYPES),
        *site.page("/s/{id}", "session.html", build, parts=["turns", "matches", "rail"]),
    ]


# Addresses


def _find_session(library: Library, request: Request) -> Response | None:
    """The address of a session that is named by a turn, an event or a handle: its page, its twin or one of its files,
    with the same query."""
    given = request.path_params["id"]
    try:
        ref = parse_id(given)
    except InvalidId:
        ref = parse_id(_by_handle(library, given))
    at = event = ""
    if isinstance(ref, EventRef):
        found = library.archive.open(ref)
        if found is None:
            raise HTTPException(404, "The archive has no such event.")
        key, event, at = found.event.session, given, str(Place(found.event.turn, found.event.ordinal))
    else:
        key, at = ref.key, str(ref.ordinal) if isinstance(ref, TurnRef) else ""
    id = session_id(key)
    if id == given:
        return None
    ending = str(request.scope["path"]).removeprefix(f"/s/{given}")
    query = [(name, value) for name, value in request.query_params.multi_items() if name != "at" or not at]
    url = address(session_url(id) + ending, [*query, ("at", at)])
    return RedirectResponse(f"{url}#{event}" if event and not ending else url)


def _by_handle(library: Library, text: str) -> str:
    from ..words import AmbiguousHandle, find_id

    try:
        found = find_id(library.archive, text)
    except AmbiguousHandle as error:
        raise HTTPException(404, f"{error}.") from None
    if found == text:
        raise HTTPException(404, "The archive has no session with this id.")
    return found


def _whole_text(library: Library, id: str) -> Response:
    """The text of an event that a page shows the beginning of. As plain text no browser runs anything in it."""
    try:
        ref = parse_id(id)
    except InvalidId:
        ref = None
    found = library.archive.open(ref) if isinstance(ref, EventRef) else None
    if found is None:
        raise HTTPException(404, "The archive has no such event.")
    text = library.egress(found.event.text)
    return Response(text.encode("utf-8", "replace"), media_type="text/plain; charset=utf-8")


def _image(library: Library, event: str, number: int) -> Response:
    """An image as its transcript has it. Egress is for texts: an image leaves as it is, or not at all."""
    try:
        found = library.image(event, number)
    except InvalidId:
        found = None
    if found is None:
        raise HTTPException(404, "The transcript does not have this image any more, or it cannot be shown.")
    headers = {
        "Cache-Control": "private, max-age=3600",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(found.content, headers=headers, media_type=found.media_type)


def _file(library: Library, id: str, format: Format) -> Response:
    try:
        pieces = export(library, id, format)
    except (InvalidId, LookupError):
        raise HTTPException(404, "The archive has no such session.") from None
    content = "".join(pieces).encode("utf-8", "replace")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", id)[:80]
    headers = {
        "Content-Disposition": f'attachment; filename="{name}.{format}"',
        "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
    }
    return Response(content, headers=headers, media_type=MEDIA_TYPES[format])


# The page


def session_page(library: Library, id: str, given: Any) -> SessionPage:
    ref = parse_id(id)
    assert isinstance(ref, SessionRef)
    part = given.get("part")
    if part == "rail":
        return _only_rail(library, ref, given.get("from") or given.get("at"))
    opened = library.archive.open(ref, Part())
    if opened is None:
        raise HTTPException(404, "The archive has no such session. It may have been forgotten, or not been read yet.")
    start, reach = _start(given.get("at"), given.get("from"), opened.turns)
    turns, end = ([], None) if part == "matches" else Conversation(library, opened, ON_PAGE).part(start, reach)
    find = (given.get("find") or "").strip()
    matches = _find(library, ref.key, find) if find and part != "turns" else None
    page = SessionPage(
        session=session_lines(library, [opened.session])[0],
        turns=turns if matches is None else with_passages(turns, matches.lines),
        earlier_url=_earlier(id, opened.turns, start),
        later_url=None if end is None else _part_url(id, end),
        find=matches,
    )
    return page if part else _with_surroundings(library, page, opened, start)


def _with_surroundings(library: Library, page: SessionPage, opened: OpenedSession, start: Place) -> SessionPage:
    """The page with its surroundings. A script that asks for a further part has them already."""
    traces = _traces(library, opened.session.key)
    costs = [trace.cost for trace in traces.values() if trace.cost is not None]
    location = library.locate(page.session.id)
    version = opened.session.version
    page = _with_rail(library, page, opened.session.key, (start.turn - 1) // _RAIL_TURNS * _RAIL_TURNS + 1, traces)
    return msgspec.structs.replace(
        page,
        native_id=location.native_id if location else "",
        version=library.egress(version) if version else None,
        resume=resume_command(location) if location else None,
        tokens=sum(trace.tokens or 0 for trace in traces.values()),
        cost=sum(costs) if costs else None,
        related=read_related(library, opened),
    )


def _part_url(id: str, place: Place) -> str:
    """The address of the part that begins at a place."""
    if place.event == 1:
        return f"{session_url(id)}?at={place}#turn-{place.turn}"
    return f"{session_url(id)}?from={place}#turn-{place.turn}-{place.event}"


def _start(at: str | None, begin: str | None, turns: Sequence[TurnRow]) -> tuple[Place, int]:
    """The place to begin at, and the event of that turn that is asked for: 0 for the first. `at` names an event to
    look at: it comes with its turn if it is near the beginning, else with a few events before it."""
    match = _AT.fullmatch(begin or at or "")
    turn = next((turn for turn in turns if match and turn.ordinal == int(match[1])), None)
    if match is None or turn is None:
        return Place(turns[0].ordinal if turns else 1), 0
    event = min(int(match[2] or 1), turn.event_count)
    if begin:
        return Place(turn.ordinal, event), 0
    if event <= PART_EVENTS:
        return Place(turn.ordinal), event
    return Place(turn.ordinal, event - _BEFORE), event


def _earlier(id: str, turns: Sequence[TurnRow], start: Place) -> str | None:
    """The address of the part before: as many events back."""
    if start.event > 1:
        return _part_url(id, Place(start.turn, max(start.event - PART_EVENTS, 1)))
    before = [turn for turn in turns if turn.ordinal < start.turn]
    if not before:
        return None
    events, first = 0, before[-1]
    for turn in reversed(before):
        if events and events + turn.event_count > PART_EVENTS:
            break
        events, first = events + turn.event_count, turn
    return _part_url(id, Place(first.ordinal, max(first.event_count - PART_EVENTS, 0) + 1))


# The rail


def _traces(library: Library, key: str) -> dict[str, TraceRow]:
    """The traces of the turns, by the id of the turn: their tokens, cost and failures."""
    query = TraceQuery(
        conditions=(Condition("sessionId", "eq", session_id(key)),),
        sort="createdAt",
        descending=False,
        limit=10_000,
        deadline=time.monotonic() + _SECONDS,
    )
    return {trace.id: trace for trace in library.archive.spans.traces(query).rows}


def _only_rail(library: Library, ref: SessionRef, begin: str | None) -> SessionPage:
    """The rail from a turn on."""
    row = library.archive.session(ref.key)
    if row is None:
        raise HTTPException(404, "The archive has no such session.")
    match = _AT.fullmatch(begin or "")
    page = SessionPage(session=session_lines(library, [row])[0], turns=[], earlier_url=None, later_url=None, find=None)
    return _with_rail(library, page, ref.key, int(match[1]) if match else 1, _traces(library, ref.key))


def _with_rail(library: Library, page: SessionPage, key: str, first: int, traces: dict[str, TraceRow]) -> SessionPage:
    """The page with the rail from a turn on."""
    id = page.session.id
    turns = library.archive.turns(key, Part(heads=HEAD_CHARS, above=first - 1, limit=_RAIL_TURNS + 1))
    shown = turns[:_RAIL_TURNS]
    heads = Views(library.settings.redact).heads(shown)
    rail = []
    for turn in shown:
        head = heads.get(turn.prompt) if turn.prompt is not None else None
        trace = traces.get(turn_id(key, turn.ordinal))
        rail.append(
            RailTurn(
                ordinal=turn.ordinal,
                url=_part_url(id, Place(turn.ordinal)),
                prompt=head.text[:_RAIL_CHARS] if head else "",
                started_at=rfc3339(turn.started_at),
                event_count=turn.event_count,
                tokens=trace.tokens if trace else None,
                cost=trace.cost if trace else None,
                failed=trace is not None and trace.status == "error",
            )
        )
    return msgspec.structs.replace(
        page,
        rail=rail,
        rail_earlier_url=_part_url(id, Place(max(first - _RAIL_TURNS, 1))) if first > 1 else None,
        rail_later_url=_part_url(id, Place(turns[-1].ordinal)) if len(turns) > len(shown) else None,
    )


# Find in the session


def _find(library: Library, key: str, query: str) -> FindResult:
    """Matches in this session, in the order of the session."""
    until = time.monotonic() + _SECONDS
    request = SearchRequest(query=query, types=SEARCHABLE_TYPES, session=key, limit=_FOUND, deadline=until)
    found = library.archive.search(request)
    mark = marker(found)
    hits = sorted(found.hits, key=lambda hit: (hit.turn.ordinal, hit.event.ordinal))
    lines = [
        FoundLine(
            id=view.event.id,
            url=session_url(
                session_id(key), at=f"{hit.turn.ordinal}.{hit.event.ordinal}", find=query, event=view.event.id
            ),
            label=KINDS.get(view.event.type, str(view.event.type)),
            turn=view.turn.ordinal,
            snippet=view.snippet.text,
            marks=mark(view.snippet.text),
        )
        for hit, view in zip(hits, Views(library.settings.redact).hits(hits, found.query), strict=True)
    ]
    return FindResult(library.egress(query), lines, found.more)


# Passages: of a text that is cut, the part that a search found farther on


def with_passages(turns: Sequence[ShownTurn], lines: Iterable[FoundLine]) -> list[ShownTurn]:
    """The turns, with the matches in texts of theirs that are cut, where the cut has left them out."""
    found = {line.id: Passage(line.snippet, line.marks) for line in lines if line.marks}
    return [replace(turn, items=[_with_passage(item, found) for item in turn.items]) for turn in turns]


def _with_passage(item: Item, found: Mapping[str, Passage]) -> Item:
    use = item.tool
    if use is None:
        return replace(item, passage=_beyond(item.text, found.get(item.id))) if item.cut else item
    if use.output_cut:
        use = replace(use, passage=_beyond(use.output or "", found.get(use.output_id or "")))
    # An output without its call has the id of the item.
    call = found.get(item.id) if use.input_cut and item.id != use.output_id else None
    return replace(item, tool=use, passage=None if call is None or _has_words(use, call) else call)


def _beyond(shown: str, passage: Passage | None) -> Passage | None:
    """The passage, unless it is in the text that is shown. Snippets have their text on one line."""
    is_shown = passage is not None and passage.text.strip("… ") in " ".join(shown.split())
    return None if is_shown else passage


def _has_words(use: ToolUse, passage: Passage) -> bool:
    """True if what is shown of a call has the words that were found: it is not laid out as it was searched."""
    lines = [line.text for diff in use.diffs for line in diff.lines]
    shown = "\n".join([*(argument.value for argument in use.arguments), use.shell or "", *lines]).lower()
    return all(passage.text[start:end].lower() in shown for start, end in passage.marks)
