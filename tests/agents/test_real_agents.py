"""Agents from npm and PyPI, run offline against a scripted model: Backstory reads all that they did."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from backstory.archive.base import EventRow, Part, SessionRow, SessionsRequest, TurnRow
from backstory.ingest.unknown import unknown_records
from backstory.library import Library
from backstory.model import EventType, session_id
from backstory.setup import Wiring
from backstory.setup.files import Journal
from backstory.sources import load_sources
from tests.agents.install import NotInstalled, executable, install, search_path, shown, version_of
from tests.agents.programs import PROGRAMS, PROMPT, Program
from tests.agents.sandbox import ROOT, Sandbox, reason_not_to_run
from tests.agents.script import (
    EXIT_CODE,
    FAILURE,
    GREETING,
    MORE,
    MORE_PROMPTS,
    NOTE,
    PROMPTS,
    SLOW,
    SPAWN,
    TITLE,
    answer_of,
)
from tests.agents.versions import note_resumed, note_version

pytestmark = pytest.mark.agents


class Run:
    """An agent at work, and what the archive has of it."""

    def __init__(self, program: Program, folder: Path) -> None:
        self.program = program
        self.sandbox = Sandbox(folder)
        self._shown = shown(program)
        for name, content in program.files.items():
            path = self.sandbox.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._fill(content))
        if program.prepare:
            self.call(program.prepare, "")
        # Aider keeps its history in the project.
        (folder / "backstory").mkdir(mode=0o700)
        (folder / "backstory/config.toml").write_text(f'[extra_roots]\naider = ["{self.sandbox.home / "demo"}"]\n')
        self.library = Library(folder / "backstory", agents_home=self.sandbox.home, environ={})
        self.sessions: list[SessionRow] = []
        self.turns: list[TurnRow] = []
        self.events: list[EventRow] = []

    def do_both_tasks(self) -> None:
        for task, command in enumerate((self.program.first, self.program.then), 1):
            self.call(command, PROMPTS[task])
        self.read()

    def read(self) -> None:
        """Take what the agent wrote into the archive."""
        assert self.library.sync().errors == 0
        archive = self.library.archive
        self.sessions = archive.sessions(
            SessionsRequest(source=self.program.source, order="started_at", ascending=True)
        )
        self.turns = [turn for row in self.sessions for turn in archive.turns(row.key, Part(usage=True))]
        self.events = [event for turn in self.turns for event in archive.events(turn.session, turn.ordinal)]

    def _fill(self, text: str) -> str:
        return text.replace("<url>", self.sandbox.url).replace("<home>", self.sandbox.shown_home)

    def call(self, arguments: tuple[str, ...], prompt: str, *, interrupt: bool = False) -> str:
        filled = [prompt if word == PROMPT else word for word in arguments]
        run = self.sandbox.interrupt if interrupt else self.sandbox.run
        try:
            return run(self._command(filled), self._environ(), self._shown, self.program.seconds)
        except RuntimeError as error:
            pytest.fail(f"{self.program.name} {version_of(self.program)} does not run: {error}")

    def resume(self, prompt: str, until: Callable[[], bool]) -> None:
        """Continue the only session by the command that Backstory gives, at a terminal if it can be."""
        (session,) = [row for row in self.sessions if not row.parent]
        location = self.library.locate(session_id(session.key))
        assert location is not None
        assert location.resume is not None
        _, *words = location.resume
        if self.program.with_prompt:
            self.call((*words, *self.program.with_prompt), prompt)
            assert until()
            return
        command = self._command([*words, *self.program.at_terminal])
        seconds = 2 * self.program.seconds
        self.sandbox.converse(command, self._environ(), self._shown, seconds, prompt, until)

    def set_up(self) -> None:
        """Give the agent the MCP server, as `backstory setup` does."""
        command = (sys.executable, "-m", "backstory")
        wiring = Wiring(Journal(self.sandbox.folder), home=self.sandbox.home, environ={}, command=command)
        (found,) = [one for one in wiring.find(versions=False) if one.agent.name == self.program.source]
        assert [wiring.wire(found, target).action for target in found.targets] == ["added"]
        self._shown = [*self._shown, ROOT, Path(sys.base_prefix)]

    def answers(self) -> list[dict[str, Any]]:
        """The answers of the model."""
        return [json.loads(line) for line in self.sandbox.log.read_text().splitlines()]

    def _command(self, words: Sequence[str]) -> list[str]:
        return [str(executable(self.program)), *map(self._fill, words)]

    def _environ(self) -> dict[str, str]:
        environ = {name: self._fill(value) for name, value in self.program.environ.items()}
        return {**environ, "PATH": search_path(self.program)}

    def of(self, *types: EventType) -> list[EventRow]:
        return [event for event in self.events if event.type in types]

    def missing(self) -> dict[str, str]:
        """Things that the archive lacks, by name, each with what it has instead."""
        found = {
            "prompt": self._prompts(),
            "answer": self._answers(),
            "tool call": self._tool_calls(),
            "tool response": self._responses(),
            "exit code": self._exit_code(),
            "tokens": self._tokens(),
            "end of turn": self._ends(),
        }
        return {name: problem for name, problem in found.items() if problem}

    def _prompts(self) -> str:
        texts = [event.text for event in self.of(EventType.USER_INPUT)]
        are_there = len(texts) == len(PROMPTS) and all(map(str.__contains__, texts, PROMPTS.values()))
        return "" if are_there else f"{texts}"

    def _answers(self) -> str:
        texts = Counter(event.text.strip() for event in self.of(EventType.ASSISTANT_RESPONSE))
        return "" if all(texts[answer_of(task)] == 1 for task in PROMPTS) else f"{texts}"

    def _tool_calls(self) -> str:
        calls = [(event.tool, json.dumps(event.arguments)) for event in self.of(EventType.TOOL_CALL)]
        expected = (GREETING, NOTE, FAILURE)
        return "" if all(any(word in call for _, call in calls) for word in expected) else f"{calls}"

    def _responses(self) -> str:
        texts = [event.text for event in self.of(EventType.TOOL_RESPONSE)]
        ids = {event.call_id for event in self.of(EventType.TOOL_CALL)}
        joined = all(event.call_id in ids for event in self.of(EventType.TOOL_RESPONSE))
        return "" if joined and all(any(word in text for text in texts) for word in (GREETING, FAILURE)) else f"{texts}"

    def _exit_code(self) -> str:
        codes = [event.exit_code for event in self.of(EventType.TOOL_RESPONSE)]
        return "" if codes.count(EXIT_CODE) == 1 else f"{codes}"

    def _tokens(self) -> str:
        """The tokens are those of the conversation, or those of all answers: some agents count their titles, too."""
        answers = self.answers()
        usage = [row for turn in self.turns for row in turn.usage]
        have = sum(row.input_tokens for row in usage), sum(row.output_tokens for row in usage)
        totals = {
            (
                sum(each["fresh"] + each["cached"] for each in some),
                sum(each["output"] + each["thinking"] for each in some),
            )
            for some in (answers, [each for each in answers if each["task"]])
        }
        return "" if have in totals else f"{have} instead of {sorted(totals)}"

    def _ends(self) -> str:
        return "" if len(self.turns) == len(PROMPTS) and all(turn.completed for turn in self.turns) else f"{self.turns}"


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    """True once a condition holds, within a time."""
    end = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < end:
        time.sleep(0.5)
    return holds


def _resumes(program: Program) -> bool:
    (source,) = load_sources([program.source])
    return source.resume("ID") is not None


@pytest.fixture
def run(program: Program, tmp_path: Path) -> Run:
    if reason := reason_not_to_run(os.environ):
        pytest.skip(reason)
    try:
        install(program)
    except NotInstalled as failure:
        pytest.skip(str(failure))
    return Run(program, tmp_path)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.source)
class TestRealAgents:
    """Prompts, answers, tool calls, exit codes, tokens and ends of turns of the newest agents are in the archive."""

    def test_everything_is_read(self, run: Run) -> None:
        run.do_both_tasks()
        program = run.program
        assert {name: what for name, what in run.missing().items() if name not in program.lacks} == {}
        unknown = ", ".join(f"`{kind.kind}`" for kind in unknown_records(run.library.archive))
        lacks = ", ".join(sorted(program.lacks))
        note_version(program.source, program.name, version_of(program), lacks, unknown)

    def test_the_command_that_resumes_exists(self, run: Run) -> None:
        """Every option of the command is one that the agent's own help names."""
        (source,) = load_sources([run.program.source])
        _, *words = source.resume("ID") or ("",)
        options = [word for word in words if word.startswith("-")]
        inner = tuple(takewhile(lambda word: not word.startswith("-") and word != "ID", words))
        if words:
            text = run.call((*inner, "--help"), "")
            assert [option for option in options if option not in text] == []


