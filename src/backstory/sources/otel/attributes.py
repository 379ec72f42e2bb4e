"""The meaning of attributes, by their names in the GenAI conventions, OpenInference, Vercel AI SDK, pydantic-ai,
OpenLLMetry, Langfuse, and the agents' own.

Values that a span shows in a field of its own are taken out; all others stay attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ...prices import Tokens, price
from .records import MAX_DEPTH, Attributes, SpanType

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
        gen_ai.usage.cache_write.input_tokens gen_ai.usage.cache_write_input_tokens
        llm.token_count.prompt_details.cache_write ai.usage.inputTokenDetails.cacheWriteTokens
        cache_creation_tokens cache_write_tokens cache_write_token_count
    """,
    "cache_write_1h": """
        gen_ai.usage.cache_creation.ephemeral_1h_input_tokens gen_ai.usage.details.ephemeral_1h_input_tokens
        cache_creation_1h_tokens
    """,
    "reasoning": """
        gen_ai.usage.reasoning.output_tokens gen_ai.usage.reasoning_tokens gen_ai.usage.details.reasoning_tokens
        llm.token_count.completion_details.reasoning ai.usage.reasoningTokens
        ai.usage.outputTokenDetails.reasoningTokens reasoning_token_count thoughts_token_count
        codex.usage.reasoning_output_tokens
    """,
    "cost": "gen_ai.usage.cost gen_ai.usage.total_cost operation.cost llm.cost.total gen_ai.cost.total cost_usd",
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
    "tool_calls": "ai.response.toolCalls ai.result.toolCalls",
}
# What to read and leave where it is: people look for it under the name they gave it.
_READ = {
    "total_tokens": """
        gen_ai.usage.total_tokens llm.token_count.total ai.usage.totalTokens ai.usage.tokens
        llm.usage.total_tokens total_token_count codex.usage.total_tokens
    """,
    "provider": "gen_ai.provider.name gen_ai.system llm.provider llm.system ai.model.provider",
    "session": """
        session.id gen_ai.conversation.id conversation.id langfuse.session.id session_id conversation_id
        ai.telemetry.metadata.sessionId traceloop.association.properties.session_id langsmith.trace.session_id
        agentmark.session_id
    """,
    "dataset_run": "agentmark.dataset_run_id dataset_run_id datasetRunId langfuse.dataset.run.id",
    "trace_name": "langfuse.trace.name agentmark.trace_name trace.name",
    "project": "cwd workspace.path process.working_directory",
}
# Name -> its meaning, and its rank among the names of the same meaning.
SLOTS = {
    name: (slot, rank)
    for table in (_TAKEN, _READ)
    for slot, names in table.items()
    for rank, name in enumerate(names.split())
}
METADATA = (
    "ai.telemetry.metadata.",
    "langfuse.trace.metadata.",
    "langfuse.observation.metadata.",
    "traceloop.association.properties.",
    "langsmith.metadata.",
    "agentmark.metadata.",
    "metadata.",
)
# Messages that are spread over attributes: `<prefix>.<number>.<rest>`.
_SPREAD = {
    "gen_ai.prompt.": "input",
    "llm.input_messages.": "input",
    "gen_ai.completion.": "output",
    "llm.output_messages.": "output",
}
_PREFIXES = (*_SPREAD, *METADATA, "metadata")
_MAX_NAME_CHARS = 1_000
# Meanings that are fields of `Meaning`, with the value that was read.
_AS_READ = frozenset(
    "model reasoning stop_reason input output tool_calls session project dataset_run trace_name".split()
)
_MODEL_OPERATIONS = {"chat", "text_completion", "generate_content", "embeddings", "completion", "responses"}
_MODEL_SUFFIXES = (".doGenerate", ".doStream", ".doEmbed")
_MODEL_KINDS = {"LLM", "EMBEDDING"}


