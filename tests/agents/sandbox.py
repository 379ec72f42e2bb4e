"""Runs an agent against the scripted model, sealed off from the network and from the user's files, which takes root.

Without root an agent runs only if `BACKSTORY_UNSEALED` is set: as the user, with a home of its own and a proxy that
refuses every connection but those to loopback. It is not kept from ignoring that.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.agents.model_server import WAITING
from tests.agents.terminal import Terminal

ROOT = Path(__file__).parents[2]
_SEALED_PORT = 8080
_TOOLS = ("unshare", "setpriv", "setsid", "ip", "bash", "git")
_COVERED = (Path("/tmp"), Path("/home"))
_SERVICE = (sys.executable, "-m", "tests.agents.model_server")
_REPOSITORY = """
git init --quiet --initial-branch main .
git remote add origin https://example.com/acme/demo.git
printf '# demo\\n' > README.md
git add -A
git -c user.name=Dev -c user.email=dev@example.com commit --quiet -m 'first commit'
"""


def can_seal() -> bool:
    return os.geteuid() == 0 and all(map(shutil.which, _TOOLS)) and sys.platform == "linux" and _covered() is None


def _covered() -> Path | None:
    """The folder around this checkout that the seal covers, with the agents that are installed in it."""
    return next((folder for folder in _COVERED if ROOT.is_relative_to(folder)), None)


def reason_not_to_run(environ: Mapping[str, str]) -> str | None:
    """The reason why no agent may run here, or None."""
    if can_seal() or environ.get("BACKSTORY_UNSEALED"):
        return None
    if folder := _covered():
        return (
            f"{ROOT} is hidden from agents that are sealed off, which see another {folder}: run them from a checkout"
            " elsewhere, or with BACKSTORY_UNSEALED=1 as you, with a home of their own and your network"
        )
    return (
        f"agents are sealed off from the network by root on Linux, with {', '.join(_TOOLS)}; BACKSTORY_UNSEALED=1 runs"
        " them as you, with a home of their own and your network"
    )


class Sandbox:
    """A home, a small git repository `demo` in it, and the log of the model service."""

    def __init__(self, folder: Path) -> None:
        self.is_sealed = can_seal()
        self.port = _SEALED_PORT if self.is_sealed else _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = folder
        self.home = folder / "home"
        self.log = folder / "answers.jsonl"
        self.shown_home = "/home/dev" if self.is_sealed else str(self.home)
        demo = self.home / "demo"
        demo.mkdir(parents=True)
        subprocess.run(["sh", "-ec", _REPOSITORY], cwd=demo, check=True)

    def run(self, command: Sequence[str], environ: Mapping[str, str], shown: Sequence[Path], seconds: float) -> str:
        """The output of the command. Raises RuntimeError when it fails or takes too long."""
        with self._inside(command, environ, shown) as (command, cwd, environ):
            return _output(command, cwd, environ, seconds)

    def converse(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        shown: Sequence[Path],
        seconds: float,
        text: str,
        until: Callable[[], bool],
    ) -> None:
        """Run a command at a terminal, type a line, and end it when a condition holds. Raises RuntimeError if it never
        does."""
        with (
            self._inside(command, environ, shown) as (command, cwd, environ),
            Terminal(command, cwd, environ, seconds) as terminal,
        ):
            terminal.say(text, until)

    @contextmanager
    def _inside(
        self, command: Sequence[str], environ: Mapping[str, str], shown: Sequence[Path]
    ) -> Iterator[tuple[Sequence[str], Path, Mapping[str, str]]]:
        """The command with its folder and variables as it runs here, beside the model service."""
        environ = {
            "HOME": self.shown_home,
            "USER": "dev",
            "LOGNAME": "dev",
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "TZ": "UTC",
            "DO_NOT_TRACK": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            **environ,
        }
        if self.is_sealed:
            yield self._sealed(command, environ, shown), ROOT, {**os.environ, "SERVICE": " ".join(_SERVICE)}
            return
        nowhere = "http://127.0.0.1:9"
        proxies = {"HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "ALL_PROXY": nowhere, "NO_PROXY": "127.0.0.1"}
        service = subprocess.Popen([*_SERVICE, str(self.port), str(self.log), f"{self.home}/demo"], cwd=ROOT)
        try:
            _await_port(self.port)
            yield command, self.home / "demo", {**proxies, **environ}
        finally:
            service.terminate()
            service.wait()

    def interrupt(
        self, command: Sequence[str], environ: Mapping[str, str], shown: Sequence[Path], seconds: float
    ) -> str:
        """Run a command, and press Ctrl-C when the model has stopped in the middle of its answer."""
        script = f'"$@" & until [ -e ../{WAITING} ]; do sleep 0.2; done; sleep 1; kill -INT $!; wait; exit 0'
        return self.run(["bash", "-mc", script, "bash", *command], environ, shown, seconds)

    def _sealed(self, command: Sequence[str], environ: Mapping[str, str], shown: Sequence[Path]) -> list[str]:
        seal = [str(Path(__file__).with_name("seal.sh")), str(self.home), pwd.getpwuid(os.geteuid()).pw_dir]
        seal += [":".join(map(str, shown)), str(self.port), str(self.log), "--", "env", "-i"]
        return [*seal, *(f"{name}={value}" for name, value in environ.items()), *command]


def _output(command: Sequence[str], cwd: Path, environ: Mapping[str, str], seconds: float) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise RuntimeError(f"not done after {seconds:.0f} s: {_tail(late.stdout)}") from None
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {_tail(done.stdout)}")
    return done.stdout.decode("utf-8", "replace")


def _tail(output: bytes | None) -> str:
    return (output or b"").decode("utf-8", "replace")[-1_500:]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_port(port: int) -> None:
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError("the model service does not start")
