"""Requests of the capsule tools: the arguments of each, and how they are read into defaults, filters and addresses.

Absent and null mean the same. The service makes the checks whose order the contract fixes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Protocol

from msgspec import Meta, Struct

from ..base import BadArgument, decode_arguments
from .answers import CapsuleError
from .capsule import Capsule, normalise, workspace_or_default
from .rows import Filters, Reader

MAX_ITEMS = 50
_MAX_OFFSET = 1 << 53
# The number of names and workspaces that a hint considers.
_HINT_NAMES = 2_000
_HINT_WORKSPACES = 10


def _choice(description: str, *values: str) -> Meta:
    return Meta(description=description, extra_json_schema={"enum": list(values)})


_REF = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "workspace": {"type": "string"}, "name": {"type": "string"}},
    "additionalProperties": False,
}

Id = Annotated[str | None, Meta(description="Either id or name.")]
Name = Annotated[str | None, Meta(description="Name in its workspace, in any case.")]
Workspace = Annotated[str | None, Meta(description='"default" if omitted.')]
OnlyWorkspace = Annotated[str | None, Meta(description="All if omitted.")]
RunId = Annotated[str | None, Meta(description="Workflow run.")]
Phase = Annotated[str | None, Meta(description="Its phase.")]
Role = Annotated[str | None, Meta(description="Agent's role.")]
OnlyRun = Annotated[str | None, Meta(description="Only this run.")]
OnlyPhase = Annotated[str | None, Meta(description="Only this phase.")]
OnlyRole = Annotated[str | None, Meta(description="Only this role.")]
OnlyTag = Annotated[str | None, Meta(description="Only with this tag.")]
IncludeDeleted = Annotated[bool | None, Meta(description="Also deleted.")]
WithText = Annotated[bool | None, Meta(description="Default true; false peeks.")]
Raw = Annotated[bool | None, Meta(description="Exact, not redacted.")]
AllowThin = Annotated[bool | None, Meta(description="Skip the section check.")]
Refs = Annotated[
    list[Any] | None,
    Meta(
        description=f"Up to {MAX_ITEMS} references, each {{id}} or {{name, workspace?}}.",
        extra_json_schema={"items": _REF, "maxItems": MAX_ITEMS},
    ),
]
Offset = Annotated[int | None, Meta(description="Skip N.")]
Title = Annotated[str | None, Meta(description="The name if omitted.")]
Tags = Annotated[list[str] | None, Meta(description="Tags.")]
Source = Annotated[str | None, Meta(description="Client, e.g. codex.")]
SourceSession = Annotated[str | None, Meta(description="Session it comes from.")]
IfUpdatedAt = Annotated[int | None, Meta(description="Only if updated_at is still this, else CONFLICT.")]
IfVersion = Annotated[int | None, Meta(description="Only if this is still the version.")]
CapsuleText = Annotated[str | None, Meta(description="Markdown with the six sections.")]


class _Input(Struct, kw_only=True, forbid_unknown_fields=True):
    pass


class Address(_Input):
    """Exactly one of id, or name with its workspace."""

    id: Id = None
    workspace: Workspace = None
    name: Name = None


class StoreInput(_Input):
    capsule_text: CapsuleText = None
    workspace: Annotated[str | None, Meta(description='E.g. the project; "default" if omitted.')] = None
    name: Annotated[str | None, Meta(description="Handle to fetch it by, e.g. auth.")] = None
    title: Title = None
    tags: Tags = None
    source: Source = None
    mode: Annotated[str | None, _choice("If the name is taken; default error.", "error", "replace")] = None
    allow_thin: AllowThin = None
    run_id: RunId = None
    phase: Phase = None
    role: Role = None
    source_session: SourceSession = None


class FetchInput(Address):
    include_text: WithText = None
    include_deleted: IncludeDeleted = None
    raw: Raw = None


class FetchManyInput(_Input):
    items: Refs = None
    include_text: WithText = None
    include_deleted: IncludeDeleted = None
    raw: Raw = None


class UpdateInput(Address):
    capsule_text: CapsuleText = None
    title: Annotated[str | None, Meta(description="Empty for the name.")] = None
    tags: Annotated[list[str] | None, Meta(description="Replace the old ones.")] = None
    source: Annotated[str | None, Meta(description="Empty for none.")] = None
    allow_thin: AllowThin = None
    run_id: Annotated[str | None, Meta(description="Empty for none.")] = None
    phase: Annotated[str | None, Meta(description="Empty for none.")] = None
    role: Annotated[str | None, Meta(description="Empty for none.")] = None
    source_session: Annotated[str | None, Meta(description="Empty for none.")] = None
    if_updated_at: IfUpdatedAt = None
    if_version: IfVersion = None


class DeleteInput(Address):
    if_updated_at: IfUpdatedAt = None
    if_version: IfVersion = None


class LatestInput(_Input):
    workspace: Workspace = None
    include_text: Annotated[bool | None, Meta(description="Default false: a summary.")] = None
    include_deleted: IncludeDeleted = None
    raw: Raw = None
    run_id: OnlyRun = None
    phase: OnlyPhase = None
    role: OnlyRole = None


class ListInput(_Input):
    workspace: Workspace = None
    limit: Annotated[int | None, Meta(description="Default 20, at most 100.")] = None
    offset: Offset = None
    include_deleted: IncludeDeleted = None
    run_id: OnlyRun = None
    phase: OnlyPhase = None
    role: OnlyRole = None


class InventoryInput(_Input):
    workspace: OnlyWorkspace = None
    tag: OnlyTag = None
    name_prefix: Annotated[str | None, Meta(description="Only such names.")] = None
    limit: Annotated[int | None, Meta(description="Default 100, at most 500.")] = None
    offset: Offset = None
    include_deleted: IncludeDeleted = None
    run_id: OnlyRun = None
    phase: OnlyPhase = None
    role: OnlyRole = None


class SearchInput(_Input):
    query: Annotated[str | None, Meta(description='Words, or "a phrase".')] = None
    workspace: OnlyWorkspace = None
    tag: OnlyTag = None
    limit: Annotated[int | None, Meta(description="Default 20, at most 100.")] = None
    offset: Offset = None
    include_deleted: IncludeDeleted = None
    run_id: OnlyRun = None
    phase: OnlyPhase = None
    role: OnlyRole = None


class ExportInput(_Input):
    path: Annotated[str | None, Meta(description="A .jsonl file in an allowed folder; named for you if omitted.")] = (
        None
    )
    workspace: OnlyWorkspace = None
    include_deleted: IncludeDeleted = None


class ImportInput(_Input):
    path: Annotated[str | None, Meta(description="The file to read, in an allowed folder.")] = None
    mode: Annotated[
        str | None,
        _choice(
            "On a collision: import nothing (error, the default), overwrite (replace) or keep both (rename).",
            "error",
            "replace",
            "rename",
        ),
    ] = None
    format: Annotated[
        str | None, _choice("An export file (jsonl, the default), or Moss' own database (moss-db).", "jsonl", "moss-db")
    ] = None
    allow_thin: Annotated[bool | None, Meta(description="Take records without the six sections too.")] = None


class PurgeInput(_Input):
    workspace: OnlyWorkspace = None
    older_than_days: Annotated[int | None, Meta(description="Only what was deleted more than so many days ago.")] = None


class RestoreInput(Address):
    pass


class AppendInput(Address):
    section: Annotated[
        str | None, Meta(description="Heading to add to, e.g. `Decisions`; any accepted name of a section will do.")
    ] = None
    content: Annotated[str | None, Meta(description="Markdown to add at the end of that section.")] = None
    if_updated_at: IfUpdatedAt = None
    if_version: IfVersion = None


class StoreAs(_Input):
    name: Name = None
    workspace: Workspace = None
    mode: Annotated[str | None, _choice("If the name is taken.", "error", "replace")] = None


class ComposeInput(_Input):
    items: Refs = None
    format: Annotated[str | None, _choice("markdown (the default) or json.", "markdown", "json")] = None
    store_as: Annotated[StoreAs | None, Meta(description="Also store the result as a capsule (markdown only).")] = None


class HistoryInput(Address):
    version: Annotated[int | None, Meta(description="Fetch this version with its text instead of the list.")] = None
    include_deleted: IncludeDeleted = None
    raw: Raw = None


# Reading arguments: defaults and clamps


class _Listing(Protocol):
    """The filters that all listing tools take."""

    @property
    def include_deleted(self) -> bool | None: ...
    @property
    def run_id(self) -> str | None: ...
    @property
    def phase(self) -> str | None: ...
    @property
    def role(self) -> str | None: ...


def text_of(given: str | None) -> str:
    if not given:
        raise CapsuleError.invalid("capsule_text", "capsule_text is required")
    return given


def choice(field: str, given: str | None, values: tuple[str, ...]) -> str:
    """One of `values`; the first if nothing is given."""
    if given is None:
        return values[0]
    if given not in values:
        raise CapsuleError.invalid(field, f"{field} must be one of: {', '.join(values)}")
    return given


def unless_blank(given: str | None) -> str | None:
    """The value as given; None for a blank one, which means not set."""
    return given if given and given.strip() else None


def limit_of(given: int | None, default: int, most: int) -> int:
    """Clamped; zero or less is the default, as if it was not given."""
    return default if given is None or given < 1 else min(given, most)


def offset_of(given: int | None) -> int:
    return min(max(given or 0, 0), _MAX_OFFSET)


def filters_of(
    given: _Listing, *, workspace: str | None, tag: str | None = None, name_prefix: str | None = None
) -> Filters:
    """The filters of a listing. A blank filter is not set, except that a blank workspace is the default one."""
    return Filters(
        workspace_norm=None if workspace is None else normalise(workspace_or_default(workspace)),
        tag=unless_blank(tag),
        name_prefix=normalise(name_prefix or "") or None,
        run_id=unless_blank(given.run_id),
        phase=unless_blank(given.phase),
        role=unless_blank(given.role),
        include_deleted=bool(given.include_deleted),
    )


# Addresses


class Target(Struct, frozen=True):
    """A checked address: an id, or a name with its workspace, both as given."""

    id: str | None
    workspace: str
    name: str

    def find(self, reader: Reader, *, include_deleted: bool = False) -> Capsule:
        found = self._find(reader, include_deleted=include_deleted)
        if found is None:
            raise CapsuleError.not_found(self.identifier, hint=self._hint(reader))
        return found

    def find_deleted(self, reader: Reader) -> Capsule:
        if self.id is None:
            found = reader.deleted_by_name(normalise(self.workspace), normalise(self.name))
        else:
            found = reader.by_id(self.id, include_deleted=True)
        if found is None or found.deleted_us is None:
            raise CapsuleError("NOT_FOUND", f"no deleted capsule: {self.identifier}", identifier=self.identifier)
        return found

    @property
    def identifier(self) -> str:
        return self.id or f"{self.workspace}/{self.name}"

    def _find(self, reader: Reader, *, include_deleted: bool) -> Capsule | None:
        if self.id is not None:
            return reader.by_id(self.id, include_deleted=include_deleted)
        workspace, name = normalise(self.workspace), normalise(self.name)
        found = reader.by_name(workspace, name)
        return reader.deleted_by_name(workspace, name) if found is None and include_deleted else found

    def _hint(self, reader: Reader) -> str:
        """Names close to the one that was not found, else the workspaces that hold capsules."""
        from difflib import get_close_matches

        names: dict[str, list[str]] = {}
        for workspace, name in reader.names(_HINT_NAMES) if self.id is None else ():
            names.setdefault(normalise(name), []).append(f"{workspace}/{name}")
        close = get_close_matches(normalise(self.name), names, n=3, cutoff=0.6)
        if found := [full for name in close for full in names[name]][:5]:
            return f"close to it: {', '.join(found)}"
        workspaces = reader.workspaces(_HINT_WORKSPACES)
        return f"workspaces that hold capsules: {', '.join(workspaces)}" if workspaces else "there are no capsules yet"


def target_of(address: Address) -> Target:
    """Exactly one way to address. A blank part is not set: clients fill in fields they do not need."""
    given_id, workspace, name = (unless_blank(part) for part in (address.id, address.workspace, address.name))
    if given_id is not None and (name is not None or workspace is not None):
        raise CapsuleError.ambiguous()
    if given_id is None and name is None:
        raise CapsuleError.invalid("id", "Give the id or the name of a capsule")
    return Target(given_id, workspace_or_default(workspace), name or "")


def target_of_ref(ref: Any) -> Target:
    """One reference of a list, as received."""
    if not isinstance(ref, Mapping):
        raise CapsuleError.invalid("items", "A reference is an object: {id}, or {name, workspace}")
    try:
        return target_of(decode_arguments(Address, ref))
    except BadArgument as error:
        raise CapsuleError.invalid(error.field or "items", error.message) from None


def refs_of(refs: list[Any] | None) -> list[Any]:
    """The references of a batch, as received, if there are not too many."""
    if refs is None:
        raise CapsuleError.invalid("items", "items is required")
    if len(refs) > MAX_ITEMS:
        raise CapsuleError.invalid("items", f"at most {MAX_ITEMS} items in one call, not {len(refs)}")
    return refs
