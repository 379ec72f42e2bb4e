"""Shared by all tests: where they write, a home folder for each, real transcripts, and the number of examples."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

_CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"
_AGENTS_VARIABLES = ("BACKSTORY_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")

# `make test` runs "fast", `make test-slow` runs "thorough"; a test with a number of its own takes `tests.examples`.
settings.register_profile("fast", max_examples=25, deadline=None)
settings.register_profile("thorough", max_examples=400, deadline=None)
settings.load_profile("fast")


def _write_to_memory(folder: Path = Path("/dev/shm"), needed: int = 2 << 30) -> None:
    """Let tests write to memory where there is enough: thousands of small archives need not wait for a disk."""
    if "TMPDIR" not in os.environ and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > needed:
        os.environ["TMPDIR"] = str(folder)


_write_to_memory()


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Real transcripts beside the checkout; tests that need them are skipped where there are none."""
    if not (_CORPUS / "home").is_dir():
        pytest.skip("no corpus of real transcripts beside the checkout")
    return _CORPUS


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Paths for home folders. `mktemp` would look through all former ones each time."""
    base = tmp_path_factory.mktemp("homes")
    return (base / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_home(_homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the home folder of the user who runs it."""
    home = next(_homes)
    home.mkdir(mode=0o700)
    for name in _AGENTS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))  # the name of HOME on Windows
