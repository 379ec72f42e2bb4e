"""`search`, `open` and `sessions`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from backstory.archive.base import Mode
from backstory.faces.cli.search import DEFAULT_TYPES, MODES, TYPES
from backstory.model import DEFAULT_TYPES as MODEL_DEFAULT_TYPES
from backstory.model import SEARCHABLE_TYPES, session_id, turn_id
from tests.transcripts import Transcript

from .conftest import Program, World

SHOWN = "backstory search and backstory sessions show ids"


class TestSearch:
    def test_shows_hits(self, world: World, backstory: Program) -> None:
        """Title, agent, project, who said it and the words, then ids and time, then the command that resumes it."""
        result = backstory("search", "clock", "hour", "behind")

        lines = result.out.splitlines()
        assert lines[:2] == [" 1  The login test is flaky, find out why", "    claude-code · /home/dev/shop · main"]
        assert lines[2].startswith("    agent  The clock of the token")
        time = r"\d{4}-\d\d-\d\d \d\d:\d\d, 2 hours ago"
        assert re.fullmatch(rf"    {world.login.id[:8]}:1 · {time} · event:[\w-]{{22}}", lines[3])
        assert lines[-2] == f"    cd /home/dev/shop && claude --resume {world.login.id}"
        assert (result.code, result.err) == (0, "")

    def test_ids_it_shows_can_be_opened(self, world: World, backstory: Program) -> None:
        """Both the turn's handle and the event's id."""
        facts = backstory("search", "clock", "behind").out.splitlines()[3].strip().split(" · ")

        assert "turn 1" in backstory("open", facts[0]).out
        assert "src/auth/token.py" in backstory("open", facts[2]).out

    def test_explains_that_nothing_is_found(self, world: World, backstory: Program) -> None:
        """The words that no event has, those that some have, and the number of events that were searched."""
        result = backstory("search", "--explain", "zyzzyva", "clock", "--project", "nowhere")

        assert re.search(r"^Searched \d+ events for:$", result.out, re.MULTILINE)
        assert "  zyzzyva · in no event" in result.out
        assert re.search(r"^  clock · in \d+ events?$", result.out, re.MULTILINE)

    def test_explains_scores(self, world: World, backstory: Program) -> None:
        out = backstory("search", "--explain", "clokc", "hours").out

        assert "text: clock · stem: hours" in out
        assert "  clokc · in no event · read as clock" in out

    def test_groups_by_session(self, backstory: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A session is named once, with its three best hits and the number of the others."""
        monkeypatch.setenv("HOME", str(tmp_path))
        many, one = Transcript("many"), Transcript("one")
        for number in range(5):
            many.prompt(f"wallaby {number}").answer("Yes.")
        one.prompt("wallaby wallaby wallaby, another one").answer("No.")
        many.write(tmp_path)
        one.write(tmp_path)

        out = backstory("search", "wallaby").out

        assert out.count(many.id) == out.count(one.id) == 1
        assert f"    2 more in this session: --within {many.id[:8]}" in out

    def test_shows_one_text_once(self, backstory: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same text in several places is shown once, with their number."""
        monkeypatch.setenv("HOME", str(tmp_path))
        for name in ("a", "b", "c"):
            Transcript(name).prompt("the quokka smiles").answer("Yes.").write(tmp_path)

        out = backstory("search", "quokka").out

        assert out.count("you  the quokka smiles") == 1
        assert "the same text in 2 more hits" in out

    def test_a_quoted_argument_is_a_phrase(self, world: World, backstory: Program) -> None:
        """The shell eats the quotes. Where nothing has the phrase, its words are searched, and a warning says so."""
        exact = backstory("search", "an hour behind")
        words = backstory("search", "behind an hour")

        assert (exact.code, exact.err) == (0, "")
        assert "an hour behind" in exact.out
        assert words.err == "warning: Nothing has the exact phrase; these results have its words.\n"
        assert "an hour behind" in words.out

    def test_json_is_the_tools_answer(self, world: World, backstory: Program) -> None:
        """One document, with the options as the tool's arguments."""
        options = ["-n", "3", "--type", "tool_call", "--type", "user_input", "--project", "shop"]
        result = backstory("search", "login", *options, "--source", "claude-code", "--since", "3d", "--json")

        assert result.err == ""
        request = result.json["request"]
        assert (request["query"], request["n_hits"]) == ("login", 3)
        assert request["event_types"] == ["user_input", "tool_call"]
        assert (request["project"], request["source"]) == ("shop", "claude-code")
        assert {hit["event"]["type"] for hit in result.json["data"]["results"]} == {"user_input", "tool_call"}

    def test_within_takes_handles(self, world: World, backstory: Program) -> None:
        """A session or one of its turns."""
        short = world.login.id[:8]

        assert backstory("search", "docs", "--within", short, "--json").json["data"]["result_count"] == 2
        assert backstory("search", "docs", "--within", f"{short}:1", "--json").json["data"]["result_count"] == 0

    def test_within_an_event_is_wrong(self, world: World, backstory: Program) -> None:
        """The tool says so, and the request was the mistake."""
        event = backstory("search", "docs", "--json").json["data"]["results"][0]["id"]

        result = backstory("search", "docs", "--within", event)

        assert (result.code, result.out) == (2, "")
        assert result.err == "error: within_id accepts session and turn IDs, not event IDs\n"

    def test_within_nothing(self, world: World, backstory: Program) -> None:
        """As with open: what it is called, and where ids are shown."""
        result = backstory("search", "docs", "--within", "bogus")

        assert (result.code, result.out) == (1, "")
        assert result.err == f"error: No session, turn or event matches 'bogus'; {SHOWN}\n"
        empty = backstory("search", "docs", "--within", "")
        assert (empty.code, empty.out) == (1, ""), "an empty variable of a script does not search everywhere"

    def test_times_limit(self, world: World, backstory: Program) -> None:
        """Since and until, in words."""
        assert backstory("search", "old", "--until", "1y", "--json").json["data"]["result_count"] == 2
        assert backstory("search", "old", "--since", "1y", "--json").json["data"]["result_count"] == 0
        edges = ("--since", "0001-01-01T00:00:00+14:00", "--until", "9999-12-31")
        assert backstory("search", "old", *edges, "--json").json["data"]["result_count"] == 2

    def test_nothing_found_is_no_failure(self, world: World, backstory: Program) -> None:
        """An empty answer is an answer."""
        assert backstory("search", "zyzzyva") == (0, "", "")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "Missing argument 'WORDS...'"),
            (["x", "-n", "0"], "Invalid value for '-n'"),
            (["x", "-n", "51"], "Invalid value for '-n'"),
            (["x", "--type", "unknown"], "Invalid value for '--type'"),
            (["x", "--since", "soon"], "'soon' is not a time"),
            (["x", "--colour"], "No such option '--colour'"),
            (["  "], "query must be a non-empty string"),
        ],
    )
    def test_wrong_usage(self, world: World, backstory: Program, arguments: list[str], message: str) -> None:
        """One line on stderr that says what is wrong, exit code 2."""
        result = backstory("search", *arguments)

        assert (result.code, result.out) == (2, "")
        assert message in result.err
        assert result.err.count("\n") == 1

    def test_types_are_those_of_the_model(self) -> None:
        """They are written out for the sake of a fast start, and must not drift."""
        assert tuple(map(str, SEARCHABLE_TYPES)) == TYPES
        assert tuple(map(str, MODEL_DEFAULT_TYPES)) == DEFAULT_TYPES


