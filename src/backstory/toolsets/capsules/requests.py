"""Reading tool arguments: defaults, clamps and filters that several tools share."""

from __future__ import annotations

from typing import Protocol

from .errors import CapsuleError
from .reader import Filters
from .wording import normalise, workspace_or_default

__all__ = ["choice", "filters_of", "limit_of", "offset_of", "text_of", "unless_blank"]

_MAX_OFFSET = 1 << 53


class _Filtering(Protocol):
    @property
    def include_deleted(self) -> bool | None: ...
    @property
    def run_id(self) -> str | None: ...
    @property
    def phase(self) -> str | None: ...
    @property
    def role(self) -> str | None: ...


def text_of(given: str | None) -> str:
    if not given:
        raise CapsuleError.invalid("capsule_text", "capsule_text is required")
    return given


def choice(field: str, given: str | None, values: tuple[str, ...]) -> str:
    """One of `values`; the first if nothing is given."""
    if given is None:
        return values[0]
    if given not in values:
        raise CapsuleError.invalid(field, f"{field} must be one of: {', '.join(values)}")
    return given


def unless_blank(given: str | None) -> str | None:
    """The value as given; None for a blank one, which means not set."""
    return given if given and given.strip() else None


def limit_of(given: int | None, default: int, most: int) -> int:
    """Clamped; zero or less is the default, as if it was not given."""
    return default if given is None or given < 1 else min(given, most)


def offset_of(given: int | None) -> int:
    return min(max(given or 0, 0), _MAX_OFFSET)


def filters_of(
    given: _Filtering, *, workspace: str | None, tag: str | None = None, name_prefix: str | None = None
) -> Filters:
    """The filters of a listing; those that are blank were not given, except that a blank workspace is the default."""
    return Filters(
        workspace_norm=None if workspace is None else normalise(workspace_or_default(workspace)),
        tag=unless_blank(tag),
        name_prefix=normalise(name_prefix or "") or None,
        run_id=unless_blank(given.run_id),
        phase=unless_blank(given.phase),
        role=unless_blank(given.role),
        include_deleted=bool(given.include_deleted),
    )
