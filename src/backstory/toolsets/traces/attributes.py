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

# The first that is there counts; all that are there are taken.
_MODEL = """
gen_ai.response.model gen_ai.request.model llm.model_name embedding.model_name ai.response.model ai.model.id
langfuse.observation.model.name llm.response.model llm.request.model model model_name
""".split()
_PROVIDER = "gen_ai.provider.name gen_ai.system llm.provider llm.system ai.model.provider".split()
_INPUT_TOKENS = """
gen_ai.usage.input_tokens gen_ai.usage.prompt_tokens gen_ai.aggregated_usage.input_tokens llm.token_count.prompt
ai.usage.inputTokens ai.usage.promptTokens llm.usage.prompt_tokens input_tokens input_token_count
""".split()
_OUTPUT_TOKENS = """
gen_ai.usage.output_tokens gen_ai.usage.completion_tokens gen_ai.aggregated_usage.output_tokens
llm.token_count.completion ai.usage.outputTokens ai.usage.completionTokens llm.usage.completion_tokens output_tokens
output_token_count
""".split()
_CACHE_READ = """
gen_ai.usage.cache_read.input_tokens gen_ai.usage.cache_read_input_tokens gen_ai.usage.details.cache_read_tokens
gen_ai.usage.details.cache_read_input_tokens gen_ai.aggregated_usage.cache_read.input_tokens
gen_ai.aggregated_usage.details.cache_read_tokens llm.token_count.prompt_details.cache_read
ai.usage.cachedInputTokens ai.usage.inputTokenDetails.cacheReadTokens cache_read_tokens cached_token_count
cached_content_token_count
""".split()
_CACHE_WRITE = """
gen_ai.usage.cache_creation.input_tokens gen_ai.usage.cache_creation_input_tokens
gen_ai.usage.details.cache_write_tokens gen_ai.usage.details.cache_creation_input_tokens
gen_ai.aggregated_usage.cache_creation.input_tokens gen_ai.aggregated_usage.details.cache_write_tokens
llm.token_count.prompt_details.cache_write ai.usage.inputTokenDetails.cacheWriteTokens cache_creation_tokens
cache_write_tokens
""".split()
_CACHE_WRITE_1H = """
gen_ai.usage.cache_creation.ephemeral_1h_input_tokens gen_ai.usage.details.ephemeral_1h_input_tokens
cache_creation_1h_tokens
""".split()
_REASONING = """
gen_ai.usage.reasoning.output_tokens gen_ai.usage.reasoning_tokens gen_ai.usage.details.reasoning_tokens
llm.token_count.completion_details.reasoning ai.usage.reasoningTokens ai.usage.outputTokenDetails.reasoningTokens
reasoning_token_count thoughts_token_count
""".split()
_TOTALS = """
gen_ai.usage.total_tokens llm.token_count.total ai.usage.totalTokens ai.usage.tokens llm.usage.total_tokens
total_token_count
""".split()
_COST = "gen_ai.usage.cost gen_ai.usage.total_cost operation.cost llm.cost.total gen_ai.cost.total cost_usd".split()
_STOP = """
gen_ai.response.finish_reasons ai.response.finishReason llm.response.finish_reason gen_ai.response.finish_reason
stop_reason finish_reasons
""".split()
_SESSION = """
session.id gen_ai.conversation.id conversation.id langfuse.session.id session_id conversation_id
ai.telemetry.metadata.sessionId traceloop.association.properties.session_id langsmith.trace.session_id
agentmark.session_id
""".split()
_DATASET_RUN = "agentmark.dataset_run_id dataset_run_id datasetRunId langfuse.dataset.run.id".split()
_TRACE_NAME = "langfuse.trace.name agentmark.trace_name trace.name".split()
_PROJECT = "cwd workspace.path process.working_directory".split()
_INPUT = """
gen_ai.input.messages pydantic_ai.all_messages all_messages_events input.value ai.prompt.messages ai.prompt
gen_ai.tool.call.arguments tool_arguments ai.toolCall.args traceloop.entity.input langfuse.observation.input
gen_ai.prompt user_prompt prompt function_args arguments tool_input tool_parameters
""".split()
_OUTPUT = """
gen_ai.output.messages output.value ai.response.text ai.response.object final_result gen_ai.tool.call.result
tool_response ai.toolCall.result traceloop.entity.output langfuse.observation.output gen_ai.completion response_text
tool_output output
""".split()
_TOOL_CALLS = "ai.response.toolCalls ai.result.toolCalls".split()
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
    """`attributes` is used up. `cache_beside_input`: the sender counts cached tokens beside its input, not in it."""
    meaning = Meaning(type=_type(attributes))
    meaning.session = _identity(attributes, _SESSION)
    meaning.project = _identity(attributes, _PROJECT)
    meaning.dataset_run = _identity(attributes, _DATASET_RUN)
    meaning.trace_name = _identity(attributes, _TRACE_NAME)
    meaning.model = _take_text(attributes, _MODEL)
    provider = next((value for name in _PROVIDER if isinstance(value := attributes.get(name), str)), None)
    meaning.tokens = _tokens(attributes, cache_beside_input)
    meaning.reasoning = _count(attributes, _REASONING)
    _take(attributes, _TOTALS)
    cost = _take(attributes, _COST)
    if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < float("inf"):
        meaning.cost, meaning.cost_reported = float(cost), True
    elif meaning.tokens is not None:
        meaning.cost = price(meaning.model, meaning.tokens, at, provider)
    meaning.stop_reason = _stop_reason(attributes)
    _contents(attributes, meaning)
    meaning.metadata = _metadata(attributes)
    meaning.rest = attributes
    return meaning


