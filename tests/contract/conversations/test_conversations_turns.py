"""What a turn is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conversation_world import Session, World, tool_use

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def said(turns: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(turn["user_text"], turn["assistant_text"]) for turn in turns]


class TestExchange:
    """A turn is a prompt and everything the assistant said and did until the next one."""

    def test_prompts_and_answers(self, world: World) -> None:
        session = Session("s").prompt("First?").answer("One.").prompt("Second?").answer("Two.")

        turns = world.turns(session)

        assert said(turns) == [("First?", "One."), ("Second?", "Two.")]
        assert [turn["turn_number"] for turn in turns] == [0, 1]
        assert [turn["timestamp"] for turn in turns] == [session.records[n]["timestamp"] for n in (0, 2)]

    def test_answers_between_tools(self, world: World) -> None:
        """All texts of the answer in their order, and all calls."""
        session = Session("s").prompt("Go").answer("Looking.", None).call("Read", {"file_path": "/a"}, "content")
        session.answer("Now writing.", None).call("Write", {"file_path": "/b", "content": "1234"}, "ok").answer("Done.")

        (turn,) = world.turns(session)

        assert turn["assistant_text"] == "Looking.\nNow writing.\nDone."
        assert [call["tool"] for call in turn["tools_used"]] == ["Read", "Write"]

    def test_prompts_in_a_row(self, world: World) -> None:
        """Each begins a turn, answered or not."""
        turns = world.turns(Session("s").prompt("One").prompt("Two").answer("Both."))

        assert said(turns) == [("One", ""), ("Two", "Both.")]

    def test_the_same_prompt_again(self, world: World) -> None:
        session = Session("s").prompt("continue").answer("A").prompt("continue").answer("A")

        assert said(world.turns(session)) == [("continue", "A"), ("continue", "A")]

    def test_nothing_before_the_first_prompt(self, world: World) -> None:
        """What the assistant said unasked is in no turn, and turns are counted from the first prompt."""
        session = Session("s").answer("Welcome back.").prompt("Hello").answer("Hi.")

        assert said(world.turns(session)) == [("Hello", "Hi.")]

    def test_every_character(self, world: World) -> None:
        """Also blanks at either end, blank lines, and any script."""
        text = '  \n\tdef f():\n        pass\n\n日本語 ñ 👩‍👩‍👧 \u0301 <b>tags</b> & \\n "quotes"\n\n  '

        (turn,) = world.turns(Session("s").prompt(text).answer(text))

        assert (turn["user_text"], turn["assistant_text"]) == (text, text)


class TestFilters:
    """Records that begin no turn, and what of the others counts."""

    @pytest.mark.parametrize(
        "content",
        [
            "<command-name>/clear</command-name>",
            "<command-name>/model</command-name>\n<command-message>m</command-message>\n<command-args>o</command-args>",
            "<local-command-stdout>Compacted</local-command-stdout>",
            "<local-command-stderr>no such model</local-command-stderr>",
            "<local-command-caveat>Caveat: the messages below were generated</local-command-caveat>",
            "  <command-name>/cost</command-name>\n<local-command-stdout></local-command-stdout>\n",
            "<bash-stdout>Already up to date.</bash-stdout><bash-stderr></bash-stderr>",
            "<task-notification><task-id>b7</task-id><status>completed</status></task-notification>",
            "<system-reminder>The date has changed.</system-reminder>",
            "[Request interrupted by user]",
            "   ",
            "",
        ],
    )
    def test_machinery(self, world: World, content: str) -> None:
        """Commands, their output, shell lines, notifications and summaries are Claude Code's; whatever the assistant
        does about them belongs to the turn before."""
        session = Session("s").prompt("Ask").answer("Yes.").user(content).answer("More.").prompt("Next").answer("Ok.")

        assert said(world.turns(session)) == [("Ask", "Yes.\nMore."), ("Next", "Ok.")]

    @pytest.mark.parametrize(
        "content",
        [
            "Why does <command-name> appear here?",
            "<command-name>/review</command-name> and then fix it",
            "<div>centre this</div>",
            "/usr/bin is not in my PATH",
            "[x] done, [ ] to do",
        ],
    )
    def test_prompts_that_look_like_it(self, world: World, content: str) -> None:
        """As soon as a person has typed something it is a prompt."""
        (turn,) = world.turns(Session("s").user(content).answer("Yes."))

        assert turn["user_text"] in content

    def test_meta(self, world: World) -> None:
        session = Session("s").prompt("Ask").user("Injected", isMeta=True).answer("Yes.")

        assert said(world.turns(session)) == [("Ask", "Yes.")]

    @pytest.mark.parametrize(
        "record",
        [
            {"type": "progress", "data": {"type": "hook_progress", "text": "noise"}},
            {"type": "file-history-snapshot", "messageId": "m", "snapshot": {"text": "noise"}},
            {"type": "custom-title", "customTitle": "noise", "sessionId": "s"},
            {"type": "queue-operation", "operation": "enqueue", "content": "noise", "sessionId": "s"},
            {"type": "system", "subtype": "informational", "content": "noise"},
            {"type": "never-seen-before", "message": {"role": "user", "content": "noise"}},
        ],
        ids=lambda record: record["type"],
    )
    def test_other_records(self, world: World, record: dict[str, Any]) -> None:
        session = Session("s").prompt("Ask")
        session.add(**{"kind": record["type"], **{name: value for name, value in record.items() if name != "type"}})

        turns = world.turns(session.answer("Yes."))

        assert said(turns) == [("Ask", "Yes.")]
        assert world.search("noise") == []

    def test_tool_results(self, world: World) -> None:
        """A list of results is part of the turn, not a prompt; nor is what the tool returned searched."""
        session = Session("s").prompt("Ask").call("Bash", {"command": "ls"}, "secretariat").answer("Yes.")

        assert said(world.turns(session)) == [("Ask", "Yes.")]
        assert world.search("secretariat") == []

    def test_list_with_text(self, world: World) -> None:
        """What a person typed beside a picture is a prompt."""
        session = Session("s").user([{"type": "text", "text": "What is this?"}, IMAGE]).answer("A cat.")

        assert said(world.turns(session)) == [("What is this?\n[image]", "A cat.")]

    def test_interrupt_as_a_list(self, world: World) -> None:
        marker = {"type": "text", "text": "[Request interrupted by user for tool use]"}
        session = Session("s").prompt("Ask").user([marker]).prompt("Stop!").answer("Ok.")

        assert said(world.turns(session)) == [("Ask", ""), ("Stop!", "Ok.")]

    def test_thinking(self, world: World) -> None:
        """It is neither shown nor searched."""
        thought = {"type": "thinking", "thinking": "A ruminant.", "signature": "x"}

        assert said(world.turns(Session("s").prompt("Ask").says(thought, "A cow."))) == [("Ask", "A cow.")]
        assert world.search("ruminant") == []

    def test_compaction(self, world: World) -> None:
        """The work goes on in the turn during which the context was compacted."""
        session = Session("s").prompt("Ask").answer("Halfway.").user("Summary so far", isCompactSummary=True)

        assert said(world.turns(session.answer("Finished."))) == [("Ask", "Halfway.\nFinished.")]

    def test_subagents(self, world: World) -> None:
        """What a subagent was told and answered is not part of the conversation."""
        session = Session("s").prompt("Ask").says(tool_use("Task", {"description": "d", "prompt": "Do it"}))
        session.user("Do it", isSidechain=True)
        session.add("assistant", isSidechain=True, message={"role": "assistant", "content": "Inner answer"})

        assert said(world.turns(session.answer("Yes."))) == [("Ask", "Yes.")]


class TestForks:
    """A session that goes on from a copy of another."""

    def test_turns_are_told_once(self, world: World) -> None:
        """The fork has what came after, counted from 0; a search finds no turn twice."""
        original = Session("original").prompt("Shared question").answer("Shared answer.")
        fork = Session("fork")
        origin = {"sessionId": original.id, "messageUuid": original.records[-1]["uuid"]}
        fork.records = [{**record, "sessionId": fork.id, "forkedFrom": origin} for record in original.records]
        fork._ms = original._ms
        original.prompt("Left").answer("Yes.")
        fork.prompt("Right").answer("No.")
        world.read(original, fork)

        def read(session: Session) -> list[tuple[str, str]]:
            return said(world.ask("read_conversation", session_id=session.id)["turns"])

        assert read(original) == [("Shared question", "Shared answer."), ("Left", "Yes.")]
        assert read(fork) == [("Right", "No.")]
        assert [result["session_id"] for result in world.search("shared")] == [original.id]


class TestQueue:
    """Prompts typed while the assistant was busy."""

    def test_submitted_later(self, world: World) -> None:
        """They are one turn, whether or not they waited."""
        session = Session("s").prompt("Ask")
        session.add("queue-operation", operation="enqueue", content="And this").answer("Yes.")
        session.add("queue-operation", operation="dequeue").prompt("And this").answer("That too.")

        assert said(world.turns(session)) == [("Ask", "Yes."), ("And this", "That too.")]

    def test_handed_over_on_the_way(self, world: World) -> None:
        """A prompt that no user record carries is one all the same."""
        session = Session("s").prompt("Ask").call("Bash", {"command": "sleep 9"}, "")
        session.add("attachment", attachment={"type": "queued_command", "prompt": "Hurry", "commandMode": "prompt"})

        assert said(world.turns(session.answer("Done."))) == [("Ask", ""), ("Hurry", "Done.")]


class TestBroken:
    """Records that nobody should have written."""

    @pytest.mark.parametrize(
        "record",
        [
            {"type": "user"},
            {"type": "user", "message": None},
            {"type": "user", "message": "text"},
            {"type": "user", "message": {"content": None}},
            {"type": "user", "message": {"content": 7}},
            {"type": "user", "message": {"content": [None, 3, "text", {"type": "tool_result"}]}},
            {"type": "assistant", "message": {"content": [None, {"type": "text"}, {"type": "tool_use"}]}},
            {"type": "assistant", "message": {"content": {"a": 1}}},
            {"type": ["user"]},
            {},
        ],
        ids=str,
    )
    def test_the_rest_is_read(self, world: World, record: dict[str, Any]) -> None:
        session = Session("s").prompt("Ask").answer("Yes.").bare(**record).prompt("Next").answer("Ok.")

        turns = world.turns(session)

        assert (turns[0]["user_text"], turns[-1]["user_text"]) == ("Ask", "Next")
        assert turns[-1]["assistant_text"] == "Ok."
