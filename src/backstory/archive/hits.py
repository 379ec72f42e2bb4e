"""The page of a search, and the projects that a question prefers. The same for every engine."""

from __future__ import annotations

import os
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
    named = {_folder(project) for project in projects if part in (project.identity or "").casefold()}
    return [
        project.id
        for project in projects
        if part in project.path.casefold() or (named and not named.isdisjoint(_folders_around(project.path)))
    ]


def _folder(project: Project) -> str:
    # Some agents end a path with the separator. This is a hundred times faster than a `PurePath` of each project.
    return project.path.rstrip("/") or "/"


def _folders_around(path: str) -> set[str]:
    """A folder and all that it is in."""
    return {os.fspath(folder) for folder in (PurePath(path), *PurePath(path).parents)}


def project_around(projects: Sequence[Project], here: str | None) -> set[int]:
    """The project that a folder belongs to, of several the innermost, with its other clones and worktrees."""
    if here is None:
        return set()
    around = _folders_around(here)
    holding = [project for project in projects if _folder(project) in around]
    if not holding:
        return set()
    inner = max(holding, key=lambda project: len(project.path))
    return {inner.id, *(project.id for project in projects if inner.identity and project.identity == inner.identity)}


def fill_page(ranked: list[Ranked], limit: int, cut: Cut, load: Load, *, fold: bool) -> tuple[list[Hit], bool]:
    """The first hits, and whether there is another one. `fold` leaves out repetitions."""
    page: list[Hit] = []
    families: set[str | None] = set()
    while ranked and len(page) <= limit:
        chunk, ranked = cut(ranked, limit + 1 - len(page))
        for hit in load(chunk):
            family = {hit.session.key, hit.session.parent} - {None}
            if fold and not families.isdisjoint(family) and any(_is_repetition(hit, other) for other in page):
                continue
            families |= family
            page.append(hit)
    return page[:limit], len(page) > limit


def _is_repetition(hit: Hit, other: Hit) -> bool:
    """True for the same text in another session of the family (a subagent's prompt, its answer handed back), and for
    the same output of a tool. A prompt or answer that stands twice in a session is two events."""
    one, two = hit.session, other.session
    if one.key == two.key:
        may_repeat = hit.event.type is other.event.type is EventType.TOOL_RESPONSE
    else:
        may_repeat = (
            two.key == one.parent or one.key == two.parent or (one.parent is not None and one.parent == two.parent)
        )
    return may_repeat and _is_same_text(hit.event.text, other.event.text)


def _is_same_text(one: str, other: str) -> bool:
    """True if only white space differs."""
    # Most texts differ in their first word; to split all of a long one takes as long as to read it from the disk.
    return one.split(None, 1)[:1] == other.split(None, 1)[:1] and one.split() == other.split()
