"""Short excerpts of long texts: the part that matches best, or the beginning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...archive.query import Query, tokens
from ...egress import reaches_on
from .answers import Excerpt

EgressAll = Callable[[Sequence[str]], list[str]]
"""Egress for several texts at once."""

MAX_CHARS = 320
# A head is made from so many characters; the next window is tried where white space or one secret fills this one.
_HEAD_WINDOWS = (400, 4096, 65_536)
HEAD_CHARS = _HEAD_WINDOWS[-1]
"""The most characters of a text that its head is made from."""

# Of a longer text only the neighbourhood of the match passes egress, in whole words up to a limit.
_LONG_CHARS = 2048
_NEAR_CHARS = 512
_ENDLESS_CHARS = 4096
# Words before it that pass egress too and are not shown: the name before a value makes it a secret.
_CONTEXT_WORDS = 3
# In a huge text no more context is read: a private key that begins farther away is not recognised.
_HUGE_CHARS = 262_144
_WORD_CHARS = 40
_REGION_CHARS = MAX_CHARS - _WORD_CHARS
_MAX_OCCURRENCES = 200
_MAX_GAP = 16

Region = tuple[int, int]


class _Sought(NamedTuple):
    """The terms and phrases of a query."""

    terms: frozenset[str]
    phrases: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, query: Query) -> _Sought:
        alternatives = (phrase for clause in query.clauses for phrase in clause.alternatives)
        return cls(query.terms, frozenset(phrase for phrase in alternatives if len(phrase) > 1))


def snippets(texts: Sequence[str], query: Query, egress: EgressAll) -> list[Excerpt]:
    """Of each text the window that has the most of what was looked for, on one line."""
    sought = _Sought.of(query)
    nears = [_near(text, sought) for text in texts]
    parts = egress([text[start:end] for text, (start, end) in zip(texts, nears, strict=True)])
    found = []
    for text, (start, end), part in zip(texts, nears, parts, strict=True):
        line = _fold(_without_context(part) if start > 0 else part)
        found.append(_cut(line, _best_region(line, sought), more_before=start > 0, more_after=end < len(text)))
    return found


def _near(text: str, sought: _Sought) -> Region:
    """The part of a text to make a snippet from. No secret reaches into it from outside: half of one would be shown."""
    if len(text) <= _LONG_CHARS or (len(text) <= _HUGE_CHARS and reaches_on(text)):
        return 0, len(text)
    first, last = _best_region(text, sought)
    near = _ENDLESS_CHARS if len(text) > _HUGE_CHARS else _NEAR_CHARS
    end = min(last + near, len(text))
    if end < len(text):
        space = _last_space(text, last, end)
        end = min(end + _ENDLESS_CHARS, len(text)) if space < 0 else space
    return _start_with_context(text, max(first - near, 0)), end


def _start_with_context(text: str, start: int) -> int:
    """The beginning of the word that stands here, and of the words of context before it."""
    place = start
    for _ in range(1 + _CONTEXT_WORDS):
        space = _last_space(text, max(place - _ENDLESS_CHARS, 0), place)
        if space < 0:  # the text begins there, or a word without an end
            return max(start - _ENDLESS_CHARS, 0)
        place = space
        while place and text[place - 1].isspace():
            place -= 1
    return place


def _without_context(part: str) -> str:
    words = part.split(None, _CONTEXT_WORDS)
    return words[-1] if len(words) > _CONTEXT_WORDS else part


def _last_space(text: str, start: int, end: int) -> int:
    return max(text.rfind(" ", start, end), text.rfind("\n", start, end))


def heads(texts: Sequence[tuple[str, bool]], egress: EgressAll) -> list[Excerpt]:
    """The beginning of each text, on one line, as if egress had been applied to all of it before the cut.

    The flag of a text says that it is itself only the beginning of one, of HEAD_CHARS characters.
    """
    found: dict[int, Excerpt] = {}
    waiting = list(enumerate(texts))
    for chars in _HEAD_WINDOWS:
        cuts = [more or len(text) > chars for _, (text, more) in waiting]
        parts = [
            _without_torn_end(text[:chars]) if cut else text for (_, (text, _)), cut in zip(waiting, cuts, strict=True)
        ]
        unsettled = []
        for asked, part, cut, shown in zip(waiting, parts, cuts, egress(parts), strict=True):
            line = _fold(shown)
            # Whole words that fill the head: nothing that follows can change them.
            full = len(line) >= MAX_CHARS and len(part) < chars and not reaches_on(part)
            if cut and not full and chars < HEAD_CHARS:
                unsettled.append(asked)
            else:
                found[asked[0]] = _cut(line, (0, 0), more_before=False, more_after=cut)
        waiting = unsettled
        if not waiting:
            break
    return [found[place] for place in range(len(texts))]


def _fold(text: str) -> str:
    """On one line, with single spaces."""
    line = text.replace("\n", " ").replace("\t", " ")
    # No white space but the blank is printable.
    return " ".join(text.split()) if "  " in line or not line.isprintable() else line.strip(" ")


def _without_torn_end(part: str) -> str:
    """Without its last word, of which there may be more: half a secret would not be recognised as one."""
    return part.rsplit(None, 1)[0] if len(part.split(None, 1)) > 1 else part


def _cut(line: str, region: Region, *, more_before: bool, more_after: bool) -> Excerpt:
    """At most MAX_CHARS of the line with the region in it, a third of the rest before it, cut between words."""
    if len(line) <= MAX_CHARS and not (more_before or more_after):
        return Excerpt(line, False)
    first, last = region
    room = MAX_CHARS - 2
    start = max(first - (room - (last - first)) // 3, 0)
    end = min(start + room, len(line))
    start = max(end - room, 0)
    if start > 0:
        space = line.find(" ", start - 1, min(first, start + _WORD_CHARS))
        start = start if space < 0 else space + 1
    more_before = more_before or start > 0
    if end < len(line):
        space = line.rfind(" ", max(last, end - _WORD_CHARS), end + 1)
        end = end if space < 0 else space
    more_after = more_after or end < len(line)
    return Excerpt(f"{'…' if more_before else ''}{line[start:end].strip()}{'…' if more_after else ''}", True)


def _best_region(text: str, sought: _Sought) -> Region:
    """The shortest stretch with the most distinct terms and phrases; rare ones in this text count a little more."""
    sightings = _sightings(text, sought)
    if len(sightings) == 1:
        ((_, regions),) = sightings
        return min(regions, key=lambda region: region[1] - region[0])
    marks = [(start, end, which) for which, (_, regions) in enumerate(sightings) for start, end in regions]
    weights = [weight for weight, _ in sightings]
    marks.sort()
    best, best_worth = (0, 0), (0.0, 0)
    inside = [0] * len(weights)
    weight, left = 0.0, 0
    for _, end, which in marks:
        if not inside[which]:
            weight += weights[which]
        inside[which] += 1
        while inside[marks[left][2]] > 1 or end - marks[left][0] > _REGION_CHARS:
            leaving = marks[left][2]
            inside[leaving] -= 1
            if not inside[leaving]:
                weight -= weights[leaving]
            left += 1
        start = marks[left][0]
        worth = (round(weight, 6), start - end)
        if worth > best_worth:
            best, best_worth = (start, end), worth
    return best


def _sightings(text: str, sought: _Sought) -> list[tuple[float, list[Region]]]:
    """The places of each term and each phrase of the query, with its weight."""
    # The one letter that gets longer in lower case, which would shift all positions after it. A blank at either end
    # gives every place two neighbours.
    lower = f" {text.replace('İ', 'i').lower()} "
    terms = sought.terms
    found: list[tuple[float, list[Region]]] = []
    for phrase in sought.phrases:
        if not all(token in lower for token in phrase):
            continue
        ends = [(start, _phrase_end(lower, start + 1, phrase)) for start in _occurrences(lower, phrase[0])]
        regions = [(start, min(end - 1, start + _REGION_CHARS)) for start, end in ends if end is not None]
        if regions:
            # The parts of a path that is there need not be looked for elsewhere. They count with it.
            found.append((2 * len(phrase), regions))
            terms -= frozenset(phrase)
    places = {term: starts for term in terms if term in lower and (starts := _occurrences(lower, term))}
    # A term that is everywhere does not tell one place from another.
    telling = {term: starts for term, starts in places.items() if len(starts) < _MAX_OCCURRENCES}
    for term, starts in (telling or places).items():
        found.append((1 + 1 / len(starts), [(start, start + len(term)) for start in starts]))
    return found


def _occurrences(padded: str, term: str) -> list[int]:
    """The places where the term is a word; without any, where it is part of one. The text has a blank at either end,
    which does not count in the places."""
    words: list[int] = []
    parts: list[int] = []
    size, is_plain = len(term), padded.isascii()
    at = padded.find(term)
    left = _MAX_OCCURRENCES
    while at >= 0 and left:
        before, behind = padded[at - 1], padded[at + size]
        if not (before.isalnum() or behind.isalnum()):
            words.append(at - 1)
        elif is_plain or not (_apart(before, term[0]) and _apart(term[-1], behind)):
            parts.append(at - 1)
        else:
            words.append(at - 1)
        at = padded.find(term, at + size)
        left -= 1
    return words or parts


def _apart(left: str, right: str) -> bool:
    """True if a word ends between two characters; in scripts without spaces it does between any two."""
    if not (left.isalnum() and right.isalnum()):
        return True
    return not (left.isascii() and right.isascii()) and len(tokens(left + right)) > 1


def _phrase_end(lower: str, start: int, phrase: tuple[str, ...]) -> int | None:
    at = start
    for token in phrase:
        gap = at + _MAX_GAP
        while at < gap and at < len(lower) and not lower[at].isalnum():
            at += 1
        if not lower.startswith(token, at):
            return None
        at += len(token)
    return at
