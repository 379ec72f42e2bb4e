"""The border: every answer, command and page strips hostile characters and replaces secrets here before it leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar, cast

from .characters import clean, is_clean, opens_terminal_string
from .rules import BETWEEN, RULES, count_redacted, redact, redact_field, rule_of_field, suspects

__all__ = ["RULES", "Mode", "clean", "count_redacted", "egress", "reaches_on", "redact"]

Mode = Literal["egress", "ingest", "off"]
T = TypeVar("T")

_BATCH_CHARS = 1 << 18


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
