"""`backstory capsule ...`: the capsule tools as commands. Each turns its flags into arguments and calls its tool."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .app import json_option
from .output import print_error, print_json

if TYPE_CHECKING:
    from ...library import Library

F = TypeVar("F", bound=Callable[..., Any])

# A ULID. Anything else in the place of an id is a name.
_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", re.IGNORECASE)


def _options(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


_workspace = click.option("--workspace", "-w", metavar="NAME", help='The workspace; "default" if not given.')
_only_workspace = click.option("--workspace", "-w", metavar="NAME", help="Only this workspace.")
_only_tag = click.option("--tag", metavar="TAG", help="Only with this tag.")
_include_deleted = click.option("--include-deleted", is_flag=True, help="Deleted ones too.")
_raw = click.option("--raw", is_flag=True, help="Exactly as stored, secrets included.")
_reading = _options(
    click.option("--include-text/--no-include-text", default=None, help="With the text, or without."),
    _include_deleted,
    _raw,
)
_address = _options(
    click.argument("ref", metavar="[ID|NAME]", required=False),
    click.option("--id", metavar="ID", help="The id, if it does not look like one."),
    click.option("--name", "-n", metavar="NAME", help="The name."),
    _workspace,
)
_refs = _options(
    click.argument("refs", metavar="[ID|NAME]...", nargs=-1),
    click.option("--name", "-n", "names", metavar="NAME", multiple=True, help="A name; repeatable."),
    _workspace,
)
_labels = _options(
    click.option("--title", metavar="TEXT", help="Title for people; the name if not given."),
    click.option("--tags", metavar="TAG", multiple=True, help="A tag, or several with commas; repeatable."),
    click.option("--source", metavar="NAME", help="Which client this comes from."),
    click.option("--run-id", metavar="ID", help="The run of a workflow it belongs to."),
    click.option("--phase", metavar="NAME", help="The phase of the workflow."),
    click.option("--role", metavar="NAME", help="The role of the agent."),
    click.option("--source-session", metavar="ID", help="The session it was distilled from."),
)
_workflow_filters = _options(
    click.option("--run-id", metavar="ID", help="Only of this run."),
    click.option("--phase", metavar="NAME", help="Only of this phase."),
    click.option("--role", metavar="NAME", help="Only of this role."),
)
_listing = _options(
    click.option("--limit", "-l", type=int, metavar="N", help="How many."),
    click.option("--offset", "-o", type=int, metavar="N", help="How many to skip."),
    _include_deleted,
    _workflow_filters,
)
_text = click.option("--file", "-f", metavar="FILE", help="Read the text from a file; - is stdin.")
_allow_thin = click.option("--allow-thin", is_flag=True, help="Without the six sections, for a quick note.")
_guards = _options(
    click.option("--if-updated-at", type=int, metavar="SECONDS", help="Only if it was not updated since."),
    click.option("--if-version", type=int, metavar="N", help="Only if this is still its version."),
)


@click.group("capsule")
def capsule() -> None:
    """Handoff notes that survive the session: store, fetch, search, export."""


def _command(verb: str, about: str, *options: Callable[[Any], Any]) -> None:
    """Add the command of a tool whose arguments are the options."""

    @capsule.command(verb, help=about)
    @_options(*options, json_option)
    def command(as_json: bool, **given: Any) -> None:
        _call(verb, as_json, **_addressed(given))


_command("fetch", "Print a capsule, by id or name.", _address, _reading)
_command("delete", "Delete a capsule; `restore` brings it back.", _address, _guards)
_command("restore", "Bring back a deleted capsule.", _address)
_command("latest", "Show the capsule of a workspace that was updated last.", _workspace, _reading, _workflow_filters)
_command("list", "List the capsules of a workspace, newest first.", _workspace, _listing)
_command(
    "inventory",
    "List the capsules of all workspaces, newest first.",
    _only_workspace,
    _only_tag,
    click.option("--name-prefix", metavar="TEXT", help="Only names that start with this."),
    _listing,
)
_command(
    "history",
    "Show the versions of a capsule.",
    _address,
    click.option("--version", type=int, metavar="N", help="Print the text of this version."),
    _include_deleted,
    _raw,
)
_command(
    "export",
    "Write capsules to a file.",
    click.option("--path", "-p", metavar="FILE", help="A .jsonl file: an absolute path, or in an allowed folder."),
    _only_workspace,
    _include_deleted,
)
_command(
    "purge",
    "Remove deleted capsules for good.",
    _only_workspace,
    click.option("--older-than-days", type=int, metavar="N", help="Only what was deleted more than N days ago."),
)


@capsule.command("store")
@click.option("--name", "-n", metavar="NAME", help="The name to fetch it by.")
@_workspace
@_labels
@click.option("--mode", metavar="error|replace", help="If the name is taken.")
@_allow_thin
@_text
@json_option
def store(file: str | None, as_json: bool, **given: Any) -> None:
    """Store a capsule. The text comes from stdin, --file or your editor."""
    from .capsule_view import read_text

    _call("store", as_json, capsule_text=read_text(file, edit=str), **given)


@capsule.command("fetch-many")
@_refs
@_reading
@json_option
def fetch_many(as_json: bool, **given: Any) -> None:
    """Print several capsules; exit code 1 if one of them is missing."""
    _call("fetch_many", as_json, items=_items(given), **given)


@capsule.command("update")
@_address
@_labels
@_allow_thin
@_guards
@_text
@json_option
def update(file: str | None, as_json: bool, **given: Any) -> None:
    """Change the labels or the text of a capsule.

    Flags change its labels; its text comes from stdin, --file or your editor.
    """
    from .capsule_view import read_text

    address = _addressed({key: given.pop(key) for key in ("ref", "id", "name", "workspace")})
    if any(given[key] not in (None, ()) for key in _LABELS):
        text = read_text(file, edit=None)
    else:
        text = read_text(file, edit=lambda: str(_reply("fetch", as_json, raw=True, **address).get("capsule_text", "")))
    _call("update", as_json, capsule_text=text, **address, **given)


@capsule.command("append")
@_address
@click.option("--section", "-s", metavar="NAME", help="The section to add to.")
@click.option("--content", "-c", metavar="TEXT", help="What to add; else stdin, --file or your editor.")
@_guards
@_text
@json_option
def append(content: str | None, file: str | None, as_json: bool, **given: Any) -> None:
    """Add to one section of a capsule."""
    from .capsule_view import read_text

    content = content if content is not None else read_text(file, edit=str)
    _call("append", as_json, content=content, **_addressed(given))


@capsule.command("search")
@click.argument("words", metavar="WORDS...", nargs=-1)
@_only_workspace
@_only_tag
@_listing
@json_option
def search(words: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Find capsules by words in names, titles, tags and text."""
    _call("search", as_json, query=" ".join(words), **given)