class TestOpen:
    def test_a_session(self, world: World, backstory: Program) -> None:
        """Each turn with its handle, what was asked and what was answered."""
        lines = backstory("open", session_id(f"claude-code/{world.login.id}")).out.splitlines()

        assert lines[0] == "The login test is flaky, find out why"
        assert re.fullmatch(r"claude-code · /home/dev/shop · .*, 2 hours ago · 2 turns · 6 events", lines[1])
        assert lines[2] == f"cd /home/dev/shop && claude --resume {world.login.id}"
        assert re.search(rf"^{world.login.id[:8]}:1 · .* · 4 events · Bash$", "\n".join(lines), re.MULTILINE)
        assert lines[-4:][1] == "    And the docs?"
        assert lines[-1] == "    The docs mention the clock now."

    def test_a_turn(self, world: World, backstory: Program) -> None:
        """Each call with the argument that matters, and its output under it."""
        out = backstory("open", turn_id(f"claude-code/{world.login.id}", 1)).out

        assert re.search(r"^Bash  pytest tests/test_login.py\n    event:[\w-]{22}.*\n    FAILED test_login", out, re.M)

    def test_full_shows_all_events(self, world: World, backstory: Program) -> None:
        """Of a session, tool calls and outputs too."""
        assert "FAILED test_login" not in backstory("open", world.login.id).out
        assert "FAILED test_login" in backstory("open", world.login.id, "--full").out

    def test_markdown(self, world: World, backstory: Program) -> None:
        """A document of its own; with --full also arguments and outputs, in fences."""
        brief = backstory("open", world.login.id, "--md").out
        whole = backstory("open", world.login.id, "--md", "--full").out

        assert brief.startswith("# The login test is flaky, find out why\n\n- agent: claude-code\n")
        assert "### You\n\nAnd the docs?\n" in brief
        assert "**Bash** `pytest tests/test_login.py`\n" in brief
        assert "FAILED" not in brief
        assert "```\nFAILED test_login: token expired\n```" in whole

    def test_an_event(self, world: World, backstory: Program) -> None:
        """Its whole text."""
        event = backstory("search", "pytest", "--type", "tool_call", "--json").json["data"]["results"][0]["id"]

        out = backstory("open", event).out

        assert "call Bash" in out
        assert "pytest tests/test_login.py" in out

    def test_by_prefix(self, world: World, backstory: Program) -> None:
        """The start of the agent's own id, with or without its source, and a turn's number."""
        expected = backstory("open", session_id(f"claude-code/{world.cache.id}")).out

        for given in (world.cache.id, world.cache.id[:6], f"claude-code/{world.cache.id[:6]}"):
            assert backstory("open", given).out == expected
        assert "turn 1" in backstory("open", f"{world.cache.id[:6]}:1").out

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (
                "nonsense",
                "No session, turn or event matches 'nonsense'; backstory search and backstory sessions show ids",
            ),
            (
                "event:nonsense",
                "No session, turn or event matches 'event:nonsense'; backstory search and backstory sessions show ids",
            ),
            ("event:evt_01J9DOESNOTEXIST000000000000", "event not found"),
            ("event:AAAAAAAAAAAAAAAAAAAAAA", "event not found"),
            (session_id("codex/none"), "session not found"),
            (turn_id("codex/none", 1), "turn not found"),
        ],
    )
    def test_what_is_not_there(self, world: World, backstory: Program, given: str, message: str) -> None:
        """Exit code 1 and one line that says so."""
        assert backstory("open", given) == (1, "", f"error: {message}\n")

    def test_json_has_the_tools_error(self, world: World, backstory: Program) -> None:
        """A script gets the same document an agent gets."""
        result = backstory("open", "nonsense", "--json")

        assert result.code == 1
        assert result.json["error"]["code"] == "invalid_id"

    def test_json_is_the_tools_answer(self, world: World, backstory: Program) -> None:
        """With all turns."""
        opened = backstory("--json", "open", world.login.id[:8]).json

        assert opened["schema_version"] == "moraine.mcp.open.v1"
        assert [turn["ordinal"] for turn in opened["data"]["turns"]] == [1, 2]


