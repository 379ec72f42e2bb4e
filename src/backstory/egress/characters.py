"""Hostile characters: those that act unseen on a terminal or a reader are stripped."""

from __future__ import annotations

import re
import unicodedata

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
