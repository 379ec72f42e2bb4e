"""The conditions of a search as queries of the index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import tantivy


class Filters(Struct, frozen=True, kw_only=True):
    """Numbers, as in the index; None does not filter."""

    types: tuple[int, ...]
    session: int | None = None
    turn: int | None = None
    projects: tuple[int, ...] | None = None
    source: int | None = None
    since: int | None = None
    until: int | None = None

    def queries(self, schema: tantivy.Schema, *, typed: bool) -> Iterator[tantivy.Query]:
        """Queries that all have to match. `typed`: with the condition on types."""
        import tantivy

        numbers = (
            ("type", self.types if typed else None),
            ("project", self.projects),
            ("source", None if self.source is None else (self.source,)),
            ("session", None if self.session is None else (self.session,)),
            ("turn", None if self.turn is None else (self.turn,)),
        )
        for field, values in numbers:
            if values is not None:
                terms = [tantivy.Query.term_query(schema, field, value, "basic") for value in values]
                yield tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
        if self.since is not None or self.until is not None:
            yield tantivy.Query.range_query(
                schema,
                "ts",
                tantivy.FieldType.Integer,
                lower_bound=self.since,
                upper_bound=self.until,
                # tantivy refuses an open bound that is also excluded
                include_upper=self.until is None,
            )
