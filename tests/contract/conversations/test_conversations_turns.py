"""The turns of a conversation: where each begins and ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from tests.conversation_world import Session, World, tool_use
from tests.transcripts import Transcript

Case = TypeVar("Case")

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def said(turns: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(turn["user_text"], turn["assistant_text"]) for turn in turns]


def assert_each(
    world: World,
    cases: Sequence[Case],
    write: Callable[[Case], Transcript],
    expect: Callable[[Case], list[tuple[str, str]]],
) -> None:
    """Write a session for each case, read them at once, and compare what was said in each."""
    for case, turns in zip(cases, world.turns_of_each([write(case) for case in cases]), strict=True):
        assert said(turns) == expect(case), case


class TestExchange:
    """A turn is a user record with text and everything the assistant said and did until the next one."""

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

    def test_before_the_first_prompt(self, world: World) -> None:
        """An unasked answer of the assistant is a turn of its own, without a user."""
        session = Session("s").answer("Welcome back.").call("Read", {"file_path": "/a"}, "").prompt("Hello")

        turns = world.turns(session.answer("Hi."))

        assert said(turns) == [("", "Welcome back."), ("Hello", "Hi.")]
        assert turns[0]["tools_used"] == [{"tool": "Read", "file": "/a"}]
        assert turns[0]["timestamp"] == session.records[0]["timestamp"]
        assert world.list()[0]["turn_count"] == 2
        assert world.list()[0]["summary"] == "Hello"

    def test_answers_without_any_prompt(self, world: World) -> None:
        """The first thing a resumed session may hold is an answer."""
        assert said(world.turns(Session("s").answer("One.", None).answer("Two."))) == [("", "One.\nTwo.")]
        assert world.list()[0]["summary"] == ""

    def test_repeated_records(self, world: World) -> None:
        """A record that was written twice is there once."""
        session = Session("s").prompt("Ask").answer("Yes.").prompt("More").answer("Ok.")
        session.records[2:2] = session.records[:2]

        assert said(world.turns(session)) == [("Ask", "Yes."), ("More", "Ok.")]

    def test_every_character(self, world: World) -> None:
        """Also blanks at either end, blank lines, and any script."""
        text = '  \n\tdef f():\n        pass\n\n日本語 ñ 👩‍👩‍👧 \u0301 <b>tags</b> & \\n "quotes"\n\n  '

        (turn,) = world.turns(Session("s").prompt(text).answer(text))

        assert (turn["user_text"], turn["assistant_text"]) == (text, text)


class TestFilters:
    """Records that begin no turn, and what of the others counts."""

    COMMANDS = (
        "<command-name>/clear</command-name>",
        "<command-name>/model</command-name>\n<command-message>m</command-message>\n<command-args>o</command-args>",
        "<local-command-stdout>Compacted</local-command-stdout>",
        "<local-command-stderr>no such model</local-command-stderr>",
        "<local-command-caveat>Caveat: the messages below were generated</local-command-caveat>",
        "  <command-name>/cost</command-name>\n<local-command-stdout></local-command-stdout>\n",
        "<command-message>pdf</command-message>\n<command-name>pdf</command-name>\n<skill-format>true</skill-format>",
        "   ",
        "",
    )

    def test_commands(self, world: World) -> None:
        """Slash commands and their output start no turn; what the assistant does about them belongs to the turn
        before."""

        def around(content: str) -> Session:
            session = Session(f"s{content}").prompt("Ask").answer("Yes.").user(content).answer("More.")
            return session.prompt("Next").answer("Ok.")

        assert_each(world, self.COMMANDS, around, lambda content: [("Ask", "Yes.\nMore."), ("Next", "Ok.")])

    RECORDS = (
        "<bash-input>git pull</bash-input>",
        "<bash-stdout>Already up to date.</bash-stdout><bash-stderr></bash-stderr>",
        "<task-notification><task-id>b7</task-id><status>completed</status></task-notification>",
        "<task-notification><task-id>b7</task-id></task-notification>\nRead the output file.",
        "<system-reminder>The date has changed.</system-reminder>",
        "<user-memory-input>use tabs</user-memory-input>",
        "[Request interrupted by user]",
        "This session is being continued from a previous conversation that ran out of context.",
        "Stop hook feedback: run the tests",
        "Caveat: The messages below were generated by the user while running local commands.",
        "<command-name>/clear",
        "<command-name>/clear</command-name> <div>",
        "Fix it <system-reminder>Plan mode is on.</system-reminder>",
    )

    def test_everything_else(self, world: World) -> None:
        """Every other record with text starts a turn, for any author, and is shown unchanged."""

        def all_of_them(fields: dict[str, Any]) -> Session:
            session = Session(f"s{fields}").prompt("Ask").answer("Yes.")
            for number, content in enumerate(self.RECORDS):
                session.user(content, **fields).answer(f"Answer {number}.")
            return session.prompt("Next")

        answered = [(content, f"Answer {number}.") for number, content in enumerate(self.RECORDS)]
        authors: tuple[dict[str, Any], ...] = (
            {},
            {"origin": {"kind": "task-notification"}},
            {"promptSource": "system"},
        )
        assert_each(world, authors, all_of_them, lambda fields: [("Ask", "Yes."), *answered, ("Next", "")])

    PROMPTS = (
        "Why does <command-name> appear here?",
        "<command-name>/review</command-name> and then fix it",
        "and then fix it <command-name>/review</command-name>",
        "<div>centre this</div>",
        "/usr/bin is not in my PATH",
        "[x] done, [ ] to do",
    )

    def test_prompts_that_look_like_it(self, world: World) -> None:
        """As soon as there is something outside of the tags it is a prompt, and shown with them."""
        assert_each(
            world,
            self.PROMPTS,
            lambda content: Session(f"s{content}").user(content).answer("Yes."),
            lambda content: [(content, "Yes.")],
        )

    def test_meta(self, world: World) -> None:
        session = Session("s").prompt("Ask").user("Injected", isMeta=True).answer("Yes.")

        assert said(world.turns(session)) == [("Ask", "Yes.")]

    OTHER_RECORDS: tuple[dict[str, Any], ...] = (
        {"kind": "progress", "data": {"type": "hook_progress", "text": "noise"}},
        {"kind": "file-history-snapshot", "messageId": "m", "snapshot": {"text": "noise"}},
        {"kind": "custom-title", "customTitle": "noise", "sessionId": "s"},
        {"kind": "queue-operation", "operation": "enqueue", "content": "noise", "sessionId": "s"},
        {"kind": "system", "subtype": "informational", "content": "noise"},
        {"kind": "never-seen-before", "message": {"role": "user", "content": "noise"}},
    )

    def test_other_records(self, world: World) -> None:
        """Records of other kinds are neither shown nor searched."""
        assert_each(
            world,
            self.OTHER_RECORDS,
            lambda record: Session(record["kind"]).prompt("Ask").add(**record).answer("Yes."),
            lambda record: [("Ask", "Yes.")],
        )
        assert world.search("noise") == []

    def test_tool_results(self, world: World) -> None:
        """A list of results is part of the turn, not a prompt; nor is what the tool returned searched."""
        session = Session("s").prompt("Ask").call("Bash", {"command": "ls"}, "secretariat").answer("Yes.")

        assert said(world.turns(session)) == [("Ask", "Yes.")]
        assert world.search("secretariat") == []

    def test_list_with_text(self, world: World) -> None:
        """A text that a person typed beside a picture is a prompt."""
        session = Session("s").user([{"type": "text", "text": "What is this?"}, IMAGE]).answer("A cat.")

        assert said(world.turns(session)) == [("What is this?\n[image]", "A cat.")]

    UNTYPED = (
        "[Request interrupted by user for tool use]",
        "<system-reminder>Plan mode is on.</system-reminder>",
        "<ide_opened_file>a.py</ide_opened_file>",
        "<local-command-stdout>ok</local-command-stdout>",
        " ",
    )

    def test_lists_that_nobody_typed(self, world: World) -> None:
        """A list of texts that the agent itself wrote begins no turn."""

        def with_list(text: str) -> Session:
            session = Session(f"s{text}").prompt("Ask").answer("Yes.", None)
            return session.user([{"type": "text", "text": text}]).answer("More.")

        assert_each(world, self.UNTYPED, with_list, lambda text: [("Ask", "Yes.\nMore.")])

    def test_text_beside_a_tool_result(self, world: World) -> None:
        """A prompt that was typed while the tool ran."""
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}
        session = Session("s").prompt("Ask").says(tool_use("Bash", {"command": "ls"}))
        session.user([result, {"type": "text", "text": "Also this"}])

        assert said(world.turns(session.answer("Both."))) == [("Ask", ""), ("Also this", "Both.")]

    def test_text_beside_the_result_of_a_subagent(self, world: World) -> None:
        """The subagent's answer, which stands in the same record, is not what begins the turn."""
        session = Session("s").prompt("Ask").says(tool_use("Task", {"description": "d", "prompt": "Do it"}))
        session.user("Do it", isSidechain=True, agentId="a1")
        inner = {"role": "assistant", "content": [{"type": "tool_use", "id": "t2", "name": "Bash", "input": {}}]}
        session.add("assistant", isSidechain=True, agentId="a1", message=inner)
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Inner answer"}
        content = [result, {"type": "text", "text": "Also this"}]
        session.user(content, toolUseResult={"agentId": "a1", "status": "completed", "content": "Inner answer"})

        assert said(world.turns(session.answer("Both."))) == [("Ask", ""), ("Also this", "Both.")]

    def test_thinking(self, world: World) -> None:
        """It is neither shown nor searched."""
        thought = {"type": "thinking", "thinking": "A ruminant.", "signature": "x"}

        assert said(world.turns(Session("s").prompt("Ask").says(thought, "A cow."))) == [("Ask", "A cow.")]
        assert world.search("ruminant") == []

    @pytest.mark.parametrize("content", ["Summary so far", [{"type": "text", "text": "Summary so far"}]])
    def test_compaction(self, world: World, content: Any) -> None:
        """The summary starts a turn: what the assistant does next, it does about that."""
        session = Session("s").prompt("Ask").answer("Halfway.").user(content, isCompactSummary=True)

        assert said(world.turns(session.answer("Finished."))) == [("Ask", "Halfway."), ("Summary so far", "Finished.")]
        assert [result["turn_number"] for result in world.search("summary")] == [1]

    def test_synthetic_answers(self, world: World) -> None:
        """Texts of Claude Code in the model's name are answers: API errors, stand-ins."""

        def with_error(case: tuple[str | None, dict[str, Any]]) -> Session:
            stop, fields = case
            session = Session(f"s{case}").prompt("Ask").answer("API Error: 529 overloaded", stop)
            session.records[-1]["message"]["model"] = "<synthetic>"
            session.records[-1] |= fields
            return session.answer("Now.")

        cases = [(stop, fields) for stop in ("stop_sequence", None) for fields in ({}, {"isApiErrorMessage": True})]
        assert_each(world, cases, with_error, lambda case: [("Ask", "API Error: 529 overloaded\nNow.")])
        assert len(world.search("overloaded")) == len(cases)

    def test_subagents(self, world: World) -> None:
        """Prompts and answers of a subagent are not part of the conversation."""
        session = Session("s").prompt("Ask").says(tool_use("Task", {"description": "d", "prompt": "Do it"}))
        session.user("Do it", isSidechain=True)
        session.add("assistant", isSidechain=True, message={"role": "assistant", "content": "Inner answer"})

        assert said(world.turns(session.answer("Yes."))) == [("Ask", "Yes.")]


