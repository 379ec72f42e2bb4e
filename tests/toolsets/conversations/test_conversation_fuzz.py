"""Whatever is asked, there is an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conversation_world import Session, World
from tests.examples import examples

SESSION = Session("s", "/home/dev/shop").prompt("How does it work?").call("Bash", {"command": "ls"}, "").answer("Well.")

text = st.text(st.characters(), max_size=20) | st.sampled_from([SESSION.id, "work", "shop", '"', "*", "\ud800", "\x00"])
number = st.integers() | st.integers(-2, 3)
anything = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(["query", "limit", "session_id", "project", "turn_number", "offset"])
likely = st.fixed_dictionaries(
    {},
    optional={
        "query": text,
        "session_id": text,
        "project": text,
        "limit": number,
        "turn_number": number,
        "offset": number,
    },
)
tools = st.sampled_from(["search_conversations", "list_conversations", "read_turn", "read_conversation"])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("world"))
    world.read(SESSION)
    yield world
    world.library.close()


class TestAnything:
    """Arguments of every kind."""

    @settings(max_examples=examples(2))
    @given(tool=tools, arguments=st.dictionaries(names | text, anything, max_size=4) | likely)
    def test_is_answered(self, world: World, tool: str, arguments: dict[str, Any]) -> None:
        """With what the tool's schema says or with what was wrong, in text that can be written down."""
        allowed = world.library.tool(tool).input_schema["properties"]

        answer = world.ask(tool, **{name: value for name, value in arguments.items() if name in allowed})
        refused = world.library.reply(tool, arguments)

        assert json.dumps(answer, ensure_ascii=False).encode()
        assert not refused.is_error
        assert set(arguments) <= set(allowed) or list(refused.data) == ["error"]
