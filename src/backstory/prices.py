"""The cost of model calls, by the prices of `genai-prices` at the time of the call."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider

_PROBE = 1_000
_KINDS = ("cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens")


class Tokens(Struct, frozen=True):
    """The tokens of one call. `input` includes what was read from or written to the cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0


class _Rates(Struct, frozen=True):
    """Dollars per token, for calls with at most `up_to` input tokens: beyond it other prices begin."""

    plain: float
    output: float
    cache_read: float
    cache_write_5m: float
    cache_write_1h: float
    up_to: int | None


def price(model: str | None, tokens: Tokens, at_ms: int, provider: str | None = None) -> float | None:
    """Dollars, or None for a model without a known price."""
    if not model:
        return None
    found = _find(model, provider)
    if found is None:
        return None
    prices = found[1].prices
    if isinstance(prices, list):  # of several times
        prices = found[1].get_prices(_moment(at_ms))
    rates = _RATES.get(id(prices)) or _learn_rates(prices)
    if rates.up_to is not None and tokens.input > rates.up_to:
        return _ask(found, _moment(at_ms), tokens)
    cached = tokens.cache_read + tokens.cache_write_5m + tokens.cache_write_1h
    return round(
        rates.plain * max(tokens.input - cached, 0)
        + rates.output * tokens.output
        + rates.cache_read * tokens.cache_read
        + rates.cache_write_5m * tokens.cache_write_5m
        + rates.cache_write_1h * tokens.cache_write_1h,
        10,
    )


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@cache
def price_list() -> str:
    """The version of the price list. Another version may know other models. To look it up takes milliseconds."""
    from importlib.metadata import version

    return version("genai-prices")


@lru_cache(maxsize=4096)
def _find(model: str, provider: str | None) -> tuple[Provider, ModelInfo] | None:
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    # An unknown provider (a proxy, a gateway) counts less than the name of the model.
    for provider_id in (provider, None) if provider else (None,):
        try:
            return snapshot.find_provider_model(model, None, provider_id, None)
        except LookupError:
            continue
    return None


# By identity: the objects of the price list live as long as the process.
_RATES: dict[int, _Rates] = {}


def _learn_rates(prices: ModelPrice) -> _Rates:
    """Asking the price list takes a tenth of a millisecond, too long for each of a million calls. Within a tier it is
    linear, so the cost of a thousand tokens of each kind is enough."""
    from genai_prices import Usage

    def rate(**usage: int) -> float:
        given = {"input_tokens": 0, "output_tokens": 0, "cache_write_tokens": 0, **dict.fromkeys(_KINDS, 0), **usage}
        return float(prices.calc_price(Usage(**given))["total_price"]) / _PROBE

    written = {"input_tokens": _PROBE, "cache_write_tokens": _PROBE}
    rates = _RATES[id(prices)] = _Rates(
        plain=rate(input_tokens=_PROBE),
        output=rate(output_tokens=_PROBE),
        cache_read=rate(input_tokens=_PROBE, cache_read_tokens=_PROBE),
        cache_write_5m=rate(**written, cache_write_5m_tokens=_PROBE),
        cache_write_1h=rate(**written, cache_write_1h_tokens=_PROBE),
        up_to=_first_tier(prices),
    )
    return rates


def _first_tier(prices: ModelPrice) -> int | None:
    starts = [tier.start for value in vars(prices).values() for tier in getattr(value, "tiers", ())]
    return min(starts) if starts else None


def _ask(found: tuple[Provider, ModelInfo], moment: datetime, tokens: Tokens) -> float:
    from genai_prices import Usage

    provider, model = found
    usage = Usage(
        input_tokens=max(tokens.input, tokens.cache_read + tokens.cache_write_5m + tokens.cache_write_1h),
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write_5m + tokens.cache_write_1h,
        cache_write_5m_tokens=tokens.cache_write_5m,
        cache_write_1h_tokens=tokens.cache_write_1h,
    )
    return float(model.calc_price(usage, provider, genai_request_timestamp=moment).total_price)
