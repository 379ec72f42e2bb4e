"""Texts made from texts: one section extended, several capsules put together."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from .capsule import Capsule
from .errors import CapsuleError
from .lint import Section, canonical_name, open_fence, sections

__all__ = ["Extended", "bundle_json", "bundle_markdown", "extend_section"]

# What people write into a section that is still empty.
_PLACEHOLDER = re.compile(
    r"[-*(\[_\s]*(tbd|todo|n/?a|none( yet| currently)?|pending|empty|unknown|\.{3}|…)?[-*)\]_.\s]*", re.I
)
_LIST_ITEM = re.compile(r"\s*([-*+]|\d{1,9}[.)])\s")


class Extended(Struct, frozen=True):
    text: str
    section: str
    replaced: bool


def extend_section(text: str, section: str, content: str) -> Extended:
    """Add `content` at the end of a section, or in place of its placeholder."""
    target = _find(sections(text), section)
    newline = "\r\n" if "\r\n" in text else "\n"
    head, body, tail = text[: target.body], text[target.body : target.end], text[target.end :]
    replaced = _PLACEHOLDER.fullmatch(body) is not None
    kept = "" if replaced else body.rstrip()
    if kept:
        kept += newline * (1 if _continues_list(kept, content) else 2)
    elif not head.endswith(("\n", "\r")):
        # Either the text ends with the heading, or the section starts on the line of its name. Several lines, such as
        # a code block, need one of their own.
        kept = newline if target.body == len(text) or "\n" in content.strip() else " "
    gap = newline * 2 if tail else newline if text.endswith(("\n", "\r")) else ""
    return Extended(f"{head}{kept}{content.strip()}{gap}{tail}", target.name, replaced)


def _continues_list(body: str, content: str) -> bool:
    last_line = body.splitlines()[-1]
    return bool(_LIST_ITEM.match(content)) and bool(_LIST_ITEM.match(last_line) or last_line[:1].isspace())


def _find(present: Sequence[Section], wanted: str) -> Section:
    """The section with this heading, else one with another name for the same."""
    if not present:
        raise CapsuleError.invalid("section", "Only a capsule with Markdown sections can be appended to; use update")
    folded = " ".join(wanted.lower().split())
    for section in present:
        if " ".join(section.name.lower().split()) == folded:
            return section
    canonical = canonical_name(wanted)
    for section in present:
        if canonical and canonical_name(section.name) == canonical:
            return section
    names = ", ".join(section.name for section in present)
    raise CapsuleError.invalid("section", f'The capsule has no section "{wanted}"; it has: {names}')


def bundle_markdown(capsules: Sequence[Capsule]) -> str:
    """The capsules one after the other, each under its display name. A code block ends with its capsule."""
    return "\n\n---\n\n".join(f"## {_display_name(capsule)}\n\n{_closed(capsule.text.strip())}" for capsule in capsules)


def _closed(text: str) -> str:
    fence = open_fence(text)
    return f"{text}\n{fence}" if fence else text


def bundle_json(capsules: Sequence[Capsule]) -> str:
    parts = [
        {
            "id": capsule.id,
            "workspace": capsule.workspace,
            "name": capsule.name,
            "display_name": _display_name(capsule),
            "text": capsule.text,
            "chars": capsule.chars,
        }
        for capsule in capsules
    ]
    return msgspec.json.encode({"parts": parts}).decode()


def _display_name(capsule: Capsule) -> str:
    return " ".join((capsule.title or capsule.name or capsule.id).split())
