"""Where a capsule's text comes from: a file, stdin, or the person's editor."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import click

from ...toolsets.capsules.lint import PURPOSES

__all__ = ["read_text"]

_TEMPLATE = "\n\n".join(f"## {section}\n<!-- {purpose} -->" for section, purpose in PURPOSES.items()) + "\n"


def read_text(file: str | None, *, edit: Callable[[], str] | None) -> str | None:
    """The text, if there is one.

    With a terminal on stdin the editor opens, unless `edit` is None: on the text `edit` gives, else on a template.
    """
    try:
        if file is not None and file != "-":
            return _decoded(Path(file).expanduser().read_bytes())
        if file == "-" or _stdin_has_text():
            return _decoded(sys.stdin.buffer.read())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise click.UsageError(f"cannot read {file or 'stdin'}: {reason}", click.get_current_context()) from None
    if edit is None or not sys.stdin.isatty():
        return None
    written = click.edit(edit() or _TEMPLATE, extension=".md")
    return None if written is None or written == _TEMPLATE else written


def _decoded(data: bytes) -> str | None:
    """The text as it is, line ends included, without a byte order mark; None for nothing."""
    return data.decode("utf-8-sig") or None


def _stdin_has_text() -> bool:
    """Whether something is piped in or redirected. A terminal, /dev/null and a closed stdin are not waited for."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        # No file behind it: given by a program that runs this one in its own process.
        return sys.stdin is not None and not sys.stdin.closed and not sys.stdin.isatty()
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)
