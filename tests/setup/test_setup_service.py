"""The service: its file, the commands of its manager, and taking it back."""

from __future__ import annotations

import os
import plistlib
from pathlib import Path

import pytest

from backstory.setup.server import Service, ServiceError

COMMAND = ("/opt/back story/backstory",)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Managers that write down what they are asked; a running service is `active`."""
    programs = tmp_path / "bin"
    programs.mkdir()
    log = tmp_path / "calls"
    log.touch()
    for name, says in (("systemctl", "active"), ("launchctl", "state = running")):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {log}\necho "{says}"\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return log


def service(home: Path, platform: str, **environ: str) -> Service:
    return Service(home=home, environ=environ, platform=platform, command=COMMAND)


class TestSystemd:
    def test_install_and_uninstall(self, tmp_path: Path, calls: Path) -> None:
        """A unit of the user, started now and at every login, and gone without a trace."""
        found = service(tmp_path, "linux", BACKSTORY_HOME="/data/100%")
        found.install(port=7000)

        unit = (tmp_path / ".config/systemd/user/backstory.service").read_text()
        assert 'ExecStart="/opt/back story/backstory" "serve" "--port" "7000"\n' in unit
        assert 'Environment="BACKSTORY_HOME=/data/100%%"\n' in unit
        assert "WantedBy=default.target" in unit
        assert found.status().running
        assert found.uninstall()
        assert not found.file.exists()
        assert not found.uninstall()
        assert calls.read_text().splitlines() == [
            "systemctl --user daemon-reload",
            "systemctl --user enable backstory.service",
            "systemctl --user restart backstory.service",
            "systemctl --user is-active backstory.service",
            "systemctl --user disable --now backstory.service",
            "systemctl --user daemon-reload",
        ]

    def test_a_manager_that_fails(self, tmp_path: Path, calls: Path) -> None:
        """Its last words are the error, and no file stays."""
        program = tmp_path / "bin" / "systemctl"
        program.write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n")

        with pytest.raises(ServiceError, match="Failed to connect to bus; nothing is installed, `backstory serve`"):
            service(tmp_path, "linux").install()
        assert not service(tmp_path, "linux").file.exists()


class TestLaunchd:
    def test_install_and_uninstall(self, tmp_path: Path, calls: Path) -> None:
        """A launch agent of the user."""
        found = service(tmp_path, "darwin", CODEX_HOME="/data/codex")
        found.install()

        written = plistlib.loads((tmp_path / "Library/LaunchAgents/backstory.serve.plist").read_bytes())
        assert written["ProgramArguments"] == [*COMMAND, "serve"]
        assert written["EnvironmentVariables"] == {"CODEX_HOME": "/data/codex"}
        assert found.status().running
        assert found.uninstall()
        assert not found.file.exists()
        assert [line.split()[1] for line in calls.read_text().splitlines()] == [
            "bootout",
            "bootstrap",
            "print",
            "bootout",
        ]


class TestElsewhere:
    def test_windows(self, tmp_path: Path) -> None:
        """The message says what to do instead."""
        with pytest.raises(ServiceError, match="backstory serve"):
            service(tmp_path, "win32")
