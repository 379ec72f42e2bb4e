"""How names are compared and texts are measured."""

from __future__ import annotations

__all__ = ["DEFAULT_WORKSPACE", "normalise", "prefix_end", "tokens_estimate", "workspace_or_default"]

DEFAULT_WORKSPACE = "default"


def normalise(raw: str) -> str:
    """The form in which names and workspaces are compared: trimmed, lowercase, runs of whitespace as one space."""
    return " ".join(raw.lower().split())


def workspace_or_default(raw: str | None) -> str:
    return raw if raw and raw.strip() else DEFAULT_WORKSPACE


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
