"""A capsule as the store keeps it, the limits of its fields, and the shapes in which redacted answers show it."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec
from msgspec import Struct

from ...egress import RULES, Mode, clean, egress, redact
from .answers import CapsuleError, Item, Link, SearchHit, Summary, Version

SECOND = 1_000_000
MAX_FIELD_CHARS = 1000
_MAX_TAGS = 100
_FIELDS = ("workspace", "name", "title", "source", "run_id", "phase", "role", "source_session")
_SHOWN = ("id", *_FIELDS, "tags", "created_at", "updated_at", "deleted_at")
_DEFAULT_WORKSPACE = "default"
_MARK = re.compile(rf"\[redacted:(?:{'|'.join(RULES)})\]")


class Capsule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Raw names and text exactly as given.

    `updated_us` gives the order of updates: it only grows, even when the clock is set back. `updated_at` is the time
    of the last update in seconds, by the clock.
    """

    id: str = ""
    workspace: str
    name: str | None = None
    title: str | None = None
    # Empty when only the summary was read.
    text: str = ""
    chars: int = 0
    tokens: int = 0
    tags: tuple[str, ...] = ()
    source: str | None = None
    run_id: str | None = None
    phase: str | None = None
    role: str | None = None
    source_session: str | None = None
    allow_thin: bool = False
    version: int = 1
    created_at: int = 0
    updated_us: int = 0
    updated_at: int = 0
    deleted_us: int | None = None

    @property
    def workspace_norm(self) -> str:
        return normalise(self.workspace)

    @property
    def name_norm(self) -> str | None:
        return None if self.name is None else normalise(self.name)

    @property
    def deleted_at(self) -> int | None:
        return None if self.deleted_us is None else self.deleted_us // SECOND


def with_text(capsule: Capsule, text: str) -> Capsule:
    return msgspec.structs.replace(capsule, text=text, chars=len(text), tokens=tokens_estimate(text))


def check_fields(capsule: Capsule) -> None:
    """Refuse names and labels that are too long: every listing shows them."""
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


# Names and sizes


def normalise(raw: str) -> str:
    """The form in which names and workspaces are compared: trimmed, lowercase, runs of whitespace as one space."""
    return " ".join(raw.lower().split())


def workspace_or_default(raw: str | None) -> str:
    return raw if raw and raw.strip() else _DEFAULT_WORKSPACE


def tokens_estimate(text: str) -> int:
    """Words x 1.3, rounded up."""
    return -(-len(text.split()) * 13 // 10)


def prefix_end(prefix: str) -> str | None:
    """The first string after all that start with `prefix`, in code point order; None when nothing comes after."""
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1]) + 1
        if code <= 0x10FFFF:
            # Surrogates are no characters: the one after U+D7FF is U+E000.
            return prefix[: end - 1] + chr(0xE000 if code == 0xD800 else code)
    return None


# Shapes. The frame of the tools redacts them in this mode; None is an answer that leaves exactly as stored.


def link(capsule: Capsule) -> Link:
    """The names, or the id where there is no name or where egress would change the names: a link always resolves."""
    if capsule.name is None or not leaves_unchanged(capsule.name, capsule.workspace):
        return Link(moss_id=capsule.id)
    return Link(moss_capsule=capsule.name, moss_workspace=capsule.workspace)


def summary(capsule: Capsule, mode: Mode | None) -> Summary:
    return Summary(**_summary_fields(capsule, mode))


def item(capsule: Capsule, mode: Mode | None, *, include_text: bool) -> Item:
    key = link(capsule)
    return Item(
        **_summary_fields(capsule, mode),
        version=capsule.version,
        task_link=key,
        fetch_key=key,
        capsule_text=capsule.text if include_text else None,
        warnings=egress_warnings(capsule.text, mode) if include_text and mode else [],
    )


def search_hit(capsule: Capsule, snippet: str, mode: Mode | None) -> SearchHit:
    key = link(capsule)
    return SearchHit(**_summary_fields(capsule, mode), task_link=key, fetch_key=key, snippet=snippet)


