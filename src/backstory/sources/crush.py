"""Crush: a database in each project, and a list of the projects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..config import expand_home
from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Stored, Transcript
from .database import has_table, open_database
from .decoding import decode_or_none, encode, read_mapping
from .fields import Payload, mapping_of, mappings_of, text_of
from .parsing import StatelessParser, Writer

_DATABASE = "crush.db"
_LENGTH_BITS = 24
_MOST_LENGTH = (1 << _LENGTH_BITS) - 1
_FINAL = {"end_turn", "max_tokens", "canceled", "error", "permission_denied"}


def roots_of(home: Path, environ: Mapping[str, str]) -> list[Path]:
    data = expand_home(environ.get("XDG_DATA_HOME") or "~/.local/share", home)
    roots = []
    for project in mappings_of(read_mapping(data / "crush" / "projects.json").get("projects")):
        folder = Path(text_of(project, "path") or "/")
        roots.append(folder / (text_of(project, "data_dir", "dataDir") or ".crush") / _DATABASE)
    return roots


class Crush(Source):
    name = "crush"

    def accepts(self, path: Path) -> bool:
        return path.name == _DATABASE

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Conversation(transcript)

    def sessions(self, path: Path) -> Iterator[Stored]:
        """Times have seconds, and the newest message grows while it is written: its length shows that, too."""
        with open_database(path) as database:
            if not has_table(database, "sessions"):
                return
            newest = "SELECT session_id, count(*) AS count, max(rowid) AS newest FROM messages GROUP BY session_id"
            query = (
                "SELECT n.session_id, n.count, m.updated_at AS updated, ifnull(length(m.parts), 0) AS length"
                f" FROM ({newest}) n JOIN messages m ON m.rowid = n.newest"
            )
            messages = {row["session_id"]: row for row in database.execute(query)}
            for row in database.execute("SELECT id, parent_session_id, updated_at FROM sessions").fetchall():
                found = messages.get(row["id"])
                times = (row["updated_at"], found["updated"] if found else None)
                yield Stored(
                    session=str(row["id"]),
                    updated=max(parse_time(time) or 0 for time in times),
                    version=found["count"] << _LENGTH_BITS | min(found["length"], _MOST_LENGTH) if found else 0,
                    parent=row["parent_session_id"],
                )

    def changes(self, path: Path, session: str, since: Stored | None) -> Iterator[Any]:
        with open_database(path) as database:
            row = database.execute("SELECT * FROM sessions WHERE id = ?", (session,)).fetchone()
            about = dict(row) if row else {}
            yield {"session": about, "folder": str(path.parent.parent)}
            prompt: str | None = None
            order = "SELECT id, role, updated_at FROM messages WHERE session_id = ? ORDER BY created_at, rowid"
            for row in database.execute(order, (session,)).fetchall():
                if row["role"] == "user":
                    prompt = row["id"]
                if since is not None and (parse_time(row["updated_at"]) or 0) < since.updated:
                    continue
                for identity in filter(None, dict.fromkeys((prompt, row["id"]))):
                    found = database.execute("SELECT * FROM messages WHERE id = ?", (identity,)).fetchone()
                    if found is not None:
                        yield {"message": dict(found)}
                prompt = None
            first = "SELECT min(created_at) FROM messages WHERE session_id = ? AND role = 'user'"
            yield {"totals": about, "begun": database.execute(first, (session,)).fetchone()[0]}


class _Conversation(StatelessParser):
    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._model: str | None = None

    def parse(self, record: Payload) -> Iterator[Item]:
        if "session" in record:
            session = record["session"]
            parent = text_of(session, "parent_session_id")
            yield About(title=text_of(session, "title"), title_rank=2, cwd=text_of(record, "folder"), parent=parent)
        elif "totals" in record:
            yield from self._totals(record["totals"], parse_time(record["begun"]))
        else:
            yield from self._message(record["message"])

    def _totals(self, totals: Payload, begun: int | None) -> Iterator[Item]:
        """Crush keeps the tokens of a session, not those of its model calls: they count at its first turn."""
        if begun is not None:
            yield from self.writer(ts=begun, model=self._model).usage(
                by_time=True,
                fresh=totals.get("prompt_tokens"),
                output=totals.get("completion_tokens"),
                cost=totals.get("cost"),
            )

    def _message(self, message: Payload) -> Iterator[Item]:
        ts, model = parse_time(message.get("created_at")), text_of(message, "model")
        self._model = model or self._model
        write = Writer("crush", str(message["id"]), ts=ts, model=model)
        parts = mappings_of(decode_or_none(message.get("parts")))
        finish = next((mapping_of(part, "data") for part in parts if part.get("type") == "finish"), {})
        ends = finish.get("reason") in _FINAL
        said = []
        for number, part in enumerate(parts):
            name, data = str(number), mapping_of(part, "data")
            text = text_of(data, "text", "thinking") or ""
            match part.get("type"):
                case "text" if message.get("role") == "user":
                    said.append(text)
                case "text" if message.get("is_summary_message"):
                    yield write.event(name, EventType.COMPACTION, text)
                case "text" if text:
                    yield write.answer(name, text, ends_turn=ends, may_end_turn=not finish)
                case "reasoning" if text:
                    yield write.thought(name, text)
                case "tool_call":
                    yield self._call(write, name, data)
                case "tool_result":
                    yield self._result(write, name, data)
                case "shell_command":
                    typed = f"!{text_of(data, 'command') or ''}\n{text_of(data, 'output') or ''}"
                    yield write.event(name, EventType.SYSTEM, typed)
                case "text" | "reasoning" | "finish" | "image_url" | "binary":
                    pass
                case _:
                    yield write.event(name, EventType.UNKNOWN, encode(part))
        if said:
            yield write.prompt("prompt", "\n".join(said))

    def _call(self, write: Writer, part: str, data: Payload) -> Item:
        call_id, tool = text_of(data, "id") or "", text_of(data, "name") or "unknown"
        self.tools[call_id] = tool
        given = data.get("input")
        arguments = decode_or_none(given) if isinstance(given, str) else given
        return write.call(part, tool, call_id, given if arguments is None else arguments)

    def _result(self, write: Writer, part: str, data: Payload) -> Item:
        call_id, text = text_of(data, "tool_call_id") or "", text_of(data, "content") or ""
        tool = text_of(data, "name") or self.tools.get(call_id)
        return write.text_result(part, tool, call_id, text, failed=data.get("is_error") is True)
