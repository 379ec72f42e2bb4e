"""Numbers of examples for property tests whose examples cost much more or much less than most."""

from __future__ import annotations

from hypothesis import settings


def examples(share: float) -> int:
    """A share of the examples of the profile in use: `make test` runs few of them, `make test-slow` many."""
    return max(1, round(settings().max_examples * share))
