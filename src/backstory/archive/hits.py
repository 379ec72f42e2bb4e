"""The page of a search, and the projects that a question prefers. The same for every engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import PurePath
from typing import NamedTuple

from ..model import EventType
from .base import Hit
from .query import Query, tokens
from .ranking import Ranked

Cut = Callable[[list[Ranked], int], tuple[list[Ranked], list[Ranked]]]
"""Splits hits into the first ones in the order of the contract, so many, and the rest."""
Load = Callable[[Sequence[Ranked]], Iterable[Hit]]
"""Reads the rows of hits, in the same order, without those that have been deleted since."""


# Numbers, and ids of letters and digits.
_NUMBER = re.compile(r"\w*\d\w*(?:[.,:]\w*\d\w*)*")


class Project(NamedTuple):
    """A folder that events are in, and the identity of its repository; `id` is the engine's number of it."""

    id: int
    path: str
    identity: str | None


def named_projects(projects: Iterable[Project], query: Query) -> set[int]:
    """The projects whose names are among the words of the query."""
    terms = query.terms
    return {project.id for project in projects if (name := _name_tokens(project.path)) and terms.issuperset(name)}


@lru_cache(maxsize=8_192)  # the same projects in every search
def _name_tokens(path: str) -> tuple[str, ...]:
    return tuple(tokens(PurePath(path).name))


def projects_with(projects: Sequence[Project], part: str) -> list[int]:
    """The projects with this part, in any case, in their paths or in the identity of the repository they are in."""
    part = part.casefold()
    named = {PurePath(project.path) for project in projects if part in (project.identity or "").casefold()}
    return [
        project.id
        for project in projects
        if part in project.path.casefold()
        or not named.isdisjoint((PurePath(project.path), *PurePath(project.path).parents))
    ]


def project_around(projects: Sequence[Project], here: str | None) -> set[int]:
    """The project that a folder belongs to, of several the innermost, with its other clones and worktrees."""
    if here is None:
        return set()
    holding = [project for project in projects if PurePath(here).is_relative_to(project.path)]
    if not holding:
        return set()
    inner = max(holding, key=lambda project: len(project.path))
    return {inner.id, *(project.id for project in projects if inner.identity and project.identity == inner.identity)}


def fill_page(ranked: list[Ranked], limit: int, cut: Cut, load: Load, *, fold: bool) -> tuple[list[Hit], bool]:
    """The first hits, and whether there is another one. `fold` leaves out repetitions."""
    page: list[Hit] = []
    while ranked and len(page) <= limit:
        chunk, ranked = cut(ranked, limit + 1 - len(page))
        for hit in load(chunk):
            if not (fold and any(is_repetition(hit, other) for other in page)):
                page.append(hit)
    return page[:limit], len(page) > limit


def is_repetition(hit: Hit, other: Hit) -> bool:
    """True for the same text in another session of the family (a subagent's prompt, its answer handed back), and for
    the same output of a tool again, with other numbers and ids: of a command that was tried once more. A prompt or
    answer that stands twice in a session is two events."""
    one, two = hit.session, other.session
    outputs = hit.event.type == other.event.type == EventType.TOOL_RESPONSE
    if one.key == two.key:
        if not outputs:
            return False
    elif two.key != one.parent and one.key != two.parent and (one.parent is None or one.parent != two.parent):
        return False
    words, others = hit.event.text.split(), other.event.text.split()
    if len(words) != len(others):
        return False
    pairs = zip(words, others, strict=True)
    return all(a == b or (outputs and _without_numbers(a) == _without_numbers(b)) for a, b in pairs)


def _without_numbers(word: str) -> str:
    return _NUMBER.sub("0", word)
