"""The peers answer the same questions to the same texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.corpus import events, queries
from bench.peers import build_bm25s, build_fts5, query_bm25s, query_fts5

TEXTS = ["the quick brown fox", "a lazy dog sleeps", "the fox and the dog, the dog and the fox: fox", "nothing here"]


class TestFts5:
    """SQLite FTS5 ranks by BM25 and finds any of the words."""

    def test_any_word_best_first(self, tmp_path: Path) -> None:
        built = build_fts5(tmp_path / "fts5.db", TEXTS)
        assert built.seconds > 0
        assert built.bytes == (tmp_path / "fts5.db").stat().st_size
        both, phrase, none = query_fts5(tmp_path / "fts5.db", ["fox dog", '"lazy dog"', "zebra"])
        assert both.found[0] == 3
        assert set(both.found) == {1, 2, 3}
        assert phrase.found == (2,)
        assert none.found == ()

    def test_syntax_is_just_words(self, tmp_path: Path) -> None:
        build_fts5(tmp_path / "fts5.db", TEXTS)
        answers = query_fts5(tmp_path / "fts5.db", ["fox AND NOT dog*", "src/fox.py:12 (dog)", "quick-brown"])
        assert all(answer.found and answer.seconds > 0 for answer in answers)

    def test_corpus(self, tmp_path: Path) -> None:
        build_fts5(tmp_path / "fts5.db", events(300))
        asked = list(queries(70))
        answers = query_fts5(tmp_path / "fts5.db", [query.text for query in asked], k=5)
        for query, answer in zip(asked, answers, strict=True):
            assert len(answer.found) <= 5
            if query.kind in ("question", "path"):
                assert answer.found
            if query.kind == "no_hit":
                assert not answer.found


class TestBm25s:
    """bm25s does the same in memory."""

    def test_any_word_best_first(self) -> None:
        pytest.importorskip("bm25s", reason="an extra: pip install backstory[bench]")
        peer = build_bm25s(TEXTS)
        assert peer.built.bytes > 0
        both, none = query_bm25s(peer, ["fox dog", "zebra"])
        assert both.found[0] == 3
        assert set(both.found) == {1, 2, 3}
        assert none.found == ()

    def test_corpus(self) -> None:
        pytest.importorskip("bm25s", reason="an extra: pip install backstory[bench]")
        asked = list(queries(70))
        answers = query_bm25s(build_bm25s(events(300)), [query.text for query in asked], k=5)
        for query, answer in zip(asked, answers, strict=True):
            assert len(answer.found) <= 5
            if query.kind in ("question", "path"):
                assert answer.found
            if query.kind == "no_hit":
                assert not answer.found
