"""What a capsule may hold, wherever it comes from."""

from __future__ import annotations

from .capsule import Capsule
from .errors import CapsuleError
from .lint import missing_sections

__all__ = ["MAX_FIELD_CHARS", "check_fields", "check_text", "secret_warnings"]

_FIELDS = ("workspace", "name", "title", "source", "run_id", "phase", "role", "source_session")
MAX_FIELD_CHARS = 1000
_MAX_TAGS = 100


def check_text(text: str, *, max_chars: int, allow_thin: bool) -> None:
    """Size first, then the six sections. A blank text has none of them, and is no note either."""
    if len(text) > max_chars:
        raise CapsuleError.too_large(max_chars, len(text))
    if (not allow_thin or not text.strip()) and (missing := missing_sections(text)):
        raise CapsuleError.too_thin(missing)


def secret_warnings(capsule: Capsule) -> list[str]:
    """A warning for a capsule whose text holds what looks like secrets."""
    from ...egress import count_redacted, redact

    found = count_redacted(redact(capsule.text).encode()) - count_redacted(capsule.text.encode())
    if not found:
        return []
    what = "what looks like a secret" if found == 1 else f"what looks like {found} secrets"
    return [f"The capsule holds {what}. Capsules are shared and exported: store where a secret is kept, not its value."]


def check_fields(capsule: Capsule) -> None:
    """Names and labels are shown in every listing: they are not a place for text."""
    for field in _FIELDS:
        value = getattr(capsule, field)
        if len(value or "") > MAX_FIELD_CHARS:
            raise CapsuleError.invalid(field, f"{field} must have at most {MAX_FIELD_CHARS} characters")
        if field == "name" and value is not None and not value.strip():
            raise CapsuleError.invalid(field, "name must not be blank; leave it out for a capsule without a name")
    if len(capsule.tags) > _MAX_TAGS:
        raise CapsuleError.invalid("tags", f"at most {_MAX_TAGS} tags")
    if any(len(tag) > MAX_FIELD_CHARS for tag in capsule.tags):
        raise CapsuleError.invalid("tags", f"a tag must have at most {MAX_FIELD_CHARS} characters")
