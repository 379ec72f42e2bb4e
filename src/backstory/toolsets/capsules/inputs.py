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

Id = Annotated[str | None, Meta(description="Id of the capsule. Give either id or name, not both.")]
Name = Annotated[str | None, Meta(description="Name of the capsule in its workspace. Case and spacing do not matter.")]
Workspace = Annotated[str | None, Meta(description='Workspace of the name; "default" if omitted.')]
InWorkspace = Annotated[str | None, Meta(description='Workspace to look in; "default" if omitted.')]
OnlyWorkspace = Annotated[str | None, Meta(description="Only this workspace; all if omitted.")]
RunId = Annotated[str | None, Meta(description="Run of a multi-agent workflow this belongs to, e.g. `pr-review-123`.")]
Phase = Annotated[str | None, Meta(description="Phase of the workflow, e.g. `design`, `implement`, `review`.")]
Role = Annotated[str | None, Meta(description="Role of the agent, e.g. `architect`, `qa-reviewer`.")]
OnlyRun = Annotated[str | None, Meta(description="Only capsules of this run.")]
OnlyPhase = Annotated[str | None, Meta(description="Only capsules of this phase.")]
OnlyRole = Annotated[str | None, Meta(description="Only capsules of this role.")]
OnlyTag = Annotated[str | None, Meta(description="Only capsules with exactly this tag.")]
IncludeDeleted = Annotated[bool | None, Meta(description="Also soft-deleted capsules (default false).")]
WithText = Annotated[bool | None, Meta(description="Include capsule_text (default true); false is a peek.")]
AllowThin = Annotated[bool | None, Meta(description="Skip the check for the six sections. For quick notes only.")]
Refs = Annotated[
    list[Any] | None,
    Meta(
        description=f"Up to {MAX_ITEMS} references, each {{id}} or {{name, workspace?}}.",
        extra_json_schema={"items": _REF, "maxItems": MAX_ITEMS},
    ),
]
Offset = Annotated[int | None, Meta(description="How many to skip (default 0).")]
Title = Annotated[str | None, Meta(description="Title for people; the name if omitted.")]
Tags = Annotated[list[str] | None, Meta(description="Tags to find it by.")]
Source = Annotated[str | None, Meta(description="Which client this comes from, e.g. `claude-code`, `codex`.")]
SourceSession = Annotated[
    str | None, Meta(description="Id of the session this was distilled from; `open` of that session then shows it.")
]
IfUpdatedAt = Annotated[
    int | None, Meta(description="Only if updated_at is still this value, else CONFLICT: nobody's change gets lost.")
]
IfVersion = Annotated[int | None, Meta(description="Only if this is still the current version (see moss.history).")]
CapsuleText = Annotated[
    str | None,
    Meta(
        description="The capsule, Markdown with six headings: Objective, Current status, Decisions, Next actions, "
        "Key locations, Open questions. State, not story."
    ),
]


class _Input(Struct, kw_only=True, forbid_unknown_fields=True):
    pass


class Address(_Input):
    """Exactly one of id, or name with its workspace."""

    id: Id = None
    workspace: Workspace = None
    name: Name = None


class StoreInput(_Input):
    capsule_text: CapsuleText = None
    workspace: Annotated[str | None, Meta(description='Where to keep it, e.g. the project; "default" if omitted.')] = (
        None
    )
    name: Annotated[str | None, Meta(description="Handle to fetch it by, unique in its workspace, e.g. `auth`.")] = None
    title: Title = None
    tags: Tags = None
    source: Source = None
    mode: Annotated[
        str | None, _choice("If the name is taken: fail (error, the default) or overwrite.", "error", "replace")
    ] = None
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
    title: Annotated[str | None, Meta(description="New title; empty for the name.")] = None
    tags: Annotated[list[str] | None, Meta(description="New tags instead of the old ones; empty for none.")] = None
    source: Annotated[str | None, Meta(description="New source; empty for none.")] = None
    allow_thin: AllowThin = None
    run_id: Annotated[str | None, Meta(description="New run; empty for none.")] = None
    phase: Annotated[str | None, Meta(description="New phase; empty for none.")] = None
    role: Annotated[str | None, Meta(description="New role; empty for none.")] = None
    source_session: Annotated[str | None, Meta(description="New source session; empty for none.")] = None
    if_updated_at: IfUpdatedAt = None
    if_version: IfVersion = None


class DeleteInput(Address):
    if_updated_at: IfUpdatedAt = None
    if_version: IfVersion = None


class LatestInput(_Input):
    workspace: InWorkspace = None
    include_text: Annotated[bool | None, Meta(description="Include capsule_text (default false).")] = None
    include_deleted: IncludeDeleted = None
    run_id: OnlyRun = None
    phase: OnlyPhase = None
    role: OnlyRole = None


class ListInput(_Input):
    workspace: InWorkspace = None
    limit: Annotated[int | None, Meta(description="How many (default 20, at most 100).")] = None
    offset: Offset = None
    include_deleted: IncludeDeleted = None
    run_id: OnlyRun = None
    phase: OnlyPhase = None
    role: OnlyRole = None


class InventoryInput(_Input):
    workspace: OnlyWorkspace = None
    tag: OnlyTag = None
    name_prefix: Annotated[str | None, Meta(description="Only names that start with this.")] = None
    limit: Annotated[int | None, Meta(description="How many (default 100, at most 500).")] = None
    offset: Offset = None
    include_deleted: IncludeDeleted = None
    run_id: OnlyRun = None
    phase: OnlyPhase = None
    role: OnlyRole = None


class SearchInput(_Input):
    query: Annotated[str | None, Meta(description='Words to find, as typed; "a phrase" in quotes.')] = None
    workspace: OnlyWorkspace = None
    tag: OnlyTag = None
    limit: Annotated[int | None, Meta(description="How many (default 20, at most 100).")] = None
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
