"""Rollouts: the session of one, its cost, copies from another one, and unknown records."""

from __future__ import annotations

from typing import Any

import pytest
from codex_rollout import SESSION, Rollout, answers, events, feed, feed_with_restarts, made_up, prompts, texts

from backstory.model import EventType
from backstory.sources.base import About, Item, Usage
from backstory.sources.codex import Codex

PARENT = "019ee001-0000-7000-8000-0000000000ff"


def read(*records: Any) -> list[Item]:
    items = feed(records)
    assert feed_with_restarts(records) == items
    return items


class TestAbout:
    def test_header(self) -> None:
        """The header says where the session ran, on which branch, in which version."""
        meta = Rollout().meta(cli_version="0.142.0", git={"branch": "main"})
        assert read(meta) == [About(cwd="/home/mira/shop", branch="main", version="0.142.0")]

    def test_changes_only(self) -> None:
        """A turn elsewhere changes the folder; saying the same again says nothing."""
        rollout = Rollout()
        items = read(
            rollout.meta(),
            rollout.context("turn-1"),
            rollout.context("turn-2", cwd="/home/mira/docs"),
            rollout.context("turn-2", cwd="/home/mira/docs"),
        )
        assert items == [About(cwd="/home/mira/shop"), About(cwd="/home/mira/docs")]

    def test_lineage(self) -> None:
        """The parent of the session and the one it was forked from."""
        spawn = {"subagent": {"thread_spawn": {"parent_thread_id": "parent"}}}
        (about,) = read(Rollout().meta(source=spawn, forked_from_id="original"))
        assert isinstance(about, About)
        assert (about.parent, about.forked_from) == ("parent", "original")

    def test_headers_of_others(self) -> None:
        """Only the session's own header speaks for it."""
        rollout = Rollout()
        assert read(rollout.meta(), rollout.meta(PARENT, cwd="/elsewhere")) == [About(cwd="/home/mira/shop")]


class TestUsage:
    def spent(self, *records: Any) -> list[tuple[int, str | None]]:
        items = read(*records)
        keys = [item.key for item in items if isinstance(item, Usage)]
        assert len(set(keys)) == len(keys)
        return [(item.input_tokens, item.model) for item in items if isinstance(item, Usage)]

    def test_counts(self) -> None:
        """Every kind of token; input includes what came from the cache."""
        count = {
            "input_tokens": 100,
            "cached_input_tokens": 60,
            "cache_write_input_tokens": 10,
            "output_tokens": 20,
            "reasoning_output_tokens": 5,
            "total_tokens": 120,
        }
        (usage,) = read(Rollout().event("token_count", info={"last_token_usage": count, "total_token_usage": count}))
        assert isinstance(usage, Usage)
        assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_5m_tokens) == (100, 60, 10)
        assert (usage.output_tokens, usage.reasoning_tokens) == (20, 5)

    def test_repeated_count(self) -> None:
        """A count whose total has not moved was counted, even if a turn has begun since."""
        rollout = Rollout()
        assert self.spent(
            rollout.context("turn-1", "gpt-5.5"),
            rollout.tokens(100, 100),
            rollout.tokens(100, 100),
            rollout.context("turn-2", "gpt-5.5-mini"),
            rollout.tokens(100, 100),
            rollout.tokens(100, 200),
        ) == [(100, "gpt-5.5"), (100, "gpt-5.5-mini")]

    def test_totals_only(self) -> None:
        """Without the count of the call, it is what the total has grown by; a total that shrank began anew."""
        rollout = Rollout()
        spent = self.spent(
            rollout.tokens(None, 100), rollout.tokens(None, 150), rollout.tokens(None, 150), rollout.tokens(None, 30)
        )
        assert [count for count, _ in spent] == [100, 50, 30]

    def test_totals_of_a_fork(self) -> None:
        """A fork's first total holds what its original spent."""
        rollout = Rollout()
        meta = rollout.meta(forked_from_id=PARENT)
        spent = self.spent(meta, rollout.tokens(None, 28_000_000), rollout.tokens(None, 28_000_100))
        assert [count for count, _ in spent] == [100]

    def test_nothing_spent(self) -> None:
        """Rate limits alone, and counts of nothing, are no usage."""
        rollout = Rollout()
        nothing = {"last_token_usage": {"input_tokens": 0, "output_tokens": 0}}
        assert self.spent(rollout.event("token_count", info=None), rollout.event("token_count", info=nothing)) == []

    def test_older_shapes(self) -> None:
        """Counts have had other names and places."""
        rollout = Rollout()
        spent = self.spent(
            rollout.event("token_count", info={"prompt": 1420, "completion": 910}),
            rollout.event("token_count", total_token_usage={"input_tokens": 1000, "output_tokens": 200}),
            rollout.event("turn.completed", usage={"input_tokens": 7}),
        )
        assert [count for count, _ in spent] == [1420, 1000, 7]

    def test_events_know_their_call(self) -> None:
        """Messages and calls of a model call carry the key of its count; a call without a count shares none."""
        rollout = Rollout()
        items = read(
            rollout.started("turn-1"),
            rollout.user_item("fix it"),
            rollout.answer_item("Looking."),
            rollout.call(),
            rollout.output("a"),
            rollout.tokens(100, 100),
            rollout.answer_item("Cut off"),
            rollout.event("turn_aborted", reason="interrupted"),
            rollout.started("turn-2"),
            rollout.answer_item("Fixed."),
            rollout.tokens(100, 200),
        )
        first, second = (item.key for item in items if isinstance(item, Usage))
        looking, cut_off, fixed = events(items, EventType.ASSISTANT_RESPONSE)
        (call,) = events(items, EventType.TOOL_CALL)
        assert looking.usage_key == call.usage_key == first
        assert fixed.usage_key == second
        assert cut_off.usage_key not in (first, second)


