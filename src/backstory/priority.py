"""Reading and indexing give way to whoever searches meanwhile, and to everything else that a person waits for."""

from __future__ import annotations

import os

__all__ = ["INDEXING", "READING", "give_way"]

READING = 5
INDEXING = 10


def give_way(niceness: int) -> None:
    """Lower the priority of this process to that; on an idle machine it is as fast as before."""
    if hasattr(os, "nice"):
        os.nice(max(niceness - os.nice(0), 0))