@pytest.mark.parametrize("program", [program for program in PROGRAMS if _resumes(program)], ids=lambda one: one.source)
class TestResume:
    """The command that `backstory resume` gives continues the session."""

    def test_the_model_gets_the_earlier_prompt(self, run: Run) -> None:
        """And what follows is in the archive, in the same session or in a fork of it."""
        run.call(run.program.first, PROMPTS[1])
        run.read()

        run.resume(MORE_PROMPTS[MORE], lambda: any(each["asked"] == [1, MORE] for each in run.answers()))

        def is_read() -> bool:
            run.read()
            return MORE_PROMPTS[MORE].partition(" ")[2] in run.of(EventType.USER_INPUT)[-1].text

        assert _within(60, is_read)
        is_same = len({event.session for event in run.of(EventType.USER_INPUT)}) == 1
        assert is_same is not run.program.forks
        note_resumed(run.program.source, version_of(run.program))


@pytest.mark.parametrize("program", [program for program in PROGRAMS if program.takes_file], ids=lambda one: one.source)
class TestServer:
    """Agents whose configuration `backstory setup` edits itself."""

    def test_the_model_is_offered_its_tools(self, run: Run) -> None:
        """At the second or third start at the latest: some do not wait for a server that starts for the first time."""
        run.set_up()

        def is_offered() -> bool:
            run.call(run.program.first, PROMPTS[1])
            return any(name.endswith("search_sessions") for each in run.answers() for name in each["tools"])

        assert any(is_offered() for _ in range(3))


