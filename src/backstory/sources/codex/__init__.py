"""Codex: rollout files of the CLI, the app, `exec` and the IDE extension, in all the formats they had."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ...model import parse_time
from ..base import Lookup, Parser, Source, Transcript
from ..decoding import read_file
from .lifecycle import ThreadHistory, parents
from .parser import RECORDS, RolloutParser, is_bare_record, json_records, open_envelope

_NOT_ROLLOUTS = {"history.jsonl", "session_index.jsonl"}
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_ROLLOUT_NAME = re.compile(r"rollout-\d{4}-\d\d-\d\d(?:T\d\d-\d\d-\d\d)?-")
_ENVELOPES = {*RECORDS, "response_item", "event_msg"}
_HEADER_START = re.compile(r'\s*\{[^{]{0,200}"type"\s*:\s*"session_meta"')
_SESSION_START = re.compile(r'\s*\{\s*"session"\s*:\s*\{')
_FIELD = re.compile(r'"(id|session_id|forked_from_id|parent_thread_id|timestamp)"\s*:\s*"([^"\\]{1,200})"')
_BOM = b"\xef\xbb\xbf"
_HEADER_LINES = 20
# The folder that holds the folder of sessions.
_SESSIONS = re.compile(r"(.*)[/\\](?:archived_)?sessions[/\\]")


class Codex(Source):
    name = "codex"

    def __init__(self) -> None:
        self._titles: dict[Path, tuple[tuple[int, int], dict[str, str]]] = {}

    def accepts(self, path: Path) -> bool:
        name = path.name
        if name.startswith(".") or name in _NOT_ROLLOUTS:
            return False
        return name.endswith((".jsonl", ".jsonl.zst")) or (name.startswith("rollout-") and name.endswith(".json"))

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        header = _json_header(head) if path.suffix == ".json" else _header(head)
        if header is None:
            return None
        session = header.get("id") or header.get("session_id")
        if not isinstance(session, str) or not session:
            session = _session_of(path)
        parent, forked_from = parents(header)
        after = tuple(dict.fromkeys(other for other in (forked_from, parent) if other and other != session))
        return Transcript(
            source=self.name,
            path=path,
            session=session,
            parent=parent if parent != session else None,
            family=after[0] if after else session,
            rank=(parse_time(header.get("timestamp")) or 0, path.name),
            after=after,
        )

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        folder = _home_of(transcript.path)
        history = ThreadHistory(folder) if folder else None
        name = self._names(folder).get(transcript.session) if folder else None
        return RolloutParser(transcript, state, lookup, name, history)

    def skips(self, line: bytes) -> bool:
        return False

    def records(self, path: Path) -> Iterator[Any] | None:
        if path.suffix != ".json":
            return None
        try:
            document = msgspec.json.decode(path.read_bytes())
        except (msgspec.DecodeError, UnicodeError) as error:
            raise ValueError(f"not valid JSON: {error}") from None
        return json_records(document)

    def outdated(self, read: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Iterable[str]:
        """Those that were given another name since."""
        names: dict[str, dict[str, str]] = {}
        for path, session, state in read:
            found = _SESSIONS.match(path)
            folder = found[1] if found else ""
            if folder not in names:
                names[folder] = self._names(Path(folder)) if folder else {}
            name = names[folder].get(session)
            if name is not None and name != state.get("about", {}).get("title"):
                yield path

    def _names(self, folder: Path) -> dict[str, str]:
        """The names that users gave sessions, from the index beside the folder of sessions."""
        index = folder / "session_index.jsonl"
        try:
            status = index.stat()
            version = (status.st_mtime_ns, status.st_size)
            if self._titles.get(index, ((), {}))[0] != version:
                self._titles[index] = (version, _read_titles(index))
        except (OSError, ValueError):
            return {}
        return self._titles[index][1]


def _header(head: bytes) -> dict[str, Any] | None:
    """The header in the first lines: {} for a rollout without one, None for a file that is no rollout."""
    for line in head.removeprefix(_BOM).split(b"\n", _HEADER_LINES)[:_HEADER_LINES]:
        try:
            record = msgspec.json.decode(line)
            kind, payload, _ = open_envelope(record)
        except (ValueError, UnicodeError):
            text = line.decode("utf-8", "replace")
            if _HEADER_START.match(text):  # too long for the head, or glued to the next record
                return _fields(text[text.find('"payload"') :])
            continue
        if kind == "session_meta":
            return payload
        is_ours = kind in _ENVELOPES and ("payload" in record or is_bare_record(record))
        return {} if is_ours else None
    return None


def _json_header(head: bytes) -> dict[str, Any] | None:
    """The one-file format begins with its session; the file is too long to be decoded from its head."""
    text = head.removeprefix(_BOM).decode("utf-8", "replace")
    session = _SESSION_START.match(text)
    return _fields(text[session.end() :].partition('"items"')[0]) if session else None


def _fields(text: str) -> dict[str, Any]:
    """The fields that matter, from the text of a header that cannot be decoded as a whole. They stand in front."""
    fields: dict[str, Any] = {}
    for name, value in _FIELD.findall(text):
        fields.setdefault(name, value)
    return fields


def _home_of(path: Path) -> Path | None:
    """The folder that holds the folder of sessions, and what Codex keeps beside it."""
    folders = (folder for folder in path.parents if folder.name in ("sessions", "archived_sessions"))
    folder = next(folders, None)
    return folder.parent if folder else None


def _session_of(path: Path) -> str:
    """The id in a file's name, else the name itself."""
    stem = path.name.removesuffix(".zst").removesuffix(".jsonl").removesuffix(".json")
    found = _UUID.findall(stem)
    return found[-1] if found else _ROLLOUT_NAME.sub("", stem) or stem


def _read_titles(index: Path) -> dict[str, str]:
    """Lines of {id, thread_name}; the last one for an id holds."""
    titles = {}
    for line in read_file(index).splitlines():
        try:
            entry = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeError):
            continue
        if isinstance(entry, dict) and isinstance(name := entry.get("thread_name"), str) and name.strip():
            titles[str(entry.get("id"))] = name.strip()
    return titles
