"""The subagents of a session, and the runs that Claude Code starts for itself.

Today every subagent has a transcript of its own. Until 2.1.80 or so the session's transcript repeats parts of it in
`progress` records (the same uuids; not the answers), which count only where the subagent's own is missing. The first
versions kept no other: all records of subagents stand between the session's own, marked `isSidechain`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ...model import digest, parse_time
from ..base import About, Item
from ..content import readable
from ..decoding import read_mapping
from ..fields import text_of
from ..parsing import remember
from .layout import Projects, agent_id, agent_session, desktop_session, is_helper
from .state import State, Thread
from .usage import read_usage, usage_key

_MAX_THREADS = 128
_MAX_AGENTS = 512
_MAX_CHAIN = 128


class Children:
    """The subagents that the transcript of a session names or holds."""

    def __init__(self, state: State, session: str, root: str, folder: Path, projects: Projects) -> None:
        self._state = state
        self._session = session
        self._root = root
        self._folder = folder
        self._projects = projects
        self._files: dict[str, bool] = {}

    def session_of(self, agent: str) -> str:
        return agent_session(self._root, agent)

    def has_transcript(self, agent: str) -> bool:
        if agent not in self._files:
            self._files[agent] = self._projects.find_agent(self._folder, agent) is not None
        return self._files[agent]

    def thread(self, session: str) -> Thread:
        thread = self._state.children.get(session) or Thread(session=session, child=True)
        remember(self._state.children, session, thread, _MAX_THREADS)
        return thread

    def is_inline(self, session: str) -> bool:
        """True when this transcript holds the child's records."""
        return session in self._state.children

    def link(self, session: str, call_id: str | None, title: str | None) -> About | None:
        """The link of a child to its parent, once; the call that started it may become known later than the child."""
        known = self._state.agents.get(session)
        if known or known == (call_id or ""):
            return None
        remember(self._state.agents, session, call_id or "", _MAX_AGENTS)
        return About(
            session=session, parent=self._session, parent_call=call_id, title=title, title_rank=2 if title else 0
        )

    def of_sidechain(self, record: dict[str, Any], main: Thread) -> tuple[Thread, About | None]:
        """The thread of a record marked as a subagent's: in old transcripts only the chain of parents identifies it."""
        if agent := text_of(record, "agentId"):
            return self.thread(self.session_of(agent)), None
        chains = self._state.chains
        uuid, parent = text_of(record, "uuid") or "", text_of(record, "parentUuid")
        start = chains.get(parent) if parent else uuid
        known = start is not None and start != uuid
        start = start or next(reversed(chains.values()), uuid)
        remember(chains, uuid, start, _MAX_CHAIN)
        session = f"{self._root}/sidechain-{start}"
        return self.thread(session), None if known else self._started_by_prompt(session, record, main)

    def _started_by_prompt(self, session: str, record: dict[str, Any], main: Thread) -> About | None:
        message = record.get("message")
        prompt = readable(message.get("content")) if isinstance(message, dict) else ""
        mark = digest(prompt.strip()).hex()
        for call_id, call in main.calls.items():
            if call.prompt == mark:
                return self.link(session, call_id, call.title)
        return self.link(session, None, None)

    def started_by(self, call_id: str) -> str | None:
        """The child a call started, where the transcript says so before the call is answered."""
        return next((session for session, call in self._state.agents.items() if call == call_id), None)


_MAX_LINE = 1 << 20
_MAX_RECORDS = 32
_ASSIGNMENTS = ("[SUGGESTION MODE:", "Your task is to create a detailed summary", "CRITICAL: Respond with TEXT ONLY")


class HelperParser:
    """Parser of runs that Claude Code starts for itself: to compact (`acompact`), to guess the next prompt.

    They are not sessions of a user. A compaction's result stands in the session it summarises, a guess nowhere.
    Only their tokens count, for their session.
    """

    def parse(self, record: Any) -> Iterable[Item]:
        if not isinstance(record, dict):
            raise ValueError("not a JSON object")
        message = record.get("message")
        if record.get("type") != "assistant" or not isinstance(message, dict):
            return ()
        usage = read_usage(message, record, usage_key(message, record, str(record.get("uuid") or "")))
        if usage is None:
            return ()
        usage.ts, usage.by_time = parse_time(record.get("timestamp")), True
        return (usage,)

    def finish(self) -> Iterable[Item]:
        return ()

    def state(self) -> dict[str, Any]:
        return {}


def displaced_records(folder: Path, projects: Projects) -> dict[str, dict[str, Any]]:
    """Records of the session that stand in the files of its helpers, by uuid: those before their assignment.

    Versions up to 2.1.30 or so wrote a record that was pending when such a run started into the run's file, and left it
    out of the session's own: the answer that ended a turn, or a tool's response, stands nowhere else. The next record
    of the session names it as its parent; there the parser puts it back.
    """
    found: dict[str, dict[str, Any]] = {}
    for place in projects.parts_of(folder):
        try:
            paths = [path for path in (place / "subagents").iterdir() if is_helper(path)]
        except OSError:
            continue
        for path in sorted(paths):
            for record in _before_assignment(path):
                if isinstance(uuid := record.get("uuid"), str):
                    found[uuid] = record
    return found


def holds_displaced(path: Path) -> bool:
    """True when a helper's file holds records of the session."""
    return bool(_before_assignment(path))


def _before_assignment(path: Path) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    if not path.is_file():
        return records
    try:
        with path.open("rb") as file:
            for _ in range(_MAX_RECORDS):
                record = msgspec.json.decode(file.readline(_MAX_LINE))
                message = record.get("message") if isinstance(record, dict) else None
                content = message.get("content") if isinstance(message, dict) else None
                if record.get("type") == "user" and readable(content).startswith(_ASSIGNMENTS):
                    return records
                if isinstance(message, dict):
                    records.append(record)
    except (OSError, ValueError, AttributeError):  # torn, or not what it seems: then nothing in it is trusted
        return []
    return []


def read_sidecar(path: Path) -> About | None:
    """A subagent's `agent-<id>.meta.json`, or Claude Desktop's `local_<id>.json`, of which only the title is read."""
    if agent_id(path):
        meta = read_mapping(path.with_suffix(".meta.json"))
        title, call = text_of(meta, "description"), text_of(meta, "toolUseId")
        return About(title=title, title_rank=2 if title else 0, parent_call=call) if title or call else None
    if folder := desktop_session(path):
        title = text_of(read_mapping(folder.with_name(f"{folder.name}.json")), "title")
        return About(title=title, title_rank=3) if title else None
    return None
