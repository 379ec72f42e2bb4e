"""Prompts typed while the agent is busy: each is one user input, whichever way it reached the agent."""

from __future__ import annotations

import pytest
from claude_code_transcript import Records, call, events, feed, feed_with_restarts, prompts

from backstory.model import EventType


def queued(items: list) -> list[str]:
    return [event.text for event in events(items) if event.starts_turn and (event.extra or {}).get("queued")]


class TestQueue:
    def test_submitted_after_the_turn(self) -> None:
        """A prompt that waited for the turn to end is yielded once, by its user record."""
        r = Records()
        records = [
            r.user("go"),
            r.queue("enqueue", "commit"),
            r.assistant("Done.", stop="end_turn"),
            r.queue("dequeue"),
        ]
        items = feed([*records, r.user("commit"), r.assistant("Committed.", stop="end_turn")])
        assert prompts(items) == ["go", "commit"]
        assert queued(items) == ["commit"]

    def test_submitted_without_being_dequeued(self) -> None:
        """Older versions do not say that a prompt left the queue: its record does."""
        r = Records()
        items = feed(
            [r.user("go"), r.queue("enqueue", "commit"), r.user("commit"), r.queue("remove"), r.assistant("ok")]
        )
        assert prompts(items) == ["go", "commit"]

    def test_handed_over_with_an_attachment(self) -> None:
        """A prompt the agent got between two tool calls is yielded once, by its attachment."""
        r = Records()
        records = [r.user("go"), r.assistant(call("Bash")), r.queue("enqueue", "and tests"), r.result("toolu_1", "ok")]
        records += [r.queue("remove"), r.attachment("queued_command", prompt="and tests", commandMode="prompt")]
        items = feed([*records, r.assistant("Sure.", stop="end_turn")])
        assert prompts(items) == ["go", "and tests"]
        assert queued(items) == ["and tests"]

    def test_handed_over_without_a_record(self) -> None:
        """Where nothing but the queue has the prompt, it is yielded from there, when the agent goes on."""
        r = Records()
        records = [r.user("go"), r.assistant(call("Bash")), r.queue("enqueue", "and tests"), r.queue("remove")]
        records += [r.result("toolu_1", "ok"), r.assistant("Sure.")]
        items = feed(records)
        kinds = [event.type for event in events(items)]
        assert kinds == [
            EventType.USER_INPUT,
            EventType.TOOL_CALL,
            EventType.TOOL_RESPONSE,
            EventType.USER_INPUT,
            EventType.ASSISTANT_RESPONSE,
        ]
        assert queued(items) == ["and tests"]
        assert feed_with_restarts(records) == items

    def test_taken_back(self) -> None:
        """A prompt that was taken back to be edited was not said."""
        r = Records()
        records = [r.user("go"), r.queue("enqueue", "teh tests"), r.queue("popAll", "teh tests"), r.assistant("Done.")]
        assert prompts(feed([*records, r.user("the tests")])) == ["go", "the tests"]

    def test_never_sent(self) -> None:
        """A prompt still in the queue at the end never reached the agent."""
        r = Records()
        assert prompts(feed([r.user("go"), r.queue("enqueue", "more"), r.assistant("Done.", stop="end_turn")])) == [
            "go"
        ]

    def test_people_before_background_tasks(self) -> None:
        """A removal that does not say of what is of the person's prompt; the notification comes as a record later."""
        r = Records()
        notice = "<task-notification><task-id>b1</task-id></task-notification>"
        records = [
            r.user("go"),
            r.queue("enqueue", notice),
            r.queue("enqueue", "faster"),
            r.queue("remove"),
            r.assistant("ok"),
        ]
        items = feed([*records, r.user(notice)])
        assert prompts(items) == ["go", "faster"]
        assert [event.text for event in events(items, EventType.SYSTEM)] == [notice]

    def test_notifications_and_commands_in_the_queue(self) -> None:
        """A queued text that was not typed as a prompt is system, also without a record of its own."""
        r = Records()
        notice = "<task-notification><task-id>b1</task-id></task-notification>"
        records = [
            r.user("go"),
            r.queue("enqueue", notice),
            r.queue("enqueue", "/mcp"),
            r.queue("remove"),
            r.queue("remove"),
        ]
        items = feed([*records, r.assistant("ok")])
        assert prompts(items) == ["go"]
        assert [event.text for event in events(items, EventType.SYSTEM)] == ["/mcp", notice]

    def test_queued_notifications_as_attachment(self) -> None:
        """A notification that arrives as a queued command is no prompt."""
        r = Records()
        notice = r.attachment(
            "queued_command", prompt="<task-notification>done</task-notification>", commandMode="prompt"
        )
        mode = r.attachment("queued_command", prompt="b1 is done", commandMode="task-notification")
        items = feed([notice, mode])
        assert [event.type for event in events(items)] == [EventType.SYSTEM] * 2

    def test_queued_prompt_with_a_picture(self) -> None:
        """A queued prompt may be a list of blocks."""
        image = {"type": "image", "source": {"type": "base64", "data": "eA=="}}
        r = Records()
        items = feed(
            [
                r.attachment(
                    "queued_command", prompt=[image, {"type": "text", "text": "like this"}], commandMode="prompt"
                )
            ]
        )
        (event,) = events(items)
        assert (event.text, event.extra) == ("[image]\nlike this", {"queued": True, "images": 1})

    def test_identity_survives_a_fork(self) -> None:
        """The same queued prompt in a copy of the transcript is the same event."""
        r = Records()
        records = [r.user("go"), r.queue("enqueue", "and tests"), r.queue("remove"), r.assistant("Sure.")]
        copies = [{**record, "sessionId": "another"} for record in records]
        assert [event.uid for event in events(feed(records))] == [event.uid for event in events(feed(copies))]

    def test_background_tasks_in_the_queue(self) -> None:
        """A background task that is announced as JSON splits no turn."""
        r = Records()
        task = '{"task_id":"b1","description":"Build","task_type":"local_bash"}'
        records = [r.user("go"), r.queue("enqueue", task), r.queue("remove"), r.assistant("ok")]
        items = feed(records)
        assert prompts(items) == ["go"]
        assert [event.text for event in events(items, EventType.SYSTEM)] == [task]

    def test_attachment_that_comes_late(self) -> None:
        """A queued prompt whose attachment comes after the agent went on is one prompt."""
        r = Records()
        records = [
            r.user("go"),
            r.queue("enqueue", "and tests"),
            r.queue("remove"),
            r.assistant("Sure.", call("Read")),
            r.attachment("queued_command", prompt="and tests", commandMode="prompt"),
            r.result("toolu_1", "x"),
        ]
        assert prompts(feed(records)) == ["go", "and tests"]
        assert feed(records) == feed_with_restarts(records)
        again = [r.queue("enqueue", "and tests"), r.queue("remove")]
        again.append(r.attachment("queued_command", prompt="and tests", commandMode="prompt"))
        assert prompts(feed([*records, *again])) == ["go", "and tests", "and tests"]

    @pytest.mark.parametrize("late", [False, True])
    def test_record_for_the_transcript_alone(self, late: bool) -> None:
        """A user record that repeats a queued prompt is no second one, before or after the attachment."""
        r = Records()
        records = [r.user("go"), r.assistant("Sure.", call("Read")), r.queue("enqueue", "faster"), r.queue("remove")]
        twins = [
            r.attachment("queued_command", prompt="faster", commandMode="prompt"),
            r.user("faster", queueTranscriptOnly=True, promptSource="sdk"),
        ]
        records += [*(reversed(twins) if late else twins), r.assistant("Ok.")]
        assert prompts(feed(records)) == ["go", "faster"]
        assert feed(records) == feed_with_restarts(records)
        assert prompts(feed([*records, r.user("faster")])) == ["go", "faster", "faster"]

    def test_record_for_the_transcript_after_the_agent_went_on(self) -> None:
        """Neither is one that comes when the prompt was yielded already, nor the attachment after it."""
        r = Records()
        records = [r.user("go"), r.queue("enqueue", "faster"), r.queue("remove"), r.assistant("Ok.")]
        records += [r.user("faster", queueTranscriptOnly=True)]
        records += [r.attachment("queued_command", prompt="faster", commandMode="prompt")]
        assert prompts(feed(records)) == ["go", "faster"]

    def test_removed_within_a_message(self) -> None:
        """A prompt that leaves the queue between two records of one message comes after the message."""
        r = Records(version="2.1.39")
        message = {"message": {"id": "msg_1"}, "requestId": "req_1"}
        records = [r.user("go"), r.queue("enqueue", "faster"), r.assistant("I look.", **message), r.queue("remove")]
        records += [r.assistant(call("Read"), **message), r.result("toolu_1", "x"), r.assistant("Ok.")]
        assert [event.text or event.tool for event in events(feed(records))] == [
            "go",
            "I look.",
            "Read",
            "x",
            "faster",
            "Ok.",
        ]
        assert feed(records) == feed_with_restarts(records)

    def test_messages_of_other_agents_in_the_queue(self) -> None:
        """An attachment says who speaks."""
        r = Records()
        message = r.attachment("queued_command", prompt="check b.py", commandMode="prompt", origin={"kind": "peer"})
        assert prompts(feed([message])) == []
