"""The declarations of the capsule tools: names, descriptions, schemas, handlers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from ...config import CapsuleSettings
from ..base import BadArgument, Failure, Frame, Released, Tool, Toolset, input_schema, output_schema
from . import answers, requests
from .answers import CapsuleError
from .service import Capsules
from .store import database_trouble

T = TypeVar("T")

_DISTILL = (
    "Distill first: state, not story, under {max_chars} characters, with six headings: `## Objective`, "
    "`## Current status`, `## Decisions` (with reasons and constraints), `## Next actions` (in order), "
    "`## Key locations` (files, commands, links), `## Open questions` (and risks). 1 to 3 tiny snippets at most. "
    "Too long: compress, never drop decisions or next actions."
)

# The others come with `--tools capsules`: the eleven of the specification, and append.
_OFFERS: dict[str, Literal["default", "all"]] = {
    **dict.fromkeys(("store", "fetch", "latest", "search"), "default"),
    **dict.fromkeys(("restore", "compose", "history"), "all"),
}

_INSTRUCTIONS = (
    "Capsules: handoff notes that survive the session. Asked to continue something, look with moss.latest or "
    "moss.search before you ask. When work stops or is handed over and the user wants it kept, save it with moss.store "
    "(mode replace, same name: one capsule per piece of work)."
)


def toolset(home: Path, settings: CapsuleSettings) -> Toolset:
    """The tools on the store in `home`."""
    return toolset_of(Capsules(home, settings))


def toolset_of(capsules: Capsules) -> Toolset:
    declare = _Declaring(capsules)
    groups = (_by_address, _by_workspace, _as_a_whole, _more)
    tools = tuple(tool for group in groups for tool in group(capsules, declare))
    return Toolset(name="capsules", tools=tools, instructions=declare.spelled(_INSTRUCTIONS))


# The eleven tools of the specification, in its order


def _by_address(capsules: Capsules, declare: _Declaring) -> tuple[Tool, ...]:
    """Tools on the capsules that a call names."""
    distill = _DISTILL.format(max_chars=capsules.settings.most_chars)
    return (
        declare(
            "store",
            f"Save a capsule: the state of a piece of work, for another session or agent. {distill}",
            requests.StoreInput,
            answers.Stored,
            capsules.store,
            required=("capsule_text",),
        ),
        declare(
            "fetch",
            "Load a capsule by id, or by name and workspace.",
            requests.FetchInput,
            answers.Item,
            _raw_on_request(capsules.fetch),
            read_only=True,
        ),
        declare(
            "fetch_many",
            "Load several capsules at once, in the order given. Missing ones are listed in errors.",
            requests.FetchManyInput,
            answers.Fetched,
            _raw_on_request(capsules.fetch_many),
            required=("items",),
            read_only=True,
        ),
        declare(
            "update",
            "Change a capsule's text or labels; id, name and workspace stay. A new text replaces the whole old one; "
            "distill it as for moss.store.",
            requests.UpdateInput,
            answers.Updated,
            capsules.update,
        ),
        declare(
            "delete",
            "Delete a capsule; it is kept until it is purged.",
            requests.DeleteInput,
            answers.Deleted,
            capsules.delete,
            destructive=True,
        ),
    )


def _by_workspace(capsules: Capsules, declare: _Declaring) -> tuple[Tool, ...]:
    """Tools on the capsules of one workspace, or of all."""
    return (
        declare(
            "latest",
            "The last updated capsule of a workspace: where the last session stopped.",
            requests.LatestInput,
            answers.Latest,
            _raw_on_request(capsules.latest),
            read_only=True,
        ),
        declare(
            "list",
            "Summaries of the capsules in one workspace, newest first, never their text.",
            requests.ListInput,
            answers.Page,
            capsules.list_workspace,
            read_only=True,
        ),
        declare(
            "inventory",
            "Summaries of all capsules in all workspaces, newest first, never their text. Filters narrow it.",
            requests.InventoryInput,
            answers.Page,
            capsules.inventory,
            read_only=True,
        ),
    )


def _as_a_whole(capsules: Capsules, declare: _Declaring) -> tuple[Tool, ...]:
    """Tools on the store: copies of it, and its deleted capsules."""
    return (
        declare(
            "export",
            "Write capsules to a JSONL file, for a backup or another machine.",
            requests.ExportInput,
            answers.Exported,
            capsules.export,
        ),
        declare(
            "import",
            "Read capsules from a JSONL export (also one of Moss), or from Moss' database. Problems are listed with "
            "their line; mode error imports all or nothing.",
            requests.ImportInput,
            answers.Imported,
            capsules.import_,
            required=("path",),
        ),
        declare(
            "purge",
            "Remove deleted capsules for good. This cannot be undone.",
            requests.PurgeInput,
            answers.Purged,
            capsules.purge,
            destructive=True,
        ),
    )


def _more(capsules: Capsules, declare: _Declaring) -> tuple[Tool, ...]:
    """Tools beyond the specification."""
    return (
        declare(
            "search",
            "Find capsules by words in names, titles, tags and text, best first.",
            requests.SearchInput,
            answers.SearchPage,
            capsules.search,
            required=("query",),
            read_only=True,
        ),
        declare(
            "restore",
            "Bring back a deleted capsule, by id or name.",
            requests.RestoreInput,
            answers.Restored,
            capsules.restore,
        ),
        declare(
            "append",
            "Add to one section of a capsule without rewriting it, e.g. a decision or a next action.",
            requests.AppendInput,
            answers.Appended,
            capsules.append,
            required=("section", "content"),
        ),
        declare(
            "compose",
            "Put several capsules together into one text, in the order given; all must exist.",
            requests.ComposeInput,
            answers.Composed,
            capsules.compose,
            required=("items",),
        ),
        declare(
            "history",
            "The versions of a capsule, newest first (the current one and the last 20 before it); "
            "with version, the text of one.",
            requests.HistoryInput,
            answers.History,
            _raw_on_request(capsules.history),
            read_only=True,
        ),
    )


class _RawRequest(Protocol):
    raw: bool | None


R = TypeVar("R", bound=_RawRequest)


def _raw_on_request(action: Callable[[R], Any]) -> Callable[[R], Any]:
    """The action with an answer that leaves exactly as stored when the request has `raw`."""

    def answer(given: R) -> Any:
        result = action(given)
        return Released(result) if given.raw else result

    return answer


class _Declaring:
    """Declares tools under names with a dot or, for clients that refuse dots, with an underscore."""

    def __init__(self, capsules: Capsules) -> None:
        self._prefix = "moss_" if capsules.settings.underscore_names else "moss."
        self._frame = Frame(
            refuse=_refuse,
            unexpected=lambda _: Failure(CapsuleError.internal().as_reply()),
            mode=capsules.redact,
        )

    def spelled(self, text: str) -> str:
        """The text with the names of tools as they are listed."""
        return text.replace("moss.", self._prefix)

    def __call__(
        self,
        verb: str,
        description: str,
        takes: type[T],
        gives: type,
        action: Callable[[T], Any],
        *,
        required: tuple[str, ...] = (),
        read_only: bool = False,
        destructive: bool = False,
    ) -> Tool:
        name = self.spelled(f"moss.{verb}")
        names = (f"moss.{verb}", f"moss_{verb}", f"capsule_{verb}", f"capsule.{verb}")
        return Tool(
            name=name,
            description=self.spelled(description),
            input=lambda: json.loads(self.spelled(json.dumps(input_schema(takes, required, nullable=False)()))),
            output=output_schema(gives),
            handler=self._frame.handler(name, takes, action),
            offer=_OFFERS.get(verb, "named"),
            read_only=read_only,
            destructive=destructive,
            idempotent=read_only,
            aliases=tuple(alias for alias in names if alias != name),
        )


def _refuse(error: Exception) -> Failure | None:
    if isinstance(error, BadArgument):
        error = CapsuleError.invalid(error.field or "arguments", error.message)
    elif cause := database_trouble(error):
        error = CapsuleError.internal(cause)
    return Failure(error.as_reply()) if isinstance(error, CapsuleError) else None
