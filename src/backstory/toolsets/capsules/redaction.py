"""Redaction of capsules: answers leave redacted and stripped, and no stored text is lost by that.

A client fetches a capsule, edits its text and stores it again. A redacted text holds a mark such as
`[redacted:github-token]` in the place of a secret: to store the mark would destroy the secret, so it is refused.
Everything else that differs from what is stored is named in `warnings`, and `raw: true` returns the exact text.
"""

from __future__ import annotations

import re
from collections import Counter

from ...egress import RULES, Mode, clean, egress, redact
from .answers import CapsuleError

_MARK = re.compile(rf"\[redacted:(?:{'|'.join(RULES)})\]")


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
