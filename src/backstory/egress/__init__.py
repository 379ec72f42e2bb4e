"""The border: every answer, command and page strips hostile characters and replaces secrets here before it leaves."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar, cast

from .rules import BETWEEN, RULES, count_redacted, redact, redact_field, rule_of_field, suspects

__all__ = ["RULES", "Mode", "clean", "count_redacted", "egress", "reaches_on", "redact"]

Mode = Literal["egress", "ingest", "off"]
T = TypeVar("T")

_BATCH_CHARS = 1 << 18

# CSI; OSC (titles, hyperlinks) and the other strings up to their terminator; the two-character sequences.
_TERMINAL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*+(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*+[0-Z\\^-~]"
)
_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u200e\u200f\u202a-\u202e\u2066-\u2069\u061c"  # bidi
    "\xad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff"  # no width
    "\ufff9-\ufffb\U000e0000-\U000e007f"  # interlinear annotation, tags
)
_DROPPED = re.compile(f"[{_UNSEEN}]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_JOINERS = re.compile("[\u200c\u200d]+")
# A variation selector follows what it varies; in a row they carry hidden bytes.
_SELECTORS = re.compile("([\ufe00-\ufe0f\U000e0100-\U000e01ef])[\ufe00-\ufe0f\U000e0100-\U000e01ef]+")
_JOINABLE = frozenset(("Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Mn", "So", "Sk"))
# How terminal strings begin, which end anywhere.
_ESCAPED_STRINGS = re.compile("\x1b[]PX^_]")
_C1_STRINGS = re.compile(rb"\xc2[\x90\x98\x9d-\x9f]")
_CONTROLS = bytes(code for code in (*range(32), 127) if chr(code) not in "\n\t")


def egress(value: T, mode: Mode = "egress") -> T:
    """A text, or a JSON value with all its texts and keys, without hostile characters and secrets.

    Nearly all values leave unchanged, so all texts of a value are searched together first. The mode `ingest` redacts
    here too: the archive may hold texts that were read before the mode was set.
    """
    if isinstance(value, str):
        text = clean(value)
        return cast("T", text if mode == "off" else redact(text))
    texts, has_secret_name = _scan(value)
    changes = _changes(texts, mode)
    return cast("T", _changed(value, changes, mode)) if changes or has_secret_name else value


def _scan(value: Any) -> tuple[list[str], bool]:
    """The different texts of a JSON value, keys included; and if a field may hold a secret because of its name."""
    texts: set[str] = set()
    has_secret_name = False
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            texts.add(item)
        elif isinstance(item, dict):
            texts.update(item)
            pending.extend(item.values())
            has_secret_name = has_secret_name or any(map(rule_of_field, item))
        elif isinstance(item, list | tuple):
            pending.extend(item)
    return list(texts), has_secret_name


def _changes(texts: Sequence[str], mode: Mode) -> dict[str, str]:
    """The texts that do not leave as they are, with their replacements."""
    changes: dict[str, str] = {}
    for batch in _batches(texts):
        if not is_clean(BETWEEN.join(batch)):
            changes |= {text: cleaned for text in batch if (cleaned := clean(text)) != text}
        if mode != "off":
            cleaned_batch = [changes.get(text, text) for text in batch] if changes else batch
            for place in suspects(cleaned_batch):
                if (redacted := redact(cleaned_batch[place])) != batch[place]:
                    changes[batch[place]] = redacted
    return changes


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """The texts in portions that are joined for one search, so that a large answer is not held twice."""
    start = chars = 0
    for end, text in enumerate(texts, 1):
        chars += len(text)
        if chars >= _BATCH_CHARS:
            yield texts[start:end]
            start, chars = end, 0
    if start < len(texts):
        yield texts[start:]


def _changed(value: Any, changes: dict[str, str], mode: Mode) -> Any:
    """A copy of the value with the replacements, at any depth."""
    box = [value]
    pending: list[Any] = [box]
    while pending:
        container = pending.pop()
        for key, item in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(item, str):
                text = changes.get(item, item)
                container[key] = text if mode == "off" or isinstance(key, int) else redact_field(key, text)
            elif isinstance(item, dict):
                container[key] = {changes.get(name, name): inner for name, inner in item.items()}
                pending.append(container[key])
            elif isinstance(item, list | tuple):
                container[key] = list(item)
                pending.append(container[key])
    return box[0]


def reaches_on(text: str) -> bool:
    """True if a match begins here that may end after the text: a private key, a terminal string.

    Everything else that `egress` changes is within a word.
    """
    return "-----BEGIN" in text or opens_terminal_string(text)


# Hostile characters: those that act unseen on a terminal or a reader


def clean(text: str) -> str:
    """The text without hostile characters: escapes, controls, bidi, zero-width, tags."""
    if is_clean(text):
        return text
    text = _TERMINAL.sub("", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _DROPPED.sub("", text)
    text = _SURROGATE.sub("\ufffd", text)
    text = _JOINERS.sub(_keep_joiner, text)
    return _SELECTORS.sub(r"\1", text)


def is_clean(text: str) -> bool:
    """True for nearly all texts, so this decides the cost: a search for the characters takes several times as long."""
    if text.isascii():
        return len(text.encode().translate(None, _CONTROLS)) == len(text)
    # All dropped characters are not printable, except variation selectors: those are found by their first bytes.
    if not text.replace("\n", " ").replace("\t", " ").isprintable():
        return False
    data = text.encode()
    return (b"\xef\xb8" not in data and b"\xf3\xa0" not in data) or not _SELECTORS.search(text)


def _keep_joiner(match: re.Match[str]) -> str:
    """One joiner between letters or emoji of other scripts is spelling (Persian, Indic, families); any other hides."""
    text, start, end = match.string, match.start(), match.end()
    spells = end - start == 1 and start > 0 and end < len(text) and _joinable(text[start - 1]) and _joinable(text[end])
    return match[0] if spells else ""


def _joinable(character: str) -> bool:
    return not character.isascii() and unicodedata.category(character) in _JOINABLE


def opens_terminal_string(text: str) -> bool:
    """True if a terminal string begins here: it ends at its terminator, anywhere."""
    if "\x1b" in text and _ESCAPED_STRINGS.search(text):
        return True
    # As bytes, which are searched several times faster than the characters.
    return not text.isascii() and _C1_STRINGS.search(text.encode("utf-8", "replace")) is not None
