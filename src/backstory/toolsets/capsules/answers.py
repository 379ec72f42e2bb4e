"""Answers of the capsule tools: the results and the errors of the contract.

A key whose value would be null is left out, unless the contract has it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class Link(Struct, frozen=True, omit_defaults=True):
    """The address of a capsule: its raw names, or its id."""

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
    warnings: list[str] = []


class SearchHit(Summary, frozen=True, kw_only=True, omit_defaults=True):
    task_link: Link
    fetch_key: Link
    snippet: str


class Linked(Struct, frozen=True):
    """An answer about one capsule."""

    id: str
    task_link: Link
    fetch_key: Link


class Stored(Linked, frozen=True, omit_defaults=True):
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


class Updated(Linked, frozen=True, omit_defaults=True):
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


class Match(Struct, frozen=True):
    """A capsule in the search over everything. 0 < score <= 1."""

    id: str
    workspace: str
    name: str | None
    title: str | None
    snippet: str
    score: float
    updated_at: int


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


class Appended(Linked, frozen=True, omit_defaults=True):
    """`replaced` is true when the section held only a placeholder such as TBD."""

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
    warnings: list[str] = []


class History(Linked, frozen=True):
    """Versions of a capsule, newest first, or the requested one. `version` is that of the first item."""

    version: int
    current_version: int
    items: list[Version]


# Errors: the seven codes of the specification, and CONFLICT for a failed compare-and-set.

_STATUS = {
    "AMBIGUOUS_ADDRESSING": 400,
    "INVALID_REQUEST": 400,
    "NOT_FOUND": 404,
    "NAME_ALREADY_EXISTS": 409,
    "CONFLICT": 409,
    "CAPSULE_TOO_LARGE": 413,
    "CAPSULE_TOO_THIN": 422,
    "INTERNAL": 500,
}


class CapsuleError(Exception):
    """A refused request: the code, a message for people, `details` for programs."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    def as_reply(self) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": self.message, "status": _STATUS[self.code]}
        if self.details:
            error["details"] = self.details
        return {"error": error}

    @classmethod
    def ambiguous(cls) -> CapsuleError:
        return cls("AMBIGUOUS_ADDRESSING", "Give either id or name (with workspace), not both")

    @classmethod
    def invalid(cls, field: str, message: str) -> CapsuleError:
        return cls("INVALID_REQUEST", message, field=field)

    @classmethod
    def not_found(cls, identifier: str, hint: str = "") -> CapsuleError:
        message = f"capsule not found: {identifier}" + (f" ({hint})" if hint else "")
        return cls("NOT_FOUND", message, identifier=identifier)

    @classmethod
    def file_not_found(cls, path: str) -> CapsuleError:
        return cls("NOT_FOUND", f"file not found: {path}", path=path)

    @classmethod
    def name_taken(cls, workspace: str, name: str) -> CapsuleError:
        return cls(
            "NAME_ALREADY_EXISTS",
            f'A capsule named "{name}" already exists in workspace "{workspace}"; '
            'store with mode "replace" to overwrite it, or choose another name',
            workspace=workspace,
            name=name,
        )

    @classmethod
    def conflict(cls, updated_at: int, version: int) -> CapsuleError:
        message = f"The capsule has changed since you read it (now version {version}); fetch it again and redo it"
        return cls("CONFLICT", message, updated_at=updated_at, version=version)

    @classmethod
    def too_large(cls, max_chars: int, actual_chars: int) -> CapsuleError:
        return cls(
            "CAPSULE_TOO_LARGE",
            f"Capsule has {actual_chars} characters, the limit is {max_chars}; "
            "compress it, but keep the decisions and the next actions",
            max_chars=max_chars,
            actual_chars=actual_chars,
        )

    @classmethod
    def too_thin(cls, missing: Mapping[str, str]) -> CapsuleError:
        """`missing` maps each missing section to its purpose."""
        names = list(missing)
        described = "; ".join(f"{section} ({purpose})" for section, purpose in missing.items())
        return cls(
            "CAPSULE_TOO_THIN",
            f"Capsule missing required sections: {described}. Give each a heading such as `## {names[0]}`, "
            "or pass allow_thin: true for a quick note",
            missing=names,
            missing_sections=names,
        )

    @classmethod
    def internal(cls, cause: str | None = None) -> CapsuleError:
        """`cause` is a sentence that names the reason and the cure, where both are known."""
        return cls("INTERNAL", cause or "The capsule store failed unexpectedly; the log of this process says why")
