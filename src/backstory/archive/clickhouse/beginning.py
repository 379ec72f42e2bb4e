"""The first statement of a search: the state of the archive, and the numbers of events that have its words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..base import SearchRequest
from .common import term_of_pair
from .server import Server, array

_TOKENS_AT_ONCE = 2_000
# Tables whose rows are counted, which takes next to no time.
_COUNTED = ("document", "project", "repository", "session", "replaced")


class Known(NamedTuple):
    """A token that events have."""

    documents: int
    """The number of the events. Those that were deleted or replaced count, too."""
    term: int
    """The token in postings."""


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
    tokens: dict[str, Known]


def begin(server: Server, request: SearchRequest, tokens: Sequence[str]) -> Beginning:
    values: dict[str, Any] = {}
    statements = [_counts(tokens), *(f"SELECT {-place}, count(), 0 FROM {name}" for place, name in enumerate(_COUNTED))]
    known = -len(_COUNTED)
    if request.session is not None:
        values["session"] = request.session
        of_session = "session WHERE key = %(session)s"
        of_turn = f"turn WHERE session = %(session)s AND ordinal = {request.turn}"
        statements.append(f"SELECT {known}, count(), 0 FROM {of_session if request.turn is None else of_turn}")
    rows = server.rows(" UNION ALL ".join(statements), values, request.deadline)
    counts: dict[int, int] = {place: count for place, count, _ in rows if place <= 0}
    documents, projects, repositories, titles, replaced = (counts[-place] for place, _ in enumerate(_COUNTED))
    return Beginning(
        documents=documents,
        projects=(projects, repositories),
        titles=titles,
        has_replaced=replaced > 0,
        known=counts.get(known, 1) > 0,
        tokens={tokens[place - 1]: Known(count, term) for place, count, term in rows if place > 0},
    )


def known_tokens(server: Server, tokens: Sequence[str], deadline: float | None) -> dict[str, Known]:
    """Those of the tokens that events have."""
    known: dict[str, Known] = {}
    for start in range(0, len(tokens), _TOKENS_AT_ONCE):
        some = tokens[start : start + _TOKENS_AT_ONCE]
        rows = server.rows(_counts(some), deadline=deadline)
        known |= {some[place - 1]: Known(count, term) for place, count, term in rows}
    return known


def _counts(tokens: Sequence[str]) -> str:
    """The postings have the numbers: no event is read. Without the subquery, all postings would be."""
    pairs = array(map(term_of_pair, tokens), "UInt64")
    terms = f"arrayMap((token, pair) -> if(pair = 0, cityHash64(token), pair), {array(tokens, 'String')}, {pairs})"
    return (
        f"SELECT toInt64(indexOf({terms}, term)) AS place, sum(length(numbers)) AS documents, term "
        f"FROM posting WHERE term IN (SELECT arrayJoin({terms})) GROUP BY term"
    )
