"""Hits beside one another, and the projects that a question prefers. The same for every engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import NamedTuple

from ..model import EventType
from .base import Hit
from .query import Query, tokens


class Project(NamedTuple):
    """A folder that events are in, and the identity of its repository; `id` is the engine's number of it."""

    id: int
    path: str
    identity: str | None


def named_projects(projects: Iterable[Project], query: Query) -> set[int]:
    """The projects whose names are among the words of the query."""
    names = ((project.id, tokens(PurePath(project.path).name)) for project in projects)
    return {id for id, name in names if name and query.terms.issuperset(name)}


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


def is_repetition(hit: Hit, other: Hit) -> bool:
    """True for the same text in another session of the family (a subagent's prompt, its answer handed back), and for
    the same output of a tool again. A prompt or answer that stands twice in a session is two events."""
    one, two = hit.session, other.session
    if one.key == two.key:
        if not hit.event.type == other.event.type == EventType.TOOL_RESPONSE:
            return False
    elif two.key != one.parent and one.key != two.parent and (one.parent is None or one.parent != two.parent):
        return False
    return hit.event.text.split() == other.event.text.split()
