"""Messages of a rollout: each prompt, answer and thought once, and nothing for a prompt that is not one."""

from __future__ import annotations

import time
from typing import Any

import pytest
from codex_rollout import SESSION, Rollout, answers, events, feed, feed_with_restarts, made_up, prompts, texts

from backstory.model import EventType
from backstory.sources.base import Event, TurnEnd

ENVIRONMENT = "<environment_context>\n  <cwd>/home/mira/shop</cwd>\n</environment_context>"
AGENTS_MD = "# AGENTS.md instructions for /home/mira/shop\n\n<INSTRUCTIONS>\nBe brief.\n</INSTRUCTIONS>"


def read(*records: Any) -> Any:
    """Read at once and with a restart before every record: it must be the same."""
    items = feed(records)
    assert feed_with_restarts(records) == items
    return items


class TestMirroredPrompts:
    def test_item_then_event(self) -> None:
        """Codex writes a prompt for the model and then for the interface: it is one."""
        rollout = Rollout()
        assert prompts(read(rollout.user_item("fix it"), rollout.user_event("fix it"))) == ["fix it"]

    def test_event_then_item(self) -> None:
        """The other way round too, with other records in between."""
        rollout = Rollout()
        items = read(
            rollout.user_event("fix it"),
            rollout.started("turn-1"),
            rollout.context("turn-1"),
            rollout.user_item("fix it"),
        )
        assert prompts(items) == ["fix it"]

    def test_three_forms(self) -> None:
        """Newer versions add a third form."""
        rollout = Rollout()
        turn_item = rollout.turn_item("UserMessage", id="u", content=[{"type": "text", "text": "fix it"}])
        assert prompts(read(rollout.user_item("fix it"), turn_item, rollout.user_event("fix it"))) == ["fix it"]

    @pytest.mark.parametrize("form", ["user_item", "user_event"])
    def test_one_form_only(self, form: str) -> None:
        """A file with a single form counts every prompt, repeated ones too."""
        write = getattr(Rollout(), form)
        assert prompts(read(write("go on"), write("go on"))) == ["go on", "go on"]

    def test_repeated_prompt(self) -> None:
        """The same prompt again is another prompt, in whichever order its forms come, and has another id."""
        rollout = Rollout()
        items = read(
            rollout.user_item("go on"),
            rollout.user_event("go on"),
            rollout.user_item("go on"),
            rollout.user_event("go on"),
            rollout.user_event("go on"),
            rollout.user_item("go on"),
        )
        assert prompts(items) == ["go on"] * 3
        assert len({event.uid for event in events(items)}) == 3

    def test_repeated_in_the_same_millisecond(self) -> None:
        """Even the same text at the same time is distinguished, by its count."""
        record = Rollout().user_item("go on")
        first, second = events(read(record, record))
        assert first.uid != second.uid

    def test_blocks(self) -> None:
        """The forms of a prompt in several blocks differ in how the blocks are joined."""
        rollout = Rollout()
        assert prompts(read(rollout.user_item("see here:", "a log"), rollout.user_event("see here:a log"))) == [
            "see here:\n\na log"
        ]

    def test_image(self) -> None:
        """Marks around images are not text, and a prompt that is only an image is one."""
        rollout = Rollout()
        picture = [
            {"type": "input_text", "text": "<image name=[Image #1]>"},
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
            {"type": "input_text", "text": "</image>"},
        ]
        caption = [*picture, {"type": "input_text", "text": "what is this?"}]
        items = read(
            rollout.item("message", role="user", content=caption),
            rollout.user_event("what is this?", local_images=["/tmp/1.png"]),
            rollout.item("message", role="user", content=picture),
            rollout.user_event("", images=["data:image/png;base64,AAAA"]),
        )
        assert prompts(items) == ["what is this?", "[image]"]

    def test_sent_again_after_an_abort(self) -> None:
        """After an abort Codex may send the prompt again by itself: without its other form it is no new prompt."""
        rollout = Rollout()
        items = read(
            rollout.user_item("fix it"),
            rollout.user_event("fix it"),
            rollout.event("turn_aborted", reason="interrupted"),
            rollout.user_item("fix it"),
            rollout.answer_item("Fixing."),
            rollout.user_item("test it"),
            rollout.user_event("test it"),
            rollout.user_item("fix it"),
            rollout.user_event("fix it"),
        )
        assert prompts(items) == ["fix it", "test it", "fix it"]

    def test_typed_again_after_an_abort(self) -> None:
        """With its other form it is: the user asked again."""
        rollout = Rollout()
        items = read(
            rollout.user_item("fix it"),
            rollout.user_event("fix it"),
            rollout.event("turn_aborted", reason="interrupted"),
            rollout.user_item("fix it"),
            rollout.user_event("fix it"),
            rollout.event("turn_aborted", reason="interrupted"),
            rollout.user_event("fix it"),
            rollout.user_item("fix it"),
        )
        assert prompts(items) == ["fix it"] * 3


