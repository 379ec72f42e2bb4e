"""The text of a capsule from a file, from stdin, or from the editor."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import click

from ...toolsets.capsules.sections import PURPOSES

_PATIENCE_SECONDS = 0.5
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
        raise click.UsageError(f"cannot read {file or 'stdin'}: {reason}", click.get_current_context()) from None
    if edit is None or not sys.stdin.isatty():
        return None
    written = click.edit(edit() or _TEMPLATE, extension=".md")
    return None if written is None or written == _TEMPLATE else written


def _refuse_closed_stdin() -> None:
    if sys.stdin is None or sys.stdin.closed:
        raise click.UsageError(
            "there is no text: stdin is closed; give it with --file FILE", click.get_current_context()
        )


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