class Meaning(Struct):
    """The attributes of a span, translated from their convention."""

    type: SpanType = "SPAN"
    model: str | None = None
    tokens: Tokens | None = None
    total_tokens: int | None = None
    """Only where no other count was sent."""
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
    found, spread, metadata, rest = _sort_out(attributes)
    meaning = Meaning(metadata=metadata, rest=rest)
    if not found and not spread:
        meaning.type = _type(attributes, {})
        return meaning
    values, names = _choose(found, rest)
    meaning.type = _type(attributes, values)
    for slot in _AS_READ & values.keys():
        setattr(meaning, slot, values[slot])
    meaning.tokens, meaning.total_tokens = _tokens(values, cache_beside_input)
    if "cost" in values:
        meaning.cost, meaning.cost_reported = values["cost"], True
    elif meaning.tokens is not None:
        meaning.cost = price(meaning.model, meaning.tokens, at, values.get("provider"))
    gathered: set[str] = set()
    for prefix, parts in spread.items():
        side, messages = _SPREAD[prefix], _gather(parts)
        if messages is None or side in gathered:
            rest.update({prefix + name: value for name, value in parts.items()})
        else:
            setattr(meaning, side, messages)
            gathered.add(side)
    for slot, name in names.items():
        if not _is_shown(slot, attributes[name], values[slot], meaning):
            rest[name] = attributes[name]
    return meaning


def _sort_out(
    attributes: Attributes,
) -> tuple[dict[str, list[tuple[int, str, Any]]], dict[str, Attributes], Attributes, Attributes]:
    """Attributes by their use, in one pass: known meanings, messages spread over attributes, metadata, and the rest."""
    found: dict[str, list[tuple[int, str, Any]]] = {}
    spread: dict[str, Attributes] = {}
    metadata: Attributes = {}
    rest: Attributes = {}
    for name, value in attributes.items():
        known = SLOTS.get(name)
        if known is not None and value is not None:
            slot, rank = known
            found.setdefault(slot, []).append((rank, name, value))
            if slot in _READ:
                _keep(name, value, metadata, rest)
        elif not name.startswith(_PREFIXES):
            rest[name] = value
        elif prefix := next((prefix for prefix in _SPREAD if name.startswith(prefix)), None):
            spread.setdefault(prefix, {})[name.removeprefix(prefix)] = value
        else:
            _keep(name, value, metadata, rest)
    return found, spread, metadata, rest


def _keep(name: str, value: Any, metadata: Attributes, rest: Attributes) -> None:
    """Put a value among the metadata, without its prefix; of two with the same name the second stays an attribute."""
    prefix = next((prefix for prefix in METADATA if name.startswith(prefix) and name != prefix), "")
    table = {name.removeprefix(prefix): value} if prefix else {}
    if name == "metadata" and isinstance(whole := decoded(value), dict):
        table = whole
    if table and metadata.keys().isdisjoint(table):
        metadata.update(table)
    else:
        rest[name] = value


def _choose(found: dict[str, list[tuple[int, str, Any]]], rest: Attributes) -> tuple[dict[str, Any], dict[str, str]]:
    """For each meaning, the first name with a valid value, and that value."""
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for slot, candidates in found.items():
        read = _READERS[slot]
        for _, name, value in sorted(candidates) if len(candidates) > 1 else candidates:
            if slot not in values and (meaning := read(value)) is not None:
                values[slot] = meaning
                if slot in _TAKEN:
                    names[slot] = name
            elif slot in _TAKEN:
                rest[name] = value
    return values, names


