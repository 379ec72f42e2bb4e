"""Model calls, added up: by day, project, model and agent, and from these by any one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from ...archive.spans import UsageTotal


class Amount(Struct, kw_only=True):
    """Added-up model calls. `cost` is None when no call has a known price; `unpriced` calls are not in it."""

    name: str | None = None
    calls: int = 0
    input_tokens: int = 0
    """With those read from and written to the cache."""
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    unpriced: int = 0

    def add(self, total: UsageTotal | Amount) -> None:
        self.calls += total.calls
        self.input_tokens += total.input_tokens
        self.cache_read_tokens += total.cache_read_tokens
        self.cache_write_tokens += total.cache_write_tokens
        self.output_tokens += total.output_tokens
        self.unpriced += total.unpriced
        if total.cost is not None:
            self.cost = (self.cost or 0.0) + total.cost

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def cache_share(self) -> float | None:
        """The part of the input that was read from the cache."""
        return self.cache_read_tokens / self.input_tokens if self.input_tokens else None


class DayAmount(Amount, kw_only=True):
    """The model calls of one day, project, model and agent."""

    day: str
    project: str | None
    model: str | None
    source: str | None


def add_by_day(totals: Iterable[UsageTotal]) -> list[DayAmount]:
    """Without sessions and quarter hours, which are many times as many."""
    amounts: dict[tuple[str, str | None, str | None, str | None], DayAmount] = {}
    for entry in totals:
        key = entry.day, entry.project, entry.model, entry.source
        amount = amounts.get(key)
        if amount is None:
            amount = amounts[key] = DayAmount(
                day=entry.day, project=entry.project, model=entry.model, source=entry.source
            )
        amount.add(entry)
    return list(amounts.values())


def add_up(totals: Iterable[DayAmount]) -> Amount:
    amount = Amount()
    for entry in totals:
        amount.add(entry)
    return amount


def grouped(totals: Iterable[DayAmount], name_of: Callable[[DayAmount], str | None]) -> list[Amount]:
    """Amounts by name, the most expensive first."""
    amounts: dict[str | None, Amount] = {}
    for entry in totals:
        name = name_of(entry)
        amount = amounts.get(name)
        if amount is None:
            amount = amounts[name] = Amount(name=name)
        amount.add(entry)
    return sorted(amounts.values(), key=lambda amount: (amount.cost or 0.0, amount.tokens), reverse=True)
