"""What goes into the tools. Absent and null mean the same. Checks that come in a certain order are the service's."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

__all__ = [
    "MAX_ITEMS",
    "Address",
    "AppendInput",
    "ComposeInput",
    "DeleteInput",
    "ExportInput",
    "FetchInput",
    "FetchManyInput",
    "HistoryInput",
    "ImportInput",
    "InventoryInput",
    "LatestInput",
    "ListInput",
    "PurgeInput",
    "RestoreInput",
    "SearchInput",
    "StoreAs",
    "StoreInput",
    "UpdateInput",
]

MAX_ITEMS = 50


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
InWorkspace = Annotated[str | None, Meta(description='"default" if omitted.')]
OnlyWorkspace = Annotated[str | None, Meta(description="All if omitted.")]
RunId = Annotated[str | None, Meta(description="Workflow run.")]
Phase = Annotated[str | None, Meta(description="Its phase.")]
Role = Annotated[str | None, Meta(description="Role of the agent.")]
OnlyRun = Annotated[str | None, Meta(description="Only this run.")]
OnlyPhase = Annotated[str | None, Meta(description="Only this phase.")]
OnlyRole = Annotated[str | None, Meta(description="Only this role.")]
OnlyTag = Annotated[str | None, Meta(description="Only with this tag.")]
IncludeDeleted = Annotated[bool | None, Meta(description="Also deleted ones.")]
WithText = Annotated[bool | None, Meta(description="Default true; false peeks.")]
AllowThin = Annotated[bool | None, Meta(description="Skip the section check, for quick notes.")]
Refs = Annotated[
    list[Any] | None,
    Meta(
        description=f"Up to {MAX_ITEMS} references, each {{id}} or {{name, workspace?}}.",
        extra_json_schema={"items": _REF, "maxItems": MAX_ITEMS},
    ),
]
Offset = Annotated[int | None, Meta(description="Skip so many.")]
Title = Annotated[str | None, Meta(description="The name if omitted.")]
Tags = Annotated[list[str] | None, Meta(description="Tags.")]
Source = Annotated[str | None, Meta(description="Client, e.g. codex.")]
SourceSession = Annotated[str | None, Meta(description="Session it comes from; open of that shows it.")]
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


class FetchManyInput(_Input):
    items: Refs = None
    include_text: WithText = None
    include_deleted: IncludeDeleted = None


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
    workspace: InWorkspace = None
    include_text: Annotated[bool | None, Meta(description="Default false: a summary.")] = None
    include_deleted: IncludeDeleted = None
    run_id: OnlyRun = None
    phase: OnlyPhase = None
    role: OnlyRole = None


class ListInput(_Input):
    workspace: InWorkspace = None
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
