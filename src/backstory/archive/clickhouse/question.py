"""The words of a query with their weights, which follow from how many events have them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from .. import ranking
from ..base import Term
from ..forms import other_forms
from ..phrases import (
    best_corrections,
    edits,
    is_corrected,
    matching_phrases,
    neighbours,
    title_phrases,
    words_to_cover,
)
from ..query import STEMMERS, Query, index_text, without_marks
from ..question import Hints
from ..ranking import CANDIDATES, COMMON, COMMON_WORDS, NEIGHBOURS, STEM_LANGUAGES, TITLE_WORDS
from ..stopwords import languages_of_words
from .common import cover
from .documents import STEM, splitter, title_terms, word_stems
from .postings import GAIN, Weight

Phrase = tuple[str, ...]
Weighed = dict[Phrase, float]
"""Words and phrases with their weights; those of scores are multiplied by their rarity."""


class Statistics(NamedTuple):
    """Of the searchable events."""

    documents: int = 0
    words: float = 0.0
    """The average number of words; likewise stems."""
    stems: float = 0.0


class Covered(NamedTuple):
    """A word of a long question."""

    tokens: frozenset[str]
    """The words and stems, of those that choose events, any of which will do."""
    phrases: list[Phrase]
    """Forms that choose no events, to be looked for in texts."""
    share: float
    """In the rarity of all words."""


class Words:
    """The words of a query, with their stems and the stems of their irregular forms, which events may have."""

    def __init__(self, query: Query, text: str) -> None:
        """`text` is that of the query, which says what language it is in."""
        # Parts of paths and identifiers are looked for as they are.
        whole = {phrase[0] for clause in query.clauses for phrase in clause.alternatives if len(phrase) == 1}
        words = dict.fromkeys(token for clause in query.clauses for part in clause.alternatives for token in part)
        self.asked = list(words)
        # A stem does not tell its language: that of `counter` in German is that of `count` in English.
        self._languages = dict.fromkeys(["en", *languages_of_words(text.lower().split())])
        self.stems: dict[str, list[str]] = {}
        self.forms: dict[str, list[str]] = {}
        self._add(word for word in words if word in whole)
        self.read_as: dict[str, tuple[str, ...]] = {}
        """The corrections of words that no event has."""
        self._required = [token for clause in query.clauses if clause.quoted for token in cover(clause.alternatives[0])]

    def _add(self, words: Iterable[str]) -> None:
        for word in words:
            languages = self._languages if word.isascii() else STEMMERS
            self.stems[word] = [STEM + stem for stem in word_stems(word, languages)]
            self.forms[word] = [STEM + form for form in other_forms(word)]

    @property
    def tokens(self) -> list[str]:
        return list(dict.fromkeys([*self.asked, *self._required, *self._stemmed(self.stems)]))

    def _stemmed(self, words: Iterable[str]) -> list[str]:
        return [stem for word in words for stem in (*self.stems[word], *self.forms[word])]

    def near(self, known: Collection[str]) -> dict[str, list[str]]:
        """For each word that is not known, nor by its stems, the words that are one edit away."""
        return {
            word: sorted(edits(word))
            for word in self.asked
            if is_corrected(word)
            and not any(token in known for token in (word, *self.stems.get(word, ()), *self.forms.get(word, ())))
        }

    def correct(self, near: Mapping[str, Sequence[str]], counts: Mapping[str, int]) -> list[str]:
        """Read words as others, given those that are one edit away and the numbers of events with them. Gives the stems
        of the corrections, by which they match, too."""
        for word, others in near.items():
            self.read_as[word] = best_corrections({other: counts[other] for other in others if other in counts})
        added = [other for others in self.read_as.values() for other in others]
        self._add(added)
        return self._stemmed(added)


class Question:
    """A query with the numbers of events that have its tokens; those of none are left out of `counts`."""

    def __init__(
        self,
        query: Query,
        hints: Hints,
        words: Words,
        counts: Mapping[str, int],
        statistics: Statistics,
    ) -> None:
        self._query = query
        self._stems, self._forms, self._read_as = words.stems, words.forms, words.read_as
        self._counts = counts
        self._statistics = statistics
        self._weights = ranking.WEIGHTS
        self.terms = [
            Term(word=word, documents=counts.get(word, 0), read_as=self._read_as.get(word, ())) for word in words.asked
        ]
        corrections = [other for term in self.terms for other in term.read_as]
        self._phrases = matching_phrases(query, hints, corrections, self._weights)
        self._neighbours = neighbours(query, self._weights)
        self.quoted = [clause.alternatives[0] for clause in query.clauses if clause.quoted]
        self.required = frozenset(token for phrase in self.quoted for token in cover(phrase))
        self._leading = self._choose()

    @property
    def bound(self) -> float:
        """The highest score that an event can reach."""
        phrases = self._neighbours | self._phrases
        whole = GAIN * sum(weight * self._rarity(phrase) for phrase, weight in phrases.items())
        return ranking.weigh_closely(whole, 0.0, 1.0 if self._to_cover else 0.0)

    @property
    def can_match(self) -> bool:
        """False if no event has a word, or none has one that is required."""
        return bool(self.matching) and all(self._counts.get(token) for token in self.required)

    @property
    def matching(self) -> list[str]:
        """The words and stems that make a match."""
        words = {token for phrase in self._phrases for token in phrase}
        words |= {stem for phrase in self._phrases for stem, _ in self._stemmed(phrase)}
        return sorted(word for word in words if self._counts.get(word))

    @property
    def demanded(self) -> list[Phrase]:
        """Phrases of which an event must have one, because none of its words counts alone (`to_be`)."""
        single = any(weight for phrase, weight in self._leading.items() if len(phrase) == 1)
        return [] if single or self.quoted else list(self.longer)

    def rarest(self, tokens: Iterable[str]) -> str:
        return min(tokens, key=lambda token: self._counts[token])

    def share(self, token: str) -> float:
        """The events with a token, relative to those with any of the choosing ones."""
        return self._counts[token] / sum(self._counts[each] for each in self.choosing)

    @property
    def choosing(self) -> dict[str, Weight]:
        """The words and stems that choose events, with their weights in the scores, the rarest first."""
        words, stems = self._statistics.words, self._statistics.stems
        chosen = {token: Weight(0.0, words) for token in self.required}
        for phrase, weight in sorted(self._leading.items(), key=lambda one: self._rarity(one[0]), reverse=True):
            if len(phrase) == 1 and self._is_known(phrase):
                chosen[phrase[0]] = Weight(weight * self._idf(phrase[0]), words)
            for stem, share in self._stemmed(phrase):
                chosen[stem] = Weight(weight * share * self._idf(stem), stems)
        return chosen

    @property
    def longer(self) -> Weighed:
        """The phrases of several words, which are looked for in the events that the words choose."""
        return self._scored({phrase: weight for phrase, weight in self._leading.items() if len(phrase) > 1})

    @property
    def closely(self) -> Weighed:
        """The rarest of the common words, and of the pairs of neighbours: they are looked for in the best events."""
        common = {phrase: weight for phrase, weight in self._phrases.items() if phrase not in self._leading}
        pairs = {pair: weight for pair, weight in self._neighbours.items() if pair not in self._phrases}
        return self._scored(common, COMMON_WORDS) | self._scored(pairs, NEIGHBOURS)

    def covered(self, told: Collection[str]) -> list[Covered]:
        """The words of a long question, given the choosing ones that scores tell about. The stems of very common words
        choose no events, and are not looked for."""
        words = []
        for forms, share in self._to_cover:
            tokens = frozenset(form[0] for form in forms if len(form) == 1 and form[0] in told)
            others = [form for form in forms if form[0] not in tokens and not form[0].startswith(STEM)]
            words.append(Covered(tokens, others, share))
        return words

    @cached_property
    def _to_cover(self) -> list[tuple[list[Phrase], float]]:
        return words_to_cover(self._query, self._phrases, self._forms_of, self._documents_with, self._rarity_of)

    def _forms_of(self, phrase: Phrase) -> Iterator[Phrase]:
        """The forms of a word or phrase that events may have."""
        yield phrase
        for word in (*phrase, *self._read_as.get(phrase[0], ())) if len(phrase) == 1 else ():
            yield (word,)
            yield from ((stem,) for stem, _ in self._stemmed((word,)))

    def _documents_with(self, phrase: Phrase) -> int:
        return min(self._counts.get(token, 0) for token in phrase)

    @property
    def title_words(self) -> list[str]:
        """The stems to look for in titles: of the telling words, and of those the rarest."""
        phrases = title_phrases(self._query)
        telling = [phrase for phrase in phrases if self._is_telling(phrase)] or phrases
        # A quoted phrase is required, and a title does not have it in the right place.
        return [] if self.quoted else title_terms(sorted(telling, key=self._rarity, reverse=True)[:TITLE_WORDS])

    def widen(self) -> bool:
        """Let all words choose events from now on. False if they do already."""
        is_wider = not self._leading.keys() >= self._phrases.keys()
        self._leading |= self._phrases
        return is_wider

    def matched(self, text: str, title: str) -> dict[str, list[str]]:
        """The words of the query that a text and a title have, by field."""
        words = [word for term in self.terms for word in (term.word, *term.read_as)]
        text = without_marks(text)
        tokens, named = (set(splitter().analyze(" ".join(index_text(part)))) for part in (text, title))
        stems = {STEM + stem for word in splitter().analyze(index_text(text)[0]) for stem in word_stems(word)}
        known = {word: (*self._stems.get(word, ()), *self._forms.get(word, ())) for word in words}
        return {
            "text": [word for word in words if word in tokens],
            "stem": [word for word in words if word not in tokens and not stems.isdisjoint(known[word])],
            "title": [word for word in words if word in named],
        }

    def _choose(self) -> Weighed:
        """The phrases that choose events: the telling ones, and what is quoted. A phrase whose words are all common
        is looked for where its rarest word is."""
        telling = {phrase: weight for phrase, weight in self._phrases.items() if self._is_telling(phrase)}
        for clause in self._query.clauses:
            # A camelCase word that fills the candidates as it is written is not looked for in its parts.
            whole, *split = clause.alternatives
            if split and self._counts.get(whole[0], 0) >= CANDIDATES:
                telling = {phrase: weight for phrase, weight in telling.items() if phrase not in split}
                telling[whole] = self._phrases[whole]
        if not telling:
            return dict(self._phrases)
        telling |= {phrase: self._phrases[phrase] for phrase in self.quoted}
        for phrase in [*telling]:
            if len(phrase) > 1 and self._is_known(phrase) and not any((token,) in telling for token in phrase):
                rarest = (self.rarest(phrase),)
                weight = self._phrases.get(rarest, 0.0)
                if weight or phrase not in self.quoted:  # what is quoted is required as it is
                    telling[rarest] = weight
        return telling

    def _is_telling(self, phrase: Phrase) -> bool:
        return len(phrase) > 1 or self._counts.get(phrase[0], 0) <= COMMON

    def _is_known(self, phrase: Iterable[str]) -> bool:
        return all(self._counts.get(token) for token in phrase)

    def _scored(self, phrases: Weighed, most: int | None = None) -> Weighed:
        """The rarest phrases whose words are all known, with the weights of their scores."""
        known = [phrase for phrase in phrases if self._is_known(phrase)]
        rarest = sorted(known, key=self._rarity, reverse=True)[:most]
        return {phrase: phrases[phrase] * sum(map(self._idf, phrase)) for phrase in rarest}

    def _rarity(self, phrase: Phrase) -> float:
        """The rarity of the words of a phrase; of a single word, also that of its stem."""
        return sum(map(self._idf, phrase)) + sum(share * self._idf(stem) for stem, share in self._stemmed(phrase))

    def _idf(self, token: str) -> float:
        return self._rarity_of(self._counts.get(token, 0))

    def _rarity_of(self, having: int) -> float:
        return ranking.rarity(self._statistics.documents, having)

    def _stemmed(self, phrase: Phrase) -> list[tuple[str, float]]:
        """The stems of a single word and of its other forms that events have, and their share in its weight."""
        if len(phrase) > 1:
            return []
        stems = [stem for stem in self._stems.get(phrase[0], ()) if self._counts.get(stem)]
        stems.sort(key=lambda stem: -self._counts[stem])
        forms = [form for form in self._forms.get(phrase[0], ()) if self._counts.get(form)]
        return [(stem, self._weights.stem) for stem in (*stems[:STEM_LANGUAGES], *forms)]
