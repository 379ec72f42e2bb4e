"""Passages: of a text of which the page of a session shows the beginning, the part that a search found farther on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from .conversation import Item, Passage, ShownTurn, ToolUse


class FoundLine(Struct, frozen=True):
    """A match in a session."""

    id: str
    """Of the event."""
    url: str
    label: str
    turn: int
    snippet: str
    marks: list[tuple[int, int]]


def with_passages(turns: Sequence[ShownTurn], lines: Iterable[FoundLine]) -> list[ShownTurn]:
    """The turns, with the matches in texts of theirs that are cut, where the cut has left them out."""
    found = {line.id: Passage(line.snippet, line.marks) for line in lines if line.marks}
    return [replace(turn, items=[_with_passage(item, found) for item in turn.items]) for turn in turns]


def _with_passage(item: Item, found: Mapping[str, Passage]) -> Item:
    use = item.tool
    if use is None:
        return replace(item, passage=_beyond(item.text, found.get(item.id))) if item.cut else item
    if use.output_cut:
        use = replace(use, passage=_beyond(use.output or "", found.get(use.output_id or "")))
    # An output without its call has the id of the item.
    call = found.get(item.id) if use.input_cut and item.id != use.output_id else None
    return replace(item, tool=use, passage=None if call is None or _has_words(use, call) else call)


def _beyond(shown: str, passage: Passage | None) -> Passage | None:
    """The passage, unless it is in the text that is shown. Snippets have their text on one line."""
    is_shown = passage is not None and passage.text.strip("… ") in " ".join(shown.split())
    return None if is_shown else passage


def _has_words(use: ToolUse, passage: Passage) -> bool:
    """True if what is shown of a call has the words that were found: it is not laid out as it was searched."""
    lines = [line.text for diff in use.diffs for line in diff.lines]
    shown = "\n".join([*(argument.value for argument in use.arguments), use.shell or "", *lines]).lower()
    return all(passage.text[start:end].lower() in shown for start, end in passage.marks)
