"""What tests share: the corpus of real transcripts, when it is there, and a home of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

_CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Real transcripts beside the checkout; tests that need them are skipped where there are none."""
    if not (_CORPUS / "home").is_dir():
        pytest.skip("no corpus of real transcripts beside the checkout")
    return _CORPUS


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the home of whoever runs it."""
    home = tmp_path_factory.mktemp("home")
    for name in ("BACKSTORY_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
