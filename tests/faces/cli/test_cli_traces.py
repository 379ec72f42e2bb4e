"""`backstory traces` and `backstory usage`."""

from __future__ import annotations

from typing import Any

import click
import pytest

from backstory.faces.cli.expressions import parse_expression
from backstory.faces.cli.trace_text import count, dollars

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

    @pytest.mark.parametrize(
        ("arguments", "code", "says"),
        [
            (("search", "nonsense"), 2, "is not a filter"),
            (("search", "statsu=error"), 2, "unknown field 'statsu'"),
            (("search", "name>5"), 2, "compares numbers"),
            (("search", "--sort", "bogus"), 2, "unknown field 'bogus'"),
            (("show", "nothing"), 1, "Trace not found"),
        ],
    )
    def test_wrong(self, world: World, backstory: Program, arguments: tuple[str, ...], code: int, says: str) -> None:
        result = backstory("traces", *arguments)
        assert (result.code, result.out) == (code, "")
        assert says in result.err


class TestUsage:
    """Tokens and cost by what one asks for; the parts add up to the whole."""

    @pytest.mark.parametrize("by", ["day", "project", "model", "agent"])
    def test_adds_up(self, world: World, backstory: Program, by: str) -> None:
        report = backstory("usage", "--by", by, "--json").json
        assert report["total"]["calls"] == 5
        assert report["total"]["input_tokens"] == 5 * 110
        for name in ("calls", "input_tokens", "output_tokens", "cache_read_tokens"):
            assert sum(line[name] for line in report["lines"]) == report["total"][name]
        assert sum(line["cost"] for line in report["lines"]) == pytest.approx(report["total"]["cost"])

    def test_table(self, world: World, backstory: Program) -> None:
        header, *rows = backstory("usage", "--by", "model").out.splitlines()
        assert header.split() == ["model", "calls", "input", "cached", "output", "cost"]
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
        assert backstory("usage", "--project", "ENGINE", "--json").json["total"]["calls"] == 2
        assert backstory("usage", "--source", "codex", "--json").json["total"] == {
            "name": "total", "calls": 0, "input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0,
            "cache_write_tokens": 0, "reasoning_tokens": 0, "cost": None, "unpriced": 0,
        }  # fmt: skip


class TestExpressions:
    """Filters as people write them."""

    @pytest.mark.parametrize(
        ("text", "field", "operator", "value"),
        [
            ("status=error", "status", "eq", "error"),
            ("latency > 1.5s", "latency", "gt", 1500.0),
            ("latency<=250", "latency", "lte", 250),
            ("cost>=$0.5", "totalCost", "gte", 0.5),
            ("tokens!=7", "totalTokens", "ne", 7),
            ("name~a=b", "name", "contains", "a=b"),
            ("name=5", "name", "eq", "5"),
            ('data.metadata.user_id="u 1"', "data.metadata.user_id", "eq", "u 1"),
            ("data.metadata.ok=true", "data.metadata.ok", "eq", True),
            ("model~OPUS", "data.model", "contains", "OPUS"),
        ],
    )
    def test_meaning(self, text: str, field: str, operator: str, value: Any) -> None:
        assert parse_expression(text, of_spans=False) == {"field": field, "operator": operator, "value": value}

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
