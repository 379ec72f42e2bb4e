"""Properties of any rollout, however its records are ordered, repeated, cut or spoilt."""

from __future__ import annotations

from typing import Any

import msgspec
from codex_rollout import Rollout, feed, feed_with_restarts, made_up, nothing_known
from hypothesis import given
from hypothesis import strategies as st

from backstory.sources.base import Event, Item, Usage
from backstory.sources.codex import Codex
from backstory.sources.codex.parser import EVENTS, RECORDS, RESPONSE_ITEMS, TURN_ITEMS

TEXTS = st.sampled_from(
    ["go on", "fix it", "", "<skill>x</skill>", "<environment_context>x</environment_context> go on"]
)
TURNS = st.sampled_from(["turn-1", "turn-2", "turn-3"])
CALLS = st.sampled_from(["c1", "c2"])
AT = Rollout()

# Few words and few times, so that forms meet, repeat and miss one another.
PLAUSIBLE = st.one_of(
    st.builds(AT.user_item, TEXTS),
    st.builds(AT.user_event, TEXTS),
    st.builds(AT.answer_item, TEXTS),
    st.builds(AT.answer_event, TEXTS),
    st.builds(AT.started, TURNS),
    st.builds(AT.context, TURNS),
    st.builds(AT.complete, TURNS, st.none() | TEXTS),
    st.builds(AT.call, CALLS),
    st.builds(AT.output, TEXTS, CALLS),
    st.builds(lambda call: AT.event("exec_command_end", call_id=call, exit_code=1), CALLS),
    st.builds(lambda call: AT.turn_item("CommandExecution", id=call, command=["ls"]), CALLS),
    st.builds(lambda text: AT.turn_item("UserMessage", content=[{"type": "text", "text": text}]), TEXTS),
    st.builds(lambda text: AT.event("agent_reasoning", text=text), TEXTS),
    st.builds(lambda text: AT.item("reasoning", summary=[{"text": text}, {"text": "more"}]), TEXTS),
    st.builds(AT.tokens, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)),
    st.builds(lambda: AT.event("turn_aborted", reason="interrupted")),
    st.builds(lambda: AT.record("compacted", message="")),
    st.builds(lambda: AT.event("context_compacted")),
    st.builds(AT.meta, st.sampled_from(["parent", "child"]), forked_from_id=st.sampled_from([None, "parent"])),
)
TIMES = st.sampled_from(["2026-06-18T09:00:00.000Z", "2026-06-18T09:00:00.001Z", "2026-06-18T09:01:00.000Z", None])
ROLLOUTS = st.lists(
    st.builds(lambda record, time: {**record, "timestamp": time}, PLAUSIBLE, TIMES), min_size=1, max_size=40
)


def parent_owns_turn_1(session: str) -> frozenset[str]:
    return frozenset({"turn-1"} if session == "parent" else ())


def uids(items: list[Item]) -> list[bytes]:
    return [item.uid for item in items if isinstance(item, Event)]


class TestAnyRollout:
    @given(ROLLOUTS)
    def test_reading_can_stop_anywhere(self, records: list[Any]) -> None:
        """A restart before every record changes nothing."""
        assert feed_with_restarts(records, None, parent_owns_turn_1) == feed(records, None, parent_owns_turn_1)

    @given(ROLLOUTS)
    def test_ids_of_neighbours_differ(self, records: list[Any]) -> None:
        """Events get different ids as long as time does not go back."""
        in_order = sorted(records, key=lambda record: record["timestamp"] or "")
        items = feed(in_order)
        assert len(set(uids(items))) == len(uids(items))
        keys = [item.key for item in items if isinstance(item, Usage)]
        assert all(isinstance(key, bytes) and len(key) == 16 for key in keys)

    @given(ROLLOUTS, st.integers(0, 40))
    def test_ids_do_not_depend_on_what_follows(self, records: list[Any], length: int) -> None:
        """A file that is still growing already has its ids."""
        shorter = uids(feed(records[:length]))
        assert uids(feed(records))[: len(shorter)] == shorter

    @given(ROLLOUTS)
    def test_a_copy_keeps_its_own_ids(self, records: list[Any]) -> None:
        """Knowing the original or not, the events a fork keeps have the same ids."""
        every = uids(feed(records))
        assert set(uids(feed(records, None, parent_owns_turn_1))) <= set(every)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    """
    type role content message text summary id call_id name namespace arguments input output result action queries query
    results tools payload turn_id model cwd info last_token_usage total_token_usage usage item invocation changes
    success status source thread_spawn subagent git images local_images kind duration secs nanos fragments tool error
    review_output findings goal author receiver_thread_ids metadata timestamp created_at replacement_history exit_code
    """.split()
)
SHAPES = st.recursive(
    JSON, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=6), max_leaves=12
)
NAMES = st.sampled_from([*RESPONSE_ITEMS, *EVENTS, *TURN_ITEMS, "item_completed"])


class TestSpoiltRecords:
    def check(self, record: Any) -> None:
        """Either items whose every value can be stored, or a ValueError; and the parser goes on."""
        parser = Codex().parser(made_up(), None, nothing_known)
        try:
            items = list(parser.parse(record))
        except ValueError:
            items = []
        for item in items:
            assert not isinstance(item, Event) or isinstance(item.text, str)
            assert not isinstance(item, Usage) or 0 <= item.input_tokens < 1 << 63
        Codex().parser(made_up(), msgspec.json.decode(msgspec.json.encode(parser.state())), nothing_known)
        assert list(parser.parse(Rollout().user_item("still here")))

    @given(
        st.sampled_from(["response_item", "event_msg", *RECORDS]), NAMES, st.dictionaries(FIELDS, SHAPES, max_size=8)
    )
    def test_wrong_shapes(self, kind: str, name: str, fields: dict[str, Any]) -> None:
        """No shape of a known record breaks the parser."""
        self.check({"timestamp": "2026-06-18T09:00:00Z", "type": kind, "payload": {**fields, "type": name}})

    @given(st.sampled_from([*TURN_ITEMS]), st.dictionaries(FIELDS, SHAPES, max_size=8))
    def test_wrong_turn_items(self, name: str, fields: dict[str, Any]) -> None:
        """Nor of a turn item."""
        item = {**fields, "type": name}
        self.check({"timestamp": None, "type": "event_msg", "payload": {"type": "item_completed", "item": item}})

    @given(st.dictionaries(FIELDS, SHAPES, max_size=8) | JSON)
    def test_anything(self, record: Any) -> None:
        """Nor anything else."""
        self.check(record)

    @given(st.binary(max_size=200) | SHAPES.map(lambda value: ascii(value).encode()))
    def test_any_head(self, head: bytes) -> None:
        """A file is described or not, with any beginning."""
        source = Codex()
        for name in ("rollout-x.jsonl", "rollout-x.json"):
            source.describe(made_up().path.with_name(name), head)
