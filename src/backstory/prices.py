"""The cost of model calls, by the prices of `genai-prices` at the time of the call."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from .files import replacing
from .model import digest

if TYPE_CHECKING:
    from datetime import date

    from genai_prices.types import ModelInfo, ModelPrice, Provider

_PROBE = 1_000
_MOST_KEPT = 1_000
_KINDS = ("cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens")


class Tokens(Struct, frozen=True):
    """The tokens of one call. `input` includes what was read from or written to the cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0


class _Rates(Struct, frozen=True, array_like=True):
    """Dollars per token from a time on, for calls with at most `up_to` input tokens: beyond it other prices begin."""

    since: int
    plain: float
    output: float
    cache_read: float
    cache_write_5m: float
    cache_write_1h: float
    up_to: int | None

    def price(self, tokens: Tokens) -> float:
        cached = tokens.cache_read + tokens.cache_write_5m + tokens.cache_write_1h
        return round(
            self.plain * max(tokens.input - cached, 0)
            + self.output * tokens.output
            + self.cache_read * tokens.cache_read
            + self.cache_write_5m * tokens.cache_write_5m
            + self.cache_write_1h * tokens.cache_write_1h,
            10,
        )


_Tariff = tuple[_Rates, ...] | None
"""The rates of a model, of which the last one that has begun counts. None if prices depend on the time of day; empty
for a model without a known price."""


class _Tariffs(Struct):
    """The known part of a price list, by digests of model and provider: names are not kept where their session is
    forgotten."""

    version: str
    tariffs: dict[str, _Tariff] = {}


def price(model: str | None, tokens: Tokens, at_ms: int, provider: str | None = None) -> float | None:
    """Dollars, or None for a model without a known price."""
    if not model:
        return None
    tariff = _tariff(model, provider)
    if tariff is None:
        return _ask(model, provider, tokens, at_ms)
    if not tariff:
        return None
    rates = tariff[0]
    for later in tariff[1:]:
        if later.since <= at_ms:
            rates = later
    if rates.up_to is not None and tokens.input > rates.up_to:
        return _ask(model, provider, tokens, at_ms)
    return rates.price(tokens)


@cache
def price_list() -> str:
    """The version of the price list. Another version may know other models."""
    found = find_spec("genai_prices")
    if found is not None and found.origin is not None:
        # `importlib.metadata` finds it in the same place, but importing that takes longer than to read some records.
        for path in Path(found.origin).parents[1].glob("genai_prices-*.dist-info"):
            return path.name.removeprefix("genai_prices-").removesuffix(".dist-info")
    from importlib.metadata import version

    return version("genai-prices")


_kept_in: Path | None = None


def keep_rates(folder: Path) -> None:
    """Keep what is learned of the price list in a file of this folder, for other processes: importing the list takes
    longer than reading what an agent has just written."""
    global _kept_in
    _kept_in = folder / "prices.json"


@lru_cache(maxsize=4096)
def _tariff(model: str, provider: str | None) -> _Tariff:
    """Asking the price list takes a tenth of a millisecond, too long for each of a million calls. Within a tier it is
    linear, so the cost of a thousand tokens of each kind is enough."""
    name = digest(provider or "", model).hex()
    kept = _read_kept()
    if name not in kept.tariffs:
        kept.tariffs[name] = _learn(model, provider)
        if len(kept.tariffs) <= _MOST_KEPT:
            _write_kept(kept)
    return kept.tariffs[name]


def _read_kept() -> _Tariffs:
    if _kept_in is not None:
        with suppress(OSError, msgspec.DecodeError):
            kept = msgspec.json.decode(_kept_in.read_bytes(), type=_Tariffs)
            if kept.version == price_list():
                return kept
    return _Tariffs(price_list())


def _write_kept(tariffs: _Tariffs) -> None:
    if _kept_in is not None:
        with suppress(OSError):  # a home that cannot be written
            _kept_in.parent.mkdir(mode=0o700, exist_ok=True)
            with replacing(_kept_in) as file:
                file.write(msgspec.json.encode(tariffs))


def _learn(model: str, provider: str | None) -> _Tariff:
    found = _find(model, provider)
    if found is None:
        return ()
    prices = found[1].prices
    if not isinstance(prices, list):
        return (_rates(prices, 0),)
    from genai_prices.types import StartDateConstraint

    first, *later = prices  # the first one counts before the others begin
    starts = [one.constraint.start_date for one in later if isinstance(one.constraint, StartDateConstraint)]
    if len(starts) < len(later) or starts != sorted(starts):
        return None
    rates = (_rates(one.prices, _midnight(start)) for one, start in zip(later, starts, strict=True))
    return (_rates(first.prices, 0), *rates)


def _midnight(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000


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


def _rates(prices: ModelPrice, since: int) -> _Rates:
    from genai_prices import Usage

    def rate(**usage: int) -> float:
        given = {"input_tokens": 0, "output_tokens": 0, "cache_write_tokens": 0, **dict.fromkeys(_KINDS, 0), **usage}
        return float(prices.calc_price(Usage(**given))["total_price"]) / _PROBE

    written = {"input_tokens": _PROBE, "cache_write_tokens": _PROBE}
    return _Rates(
        since=since,
        plain=rate(input_tokens=_PROBE),
        output=rate(output_tokens=_PROBE),
        cache_read=rate(input_tokens=_PROBE, cache_read_tokens=_PROBE),
        cache_write_5m=rate(**written, cache_write_5m_tokens=_PROBE),
        cache_write_1h=rate(**written, cache_write_1h_tokens=_PROBE),
        up_to=_first_tier(prices),
    )


def _first_tier(prices: ModelPrice) -> int | None:
    starts = [tier.start for value in vars(prices).values() for tier in getattr(value, "tiers", ())]
    return min(starts) if starts else None


def _ask(model: str, provider: str | None, tokens: Tokens, at_ms: int) -> float | None:
    """The price as the price list computes it."""
    from genai_prices import Usage

    found = _find(model, provider)
    if found is None:
        return None
    usage = Usage(
        input_tokens=max(tokens.input, tokens.cache_read + tokens.cache_write_5m + tokens.cache_write_1h),
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write_5m + tokens.cache_write_1h,
        cache_write_5m_tokens=tokens.cache_write_5m,
        cache_write_1h_tokens=tokens.cache_write_1h,
    )
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return float(found[1].calc_price(usage, found[0], genai_request_timestamp=moment).total_price)
