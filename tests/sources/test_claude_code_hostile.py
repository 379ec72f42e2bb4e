"""Records of any shape: never an error that is not the record's own, never a lost neighbour."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from claude_code_transcript import Records, describe, events, feed, load
from hypothesis import given, settings
from hypothesis import strategies as st

from backstory.model import EventType
from backstory.sources.base import Event
from backstory.sources.claude_code.source import ClaudeCode
from tests.examples import examples

FOLDER = Path(__file__).parent / "claude_code"
SEEDS = [record for path in sorted(FOLDER.rglob("*.jsonl")) for record in load(path)]
VALUES = [
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    "\0\ud800",
    [],
    ["x"],
    [None],
    {},
    {"type": "text"},
    {"type": []},
    [[{}]],
    {"x": {}},
]


def spoil(value: Any, dice: random.Random) -> Any:
    """The value with a few of its parts replaced or gone."""
    if dice.random() < 0.06:
        return dice.choice(VALUES)
    if isinstance(value, dict):
        return {name: spoil(part, dice) for name, part in value.items() if dice.random() > 0.03}
    if isinstance(value, list):
        return [spoil(part, dice) for part in value]
    return value


def check(items: list) -> None:
    for item in items:
        if isinstance(item, Event):
            assert isinstance(item.text, str)
            assert len(item.uid) == 16
            assert item.tool is None or isinstance(item.tool, str)
            assert item.call_id is None or isinstance(item.call_id, str)
            assert item.model is None or isinstance(item.model, str)


class TestHostileRecords:
    @given(seed=st.integers(0, 2**32))
    def test_spoiled_records(self, seed: int) -> None:
        """A record with wrong parts gives the items that can be read or a ValueError, and its state is still JSON."""
        dice = random.Random(seed)
        transcript = describe(next(FOLDER.rglob("1111*.jsonl")))
        assert transcript is not None
        parser = ClaudeCode().parser(transcript, None, lambda session: frozenset())
        for record in dice.sample(SEEDS, 40):
            try:
                check(list(parser.parse(spoil(record, dice))))
            except ValueError:
                continue
        check(list(parser.finish()))
        state = parser.state()
        ClaudeCode().parser(transcript, state, lambda session: frozenset())

    @given(
        record=st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda part: (
                st.lists(part)
                | st.dictionaries(
                    st.sampled_from(["type", "message", "content", "uuid", "data", "attachment", "subtype", "x"]), part
                )
            ),
        )
    )
    @settings(max_examples=examples(2))
    def test_any_json(self, record: Any) -> None:
        """Anything that is not an object is refused; any object is read."""
        if isinstance(record, dict):
            check(feed([record]))
        else:
            with pytest.raises(ValueError, match="not a JSON object"):
                feed([record])

    @pytest.mark.parametrize(
        "message", ["error", None, [], {"role": "user"}, {"content": None}, {"content": 7}, {"content": {"x": 1}}]
    )
    @pytest.mark.parametrize("kind", ["user", "assistant"])
    def test_messages_of_the_wrong_shape(self, kind: str, message: Any) -> None:
        """A message that cannot be read is kept whole."""
        yielded = events(feed([Records().record(kind, message=message)]))
        assert [event.type for event in yielded] == [EventType.UNKNOWN]

    def test_lone_surrogates_and_nul(self) -> None:
        """Text that is not quite Unicode passes through."""
        r = Records()
        yielded = events(feed([r.user("a\ud800\0b"), r.assistant("c\udfff")]))
        assert [event.text for event in yielded] == ["a\ud800\0b", "c\udfff"]

    def test_agents_that_lead_elsewhere(self) -> None:
        """An agent id cannot be used to look outside the session's folder."""
        inner = {"type": "user", "uuid": "u", "message": {"role": "user", "content": "x"}}
        record = Records().progress("../../../../etc/passwd", "toolu_1", inner)
        assert len([item for item in feed([record]) if isinstance(item, Event)]) == 1

    def test_state_stays_small(self) -> None:
        """However long a transcript is, what is kept to go on is not."""
        r = Records()
        parser = ClaudeCode().parser(describe(next(FOLDER.rglob("1111*.jsonl"))), None, lambda session: frozenset())
        for n in range(3000):
            block = {"type": "tool_use", "id": f"toolu_{n}", "name": "Read", "input": {"file_path": "x" * 1000}}
            list(parser.parse(r.assistant(f"step {n}", block)))
            list(parser.parse(r.queue("enqueue", f"prompt {n}")))
            list(parser.parse({"type": "summary", "summary": "s", "leafUuid": f"leaf {n}"}))
        assert len(msgspec.json.encode(parser.state())) < 64_000
