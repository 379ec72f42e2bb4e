"""The subagents of a session, as far as its own transcript tells of them.

Today every subagent has a transcript of its own. Until 2.1.80 or so the session's transcript repeats parts of it in
`progress` records (the same uuids; not the answers), which count only where the subagent's own is missing. The first
versions kept no other: all records of subagents stand between the session's own, marked `isSidechain`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...model import digest
from ..base import About
from .content import readable, string
from .layout import agent_session, find_agent
from .state import State, Thread, remember

__all__ = ["Children"]

_MAX_THREADS = 128
_MAX_AGENTS = 512
_MAX_CHAIN = 128


class Children:
    def __init__(self, state: State, session: str, root: str, folder: Path) -> None:
        self._state = state
        self._session = session
        self._root = root
        self._folder = folder
        self._files: dict[str, bool] = {}

    def session_of(self, agent: str) -> str:
        return agent_session(self._root, agent)

    def has_transcript(self, agent: str) -> bool:
        if agent not in self._files:
            self._files[agent] = find_agent(self._folder, agent) is not None
        return self._files[agent]

    def thread(self, session: str) -> Thread:
        thread = self._state.children.get(session) or Thread(session=session, child=True)
        remember(self._state.children, session, thread, _MAX_THREADS)
        return thread

    def is_inline(self, session: str) -> bool:
        """Whether this transcript holds the child's records."""
        return session in self._state.children

    def link(self, session: str, call_id: str | None, title: str | None) -> About | None:
        """What there is to tell of a child, once; the call that started it may become known later than the child."""
        known = self._state.agents.get(session)
        if known or known == (call_id or ""):
            return None
        remember(self._state.agents, session, call_id or "", _MAX_AGENTS)
        return About(
            session=session, parent=self._session, parent_call=call_id, title=title, title_rank=2 if title else 0
        )

    def of_sidechain(self, record: dict[str, Any], main: Thread) -> tuple[Thread, About | None]:
        """Whose a record marked as a subagent's is: old transcripts only tell by the chain of parents."""
        if agent := string(record, "agentId"):
            return self.thread(self.session_of(agent)), None
        chains = self._state.chains
        uuid, parent = string(record, "uuid") or "", string(record, "parentUuid")
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
        """The child a call started, where the transcript told before the call was answered."""
        return next((session for session, call in self._state.agents.items() if call == call_id), None)