class TestContext:
    @pytest.mark.parametrize(
        "text",
        [
            AGENTS_MD,
            ENVIRONMENT,
            "<INSTRUCTIONS>\nx\n</INSTRUCTIONS>",
            "<user_instructions>\nx\n</user_instructions>",
            "<turn_aborted>\nx\n</turn_aborted>",
            "<skill>\n<name>deploy</name>\nx\n</skill>",
            '<subagent_notification>\n{"agent_id":"a"}\n</subagent_notification>',
            "<SUBAGENT_NOTIFICATION>{}</subagent_notification>",
            "<goal_context>\nx\n</goal_context>",
            '<codex_internal_context source="goal">\nx\n</codex_internal_context>',
            "<recommended_plugins>\nx\n</recommended_plugins>",
            "<user_shell_command>\n<command>\nls\n</command>\n</user_shell_command>",
            "<external_calendar>busy</external_calendar>",
            "# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\nnever closed",
            "Another language model started to solve this problem and produced a summary of its thinking process. So:",
        ],
    )
    def test_is_no_prompt(self, text: str) -> None:
        """Text that Codex injects is context, and starts no turn."""
        items = read(Rollout().user_item(text))
        assert [(event.type, event.text, event.starts_turn) for event in events(items)] == [
            (EventType.SYSTEM, text, False)
        ]

    @pytest.mark.parametrize("text", ["<div>why is this red?</div>", "<skills> are what?", "# Notes\nread them", "<"])
    def test_people_write_markup(self, text: str) -> None:
        """Markup that Codex does not inject is the user's."""
        assert prompts(read(Rollout().user_item(text))) == [text]

    @pytest.mark.parametrize(
        "prefix",
        [
            f"{AGENTS_MD}\n\n{ENVIRONMENT}\n",
            "<recommended_plugins>\n- Drive\n</recommended_plugins>\n",
            "# Context from my IDE setup:\n\n## Active file: a.py\n\n## My request for Codex:\n",
            f"{ENVIRONMENT}# Files mentioned by the user:\n\n## a.png: /tmp/a.png\n\n## My request for Codex:\n",
        ],
    )
    def test_in_front_of_a_prompt(self, prefix: str) -> None:
        """Context in front of a prompt, in the same block, is split off."""
        rollout = Rollout()
        items = read(rollout.user_item(f"{prefix}rename it"), rollout.user_event(f"{prefix}rename it"))
        assert [event.type for event in events(items)] == [EventType.SYSTEM, EventType.USER_INPUT]
        assert prompts(items) == ["rename it"]

    def test_marked_event(self) -> None:
        """Some versions mark the event form of context as such."""
        rollout = Rollout()
        items = read(rollout.user_item("Be brief."), rollout.user_event("In a marked event", kind="user_instructions"))
        assert prompts(items) == ["Be brief."]

    def test_developer(self) -> None:
        """Messages of the developer role are context."""
        content = [{"type": "input_text", "text": "Approvals: never."}, {"type": "input_text", "text": "Mode: plan."}]
        items = read(Rollout().item("message", role="developer", content=content))
        assert texts(items, EventType.SYSTEM) == ["Approvals: never.\n\nMode: plan."]

    def test_hostile_repetition(self) -> None:
        """Layers of context cost what they are long, not the square of it."""
        started = time.process_time()
        assert prompts(read(Rollout().user_item("<skill></skill>" * 40_000 + "hi"))) == ["hi"]
        assert time.process_time() - started < 20


