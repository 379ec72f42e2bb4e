"""Answers that take long to make, kept for a while; pages show their age."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from msgspec import Struct

_MOST = 16

T = TypeVar("T")


class Dated(Struct, Generic[T], frozen=True):
    """An answer, and the time it was made at in milliseconds."""

    value: T
    made_at: int


class Kept(Generic[T]):
    """The last answers by their keys. One thread at a time makes one; others wait for it instead of making it too."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.time) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[Hashable, Dated[T]] = {}

    def find(self, key: Hashable) -> Dated[T] | None:
        """The answer that is kept, if it is not too old."""
        found = self._answers.get(key)
        return found if found is not None and self._clock() - found.made_at / 1000 < self._seconds else None

    def get(self, key: Hashable, make: Callable[[], T], *, anew: bool = False) -> Dated[T]:
        """The answer that is kept, or else a new one; with `anew` always a new one."""
        asked_at = self._clock() * 1000
        with self._lock:
            found = self.find(key)
            if found is not None and (not anew or found.made_at >= asked_at):
                return found
            answer = Dated(make(), int(self._clock() * 1000))
            self._answers.pop(key, None)
            self._answers[key] = answer
            while len(self._answers) > _MOST:
                del self._answers[next(iter(self._answers))]
            return answer