class TestForks:
    """A fork begins with a copy of its original. What the original owns is not said again."""

    def original(self, rollout: Rollout) -> list[Any]:
        return [
            rollout.started("turn-1"),
            rollout.context("turn-1", cwd="/home/mira/original"),
            rollout.user_item("first"),
            rollout.user_event("first"),
            rollout.answer_item("One."),
            rollout.tokens(100, 100),
            rollout.event("thread_name_updated", thread_name="Original"),
            rollout.complete("turn-1", "One."),
        ]

    def own(self, rollout: Rollout) -> list[Any]:
        return [
            rollout.started("turn-9"),
            rollout.context("turn-9"),
            rollout.user_item("second"),
            rollout.tokens(50, 150),
            rollout.answer_item("Two."),
            rollout.complete("turn-9", "Two."),
        ]

    def read(self, records: list[Any], **owned: set[str]) -> list[Item]:
        def lookup(session: str) -> frozenset[str]:
            return frozenset(owned.get(session, ()))

        transcript = made_up()
        items = feed(records, transcript, lookup)
        assert feed_with_restarts(records, transcript, lookup) == items
        return items

    def test_copy(self) -> None:
        """Turns that the original owns are left out, with their tokens and what they say of the session."""
        rollout = Rollout()
        records = [rollout.meta(forked_from_id="original"), rollout.meta("original", cwd="/home/mira/original")]
        items = self.read([*records, *self.original(rollout), *self.own(rollout)], original={"turn-1"})
        assert (prompts(items), answers(items)) == (["second"], ["Two."])
        assert [item.input_tokens for item in items if isinstance(item, Usage)] == [50]
        abouts = [(item.cwd, item.forked_from, item.title) for item in items if isinstance(item, About)]
        assert abouts == [("/home/mira/shop", "original", None)]

    def test_missing_original(self) -> None:
        """Without the original all is kept: nobody else has it."""
        rollout = Rollout()
        items = self.read([rollout.meta(forked_from_id="gone"), *self.original(rollout), *self.own(rollout)])
        assert prompts(items) == ["first", "second"]

    def test_fork_of_a_fork(self) -> None:
        """The turns may belong to the original of the original, which the copied headers name."""
        rollout = Rollout()
        records = [
            rollout.meta(forked_from_id="middle"),
            rollout.meta("middle", forked_from_id="first"),
            rollout.meta("first"),
            *self.original(rollout),
            rollout.started("turn-5"),
            rollout.user_item("in the middle"),
            *self.own(rollout),
        ]
        assert prompts(self.read(records, first={"turn-1"}, middle={"turn-5"})) == ["second"]

    def test_spawned_without_a_copy(self) -> None:
        """A spawned agent that copies nothing loses nothing, not even what stands before its first turn."""
        rollout = Rollout()
        records = [
            rollout.meta(parent_thread_id="original"),
            rollout.user_item("<environment_context>x</environment_context>"),
            *self.own(rollout),
        ]
        items = self.read(records, original={"turn-1"})
        assert texts(items) == ["<environment_context>x</environment_context>", "second", "Two."]

    def test_only_the_beginning_is_a_copy(self) -> None:
        """Once a turn is the fork's own, nothing after it is taken for a copy."""
        rollout = Rollout()
        records = [rollout.meta(forked_from_id="original"), *self.own(rollout), *self.original(rollout)]
        assert prompts(self.read(records, original={"turn-1"})) == ["second", "first"]

    def test_turns_without_ids(self) -> None:
        """Old copies are recognised by their prompts, as long as they are written in one go."""
        rollout = Rollout()
        turns = [rollout.user_item("first"), rollout.answer_item("One."), rollout.user_item("go on")]
        keys = {event.turn_key for event in events(feed(turns)) if event.turn_key}
        meta = rollout.meta(forked_from_id="original")
        burst = [{**record, "timestamp": meta["timestamp"]} for record in turns]
        later = {**rollout.user_item("go on"), "timestamp": "2026-06-18T09:30:00.000Z"}
        assert prompts(self.read([meta, *burst], original=keys)) == []
        assert prompts(self.read([meta, *burst, later], original=keys)) == ["go on"]
        assert prompts(self.read([meta, *burst[:2], later], original=keys)) == ["go on"]

    def test_transcript_names_the_original(self) -> None:
        """The lineage in the head of the file holds even if the header is lost."""
        rollout = Rollout()
        transcript = made_up(after=("original",))
        items = feed(
            [*self.original(rollout), *self.own(rollout)],
            transcript,
            lambda session: frozenset({"turn-1"} if session == "original" else ()),
        )
        assert prompts(items) == ["second"]


