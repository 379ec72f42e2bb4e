"""What a capsule may hold, wherever it comes from."""

from __future__ import annotations

from .capsule import Capsule
from .errors import CapsuleError
from .lint import missing_sections

__all__ = ["check_fields", "check_text"]

_FIELDS = ("workspace", "name", "title", "source", "run_id", "phase", "role", "source_session")
_MAX_FIELD_CHARS = 1000
_MAX_TAGS = 100


def check_text(text: str, *, max_chars: int, allow_thin: bool) -> None:
    """Size first, then the six sections."""
    if len(text) > max_chars:
        raise CapsuleError.too_large(max_chars, len(text))
    if not allow_thin and (missing := missing_sections(text)):
        raise CapsuleError.too_thin(missing)


def check_fields(capsule: Capsule) -> None:
    """Names and labels are shown in every listing: they are not a place for text."""
    for field in _FIELDS:
        value = getattr(capsule, field)
        if len(value or "") > _MAX_FIELD_CHARS:
            raise CapsuleError.invalid(field, f"{field} must have at most {_MAX_FIELD_CHARS} characters")
        if field == "name" and value is not None and not value.strip():
            raise CapsuleError.invalid(field, "name must not be blank; leave it out for a capsule without a name")
    if len(capsule.tags) > _MAX_TAGS:
        raise CapsuleError.invalid("tags", f"at most {_MAX_TAGS} tags")
    if any(len(tag) > _MAX_FIELD_CHARS for tag in capsule.tags):
        raise CapsuleError.invalid("tags", f"a tag must have at most {_MAX_FIELD_CHARS} characters")
