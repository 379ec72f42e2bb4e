"""What records say beside events: of a session as a whole, and of the tokens of a model call."""

from __future__ import annotations

from ..archive.base import SessionRow, UsageRow
from ..sources.base import About, Transcript, Usage

__all__ = ["add_tokens", "describe", "one_line"]

_TITLE_CHARS = 120
_MOST_TOKENS = 1 << 40
_TOKENS = tuple(name for name in UsageRow.__struct_fields__ if name.endswith("_tokens"))


def describe(row: SessionRow, about: About, transcript: Transcript) -> None:
    """What a session's own transcript says holds against what another one says of it, whichever is read first."""
    source = transcript.source
    is_own = about.session in (None, transcript.session)
    outranks = not row.title or about.title_rank > row.title_rank or (is_own and about.title_rank == row.title_rank)
    if about.title and outranks and (title := one_line(about.title)):
        row.title, row.title_rank = title, about.title_rank
    if about.cwd:
        row.cwd, row.last_cwd = row.cwd or about.cwd, about.cwd
    row.summary = about.summary or row.summary
    row.slug = about.slug or row.slug
    row.branch = about.branch or row.branch
    row.version = about.version or row.version
    row.parent_call = (about.parent_call if is_own else None) or row.parent_call or about.parent_call
    if about.parent:
        row.parent = f"{source}/{about.parent}"
    if about.forked_from:
        row.forked_from = f"{source}/{about.forked_from}"


def one_line(text: str) -> str:
    """A title from a text."""
    line = " ".join(text[: 4 * _TITLE_CHARS].split())
    return line if len(line) <= _TITLE_CHARS else line[: _TITLE_CHARS - 1].rstrip() + "…"


def add_tokens(row: UsageRow, usage: Usage) -> None:
    """A message is told in several records, each with its tokens so far: the larger numbers hold."""
    for name in _TOKENS:
        tokens = getattr(usage, name)
        # No model call has more tokens than this; a transcript may say anything.
        if getattr(row, name) < tokens < _MOST_TOKENS:
            setattr(row, name, tokens)
    row.model = usage.model or row.model
    row.cost = row.cost if usage.cost is None else usage.cost
    row.stop_reason = usage.stop_reason or row.stop_reason
    row.request = usage.request or row.request
