"""Real transcripts, turn by turn."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from backstory.library import Library
from tests.conversation_oracle import Json, check_home

pytestmark = pytest.mark.corpus


@pytest.fixture
def library(corpus_library: Library) -> Iterator[Library]:
    """The same archive, without redaction: the words of a turn are those that it is searched by."""
    environ = {"BACKSTORY_REDACT": "off"}
    with Library(corpus_library.home, agents_home=corpus_library.agents_home, environ=environ) as library:
        yield library


class TestRealTranscripts:
    def test_every_turn_is_as_the_lines_have_it(self, library: Library) -> None:
        """Read a second time by a plain reader of the same files."""
        listed = library.call("list_conversations", {"limit": 10_000})["conversations"]

        def turns_of(id: str) -> list[Json]:
            turns: list[Json] = library.call("read_conversation", {"session_id": id, "limit": 10_000}).get("turns", [])
            return turns

        check_home(library.agents_home, listed, turns_of)

    def test_every_turn_is_found_by_its_own_words(self, library: Library) -> None:
        listed = library.call("list_conversations", {"limit": 10_000})["conversations"]
        assert len(listed) > 10
        for conversation in listed:
            id = conversation["session_id"]
            for turn in library.call("read_conversation", {"session_id": id, "limit": 3})["turns"]:
                query = re.sub(r'["“”]', " ", turn["user_text"] or turn["assistant_text"])[:200]
                arguments = {"query": query, "session_id": id, "limit": 50}
                results = library.call("search_conversations", arguments)["results"]
                assert turn["turn_number"] in {result["turn_number"] for result in results}
