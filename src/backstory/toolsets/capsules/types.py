"""What comes out of the tools. A key whose value would be null is left out, unless the contract wants it there."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

__all__ = [
    "Appended",
    "Composed",
    "Deleted",
    "Exported",
    "Fetched",
    "History",
    "ImportProblem",
    "Imported",
    "Item",
    "Latest",
    "Link",
    "Page",
    "Pagination",
    "Purged",
    "RefError",
    "Restored",
    "SearchHit",
    "SearchPage",
    "Stored",
    "Summary",
    "Updated",
    "Version",
]


class Link(Struct, frozen=True, omit_defaults=True):
    """How to fetch a capsule again: by its raw names, or by id when it has no name."""

    moss_capsule: str | None = None
    moss_workspace: str | None = None
    moss_id: str | None = None


class Summary(Struct, frozen=True, omit_defaults=True):
    """A capsule without its text."""

    id: str
    workspace: str
    workspace_norm: str
    capsule_chars: int
    tokens_estimate: int
    created_at: int
    updated_at: int
    deleted_at: int | None = None
    name: str | None = None
    name_norm: str | None = None
    title: str | None = None
    tags: tuple[str, ...] = ()
    source: str | None = None
    run_id: str | None = None
    phase: str | None = None
    role: str | None = None
    source_session: str | None = None


class Item(Summary, frozen=True, kw_only=True, omit_defaults=True):
    task_link: Link
    fetch_key: Link
    version: int
    capsule_text: str | None = None


class SearchHit(Summary, frozen=True, kw_only=True, omit_defaults=True):
    task_link: Link
    fetch_key: Link
    snippet: str


class Stored(Struct, frozen=True, omit_defaults=True):
    id: str
    task_link: Link
    fetch_key: Link
    created: bool = False
    replaced: bool = False
    warnings: list[str] = []


class RefError(Struct, frozen=True):
    ref: Any
    code: str
    message: str


class Fetched(Struct, frozen=True):
    items: list[Item]
    errors: list[RefError]


class Updated(Struct, frozen=True, omit_defaults=True):
    id: str
    task_link: Link
    fetch_key: Link
    warnings: list[str] = []


class Deleted(Struct, frozen=True):
    deleted: bool
    id: str


class Latest(Struct, frozen=True):
    item: Item | None


class Pagination(Struct, frozen=True):
    limit: int
    offset: int
    has_more: bool
    total: int


class Page(Struct, frozen=True):
    items: list[Summary]
    pagination: Pagination
    sort: str = "updated_at_desc"


class SearchPage(Struct, frozen=True):
    items: list[SearchHit]
    pagination: Pagination
    sort: str = "relevance"


class Exported(Struct, frozen=True):
    path: str
    count: int
    exported_at: int


class ImportProblem(Struct, frozen=True, omit_defaults=True):
    """`line` counts from 1, the header included; in a database it is the number of the row."""

    line: int
    code: str
    message: str
    id: str | None = None
    name: str | None = None


class Imported(Struct, frozen=True):
    imported: int
    skipped: int
    errors: list[ImportProblem]


class Purged(Struct, frozen=True):
    purged: int
    message: str


class Restored(Struct, frozen=True):
    restored: bool
    id: str
    task_link: Link
    fetch_key: Link


class Appended(Struct, frozen=True, omit_defaults=True):
    """`replaced` is true when the section held only a placeholder such as TBD."""

    id: str
    task_link: Link
    fetch_key: Link
    section: str
    replaced: bool
    warnings: list[str] = []


class Composed(Struct, frozen=True, omit_defaults=True):
    bundle_text: str
    bundle_chars: int
    parts_count: int
    stored: Stored | None = None


class Version(Struct, frozen=True, omit_defaults=True):
    version: int
    updated_at: int
    capsule_chars: int
    tokens_estimate: int
    title: str | None = None
    tags: tuple[str, ...] = ()
    source: str | None = None
    source_session: str | None = None
    capsule_text: str | None = None


class History(Struct, frozen=True):
    """Versions of a capsule, newest first, or the one that was asked for. `version` is that of the first item."""

    id: str
    task_link: Link
    fetch_key: Link
    version: int
    current_version: int
    items: list[Version]
