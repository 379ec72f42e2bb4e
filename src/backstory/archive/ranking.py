"""Ranking: the weights of the evidence for an event, and how they add up to one score. The same for every engine.

An engine gives the candidates of a question with their BM25 scores, over all event types, and the scores of matching
session titles. Tool calls and titles are evidence for their session even where they are not returned themselves.

The weights come from known items over held-out transcripts, where the answer is quoted nowhere verbatim. The share of
questions whose session is first: plain BM25 .56, tool output at 0.4 .63, five events of a session instead of one .66,
stems .68, turn and title .68 (and 2 points more among the first ten). LoCoMo, whose two halves agree, chose the weight
of stems and that of the time which a question names: among the first five .916 with 0.8 and 1.5, .921 with 1.0 and
2.0; questions about transcripts find the same. `make eval` measures each part.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import nsmallest
from operator import attrgetter
from typing import TypeVar

from msgspec import Struct

from ..model import EventType

_HOUR_MS = 3_600_000

# What every engine looks at, so that all find the same.
# The best events, which are weighed: deeper ones change the first page of one question in a hundred (`make eval`).
CANDIDATES = 200
# So many of the types that are returned are looked for, however few are asked for: they are evidence for one another,
# and a page of one hit is the beginning of a page of fifty.
RETURNED = 50
# The best of them, in which neighbouring words and very common ones are looked for.
WEIGHED_CLOSELY = 40
MOST_WEIGHED_CLOSELY = 200  # where many have the same score
# A word that more events have does not choose candidates beside one that fewer have.
COMMON = 50_000
COMMON_WORDS = 8
# Four pairs of neighbouring words, the rarest, are worth as much as all of them.
NEIGHBOURS = 4
# How many of its words an event has matters in a question of so many; it is looked at for the rarest.
COVERED_FROM = 4
COVERED_WORDS = 12
# A word belongs to one language or two; the others that have its stem have it by chance.
STEM_LANGUAGES = 2
# Words to look for in titles, the rarest. One that more titles have than this says too little about any of them.
TITLE_WORDS = 8
COMMON_TITLES = 1_500
# The sessions whose titles match best.
_TITLES = 50

S = TypeVar("S", int, str)
T = TypeVar("T")


class Weights(Struct, frozen=True, kw_only=True):
    types: Mapping[EventType, float]
    output_in_errors: float
    """Of tool responses, where the question is an error message: there they are the answer, elsewhere they mostly quote
    words (listings, logs)."""
    following: float
    """Of a session's second best event relative to its best, of the third relative to the second, and so on."""
    events: int
    """The events of a session, or of a turn, that count."""
    turn: float
    title: float
    repeated: float
    """For each further hit of the same session: it lets other sessions onto the page."""
    stem: float
    """Of a word that matches by its stem only; an exact match has both."""
    adjacent: float
    """Of two words of the question that stand side by side in the text, too."""
    covered: float
    """The additional share of an event that has every word of a long question. BM25 prefers a short text with a few of
    them ("can we push our work") to a long one with most."""
    part: float
    """Of a part of a path or an identifier; the whole counts 1."""
    number: float
    """Of a number in an error message: it is seldom the same twice."""
    project: float
    """Factor for the project that the question names; `here` for the one the caller works in."""
    here: float
    period: float
    """Factor for the time that the question names ("yesterday", "last week")."""
    recent: tuple[tuple[int, float], ...]
    """Factors by age in hours. Steps, so that events of about the same age with equal evidence tie exactly."""


WEIGHTS = Weights(
    types={
        EventType.USER_INPUT: 1.2,
        EventType.ASSISTANT_RESPONSE: 1.0,
        EventType.REASONING: 1.0,
        EventType.TOOL_CALL: 1.0,
        EventType.TOOL_RESPONSE: 0.4,
        EventType.COMPACTION: 0.6,
        EventType.SYSTEM: 0.3,
        EventType.RUNTIME: 0.3,
        EventType.UNKNOWN: 0.0,
    },
    output_in_errors=1.0,
    following=0.5,
    events=5,
    turn=0.3,
    title=0.2,
    repeated=0.75,
    stem=1.0,
    adjacent=0.5,
    covered=2.0,
    part=0.5,
    number=0.3,
    project=1.3,
    here=1.1,
    period=2.0,
    recent=((24, 1.06), (24 * 7, 1.04), (24 * 30, 1.02)),
)


