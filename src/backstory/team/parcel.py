"""Parcels: rows on their way to the archive of a team, without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from ..archive.base import Batch, EventRow, ExchangeRow, SessionRow, TurnRow, UsageRow
from ..egress import egress
from ..egress.rules import RULES
from ..model import EventType, digest

# All fields with text that stands in a transcript, except for the keys of sessions.
TEXTS: dict[type[Struct], tuple[str, ...]] = {
    SessionRow: (
        *("title", "summary", "slug", "folder", "cwd", "last_cwd", "project", "branch", "version", "parent_call"),
    ),
    TurnRow: ("tools", "turn_key"),
    EventRow: ("text", "tool", "model", "originating_model", "arguments", "cwd", "extra", "call_id"),
    ExchangeRow: ("user_text",),
    UsageRow: ("model", "stop_reason", "request"),
}
FORMAT = digest("parcel 1", *sorted(RULES))
"""Another value means that the same rows make other parcels: other rules redact them."""
_STATE_BYTES = 8


class Parcel(Struct, kw_only=True):
    """Rows of sessions that one machine shares."""

    machine: str
    batch: Batch
    known: list[str] = []
    """Keys of the sessions in it whose other rows were accepted before."""


class Refusal(Struct, frozen=True):
    """The reason why a session was not accepted."""

    code: str
    """`project`, `owner`, `forgotten`, or `conflict`: the server has other rows of it, so all of them are needed."""
    message: str


class Receipt(Struct, kw_only=True):
    """The answer to a parcel: what it has of all other sessions is durable."""

    refused: dict[str, Refusal] = {}


def seal(batch: Batch) -> Batch:
    """Redact the rows of a batch, in place, as with `redact = "ingest"`. Nothing leaves this machine otherwise."""
    for event in batch.events:
        if event.type is EventType.TOOL_CALL:
            event.text = ""  # it is made from the arguments
    places = list(_places(batch))
    values: list[Any] = [getattr(row, name) for row, name in places]
    for (row, name), value in zip(places, egress(values, "ingest"), strict=True):
        setattr(row, name, tuple(value) if name == "tools" else value)
    return batch


def is_clean_key(key: str) -> bool:
    """True for the key of a session that may leave: it cannot be redacted, for it is what the session is known by."""
    return egress(key, "ingest") == key


def _places(batch: Batch) -> Iterator[tuple[Struct, str]]:
    for rows in (batch.sessions, batch.turns, batch.events, batch.exchanges, batch.usage):
        for row in rows:
            for name in TEXTS[type(row)]:
                if getattr(row, name):
                    yield row, name


def fingerprint(row: Struct) -> bytes:
    """A short digest of the content of a row."""
    return blake2b(msgspec.msgpack.encode(row), digest_size=_STATE_BYTES).digest()
