"""Prices: at the time of the call, with tiers, and the cache on its own."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from genai_prices import Usage, calc_price
from hypothesis import given
from hypothesis import strategies as st

from backstory.prices import Tokens, price

NOW = 1_767_225_600_000
MODELS = ["claude-opus-4-5-20251101", "claude-sonnet-4-5", "claude-haiku-4-5", "gpt-4o", "gpt-5", "gemini-2.5-pro"]
amounts = st.integers(0, 400_000)


class TestPrice:
    """Sums agree with those that the price list itself computes."""

    @given(st.sampled_from(MODELS), amounts, amounts, amounts, amounts, amounts)
    def test_as_the_price_list(
        self, model: str, plain: int, output: int, read: int, five_minutes: int, one_hour: int
    ) -> None:
        usage = Usage(
            input_tokens=plain + read + five_minutes + one_hour,
            output_tokens=output,
            cache_read_tokens=read,
            cache_write_tokens=five_minutes + one_hour,
            cache_write_5m_tokens=five_minutes,
            cache_write_1h_tokens=one_hour,
        )
        expected = calc_price(usage, model, genai_request_timestamp=datetime.fromtimestamp(NOW / 1000, UTC)).total_price
        tokens = Tokens(plain + read + five_minutes + one_hour, output, read, five_minutes, one_hour)
        assert price(model, tokens, NOW) == pytest.approx(float(expected), abs=1e-9)

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
