"""Agents from npm and PyPI, run offline against a scripted model: Backstory reads all that they did."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path

import pytest

from backstory.archive.base import EventRow, Part, SessionsRequest, TurnRow
from backstory.ingest.unknown import unknown_records
from backstory.library import Library
from backstory.model import EventType
from tests.agents.install import NotInstalled, executable, install, search_path, shown, version_of
from tests.agents.programs import PROGRAMS, PROMPT, Program
from tests.agents.sandbox import Sandbox
from tests.agents.script import EXIT_CODE, FAILURE, GREETING, NOTE, PROMPTS, answer_of
from tests.agents.versions import note_version

pytestmark = pytest.mark.agents


class Run:
    """Both tasks, done by an agent, and what the archive has of them."""

    def __init__(self, program: Program, folder: Path) -> None:
        self.program = program
        self.sandbox = Sandbox(folder)
        for name, content in program.files.items():
            path = self.sandbox.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._fill(content))
        if program.prepare:
            self._call(program.prepare, "")
        for task, command in enumerate((program.first, program.then), 1):
            self._call(command, PROMPTS[task])
        self.library = Library(folder / "backstory", agents_home=self.sandbox.home, environ={})
        self.report = self.library.sync()
        archive = self.library.archive
        sessions = archive.sessions(SessionsRequest(source=program.source, order="started_at", ascending=True))
        self.turns: list[TurnRow] = [turn for row in sessions for turn in archive.turns(row.key, Part(usage=True))]
        self.events: list[EventRow] = [
            event for turn in self.turns for event in archive.events(turn.session, turn.ordinal)
        ]

    def _fill(self, text: str) -> str:
        return text.replace("<url>", self.sandbox.url).replace("<home>", self.sandbox.shown_home)

    def _call(self, arguments: tuple[str, ...], prompt: str) -> None:
        filled = [prompt if word == PROMPT else self._fill(word) for word in arguments]
        environ = {name: self._fill(value) for name, value in self.program.environ.items()}
        environ["PATH"] = search_path(self.program)
        command = [str(executable(self.program)), *filled]
        try:
            self.sandbox.run(command, environ, shown(self.program), self.program.seconds)
        except RuntimeError as error:
            pytest.skip(f"{self.program.name} {version_of(self.program)} does not run: {error}")

    def of(self, *types: EventType) -> list[EventRow]:
        return [event for event in self.events if event.type in types]

    def missing(self) -> dict[str, str]:
        """What the archive lacks, by its name, with what it has instead."""
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
        answers = [json.loads(line) for line in self.sandbox.log.read_text().splitlines()]
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


class TestRealAgents:
    """Prompts, answers, tool calls, exit codes, tokens and ends of turns of the newest agents are in the archive."""

    @pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.source)
    def test_everything_is_read(self, program: Program, tmp_path: Path) -> None:
        try:
            install(program)
        except NotInstalled as reason:
            pytest.skip(str(reason))
        run = Run(program, tmp_path)
        if not run.sandbox.is_sealed:
            message = f"{program.source} ran with access to the network: run as root, with util-linux and iproute2"
            warnings.warn(pytest.PytestWarning(message), stacklevel=1)
        assert run.report.errors == 0
        assert {name: what for name, what in run.missing().items() if name not in program.lacks} == {}
        unknown = ", ".join(f"`{kind.kind}`" for kind in unknown_records(run.library.archive))
        lacks = ", ".join(sorted(program.lacks))
        note_version(program.source, program.name, version_of(program), lacks, unknown)