def fork_of(original: Session, name: str, cwd: str = "/home/dev/shop") -> Session:
    """As `claude --fork-session` writes it: the records so far, under another session's id."""
    fork = Session(name, cwd)
    origin = {"sessionId": original.id, "messageUuid": original.records[-1]["uuid"]}
    fork.records = [{**record, "sessionId": fork.id, "forkedFrom": origin} for record in original.records]
    fork._ms = original._ms
    return fork


class TestForks:
    """Each file is one session: a fork has the turns that it inherited."""

    @pytest.fixture
    def original(self) -> Session:
        session = Session("original", "/srv/engine").prompt("Shared question").answer("Shared answer.")
        return session.prompt("Look").call("Read", {"file_path": "/a"}, "...").answer("Seen.")

    @pytest.fixture
    def fork(self, original: Session) -> Session:
        fork = fork_of(original, "fork", "/home/dev/shop")
        fork.prompt("Right").answer("No.")
        return fork

    SHARED = (("Shared question", "Shared answer."), ("Look", "Seen."))

    def read(self, world: World, session: Session, pattern: str = "*") -> list[tuple[str, str]]:
        return said(world.ask("read_conversation", pattern=pattern, session_id=session.id)["turns"])

    def test_turns(self, world: World, original: Session, fork: Session) -> None:
        original.prompt("Left").answer("Yes.")
        world.read(original, fork)

        assert self.read(world, original) == [*self.SHARED, ("Left", "Yes.")]
        assert self.read(world, fork) == [*self.SHARED, ("Right", "No.")]
        assert {result["session_id"] for result in world.search("shared")} == {original.id, fork.id}
        listed = {conversation["session_id"]: conversation for conversation in world.list()}
        assert [listed[session.id]["turn_count"] for session in (original, fork)] == [3, 3]
        assert listed[fork.id]["first_timestamp"] == original.records[0]["timestamp"]
        assert listed[fork.id]["last_timestamp"] == fork.records[-1]["timestamp"]
        turn = world.ask("read_turn", session_id=fork.id, turn_number=1)
        assert (turn["session_id"], turn["tools_used"]) == (fork.id, [{"tool": "Read", "file": "/a"}])

    def test_the_original_is_out_of_sight(self, world: World, original: Session, fork: Session) -> None:
        """Turns that a fork inherited are its own, also where the pattern leaves the original out."""
        world.read(original, fork)

        assert self.read(world, fork, "-home*") == [*self.SHARED, ("Right", "No.")]
        assert {result["session_id"] for result in world.search("shared", pattern="-home*")} == {fork.id}

    @pytest.mark.parametrize("fork_first", [True, False])
    def test_one_after_the_other(self, world: World, original: Session, fork: Session, fork_first: bool) -> None:
        """Whichever is read first, and however they go on."""
        for session in (fork, original) if fork_first else (original, fork):
            world.read(session)
        world.read(original.prompt("Left").answer("Yes."))
        world.read(fork.answer("On second thought.").prompt("End"))

        assert self.read(world, original) == [*self.SHARED, ("Left", "Yes.")]
        assert self.read(world, fork) == [*self.SHARED, ("Right", "No.\nOn second thought."), ("End", "")]

    def test_nothing_of_its_own(self, world: World, original: Session) -> None:
        """A fork that did not go on yet, or a copy under another name, is a conversation like any other."""
        copy = fork_of(original, "copy")
        world.read(original)
        world.read(copy)

        assert self.read(world, copy) == list(self.SHARED)
        (listed,) = (c for c in world.list() if c["session_id"] == copy.id)
        assert (listed["turn_count"], listed["project"]) == (2, "-home-dev-shop")
        assert listed["last_timestamp"] == original.records[-1]["timestamp"]

    def test_the_original_is_gone(self, world: World, original: Session, fork: Session) -> None:
        world.read(original, fork)
        original.path(world.home).unlink()
        fork.path(world.home).unlink()
        world.library.sync()
        world.library.reindex()

        assert self.read(world, fork) == [*self.SHARED, ("Right", "No.")]
        assert len(world.search("shared question")) == 2

    def test_goes_on_where_it_left_off(self, world: World, original: Session) -> None:
        """The fork's first own record is an answer: it belongs to the turn that was inherited."""
        original.prompt("Try").answer("First try.")
        fork = fork_of(original, "fork")
        fork.answer("Second try.")
        world.read(original.answer("Third try."), fork)

        assert self.read(world, original)[-1] == ("Try", "First try.\nThird try.")
        assert self.read(world, fork)[-1] == ("Try", "First try.\nSecond try.")
        assert {result["session_id"] for result in world.search("second")} == {fork.id}


