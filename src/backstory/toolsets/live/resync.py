"""The state of a store told as events, for subscribers whose store was exchanged under them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any

from .events import ADDED, CREATED, DELETED, UPDATED, Event, added_payload, created_payload, event, updated_payload
from .filters import Filter
from .journal import now

__all__ = ["Entries", "Metas", "tell_state"]

Json = dict[str, Any]
Metas = Mapping[str, Json]
Entries = Callable[[str], Awaitable[list[Json]]]


async def tell_state(wanted: Filter, head: int, before: Metas, metas: Metas, entries: Entries) -> AsyncIterator[Event]:
    """Deletions of what is not there any more, then every session and its entries, parents first.

    All carry the number of the newest event: what comes after that is told as it happens.
    """
    time = now()
    for session_id, meta in before.items():
        if session_id not in metas and wanted.session_id in (None, session_id):
            yield event(head, DELETED, {"session_id": session_id, "timestamp": time}, meta.get("metadata"))
    for meta in _parents_first(metas):
        session_id, metadata = meta["session_id"], meta.get("metadata")
        if wanted.session_id not in (None, session_id):
            continue
        yield event(head, CREATED, created_payload(meta), metadata)
        for entry in await entries(session_id):
            yield event(head, ADDED, added_payload(session_id, entry), metadata)
            if entry.get("revision"):
                yield event(head, UPDATED, updated_payload(session_id, entry, None, entry["timestamp"]), metadata)


def _parents_first(metas: Metas) -> Iterable[Json]:
    """Sessions in the order they were created, a fork after the session it was made from."""
    told: set[str] = set()
    for meta in sorted(metas.values(), key=lambda meta: (meta["created_at"], meta["session_id"])):
        chain: list[Json] = []
        current: Json | None = meta
        while current is not None and current["session_id"] not in told:
            told.add(current["session_id"])
            chain.append(current)
            current = metas.get(current.get("forked_from") or "")
        yield from reversed(chain)
