"""Where output goes: results to stdout, everything about them to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import click
import msgspec

__all__ = ["exit_code", "hint", "print_json", "tell", "warn"]

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
    click.echo(message, err=True)


def hint(message: str) -> None:
    """What to do next: for a person at a terminal, nobody else."""
    if sys.stderr.isatty():
        click.secho(message, dim=True, err=True)


def warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        click.secho("warning: ", fg="yellow", nl=False, err=True)
        click.echo(warning, err=True)


def exit_code(answer: dict[str, Any]) -> int:
    """The exit code for a tool's answer; what went wrong is told on stderr."""
    error = answer.get("error")
    if error is None:
        return 0
    if not isinstance(error, dict):
        error = {"message": str(error)}
    click.secho("error: ", fg="red", nl=False, err=True)
    click.echo(error.get("message") or error.get("code"), err=True)
    return 2 if str(error.get("code")).lower() in _WRONG_REQUEST else 1
