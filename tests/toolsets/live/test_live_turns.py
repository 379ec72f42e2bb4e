"""Several processes on one folder take turns: none has to wait long for one that calls all the time."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backstory.toolsets import live as runtime
from backstory.toolsets.live import Live
from backstory.toolsets.live import tools as access
from backstory.toolsets.live.tools import Portal

BUSY = """
import sys, threading
from pathlib import Path
from backstory.toolsets.live.tools import Portal

portal = Portal(Path(sys.argv[1]), {})

def call_on():
    while True:
        portal.call("session::append", {"session_id": "busy", "custom": {"custom_type": "c"}})
        print("called", flush=True)

portal.call("session::ensure", {"session_id": "busy"})
for _ in range(3):
    threading.Thread(target=call_on, daemon=True).start()
sys.stdin.read()
"""


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[list[float]]:
    """When a process that calls without a pause, from several threads, was answered."""
    answered: list[float] = []
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", BUSY, str(tmp_path)], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()

        def listen() -> None:
            assert process.stdout is not None
            answered.extend(time.monotonic() for _ in process.stdout)

        listener = threading.Thread(target=listen)
        listener.start()
        yield answered
        process.stdin.close()
        process.wait(60)
        listener.join()


class TestTurns:
    """The waits are long: where turns are not taken, none is long enough."""

    @pytest.fixture(autouse=True)
    def _patient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(access, "_WAIT_SECONDS", 60.0)
        monkeypatch.setattr(runtime, "_WAIT_SECONDS", 60.0)

    def test_the_other_one_is_answered(self, busy: list[float], tmp_path: Path) -> None:
        portal = Portal(tmp_path, {})
        try:
            for _ in range(3):
                before = len(busy)
                assert portal.call("session::get", {"session_id": "busy"})["meta"]["session_id"] == "busy"
                portal.close()
                deadline = time.monotonic() + 60
                while len(busy) <= before + 10:  # and the busy one goes on
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
        finally:
            portal.close()

    def test_a_server_can_start(self, busy: list[float], tmp_path: Path) -> None:
        import asyncio

        async def serve() -> str:
            live = Live(tmp_path, own_urls=["ws://127.0.0.1:9"], environ={})
            async with live:
                return live.adapter

        assert asyncio.run(serve()) == "fs"