class TestAnswers:
    def test_mirrored(self) -> None:
        """Event first, item next: one answer, with the model of the turn."""
        rollout = Rollout()
        items = read(rollout.context("turn-1", "gpt-5.5"), rollout.answer_event("Done."), rollout.answer_item("Done."))
        (answer,) = events(items, EventType.ASSISTANT_RESPONSE)
        assert (answer.text, answer.model) == ("Done.", "gpt-5.5")

    def test_items_written_after_the_step(self) -> None:
        """Early versions write the items of a step together, when all its events are written."""
        rollout = Rollout()
        items = read(
            rollout.answer_event("First."),
            rollout.answer_event("Second."),
            rollout.answer_event("First."),
            rollout.answer_item("First."),
            rollout.call(),
            rollout.answer_item("Second."),
            rollout.answer_item("First."),
        )
        assert answers(items) == ["First.", "Second.", "First."]

    def test_elements_only_the_item_has(self) -> None:
        """Citations and plans are left out of the event form; a plan is written on its own."""
        rollout = Rollout()
        written = "Here.\n<proposed_plan>\nStep 1\n</proposed_plan><oai-mem-citation>m</oai-mem-citation>"
        plan = rollout.turn_item("Plan", id="p", text="Step 1")
        assert answers(read(rollout.answer_item(written), rollout.answer_event("Here."), plan)) == ["Here.\n\nStep 1"]
        assert answers(read(rollout.answer_event("Here."), plan, rollout.answer_item(written))) == ["Here.", "Step 1"]

    def test_reasoning(self) -> None:
        """Each part of a summary is an event of the interface; together they are one item."""
        rollout = Rollout()
        parts = [{"type": "summary_text", "text": "One"}, {"type": "summary_text", "text": "Two"}]
        item = rollout.item("reasoning", summary=parts, encrypted_content="gAAAA")
        one, two = (rollout.event("agent_reasoning", text=text) for text in ("One", "Two"))
        assert texts(read(one, two, item)) == ["One", "Two"]
        assert texts(read(item, one, two)) == ["One\n\nTwo"]
        raw = rollout.item("reasoning", summary=[], content=[{"type": "reasoning_text", "text": "Raw"}])
        assert texts(read(raw, rollout.event("agent_reasoning_raw_content", text="Raw"))) == ["Raw"]

    def test_encrypted_reasoning(self) -> None:
        """Reasoning that cannot be read is no event."""
        assert events(read(Rollout().item("reasoning", summary=[], encrypted_content="gAAAA"))) == []


class TestCompaction:
    def test_summary(self) -> None:
        """A compaction is one event, and the history it leaves behind is not replayed."""
        rollout = Rollout()
        history = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "old prompt"}]}]
        items = read(
            rollout.record("compacted", message="So far: all well.", replacement_history=history),
            rollout.event("context_compacted"),
            rollout.turn_item("ContextCompaction", id="c"),
        )
        assert [(event.type, event.text) for event in events(items)] == [(EventType.COMPACTION, "So far: all well.")]

    def test_without_a_summary(self) -> None:
        """Encrypted ones leave a mark, once each."""
        rollout = Rollout()
        pair = [rollout.record("compacted", message=""), rollout.event("context_compacted")]
        assert texts(read(*pair, *pair, *reversed(pair))) == ["Context compacted."] * 3


class TestAgents:
    def child(self, rollout: Rollout) -> Any:
        spawn = {"thread_spawn": {"parent_thread_id": "parent", "agent_path": "/root/a"}}
        return rollout.meta(source={"subagent": spawn})

    def test_task_of_a_spawned_agent(self) -> None:
        """A message of its parent is a spawned agent's prompt; a report of its own children is context."""
        rollout = Rollout()
        content = [
            {"type": "input_text", "text": "Message Type: NEW_TASK\nSender: /root\nPayload:\nReview the cart"},
            {"type": "encrypted_content", "encrypted_content": "gAAAA"},
        ]
        items = read(
            self.child(rollout),
            rollout.record("inter_agent_communication_metadata", trigger_turn=True),
            rollout.item("agent_message", author="/root", recipient="/root/a", content=content),
            rollout.item("agent_message", author="/root/a/b", content=[{"type": "input_text", "text": "Found it"}]),
        )
        assert [(event.type, event.text) for event in events(items)] == [
            (EventType.USER_INPUT, "Review the cart"),
            (EventType.SYSTEM, "Found it"),
        ]

    def test_report_to_the_first_agent(self) -> None:
        """The agent the user talks to gets no prompts from others."""
        rollout = Rollout()
        letter = (
            '{"author":"/root/a","recipient":"/root","other_recipients":[],"content":"Found it","trigger_turn":false}'
        )
        items = read(rollout.meta(), rollout.answer_item(letter))
        assert [(event.type, event.text) for event in events(items)] == [(EventType.SYSTEM, "Found it")]


