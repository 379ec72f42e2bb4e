"""Settings of tests: numbers of examples for property tests, and time enough on a busy machine."""

from __future__ import annotations

from hypothesis import settings

PATIENT = {"BACKSTORY_CATCH_UP_SECONDS": "60"}
"""The environment of a program that reads everything new before it answers, however long that takes."""


def examples(share: float) -> int:
    """A share of the examples of the profile in use: `make test` runs few of them, `make test-slow` many."""
    return max(1, round(settings().max_examples * share))
