"""`backstory traces` and `backstory usage`."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

from backstory.faces.cli.output import count, dollars
from backstory.faces.cli.trace_view import show_trace
from backstory.faces.cli.traces import parse_expression
from tests.transcripts import Transcript

from .conftest import Program, World


class TestTraces:
    """Traces are listed, searched and shown, for people and as the tools' answers."""

    def test_list(self, world: World, backstory: Program) -> None:
        result = backstory("traces", "list")
        assert result.code == 0
        assert "The login test is flaky" in result.out
        assert "success" in result.out
        assert backstory("traces", "list", "--json", "-n", "1").json["count"] == 1
        assert backstory("traces", "list", "--session", world.login.id[:8], "--json").json["count"] == 2
        assert backstory("traces", "list", "--session", f"{world.login.id[:8]}:1", "--json").json["count"] == 2

    def test_search(self, world: World, backstory: Program) -> None:
        found = backstory("traces", "search", "name~cache", "latency>1s", "model~sonnet", "project~engine", "--json")
        assert [item["name"] for item in found.json["items"]] == ["Make the cache faster"]
        assert "Make the cache" in backstory("traces", "search", "name~cache").out
        days = backstory("traces", "search", "created>3d", "--sort", "cost", "--asc", "--json").json
        assert days["total"] == 3

    def test_spans(self, world: World, backstory: Program) -> None:
        result = backstory("traces", "search", "--spans", "name=Bash")
        assert "pytest tests/test_login.py" in result.out
        assert "token expired" in result.out

    def test_show(self, world: World, backstory: Program) -> None:
        result = backstory("traces", "show", f"{world.login.id[:8]}:1")
        lines = result.out.splitlines()
        assert lines[0] == "The login test is flaky, find out why"
        tree = [line.split("  ━")[0].strip(" ━") for line in lines[4:]]
        assert [name.split()[1] for name in tree] == ["turn", "chat", "Bash", "chat"]
        assert all("━" in line for line in lines[4:])
        assert "▸ Bash  pytest tests/test_login.py" in result.out

    def test_show_marks_errors_and_folds_runs(
        self, backstory: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A failure is marked without colour; successful calls of one tool in a row are one line."""
        monkeypatch.setenv("HOME", str(tmp_path))
        transcript = Transcript("runs").prompt("Read all")
        calls: list[tuple[str, dict[str, Any], str, bool]] = [
            ("Read", {"file_path": f"/x/{number}.py"}, "ok", False) for number in range(5)
        ]
        transcript.calls([*calls, ("Bash", {"command": "make"}, "boom", True)])
        transcript.answer("Done.").write(tmp_path)

        whole = backstory("traces", "show", f"{transcript.id}:1").out
        errors = backstory("traces", "show", f"{transcript.id}:1", "--errors").out

        assert "▸ Read ×5" in whole
        assert "✗ Bash  make" in whole
        assert "✗ Bash  make" in errors
        assert "Read" not in errors.splitlines()[4:]
        assert "Read ×5" not in errors

    def test_stats(self, world: World, backstory: Program) -> None:
        """Count, error rate, percentiles, tokens and cost by tool, model or name."""
        tools = {entry["name"]: entry for entry in backstory("traces", "stats", "--json").json["stats"]}
        bash = tools["Bash"]
        assert (bash["count"], bash["errors"], bash["p50"], bash["p95"]) == (1, 0, 1000, 1000)
        assert bash["tokens"] == 115  # of the model call that asked for it
        assert bash["cost"] > 0
        (model,) = backstory("traces", "stats", "--by", "model", "--json").json["stats"]
        assert (model["name"], model["count"], model["tokens"]) == ("claude-sonnet-4-5", 6, 6 * 115)
        assert "chat" in backstory("traces", "stats", "--by", "name").out

    @pytest.mark.parametrize("by", ["tool", "model", "name"])
    def test_stats_keep_the_cost_at_80_columns(
        self, world: World, backstory: Program, monkeypatch: pytest.MonkeyPatch, by: str
    ) -> None:
        for name, value in (("COLUMNS", "80"), ("FORCE_COLOR", "1"), ("TERM", "xterm-256color")):
            monkeypatch.setenv(name, value)
        header, *rows = re.sub(r"\x1b\[[0-9;]*m", "", backstory("traces", "stats", "--by", by).out).splitlines()
        assert header.split()[-2:] == ["tokens", "cost"]
        assert any("$" in row for row in rows)
        assert all(len(line) <= 80 for line in (header, *rows))

    @pytest.mark.parametrize("what", [(), ("--spans",)])
    def test_search_without_a_match_says_so(
        self, world: World, backstory: Program, monkeypatch: pytest.MonkeyPatch, what: tuple[str, ...]
    ) -> None:
        """To a person at a terminal; a script gets nothing."""
        assert backstory("traces", "search", *what, "name=nothing") == (0, "", "")
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        result = backstory("traces", "search", *what, "name=nothing")
        assert (result.code, result.out) == (0, "")
        assert "match" in result.err

    @pytest.mark.parametrize(
        ("arguments", "code", "says"),
        [
            (("search", "nonsense"), 2, "is not a filter"),
            (("search", "statsu=error"), 2, "unknown field 'statsu'"),
            (("search", "name>5"), 2, "compares numbers"),
            (("search", "--sort", "bogus"), 2, "unknown field 'bogus'"),
            (("stats", "--since", "2026-02-01", "--until", "2026-01-01"), 2, "--since must be before --until"),
            (("show", "nothing"), 1, "no trace matches 'nothing'; backstory traces list shows ids"),
        ],
    )
    def test_wrong(self, world: World, backstory: Program, arguments: tuple[str, ...], code: int, says: str) -> None:
        result = backstory("traces", *arguments)
        assert (result.code, result.out) == (code, "")
        assert says in result.err


class TestTree:
    def test_a_span_whose_parent_is_not_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        """It is shown like a root, with the spans below it."""

        def span(id: str, name: str, parent: str, start: int) -> dict[str, Any]:
            data = {"type": "SPAN"}
            times = {"startTime": start, "endTime": start + 10}
            return {"id": id, "parentId": parent, "name": name, "status": "success", "data": data, **times}

        spans = [span("1", "orphan", "0", 0), span("2", "inside", "1", 5)]
        show_trace({"id": "t", "createdAt": "2026-01-01T00:00:00Z", "spans": spans})

        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[1] for line in lines if "▸" in line] == ["orphan", "inside"]


class TestUsage:
    """Tokens and cost in the groups that are asked for; the groups add up to the whole."""

    @pytest.mark.parametrize("by", ["day", "week", "month", "block", "project", "branch", "session", "model", "agent"])
    def test_adds_up(self, world: World, backstory: Program, by: str) -> None:
        report = backstory("usage", "--by", by, "--json").json
        assert report["total"]["calls"] == 5
        assert report["total"]["input_tokens"] == 5 * 110
        for name in ("calls", "input_tokens", "output_tokens", "cache_read_tokens"):
            assert sum(line[name] for line in report["lines"]) == report["total"][name]
        assert sum(line["cost"] for line in report["lines"]) == pytest.approx(report["total"]["cost"])

    def test_names_of_lines(self, world: World, backstory: Program) -> None:
        """Weeks and months by their number, blocks by the full hour they begin with, sessions by title."""

        def names(by: str) -> list[str]:
            return [line["name"] for line in backstory("usage", "--by", by, "--json").json["lines"]]

        assert all(re.fullmatch(r"\d{4}-W\d\d", name) for name in names("week"))
        assert all(re.fullmatch(r"\d{4}-\d\d", name) for name in names("month"))
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:00", name) for name in names("block"))
        assert names("branch") == ["main"]
        assert "The login test is flaky, find out why" in backstory("usage", "--by", "session").out

    def test_a_block_is_five_hours(self, backstory: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The next one begins with the first call after it."""
        monkeypatch.setenv("HOME", str(tmp_path))
        noon = int(datetime(2026, 3, 2, 12, 20, tzinfo=UTC).timestamp() * 1000)
        for name, hours in (("a", 0), ("b", 4.5), ("c", 4.8), ("d", 11)):
            start = noon + int(hours * 3_600_000)
            Transcript(name, start_ms=start).prompt("Hello").answer("Hi.").write(tmp_path)

        lines = backstory("usage", "--by", "block", "--since", "2026-03-01", "--json").json["lines"]

        assert [line["calls"] for line in lines] == [1, 1, 2]

    def test_saved_by_the_cache(self, world: World, backstory: Program) -> None:
        """The difference between the price of plain input and that of cached input."""
        total = backstory("usage", "--json").json["total"]

        # claude-sonnet-4-5: $3 per million input tokens, $0.30 from the cache.
        assert total["saved"] == pytest.approx(total["cache_read_tokens"] * 2.7e-6, abs=1e-6)

    def test_table(self, world: World, backstory: Program) -> None:
        header, *rows = backstory("usage", "--by", "model").out.splitlines()
        assert header.split() == ["model", "calls", "input", "cached", "output", "cost", "saved"]
        assert rows[0].split()[:2] == ["claude-sonnet-4-5", "5"]
        assert rows[-1].startswith("total")

    def test_tools(self, world: World, backstory: Program) -> None:
        tools = backstory("usage", "--by", "tool", "--json").json["tools"]
        assert {(tool["tool"], tool["calls"], tool["tokens"]) for tool in tools} == {
            ("Bash", 1, 115),
            ("WebSearch", 1, 115),
        }
        assert "WebSearch" in backstory("usage", "--by", "tool").out

    def test_window(self, world: World, backstory: Program) -> None:
        assert backstory("usage", "--since", "2y", "--json").json["total"]["calls"] == 6
        assert backstory("usage", "--since", "1d", "--json").json["total"]["calls"] == 3
        assert backstory("usage", "--since", "1d", "--until", "2d", "--json")[:2] == (2, "")
        assert backstory("usage", "--project", "ENGINE", "--json").json["total"]["calls"] == 2
        assert backstory("usage", "--source", "codex", "--json").json["total"] == {
            "name": "total", "calls": 0, "input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0,
            "cache_write_tokens": 0, "reasoning_tokens": 0, "cost": None, "saved": None, "unpriced": 0,
        }  # fmt: skip


class TestExpressions:
    """Filters as people write them."""

    def test_meaning(self) -> None:
        for text, field, operator, value in [
            ("status=error", "status", "eq", "error"),
            ("latency > 1.5s", "latency", "gt", 1500.0),
            ("latency<=250", "latency", "lte", 250),
            ("latency>1d", "latency", "gt", 86_400_000.0),
            ("duration>2m", "latency", "gt", 120_000.0),
            ("cost>=$0.5", "totalCost", "gte", 0.5),
            ("tokens!=7", "totalTokens", "ne", 7),
            ("name~a=b", "name", "contains", "a=b"),
            ("name=5", "name", "eq", "5"),
            ('data.metadata.user_id="u 1"', "data.metadata.user_id", "eq", "u 1"),
            ("data.metadata.ok=true", "data.metadata.ok", "eq", True),
            ("model~OPUS", "data.model", "contains", "OPUS"),
        ]:
            assert parse_expression(text, of_spans=False) == {"field": field, "operator": operator, "value": value}, (
                text
            )

    @pytest.mark.parametrize("text", ["", "status", "=x", "status=", "5>3"])
    def test_none(self, text: str) -> None:
        with click.Context(click.Command("x")), pytest.raises(click.UsageError):
            parse_expression(text, of_spans=True)


class TestAmounts:
    def test_count(self) -> None:
        assert [count(number) for number in (0, 999, 1000, 12_345, 999_949, 999_950, 4_500_000)] == [
            "0", "999", "1.0k", "12.3k", "999.9k", "1.0M", "4.5M",
        ]  # fmt: skip

    def test_dollars(self) -> None:
        assert [dollars(amount) for amount in (None, 0, 0.00123, 1234.5)] == ["—", "$0.00", "$0.0012", "$1,234.50"]
