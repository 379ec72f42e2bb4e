"""The servers as they are started: the command of this installation, a test of the MCP server, and the service.

Agents start the MCP server. The service of the user's session, by systemd on Linux and launchd on macOS, keeps
`backstory serve` running.
"""

from __future__ import annotations

import json
import os
import plistlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from ..config import expand_home

# Commands that make an environment and delete it again, with signs of its folder on Linux, macOS and Windows.
_PASSING = (
    (("uvx",), (("archive-v0",),)),
    (("pipx", "run"), ((".cache", "pipx"), ("Caches", "pipx"), ("pipx", "Cache"))),
)
_SCRIPTS = ("backstory", "backstory.exe")
# The shortest time that an agent waits for a server.
_PROBE_SECONDS = 30.0
_PROTOCOL = "2025-06-18"
_TOOL = "search_sessions"
_UNIT = "backstory.service"
_LABEL = "backstory.serve"
_COMMAND_SECONDS = 30
_PASSED_ON = ("BACKSTORY_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")

Manager = Literal["systemd", "launchd"]


def own_command() -> tuple[str, ...]:
    """The absolute path of the program, with arguments where it is started by another one.

    Agents start servers with a search path of their own, so a name alone is not enough. The environment of `uvx` and
    `pipx run` does not last: there it is the command that makes it again.
    """
    prefix = Path(sys.prefix).parts
    for (name, *arguments), signs in _PASSING:
        if any(_lies_in(prefix, folders) for folders in signs) and (program := shutil.which(name)):
            return (str(Path(program).absolute()), *arguments, "backstory")
    for name in _SCRIPTS:
        script = Path(sys.executable).absolute().with_name(name)
        if script.is_file():
            return (str(script),)
    return (str(Path(sys.executable).absolute()), "-m", "backstory")


class Probe(Struct, frozen=True):
    """The outcome of starting a server."""

    works: bool
    tools: int = 0
    problem: str | None = None


def probe(command: Sequence[str], environ: Mapping[str, str] | None = None) -> Probe:
    """Start a server, list its tools and search with it."""
    try:
        server = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environ or {})},
        )
    except OSError as error:
        return Probe(False, problem=f"it cannot be started: {error.strerror}")
    watchdog = threading.Timer(_PROBE_SECONDS, server.kill)
    watchdog.start()
    try:
        return _talk(server)
    finally:
        watchdog.cancel()
        server.kill()
        server.communicate()


def _lies_in(parts: tuple[str, ...], folders: tuple[str, ...]) -> bool:
    return any(parts[number : number + len(folders)] == folders for number in range(len(parts)))


