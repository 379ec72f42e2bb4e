"""Rows of the archive as the contract shows them. All text of transcripts passes `egress`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from msgspec import UNSET

from ...archive.base import EventRow, Found, Hit, SessionRow, TurnRow
from ...archive.query import Query
from ...archive.rows import has_failed
from ...egress import Mode, egress
from ...model import EventType, event_id, rfc3339, session_id, turn_id
from ...toolcalls import render_call, without_preamble
from .answers import (
    Excerpt,
    Explanation,
    HitEvent,
    HitExplained,
    HitIds,
    HitTurn,
    ListedSession,
    Listing,
    SearchHit,
    SessionId,
    WordExplained,
)
from .snippet import heads, snippets
from .types import (
    CallContent,
    CapsuleLink,
    EventHeader,
    EventLine,
    HitSession,
    Quote,
    ReadEvent,
    ResponseContent,
    SessionHead,
    SessionName,
    TextContent,
    TurnHead,
    TurnIds,
    TurnLine,
    TurnName,
    TurnSummary,
)

Heads = Mapping[bytes, Excerpt]
"""The beginnings of events' texts, by uid."""

UNTITLED = "Untitled session"
# Some readers of JSON refuse deeper nesting.
_MAX_DEPTH = 64


class Views:
    def __init__(self, mode: Mode) -> None:
        self._egress = partial(egress, mode=mode)
        # Names of tools and models: few different ones occur.
        self._name = lru_cache(maxsize=1024)(self._egress)

    # Sessions

    def title(self, row: SessionRow) -> str:
        return self._titles([row])[0]

    def _titles(self, rows: Sequence[SessionRow]) -> list[str]:
        return [title or UNTITLED for title in self._lines([row.title for row in rows])]

    def session_name(self, row: SessionRow) -> SessionName:
        return SessionName(session_id(row.key), self.title(row), row.source)

    def capsule_links(self, links: Sequence[CapsuleLink]) -> list[CapsuleLink]:
        found = []
        for link in links:
            workspace, name, title = self._lines([link.workspace, link.name, link.title])
            found.append(CapsuleLink(link.id, workspace or "", name, title))
        return found

    def session_head(self, row: SessionRow) -> SessionHead:
        return SessionHead(*_session(row, self.title(row)), row.turn_count, row.event_count)

    def listings(self, rows: Sequence[SessionRow]) -> list[Listing]:
        titles, slugs = self._titles(rows), self._lines([row.slug for row in rows])
        summaries = self._lines([row.summary for row in rows])
        return [
            self._listing(rank, *row) for rank, row in enumerate(zip(rows, titles, slugs, summaries, strict=True), 1)
        ]

    def _listing(self, rank: int, row: SessionRow, title: str, slug: str | None, summary: str | None) -> Listing:
        counts = (row.turn_count, row.event_count)
        session = ListedSession(*_session(row, title), *counts, row.mode, slug, summary)
        return Listing(rank, session.id, session, SessionId(session.id))

    # Turns

    def turn_name(self, row: TurnRow) -> TurnName:
        return TurnName(turn_id(row.session, row.ordinal), row.ordinal, row.completed)

    def turn_head(self, row: TurnRow) -> TurnHead:
        return TurnHead(
            turn_id(row.session, row.ordinal),
            session_id(row.session),
            row.ordinal,
            row.completed,
            _event_id(row.terminal),
            row.event_count,
            rfc3339(row.started_at),
            rfc3339(row.updated_at),
        )

    def turn_summary(self, row: TurnRow, heads: Heads) -> TurnSummary:
        return TurnSummary(
            self._quote(row.prompt, heads),
            self._quote(row.response, heads),
            self._names(row.tools),
            list(row.types),
        )

    def turn_line(self, row: TurnRow, heads: Heads) -> TurnLine:
        id, terminal = turn_id(row.session, row.ordinal), _event_id(row.terminal)
        return TurnLine(
            id,
            row.ordinal,
            row.completed,
            terminal,
            row.event_count,
            rfc3339(row.started_at),
            rfc3339(row.updated_at),
            self._quote(row.prompt, heads),
            self._quote(row.response, heads),
            self._names(row.tools),
            list(row.types),
            TurnIds(id, terminal),
        )

    def _quote(self, uid: bytes | None, heads: Heads) -> Quote | None:
        head = heads.get(uid) if uid is not None else None
        return None if uid is None or head is None else Quote(event_id(uid), head.text, head.truncated)

    # Events

    def heads(self, turns: Sequence[TurnRow]) -> Heads:
        """The beginnings of the prompts and responses of turns, by their uids."""
        given = {
            uid: (head.text, head.more)
            for turn in turns
            for uid, head in ((turn.prompt, turn.prompt_head), (turn.response, turn.response_head))
            if uid is not None and head is not None
        }
        return dict(zip(given, heads(list(given.values()), self._egress), strict=True))

    def explanation(self, found: Found) -> Explanation:
        words = [WordExplained(term.word, term.documents, term.read_as) for term in found.terms]
        hits = [
            HitExplained(
                id=event_id(hit.event.uid),
                matched=dict(hit.matched),
                event=hit.evidence.event,
                session=hit.evidence.session,
                turn=hit.evidence.turn,
                title=hit.evidence.title,
                factor=hit.evidence.factor,
                repeated=hit.evidence.repeated,
            )
            for hit in found.hits
        ]
        return Explanation(found.documents, words, hits)

    def hits(self, hits: Sequence[Hit], query: Query) -> list[SearchHit]:
        titles = self._titles([hit.session for hit in hits])
        excerpts = snippets([_shown(hit.event) for hit in hits], query, self._egress)
        whole = [len(_shown(hit.event)) == len(_text(hit.event)) for hit in hits]
        excerpts = [
            excerpt if is_whole else Excerpt(excerpt.text, True)
            for excerpt, is_whole in zip(excerpts, whole, strict=True)
        ]
        return [self._hit(rank, *row) for rank, row in enumerate(zip(hits, titles, excerpts, strict=True), 1)]

    def _hit(self, rank: int, hit: Hit, title: str, excerpt: Excerpt) -> SearchHit:
        event, turn, session = hit.event, hit.turn, hit.session
        ids = HitIds(event_id(event.uid), turn_id(session.key, turn.ordinal), session_id(session.key))
        return SearchHit(
            rank,
            hit.score,
            ids.event_id,
            HitEvent(ids.event_id, event.type, rfc3339(event.ts), event.ordinal, event.uid == turn.terminal),
            HitTurn(ids.turn_id, turn.ordinal, turn.completed, turn.event_count),
            HitSession(*_session(session, title)),
            excerpt,
            ids,
        )

    def event_lines(self, rows: Sequence[EventRow], turn: TurnRow) -> list[EventLine]:
        """One line each, with the beginning of the text; of a command, the command."""
        summaries = heads([(_command(row.arguments) or _text(row), False) for row in rows], self._egress)
        return [
            EventLine(
                event_id(row.uid),
                row.ordinal,
                row.type,
                rfc3339(row.ts),
                row.uid == turn.terminal,
                self._word(row.tool),
                self._word(_models(row)[0]),
                summary.text,
                summary.truncated,
            )
            for row, summary in zip(rows, summaries, strict=True)
        ]

    def event_header(self, row: EventRow, turn: TurnRow) -> EventHeader:
        model, originating_model = _models(row)
        return EventHeader(
            event_id(row.uid),
            session_id(row.session),
            turn_id(row.session, row.turn),
            row.ordinal,
            row.type,
            rfc3339(row.ts),
            row.uid == turn.terminal,
            self._word(model),
            self._word(originating_model),
            self._word(row.tool),
        )

    def content(self, row: EventRow) -> TextContent | CallContent | ResponseContent:
        tool = self._word(row.tool)
        if row.type is EventType.TOOL_CALL:
            arguments = self._egress(row.arguments)
            text = render_call(tool, arguments)
            return CallContent(tool, arguments if _is_shallow(arguments) else text, text)
        text = self._egress(row.text)
        if row.type is EventType.TOOL_RESPONSE:
            return ResponseContent(tool, row.exit_code, text, failed=UNSET if row.failed is None else has_failed(row))
        return TextContent(text)

    def read_event(self, row: EventRow, turn: TurnRow) -> ReadEvent:
        call_id = None if row.call_id is None else self._egress(row.call_id)
        return ReadEvent(self.event_header(row, turn), self.content(row), call_id)

    def _names(self, texts: Sequence[str]) -> list[str]:
        return [self._name(text) for text in texts]

    def _word(self, text: str | None) -> str | None:
        return None if text is None else self._name(text)

    def _lines(self, texts: Sequence[str | None]) -> list[str | None]:
        """The texts after egress, each on one line; None for an empty one."""
        return [line.text or None for line in heads([(text or "", False) for text in texts], self._egress)]


