"""Turns at the interpreter, for requests that are mostly Python.

Threads that run Python at the same time take the interpreter from one another whenever one calls SQLite or the index,
some fifteen times in a search. Each time the other one has to be woken, which takes longer than the call. So one
request runs at a time, and another one while it waits for work outside of Python: for eight searches at once that takes
half of the switches and a tenth of the processor time away.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Longer than any queue of searches that move on. A request without its turn by then runs without one.
_PATIENCE_SECONDS = 0.1

_turn = threading.Lock()
_thread = threading.local()


@contextmanager
def running() -> Iterator[None]:
    """Around the work of a request."""
    _thread.has_turn = _turn.acquire(timeout=_PATIENCE_SECONDS)
    try:
        yield
    finally:
        _end()


@contextmanager
def waiting() -> Iterator[None]:
    """Around work outside of Python, such as a search in the index: another request runs meanwhile."""
    had_turn = _end()
    try:
        yield
    finally:
        if had_turn:
            _thread.has_turn = _turn.acquire(timeout=_PATIENCE_SECONDS)


def _end() -> bool:
    """End the turn of this thread. False if it has none."""
    had_turn = getattr(_thread, "has_turn", False)
    if had_turn:
        _thread.has_turn = False
        _turn.release()
    return had_turn
