"""Access to a hub: members with their tokens, of which only digests are stored, and the archive as a token sees it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec
from msgspec import Struct

from ..archive.base import (
    EVERYTHING,
    Archive,
    Counts,
    EventRow,
    Exchange,
    ExchangesRequest,
    Found,
    Hit,
    Opened,
    OpenedEvent,
    OpenedSession,
    Part,
    SearchRequest,
    SessionRow,
    SessionsRequest,
    SyncState,
    TurnRow,
)
from ..archive.spans import Found as FoundTraces
from ..archive.spans import (
    Origin,
    SpanRow,
    Spans,
    SpanStats,
    StatsGroup,
    TraceQuery,
    TraceRow,
    UsageDetail,
    UsageTotal,
    Window,
)
from ..model import Ref, event_id, session_id
from ..sqlite import Readers, connect, prepare
from . import SharedArchive, TeamError, refuse_writing
from .sharing import Projects

Right = Literal["read", "write"]
RIGHTS: tuple[Right, ...] = ("read", "write")
_PREFIX = "bst"
_MIGRATIONS = (
    """
    CREATE TABLE token (
        id TEXT PRIMARY KEY, digest BLOB NOT NULL, member TEXT NOT NULL, rights TEXT NOT NULL, projects TEXT NOT NULL,
        created_at INTEGER NOT NULL, revoked_at INTEGER
    ) STRICT, WITHOUT ROWID
    """,
)
_COLUMNS = "id, member, rights, projects, created_at, revoked_at"
_PAGE = 200
# As many as an engine weighs.
_SEARCHED = 300
_SUMS = (
    "calls", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "unpriced",
)  # fmt: skip


class Token(Struct, frozen=True, kw_only=True):
    """The rights of a token. The token itself is shown once, when it is made."""

    id: str
    member: str
    rights: tuple[Right, ...]
    projects: tuple[str, ...]
    """Patterns of the projects that it reads and writes."""
    created_at: int
    revoked_at: int | None = None

    def allows(self, right: Right) -> bool:
        return right in self.rights

    @property
    def scope(self) -> Projects:
        return Projects(self.projects)


class Tokens:
    """The tokens of the hub whose home this is. Changes hold at once, also in a running hub."""

    def __init__(self, home: Path) -> None:
        self._path = home / "tokens.db"
        prepare(self._path, _MIGRATIONS)
        self._readers = Readers(lambda: connect(self._path, writable=False))

    def create(self, member: str, rights: Sequence[Right], projects: Sequence[str]) -> tuple[Token, str]:
        """A new token of a member, and its secret text."""
        token = Token(
            id=secrets.token_hex(4),
            member=member,
            rights=tuple(rights),
            projects=tuple(projects),
            created_at=time.time_ns() // 1_000_000,
        )
        text = f"{_PREFIX}_{token.id}_{secrets.token_urlsafe(32)}"
        self._execute(
            "INSERT INTO token (id, digest, member, rights, projects, created_at) VALUES (?, ?, ?, ?, ?, ?)",
            token.id,
            _digest(text),
            member,
            ",".join(rights),
            msgspec.json.encode(token.projects).decode(),
            token.created_at,
        )
        return token, text

    def list(self) -> list[Token]:
        rows = self._readers.connection.execute(f"SELECT {_COLUMNS} FROM token ORDER BY created_at, id")
        return [_token(row) for row in rows]

    def revoke(self, id: str) -> Token | None:
        """Revoke a token; None if there is none with this id."""
        self._execute(
            "UPDATE token SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", time.time_ns() // 1_000_000, id
        )
        return next((token for token in self.list() if token.id == id), None)

    def find(self, text: str) -> Token | None:
        """The token with this secret text, also a revoked one."""
        id = text.partition("_")[2].partition("_")[0]
        row = self._readers.connection.execute(f"SELECT {_COLUMNS}, digest FROM token WHERE id = ?", (id,)).fetchone()
        return _token(row[:-1]) if row and hmac.compare_digest(row[-1], _digest(text)) else None

    def close(self) -> None:
        self._readers.close()

    def _execute(self, sql: str, *values: Any) -> None:
        with closing(connect(self._path, writable=True, pragmas={"synchronous": "FULL"})) as db:
            db.execute(sql, values)


def _token(row: Sequence[Any]) -> Token:
    id, member, rights, projects, created_at, revoked_at = row
    return Token(
        id=id,
        member=member,
        rights=tuple(rights.split(",")),
        projects=tuple(msgspec.json.decode(projects)),
        created_at=created_at,
        revoked_at=revoked_at,
    )


def _digest(text: str) -> bytes:
    """Tokens are random, so a plain digest cannot be reversed."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


