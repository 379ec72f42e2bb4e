"""What attributes mean: the GenAI conventions (old and new), OpenInference, Vercel AI SDK, pydantic-ai, OpenLLMetry,
Langfuse, and the agents' own. What is understood is taken out; everything else stays an attribute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ...archive.spans import SpanType
from ...money import Tokens, price

__all__ = ["Meaning", "interpret"]

Attributes = dict[str, Any]

# What to take, and under which names it comes; of several the first counts.
_TAKEN = {
    "model": """
        gen_ai.response.model gen_ai.request.model llm.model_name embedding.model_name ai.response.model
        ai.model.id langfuse.observation.model.name llm.response.model llm.request.model model model_name
    """,
    "input_tokens": """
        gen_ai.usage.input_tokens gen_ai.usage.prompt_tokens gen_ai.aggregated_usage.input_tokens
        llm.token_count.prompt ai.usage.inputTokens ai.usage.promptTokens llm.usage.prompt_tokens input_tokens
        input_token_count
    """,
    "output_tokens": """
        gen_ai.usage.output_tokens gen_ai.usage.completion_tokens gen_ai.aggregated_usage.output_tokens
        llm.token_count.completion ai.usage.outputTokens ai.usage.completionTokens llm.usage.completion_tokens
        output_tokens output_token_count
    """,
    "cache_read": """
        gen_ai.usage.cache_read.input_tokens gen_ai.usage.cache_read_input_tokens
        gen_ai.usage.details.cache_read_tokens gen_ai.usage.details.cache_read_input_tokens
        gen_ai.aggregated_usage.cache_read.input_tokens gen_ai.aggregated_usage.details.cache_read_tokens
        llm.token_count.prompt_details.cache_read ai.usage.cachedInputTokens
        ai.usage.inputTokenDetails.cacheReadTokens cache_read_tokens cached_token_count
        cached_content_token_count
    """,
    "cache_write": """
        gen_ai.usage.cache_creation.input_tokens gen_ai.usage.cache_creation_input_tokens
        gen_ai.usage.details.cache_write_tokens gen_ai.usage.details.cache_creation_input_tokens
        gen_ai.aggregated_usage.cache_creation.input_tokens gen_ai.aggregated_usage.details.cache_write_tokens
        llm.token_count.prompt_details.cache_write ai.usage.inputTokenDetails.cacheWriteTokens
        cache_creation_tokens cache_write_tokens
    """,
    "cache_write_1h": """
        gen_ai.usage.cache_creation.ephemeral_1h_input_tokens gen_ai.usage.details.ephemeral_1h_input_tokens
        cache_creation_1h_tokens
    """,
    "reasoning": """
        gen_ai.usage.reasoning.output_tokens gen_ai.usage.reasoning_tokens gen_ai.usage.details.reasoning_tokens
        llm.token_count.completion_details.reasoning ai.usage.reasoningTokens
        ai.usage.outputTokenDetails.reasoningTokens reasoning_token_count thoughts_token_count
    """,
    "total_tokens": """
        gen_ai.usage.total_tokens llm.token_count.total ai.usage.totalTokens ai.usage.tokens
        llm.usage.total_tokens total_token_count
    """,
    "cost": """
        gen_ai.usage.cost gen_ai.usage.total_cost operation.cost llm.cost.total gen_ai.cost.total cost_usd
    """,
    "stop_reason": """
        gen_ai.response.finish_reasons ai.response.finishReason llm.response.finish_reason
        gen_ai.response.finish_reason stop_reason finish_reasons
    """,
    "input": """
        gen_ai.input.messages pydantic_ai.all_messages all_messages_events input.value ai.prompt.messages
        ai.prompt gen_ai.tool.call.arguments tool_arguments ai.toolCall.args traceloop.entity.input
        langfuse.observation.input gen_ai.prompt user_prompt prompt function_args arguments tool_input
        tool_parameters
    """,
    "output": """
        gen_ai.output.messages output.value ai.response.text ai.response.object final_result
        gen_ai.tool.call.result tool_response ai.toolCall.result traceloop.entity.output
        langfuse.observation.output gen_ai.completion response_text tool_output output
    """,
    "tool_calls": """
        ai.response.toolCalls ai.result.toolCalls
    """,
}
# What to read and leave where it is: people look for it under the name they gave it.
_READ = {
    "provider": """
        gen_ai.provider.name gen_ai.system llm.provider llm.system ai.model.provider
    """,
    "session": """
        session.id gen_ai.conversation.id conversation.id langfuse.session.id session_id conversation_id
        ai.telemetry.metadata.sessionId traceloop.association.properties.session_id langsmith.trace.session_id
        agentmark.session_id
    """,
    "dataset_run": """
        agentmark.dataset_run_id dataset_run_id datasetRunId langfuse.dataset.run.id
    """,
    "trace_name": """
        langfuse.trace.name agentmark.trace_name trace.name
    """,
    "project": """
        cwd workspace.path process.working_directory
    """,
}
# Name -> what it says, and its rank among the names that say the same.
_SLOTS = {
    name: (slot, rank)
    for table in (_TAKEN, _READ)
    for slot, names in table.items()
    for rank, name in enumerate(names.split())
}
_METADATA = (
    "ai.telemetry.metadata.",
    "langfuse.trace.metadata.",
    "langfuse.observation.metadata.",
    "traceloop.association.properties.",
    "langsmith.metadata.",
    "agentmark.metadata.",
    "metadata.",
)
# Messages that are spread over attributes: `<prefix>.<number>.<rest>`.
_SPREAD = {"gen_ai.prompt.": "input", "llm.input_messages.": "input"} | {
    "gen_ai.completion.": "output",
    "llm.output_messages.": "output",
}
_PREFIXES = (*_SPREAD, *_METADATA, "metadata")
_MODEL_OPERATIONS = {"chat", "text_completion", "generate_content", "embeddings", "completion", "responses"}
_MODEL_SUFFIXES = (".doGenerate", ".doStream", ".doEmbed")
_MODEL_KINDS = {"LLM", "EMBEDDING"}


class Meaning(Struct):
    """What a span's attributes say, in one language."""

    type: SpanType = "SPAN"
    model: str | None = None
    tokens: Tokens | None = None
    reasoning: int | None = None
    cost: float | None = None
    cost_reported: bool = False
    stop_reason: str | None = None
    input: Any = None
    output: Any = None
    tool_calls: list[dict[str, Any]] = []
    session: str | None = None
    project: str | None = None
    dataset_run: str | None = None
    trace_name: str | None = None
    metadata: Attributes = {}
    rest: Attributes = {}


