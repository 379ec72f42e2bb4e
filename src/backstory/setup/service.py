"""A service of the user's session that keeps `backstory serve` running: systemd on Linux, launchd on macOS."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from .server import own_command

_UNIT = "backstory.service"
_LABEL = "backstory.serve"
_SECONDS = 30
_PASSED_ON = ("BACKSTORY_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")

Manager = Literal["systemd", "launchd"]


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
            config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
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
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode and not may_fail:
            reason = (done.stderr or done.stdout).strip().splitlines()
            raise ServiceError(f"{' '.join(command)}: {reason[-1] if reason else f'exit code {done.returncode}'}")
        return done.stdout


def _quoted(word: str) -> str:
    """A word of a unit file, where `%` begins a placeholder and a backslash an escape."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