def _is_shown(slot: str, sent: Any, understood: Any, meaning: Meaning) -> bool:
    """True if the span shows a value as it was sent, in a field of its own or among our metadata."""
    tokens, custom = meaning.tokens, meaning.metadata
    match slot:
        case "input" | "output":
            return getattr(meaning, slot) is understood
        case "stop_reason":
            return sent in (understood, [understood]) and "stopReason" not in custom
        case "input_tokens":
            return tokens is not None and type(sent) is int and tokens.input == sent
        case "output_tokens":
            return tokens is not None and type(sent) is int and tokens.output == sent
        case "reasoning":
            return type(sent) is int and "reasoningTokens" not in custom
        case "cache_read":
            return tokens is not None and _is_count(sent, tokens.cache_read) and "cacheReadTokens" not in custom
        case "cache_write":
            written = tokens.cache_write_5m + tokens.cache_write_1h if tokens is not None else 0
            return _is_count(sent, written) and "cacheWriteTokens" not in custom
        case "cache_write_1h":
            return tokens is not None and _is_count(sent, tokens.cache_write_1h) and "cacheWrite1hTokens" not in custom
    return True


def _is_count(sent: Any, shown: int) -> bool:
    """True if a count is shown as it was sent; zero is not shown."""
    return type(sent) is int and sent == shown and sent > 0


def _type(attributes: Mapping[str, Any], values: Attributes) -> SpanType:
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
    has_tokens = not values.keys().isdisjoint(("input_tokens", "output_tokens", "total_tokens"))
    return "GENERATION" if "model" in values and (has_tokens or "llm.request.type" in attributes) else "SPAN"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= _MAX_NAME_CHARS else None


def _identity(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < 1 << 53 else None


def _cost(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 1e15 else None


def _calls(value: Any) -> list[dict[str, Any]] | None:
    calls = decoded(value)
    return calls if isinstance(calls, list) and calls and all(isinstance(call, dict) for call in calls) else None


def _tokens(values: Attributes, cache_beside_input: bool) -> tuple[Tokens | None, int | None]:
    """The tokens, or their total where no other count was sent."""
    given, output, total = values.get("input_tokens"), values.get("output_tokens"), values.get("total_tokens")
    if given is None and output is None:
        return None, total
    if total is not None:
        given = max(total - output, 0) if given is None else given
        output = max(total - given, 0) if output is None else output
    read, one_hour = values.get("cache_read", 0), values.get("cache_write_1h", 0)
    written = max(values.get("cache_write", 0), one_hour)
    all_input = given or 0
    if cache_beside_input or all_input < read + written:
        all_input += read + written
    return Tokens(all_input, output or 0, read, written - one_hour, one_hour), None


def _stop_reason(value: Any) -> str | None:
    reason = decoded(value)
    if isinstance(reason, list):
        reason = reason[0] if reason else None
    return _text(reason)


def _gather(spread: Attributes) -> list[Any] | None:
    """`{"0.message.role": ..., "0.message.tool_calls.0.name": ...}` as messages; None if they contradict each other."""
    tree: Attributes = {}
    made = {id(tree)}  # a value may be a mapping, too
    for path, value in spread.items():
        *above, last = path.split(".")
        branch = tree
        for part in above:
            if part not in branch:
                branch[part] = {}
                made.add(id(branch[part]))
            branch = branch[part]
            if id(branch) not in made:
                return None
        if last in branch:
            return None
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
    """JSON that was sent as text, unless it is nested too deep to be worked with."""
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        data = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return value
    brackets = value.count("{") + value.count("[")
    return value if brackets > MAX_DEPTH and _is_deeper(data, MAX_DEPTH) else data


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    while level and depth:
        level = [inner for item in level for inner in _inner(item)]
        depth -= 1
    return bool(level)


def _inner(value: Any) -> Iterable[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in inner if isinstance(item, dict | list)]


# How a value of each slot is understood; None is no such value.
_READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("model", "provider"), _text),
    **dict.fromkeys(("input_tokens", "output_tokens", "total_tokens", "reasoning"), _count),
    **dict.fromkeys(("cache_read", "cache_write", "cache_write_1h"), _count),
    **dict.fromkeys(("session", "dataset_run", "trace_name", "project"), _identity),
    **dict.fromkeys(("input", "output"), decoded),
    "cost": _cost,
    "stop_reason": _stop_reason,
    "tool_calls": _calls,
}