@pytest.mark.parametrize("program", [program for program in PROGRAMS if program.delegates], ids=lambda one: one.source)
class TestHelpersAndInterrupts:
    """Agents that give work to a helper, and that are stopped."""

    def test_a_helper_is_linked_to_the_call_that_started_it(self, run: Run) -> None:
        run.call(run.program.first, MORE_PROMPTS[SPAWN])
        run.read()
        (child,) = [row for row in run.sessions if row.parent]
        (parent,) = [row for row in run.sessions if not row.parent]
        calls = {event.call_id for event in run.of(EventType.TOOL_CALL) if event.session == parent.key}
        assert (child.parent, child.parent_call in calls) == (parent.key, True)
        assert [event.text for event in run.of(EventType.ASSISTANT_RESPONSE) if event.session == child.key] == [TITLE]
        assert answer_of(SPAWN) in {event.text for event in run.of(EventType.ASSISTANT_RESPONSE)}

    def test_an_answer_that_is_stopped(self, run: Run) -> None:
        run.call(run.program.first, MORE_PROMPTS[SLOW], interrupt=True)
        run.read()
        (turn,) = run.turns
        assert MORE_PROMPTS[SLOW] in run.of(EventType.USER_INPUT)[0].text
        assert any((event.extra or {}).get("interrupted") for event in run.events)
        assert turn.completed
