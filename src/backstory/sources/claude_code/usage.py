"""Tokens of one API message, and of the compaction, which has no record of its own."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from ...model import Digest, digest
from ..base import Usage
from ..fields import text_of

_key = Digest("claude-code")


def usage_key(message: dict[str, Any], record: dict[str, Any], identity: str) -> bytes:
    """The model call: all records of one API message share it, copies in forks too."""
    if message_id := text_of(message, "id"):
        return _key(message_id, text_of(record, "requestId") or "")
    return _key("message", identity)


def read_usage(message: dict[str, Any], record: dict[str, Any], key: bytes) -> Usage | None:
    usage = message.get("usage")
    if not isinstance(usage, dict):
        return None
    read = _number(usage.get("cache_read_input_tokens"))
    created = _number(usage.get("cache_creation_input_tokens"))
    one_hour, five_minutes, reasoning = 0, created, 0
    if by_age := usage.get("cache_creation"):
        # The split by age is newer than the total, and what it leaves open was written for the default of five minutes.
        one_hour = count(by_age, "ephemeral_1h_input_tokens")
        five_minutes = max(created - one_hour, count(by_age, "ephemeral_5m_input_tokens"))
    if details := usage.get("output_tokens_details"):
        reasoning = count(details, "thinking_tokens") or count(details, "reasoning_tokens")
    cost = record.get("costUSD")
    return Usage(
        key=key,
        model=text_of(message, "model"),
        input_tokens=_number(usage.get("input_tokens")) + read + one_hour + five_minutes,
        output_tokens=_number(usage.get("output_tokens")),
        cache_read_tokens=read,
        cache_write_5m_tokens=five_minutes,
        cache_write_1h_tokens=one_hour,
        reasoning_tokens=reasoning,
        cost=cost if isinstance(cost, float) else None,
        stop_reason=text_of(message, "stop_reason"),
        request=text_of(record, "requestId"),
    )


def count(table: Any, field: str) -> int:
    """A number of tokens in a table; 0 for any other value."""
    return _number(table.get(field)) if isinstance(table, dict) else 0


def _number(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


_FIELDS = (
    "inputTokens",
    "outputTokens",
    "cacheReadInputTokens",
    "cacheCreationEphemeral5mInputTokens",
    "cacheCreationEphemeral1hInputTokens",
)
_MAX_MODELS = 32
_MOST = 1 << 60  # a transcript may say anything


class Costs(Struct, omit_defaults=True):
    """The cost of a compaction: the one model call of a session that leaves no record of its own.

    `cost-state` records (since 2.1.300 or so) have the tokens and the cost of all model calls of the session so far, by
    model: those in the transcript, those of its subagents, and those that Claude Code makes for itself. An aborted call
    is not among them. They are written when the program ends, and again unchanged. So the growth from one such record
    to the next, less what the transcript records in between, is what the compaction between them used.

    That holds where no subagent worked in between: its tokens stand in other files, so nothing is reported then. What
    Claude Code asked the same model for its own sake in the same run (a suggestion for the next prompt) cannot be
    separated. Several compactions in one run are reported as one, with the last of them.
    """

    recorded: dict[str, list[int]] = {}
    """Tokens of the model calls in the transcript, by model, in the order of the fields above."""
    totals: dict[str, list[int]] = {}
    dollars: dict[str, float] = {}
    compaction: list[Any] = field(default_factory=list)
    """The last compaction: its uuid and its time."""
    agents: bool = False
    """Subagents worked."""

    def add_call(self, usage: Usage, before: list[int]) -> list[int]:
        """Count a model call as far as it was not counted `before`; gives what is counted of it now."""
        if usage.model is None or usage.stop_reason is None:  # an aborted call
            return before
        written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
        tokens = [
            usage.input_tokens - usage.cache_read_tokens - written,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_5m_tokens,
            usage.cache_write_1h_tokens,
        ]
        if usage.model in self.recorded or len(self.recorded) < _MAX_MODELS:
            grown = _minus(tokens, before) if before else tokens
            self.recorded[usage.model] = _plus(self.recorded.get(usage.model, []), grown)
        return tokens

    def add_compaction(self, uuid: str, ts: int | None) -> None:
        if self.totals or self.recorded:  # else what it compacted, and what that cost, is not in this file
            self.compaction = [uuid, ts]

    def settle(self, record: dict[str, Any]) -> list[Usage]:
        """The tokens of a `cost-state` record that no other record has."""
        models = record.get("modelUsage")
        if not isinstance(models, dict):
            return []
        tables = [(name, table) for name, table in models.items() if isinstance(table, dict)][:_MAX_MODELS]
        rests = [] if self.agents or not self.compaction else [self._rest(name, table) for name, table in tables]
        self.totals = {name: _tokens(table) for name, table in tables}
        self.dollars = {name: _dollars(table) for name, table in tables}
        self.recorded, self.compaction, self.agents = {}, [], False
        return [usage for usage in rests if usage is not None]

    def _rest(self, model: str, table: dict[str, Any]) -> Usage | None:
        recorded = self.recorded.get(model, [])
        rest = _minus(_minus(_tokens(table), self.totals.get(model, [])), recorded)
        if min(rest) < 0 or not any(rest):
            return None
        uuid, ts = self.compaction
        fresh, output, read, five_minutes, one_hour = rest
        grown = _dollars(table) - self.dollars.get(model, 0.0)
        return Usage(
            key=digest("claude-code", "compaction", uuid, model),
            model=model,
            ts=ts,
            input_tokens=fresh + read + five_minutes + one_hour,
            output_tokens=output,
            cache_read_tokens=read,
            cache_write_5m_tokens=five_minutes,
            cache_write_1h_tokens=one_hour,
            # With other calls in between, only the sum of their costs is known.
            cost=grown if grown > 0 and not any(recorded) else None,
        )


def _tokens(table: dict[str, Any]) -> list[int]:
    tokens = [count(table, name) for name in _FIELDS]
    # What the split by age leaves open was written for the default of five minutes.
    tokens[3] = max(tokens[3], count(table, "cacheCreationInputTokens") - tokens[4])
    return tokens


def _dollars(table: dict[str, Any]) -> float:
    cost = table.get("costUSD")
    return float(cost) if isinstance(cost, int | float) else 0.0


def _plus(one: list[int], other: list[int]) -> list[int]:
    return [min(a + b, _MOST) for a, b in zip(one or [0] * len(_FIELDS), other, strict=True)]


def _minus(one: list[int], other: list[int]) -> list[int]:
    return [a - b for a, b in zip(one, other or [0] * len(_FIELDS), strict=True)]