# There are hundreds of candidates in a search, which cannot be part of a cycle: the collector need not look at them.
class Candidate(Struct, frozen=True, gc=False):
    """An event that matches the question."""

    id: int
    score: float
    """BM25, as the engine computes it; 0 for an event that stands for the title of its session."""
    type: EventType
    session: int
    turn: int
    """The number of the turn, unique over all sessions."""
    project: int
    ts: int


_Weighed = tuple[float, int, int, Candidate]
"""A candidate behind its score times the weight of its type, its time, and its place in the session from the end: the
order of tuples is that of the events of a session, the best one last."""


class Context(Struct, frozen=True, kw_only=True):
    """Facts about the question and the caller, beside the words."""

    now: int
    is_error: bool = False
    period: tuple[int, int] | None = None
    projects: Collection[int] = ()
    """The projects that the question names."""
    here: Collection[int] = ()


class Evidence(Struct, frozen=True, kw_only=True):
    """The parts of a score, before it is divided by the bound of the question."""

    event: float
    session: float
    turn: float
    title: float
    factor: float
    """Of project, time and age."""
    repeated: float
    """Below 1 for a further hit of the same session."""


class Ranked(Struct, frozen=True, gc=False):
    """A candidate with its score and the parts of it, as in `Evidence`. There are hundreds, of which ten are shown."""

    candidate: Candidate
    score: float
    ts: int
    event: float
    session: float
    turn: float
    title: float
    factor: float
    repeated: float

    @property
    def evidence(self) -> Evidence:
        return Evidence(
            event=self.event,
            session=self.session,
            turn=self.turn,
            title=self.title,
            factor=self.factor,
            repeated=self.repeated,
        )


