"""Records that are no conversation: skipped before they are decoded, dating nothing, and the costs that they hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from claude_code_transcript import SESSION, Records, call, events, feed, feed_with_restarts, write

from backstory.library import Library
from backstory.sources.base import Item, Usage
from backstory.sources.claude_code.source import ClaudeCode

FOLDER = Path(__file__).parent / "claude_code"
LINES = [line for path in sorted(FOLDER.rglob("*.jsonl")) for line in path.read_bytes().splitlines()]
MODEL = "claude-opus-5-5"


def line(record: dict[str, Any]) -> bytes:
    return msgspec.json.encode(record)


def request(**more: Any) -> dict[str, Any]:
    return {"type": "api-request-blob", "sessionId": SESSION, "hash": "b10b", **more}


def cost_state(*tokens: int, dollars: float = 0.0, model: str = MODEL) -> dict[str, Any]:
    fresh, output, read, written = tokens
    counts = {"inputTokens": fresh, "outputTokens": output, "cacheReadInputTokens": read}
    counts |= {"cacheCreationInputTokens": written, "cacheCreationEphemeral5mInputTokens": written}
    return {"type": "cost-state", "sessionId": SESSION, "modelUsage": {model: {**counts, "costUSD": dollars}}}


def answer(r: Records, text: Any, *tokens: int, stop: str | None = "end_turn") -> Any:
    fresh, output, read, written = tokens
    usage = {"input_tokens": fresh, "output_tokens": output, "cache_read_input_tokens": read}
    return r.assistant(
        text, stop=stop, message={"model": MODEL, "usage": {**usage, "cache_creation_input_tokens": written}}
    )


def compactions(items: list[Item]) -> list[Usage]:
    """Usage that no answer has."""
    said = {event.usage_key for event in events(items)}
    return [item for item in items if isinstance(item, Usage) and item.key not in said]


class TestSkippedLines:
    def test_only_what_tells_nothing(self) -> None:
        """Whatever is skipped undecoded would have given nothing."""
        skipped = [found for found in LINES if ClaudeCode().skips(found)]
        assert len(skipped) > 20
        assert events(feed(map(msgspec.json.decode, skipped))) == []

    def test_most_of_the_bytes(self) -> None:
        """Requests and system prompts are recognised by their beginning."""
        r = Records()
        snapshot = {"type": "prompt_snapshot", "systemPrompt": ["x" * 9000]}
        for record in (
            request(message={"role": "user", "content": 'says "parentUuid": and "sessionId":'}),
            {"type": "api-request-shape", "sessionId": SESSION, "shape": {}},
            {"type": "tools-used", "tools": ["Bash"], "sessionId": SESSION},
            {"parentUuid": None, "isSidechain": False, "attachment": snapshot, **r.record("attachment")},
        ):
            assert ClaudeCode().skips(line(record))

    def test_conversation_is_never_skipped(self) -> None:
        """Neither records that speak of bookkeeping, nor titles, costs and prompts."""
        r = Records()
        attachment = '"attachment":{"type":"prompt_snapshot"'
        for record in (
            r.user('{"type":"api-request",'),
            r.user(attachment),
            {"type": "user", "message": {"role": "user", "content": attachment}, "uuid": "u"},
            cost_state(1, 1, 1, 1),
            {"type": "custom-title", "customTitle": "x", "sessionId": SESSION},
            r.queue("enqueue", "x"),
        ):
            assert not ClaudeCode().skips(line(record))

    def test_two_records_on_one_line(self, tmp_path: Path) -> None:
        """A prompt glued to a request, whole or torn, is read."""
        r = Records()
        blob = line(request(message={"role": "user", "content": "x"}))
        glued = [blob + line(r.user("one")), blob[:70] + line(r.user("two")), blob[:20] + line(r.user("three"))]
        snapshot = line(r.attachment("prompt_snapshot", systemPrompt=["x"]))
        glued += [snapshot + line(r.user("four")), snapshot[:-30] + line(r.user("five"))]
        path = tmp_path / ".claude" / "projects" / "-home-ada-shop" / f"{SESSION}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"\n".join([line(r.user("zero")), *glued, b""]))
        with Library(tmp_path / "backstory", agents_home=tmp_path, environ={}) as library:
            library.sync()
            yielded = [turn.prompt for turn in library.archive.turns(f"claude-code/{SESSION}")]
        assert len(yielded) == 6

    def test_another_order_of_keys(self) -> None:
        """A request that is not recognised undecoded says nothing either."""
        assert events(feed([{"sessionId": SESSION, "hash": "b10b", "type": "api-request-blob"}])) == []


class TestTime:
    def test_records_without_a_time(self, tmp_path: Path) -> None:
        """An unknown record without a time is dated by the conversation, not by the file."""
        r = Records()
        novelty = {"type": "novelty", "sessionId": SESSION}
        records = [novelty, r.user("go"), r.assistant("Done.", stop="end_turn"), {**novelty, "n": 2}]
        path = write(tmp_path / ".claude" / "projects" / "-home-ada-shop" / f"{SESSION}.jsonl", records)
        os.utime(path, (1_900_000_000, 1_900_000_000))
        with Library(tmp_path / "backstory", agents_home=tmp_path, environ={}) as library:
            library.sync()
            (turn,) = library.archive.turns(f"claude-code/{SESSION}")
            assert (turn.updated_at - turn.started_at, turn.event_count) == (1000, 4)


class TestForks:
    def test_no_turn_of_its_own_before_the_copies(self, tmp_path: Path) -> None:
        """A fork has the turns that it adds, also when something unknown stands before what it copies."""
        r = Records()
        shared = [r.user("go"), r.assistant("Done.", stop="end_turn")]
        fork = "f0ffee00-0000-4000-8000-00000000000f"
        folder = tmp_path / ".claude" / "projects" / "-home-ada-shop"
        write(folder / f"{SESSION}.jsonl", shared)
        copies = [{**record, "sessionId": fork} for record in shared]
        own = [{**r.user("and now?"), "sessionId": fork}, {**r.assistant("Now.", stop="end_turn"), "sessionId": fork}]
        write(folder / f"{fork}.jsonl", [{"type": "novelty", "sessionId": fork}, *copies, *own])
        with Library(tmp_path / "backstory", agents_home=tmp_path, environ={}) as library:
            library.sync()
            archive = library.archive
            (turn,) = archive.turns(f"claude-code/{fork}")
            texts = [event.text for event in archive.events(f"claude-code/{fork}", 1)]
        assert texts[1:] == ["and now?", "Now."]
        assert turn.completed


class TestCosts:
    """The model call of a compaction stands in the running totals alone."""

    def test_compaction_alone(self) -> None:
        """The growth of the totals, with its cost, at the time of the compaction."""
        r = Records()
        records = [r.user("go"), answer(r, "Done.", 1000, 50, 300, 40), cost_state(1000, 50, 300, 40, dollars=0.5)]
        boundary = r.system("compact_boundary", content="Conversation compacted")
        records += [boundary, cost_state(2000, 90, 1000, 90, dollars=0.75)]
        records += [cost_state(2000, 90, 1000, 90, dollars=0.75)]
        (yielded,) = compactions(feed(records))
        assert (yielded.input_tokens, yielded.output_tokens, yielded.cache_read_tokens) == (1750, 40, 700)
        assert (yielded.cache_write_5m_tokens, yielded.model, yielded.cost) == (50, MODEL, 0.25)
        assert yielded.ts == events(feed([boundary]))[0].ts
        assert feed(records) == feed_with_restarts(records)

    def test_compaction_within_a_run(self) -> None:
        """Less what the transcript records; the cost is left to be computed. An aborted call is in no total."""
        r = Records()
        records = [r.user("go"), answer(r, "Done.", 1000, 50, 300, 40)]
        records += [r.system("compact_boundary", content="Conversation compacted"), r.user("on")]
        records += [answer(r, "More.", 1000, 50, 300, 40), answer(r, "I am", 900, 1, 0, 0, stop=None)]
        (yielded,) = compactions(feed([*records, cost_state(3000, 140, 600, 80, dollars=1.0)]))
        assert (yielded.input_tokens, yielded.output_tokens, yielded.cost) == (1000, 40, None)

    @pytest.mark.parametrize("more", [[], [call("Agent", "toolu_9", prompt="x")]])
    def test_nothing_to_tell(self, more: list[Any]) -> None:
        """Without a compaction, or with a subagent, whose calls stand elsewhere, nothing is yielded."""
        r = Records()
        records = [r.user("go"), answer(r, "Done.", 1000, 50, 300, 40)]
        if more:
            records += [r.system("compact_boundary", content="x"), r.assistant(*more, stop="tool_use")]
        assert compactions(feed([*records, cost_state(5000, 500, 500, 500)])) == []

    @pytest.mark.parametrize("usage", [None, [], {MODEL: 7}, {MODEL: {"inputTokens": "x", "costUSD": "y"}}, {"": {}}])
    def test_hostile_totals(self, usage: Any) -> None:
        """Totals that make no sense, or less than the transcript has, say nothing."""
        r = Records()
        records = [answer(r, "Done.", 1000, 50, 300, 40), r.system("compact_boundary", content="x")]
        records.append({"type": "cost-state", "sessionId": SESSION, "modelUsage": usage})
        assert compactions(feed(records)) == []

    def test_a_fork_names_the_same_call(self) -> None:
        """A copied compaction is the same model call."""
        r = Records()
        boundary, state = r.system("compact_boundary", content="x"), cost_state(10, 20, 30, 40)
        records = [answer(r, "Done.", 1, 1, 1, 1), boundary, state]
        copies = [{**record, "sessionId": "another"} for record in records]
        assert len(compactions(feed(records))) == 1
        assert compactions(feed(records)) == compactions(feed(copies))

    def test_a_fork_that_begins_with_the_compaction(self) -> None:
        """The totals go further back than the file: they say nothing of the compaction."""
        r = Records()
        boundary = r.system("compact_boundary", content="x")
        assert compactions(feed([boundary, answer(r, "Done.", 1, 1, 1, 1), cost_state(10, 20, 30, 40)])) == []


class TestHeadless:
    def test_prompts_of_a_headless_run(self) -> None:
        """They all go through the queue: none was typed while the agent worked."""
        r = Records()
        records = [r.queue("enqueue", "go"), r.queue("dequeue"), r.user("go", promptSource="sdk", turnOrigin="sdk")]
        (event,) = events(feed(records))
        assert (event.text, event.starts_turn, event.extra) == ("go", True, None)
