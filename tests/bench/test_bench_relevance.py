"""The evaluation of search relevance, on a made-up home."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import relevance
from tests.transcripts import Transcript


class TestRelevance:
    def test_table(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """Questions of every kind are made from the transcripts, asked, and scored."""
        for word in ("gateway", "scheduler", "invoice"):
            session = Transcript(word).prompt(f"please make the {word} tests pass again before the next release")
            commit = f'git commit -m "Repair the {word} tests on slow machines"'
            session.call("Bash", {"command": commit}, f"Error: the {word} did not answer within 3000 ms on port 8080")
            session.call("Read", {"file_path": f"/home/dev/shop/src/{word}/main.py"}, "pass")
            session.answer(f"The {word} lost its connection because the pool of workers was closed too early.")
            session.prompt(f"now write down why the {word} pool was closed too early, please")
            session.answer("done").write(tmp_path / "home")
        monkeypatch.setattr(sys, "argv", ["relevance", "--agents-home", str(tmp_path / "home"), "--ablate"])
        assert relevance.main() == 0
        out = capsys.readouterr().out
        for kind in (
            "commit subject",
            "prompt, half its words",
            "error, other numbers",
            "path by its tail",
            "middle of an answer",
        ):
            assert f"| {kind} | 3 |" in out
        assert "| without titles |" in out
