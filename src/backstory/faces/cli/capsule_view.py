"""The answers of the capsule tools as a person reads them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click
from rich.table import Table

from ...redact import clean
from .output import facts, headline, hint, put, since, stdout_console
from .words import plural

__all__ = ["show"]


def show(verb: str, answer: dict[str, Any]) -> None:
    _VIEWS[verb](answer)


def _stored(answer: dict[str, Any]) -> None:
    click.echo(f"{'replaced' if answer.get('replaced') else 'stored'} {_where(answer)}")


def _fetched(answer: dict[str, Any]) -> None:
    """The text alone into a pipe, exactly; with what is known about it on a terminal."""
    if not sys.stdout.isatty() and "capsule_text" in answer:
        click.echo(answer["capsule_text"], nl=not answer["capsule_text"].endswith("\n"))
        return
    console = stdout_console()
    headline(console, clean(answer.get("title") or answer.get("name") or answer["id"]))
    tags = ", ".join(answer.get("tags", ()))
    size = f"{answer['capsule_chars']:,} characters, about {answer['tokens_estimate']:,} tokens"
    deleted = "deleted" if "deleted_at" in answer else None
    updated = since(answer["updated_at"] * 1000)
    put(console, facts(_address(answer), updated, size, clean(tags), clean(answer.get("source", "")), deleted))
    put(console, facts(answer["id"]))
    if "capsule_text" in answer:
        console.print()
        put(console, clean(answer["capsule_text"]))


def _fetched_many(answer: dict[str, Any]) -> None:
    for number, item in enumerate(answer["items"]):
        if number:
            click.echo("\n---\n")
        _fetched(item)
    for error in answer["errors"]:
        click.echo(f"error: [{error['code']}] {error['message']}", err=True)


def _latest(answer: dict[str, Any]) -> None:
    if answer["item"] is None:
        hint("No capsules in this workspace; backstory capsule inventory shows all workspaces.")
    else:
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
        headline(console, clean(hit.get("title") or hit.get("name") or hit["id"]))
        put(console, facts(_address(hit), since(hit["updated_at"] * 1000), hit["id"]), indent=2)
        put(console, clean(hit["snippet"]), indent=2)
    if not answer["items"]:
        hint("No matches. Try fewer or other words.")


def _history(answer: dict[str, Any]) -> None:
    versions = answer["items"]
    if len(versions) == 1 and "capsule_text" in versions[0]:
        text = versions[0]["capsule_text"]
        click.echo(clean(text) if sys.stdout.isatty() else text, nl=not text.endswith("\n"))
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
    text = answer["bundle_text"]
    click.echo(clean(text) if sys.stdout.isatty() else text)
    if "stored" in answer:
        click.echo(f"stored {_where(answer['stored'])}", err=True)


def _imported(answer: dict[str, Any]) -> None:
    skipped = f", {answer['skipped']:,} already there" if answer["skipped"] else ""
    click.echo(f"{plural(answer['imported'], 'capsule')} imported{skipped}")
    for problem in answer["errors"]:
        click.echo(clean(f"error: [{problem['code']}] line {problem['line']}: {problem['message']}"), err=True)


def _table(columns: tuple[str, ...], rows: list[list[str]]) -> None:
    """A table as wide as the terminal; into a pipe a line per row, its values whole and separated by tabs."""
    lines = [[" ".join(clean(value).split()) for value in row] for row in rows]
    if not sys.stdout.isatty():
        for line in [list(columns), *lines]:
            click.echo("\t".join(line))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        numeric = column in ("chars", "version")
        table.add_column(column, justify="right" if numeric else "left", no_wrap=column in ("id", "updated", "chars"))
    for line in lines:
        table.add_row(*line)
    stdout_console().print(table)


def _where(answer: dict[str, Any]) -> str:
    key = answer["fetch_key"]
    named = f'"{clean(key["moss_capsule"])}" in {clean(key["moss_workspace"])} ' if "moss_capsule" in key else ""
    return f"{named}({answer['id']})"


def _address(item: dict[str, Any]) -> str:
    return clean(f"{item['workspace']}/{item['name']}" if "name" in item else item["workspace"])


_VIEWS: dict[str, Callable[[dict[str, Any]], None]] = {
    "store": _stored,
    "fetch": _fetched,
    "fetch_many": _fetched_many,
    "update": lambda answer: click.echo(f"updated {_where(answer)}"),
    "append": lambda answer: click.echo(f"added to {clean(answer['section'])} of {_where(answer)}"),
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
