"""`backstory serve` as a process of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import httpx

from tests.examples import PATIENT

PROGRAM = [sys.executable, "-m", "backstory"]
PATIENCE = 60.0


def environment(home: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8", **PATIENT, **more}


def run(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        env=environment(home, **more),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
        check=False,
    )


class Process:
    """A program that prints its address in its first line, and runs until it is stopped."""

    def __init__(self, home: Path, *arguments: str, **more: str) -> None:
        self._errors = (home / "stderr").open("ab+")
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments],
            env=environment(home, **more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        self.first_line = self.process.stdout.readline().decode() if ready else ""
        if not self.first_line:
            self.process.kill()
            raise AssertionError(self.stderr)

    @property
    def stderr(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode()

    def stop(self, signal_number: int = signal.SIGTERM) -> int:
        """Stop it; gives its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        code = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._errors.closed:
            self.stop(signal.SIGKILL)


class Served(Process):
    def __init__(self, home: Path, *arguments: str, port: int = 0, **more: str) -> None:
        super().__init__(home, "serve", "--json", "--port", str(port), *arguments, **more)
        self.address: dict[str, Any] = json.loads(self.first_line)
        assert "url" in self.address, self.address
        self.url: str = self.address["url"]
        self.port: int = self.address["port"]
        self.ws_url = self.url.replace("http", "ws", 1)

    def call(self, function: str, request: Any = None) -> Any:
        answer = httpx.post(f"{self.url}/session/{function}", json=request or {}, timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def tool(self, name: str, arguments: Any) -> Any:
        return httpx.post(f"{self.url}/api/tools/{name}", json=arguments, timeout=PATIENCE).json()


def eventually(check: Any, patience: float = PATIENCE) -> Any:
    """The first true answer of a check that may be false for a while."""
    deadline = time.monotonic() + patience
    while not (answer := check()):
        assert time.monotonic() < deadline, f"{check} did not become true"
        time.sleep(0.05)
    return answer
