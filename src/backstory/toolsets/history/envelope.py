"""What surrounds every answer: the envelope, its measured time, and errors as answers."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ...archive.base import DeadlineExceeded
from ...archive.errors import explain
from ...redact import count_redacted
from ..base import Arguments, Reply, excerpt, received_at
from .types import CallContent, Envelope, ErrorBody, ErrorCode, ErrorEnvelope, EventView, Performance

_log = logging.getLogger(__name__)
_MAX_REASON_BYTES = 1024


class Refusal(Exception):
    """The request cannot be answered: the contract's code, and what the caller can do about it."""

    def __init__(self, code: ErrorCode, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
        self.details = details


class Call:
    """One request on its way: what came in and when, the target that applies, and what to warn of."""

    def __init__(self, tool: str, arguments: Arguments, sla_target_ms: int, *, redacts: bool) -> None:
        self.tool = tool
        self.arguments = arguments
        self.sla_target_ms = sla_target_ms
        self.warnings: list[str] = []
        self._started = received_at()
        self._seconds = math.inf
        self._redacts = redacts

    def deadline(self, seconds: float) -> float:
        """From now on the answer is of no use when it takes longer than this; the moment on the monotonic clock."""
        self._seconds = seconds
        return self._started + seconds

    def check_deadline(self) -> None:
        if time.monotonic() > self._started + self._seconds:
            raise DeadlineExceeded

    def answer(self, request: msgspec.Struct, data: msgspec.Struct) -> Reply:
        # The data is serialised before the clock is read, so that the time told includes it.
        encoded = msgspec.json.encode(data)
        if self._redacts and (redacted := _redactions(data, encoded)):
            self.warnings.append(f"{redacted} secret{'s were' if redacted > 1 else ' was'} redacted in this answer.")
        return Reply.of(
            Envelope(
                f"moraine.mcp.{self.tool}.v1",
                self.tool,
                request,
                msgspec.Raw(encoded),
                self.warnings,
                self._performance(),
            )
        )

    def error(self, refusal: Refusal) -> Reply:
        message, details = excerpt([refusal.message, refusal.details], _MAX_REASON_BYTES)
        body = ErrorBody(refusal.code, message, details)
        request = excerpt(self.arguments) if isinstance(self.arguments, Mapping) else {}
        return Reply.of(
            ErrorEnvelope("moraine.mcp.error.v1", self.tool, request, body, self.warnings, self._performance())
        )

    def too_late(self) -> Reply:
        message = f"{self.tool} did not finish within {self._seconds:g} seconds; ask for less or try again"
        return self.error(Refusal("deadline_exceeded", message, deadline_ms=round(self._seconds * 1000)))

    def _performance(self) -> Performance:
        elapsed = (time.monotonic() - self._started) * 1000
        return Performance(math.ceil(elapsed), self.sla_target_ms, elapsed <= self.sla_target_ms)


def _redactions(data: msgspec.Struct, encoded: bytes) -> int:
    """The secrets that were replaced in an answer. The text of a tool call repeats its arguments."""
    content = data.content if isinstance(data, EventView) else None
    repeated = count_redacted(content.text.encode()) if isinstance(content, CallContent) else 0
    return count_redacted(encoded) - repeated


def handle(
    tool: str, arguments: Arguments, sla_target_ms: int, work: Callable[[Call], Reply], *, redacts: bool
) -> Reply:
    """Do the work; whatever goes wrong is an answer too. `sla_target_ms` holds until the work knows better."""
    call = Call(tool, arguments, sla_target_ms, redacts=redacts)
    try:
        return work(call)
    except Refusal as refusal:
        return call.error(refusal)
    except DeadlineExceeded:
        return call.too_late()
    except Exception as error:
        reason = explain(error)
        if reason is None:
            _log.debug("%s failed", tool, exc_info=True)
            return call.error(Refusal("internal_error", f"{tool} failed unexpectedly; `backstory doctor` may tell why"))
        return call.error(Refusal("internal_error", f"{tool} failed: {reason}"))