class TestHostileText:
    def test_does_not_reach_the_terminal(
        self, backstory: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Escapes and what turns text around are gone from titles, snippets and content."""
        monkeypatch.setenv("HOME", str(tmp_path))
        evil = "echidna \x1b]0;owned\x07\x1b[31m red \u202e desrever \x9b2J [bold]markup[/bold] :smile:"
        transcript = Transcript("evil").prompt(evil).answer(evil)
        transcript.write(tmp_path)

        shown = [
            backstory("search", "echidna"),
            backstory("sessions", "--since", "9y"),
            backstory("open", transcript.id),
        ]

        for result in shown:
            assert "echidna" in result.out
            assert "[bold]markup[/bold] :smile:" in result.out
            assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(result.out)


class TestSessions:
    def test_lists_the_last_30_days(self, world: World, backstory: Program) -> None:
        """Newest first, each with its project, its time and the command that resumes it."""
        lines = backstory("sessions").out.splitlines()

        assert lines[0] == "The login test is flaky, find out why"
        assert re.fullmatch(r"  claude-code · /home/dev/shop · .*, 2 hours ago · 2 turns · 6 events", lines[1])
        assert lines[2] == f"  cd /home/dev/shop && claude --resume {world.login.id}"
        assert lines[3] == "Make the cache faster"
        assert len(lines) == 6

    def test_options(self, world: World, backstory: Program) -> None:
        """Window, mode, order, project and source are the tool's."""

        def titles(*options: str) -> list[str]:
            listed = backstory("sessions", "--json", *options).json["data"]["sessions"]
            return [entry["session"]["title"].split()[0] for entry in listed]

        assert titles("--since", "2y") == ["The", "Make", "An"]
        assert titles("--since", "2y", "--sort", "asc") == ["An", "Make", "The"]
        assert titles("--since", "2y", "--until", "1y") == ["An"]
        assert titles("--since", "0001-01-01", "--until", "9999-12-31") == ["The", "Make", "An"]
        assert titles("--until", "0001-01-01") == []
        assert titles("--until", "9999-12-31") == titles()
        assert titles() != []
        assert titles("--since", "2y", "--limit", "2") == ["The", "Make"]
        assert titles("--mode", "web_search") == ["Make"]
        assert titles("--project", "engine") == ["Make"]
        assert titles("--source", "codex") == []

    def test_joins_pages(self, world: World, backstory: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        """More than the tool gives at once is still one list."""
        monkeypatch.setattr("backstory.faces.cli.search._PAGE", 1)

        data = backstory("sessions", "--since", "2y", "--json").json["data"]

        assert [entry["rank"] for entry in data["sessions"]] == [1, 2, 3]
        assert (data["result_count"], data["limit"], data["next_cursor"], data["truncated"]) == (3, 20, None, False)

    @pytest.mark.parametrize(
        "options",
        [["--since", "1d", "--until", "2d"], ["--mode", "x"], ["--sort", "up"], ["--limit", "0"], ["--until", "?"]],
    )
    def test_wrong_usage(self, world: World, backstory: Program, options: list[str]) -> None:
        """Refused before anything is asked."""
        result = backstory("sessions", *options)

        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)

    def test_modes_are_those_of_the_archive(self) -> None:
        """They are written out for the sake of a fast start, and must not drift."""
        assert get_args(Mode) == MODES
