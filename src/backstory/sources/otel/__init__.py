"""OpenTelemetry: OTLP bodies and the meaning of their attributes, and the sessions that telemetry reports."""

from .source import Otel

__all__ = ["Otel"]
