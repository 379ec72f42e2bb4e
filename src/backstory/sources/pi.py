"""Pi and its relatives oh-my-pi, Prime, OpenClaw and Letta Code: a tree of entries, as JSON Lines in the order written.

All branches of the tree are read. A fork copies the entries of its parent with their ids and times, and names the file.
The first versions wrote no ids. OpenClaw keeps entries in a database for each of its agents. Sessions that it deleted,
reset or put away are archived there as one value, or in a file beside. Letta Code writes `messages.jsonl` in a folder
for each conversation of its local backend; a message that changes is written again under its own id, which replaces the
earlier one. Conversations on a Letta server are not on this machine.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..model import EventType, digest, parse_time
from .base import Event, Item, Lookup, Parser, Source, Stored, Transcript
from .content import exit_code_in, is_unknown, readable, spoken
from .database import columns, has_table, open_database
from .decoding import begun_at, decode, decode_or_none, decompress, head_records, read_mapping, records_in
from .fields import Payload, integer, mapping_of, only_mappings, remote_address, text_of
from .parsing import Memory, RecordParser, restored, tokens_of, version_of, with_cached, with_news

_EXIT_CODE = re.compile(r"^Command exited with code (\d{1,5})$", re.MULTILINE)
_CONVERSATION = "conversation.json"  # beside a transcript of Letta Code
_FINAL = {"stop", "length"}
_SKIPPED = {
    "thinking_level_change": "a setting",
    "service_tier_change": "a setting",
    "mode_change": "a setting",
    "label": "a bookmark in the tree",
    "custom": "state of an extension",
    "agent_status": "a summary of what the entries say",
    "leaf": "the place in the tree where the session goes on",
}
_PAGE = 200
_MAX_ENTRY_BYTES = 64 << 20
_ARCHIVES, _COLD = "session_transcript_archives", "session_transcript_cold_archives"


class Pi(Source):
    name = "pi"

    def accepts(self, path: Path) -> bool:
        return path.suffix == ".jsonl"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        header = next((record for record in head_records(path, head) if record.get("type") == "session"), {})
        session = text_of(header, "id")
        if session is None or "cwd" not in header:
            return None
        parent, forked_from = _origin(header)
        origin = parent or forked_from
        return Transcript(
            source=self.name,
            path=path,
            session=session,
            parent=parent,
            begun=begun_at([header], "timestamp"),
            family=origin or session,
            rank=(begun_at([header], "timestamp"), path.name),
            after=(origin,) if origin else (),
        )

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return PiParser(transcript, restored(Memory, state))


class OhMyPi(Pi):
    name = "oh-my-pi"


def _origin(header: Payload) -> tuple[str | None, str | None]:
    """The session that started this one, and the one it was forked from; the header names the file of either."""
    path = text_of(header, "parentSession", "branchedFrom")
    origin = Path(path).stem.rpartition("_")[2] if path else None
    return (origin, None) if integer(header.get("rlmDepth")) else (None, origin)


class PiParser(RecordParser[Memory]):
    """Reads entries of Pi, which other agents keep in stores of their own, too."""

    def read(self, record: Payload) -> None:
        self.ts = parse_time(record.get("timestamp"))
        kind = text_of(record, "type") or ""
        entry, stamp = text_of(record, "id"), str(record.get("timestamp"))
        identity = f"{entry} {stamp}" if entry else digest(msgspec.json.encode(record).decode()).hex()
        if kind == "message":
            self._read_message(mapping_of(record, "message"), identity)
        elif kind == "session":
            self._read_header(record)
        elif kind == "title":
            self.note(title=text_of(record, "title"), title_rank=2)
        elif kind == "session_info":
            self.note(title=text_of(record, "name"), title_rank=3)
        elif kind == "model_change":
            model = text_of(record, "modelId") or (text_of(record, "model") or "").partition("/")[2]
            self.memory.model = model or self.memory.model
        elif kind in ("compaction", "branch_summary"):
            if text := text_of(record, "summary"):
                self.add(EventType.COMPACTION, text, identity)
        elif kind == "custom_message":
            self._read_custom(record, identity)
        elif kind not in _SKIPPED:
            self.add_unknown(record, identity)

    def _read_header(self, record: Payload) -> None:
        parent, forked_from = _origin(record)
        self.memory.model = text_of(record, "modelId") or self.memory.model
        self.note(
            cwd=text_of(record, "cwd"),
            branch=text_of(mapping_of(record, "git"), "branch"),
            remote=remote_address(mapping_of(record, "git").get("repoUrl")),
            parent=parent,
            forked_from=forked_from,
        )

    def _read_custom(self, record: Payload, identity: str) -> None:
        """A message of an extension, or of the agent that started this one."""
        text = readable(record.get("content"))
        if mapping_of(record, "details").get("fromRelationship") == "parent":
            self.add_prompt(text, identity)
        elif text:
            self.add(EventType.SYSTEM, text, identity)

    def _read_message(self, message: Payload, identity: str) -> None:
        role = message.get("role")
        if role == "assistant":
            self._read_answer(message, identity)
        elif role == "toolResult":
            self._read_result(message, identity)
        elif role == "user":
            text = spoken(message.get("content")).strip()
            if text and message.get("attribution") in (None, "user"):
                self.add_prompt(text, identity)
            elif text:
                self.add(EventType.SYSTEM, text, identity)
            self.add_unknown_blocks(message.get("content"), identity)
        elif role == "bashExecution":
            # A command the user ran at the prompt.
            text = f"!{text_of(message, 'command') or ''}\n{text_of(message, 'output') or ''}".strip()
            self.add(EventType.SYSTEM, text, identity, exit_code=integer(message.get("exitCode")))
        elif role in ("compactionSummary", "branchSummary"):
            self.add(EventType.COMPACTION, text_of(message, "summary") or "", identity)
        elif role == "custom":
            self._read_custom(message, identity)
        elif role not in ("system", "developer"):
            self.add_unknown(message, identity)

    def _read_answer(self, message: Payload, identity: str) -> None:
        model = self.memory.model = text_of(message, "model") or self.memory.model
        reason = text_of(message, "stopReason")
        key = self._read_usage(message, identity, reason)
        blocks = only_mappings(message.get("content"))
        texts = [number for number, block in enumerate(blocks) if block.get("type") == "text" and block.get("text")]
        for number, block in enumerate(blocks):
            part, kind = str(number), block.get("type")
            if kind == "toolCall":
                tool = text_of(block, "name") or "unknown"
                self.add_call(tool, text_of(block, "id"), block.get("arguments"), identity, part, usage_key=key)
            elif kind == "thinking":
                if text := text_of(block, "thinking"):
                    self.add_reasoning(text, identity, part, usage_key=key)
            elif is_unknown(block):
                self.add_unknown(block, identity, part)
            elif text := readable(block):
                last = reason in _FINAL and texts[-1:] == [number]
                self.add_answer(text, identity, part, usage_key=key, ends_turn=last)
        if reason in ("error", "aborted"):
            text = text_of(message, "errorMessage") or "The request was aborted."
            extra = {"interrupted": True} if reason == "aborted" else None
            failed = True if reason == "error" else None
            self.add(EventType.RUNTIME, text, identity, reason, ends_turn=True, extra=extra, failed=failed, model=model)
        elif reason in _FINAL and not texts:
            self.end_turn()

    def _read_usage(self, message: Payload, identity: str, reason: str | None) -> bytes | None:
        usage = message.get("usage")
        tokens = tokens_of(
            usage,
            input_tokens="input",
            output_tokens="output",
            cache_read_tokens="cacheRead",
            cache_write_5m_tokens="cacheWrite",
            reasoning_tokens=("reasoning", "reasoningTokens"),
        )
        if not tokens:
            return None
        cost = mapping_of(usage, "cost").get("total")
        return self.add_usage(
            identity,
            **with_cached(tokens),
            cost=float(cost) if isinstance(cost, int | float) and cost > 0 else None,
            stop_reason=reason,
            request=text_of(message, "responseId"),
        )

    def _read_result(self, message: Payload, identity: str) -> None:
        text, details = readable(message.get("content")), mapping_of(message, "details")
        exit_code = integer(details.get("exitCode"))
        failed, duration = message.get("isError"), details.get("wallTimeMs", details.get("durationMs"))
        self.add_response(
            text,
            text_of(message, "toolCallId"),
            identity,
            tool=text_of(message, "toolName"),
            exit_code=exit_code_in(text, _EXIT_CODE) if exit_code is None else exit_code,
            failed=failed if isinstance(failed, bool) else None,
            extra={"duration_ms": duration} if isinstance(duration, int | float) and duration > 0 else None,
        )


# OpenClaw


class OpenClaw(Pi):
    name = "openclaw"

    def accepts(self, path: Path) -> bool:
        return path.name == "openclaw-agent.sqlite" or (path.suffix == ".jsonl" and ".checkpoint." not in path.name)

    def sessions(self, path: Path) -> Iterable[Stored] | None:
        return _sessions(path) if path.suffix == ".sqlite" else None

    def changes(self, path: Path, session: str, since: Stored | None) -> Iterator[Any]:
        """Entries are only added. New ones are read from the prompt of their turn on. Some are compressed."""
        start = -1
        with open_database(path) as database:
            if since is not None:
                prompt = (
                    "SELECT max(seq) FROM transcript_events WHERE session_id = ? AND seq <= ?"
                    ' AND event_json LIKE \'%"role":"user"%\''
                )
                found = database.execute(prompt, (session, since.version + 1)).fetchone()[0]
                start = found - 1 if found is not None else start
                yield from _entries(
                    database.execute(_QUERY, (session, -1, 1)).fetchall()
                )  # the header, with the folder
            while rows := database.execute(_QUERY, (session, start, _PAGE)).fetchall():
                yield from _entries(rows)
                start = rows[-1]["seq"]
            if start == -1:
                yield from _archived(database, path, session)


def _sessions(path: Path) -> Iterator[Stored]:
    with open_database(path) as database:
        if not has_table(database, "transcript_events"):
            return
        # The primary key has both: the last entry of each session is found without a look at the others.
        latest = "SELECT session_id, max(seq) AS seq FROM transcript_events GROUP BY session_id"
        created = "SELECT created_at FROM transcript_events WHERE session_id = ? AND seq = ?"
        for row in database.execute(latest).fetchall():
            updated = database.execute(created, (row["session_id"], row["seq"])).fetchone()[0]
            yield Stored(session=str(row["session_id"]), updated=updated, version=row["seq"])
        for table, time in ((_ARCHIVES, "created_at"), (_COLD, "archived_at")):
            if has_table(database, table):
                query = (
                    f"SELECT session_id, max({time}) AS updated FROM {table}"
                    " WHERE session_id NOT IN (SELECT session_id FROM transcript_events) GROUP BY 1"
                )
                for row in database.execute(query).fetchall():
                    yield Stored(session=str(row["session_id"]), updated=row["updated"])


_QUERY = (
    "SELECT seq, event_json, event_zstd FROM transcript_events WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?"
)


def _entries(rows: Iterable[Any]) -> Iterator[Any]:
    """The entries in rows; None for one that is damaged, which is an error of that record alone."""
    for row in rows:
        try:
            if row["event_json"] is not None:
                yield decode(row["event_json"])
            elif row["event_zstd"] is not None:
                yield decode(decompress(row["event_zstd"], _MAX_ENTRY_BYTES))
        except ValueError:
            yield None


def _archived(database: sqlite3.Connection, path: Path, session: str) -> Iterator[Any]:
    """The entries of a session that was archived. A cold archive has each entry as text in a row of its own."""
    if has_table(database, _ARCHIVES):
        query = f"SELECT encoding, archive_blob FROM {_ARCHIVES} WHERE session_id = ? ORDER BY created_at"
        for row in database.execute(query, (session,)).fetchall():
            data = row["archive_blob"]
            yield from records_in(decompress(data) if row["encoding"] == "zstd" else data)
    if known := columns(database, _COLD):
        blob = "archive_blob" if "archive_blob" in known else "NULL AS archive_blob"
        query = f"SELECT archive_name, {blob} FROM {_COLD} WHERE session_id = ?"
        for row in database.execute(query, (session,)).fetchall():
            data = row["archive_blob"]
            if data is None:
                file = path.parents[1] / "sessions/cold" / Path(row["archive_name"]).name
                if not file.is_file():
                    raise ValueError(f"the archive {file.name} is missing")
                data = file.read_bytes()
            for record in records_in(decompress(data)):
                if (entry := decode_or_none(mapping_of(record, "row").get("event_json"))) is not None:
                    yield entry


class LettaCode(Source):
    name = "letta-code"

    def accepts(self, path: Path) -> bool:
        return path.name == "messages.jsonl" and path.parent.parent.name == "conversations"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        records = list(head_records(path, head))
        if not records or not ("type" in records[0] or "role" in records[0]):
            return None
        header = records[0] if records[0].get("type") == "session" else {}
        known = read_mapping(path.with_name(_CONVERSATION))
        session = text_of(header, "id") or text_of(known, "id") or path.parent.name
        return Transcript(source=self.name, path=path, session=session, begun=begun_at(records, "timestamp"))

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return LettaParser(transcript, restored(Memory, state))

    def outdated(self, read: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Iterable[str]:
        return with_news(read, _CONVERSATION)


class LettaParser(PiParser):
    def read(self, record: Payload) -> None:
        if "role" in record and "type" not in record:  # the first format: a message without an entry around it
            record = {"type": "message", "timestamp": record.get("timestamp"), "message": record}
        self.ts = parse_time(record.get("timestamp"))
        message = mapping_of(record, "message")
        name = text_of(message, "id")
        if record.get("type") == "message" and name:
            self._read_message(message, f"{self.transcript.session} {name}")
        else:
            super().read(record)
        for item in self.items:
            if isinstance(item, Event):
                item.replaces = True

    def finish(self) -> Iterable[Item]:
        self.reset()
        path = self.transcript.path.with_name(_CONVERSATION)
        self.memory.beside = version_of(path)
        self.note(title=text_of(read_mapping(path), "summary"), title_rank=2)
        return self.items
