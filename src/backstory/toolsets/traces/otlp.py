"""OTLP bodies, protobuf or JSON: what they say, and the replies to them."""

from __future__ import annotations

from typing import Literal

import msgspec

from . import otlp_json, otlp_protobuf
from .records import LogRecord, RawSpan, Undecodable

__all__ = [
    "Encoding",
    "LogRecord",
    "RawSpan",
    "Undecodable",
    "decode_logs",
    "decode_spans",
    "empty_reply",
    "partial_reply",
]

Encoding = Literal["protobuf", "json"]


def decode_spans(body: bytes, encoding: Encoding) -> list[RawSpan]:
    return list((otlp_protobuf if encoding == "protobuf" else otlp_json).read_spans(body))


def decode_logs(body: bytes, encoding: Encoding) -> list[LogRecord]:
    return list((otlp_protobuf if encoding == "protobuf" else otlp_json).read_logs(body))


def empty_reply(encoding: Encoding) -> bytes:
    return b"" if encoding == "protobuf" else b"{}"


def partial_reply(encoding: Encoding, kind: Literal["spans", "logs"], rejected: int, message: str) -> bytes:
    """The reply that says some were not taken, and why."""
    if encoding == "json":
        name = "rejectedSpans" if kind == "spans" else "rejectedLogRecords"
        # int64 is a string in the JSON of protobuf.
        return msgspec.json.encode({"partialSuccess": {name: str(rejected), "errorMessage": message}})
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    if kind == "spans":
        spans = ExportTraceServiceResponse()
        spans.partial_success.rejected_spans = rejected
        spans.partial_success.error_message = message
        return bytes(spans.SerializeToString())
    logs = ExportLogsServiceResponse()
    logs.partial_success.rejected_log_records = rejected
    logs.partial_success.error_message = message
    return bytes(logs.SerializeToString())
