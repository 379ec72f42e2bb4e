"""A capsule as the store keeps it, and the shapes in which it is shown."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from .types import Item, Link, SearchHit, Summary
from .wording import normalise, tokens_estimate

__all__ = ["SECOND", "Capsule", "item", "link", "search_hit", "summary", "with_text"]

SECOND = 1_000_000


class Capsule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Raw names and text exactly as given.

    `updated_us` gives the order of updates: it only grows, whatever the clock does. `updated_at` is the time of the
    last update in seconds, by the clock.
    """

    id: str = ""
    workspace: str
    name: str | None = None
    title: str | None = None
    # Empty when only the summary was read.
    text: str = ""
    chars: int = 0
    tokens: int = 0
    tags: tuple[str, ...] = ()
    source: str | None = None
    run_id: str | None = None
    phase: str | None = None
    role: str | None = None
    source_session: str | None = None
    allow_thin: bool = False
    version: int = 1
    created_at: int = 0
    updated_us: int = 0
    updated_at: int = 0
    deleted_us: int | None = None

    @property
    def workspace_norm(self) -> str:
        return normalise(self.workspace)

    @property
    def name_norm(self) -> str | None:
        return None if self.name is None else normalise(self.name)

    @property
    def deleted_at(self) -> int | None:
        return None if self.deleted_us is None else self.deleted_us // SECOND


def with_text(capsule: Capsule, text: str) -> Capsule:
    return msgspec.structs.replace(capsule, text=text, chars=len(text), tokens=tokens_estimate(text))


def link(capsule: Capsule) -> Link:
    if capsule.name is None:
        return Link(moss_id=capsule.id)
    return Link(moss_capsule=capsule.name, moss_workspace=capsule.workspace)


def summary(capsule: Capsule) -> Summary:
    return Summary(**_shown(capsule))


def item(capsule: Capsule, *, include_text: bool) -> Item:
    key = link(capsule)
    text = capsule.text if include_text else None
    return Item(**_shown(capsule), capsule_text=text, version=capsule.version, task_link=key, fetch_key=key)


def search_hit(capsule: Capsule, snippet: str) -> SearchHit:
    key = link(capsule)
    return SearchHit(**_shown(capsule), task_link=key, fetch_key=key, snippet=snippet)


def _shown(capsule: Capsule) -> dict[str, Any]:
    return {
        "id": capsule.id,
        "workspace": capsule.workspace,
        "workspace_norm": capsule.workspace_norm,
        "capsule_chars": capsule.chars,
        "tokens_estimate": capsule.tokens,
        "created_at": capsule.created_at,
        "updated_at": capsule.updated_at,
        "deleted_at": capsule.deleted_at,
        "name": capsule.name,
        "name_norm": capsule.name_norm,
        "title": capsule.title,
        "tags": capsule.tags,
        "source": capsule.source,
        "run_id": capsule.run_id,
        "phase": capsule.phase,
        "role": capsule.role,
        "source_session": capsule.source_session,
    }
