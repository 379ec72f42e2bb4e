"""Names of attributes by their meaning: the GenAI conventions, OpenInference, Vercel AI SDK, pydantic-ai, OpenLLMetry,
Langfuse, and the agents' own."""

from __future__ import annotations

# What to take, and under which names it comes; of several the first counts.
TAKEN = {
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
READ = {
    "total_tokens": """
        gen_ai.usage.total_tokens llm.token_count.total ai.usage.totalTokens ai.usage.tokens
        llm.usage.total_tokens total_token_count codex.usage.total_tokens
    """,
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
# Name -> its meaning, and its rank among the names of the same meaning.
SLOTS = {
    name: (slot, rank)
    for table in (TAKEN, READ)
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
SPREAD = {"gen_ai.prompt.": "input", "llm.input_messages.": "input"} | {
    "gen_ai.completion.": "output",
    "llm.output_messages.": "output",
}
PREFIXES = (*SPREAD, *METADATA, "metadata")