class TestTurns:
    def test_complete(self) -> None:
        """task_complete ends the turn with the answer that was given."""
        rollout = Rollout()
        items = read(
            rollout.started("turn-1"),
            rollout.user_item("fix it"),
            rollout.answer_event("Fixed."),
            rollout.answer_item("Fixed."),
            rollout.complete("turn-1", "Fixed."),
        )
        assert [type(item) for item in items] == [Event, Event, TurnEnd]
        assert {event.turn_key for event in events(items)} == {"turn-1"}
        assert [event.starts_turn for event in events(items)] == [True, False]

    def test_complete_with_an_answer_nobody_wrote_down(self) -> None:
        """If task_complete alone has the answer, it is the answer."""
        rollout = Rollout()
        items = read(rollout.started("turn-1"), rollout.user_item("fix it"), rollout.complete("turn-1", "Fixed."))
        assert [(event.text, event.ends_turn) for event in events(items)] == [("fix it", False), ("Fixed.", True)]

    def test_complete_without_an_answer(self) -> None:
        """A turn may end with nothing said: then its end is an event."""
        rollout = Rollout()
        items = read(
            rollout.started("turn-1"),
            rollout.user_item("fix it"),
            rollout.answer_item("Trying."),
            rollout.complete("turn-1", error={"message": "quota exceeded"}),
            rollout.started("turn-2"),
            rollout.user_item("and now?"),
            rollout.complete("turn-2"),
        )
        ends = [(event.type, event.text) for event in events(items) if event.ends_turn]
        assert ends == [(EventType.RUNTIME, "Task failed: quota exceeded"), (EventType.RUNTIME, "Task complete.")]

    def test_task_without_work(self) -> None:
        """A compaction on request does not take the answer of the turn before it away."""
        rollout = Rollout()
        items = read(
            rollout.started("turn-1"),
            rollout.user_item("fix it"),
            rollout.answer_item("Fixed."),
            rollout.complete("turn-1", "Fixed."),
            rollout.started("turn-2"),
            rollout.record("compacted", message=""),
            rollout.complete("turn-2"),
        )
        assert [event for event in events(items) if event.ends_turn] == []

    def test_aborted(self) -> None:
        """An abort ends the turn and says why."""
        rollout = Rollout()
        items = read(rollout.user_item("fix it"), rollout.event("turn_aborted", turn_id="t", reason="interrupted"))
        last = events(items)[-1]
        assert (last.type, last.text, last.ends_turn) == (EventType.RUNTIME, "Turn aborted: interrupted", True)

    def test_steering(self) -> None:
        """A prompt typed while the agent works is a prompt, of the same turn of Codex."""
        rollout = Rollout()
        items = read(
            rollout.started("turn-1"), rollout.user_item("fix it"), rollout.call(), rollout.user_item("gently, please")
        )
        assert [(event.turn_key, event.starts_turn) for event in events(items, EventType.USER_INPUT)] == [
            ("turn-1", True),
            ("turn-1", True),
        ]

    def test_turns_without_ids(self) -> None:
        """Where Codex gives turns no ids, each still has a key, the same in every copy of the file."""
        rollout = Rollout()
        records = [rollout.user_item("go on"), rollout.answer_item("Ok."), rollout.user_item("go on")]
        keys = [event.turn_key for event in events(read(*records), EventType.USER_INPUT)]
        assert len({*keys}) == 2
        assert keys == [event.turn_key for event in events(feed(records), EventType.USER_INPUT)]

    def test_id_said_after_the_prompt(self) -> None:
        """A turn has one key, even if its id comes after its prompt."""
        rollout = Rollout()
        items = read(
            rollout.user_event("fix it"),
            rollout.started("turn-1"),
            rollout.context("turn-1"),
            rollout.user_item("fix it", metadata={"turn_id": "turn-1"}),
            rollout.answer_item("Fixed."),
        )
        assert len({event.turn_key for event in events(items)}) == 1

    def test_ids_depend_on_the_session(self) -> None:
        """The same record in another session is another event."""
        record = Rollout().user_item("go on")
        (mine,), (other,) = feed([record]), feed([record], made_up(session="other"))
        assert isinstance(mine, Event)
        assert isinstance(other, Event)
        assert mine.uid != other.uid
        assert events(feed([record], made_up(session=SESSION)))[0].uid == mine.uid
