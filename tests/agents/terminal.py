"""A terminal of its own for a program, and someone who types in it."""

from __future__ import annotations

import os
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path

# What programs ask a terminal about itself, with the answers of a plain one.
_ANSWERS = {
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b[c": b"\x1b[?62;c",
    b"\x1b[>c": b"\x1b[>0;0;0c",
    b"\x1b[?u": b"\x1b[?0u",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}
_ESCAPE = re.compile(rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>78]")
_START_SECONDS, _ECHO_SECONDS, _PATIENCE_SECONDS = 40.0, 5.0, 8.0
_QUIET_SECONDS = 3.0


class Terminal:
    """A program that runs at a terminal."""

    def __init__(self, command: Sequence[str], cwd: Path, environ: Mapping[str, str], seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._fd, inner = os.openpty()
        ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        self._output = b""
        self._process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *command],
            cwd=cwd,
            env=dict(environ),
            stdin=inner,
            stdout=inner,
            stderr=inner,
        )
        os.close(inner)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._fd)

    @property
    def shown(self) -> str:
        """All that was shown, without escape sequences and spaces, which programs replace by moves of the cursor."""
        return re.sub(r"\s+", "", _ESCAPE.sub(b"", self._output).decode("utf-8", "replace"))

    def say(self, text: str, until: Callable[[], bool]) -> None:
        """Type a line once the program has shown itself, press Enter until a condition holds, and let it finish.
        Raises RuntimeError when the condition never holds."""
        self._settle(_START_SECONDS)
        while not until():
            typed = len(self.shown)
            self._type(text)
            self._settle(_ECHO_SECONDS)
            echo = re.sub(r"\s+", "", text)[:20] in self.shown[typed:]
            patience = self._end if echo else time.monotonic() + 2 * _PATIENCE_SECONDS
            while not until() and time.monotonic() < min(patience, self._end):
                self._type("\r")
                pause = time.monotonic() + _PATIENCE_SECONDS
                while self._pump(0.3) and not until() and time.monotonic() < pause:
                    pass
                if self._process.poll() is not None:
                    raise RuntimeError(f"it ended with {self._process.returncode}: {self.shown[-1_500:]}")
            if time.monotonic() >= self._end:
                raise RuntimeError(f"nothing came of it: {self.shown[-1_500:]}")
        self._settle(_PATIENCE_SECONDS)

    def _type(self, text: str) -> None:
        for character in text:
            os.write(self._fd, character.encode())
            self._pump(0.02)

    def _settle(self, seconds: float) -> None:
        """Wait until nothing new is shown, at most for a time: some programs never rest."""
        last, changed = len(self._output), time.monotonic()
        limit = changed + seconds
        while self._pump(0.3) and time.monotonic() < limit:
            if len(self._output) != last:
                last, changed = len(self._output), time.monotonic()
            elif last and time.monotonic() - changed > _QUIET_SECONDS:
                return

    def _pump(self, seconds: float) -> bool:
        """Take what the program shows within a time; False once it has ended."""
        if not select.select([self._fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._fd, 65_536)
        except OSError:  # the program has closed its side
            return False
        self._output += data
        for question, answer in _ANSWERS.items():
            if question in data:
                os.write(self._fd, answer)
        return True