def _session(row: SessionRow, title: str) -> tuple[str, str, str, str, str, bool]:
    """The values of the fields of a `HitSession`, with which every other head of a session begins, too."""
    times = rfc3339(row.started_at), rfc3339(row.updated_at)
    return session_id(row.key), title, row.source, *times, row.completed


def _event_id(uid: bytes | None) -> str | None:
    return None if uid is None else event_id(uid)


def _models(row: EventRow) -> tuple[str | None, str | None]:
    """The model that wrote an event, and the model that caused it: of tool calls and their responses the caller."""
    model = row.originating_model or row.model
    if row.type in (EventType.TOOL_CALL, EventType.TOOL_RESPONSE):
        return None, model
    return (None, None) if row.type is EventType.USER_INPUT else (model, model)


def _text(row: EventRow) -> str:
    return row.text or (render_call(row.tool, row.arguments) if row.type is EventType.TOOL_CALL else "")


def _shown(row: EventRow) -> str:
    """The text of an event that an excerpt is made from: of a tool response, the output itself."""
    return without_preamble(row.text) if row.type is EventType.TOOL_RESPONSE else _text(row)


def _command(arguments: Any) -> str | None:
    """The shell command among a call's arguments. A lone word beside others (`view`, `create`) is an option instead."""
    if not isinstance(arguments, dict):
        return None
    command = arguments.get("cmd", arguments.get("command"))
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        command = " ".join(command)
    if not isinstance(command, str) or not command.strip():
        return None
    return command if len(arguments) == 1 or len(command.split(None, 1)) > 1 else None


def _is_shallow(value: Any, depth: int = _MAX_DEPTH) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return True
    return depth > 0 and all(_is_shallow(item, depth - 1) for item in value)
