"""Where output goes: results to stdout, everything about them to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import click
import msgspec

__all__ = ["exit_code", "hint", "print_json", "say", "tell", "warn"]

# The tools' ways to say that the request itself was wrong; everything else a tool answers is a failure.
_WRONG_REQUEST = {"invalid_request", "unsupported_event_type", "ambiguous_addressing"}


def print_json(data: Any) -> None:
    """One JSON document; indented for eyes, on one line for programs."""
    encoded = msgspec.json.encode(data)
    if sys.stdout.isatty():
        encoded = msgspec.json.format(encoded, indent=2)
    # As bytes: JSON is UTF-8 whatever the terminal's encoding.
    sys.stdout.flush()
    sys.stdout.buffer.write(encoded + b"\n")
    sys.stdout.buffer.flush()


def tell(message: str) -> None:
    """Something to know, beside the result."""
    click.echo(_folded(message), err=True)


def hint(message: str) -> None:
    """What to do next: for a person at a terminal, nobody else."""
    if sys.stderr.isatty():
        click.secho(_folded(message), dim=True, err=True)


def warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        say("warning: ", "yellow", warning)


def say(label: str, color: str, message: str) -> None:
    """A warning or an error, with its label in colour."""
    click.secho(label, fg=color, nl=False, err=True)
    click.echo(_folded(label + message)[len(label) :], err=True)


def _folded(text: str) -> str:
    """Text broken between words where stderr is a terminal; paths and ids stay whole."""
    if not sys.stderr.isatty():
        return text
    import shutil
    import textwrap

    columns = max(20, shutil.get_terminal_size().columns)
    lines = (textwrap.wrap(line, columns, break_long_words=False, break_on_hyphens=False) for line in text.split("\n"))
    return "\n".join("\n".join(line) for line in lines)


def exit_code(answer: dict[str, Any]) -> int:
    """The exit code for a tool's answer; its error goes to stderr."""
    error = answer.get("error")
    if error is None:
        return 0
    if not isinstance(error, dict):
        error = {"message": str(error)}
    say("error: ", "red", str(error.get("message") or error.get("code")))
    return 2 if str(error.get("code")).lower() in _WRONG_REQUEST else 1