def interpret(attributes: Attributes, at: int, *, cache_beside_input: bool = False) -> Meaning:
    """`cache_beside_input`: the sender counts cached tokens beside its input, not in it."""
    said, spread, metadata, rest = _sort_out(attributes)
    meaning = Meaning(type=_type(attributes, said), metadata=metadata, rest=rest)
    if not said and not spread:
        return meaning
    meaning.session = _identity(said.get("session"))
    meaning.project = _identity(said.get("project"))
    meaning.dataset_run = _identity(said.get("dataset_run"))
    meaning.trace_name = _identity(said.get("trace_name"))
    meaning.model = _text(said.get("model"))
    meaning.tokens = _tokens(said, cache_beside_input)
    meaning.reasoning = _count(said.get("reasoning"))
    cost = said.get("cost")
    if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < float("inf"):
        meaning.cost, meaning.cost_reported = float(cost), True
    elif meaning.tokens is not None:
        meaning.cost = price(meaning.model, meaning.tokens, at, _text(said.get("provider")))
    meaning.stop_reason = _stop_reason(said.get("stop_reason"))
    meaning.input, meaning.output = decoded(said.get("input")), decoded(said.get("output"))
    for prefix, parts in spread.items():
        setattr(meaning, _SPREAD[prefix], _gather(parts))
    calls = decoded(said.get("tool_calls"))
    meaning.tool_calls = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return meaning


