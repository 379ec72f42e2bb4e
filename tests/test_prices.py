"""Prices: at the time of the call, with tiers, and the cache on its own."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest
from genai_prices import Usage, calc_price
from hypothesis import given
from hypothesis import strategies as st

from backstory.prices import Tokens, price, price_list

NOW = 1_767_225_600_000
# Prices of `o3` and `claude-opus-4-6` changed at a date, those of `deepseek-chat` depended on the time of day.
MODELS = [
    *("claude-opus-4-5-20251101", "claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-4-6"),
    *("gpt-4o", "gpt-5", "o3", "gemini-2.5-pro", "deepseek-chat", "deepseek-reasoner"),
]
DAY = 86_400_000
amounts = st.integers(0, 400_000)


class TestPrice:
    """Sums agree with those that the price list itself computes."""

    @given(st.sampled_from(MODELS), st.integers(NOW - 500 * DAY, NOW + 200 * DAY), *[amounts] * 5)
    def test_as_the_price_list(
        self, model: str, at: int, plain: int, output: int, read: int, five_minutes: int, one_hour: int
    ) -> None:
        usage = Usage(
            input_tokens=plain + read + five_minutes + one_hour,
            output_tokens=output,
            cache_read_tokens=read,
            cache_write_tokens=five_minutes + one_hour,
            cache_write_5m_tokens=five_minutes,
            cache_write_1h_tokens=one_hour,
        )
        expected = calc_price(usage, model, genai_request_timestamp=datetime.fromtimestamp(at / 1000, UTC)).total_price
        tokens = Tokens(plain + read + five_minutes + one_hour, output, read, five_minutes, one_hour)
        assert price(model, tokens, at) == pytest.approx(float(expected), abs=1e-9)

    def test_writes_of_an_hour_cost_more(self) -> None:
        five_minutes = price("claude-opus-4-5", Tokens(1000, 0, 0, 1000, 0), NOW)
        one_hour = price("claude-opus-4-5", Tokens(1000, 0, 0, 0, 1000), NOW)
        assert (five_minutes, one_hour) == (0.00625, 0.01)

    @pytest.mark.parametrize("model", [None, "", "nobody-knows-1"])
    def test_unpriced(self, model: str | None) -> None:
        assert price(model, Tokens(1000, 10), NOW) is None

    def test_an_unknown_provider_says_nothing(self) -> None:
        assert price("gpt-4o", Tokens(1000), NOW, "some-gateway") == price("gpt-4o", Tokens(1000), NOW)

    def test_more_cached_than_given(self) -> None:
        assert price("gemini-2.5-pro", Tokens(10, 0, 500_000), NOW) is not None


def test_the_version_of_the_price_list() -> None:
    assert price_list() == version("genai-prices")


class TestKept:
    """Importing the price list takes longer than reading what an agent has just written: one process in many does."""

    SCRIPT = """
import json, sys
from pathlib import Path
from backstory.prices import Tokens, keep_rates, price
keep_rates(Path(sys.argv[1]) / "cache")
at = 1_767_225_600_000
found = [price(model, Tokens(1_000, 10), at) for model in ("gpt-5", "o3", "nobody-knows-1")]
print(json.dumps([found, "genai_prices" in sys.modules]))
"""

    def run(self, home: Path) -> tuple[list[float | None], bool]:
        command = [sys.executable, "-c", self.SCRIPT, str(home)]
        found, imported = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        return found, imported

    def test_the_next_process_does_not_import_the_list(self, tmp_path: Path) -> None:
        """It has the same prices, also none for the same models; no name of a model is in the file."""
        first, imported = self.run(tmp_path)
        again, imported_again = self.run(tmp_path)

        assert first == again == [price("gpt-5", Tokens(1_000, 10), NOW), price("o3", Tokens(1_000, 10), NOW), None]
        assert (imported, imported_again) == (True, False)
        assert b"nobody" not in (tmp_path / "cache" / "prices.json").read_bytes()

    @pytest.mark.parametrize("content", [b"{", b'{"version": "0", "tariffs": {}}'])
    def test_a_broken_or_older_file_is_replaced(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / "prices.json").write_bytes(content)

        first, imported = self.run(tmp_path)

        assert imported
        assert (first, False) == self.run(tmp_path)
