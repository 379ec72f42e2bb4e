"""Counts of prompts, tool calls and tokens, made in the plainest way from the raw records of agents.

They share no code with the sources and know nothing of sessions, turns or state.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

Record = dict[str, Any]


class Count(NamedTuple):
    prompts: int
    calls: int
    output: int


def raw(path: Path) -> list[Record]:
    found = []
    for line in path.read_text("utf-8", "replace").splitlines():
        try:
            records = json.loads(f"[{line.replace('}{', '},{')}]")  # some writers forget a newline
        except ValueError:
            continue
        found += [record for record in records if isinstance(record, dict)]
    return found


def blocks(content: Any) -> list[Record]:
    content = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [block for block in content or [] if isinstance(block, dict)]


def text(content: Any) -> str:
    return "".join(str(block.get("text") or block.get("type", "")) for block in blocks(content)).strip()


def count_gemini(records: list[Record], path: Path) -> Count:
    if path.suffix == ".json":
        records = json.loads(path.read_text())["messages"]
    written = [record for record in records if "type" in record]
    snapshots = [message for record in records for message in record.get("$set", {}).get("messages", [])]
    messages: dict[str, Record] = {}
    for number, message in enumerate((*snapshots, *written)):
        name = message.get("id", str(number))
        messages[name] = messages.get(name, {}) | message
    users = [text(message.get("content")) for message in messages.values() if message["type"] == "user"]
    calls = {str(call.get("id", call)) for message in messages.values() for call in message.get("toolCalls", [])}
    tokens = [message.get("tokens") or {} for message in messages.values()]
    prompts = sum(bool(said) and not said.startswith("<session_context>") for said in users)
    return Count(prompts, len(calls), sum(one.get("output", 0) + one.get("thoughts", 0) for one in tokens))


def count_qwen(records: list[Record], path: Path) -> Count:
    parts = [part for record in records for part in (record.get("message") or {}).get("parts") or []]
    users = [r for r in records if r["type"] == "user" and r.get("subtype") not in ("notification", "cron")]
    prompts = sum(any("text" in part or "inlineData" in part for part in r["message"].get("parts", [])) for r in users)
    usages = [r["usageMetadata"] for r in records if r["type"] == "assistant" and "usageMetadata" in r]
    counts = ("totalTokenCount", "promptTokenCount", "candidatesTokenCount")
    output = sum(max(t - p, c) for t, p, c in ([u.get(name, 0) for name in counts] for u in usages))
    return Count(prompts, sum("functionCall" in part for part in parts), output)


def count_copilot(records: list[Record], path: Path) -> Count:
    data = [(record["type"], record.get("data") or {}) for record in records]
    users = [d for kind, d in data if kind == "user.message" and d.get("content")]
    requested = {
        r["toolCallId"] for kind, d in data if kind == "assistant.message" for r in d.get("toolRequests") or []
    }
    started = {d["toolCallId"] for kind, d in data if kind == "tool.execution_start"}
    by_message = sum(d.get("outputTokens") or 0 for kind, d in data if kind == "assistant.message")
    by_record = sum(d["usage"]["outputTokens"] for kind, d in data if kind == "session.usage_record")
    last: Record = next((d for kind, d in reversed(data) if kind == "session.shutdown"), {})
    total = sum(m["usage"]["outputTokens"] for m in (last.get("modelMetrics") or {}).values())
    prompts = sum(not str(d.get("source")).startswith("skill") for d in users)
    return Count(prompts, len(requested | started), max(by_message + by_record, total))


def count_pi(records: list[Record], path: Path) -> Count:
    messages = [record["message"] for record in records if record["type"] == "message"]
    prompts = sum(message["role"] == "user" and bool(text(message["content"])) for message in messages)
    answers = [message for message in messages if message["role"] == "assistant"]
    calls = sum(block["type"] == "toolCall" for message in answers for block in blocks(message["content"]))
    return Count(prompts, calls, sum((message.get("usage") or {}).get("output", 0) for message in answers))


def count_kimi(records: list[Record], path: Path) -> Count:
    wire = [record["message"] for record in records if "type" not in record]
    turns = [r for r in records if r.get("type") in ("turn.prompt", "turn.steer") and text(r.get("input"))]
    kinds = ("user", "system_trigger") if path.parent.name.startswith("agent-") else ("user",)
    prompts = sum(turn.get("origin", {}).get("kind", "user") in kinds for turn in turns)
    if not turns:
        context = [r["message"] for r in records if r.get("type") == "context.append_message"]
        prompts = sum(message["role"] == "user" and "origin" not in message for message in context)
    prompts += sum(message["type"] == "TurnBegin" for message in wire)
    loop = [record["event"] for record in records if record.get("type") == "context.append_loop_event"]
    calls = sum(event["type"] == "tool.call" for event in loop) + sum(m["type"] == "ToolCall" for m in wire)
    output = sum(event["usage"]["output"] for event in loop if event["type"] == "step.end" and "usage" in event)
    output += sum(m["payload"]["token_usage"]["output"] for m in wire if m["type"] == "StatusUpdate")
    return Count(prompts, calls, output)


def count_droid(records: list[Record], path: Path) -> Count:
    messages = [record["message"] for record in records if record["type"] == "message"]
    spoken = [b for m in messages if m["role"] == "user" for b in blocks(m["content"]) if b["type"] == "text"]
    prompts = sum(not b["text"].startswith("<system-reminder>") for b in spoken)
    calls = sum(block["type"] == "tool_use" for m in messages for block in blocks(m["content"]))
    settings = path.with_suffix(".settings.json")
    usage = json.loads(settings.read_text())["tokenUsage"] if settings.exists() else {}
    return Count(prompts, calls, usage.get("outputTokens", 0))


def count_grok(records: list[Record], path: Path) -> Count:
    if path.name != "updates.jsonl":
        users = [r for r in records if (r.get("type") or r.get("role")) == "user"]
        prompts = sum(r.get("synthetic_reason") in (None, "interjection") for r in users)
        calls = sum(len(r.get("tool_calls") or []) + (r.get("type") == "backend_tool_call") for r in records)
        return Count(prompts, calls, 0)
    updates = [record["params"]["update"] for record in records]
    prompts = sum(update["sessionUpdate"] == "user_message_chunk" for update in updates)
    calls = sum(update["sessionUpdate"] == "tool_call" for update in updates)
    return Count(prompts, calls, sum((update.get("usage") or {}).get("outputTokens", 0) for update in updates))


def count_gptme(records: list[Record], path: Path) -> Count:
    answers = [record for record in records if record["role"] == "assistant"]
    calls = sum(line.startswith("@") and "):" in line for r in answers for line in r["content"].splitlines())
    output = sum(record.get("metadata", {}).get("usage", {}).get("output_tokens", 0) for record in answers)
    return Count(sum(record["role"] == "user" for record in records), calls, output)


def count_vibe(records: list[Record], path: Path) -> Count:
    prompts = sum(record["role"] == "user" and not record.get("injected") for record in records)
    meta = path.with_name("meta.json")
    stats = json.loads(meta.read_text())["stats"] if meta.exists() else {}
    calls = sum(len(record.get("tool_calls") or []) for record in records)
    return Count(prompts, calls, stats.get("session_completion_tokens", 0))


def count_cursor(records: list[Record], path: Path) -> Count:
    said = [(r["role"], blocks(r["message"]["content"])) for r in records if "role" in r]
    prompts = sum(role == "user" and any(b["type"] == "text" for b in found) for role, found in said)
    return Count(prompts, sum(b["type"] in ("tool_use", "tool_call") for _, found in said for b in found), 0)


def count_antigravity(records: list[Record], path: Path) -> Count:
    users = [
        r for r in records if r.get("type", "USER_INPUT") == "USER_INPUT" and str(r["source"]).upper()[:4] == "USER"
    ]
    return Count(len(users), sum(len(r.get("tool_calls") or []) for r in records), 0)


def count_envelope(records: list[Record], path: Path) -> Count:
    found = [(r["type"], b) for r in records if "message" in r for b in blocks(r["message"]["content"])]
    calls = {block["id"] for _, block in found if block["type"] == "tool_use"}
    prompts = sum(kind == "user" and block["type"] == "text" for kind, block in found)
    return Count(prompts, len(calls), 0)
