"""Attributes of many conventions, and their meaning."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backstory.model import EventType
from backstory.prices import Tokens
from backstory.sources.otel.attributes import Meaning, interpret
from backstory.sources.otel.messages import read_messages
from backstory.sources.otel.records import with_fields

NOW = 1_767_225_600_000


def meaning(**attributes: Any) -> Meaning:
    return interpret({name.replace("__", "."): value for name, value in attributes.items()}, NOW)


class TestConventions:
    """Names differ, the meaning does not."""

    @pytest.mark.parametrize(
        "attributes",
        [
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.response.model": "gpt-4o",
                "gen_ai.usage.input_tokens": 100,
                "gen_ai.usage.output_tokens": 7,
                "gen_ai.usage.cache_read.input_tokens": 40,
                "gen_ai.response.finish_reasons": ["stop"],
            },
            {
                "gen_ai.system": "openai",
                "gen_ai.request.model": "gpt-4o",
                "gen_ai.usage.prompt_tokens": 100,
                "gen_ai.usage.completion_tokens": 7,
                "gen_ai.usage.cache_read_input_tokens": 40,
                "llm.usage.total_tokens": 107,
                "gen_ai.response.finish_reason": "stop",
            },
            {
                "openinference.span.kind": "LLM",
                "llm.model_name": "gpt-4o",
                "llm.token_count.prompt": 100,
                "llm.token_count.completion": 7,
                "llm.token_count.prompt_details.cache_read": 40,
                "llm.token_count.total": 107,
                "llm.response.finish_reason": "stop",
            },
            {
                "ai.operationId": "ai.generateText.doGenerate",
                "ai.model.id": "gpt-4o",
                "ai.usage.inputTokens": 100,
                "ai.usage.outputTokens": 7,
                "ai.usage.cachedInputTokens": 40,
                "ai.response.finishReason": "stop",
            },
        ],
        ids=["genai", "genai-old", "openinference", "vercel"],
    )
    def test_model_call(self, attributes: dict[str, Any]) -> None:
        found = interpret(attributes, NOW)
        assert found.type == "GENERATION"
        assert found.model == "gpt-4o"
        assert found.tokens == Tokens(100, 7, 40)
        assert found.stop_reason == "stop"
        assert found.cost == pytest.approx((60 * 2.5 + 40 * 1.25 + 7 * 10) / 1e6)
        assert not found.cost_reported

    def test_totals(self) -> None:
        """A total alone is kept as the total; with one part, the other part is computed from it."""
        for name in ["gen_ai.usage.total_tokens", "llm.token_count.total", "ai.usage.tokens"]:
            alone = interpret({"gen_ai.request.model": "gpt-4o", name: 120}, NOW)
            assert (alone.type, alone.tokens, alone.total_tokens, alone.cost) == ("GENERATION", None, 120, None)
            assert alone.rest == {name: 120}
            beside = interpret({"gen_ai.usage.input_tokens": 100, name: 120}, NOW)
            assert (beside.tokens, beside.total_tokens) == (Tokens(100, 20), None)
            assert interpret({"gen_ai.usage.output_tokens": 20, name: 120}, NOW).tokens == Tokens(100, 20)

    def test_cache_writes(self) -> None:
        for name in ["gen_ai.usage.cache_write.input_tokens", "cache_write_token_count"]:
            assert interpret({"input_token_count": "100", name: 30}, NOW).tokens == Tokens(100, 0, 0, 30)

    def test_what_is_not_shown_as_it_was_sent(self) -> None:
        """Stays an attribute: losing names, other types, counts that were added up."""
        sent = {
            "gen_ai.response.model": 5, "gen_ai.request.model": "gpt-4o", "llm.model_name": "other",
            "gen_ai.usage.input_tokens": "10", "gen_ai.usage.output_tokens": 7, "gen_ai.usage.cost": "much",
            "gen_ai.response.finish_reasons": ["stop", "length"], "input.value": "first", "gen_ai.prompt": "second",
        }  # fmt: skip
        found = interpret(dict(sent), NOW)
        assert (found.model, found.tokens, found.input) == ("gpt-4o", Tokens(10, 7), "first")
        shown = ("gen_ai.request.model", "gen_ai.usage.output_tokens", "input.value")
        assert found.rest == {name: value for name, value in sent.items() if name not in shown}

    def test_text_that_is_nested_too_deep(self) -> None:
        """It stays a text: nobody could work with the data."""
        for depth in (300, 5000):
            text = "[" * depth + "]" * depth
            assert interpret({"input.value": text, "metadata": text}, NOW).input == text

    def test_cache_beside_the_input(self) -> None:
        """Anthropic counts cached tokens beside the input; here the input includes them."""
        given = {"model": "claude-haiku-4-5", "input_tokens": "10", "output_tokens": "5", "cache_read_tokens": "3"}
        assert interpret(dict(given), NOW, cache_beside_input=True).tokens == Tokens(13, 5, 3)
        obvious = {**given, "cache_read_tokens": "300", "cache_creation_tokens": "20"}
        assert interpret(obvious, NOW).tokens == Tokens(330, 5, 300, 20)

    def test_a_reported_cost_wins(self) -> None:
        found = meaning(gen_ai__request__model="gpt-4o", gen_ai__usage__input_tokens=5, operation__cost=0.5)
        assert (found.cost, found.cost_reported) == (0.5, True)

    def test_a_wrapper_is_no_model_call(self) -> None:
        assert meaning(ai__operationId="ai.generateText", ai__usage__promptTokens=5).type == "SPAN"
        assert meaning(gen_ai__operation__name="invoke_agent").type == "SPAN"

    def test_the_rest_is_kept(self) -> None:
        found = interpret({"http.method": "GET", "session.id": "s1", "odd": [1, 2], "metadata.": 1, "x": True}, NOW)
        assert found.rest == {"http.method": "GET", "session.id": "s1", "odd": [1, 2], "metadata.": 1, "x": True}
        assert found.session == "s1"

    def test_metadata(self) -> None:
        found = interpret(
            {
                "ai.telemetry.metadata.userId": "u1",
                "langfuse.trace.metadata.tier": "pro",
                "metadata": '{"team": {"name": "core"}}',
            },
            NOW,
        )
        assert found.metadata == {"userId": "u1", "tier": "pro", "team": {"name": "core"}}
        assert found.rest == {}

    def test_nonsense_counts(self) -> None:
        for bad in [-1, "x", 1.5, True, None, [], 10**30]:
            assert meaning(model="m", input_tokens=bad).tokens is None


class TestMessages:
    """Messages of every shape say the same."""

    EXPECTED = (
        (EventType.USER_INPUT, "hi", None),
        (EventType.TOOL_CALL, "", "ls"),
        (EventType.TOOL_RESPONSE, "a.txt", None),
        (EventType.ASSISTANT_RESPONSE, "done", None),
    )

    @pytest.mark.parametrize(
        "messages",
        [
            [
                {"role": "user", "parts": [{"type": "text", "content": "hi"}]},
                {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "ls", "arguments": {}}]},
                {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "result": "a.txt"}]},
                {"role": "assistant", "parts": [{"type": "text", "content": "done"}]},
            ],
            [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "ls", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "1", "content": "a.txt"},
                {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
            ],
            [
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "ls", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "a.txt"}]},
                {"role": "assistant", "content": "done"},
            ],
            [
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {
                    "role": "assistant",
                    "content": [{"type": "tool-call", "toolCallId": "1", "toolName": "ls", "input": {}}],
                },
                {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "1", "output": "a.txt"}]},
                {"role": "assistant", "content": "done"},
            ],
        ],
        ids=["genai", "openai", "anthropic", "vercel"],
    )
    def test_shapes(self, messages: list[Any]) -> None:
        said = read_messages(messages, EventType.USER_INPUT)
        tools = [entry.tool if entry.type is EventType.TOOL_CALL else None for entry in said]
        assert tuple((entry.type, entry.text, tool) for entry, tool in zip(said, tools, strict=True)) == self.EXPECTED
        assert {entry.call for entry in said if entry.type in (EventType.TOOL_CALL, EventType.TOOL_RESPONSE)} == {"1"}

    def test_spread_over_attributes(self) -> None:
        found = interpret(
            {
                "llm.input_messages.0.message.role": "user",
                "llm.input_messages.0.message.content": "hi",
                "llm.output_messages.0.message.role": "assistant",
                "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "ls",
                "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": json.dumps({"a": 1}),
            },
            NOW,
        )
        assert [entry.text for entry in read_messages(found.input, EventType.USER_INPUT)] == ["hi"]
        (call,) = read_messages(found.output, EventType.ASSISTANT_RESPONSE)
        assert (call.tool, call.arguments) == ("ls", {"a": 1})

    def test_nonsense(self) -> None:
        for value in [None, 5, [None, 3, {}, [], {"role": 7, "content": {"a": 1}}], {}, "", " "]:
            assert read_messages(value, EventType.USER_INPUT) == []


class TestFields:
    def test_values_that_only_compare_equal_are_both_kept(self) -> None:
        """An attribute keeps its name; a field with another value of that name gets a prefix."""
        assert with_fields({"a": True, "b": 1}, {"a": 1, "b": 1}) == {"a": True, "b": 1, "otel.a": 1}
