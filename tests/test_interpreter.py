"""Turns at the interpreter: one request at a time, and another one while it waits."""

from __future__ import annotations

import threading

import pytest

from backstory import interpreter
from backstory.interpreter import running, waiting

_SECONDS = 60.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_PATIENCE_SECONDS", _SECONDS)


class _Other:
    """A second request, in a thread of its own."""

    def __init__(self) -> None:
        self.ran = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with running():
            self.ran.set()

    def end(self) -> None:
        self._thread.join(_SECONDS)
        assert self.ran.is_set()


class TestRunning:
    def test_a_second_request_runs_after_the_first(self) -> None:
        with running():
            other = _Other()
            assert not other.ran.wait(0.01)
        other.end()

    def test_a_second_request_runs_while_the_first_waits(self) -> None:
        with running():
            other = _Other()
            with waiting():
                assert other.ran.wait(_SECONDS)
            third = _Other()
            assert not third.ran.wait(0.01)  # the first has its turn again
        other.end()
        third.end()

    def test_a_request_that_fails_ends_its_turn(self) -> None:
        with pytest.raises(ZeroDivisionError), running():
            raise ZeroDivisionError
        _Other().end()

    def test_a_request_does_not_wait_for_one_that_is_held_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(interpreter, "_PATIENCE_SECONDS", 0.001)
        with running():
            _Other().end()
        _Other().end()

    def test_work_without_a_turn_may_wait(self) -> None:
        with waiting():
            _Other().end()
        _Other().end()