class LimitedArchive(SharedArchive):
    """Answers as if there were no other sessions. Statistics of all texts are left out."""

    def __init__(self, archive: Archive, projects: Projects) -> None:
        self._archive = archive
        self._projects = projects
        self._spans = LimitedSpans(archive, self)

    @property
    def spans(self) -> Spans:
        return self._spans

    def allowed(self, keys: Iterable[str]) -> set[str]:
        """The sessions among these that belong to the allowed projects."""
        rows = self._archive.sessions(SessionsRequest(keys=tuple(keys), empty=True))
        return {row.key for row in rows if self._projects.match(row)}

    # Rows

    def sessions(self, request: SessionsRequest) -> list[SessionRow]:
        found: list[SessionRow] = []
        for page in self._pages(request):
            found += [row for row in page if self._projects.match(row)]
            if request.limit is not None and len(found) >= request.limit:
                break
        return found[: request.limit]

    def _pages(self, request: SessionsRequest) -> Iterator[list[SessionRow]]:
        if request.folders is not None or request.keys is not None or request.limit is None:
            yield self._archive.sessions(msgspec.structs.replace(request, limit=None))
            return
        literals = self._projects.literals
        if request.project is None and len(literals) == 1:
            request = msgspec.structs.replace(request, project=literals[0])
        while page := self._archive.sessions(msgspec.structs.replace(request, limit=_PAGE)):
            yield page
            last = page[-1]
            request = msgspec.structs.replace(request, after=(getattr(last, request.order), session_id(last.key)))

    def turns(self, key: str, part: Part = EVERYTHING) -> list[TurnRow]:
        return self._archive.turns(key, part) if self.allowed([key]) else []

    def turn_keys(self, key: str) -> frozenset[str]:
        return self._archive.turn_keys(key) if self.allowed([key]) else frozenset()

    def events(self, key: str | None = None, turn: int | None = None, part: Part = EVERYTHING) -> list[EventRow]:
        if part.uids is None and (key is None or not self.allowed([key])):
            return []
        found = self._archive.events(key, turn, part)
        allowed = self.allowed({row.session for row in found})
        return [row for row in found if row.session in allowed]

    def exchanges(self, request: ExchangesRequest) -> Iterator[Exchange]:
        shown = 0
        for exchange in self._archive.exchanges(msgspec.structs.replace(request, limit=None)):
            if request.limit is not None and shown >= request.limit:
                return
            if self._projects.match(exchange.session):
                shown += 1
                yield exchange

    # Search

    def search(self, request: SearchRequest) -> Found:
        if request.session is not None and not self.allowed([request.session]):
            return msgspec.structs.replace(self._archive.search(msgspec.structs.replace(request, limit=1)), **_NOTHING)
        if request.session is not None:
            return self._hidden(self._archive.search(request))
        literals = self._projects.literals
        if request.project is not None or not literals:
            parts = [self._archive.search(msgspec.structs.replace(request, limit=_SEARCHED))]
        else:
            parts = [
                self._archive.search(msgspec.structs.replace(request, project=text, limit=_SEARCHED))
                for text in literals
            ]
        hits = {hit.event.uid: hit for part in parts for hit in part.hits if self._projects.match(hit.session)}
        order = sorted(hits.values(), key=by_score)
        found = msgspec.structs.replace(parts[0], hits=order[: request.limit], more=len(order) > request.limit)
        return self._hidden(found)

    def _hidden(self, found: Found) -> Found:
        """The hits, without the numbers that would tell about other sessions."""
        return msgspec.structs.replace(found, terms=(), documents=len(found.hits), totals=None)

    # Opening

    def _open(self, ref: Ref, part: Part) -> Opened | None:
        found: Any = self._archive.open(ref, part)
        if found is None or not self._projects.match(found.session):
            return None
        if isinstance(found, OpenedSession):
            beside = [key for key in (found.previous, found.next, found.parent) if key is not None]
            allowed = self.allowed([*beside, *found.children])
            found.previous = found.previous if found.previous in allowed else None
            found.next = found.next if found.next in allowed else None
            found.parent = found.parent if found.parent in allowed else None
        if isinstance(found, OpenedSession | OpenedEvent):
            allowed = self.allowed(found.children)
            found.children = [key for key in found.children if key in allowed]
        opened: Opened = found
        return opened

    # State

    def counts(self) -> Counts:
        rows = self.sessions(SessionsRequest())
        by_source: dict[str, int] = {}
        for row in rows:
            by_source[row.source] = by_source.get(row.source, 0) + 1
        events = sum(row.event_count for row in rows)
        return Counts(
            sessions=len(rows),
            turns=sum(row.turn_count for row in rows),
            events=events,
            documents=events,
            files=0,
            files_with_errors=0,
            files_missing=0,
            by_source=by_source,
            bytes=0,
        )

    def sync_state(self, *, folders: bool = False) -> SyncState:
        return msgspec.structs.replace(self._archive.sync_state(), forgetting=())

    def close(self) -> None:
        """The archive behind it is its owner's."""


