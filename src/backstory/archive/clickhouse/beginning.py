"""The first statement of a search: the state of the archive, and the numbers of events that have its words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..base import SearchRequest
from .postings import hashed
from .server import Server

_TOKENS_AT_ONCE = 2_000
# Tables whose rows are counted, which takes next to no time.
_COUNTED = ("document", "project", "repository", "session", "replaced")


class Beginning(NamedTuple):
    documents: int
    projects: tuple[int, int]
    """The rows of the tables of projects: they are read again when these change."""
    titles: int
    """The rows of the table of sessions, with those that were replaced."""
    has_replaced: bool
    """Postings may name events that were replaced."""
    known: bool
    """The session or turn of the request exists."""
    counts: dict[str, int]
    """The numbers of events by token, those of none left out."""


def begin(server: Server, request: SearchRequest, tokens: Sequence[str]) -> Beginning:
    values: dict[str, Any] = {}
    statements = [_counts(tokens), *(f"SELECT {-place}, count() FROM {name}" for place, name in enumerate(_COUNTED))]
    known = -len(_COUNTED)
    if request.session is not None:
        values["session"] = request.session
        of_session = "session WHERE key = %(session)s"
        of_turn = f"turn WHERE session = %(session)s AND ordinal = {request.turn}"
        statements.append(f"SELECT {known}, count() FROM {of_session if request.turn is None else of_turn}")
    found: dict[int, int] = dict(server.rows(" UNION ALL ".join(statements), values, request.deadline))
    documents, projects, repositories, titles, replaced = (found[-place] for place, _ in enumerate(_COUNTED))
    return Beginning(
        documents=documents,
        projects=(projects, repositories),
        titles=titles,
        has_replaced=replaced > 0,
        known=found.get(known, 1) > 0,
        counts={tokens[place - 1]: count for place, count in found.items() if place > 0},
    )


def count_events(server: Server, tokens: Sequence[str], deadline: float | None) -> dict[str, int]:
    """The numbers of events by token, those of none left out."""
    counts: dict[str, int] = {}
    for start in range(0, len(tokens), _TOKENS_AT_ONCE):
        some = tokens[start : start + _TOKENS_AT_ONCE]
        counts |= {some[place - 1]: count for place, count in server.rows(_counts(some), deadline=deadline)}
    return counts


def _counts(tokens: Sequence[str]) -> str:
    """The postings have the numbers: no event is read. Events that were deleted or replaced count, too."""
    terms = hashed(tokens)
    return (
        f"SELECT toInt64(indexOf({terms}, term)) AS place, sum(length(numbers)) AS rows "
        f"FROM posting WHERE term IN {terms} GROUP BY term"
    )
