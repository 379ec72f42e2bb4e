"""The LoCoMo benchmark, on a made-up file in the form of the data set."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench import locomo

_SAMPLE = {
    "sample_id": "made-up-1",
    "conversation": {
        "speaker_a": "Ada",
        "speaker_b": "Ben",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ada", "dia_id": "D1:1", "text": "I bought a red canoe."},
            {"speaker": "Ben", "dia_id": "D1:2", "text": "Lovely!", "blip_caption": "a harbour at dawn"},
        ],
        "session_2_date_time": "9:05 am on 1 June, 2023",
        "session_2": [{"speaker": "Ben", "dia_id": "D2:1", "text": "My oven broke while baking rye bread."}],
        "session_3": [],
    },
    "qa": [
        {"question": "Who bought a canoe?", "answer": "Ada", "evidence": ["D1:1"], "category": 4},
        {"question": "Where was the harbour at dawn?", "answer": "?", "evidence": ["D:1:2; D2:1"], "category": 1},
        {"question": "When did the oven break?", "answer": "June", "evidence": ["D2:1"], "category": 2},
        {"question": "Who sang?", "answer": "nobody", "evidence": [], "category": 5},
    ],
}


class TestLocomo:
    def test_table(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """Sessions become transcripts, and every question that names its evidence is asked and scored."""
        file = tmp_path / "locomo.json"
        file.write_text(json.dumps([_SAMPLE]))
        monkeypatch.setattr(sys, "argv", ["locomo", str(file)])
        assert locomo.main() == 0
        out = capsys.readouterr().out
        assert "| all | 3 | 1.000 |" in out
        assert "| several sessions | 1 | 1.000 |" in out