def _sort_out(attributes: Attributes) -> tuple[Attributes, dict[str, Attributes], Attributes, Attributes]:
    """In one pass, for there are many: what is understood, messages that are spread out, metadata, and the rest."""
    said: Attributes = {}
    ranks: dict[str, int] = {}
    spread: dict[str, Attributes] = {}
    metadata: Attributes = {}
    rest: Attributes = {}
    for name, value in attributes.items():
        if value is None:
            continue
        known = _SLOTS.get(name)
        if known is not None:
            slot, rank = known
            if rank < ranks.get(slot, 1_000):
                said[slot], ranks[slot] = value, rank
            if slot in _READ:
                rest[name] = value
        elif not name.startswith(_PREFIXES):
            rest[name] = value
        elif name == "metadata":
            whole = decoded(value)
            (metadata if isinstance(whole, dict) else rest).update(whole if isinstance(whole, dict) else {name: value})
        elif prefix := next((prefix for prefix in _SPREAD if name.startswith(prefix)), None):
            spread.setdefault(prefix, {})[name.removeprefix(prefix)] = value
        else:
            prefix = next((prefix for prefix in _METADATA if name.startswith(prefix) and name != prefix), "")
            (metadata if prefix else rest)[name.removeprefix(prefix)] = value
    return said, spread, metadata, rest


def _type(attributes: Mapping[str, Any], said: Attributes) -> SpanType:
    operation = attributes.get("gen_ai.operation.name")
    if isinstance(operation, str):
        return "GENERATION" if operation in _MODEL_OPERATIONS else "SPAN"
    kind = attributes.get("openinference.span.kind")
    if isinstance(kind, str):
        return "GENERATION" if kind.upper() in _MODEL_KINDS else "SPAN"
    call = attributes.get("ai.operationId")
    if isinstance(call, str):
        return "GENERATION" if call.endswith(_MODEL_SUFFIXES) else "SPAN"
    kind = attributes.get("langfuse.observation.type")
    if isinstance(kind, str):
        return "GENERATION" if kind == "generation" else "EVENT" if kind == "event" else "SPAN"
    has_tokens = "input_tokens" in said or "output_tokens" in said
    return "GENERATION" if "model" in said and (has_tokens or "llm.request.type" in attributes) else "SPAN"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _identity(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < 1 << 53 else None


def _tokens(said: Attributes, cache_beside_input: bool) -> Tokens | None:
    given, output = _count(said.get("input_tokens")), _count(said.get("output_tokens"))
    if given is None and output is None:
        return None
    read = _count(said.get("cache_read")) or 0
    one_hour = _count(said.get("cache_write_1h")) or 0
    written = max(_count(said.get("cache_write")) or 0, one_hour)
    total = given or 0
    if cache_beside_input or total < read + written:
        total += read + written
    return Tokens(total, output or 0, read, written - one_hour, one_hour)


def _stop_reason(value: Any) -> str | None:
    reason = decoded(value)
    if isinstance(reason, list):
        reason = reason[0] if reason else None
    return _text(reason)


def _gather(spread: Attributes) -> list[Any]:
    """`{"0.message.role": ..., "0.message.tool_calls.0.name": ...}` as messages."""
    tree: Attributes = {}
    for path, value in spread.items():
        *above, last = path.split(".")
        branch = tree
        for part in above:
            inner = branch.setdefault(part, {})
            branch = inner if isinstance(inner, dict) else branch
        branch[last] = decoded(value) if last in ("arguments", "content") else value
    messages = _as_lists(tree)
    return messages if isinstance(messages, list) else [messages]


def _as_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _as_lists(item) for key, item in value.items()}
    if inner and all(key.isascii() and key.isdecimal() for key in inner):
        return [inner[key] for key in sorted(inner, key=int)]
    # OpenInference wraps every element once more.
    if len(inner) == 1 and (only := next(iter(inner))) in ("message", "tool_call", "message_content"):
        return inner[only]
    return inner


def decoded(value: Any) -> Any:
    """JSON that was sent as text."""
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return value
