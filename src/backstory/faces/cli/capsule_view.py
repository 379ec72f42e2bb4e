"""Capsules at the terminal: the text from stdin, a file or the editor, and the tools' answers for people."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ...egress import egress
from ...toolsets.capsules.sections import PURPOSES
from ..words import plural
from .output import facts, headline, highlight, hint, put, put_command, put_facts, since, stdout_console, warn

# An optional text is read from a pipe only if something arrives within this time.
_PATIENCE_SECONDS = 0.5
# More capsules among the hits of a search are counted, not shown.
_MATCHES = 3
_TEMPLATE = "\n\n".join(f"## {section}\n<!-- {purpose} -->" for section, purpose in PURPOSES.items()) + "\n"


def read_text(file: str | None, *, edit: Callable[[], str] | None) -> str | None:
    """The text, if there is one.

    With a terminal on stdin the editor opens on the text of `edit`, or on a template if that is empty. `edit` is None
    when the command has something else to change: then a silent pipe is not waited for.
    """
    try:
        if file is not None and file != "-":
            return _decoded(Path(file).expanduser().read_bytes())
        if file == "-" or edit is not None:
            _refuse_closed_stdin()
        if file == "-" or (_stdin_has_text() and (edit is not None or _stdin_is_ready())):
            return _decoded(sys.stdin.buffer.read())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise click.UsageError(f"cannot read {file or 'stdin'}: {reason}") from None
    if edit is None or not sys.stdin.isatty():
        return None
    written = click.edit(edit() or _TEMPLATE, extension=".md")
    return None if written is None or written == _TEMPLATE else written


def _refuse_closed_stdin() -> None:
    if sys.stdin is None or sys.stdin.closed:
        raise click.UsageError("there is no text: stdin is closed; give it with --file FILE")


def _stdin_is_ready() -> bool:
    """True if stdin can be read at once. An open and silent pipe is skipped with a note."""
    try:
        ready = bool(select.select([sys.stdin.fileno()], [], [], _PATIENCE_SECONDS)[0])
    except (OSError, ValueError, AttributeError):
        return True
    if not ready:
        click.echo("note: stdin gave nothing and was not read; --file - waits for it", err=True)
    return ready


def _decoded(data: bytes) -> str | None:
    """The text as it is, line ends included, without a byte order mark; None for nothing."""
    return data.decode("utf-8-sig") or None


def _stdin_has_text() -> bool:
    """True if a pipe, file or socket is on stdin; false for a terminal and /dev/null."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        # Not a file: replaced by a program that runs this one in its own process.
        return sys.stdin is not None and not sys.stdin.closed and not sys.stdin.isatty()
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


# Answers


def show(verb: str, answer: dict[str, Any]) -> None:
    """Print an answer. On a terminal a raw one, too, is stripped of control sequences."""
    warn(answer.get("warnings", ()))
    _VIEWS[verb](egress(answer, "off") if sys.stdout.isatty() else answer)


def show_matches(matches: list[dict[str, Any]], query: str, *, whole: bool) -> None:
    """The capsules of a search over everything, each with the command that fetches it; only the best unless `whole`."""
    console = stdout_console()
    shown = matches if whole else matches[:_MATCHES]
    for match in shown:
        name = match["name"] or match["id"]
        headline(console, f"capsule  {match['title'] or name}")
        put(console, facts(f"{match['workspace']}/{name}", since(match["updated_at"] * 1000)), indent=4)
        put(console, *highlight(match["snippet"], query), indent=4)
        put_command(console, f"backstory capsule fetch {match['id']}", indent=4)
        console.print()
    if len(matches) > len(shown):
        put_facts(console, f"{len(matches) - len(shown)} more capsules: --source capsules")


def _stored(answer: dict[str, Any]) -> None:
    click.echo(f"{'replaced' if answer.get('replaced') else 'stored'} {_where(answer)}")


def _fetched(answer: dict[str, Any]) -> None:
    """The text alone into a pipe; on a terminal under its title and labels."""
    if not sys.stdout.isatty() and "capsule_text" in answer:
        _print_text(answer["capsule_text"])
        return
    console = stdout_console()
    headline(console, answer.get("title") or answer.get("name") or answer["id"])
    tags = ", ".join(answer.get("tags", ()))
    size = f"{answer['capsule_chars']:,} characters, about {answer['tokens_estimate']:,} tokens"
    deleted = "deleted" if "deleted_at" in answer else None
    updated = since(answer["updated_at"] * 1000)
    put(console, facts(_address(answer), updated, size, tags, answer.get("source", ""), deleted))
    put(console, facts(answer["id"]))
    if "capsule_text" in answer:
        console.print()
        put(console, answer["capsule_text"])


def _print_text(text: str) -> None:
    # With color=True click leaves escape sequences alone: only a raw text has any.
    click.echo(text, nl=not text.endswith("\n"), color=True)


