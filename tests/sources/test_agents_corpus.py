"""Files of real agents and samples of other tools, counted a second time in the plainest way from their raw records.

The counts share no code with the sources and know nothing of sessions, turns or state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from agents_world import events, read, source_named

from backstory.model import EventType
from backstory.sources.base import Usage
from tests import plain_counts as plain
from tests.plain_counts import Count, Record

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
pytestmark = [pytest.mark.corpus, pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the checkout")]


class Agent(NamedTuple):
    source: str
    count_in: Callable[[list[Record], Path], Count]
    patterns: tuple[str, ...]


AGENTS = (
    Agent("gemini-cli", plain.count_gemini, ("agents/gemini-cli/**/session-*", "fixtures/**/gemini/*.json*")),
    Agent(
        "qwen-code",
        plain.count_qwen,
        ("agents/qwen-code/home/.qwen/projects/**/*.jsonl", "fixtures/**/*qwen*/**/*.jsonl"),
    ),
    Agent("copilot-cli", plain.count_copilot, ("**/.copilot/**/events.jsonl", "fixtures/**/*copilot*/**/*.jsonl")),
    Agent("pi", plain.count_pi, ("home/.pi/**/*.jsonl", "agents/pi/**/*.jsonl", "fixtures/**/*pi/*.jsonl")),
    Agent(
        "oh-my-pi",
        plain.count_pi,
        ("agents/oh-my-pi/**/*.jsonl", "fixtures/**/omp/*.jsonl", "fixtures/**/pi-omp*.jsonl"),
    ),
    Agent("kimi-cli", plain.count_kimi, ("agents/kimi-code/**/wire.jsonl", "fixtures/**/*kimi*/**/wire.jsonl")),
    Agent(
        "factory-droid",
        plain.count_droid,
        ("agents/factory-droid/**/*.jsonl", "fixtures/**/droid/session_store*.jsonl"),
    ),
    Agent("grok-build", plain.count_grok, ("agents/grok-build/**/updates.jsonl", "fixtures/**/*grok*/**/*.jsonl")),
    Agent("gptme", plain.count_gptme, ("**/conversation.jsonl",)),
    Agent("mistral-vibe", plain.count_vibe, ("fixtures/**/messages.jsonl",)),
    Agent("cursor", plain.count_cursor, ("fixtures/**/agent-transcripts/**/*.jsonl",)),
    Agent("antigravity", plain.count_antigravity, ("fixtures/**/transcript*.jsonl",)),
    Agent("iflow", plain.count_envelope, ("fixtures/**/iflow/*.jsonl",)),
    Agent("qoder", plain.count_envelope, ("fixtures/**/qoder/**/*.jsonl",)),
    Agent("tabnine", plain.count_gemini, ("fixtures/**/tabnine-cli/**/*.jsonl",)),
)
# Samples of every record there is, with their texts, ids or shapes made up by other tools.
SAMPLERS = ("schema_drift", "malformed", "small.jsonl", "system_telemetry", "agy-future", "session-mcp")


def files_of(agent: Agent) -> Iterator[Path]:
    for path in sorted({path for pattern in agent.patterns for path in CORPUS.glob(pattern)}):
        if path.is_file() and not any(part in str(path) for part in SAMPLERS):
            yield path


def counted(agent: Agent, path: Path) -> Count:
    items = read(source_named(agent.source), path)
    said = {event.uid: event for event in events(items)}.values()
    tokens: dict[bytes, int] = {}
    for item in items:
        if isinstance(item, Usage):
            tokens[item.key] = max(tokens.get(item.key, 0), item.output_tokens)
    prompts = sum(event.type is EventType.USER_INPUT for event in said)
    return Count(prompts, sum(event.type is EventType.TOOL_CALL for event in said), sum(tokens.values()))


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.source)
class TestCounts:
    def test_prompts_calls_and_tokens(self, agent: Agent) -> None:
        """Prompts, tool calls and output tokens of every file are as many as its raw records say."""
        source, read_files = source_named(agent.source), 0
        for path in files_of(agent):
            if source.describe(path, path.read_bytes()[:65_536]) is None:
                continue
            read_files += 1
            assert counted(agent, path) == agent.count_in(plain.raw(path), path), path
        assert read_files