_NOTHING: dict[str, Any] = {"hits": [], "more": False, "terms": (), "documents": 0, "known": False, "totals": None}


def by_score(hit: Hit) -> tuple[float, int, str]:
    """The order of hits: by score, then the newest, then by event id."""
    return -hit.score, -hit.event.ts, event_id(hit.event.uid)


class LimitedSpans(Spans):
    """The usage of some projects. Traces are not divided by project: they need a token for all."""

    def __init__(self, archive: Archive, limited: LimitedArchive) -> None:
        self._archive = archive
        self._limited = limited

    def usage(self, window: Window, detail: UsageDetail = "day") -> list[UsageTotal]:
        lines = self._archive.spans.usage(window, "session" if detail == "day" else detail)
        allowed = self._limited.allowed({line.session for line in lines if line.session})
        kept = [line for line in lines if line.session in allowed]
        return by_day(kept) if detail == "day" else kept

    def put(self, spans: Sequence[SpanRow], origins: Mapping[str, Origin]) -> None:
        refuse_writing()

    def traces(self, query: TraceQuery) -> FoundTraces[TraceRow]:
        _refuse_traces()

    def spans(self, query: TraceQuery, chars: int) -> FoundTraces[SpanRow]:
        _refuse_traces()

    def trace(
        self, id: str, only: Collection[int] | None = None, *, texts: bool = True
    ) -> tuple[TraceRow, list[SpanRow]] | None:
        found = self._archive.spans.trace(id, only, texts=texts)
        return found if found and found[0].session and self._limited.allowed([found[0].session]) else None

    def stats(self, window: Window, by: StatsGroup, *, latencies: bool = True) -> list[SpanStats]:
        _refuse_traces()

    def check(self) -> None:
        self._archive.spans.check()


def by_day(lines: Iterable[UsageTotal]) -> list[UsageTotal]:
    """The lines of sessions, added up by day, project, model and agent."""
    totals: dict[tuple[str, str | None, str | None, str | None], UsageTotal] = {}
    for line in lines:
        place = (line.day, line.project, line.model, line.source)
        total = totals.get(place)
        if total is None:
            totals[place] = msgspec.structs.replace(line, session=None)
            continue
        for name in _SUMS:
            setattr(total, name, getattr(total, name) + getattr(line, name))
        total.start, total.end = min(total.start, line.start), max(total.end, line.end)
        if line.cost is not None:
            total.cost = (total.cost or 0.0) + line.cost
    return list(totals.values())


def _refuse_traces() -> NoReturn:
    raise TeamError("this token reads some projects only; traces and statistics need one that reads all (*)")