def _talk(server: subprocess.Popen[bytes]) -> Probe:
    hello = {
        "protocolVersion": _PROTOCOL,
        "capabilities": {},
        "clientInfo": {"name": "backstory-setup", "version": "1"},
    }
    try:
        _ask(server, 1, "initialize", hello)
        _send(server, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        names = [tool["name"] for tool in _ask(server, 2, "tools/list", {})["tools"]]
        if _TOOL not in names:
            return Probe(False, len(names), f"it has no tool {_TOOL}")
        answer = _ask(server, 3, "tools/call", {"name": _TOOL, "arguments": {"query": "backstory", "n_hits": 1}})
        if answer.get("isError"):
            return Probe(False, len(names), str(answer["content"][0]["text"])[:200])
        return Probe(True, len(names))
    except (OSError, KeyError, ValueError, TypeError) as error:
        return Probe(False, problem=f"it does not answer: {_last_line(server) or error}")


def _ask(server: subprocess.Popen[bytes], number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    _send(server, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    assert server.stdout is not None
    for line in server.stdout:
        message = json.loads(line)
        if message.get("id") == number:
            if "error" in message:
                raise ValueError(message["error"].get("message"))
            result: dict[str, Any] = message["result"]
            return result
    raise ValueError("it ended")


def _send(server: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    assert server.stdin is not None
    server.stdin.write(json.dumps(message).encode() + b"\n")
    server.stdin.flush()


def _last_line(server: subprocess.Popen[bytes]) -> str:
    """The last line on stderr of a server that has ended."""
    server.kill()
    assert server.stderr is not None
    lines = server.stderr.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""


class ServiceError(Exception):
    """The service cannot be managed; the message says why and what to do."""


class ServiceStatus(Struct, frozen=True, kw_only=True):
    manager: Manager
    file: str
    installed: bool
    running: bool
    detail: str
    """The word of the manager for the state."""


class Service:
    """The service of this user. `command` is what starts Backstory; by default this installation."""

    def __init__(
        self,
        *,
        home: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        platform: str = sys.platform,
        command: Sequence[str] | None = None,
    ) -> None:
        if platform not in ("linux", "darwin"):
            raise ServiceError("services are for Linux and macOS; elsewhere, start `backstory serve` at login yourself")
        self.manager: Manager = "launchd" if platform == "darwin" else "systemd"
        self._environ = environ
        self._command = tuple(command or own_command())
        home = home or Path.home()
        if self.manager == "launchd":
            self.file = home / "Library" / "LaunchAgents" / f"{_LABEL}.plist"
        else:
            config = expand_home(environ.get("XDG_CONFIG_HOME") or "~/.config", home)
            self.file = config / "systemd" / "user" / _UNIT

    def install(self, port: int | None = None) -> None:
        """Write the service's file, and start the service now and at every login. Where that fails, a file that was not
        there before is deleted again."""
        was_there = self.file.exists()
        try:
            self._start(port)
        except ServiceError as error:
            if not was_there:
                self.file.unlink(missing_ok=True)
            raise ServiceError(f"{error}; nothing is installed, `backstory serve` runs without a service") from None

    def _start(self, port: int | None) -> None:
        arguments = (*self._command, "serve", *(("--port", str(port)) if port is not None else ()))
        self.file.parent.mkdir(parents=True, exist_ok=True)
        if self.manager == "launchd":
            self.file.write_bytes(plistlib.dumps(self._plist(arguments)))
            self._manage("launchctl", "bootout", self._domain, str(self.file), may_fail=True)
            self._manage("launchctl", "bootstrap", self._domain, str(self.file))
        else:
            self.file.write_text(self._unit(arguments), "utf-8")
            self._manage("systemctl", "--user", "daemon-reload")
            self._manage("systemctl", "--user", "enable", _UNIT)
            self._manage("systemctl", "--user", "restart", _UNIT)

    def status(self) -> ServiceStatus:
        if self.manager == "launchd":
            said = self._manage("launchctl", "print", f"{self._domain}/{_LABEL}", may_fail=True)
            running = "state = running" in said
            detail = "running" if running else "not running"
        else:
            detail = self._manage("systemctl", "--user", "is-active", _UNIT, may_fail=True).strip()
            running = detail == "active"
        return ServiceStatus(
            manager=self.manager,
            file=str(self.file),
            installed=self.file.exists(),
            running=running,
            detail=detail or "unknown",
        )

    def uninstall(self) -> bool:
        """Stop the service and delete its file; False if there is none."""
        if not self.file.exists():
            return False
        if self.manager == "launchd":
            self._manage("launchctl", "bootout", self._domain, str(self.file), may_fail=True)
            self.file.unlink()
        else:
            self._manage("systemctl", "--user", "disable", "--now", _UNIT, may_fail=True)
            self.file.unlink()
            self._manage("systemctl", "--user", "daemon-reload", may_fail=True)
        return True

    @property
    def _domain(self) -> str:
        return f"gui/{os.getuid()}"

    @property
    def _variables(self) -> dict[str, str]:
        return {name: self._environ[name] for name in _PASSED_ON if self._environ.get(name)}

    def _unit(self, arguments: Sequence[str]) -> str:
        lines = [
            "[Unit]",
            "Description=Backstory, the memory of coding agents",
            "",
            "[Service]",
            # In commands, not in variables, a dollar sign begins the name of a variable.
            f"ExecStart={' '.join(_quoted(argument).replace('$', '$$') for argument in arguments)}",
            *(f"Environment={_quoted(f'{name}={value}')}" for name, value in self._variables.items()),
            "Restart=on-failure",
            "RestartSec=5",
            "Nice=10",
            "UMask=0077",
            "",
            "[Install]",
            "WantedBy=default.target",
        ]
        return "\n".join(lines) + "\n"

    def _plist(self, arguments: Sequence[str]) -> dict[str, object]:
        return {
            "Label": _LABEL,
            "ProgramArguments": list(arguments),
            "EnvironmentVariables": self._variables,
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ProcessType": "Background",
            "Umask": 0o077,
        }

    def _manage(self, *command: str, may_fail: bool = False) -> str:
        """Run a command of the manager; gives what it prints."""
        if shutil.which(command[0]) is None:
            if may_fail:
                return ""
            raise ServiceError(f"{command[0]} is not here")
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False)
        if done.returncode and not may_fail:
            reason = (done.stderr or done.stdout).strip().splitlines()
            raise ServiceError(f"{' '.join(command)}: {reason[-1] if reason else f'exit code {done.returncode}'}")
        return done.stdout


def _quoted(word: str) -> str:
    """A word of a unit file, where `%` begins a placeholder and a backslash an escape."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
