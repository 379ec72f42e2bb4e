"""Assistant records: one event per block, usage once per message, and when a turn is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from claude_code_transcript import SESSION, Records, call, events, feed, feed_with_restarts, write

from backstory.library import Library
from backstory.model import EventType, digest
from backstory.sources.base import Item, TurnEnd, Usage


def usage(output: int, **more: Any) -> dict[str, Any]:
    return {"usage": {"input_tokens": 10, "output_tokens": output, **more}}


def usages(items: list[Item]) -> list[Usage]:
    return [item for item in items if isinstance(item, Usage)]


def ends(items: list[Item]) -> list[bool]:
    """The `provisional` of each end of a turn."""
    return [item.provisional for item in items if isinstance(item, TurnEnd)]


class TestBlocks:
    @pytest.mark.parametrize(
        ("block", "kind", "text"),
        [
            ({"type": "text", "text": "Hello."}, EventType.ASSISTANT_RESPONSE, "Hello."),
            ("Hello.", EventType.ASSISTANT_RESPONSE, "Hello."),
            ({"type": "thinking", "thinking": "Hm.", "signature": "x"}, EventType.REASONING, "Hm."),
            ({"type": "redacted_thinking", "data": "x"}, EventType.REASONING, "[redacted]"),
            ({"type": "image", "source": {}}, EventType.ASSISTANT_RESPONSE, "[image]"),
            ({"type": "compaction", "content": "So far: a."}, EventType.COMPACTION, "So far: a."),
            (
                {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
                EventType.RUNTIME,
                "model fallback: a -> b",
            ),
            ({"type": "hologram", "x": 1}, EventType.UNKNOWN, '{"type": "hologram", "x": 1}'),
        ],
    )
    def test_each_block_is_an_event(self, block: Any, kind: EventType, text: str) -> None:
        """Every kind of block has its event; one that is not known is kept as it stands."""
        (event,) = events(feed([Records().assistant(block)]))
        assert (event.type, event.text, event.model) == (kind, text, "claude-opus-4-8")

    def test_tool_calls(self) -> None:
        """A call has its tool, its id and its arguments, and leaves its text to be derived."""
        (event,) = events(feed([Records().assistant(call("Bash", command="ls"))]))
        assert (event.type, event.tool, event.call_id, event.text) == (EventType.TOOL_CALL, "Bash", "toolu_1", "")
        assert event.arguments == {"command": "ls"}
        assert event.model == event.originating_model == "claude-opus-4-8"

    @pytest.mark.parametrize("block", [{"type": "thinking", "thinking": "", "signature": "x"}, "\n\n", ""])
    def test_blank_blocks(self, block: Any) -> None:
        """Blocks without anything to read are left out."""
        assert events(feed([Records().assistant(block)])) == []

    def test_message_over_several_records(self) -> None:
        """One API message written block by block gives each block once, under one model call."""
        r = Records()
        message = {"id": "msg_1", **usage(9)}
        blocks = ({"type": "thinking", "thinking": "Hm."}, "I look.", call("Read"))
        yielded = events(feed([r.assistant(block, message=message, requestId="req_1") for block in blocks]))
        assert [event.type for event in yielded] == [
            EventType.REASONING,
            EventType.ASSISTANT_RESPONSE,
            EventType.TOOL_CALL,
        ]
        assert {event.usage_key for event in yielded} == {digest("claude-code", "msg_1", "req_1")}

    def test_repeated_blocks(self) -> None:
        """A later record of a message that repeats what was yielded adds only what is new."""
        r = Records()
        message = {"id": "msg_1"}
        records = [r.assistant("I look.", message=message, requestId="a")]
        records.append(r.assistant("I look.", call("Read"), message=message, requestId="a"))
        assert [event.text or event.tool for event in events(feed(records))] == ["I look.", "Read"]
        assert feed(records) == feed_with_restarts(records)

    def test_same_words_in_two_messages(self) -> None:
        """The same words in another message are another answer."""
        r = Records()
        assert len(events(feed([r.assistant("Done."), r.assistant("Done.")]))) == 2

    def test_web_search_on_the_server(self) -> None:
        """Calls and responses of tools on the server stand in one message."""
        search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
        found = {"type": "web_search_tool_result", "tool_use_id": "s1"}
        hit = {"type": "web_search_result", "title": "X", "url": "https://example.invalid"}
        failure = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
        yielded = events(feed([Records().assistant(search, {**found, "content": [hit]})]))
        assert [(event.tool, event.text, event.failed) for event in yielded] == [
            ("web_search", "", None),
            ("web_search", "X\nhttps://example.invalid", False),
        ]
        assert events(feed([Records().assistant({**found, "content": failure})]))[0].failed is True


class TestUsage:
    def test_counted_once_and_growing(self) -> None:
        """Usage is yielded when it is new: once per message, again when it has grown."""
        r = Records()
        message = {"id": "msg_1"}
        records = [
            r.assistant(text, message={**message, **usage(n)}, requestId="a")
            for text, n in (("a", 1), ("b", 1), ("c", 9))
        ]
        yielded = usages(feed(records))
        assert [item.output_tokens for item in yielded] == [1, 9]
        assert len({item.key for item in yielded}) == 1

    def test_input_includes_the_cache(self) -> None:
        """Input tokens are everything the model was given, with the parts of the cache kept apart."""
        created = {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 70}
        more = {"cache_read_input_tokens": 1000, "cache_creation_input_tokens": 100, "cache_creation": created}
        (yielded,) = usages(feed([Records().assistant("a", message=usage(5, **more))]))
        assert yielded.input_tokens == 1110
        assert (yielded.cache_read_tokens, yielded.cache_write_5m_tokens, yielded.cache_write_1h_tokens) == (
            1000,
            30,
            70,
        )

    def test_cache_without_ages(self) -> None:
        """Older records have one number for what was written to the cache, which was kept for five minutes."""
        (yielded,) = usages(feed([Records().assistant("a", message=usage(5, cache_creation_input_tokens=100))]))
        assert (yielded.input_tokens, yielded.cache_write_5m_tokens) == (110, 100)

    def test_thinking_cost_and_reason(self) -> None:
        """Thinking tokens, the recorded cost and the stop reason are kept."""
        message = usage(5, output_tokens_details={"thinking_tokens": 3})
        (yielded,) = usages(feed([Records().assistant("a", stop="end_turn", message=message, costUSD=0.5)]))
        assert (yielded.reasoning_tokens, yielded.cost, yielded.stop_reason) == (3, 0.5, "end_turn")

    def test_message_without_id(self) -> None:
        """Without a message id each record is a call of its own, the same in every copy."""
        r = Records()
        records = [
            r.assistant("a", message={"id": None, **usage(1)}),
            r.assistant("b", message={"id": None, **usage(1)}),
        ]
        keys = [item.key for item in usages(feed(records))]
        assert len(set(keys)) == 2
        assert keys == [item.key for item in usages(feed(records))]


class TestEndOfTurn:
    @pytest.mark.parametrize("reason", ["end_turn", "stop_sequence", "max_tokens", "refusal"])
    def test_final_stop_reasons(self, reason: str) -> None:
        """An answer that says why it ended ends the turn, on its last block."""
        yielded = events(feed([Records().assistant({"type": "thinking", "thinking": "Hm."}, "Done.", stop=reason)]))
        assert [event.ends_turn for event in yielded] == [False, True]

    def test_final_record_without_text(self) -> None:
        """A final record with nothing to read ends the turn all the same."""
        r = Records()
        items = feed(
            [r.user("go"), r.assistant("First."), r.assistant({"type": "thinking", "thinking": ""}, stop="end_turn")]
        )
        assert ends(items) == [False]

    def test_answer_that_does_not_say(self) -> None:
        """In old versions an answer without a stop reason may be the end; one that calls a tool is not."""
        r = Records(version="2.1.39")
        yielded = events(
            feed(
                [
                    r.assistant("Done."),
                    r.assistant("I look.", call("Read")),
                    r.assistant({"type": "thinking", "thinking": "?"}),
                ]
            )
        )
        assert [event.may_end_turn for event in yielded] == [True, False, False, False]

    @pytest.mark.parametrize(
        ("version", "may_end"), [("2.1.74", True), ("2.1.75", False), ("2.1.325", False), ("3.0.0", False), ("?", True)]
    )
    def test_versions_that_tell(self, version: str, may_end: bool) -> None:
        """Since about 2.1.75 every whole message has its stop reason: one without was cut off."""
        (yielded,) = events(feed([Records(version=version).assistant("I was about")]))
        assert yielded.may_end_turn is may_end

    def test_provisional_end(self) -> None:
        """At the end of what is there, an answer may be the end if no record of the file says `end_turn`."""
        r = Records()
        assert ends(feed([r.user("go"), r.assistant("Done.")])) == [True]
        yielded = [
            r.user("go"),
            r.assistant(call("Read"), stop="tool_use"),
            r.result("toolu_1", "x"),
            r.assistant("Done."),
        ]
        assert ends(feed(yielded)) == ends(feed_with_restarts(yielded)) == [True]
        yielded += [r.user("on"), r.assistant("Done.", stop="end_turn"), r.user("and?"), r.assistant("Hm.")]
        assert ends(feed(yielded)) == ends(feed_with_restarts(yielded)) == []

    def test_answers_that_were_cut_off(self) -> None:
        """A message that was aborted ends its turn; so does, in its place, the marker that follows."""
        r = Records()
        cut = r.assistant("I am", isAbortedMidStream=True)
        yielded = events(feed([r.user("go"), cut, r.user([{"type": "text", "text": "[Request interrupted by user]"}])]))
        assert [(event.ends_turn, event.extra) for event in yielded[1:]] == [(True, {"interrupted": True})] * 2

    @pytest.mark.parametrize("subtype", ["turn_duration", "stop_hook_summary"])
    def test_more_work_after_the_answer(self, subtype: str) -> None:
        """After a tool's response no earlier remark becomes the end."""
        r = Records()
        records = [r.user("go"), r.assistant("Let me check."), r.assistant(call("Read")), r.result("toolu_1", "x")]
        assert ends(feed([*records, r.system(subtype, hookErrors=[])])) == [True]

    @pytest.mark.parametrize("subtype", ["turn_duration", "stop_hook_summary"])
    def test_records_that_say_so(self, subtype: str) -> None:
        """A turn is over when Claude Code says so after an answer; before one it means nothing."""
        r = Records()
        end = r.system(subtype, hookErrors=[])
        assert ends(feed([r.user("go"), r.assistant("Done."), end])) == [False, True]
        assert ends(feed([r.user("go"), end])) == [True]

    def test_api_error(self) -> None:
        """An API error in the place of an answer is the runtime's, and ends the turn."""
        r = Records()
        error = r.assistant(
            "API Error: 500", stop="stop_sequence", message={"model": "<synthetic>"}, isApiErrorMessage=True
        )
        yielded = events(feed([r.user("go"), error]))[-1]
        assert (yielded.type, yielded.text, yielded.ends_turn, yielded.model) == (
            EventType.RUNTIME,
            "API Error: 500",
            True,
            None,
        )

    def test_stand_in_answer(self) -> None:
        """Claude Code's own words are no answer, and leave the end of a finished turn as it was."""
        r = Records()
        words = r.assistant("No response requested.", stop="stop_sequence", message={"model": "<synthetic>"})
        yielded = events(feed([r.user("go"), r.assistant("Done.", stop="end_turn"), words]))
        assert [(event.type, event.ends_turn) for event in yielded[1:]] == [
            (EventType.ASSISTANT_RESPONSE, True),
            (EventType.RUNTIME, False),
        ]

    def test_retries_do_not_end_it(self) -> None:
        """A request that is tried again is yielded, and ends nothing."""
        error = {"error": {"error": {"type": "overloaded_error", "message": "Overloaded"}}}
        record = Records().system("api_error", error=error, retryAttempt=2, maxRetries=10)
        (yielded,) = events(feed([record]))
        assert (yielded.text, yielded.ends_turn) == ("API error: Overloaded (attempt 2 of 10)", False)

    @pytest.mark.parametrize(
        ("kind", "fields"),
        [
            ("max_turns_reached", {"maxTurns": 3}),
            ("hook_stopped_continuation", {"hookName": "Stop", "message": "enough"}),
        ],
    )
    def test_other_stops(self, kind: str, fields: dict[str, Any]) -> None:
        """A record that stops the agent ends the turn."""
        r = Records()
        yielded = events(feed([r.user("go"), r.assistant(call("Read")), r.attachment(kind, **fields)]))[-1]
        assert (yielded.type, yielded.ends_turn) == (EventType.RUNTIME, True)