class TestRewritten:
    """Files that are not only appended to."""

    def test_a_copy_in_another_folder(self, world: World) -> None:
        """The same session under the same name is one conversation, and no turn is there twice."""
        session = Session("s").prompt("Ask").answer("Yes.").prompt("More").answer("Ok.")
        copy = Session("s", "/elsewhere")
        copy.records = list(session.records)
        world.read(session)
        world.read(copy)
        expected = [("Ask", "Yes."), ("More", "Ok.")]
        assert said(world.ask("read_conversation", session_id=session.id)["turns"]) == expected

        world.read(session.answer("And on."), copy)

        expected[-1] = ("More", "Ok.\nAnd on.")
        assert said(world.ask("read_conversation", session_id=session.id)["turns"]) == expected
        assert len(world.list()) == 1

    @pytest.mark.parametrize("together", [True, False])
    def test_a_session_that_moves(self, world: World, together: bool) -> None:
        """A session that changes its directory goes on in another folder, where it left off."""
        session = Session("s").prompt("Ask").answer("Yes.", None)
        rest = Session("s", "/elsewhere")
        rest.records, rest._ms = [{"type": "mode", "sessionId": session.id}] * 2, session._ms
        rest.answer("On it.").prompt("More").answer("Ok.")
        if not together:
            world.read(session)
        world.read(session, rest)

        turns = world.ask("read_conversation", session_id=session.id)["turns"]
        assert said(turns) == [("Ask", "Yes.\nOn it."), ("More", "Ok.")]

    def test_from_the_start(self, world: World) -> None:
        """A file with another beginning is read again: what is known stays where it is."""
        session = Session("s").prompt("Ask").answer("Yes.").prompt("More").answer("Ok.")
        world.read(session)
        session.bare(type="summary", summary="S", leafUuid="x")
        session.records.insert(0, session.records.pop())

        turns = world.turns(session.prompt("Last").answer("Bye."))

        assert said(turns) == [("Ask", "Yes."), ("More", "Ok."), ("Last", "Bye.")]

    def test_a_late_answer(self, world: World) -> None:
        """A record that a rewriting put between others belongs to the turn it stands in."""
        session = Session("s").prompt("Ask").answer("Yes.").prompt("More").answer("Ok.")
        world.read(session)
        late = Session("late").answer("By the way.").records[0]
        session.records.insert(2, late | {"sessionId": session.id})

        assert said(world.turns(session)) == [("Ask", "Yes.\nBy the way."), ("More", "Ok.")]


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

    def test_in_the_queue_alone(self, world: World) -> None:
        """Versions before 2.1.75 or so wrote no other record of it."""
        session = Session("s").prompt("Ask").call("Bash", {"command": "sleep 9"}, "")
        session.add("queue-operation", operation="enqueue", content="Hurry")
        session.add("queue-operation", operation="remove")

        assert said(world.turns(session.answer("Done."))) == [("Ask", ""), ("Hurry", "Done.")]

    UNTYPED = (
        "<task-notification><task-id>b7</task-id></task-notification>",
        "<agent-notification><agent-id>b7</agent-id></agent-notification>",
        "/mcp",
    )

    def test_what_nobody_typed(self, world: World) -> None:
        """Notifications and commands that stand in the queue alone start no turn."""

        def with_queued(content: str) -> Session:
            session = Session(f"s{content}").prompt("Ask").call("Bash", {"command": "sleep 9"}, "")
            session.add("queue-operation", operation="enqueue", content=content)
            session.add("queue-operation", operation="remove").answer("Looking.")
            session.add("attachment", attachment={"type": "queued_command", "prompt": content, "commandMode": "task"})
            return session.answer("Done.")

        assert_each(world, self.UNTYPED, with_queued, lambda content: [("Ask", "Looking.\nDone.")])


class TestBroken:
    """Records that nobody should have written."""

    RECORDS: tuple[dict[str, Any], ...] = (
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
    )

    def test_the_rest_is_read(self, world: World) -> None:
        """Such a record costs nothing but itself."""
        sessions = [
            Session(str(record)).prompt("Ask").answer("Yes.").bare(**record).prompt("Next").answer("Ok.")
            for record in self.RECORDS
        ]

        for record, turns in zip(self.RECORDS, world.turns_of_each(sessions), strict=True):
            assert (turns[0]["user_text"], turns[-1]["user_text"]) == ("Ask", "Next"), record
            assert turns[-1]["assistant_text"] == "Ok.", record
