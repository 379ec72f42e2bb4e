"""Aider: a Markdown history in each project, to which every run is appended. It is read where a setting names it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Stored, Transcript
from .fields import Payload, text_of
from .parsing import StatelessParser, Writer

_NAME = ".aider.chat.history.md"
_RUN = re.compile(r"^# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[^\n]*\n", re.MULTILINE)
_THOUGHT = re.compile(r"<(thinking-content-\w+|think)>\s*(.*?)\s*(?:</\1>|\Z)", re.DOTALL)
_TOKENS = re.compile(r"Tokens: ([\d.,]+k?) sent(?:, ([\d.,]+k?) cache write)?(?:, ([\d.,]+k?) cache hit)?, ([\d.,]+k?)")
_COST = re.compile(r"Cost: \$([\d.]+) message")
_MODEL = re.compile(r"(?:Main model|Model): (\S+)")
_VERSION = re.compile(r"Aider v(\S+)")
_FENCE = "```"


class Aider(Source):
    name = "aider"

    def accepts(self, path: Path) -> bool:
        return path.name == _NAME

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Run(transcript)

    def sessions(self, path: Path) -> Iterable[Stored] | None:
        return (Stored(session=name, updated=begun, version=len(text)) for name, begun, text in _runs(path))

    def changes(self, path: Path, session: str, since: Stored | None) -> Iterator[Any]:
        """A run is short; it is read as a whole."""
        for name, begun, text in _runs(path):
            if name == session:
                yield {"cwd": str(path.parent), "begun": begun}
                yield from _passages(text)


def _runs(path: Path) -> Iterator[tuple[str, int, str]]:
    """The runs in a history: a name, the time (written in local time), the text. A run has no id of its own."""
    history = path.read_text("utf-8", "replace")
    starts = list(_RUN.finditer(history))
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        moment = datetime.fromisoformat(start[1]).astimezone()
        text = history[start.end() : following.start() if following else None]
        name = f"{path.parent.name}-{start[1].replace(' ', 'T').replace(':', '-')}"
        yield name, parse_time(moment.isoformat()) or 0, text


def _passages(text: str) -> Iterator[Payload]:
    """Stretches of lines that belong together: prompts (`#### `), notes of the program (`> `), answers."""
    kind, lines, index, fenced = "", list[str](), 0, False
    for line in text.splitlines():
        here = "answer" if fenced else _kind(line)
        if here == "answer" and line.lstrip().startswith(_FENCE):
            fenced = not fenced
        if not line.strip() and not fenced:
            here = kind if kind == "answer" else ""
        if here != kind:
            if kind and any(map(str.strip, lines)):
                yield {"kind": kind, "text": "\n".join(lines).strip(), "index": index}
                index += 1
            kind, lines = here, []
        lines.append(line.removeprefix("#### ").removeprefix("> ").rstrip() if here in ("prompt", "note") else line)
    if kind and any(map(str.strip, lines)):
        yield {"kind": kind, "text": "\n".join(lines).strip(), "index": index}


def _kind(line: str) -> str:
    if line.startswith("#### "):
        return "prompt"
    return "note" if line.startswith(">") else "answer"


class _Run(StatelessParser):
    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._model: str | None = None
        self._begun: int | None = None

    def parse(self, record: Payload) -> Iterator[Item]:
        if "cwd" in record:
            self._begun = record["begun"]
            yield About(cwd=text_of(record, "cwd"))
            return
        text, index = record["text"], record["index"]
        write = self.writer(str(index), ts=self._begun, model=self._model)
        match record["kind"]:
            case "prompt" if text.startswith("/"):
                yield write.event("command", EventType.SYSTEM, text)
            case "prompt":
                yield write.prompt("prompt", text)
            case "answer":
                for number, thought in enumerate(_THOUGHT.finditer(text)):
                    yield write.thought(f"thought {number}", thought[2])
                if said := _THOUGHT.sub("", text).strip():
                    yield write.answer("text", said, may_end_turn=True)
            case _:
                yield from self._note(write, text)

    def _note(self, write: Writer, text: str) -> Iterator[Item]:
        if model := _MODEL.search(text):
            self._model = model[1]
        if version := _VERSION.search(text):
            yield About(version=version[1])
        if tokens := _TOKENS.search(text):
            sent, written, read, received = map(_number, tokens.groups())
            cost = _COST.search(text)
            yield from write.usage(
                fresh=sent - written - read if sent >= written + read else sent,
                output=received,
                cache_read=read,
                cache_write=written,
                cost=float(cost[1]) if cost else None,
            )
        yield write.event("note", EventType.RUNTIME, text)


def _number(text: str | None) -> int:
    """`2.5k`, `1,204` or `93`."""
    if not text:
        return 0
    try:
        number = float(text.replace(",", "").rstrip("k."))
    except ValueError:
        return 0
    return round(number * 1000) if "k" in text else round(number)