def version_of(capsule: Capsule, mode: Mode | None, *, include_text: bool) -> Version:
    return Version(
        capsule.version,
        capsule.updated_at,
        capsule.chars,
        capsule.tokens,
        title=capsule.title,
        tags=capsule.tags,
        source=capsule.source,
        source_session=capsule.source_session,
        capsule_text=capsule.text if include_text else None,
        warnings=egress_warnings(capsule.text, mode) if include_text and mode else [],
    )


def _summary_fields(capsule: Capsule, mode: Mode | None) -> dict[str, Any]:
    return {
        **{name: getattr(capsule, name) for name in _SHOWN},
        "workspace_norm": _norm(capsule.workspace, mode),
        "name_norm": None if capsule.name is None else _norm(capsule.name, mode),
        "capsule_chars": capsule.chars,
        "tokens_estimate": capsule.tokens,
    }


def _norm(raw: str, mode: Mode | None) -> str:
    """A normalised name, redacted before it is: in lower case most rules do not recognise a secret."""
    return normalise(egress(raw, mode) if mode else raw)


# Redaction: a client fetches a capsule, edits its text and stores it again. A redacted text holds a mark such as
# `[redacted:github-token]` in the place of a secret: to store the mark would destroy the secret, so it is refused.
# Everything else that differs from what is stored is named in `warnings`, and `raw: true` returns the exact text.


def leaves_unchanged(*texts: str) -> bool:
    """True when egress changes none of the texts."""
    return all(egress(text) == text for text in texts)


def check_marks(field: str, new: str, old: str) -> None:
    """Refuse a new value that has a redaction mark more often than the stored one has it literally."""
    added = Counter(_MARK.findall(new)) - Counter(_MARK.findall(old))
    if added:
        raise CapsuleError.invalid(
            field,
            f"{field} contains {next(iter(added))}, the mark of a redacted secret; storing it would lose the secret. "
            "Fetch the capsule with raw: true (--raw) and edit that text, or remove the mark",
        )


def egress_warnings(text: str, mode: Mode) -> list[str]:
    """A warning for a text that leaves changed."""
    secrets = 0 if mode == "off" else _secrets(text)
    changes = [f"{_plural(secrets, 'secret')} redacted"] if secrets else []
    if _hidden(text):
        changes.append("control or invisible characters removed")
    return [f"{' and '.join(changes)} in this text; with raw it is returned exactly as stored."] if changes else []


def secret_warnings(text: str) -> list[str]:
    """Warnings for a text to be stored: it holds secrets, or marks in their place."""
    warnings = []
    if found := _secrets(text):
        described = "what looks like a secret" if found == 1 else f"what looks like {found} secrets"
        warnings.append(
            f"The capsule holds {described}. Capsules are shared and exported: "
            "store where a secret is kept, not its value."
        )
    if mark := _MARK.search(text):
        warnings.append(f"The capsule holds {mark[0]}, a redaction mark, in the place of a secret.")
    return warnings


def loss_warnings(old: str, new: str, old_version: int) -> list[str]:
    """A warning for a change that drops what a redacted answer does not show."""
    dropped = _secrets(old) - _secrets(new)
    parts = [_plural(dropped, "secret")] if dropped > 0 else []
    if _hidden(old) and not _hidden(new):
        parts.append("control or invisible characters")
    if not parts:
        return []
    lost = f"The previous text held {' and '.join(parts)} that the new text does not hold"
    return [f"{lost}; the history keeps it as version {old_version}."]


def _secrets(text: str) -> int:
    return len(_MARK.findall(redact(clean(text)))) - len(_MARK.findall(clean(text)))


def _hidden(text: str) -> bool:
    """True when stripping removes something. Line ends are not counted: all of them leave as newlines."""
    return clean(text) != text.replace("\r\n", "\n").replace("\r", "\n")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
