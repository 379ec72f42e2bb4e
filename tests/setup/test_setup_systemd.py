"""The service under a real systemd."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("unshare") is None, reason="namespaces are Linux's"),
]

MANAGER = Path(__file__).with_name("user_manager.sh")
PORT = 7717  # the network is the test's own
ASK = f"""
import time, urllib.request
for _ in range(300):
    try:
        print(urllib.request.urlopen("http://127.0.0.1:{PORT}/doctor.json").status)
        break
    except OSError:
        time.sleep(0.1)
"""


class TestSystemd:
    def test_runs_and_goes(self, tmp_path: Path) -> None:
        """The server answers, its variables have every character, and nothing is left when it is uninstalled."""
        home = tmp_path / "a home 100% $HOME 'one' \"two\" \\n"
        home.mkdir()
        backstory = shlex.join([sys.executable, "-m", "backstory"])
        steps = [
            f"{backstory} service install --json",
            shlex.join([sys.executable, "-c", ASK]),
            f"{backstory} service status --json",
            f"{backstory} service uninstall --json",
            f"{backstory} service status --json || true",
        ]
        done = subprocess.run(
            [MANAGER, "sh", "-ec", "\n".join(steps)],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "BACKSTORY_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode == 77:
            pytest.skip("systemd cannot be run here")
        assert done.returncode == 0, done.stderr
        installed, answer, running, removed, gone = done.stdout.splitlines()

        assert json.loads(installed)["detail"] == "active"
        assert answer == "200"
        assert json.loads(running)["running"]
        assert (home / "archive.db").exists()
        assert json.loads(removed)["removed"]
        assert not json.loads(gone)["running"]
        assert [path for path in tmp_path.rglob("*") if path.name.startswith("backstory.service")] == []
