"""One search over everything: the hits of sessions, and capsules beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backstory.library import Library
from tests.capsule_world import GOOD, capsule_text
from tests.transcripts import Transcript

TOKEN = "ghp_" + "a1B2" * 9


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    Transcript("one").prompt("why does the parser fail").answer("a missing brace in the grammar").write(tmp_path)
    with Library(tmp_path / "backstory", agents_home=tmp_path, environ={}) as library:
        library.sync()
        yield library


def store(library: Library, name: str, text: str, **fields: Any) -> str:
    answer = library.call("moss.store", {"name": name, "capsule_text": text, **fields})
    return str(answer["id"])


def names(answer: dict[str, Any]) -> list[str]:
    return [capsule["name"] for capsule in answer["capsules"]]


class TestSearch:
    def test_shows_sessions_and_capsules(self, library: Library) -> None:
        """Each capsule with its address, the place that matches, its score and its time."""
        id = store(library, "Parser", capsule_text(decisions="The grammar needs a brace"), workspace="W", title="T")
        answer = library.search("grammar brace")

        assert len(answer["data"]["results"]) == 1
        (capsule,) = answer["capsules"]
        assert set(capsule) == {"id", "workspace", "name", "title", "snippet", "score", "updated_at"}
        assert [capsule[key] for key in ("id", "workspace", "name", "title")] == [id, "W", "Parser", "T"]
        assert "The grammar needs a brace" in capsule["snippet"]
        assert 0 < capsule["score"] <= 1

    def test_has_none_without_a_store(self, library: Library) -> None:
        """And makes none."""
        assert library.search("grammar")["capsules"] == []
        assert not (library.home / "capsules.db").exists()

    def test_is_another_answer_than_that_of_the_tool(self, library: Library) -> None:
        """The contract of `search_sessions` knows no capsules."""
        store(library, "a", capsule_text("grammar"))

        assert "capsules" not in library.call("search_sessions", {"query": "grammar"})

    def test_puts_the_best_first(self, library: Library) -> None:
        """More of the words first; a capsule with few of them is left out; scores are from 0 to 1."""
        store(library, "one", capsule_text("wombat only"))
        store(library, "three", capsule_text("wombat quokka numbat"))
        store(library, "two", capsule_text("wombat quokka only"))

        assert names(library.search("wombat quokka numbat")) == ["three"]
        answer = library.search("wombat quokka bilby")
        assert sorted(names(answer)) == ["three", "two"]
        scores = [capsule["score"] for capsule in answer["capsules"]]
        assert scores == sorted(scores, reverse=True)
        assert all(0 < score <= 1 for score in scores)
        assert len(library.search("wombat", n_hits=2)["capsules"]) == 2

    def test_redacts(self, library: Library) -> None:
        store(library, "a", f"{GOOD}\ngrammar {TOKEN} \x1b[31mred", title=f"T {TOKEN}")
        answer = library.search("grammar")

        assert answer["capsules"]
        assert TOKEN not in str(answer)
        assert "\x1b" not in answer["capsules"][0]["snippet"]

    def test_forgets_at_once(self, library: Library) -> None:
        """A deleted capsule is not found."""
        id = store(library, "a", capsule_text("grammar"))
        assert names(library.search("grammar")) == ["a"]
        library.call("moss.delete", {"id": id})

        assert library.search("grammar")["capsules"] == []


class TestFilters:
    def test_of_sessions_leave_capsules_out(self, library: Library) -> None:
        store(library, "a", capsule_text("grammar"))
        session = library.search("grammar")["data"]["results"][0]["session"]["id"]

        for options in (
            {"source": "claude-code"},
            {"within_id": session},
            {"event_types": ["user_input"]},
            {"project": "shop"},
        ):
            assert library.search("grammar", **options)["capsules"] == [], options

    def test_of_time_hold_for_capsules(self, library: Library) -> None:
        """By the time of their last update."""
        store(library, "a", capsule_text("grammar"))

        assert names(library.search("grammar", since="2020-01-01T00:00:00Z")) == ["a"]
        assert names(library.search("grammar", until="2020-01-01T00:00:00Z")) == []
        assert names(library.search("grammar", since="1990-01-01T00:00:00Z", until="9999-01-01T00:00:00Z")) == ["a"]
        assert names(library.search("grammar", until="1990-01-01T00:00:00Z")) == []

    def test_to_capsules(self, library: Library) -> None:
        """`source` capsules shows only them, without warnings about sessions."""
        store(library, "a", capsule_text("grammar"))
        answer = library.search("grammar", source="capsules")

        assert names(answer) == ["a"]
        assert answer["data"]["results"] == []
        assert answer["warnings"] == []


class TestTrouble:
    def test_of_the_store_is_a_warning(self, library: Library) -> None:
        """Sessions are found all the same."""
        (library.home / "capsules.db").write_bytes(b"this is no database, " * 100)
        answer = library.search("grammar")

        assert len(answer["data"]["results"]) == 1
        assert answer["capsules"] == []
        assert "capsules.db is damaged" in answer["warnings"][-1]

    def test_of_the_request_is_the_error(self, library: Library) -> None:
        store(library, "a", GOOD)

        assert library.search("")["error"]["code"] == "invalid_request"