def _type(attributes: Mapping[str, Any]) -> SpanType:
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
    has_model = any(name in attributes for name in _MODEL)
    has_tokens = any(name in attributes for name in (*_INPUT_TOKENS, *_OUTPUT_TOKENS))
    return "GENERATION" if has_model and (has_tokens or "llm.request.type" in attributes) else "SPAN"


def _take(attributes: Attributes, names: list[str]) -> Any:
    found = None
    for name in names:
        if name in attributes:
            value = attributes.pop(name)
            found = value if found is None else found
    return found


def _take_text(attributes: Attributes, names: list[str]) -> str | None:
    value = _take(attributes, names)
    return value if isinstance(value, str) and value else None


def _identity(attributes: Mapping[str, Any], names: list[str]) -> str | None:
    """Left where it is: people look for it under the name they gave it."""
    for name in names:
        value = attributes.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return str(value)
    return None


def _count(attributes: Attributes, names: list[str]) -> int | None:
    value = _take(attributes, names)
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < 1 << 53 else None


def _tokens(attributes: Attributes, cache_beside_input: bool) -> Tokens | None:
    given, output = _count(attributes, _INPUT_TOKENS), _count(attributes, _OUTPUT_TOKENS)
    read = _count(attributes, _CACHE_READ) or 0
    one_hour = _count(attributes, _CACHE_WRITE_1H) or 0
    written = max(_count(attributes, _CACHE_WRITE) or 0, one_hour)
    if given is None and output is None:
        return None
    total = given or 0
    if cache_beside_input or total < read + written:
        total += read + written
    return Tokens(total, output or 0, read, written - one_hour, one_hour)


def _stop_reason(attributes: Attributes) -> str | None:
    reason = decoded(_take(attributes, _STOP))
    if isinstance(reason, list):
        reason = reason[0] if reason else None
    return reason if isinstance(reason, str) and reason else None


def _contents(attributes: Attributes, meaning: Meaning) -> None:
    for prefix, side in _SPREAD.items():
        names = [name for name in attributes if name.startswith(prefix)]
        if names:
            messages = _gather({name.removeprefix(prefix): attributes.pop(name) for name in names})
            setattr(meaning, side, messages)
    given, answer = decoded(_take(attributes, _INPUT)), decoded(_take(attributes, _OUTPUT))
    meaning.input = given if meaning.input is None else meaning.input
    meaning.output = answer if meaning.output is None else meaning.output
    calls = decoded(_take(attributes, _TOOL_CALLS))
    meaning.tool_calls = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


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


def _metadata(attributes: Attributes) -> Attributes:
    metadata: Attributes = {}
    whole = decoded(attributes.get("metadata"))
    if isinstance(whole, dict):
        del attributes["metadata"]
        metadata.update(whole)
    for name in [name for name in attributes if name.startswith(_METADATA)]:
        prefix = next(prefix for prefix in _METADATA if name.startswith(prefix))
        if key := name.removeprefix(prefix):
            metadata[key] = attributes.pop(name)
    return metadata


def decoded(value: Any) -> Any:
    """JSON that was sent as text."""
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return value