class TestTurnsInTheArchive:
    """Turns, as the marks of the events make them."""

    def turns(self, folder: Path, records: list[Any]) -> list[tuple[bool, bool]]:
        """Of each turn: whether it is completed, and whether by an answer."""
        write(folder / ".claude" / "projects" / "-home-ada-shop" / f"{SESSION}.jsonl", records)
        with Library(folder / "backstory", agents_home=folder, environ={}) as library:
            library.sync()
            return [
                (turn.completed, turn.response is not None) for turn in library.archive.turns(f"claude-code/{SESSION}")
            ]

    def test_an_answer_that_was_cut_off(self, tmp_path: Path) -> None:
        """It completes the turn, and is not what the turn ended in."""
        r = Records()
        assert self.turns(tmp_path, [r.user("go"), r.assistant("I am", isAbortedMidStream=True)]) == [(True, False)]

    @pytest.mark.parametrize(("version", "completed"), [("2.1.39", True), ("2.1.160", False)])
    def test_an_answer_without_a_reason(self, version: str, completed: bool, tmp_path: Path) -> None:
        """The next prompt completes it only where no message had a stop reason."""
        r = Records(version=version)
        records = [r.user("go"), r.assistant("Hm."), r.user("on"), r.assistant("Done.", stop="end_turn")]
        assert self.turns(tmp_path, records) == [(completed, completed), (True, True)]

    def test_old_versions_that_tell_of_tools(self, tmp_path: Path) -> None:
        """A stop reason of a tool call does not keep the last answer of the file from being the end."""
        r = Records(version="2.1.29")
        records = [r.user("go"), r.assistant(call("Read"), stop="tool_use"), r.result("toolu_1", "x")]
        assert self.turns(tmp_path, [*records, r.assistant("Done.")]) == [(True, True)]

    def test_a_remark_before_the_last_tool(self, tmp_path: Path) -> None:
        """A hook that ran after a tool's response completes nothing."""
        r = Records(version="2.1.39")
        records = [r.user("go"), r.assistant("Let me check."), r.assistant(call("Read")), r.result("toolu_1", "x")]
        records += [r.system("stop_hook_summary", hookErrors=[]), r.user("on"), r.assistant("Done.")]
        assert self.turns(tmp_path, records) == [(False, False), (True, True)]

    def test_a_prompt_from_the_queue_within_a_message(self, tmp_path: Path) -> None:
        """The first half of a message is no end, even if something leaves the queue before the second."""
        r = Records(version="2.1.39")
        message = {"message": {"id": "msg_1"}, "requestId": "req_1"}
        records = [r.user("go"), r.queue("enqueue", "faster"), r.assistant("I look.", **message), r.queue("remove")]
        records += [r.assistant(call("Read"), **message), r.result("toolu_1", "x"), r.assistant("Ok.")]
        assert self.turns(tmp_path, records) == [(False, False), (True, True)]
