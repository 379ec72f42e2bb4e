"""Asking the index: candidates of any type with their BM25 scores, which `archive/ranking.py` puts in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec.structs import replace

from ...interpreter import waiting
from ...model import EVENT_TYPES
from .. import ranking
from ..base import DeadlineExceeded, Term
from ..phrases import matching_phrases, neighbours, title_phrases, words_to_cover
from ..query import Clause, Query, analyzer, index_text, without_marks
from ..question import Hints
from ..ranking import CANDIDATES, COMMON, COMMON_WORDS, NEIGHBOURS, TITLE_WORDS, Candidate
from .counting import Vocabulary, stemmers
from .documents import COUNTED_SINCE, FORMER_FIELDS, ONE_FIELD_SINCE, Filters

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    import tantivy

_K1 = 1.2  # tantivy's BM25
# Ties at the end of a page are resolved by looking so many times further, up to this many documents with one score.
_TIED = 8
_MAX_TIED = 1_000_000
# Neighbouring words are looked for in the best candidates only: a phrase among common words costs as much as all the
# rest of a question, and keeps tantivy from skipping documents.
_MOST_NEIGHBOURED = 2_000
# A phrase that no more documents can have is found sooner than the turns of the candidates.
_FEW = 500

# Matches are counted, at about 0.2 microseconds each, if the words have at most so many documents together.
_MOST_COUNTED = 200_000
# Words that so many documents have in all are looked for in less than these seconds, and without a thread to wait for.
_SHORT = 5_000_000
_SHORT_SECONDS = 2.0


T = TypeVar("T")


@cache
def _threads() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(max_workers=4, thread_name_prefix="search")


Match = tuple[float, "tantivy.DocAddress"]
"""The score of a document of the index, and where it is."""


class Question:
    """A query put to one snapshot of the index."""

    def __init__(
        self,
        schema: tantivy.Schema,
        vocabulary: Vocabulary,
        query: Query,
        hints: Hints,
        filters: Filters,
        deadline: float | None,
        *,
        version: int,
    ) -> None:
        self._schema = schema
        self._vocabulary = vocabulary
        self._snapshot = vocabulary.snapshot
        self._query = query
        self._quoted = dict.fromkeys(clause.alternatives[0] for clause in query.clauses if clause.quoted)
        self._filters = filters
        self._deadline = deadline
        self.has_places = version >= ONE_FIELD_SINCE
        """False for an index of an older version, which `candidates` cannot read."""
        self._has_counts = version >= COUNTED_SINCE
        self._weights = ranking.WEIGHTS
        self._fields = FORMER_FIELDS[:1] if self.has_places else FORMER_FIELDS
        self._rarities: dict[tuple[str, ...], float] = {}
        self.terms = [self._term(token) for token in dict.fromkeys(_tokens(query.clauses))]
        self._read_as = {term.word: term.read_as for term in self.terms}
        near = [word for words in self._read_as.values() for word in words]
        # Parts of paths and identifiers are looked for as they are.
        self._words = {phrase[0] for clause in query.clauses for phrase in clause.alternatives if len(phrase) == 1}
        self._words.update(near)
        self._phrases = matching_phrases(query, hints, near, self._weights)
        self._neighbours = neighbours(query, self._weights)
        telling = {phrase: weight for phrase, weight in self._phrases.items() if self._is_telling(phrase)}
        self._leading = self._in_one_word(telling) or self._phrases

    @property
    def bound(self) -> float:
        """The highest score that a document can reach."""
        phrases = self._neighbours | self._phrases
        whole = (_K1 + 1) * sum(weight * self._idf(phrase) for phrase, weight in phrases.items())
        return whole * (1 + self._weights.covered) if self._words_to_cover else whole

    @property
    def title_phrases(self) -> list[tuple[str, ...]]:
        """Words and pairs of characters to look for in titles: the telling ones, as in texts, and of those the
        rarest."""
        phrases = title_phrases(self._query)
        telling = [phrase for phrase in phrases if self._is_telling(phrase)] or phrases
        return sorted(telling, key=self._idf, reverse=True)[:TITLE_WORDS]

    def matches(self, limit: int, *, typed: bool) -> tuple[list[Match], bool]:
        """At least the `limit` best documents, with all that tie with the last of them; and whether there are more.
        `typed`: only documents of the types of the filters."""
        query = self._boolean(self._leading, list(self._filters.queries(self._schema, typed=typed)))
        if query is None:
            return [], False
        enough = max(CANDIDATES, limit + 1)
        while True:
            with waiting():
                hits = self._hits(query, enough)
            if len(hits) < enough or hits[-1][0] < hits[limit - 1][0] or enough >= _MAX_TIED:
                return hits, len(hits) == enough
            enough *= _TIED

    def widen(self) -> bool:
        """Let all words choose candidates from now on. False if they do already."""
        widened = len(self._leading) < len(self._phrases)
        self._leading = self._phrases
        return widened

    def candidates(self, matches: Sequence[Match]) -> list[Candidate]:
        """The documents with their places."""
        ids, turns, types, projects, times = self.columns(matches, "id", "turn", "type", "project", "ts")
        scores = [score for score, _ in matches]
        kinds = [EVENT_TYPES[kind] for kind in types]
        sessions = [turn >> 20 for turn in turns]
        return list(map(Candidate, ids, scores, kinds, sessions, turns, projects, times))

    def columns(self, matches: Sequence[Match], *names: str) -> list[list[int]]:
        """Numbers of the documents, by the names of the fields."""
        if not matches:
            return [[] for _ in names]
        addresses = [address for _, address in matches]
        return [cast(list[int], self._snapshot.fast_field_values(name, addresses)) for name in names]

    @property
    def is_countable(self) -> bool:
        """False if the words are too common to count all matches, or the index is of an older version."""
        documents = sum(self._vocabulary.documents("text", phrase[0]) for phrase in self._phrases)
        return self._has_counts and documents <= _MOST_COUNTED

    def aggregate(self, asked: Mapping[str, Any], *, typed: bool) -> dict[str, Any] | None:
        """Aggregations of tantivy over all matches; None if nothing can match."""
        query = self._boolean(self._phrases, list(self._filters.queries(self._schema, typed=typed)))
        return None if query is None else self._in_time(lambda: self._snapshot.aggregate(query, dict(asked)))

    def weigh_closely(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates, the best of them with the scores of the neighbouring words that they have, and as much more
        as they have of a long question."""
        import tantivy

        closely, words = self._closely(), self._words_to_cover
        best = ranking.best_of(candidates, attrgetter("score"))
        if not self.has_places or not (closely or words) or not best:
            return list(candidates)
        turns = {candidate.turn for candidate in best}
        terms = [tantivy.Query.term_query(self._schema, "turn", turn, "basic") for turn in turns]
        within = tantivy.Query.const_score_query(_any(terms), 0.0)
        parts = []
        for phrase, weight in closely.items():
            part = self._boosted(self._phrase("text", phrase), weight)
            if min(self._vocabulary.documents("text", token) for token in phrase) > _FEW:
                part = _all(within, part)
            parts.append(part)
        scores = self._scores_of(parts)
        shares = self._scores_of(
            [tantivy.Query.const_score_query(_all(within, _any(forms)), share) for forms, share in words]
        )
        scores = {
            one.id: ranking.weigh_closely(one.score, scores.get(one.id, 0.0), shares.get(one.id, 0.0)) for one in best
        }
        return [replace(one, score=scores[one.id]) if one.id in scores else one for one in candidates]

    def _scores_of(self, parts: Sequence[tantivy.Query]) -> dict[int, float]:
        """The sums of the scores of the parts, by the ids of events."""
        hits = self._hits(_any(parts), _MOST_NEIGHBOURED) if parts else []
        (ids,) = self.columns(hits, "id")
        return {id: score for id, (score, _) in zip(ids, hits, strict=True)}

    @cached_property
    def _words_to_cover(self) -> list[tuple[list[tantivy.Query], float]]:
        """The words of a long question as queries for their forms, with their shares."""
        if not self.has_places:
            return []
        words = words_to_cover(
            self._query, self._phrases, self._forms, self._documents_with, self._vocabulary.rarity_of
        )
        return [([self._phrase(*form) for form in forms], share) for forms, share in words]

    def _forms(self, phrase: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The forms of a word or phrase that events may have, with their fields."""
        yield "text", phrase
        if len(phrase) == 1:
            for word in (*phrase, *self._read_as[phrase[0]]):
                yield "text", (word,)
                yield from ((field, (stem,)) for field, stem in self._vocabulary.stems(word))

    def _documents_with(self, form: tuple[str, tuple[str, ...]]) -> int:
        field, phrase = form
        return min(self._vocabulary.documents(field, token) for token in phrase)

    def _closely(self) -> dict[tuple[str, ...], float]:
        """The rarest of the common words, and of the pairs of neighbours."""
        chosen = self._leading.keys() | self._quoted.keys()
        common = [phrase for phrase in self._phrases if phrase not in chosen]
        common = sorted(common, key=self._idf, reverse=True)[:COMMON_WORDS]
        pairs = [pair for pair in self._neighbours if pair not in self._phrases and self._is_known(pair)]
        rarest = sorted(pairs, key=self._idf, reverse=True)[:NEIGHBOURS]
        return {phrase: self._phrases[phrase] for phrase in common} | {pair: self._neighbours[pair] for pair in rarest}

    def matched(self, text: str, title: str) -> dict[str, list[str]]:
        """The words of the query that a text and a title have, by field."""
        words = [word for term in self.terms for word in (term.word, *term.read_as)]
        split = analyzer()
        tokens, named = (set(split.analyze(" ".join(index_text(part)))) for part in (without_marks(text), title))
        stems = {
            field: set(stemmers()[field].analyze(text)) for word in words for field, _ in self._vocabulary.stems(word)
        }
        return {
            "text": [word for word in words if word in tokens],
            "stem": [
                word
                for word in words
                if word not in tokens and any(stem in stems[field] for field, stem in self._vocabulary.stems(word))
            ],
            "title": [word for word in words if word in named],
        }

    def _term(self, token: str) -> Term:
        documents = max(self._vocabulary.documents(field, token) for field in self._fields)
        corrections = () if documents else self._vocabulary.corrections(token)
        return Term(word=token, documents=documents, read_as=corrections)

    def _is_telling(self, phrase: tuple[str, ...]) -> bool:
        """True unless it is a word that very many documents have."""
        return not self.has_places or len(phrase) > 1 or self._vocabulary.documents("text", phrase[0]) <= COMMON

    def _in_one_word(self, phrases: Mapping[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
        """The phrases, but of a camelCase word that fills the candidates as it is written only that: its parts, as
        words of their own, are a phrase of common words, which takes longer than all the rest."""
        found = dict(phrases)
        for clause in self._query.clauses:
            whole, *split = clause.alternatives
            if split and self.has_places and self._vocabulary.documents("text", whole[0]) >= CANDIDATES:
                found = {phrase: weight for phrase, weight in found.items() if phrase not in split}
                found[whole] = self._phrases[whole]
        return found

    def _is_known(self, phrase: Iterable[str]) -> bool:
        return all(self._vocabulary.documents("text", token) for token in phrase)

    def _score(self, phrases: Mapping[tuple[str, ...], float]) -> Iterator[tantivy.Query]:
        for phrase, weight in phrases.items():
            for field in self._fields:
                if all(self._vocabulary.documents(field, token) for token in phrase):
                    yield self._boosted(self._phrase(field, phrase), weight)
            if len(phrase) == 1 and phrase[0] in self._words:
                for field, stem in self._vocabulary.stems(phrase[0]):
                    yield self._boosted(self._phrase(field, (stem,)), weight * self._weights.stem)

    def _boolean(
        self, phrases: Mapping[tuple[str, ...], float], restrictions: Sequence[tantivy.Query]
    ) -> tantivy.Query | None:
        """Any of the phrases makes a match, but quoted ones are required. Tantivy skips documents that cannot make the
        page while nothing but words is asked for. None if nothing can match."""
        import tantivy

        rest = {phrase: weight for phrase, weight in phrases.items() if phrase not in self._quoted}
        scored = [(tantivy.Occur.Should, part) for part in self._score(rest)]
        required = [self._either(phrase) for phrase in self._quoted]
        if not scored and not required:
            return None
        if not required and not restrictions:
            return tantivy.Query.boolean_query(scored)
        if not required:
            required, scored = [tantivy.Query.boolean_query(scored)], []
        conditions = [*required, *(tantivy.Query.const_score_query(query, 0.0) for query in restrictions)]
        return tantivy.Query.boolean_query([*((tantivy.Occur.Must, query) for query in conditions), *scored])

    def _either(self, phrase: Sequence[str]) -> tantivy.Query:
        return _any(self._phrase(field, phrase) for field in self._fields)

    def _boosted(self, query: tantivy.Query, weight: float) -> tantivy.Query:
        import tantivy

        return query if weight == 1.0 else tantivy.Query.boost_query(query, weight)

    def _phrase(self, field: str, phrase: Sequence[str]) -> tantivy.Query:
        import tantivy

        if len(phrase) == 1:
            return tantivy.Query.term_query(self._schema, field, phrase[0], "freq")
        return tantivy.Query.phrase_query(self._schema, field, list(phrase))

    def _hits(self, query: tantivy.Query, limit: int) -> list[Match]:
        return self._in_time(lambda: self._snapshot.search(query, limit, count=False)).hits

    def _in_time(self, ask: Callable[[], T]) -> T:
        """The answer of the index, if it comes before the deadline."""
        if self._deadline is None:
            return ask()
        seconds = self._deadline - time.monotonic()
        if seconds > _SHORT_SECONDS and sum(term.documents for term in self.terms) < _SHORT:
            return ask()
        try:
            if seconds <= 0:
                raise TimeoutError
            return _threads().submit(ask).result(timeout=seconds)
        except TimeoutError:
            raise DeadlineExceeded("the search took too long") from None

    def _idf(self, phrase: tuple[str, ...]) -> float:
        """The rarity of a phrase, with that of its stem."""
        rarity = self._rarities.get(phrase)
        if rarity is None:
            rarity = self._rarities[phrase] = self._compute_idf(phrase)
        return rarity

    def _compute_idf(self, phrase: tuple[str, ...]) -> float:
        rarity = max(sum(self._vocabulary.rarity(field, token) for token in phrase) for field in self._fields)
        if len(phrase) == 1 and phrase[0] in self._words:
            rarity += self._weights.stem * sum(
                self._vocabulary.rarity(field, stem) for field, stem in self._vocabulary.stems(phrase[0])
            )
        return rarity


def _tokens(clauses: Iterable[Clause]) -> Iterator[str]:
    for clause in clauses:
        for phrase in clause.alternatives:
            yield from phrase


def _any(queries: Iterable[tantivy.Query]) -> tantivy.Query:
    import tantivy

    return tantivy.Query.boolean_query([(tantivy.Occur.Should, query) for query in queries])


def _all(*queries: tantivy.Query) -> tantivy.Query:
    import tantivy

    return tantivy.Query.boolean_query([(tantivy.Occur.Must, query) for query in queries])