def rank(
    candidates: Sequence[Candidate],
    titles: Mapping[int, float],
    returned: Collection[EventType],
    context: Context,
    *,
    spread: bool,
) -> list[Ranked]:
    """The candidates of the returned types by score, then the newest, then in the order they came in. The same order
    is that of the events of a session.

    `spread` lets other sessions come between the hits of one; it makes no sense within a session.
    """
    by_type = {kind: _weight(kind, context) for kind in EventType}
    factor = _Factor(context)
    sessions: defaultdict[int, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        sessions[candidate.session].append(candidate)
    ranked: list[Ranked] = []
    for session, events in sessions.items():
        title = WEIGHTS.title * titles[session] if session in titles else 0.0
        if len(events) > 1:
            weighed = [(one.score * by_type[one.type], one.ts, -place, one) for place, one in enumerate(events)]
            weighed.sort(reverse=True)
            _rank_session(ranked, weighed, title, returned, factor, spread)
            continue
        # Most candidates are the only ones of their sessions: the sums of `_rank_session` have one member.
        (candidate,) = events
        if candidate.type in returned:
            own = candidate.score * by_type[candidate.type]
            turn, times = WEIGHTS.turn * own, factor.of(candidate, candidate.ts)
            score = (own + turn + title) * times
            ranked.append(Ranked(candidate, score, candidate.ts, own, 0.0, turn, title, times, 1.0))
    return _in_order(ranked)


def merge(one: Iterable[Ranked], other: Iterable[Ranked]) -> list[Ranked]:
    """The hits of different sessions, in order."""
    return _in_order([*one, *other])


def _in_order(ranked: list[Ranked]) -> list[Ranked]:
    # Two sorts by a number each take half the time of one by pairs.
    ranked.sort(key=_ts, reverse=True)
    ranked.sort(key=_score, reverse=True)
    return ranked


_score, _ts = attrgetter("score"), attrgetter("ts")


def _rank_session(
    ranked: list[Ranked],
    events: Sequence[_Weighed],
    title: float,
    returned: Collection[EventType],
    factor: _Factor,
    spread: bool,
) -> None:
    """Add the hits of a session, given its events in order. The best one has all the evidence of the session, the
    others as much less as they match less."""
    hits = [event for event in events if event[3].type in returned]
    if not hits:
        return
    turns: defaultdict[int, list[float]] = defaultdict(list)
    for own, _, _, candidate in events:
        turns[candidate.turn].append(own)
    session = _sum([own for own, _, _, _ in events[: WEIGHTS.events]])
    best_turn = events[0][0]
    if len(turns) < len(events):
        best_turn = max([_sum(scores) for scores in turns.values()])
    turn = WEIGHTS.turn * best_turn
    total = session + turn + title
    rest = session - events[0][0]
    repeated, best = 1.0, hits[0][0]
    for own, ts, _, candidate in hits:
        times = factor.of(candidate, ts)
        share = own / best if best else 1.0
        score = total * share * times * repeated
        ranked.append(Ranked(candidate, score, ts, own, rest, turn, title, times, repeated))
        if spread:
            repeated *= WEIGHTS.repeated


def rarity(documents: int, having: int) -> float:
    """The rarity of a word that so many of the documents have, as BM25 counts it."""
    return math.log1p((max(documents - having, 0) + 0.5) / (having + 0.5))


def best_of(candidates: Sequence[T], score: Callable[[T], float]) -> list[T]:
    """About `WEIGHED_CLOSELY` of the best candidates. Equals are all among them, or none."""
    if len(candidates) <= WEIGHED_CLOSELY:
        return list(candidates)
    least = sorted(map(score, candidates), reverse=True)[WEIGHED_CLOSELY - 1]
    best = [each for each in candidates if score(each) >= least]
    return best if len(best) <= MOST_WEIGHED_CLOSELY else [each for each in best if score(each) > least]


def weigh_closely(score: float, neighbours: float, covered: float) -> float:
    """The score of one of the best events with that of the neighbouring words that it has, given its share of the words
    of a long question."""
    return (score + neighbours) * (1 + WEIGHTS.covered * covered)


def bound(best: float, titles: float, context: Context) -> float:
    """The highest score that a question can reach, given the highest BM25 score of an event and of a title."""
    top = max([_weight(kind, context) for kind in EventType]) * best
    own = _sum([top] * WEIGHTS.events) * (1 + WEIGHTS.turn)
    return (own + WEIGHTS.title * titles) * _highest_factor(context)


def reach_of_title(score: float, context: Context) -> float:
    """The highest score of a session of which nothing but the title matches."""
    return WEIGHTS.title * score * _highest_factor(context)


def score_titles(titles: int, having: Iterable[Sequence[S]]) -> dict[S, float]:
    """The sessions whose titles match best, with the rarity of the words that their titles have.

    `titles` is their number, `having` has for each word the sessions whose titles have it, at most one more than
    COMMON_TITLES. Titles are short: how often one has a word, and how long it is, does not matter (`make eval`).
    """
    scores: defaultdict[S, float] = defaultdict(float)
    for sessions in having:
        if len(sessions) <= COMMON_TITLES:
            rare = rarity(titles, len(sessions))
            for session in sessions:
                scores[session] += rare
    return dict(nsmallest(_TITLES, scores.items(), key=lambda one: (-one[1], one[0])))


def _highest_factor(context: Context) -> float:
    factor = WEIGHTS.recent[0][1]
    for applies, share in (
        (context.projects, WEIGHTS.project),
        (context.here, WEIGHTS.here),
        (context.period, WEIGHTS.period),
    ):
        factor *= share if applies else 1.0
    return factor


def _sum(best_first: Sequence[float]) -> float:
    total, share = 0.0, 1.0
    for score in best_first[: WEIGHTS.events]:
        total += score * share
        share *= WEIGHTS.following
    return total


def _weight(kind: EventType, context: Context) -> float:
    if context.is_error and kind is EventType.TOOL_RESPONSE:
        return WEIGHTS.output_in_errors
    return WEIGHTS.types[kind]


class _Factor:
    """The factor of an event for its project, the time that the question names, and its age."""

    def __init__(self, context: Context) -> None:
        self._now = context.now
        self._named, self._here, self._period = context.projects, context.here, context.period
        self._plain = not (context.projects or context.here or context.period)
        self._recent = [(context.now - hours * _HOUR_MS, share) for hours, share in WEIGHTS.recent]
        self._old = self._recent[-1][0]

    def of(self, candidate: Candidate, ts: int) -> float:
        if self._plain and ts <= self._old:
            return 1.0
        factor = 1.0
        if candidate.project in self._named:
            factor *= WEIGHTS.project
        if candidate.project in self._here:
            factor *= WEIGHTS.here
        if self._period is not None and self._period[0] <= ts < self._period[1]:
            factor *= WEIGHTS.period
        if ts <= self._now:
            for since, share in self._recent:
                if ts > since:
                    return factor * share
        return factor