def _fetched_many(answer: dict[str, Any]) -> None:
    for number, item in enumerate(answer["items"]):
        if number:
            click.echo("\n---\n")
        warn(item.get("warnings", ()))
        _fetched(item)
    for error in answer["errors"]:
        click.echo(f"error: [{error['code']}] {error['message']}", err=True)


def _latest(answer: dict[str, Any]) -> None:
    if answer["item"] is None:
        hint("No capsules in this workspace; backstory capsule inventory shows all workspaces.")
    else:
        warn(answer["item"].get("warnings", ()))
        _fetched(answer["item"])


def _page(answer: dict[str, Any]) -> None:
    items, pagination = answer["items"], answer["pagination"]
    if not items:
        hint("No capsules.")
        return
    rows = [
        [
            item.get("name", ""),
            item["workspace"],
            item.get("title", "") if item.get("title") != item.get("name") else "",
            since(item["updated_at"] * 1000) + (" (deleted)" if "deleted_at" in item else ""),
            f"{item['capsule_chars']:,}",
            ", ".join(item.get("tags", ())),
            item["id"],
        ]
        for item in items
    ]
    _table(("name", "workspace", "title", "updated", "chars", "tags", "id"), rows)
    shown = f"{pagination['offset'] + 1} to {pagination['offset'] + len(items)} of {pagination['total']}"
    more = f" · more: --offset {pagination['offset'] + len(items)}" if pagination["has_more"] else ""
    hint(f"{shown}{more} · read one: backstory capsule fetch {items[0]['id']}")


def _found(answer: dict[str, Any]) -> None:
    console = stdout_console()
    for hit in answer["items"]:
        headline(console, hit.get("title") or hit.get("name") or hit["id"])
        put(console, facts(_address(hit), since(hit["updated_at"] * 1000), hit["id"]), indent=2)
        put(console, hit["snippet"], indent=2)
    if not answer["items"]:
        hint("No matches. Try fewer or other words.")


def _history(answer: dict[str, Any]) -> None:
    versions = answer["items"]
    if len(versions) == 1 and "capsule_text" in versions[0]:
        text = versions[0]["capsule_text"]
        warn(versions[0].get("warnings", ()))
        _print_text(text)
        return
    rows = [
        [
            str(version["version"]),
            since(version["updated_at"] * 1000),
            f"{version['capsule_chars']:,}",
            version.get("title", ""),
            version.get("source", ""),
        ]
        for version in versions
    ]
    _table(("version", "updated", "chars", "title", "source"), rows)
    hint(f"read one: backstory capsule history {answer['id']} --version {versions[-1]['version']}")


def _composed(answer: dict[str, Any]) -> None:
    click.echo(answer["bundle_text"])
    if "stored" in answer:
        click.echo(f"stored {_where(answer['stored'])}", err=True)


def _imported(answer: dict[str, Any]) -> None:
    skipped = f", {answer['skipped']:,} already there" if answer["skipped"] else ""
    click.echo(f"{plural(answer['imported'], 'capsule')} imported{skipped}")
    for problem in answer["errors"]:
        click.echo(f"error: [{problem['code']}] line {problem['line']}: {problem['message']}", err=True)


def _table(columns: tuple[str, ...], rows: list[list[str]]) -> None:
    """A table as wide as the terminal; into a pipe a line per row, its values whole and separated by tabs."""
    lines = [[" ".join(value.split()) for value in row] for row in rows]
    if not sys.stdout.isatty():
        for line in [list(columns), *lines]:
            click.echo("\t".join(line))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        numeric = column in ("chars", "version")
        table.add_column(column, justify="right" if numeric else "left", no_wrap=column in ("id", "updated", "chars"))
    for line in lines:
        table.add_row(*line)
    stdout_console().print(table)


def _where(answer: dict[str, Any]) -> str:
    key = answer["fetch_key"]
    named = f'"{key["moss_capsule"]}" in {key["moss_workspace"]} ' if "moss_capsule" in key else ""
    return f"{named}({answer['id']})"


def _address(item: dict[str, Any]) -> str:
    return f"{item['workspace']}/{item['name']}" if "name" in item else item["workspace"]


_VIEWS: dict[str, Callable[[dict[str, Any]], None]] = {
    "store": _stored,
    "fetch": _fetched,
    "fetch_many": _fetched_many,
    "update": lambda answer: click.echo(f"updated {_where(answer)}"),
    "append": lambda answer: click.echo(f"added to {answer['section']} of {_where(answer)}"),
    "delete": lambda answer: click.echo(f"deleted ({answer['id']})"),
    "restore": lambda answer: click.echo(f"restored {_where(answer)}"),
    "latest": _latest,
    "list": _page,
    "inventory": _page,
    "search": _found,
    "history": _history,
    "compose": _composed,
    "export": lambda answer: click.echo(f"{plural(answer['count'], 'capsule')} exported to {answer['path']}"),
    "import": _imported,
    "purge": lambda answer: click.echo(answer["message"]),
}