@capsule.command("compose")
@_refs
@click.option("--format", metavar="markdown|json", help="markdown if not given.")
@click.option("--store-as", metavar="NAME", help="Also store the result under this name, in the same workspace.")
@click.option("--mode", metavar="error|replace", help="If that name is taken.")
@json_option
def compose(store_as: str | None, mode: str | None, as_json: bool, **given: Any) -> None:
    """Put several capsules together into one text."""
    kept = None if store_as is None else _without_none(name=store_as, workspace=given["workspace"], mode=mode)
    _call("compose", as_json, items=_items(given), store_as=kept, **given)


@capsule.command("import")
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--path", "-p", metavar="FILE", help="The file: an absolute path, or in an allowed folder.")
@click.option("--mode", metavar="error|replace|rename", help="What to do about collisions.")
@click.option("--format", metavar="jsonl|moss-db", help="An export, or Moss' own database.")
@_allow_thin
@json_option
def import_(file: str | None, path: str | None, as_json: bool, **given: Any) -> None:
    """Read capsules from a file.

    The file is an export of Backstory or Moss, or Moss' own database.
    """
    _call("import", as_json, path=path if path is not None else file, **given)


_LABELS = ("title", "tags", "source", "run_id", "phase", "role", "source_session")


def _addressed(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments with the positional reference as an id or a name."""
    ref = given.pop("ref", None)
    if ref is not None:
        field = "id" if _ID.fullmatch(ref) else "name"
        if given[field] is not None:
            raise click.UsageError(f"{ref!r} and --{field} both say which capsule; give one")
        given[field] = ref
    return given


def _items(given: dict[str, Any]) -> list[dict[str, str]]:
    """References from ids and names, which are removed from the arguments. The workspace applies to the names."""
    workspace = given.pop("workspace")
    names = given.pop("names")
    refs = given.pop("refs")
    items = [{"id": ref} if _ID.fullmatch(ref) else _without_none(name=ref, workspace=workspace) for ref in refs]
    return items + [_without_none(name=name, workspace=workspace) for name in names]


def _call(verb: str, as_json: bool, **given: Any) -> None:
    """Call the tool and show its answer, which may have errors."""
    answer = _reply(verb, as_json, **given)
    if as_json:
        print_json(answer)
    else:
        from .capsule_view import show

        show(verb, answer)
    if answer.get("errors"):
        raise click.exceptions.Exit(1)


def _reply(verb: str, as_json: bool, **given: Any) -> dict[str, Any]:
    """The tool's answer. An error is printed and ends the program."""
    from ... import open_archive

    if given.get("tags") is not None:
        # `--tags ""` clears the tags; without the option they stay.
        tags = [tag.strip() for tags in given["tags"] for tag in tags.split(",") if tag.strip()]
        given["tags"] = tags if given["tags"] else None
    # A flag that is not set is not an argument.
    arguments = {key: value for key, value in given.items() if value is not None and value is not False}
    if given.get("include_text") is False:
        arguments["include_text"] = False
    library = open_archive()
    if verb in ("export", "import"):
        _allow_folder_of(library, arguments.get("path"))
    reply = library.reply(f"moss.{verb}", arguments)
    if reply.is_error:
        if as_json:
            print_json(reply.data)
        error = reply.data["error"]
        print_error(f"[{error['code']}] {error['message']}")
        raise click.exceptions.Exit(2 if error["status"] == 400 else 1)
    return reply.data


def _allow_folder_of(library: Library, path: str | None) -> None:
    """Allow the folder of an absolute path: a person decides where a file lies, agents keep to the allowed folders."""
    from msgspec.structs import replace

    given = Path(path or "").expanduser()
    if given.is_absolute():
        capsules = library.settings.capsules
        folders = (*capsules.export_folders, str(given.parent))
        library.settings = replace(library.settings, capsules=replace(capsules, export_folders=folders))


def _without_none(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