class TestRuntime:
    @pytest.mark.parametrize(
        ("name", "payload", "text"),
        [
            ("error", {"message": "stream disconnected"}, "stream disconnected"),
            ("error", {"error": {"kind": "rate_limit", "message": "Rate limit exceeded"}}, "Rate limit exceeded"),
            ("error", {"code": 7}, '{"type":"error","code":7}'),
            ("undo_completed", {"success": False, "message": "Nothing to undo."}, "Nothing to undo."),
            ("thread_rolled_back", {"num_turns": 2}, "Rolled back turns: 2"),
            ("entered_review_mode", {"user_facing_hint": "current changes"}, "Review started: current changes"),
            (
                "exited_review_mode",
                {"review_output": {"overall_explanation": "Fine.", "findings": [{"title": "Bug", "body": "Here."}]}},
                "Review finished.\n\nFine.\n\nBug\n\nHere.",
            ),
            (
                "guardian_assessment",
                {"status": "approved", "rationale": "Harmless.", "action": {"type": "command", "command": "ls"}},
                "Review of ls: approved. Harmless.",
            ),
        ],
    )
    def test_notes(self, name: str, payload: Any, text: str) -> None:
        """A note of the runtime is an event of the runtime, and ends no turn."""
        (event,) = events(read(Rollout().event(name, **payload)))
        assert (event.type, event.text, event.ends_turn) == (EventType.RUNTIME, text, False)

    def test_goal(self) -> None:
        """A goal is news when it changes, not when its token count does."""
        rollout = Rollout()
        goals = [
            rollout.event("thread_goal_updated", goal={"objective": "Ship", "status": status, "tokensUsed": used})
            for used, status in enumerate(["active", "active", "complete"])
        ]
        assert texts(read(*goals)) == ["Goal (active): Ship", "Goal (complete): Ship"]


class TestUnknown:
    @pytest.mark.parametrize(
        "record",
        [
            {"type": "brand_new", "payload": {"a": 1}},
            {"type": "event_msg", "payload": {"type": "brand_new"}},
            {"type": "event_msg", "payload": {}},
            {"type": "response_item", "payload": {"type": ["odd"]}},
            {"type": "event_msg", "payload": {"type": "item_completed", "item": {"type": "BrandNew"}}},
            {"type": "event_msg", "payload": {"type": "item_completed", "item": 3}},
            {"type": "brand_new_without_payload"},
        ],
    )
    def test_kept(self, record: Any) -> None:
        """A record of no known type is kept as it is."""
        (event,) = events(read(record))
        assert event.type == EventType.UNKNOWN
        assert str(record["type"]) in event.text

    @pytest.mark.parametrize(
        "record", [None, 3, "text", [], {}, {"type": "event_msg", "payload": []}, {"ts": 1, "text": "hi"}]
    )
    def test_refused(self, record: Any) -> None:
        """A line that is no record costs only itself."""
        with pytest.raises(ValueError):
            feed([record])

    def test_deliberately_nothing(self) -> None:
        """Snapshots, settings, progress and the like are no events."""
        rollout = Rollout()
        items = read(
            rollout.item("ghost_snapshot", ghost_commit={}),
            rollout.record("world_state", full=True, state={}),
            rollout.event("thread_settings_applied", thread_settings={}),
            rollout.event("exec_command_output_delta", chunk="x"),
            {"record_type": "state"},
        )
        assert items == []

    def test_times(self) -> None:
        """A record without a usable time happened when the one before it did."""
        rollout = Rollout()
        dated = rollout.user_item("first")
        items = feed(
            [dated, {**rollout.user_item("second"), "timestamp": "[trimmed]"}, {"role": "user", "content": "x"}]
        )
        first, second, third = events(items)
        assert first.ts == second.ts == third.ts == 1781773201000

    def test_state_stays_small(self) -> None:
        """However long the file, what is remembered does not grow with it."""
        rollout = Rollout()
        parser = Codex().parser(made_up(session=SESSION), None, lambda session: frozenset())
        for number in range(2_000):
            for record in (
                rollout.user_item(f"p{number}"),
                rollout.answer_item(f"a{number}"),
                rollout.call(f"c{number}"),
            ):
                parser.parse({**record, "timestamp": f"2026-06-18T09:00:00.{number % 1000:03d}Z"})
        assert len(str(parser.state())) < 30_000
