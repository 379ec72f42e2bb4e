"""The frame of the conversation: session headers, the beginning and end of turns, tokens, notes of the runtime."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ...model import EventType, digest
from ..base import About, Event, Item, TurnEnd, Usage
from ..database import open_database
from ..fields import Payload, integer, mapping_of, mappings_of, remote_address, text_of
from .messages import answer
from .outputs import as_json
from .session import CLOSING, Session


def parents(meta: Payload) -> tuple[str | None, str | None]:
    """The session that started this one, and the one it was forked from, as its header names them."""
    spawn = mapping_of(meta, "source", "subagent", "thread_spawn")
    return text_of(spawn, "parent_thread_id") or text_of(meta, "parent_thread_id"), text_of(meta, "forked_from_id")


def session_meta(session: Session, payload: Payload) -> list[Item]:
    """The first header is the session's own. Others with another id belong to the ancestors it was copied from."""
    state = session.state
    named = text_of(payload, "id", "session_id")
    if state.has_header and named != session.id:
        if state.replaying:
            session.descend_from(named)
            state.forked = True
        return []
    state.has_header = True
    parent, forked_from = parents(payload)
    session.descend_from(forked_from, parent)
    state.forked = state.forked or bool(forked_from)
    spawn = mapping_of(payload, "source", "subagent", "thread_spawn")
    state.agent_path = text_of(payload, "agent_path") or text_of(spawn, "agent_path")
    nickname = text_of(payload, "agent_nickname") or text_of(spawn, "agent_nickname")
    # An agent's path is the name of its task. Nicknames are drawn from a list.
    title, rank = (state.agent_path, 2) if state.agent_path else (nickname, -1)
    return [
        *([About(title=title, title_rank=rank)] if title and parent else []),
        *session.about(
            cwd=text_of(payload, "cwd"),
            branch=text_of(mapping_of(payload, "git"), "branch"),
            remote=remote_address(mapping_of(payload, "git").get("repository_url")),
            version=text_of(payload, "cli_version"),
            parent=parent,
            forked_from=forked_from,
        ),
    ]


def turn_context(session: Session, payload: Payload) -> list[Item]:
    """Also written in the middle of a turn, after a compaction. Its model wrote what follows."""
    if turn := text_of(payload, "turn_id"):
        session.begin_turn(turn)
    session.state.model = text_of(payload, "model") or session.state.model
    return [] if session.in_copy else [*session.about(cwd=text_of(payload, "cwd"))]


def thread_name_updated(session: Session, payload: Payload) -> list[Item]:
    if session.in_copy or payload.get("thread_id", session.id) != session.id:
        return []
    return [*session.about(title=text_of(payload, "thread_name"))]


# Turns


def task_started(session: Session, payload: Payload) -> list[Item]:
    turn = text_of(payload, "turn_id")
    if turn is None:
        return []
    items = lost_end(session, is_last=False) if turn != session.state.turn else []
    session.begin_turn(turn)
    return items


def lost_end(session: Session, *, is_last: bool) -> list[Item]:
    """The end of a turn that the rollout does not have, because Codex was killed: its own database may have it."""
    state = session.state
    if state.over or not state.working or state.turn is None or not session.was_interrupted(state.turn, is_last):
        return []
    event = Event(
        uid=digest("codex", session.id, "interrupted", state.turn),
        type=EventType.RUNTIME,
        text="Turn aborted: interrupted",
        ts=state.worked_at,
        turn_key=state.turn,
        cwd=state.about.get("cwd"),
        ends_turn=True,
        extra={"interrupted": True},
    )
    state.aborted_prompt = state.last_prompt
    session.end_turn()
    return [event]


def task_complete(session: Session, payload: Payload) -> list[Item]:
    """The last answer ends the turn. Work that ends without one (by an error, say) has its end as an event of its own.
    A task that did none, such as a compaction on request, leaves the turn before it as it was."""
    state = session.state
    error = text_of(mapping_of(payload, "error"), "message") or text_of(payload, "error")
    last = text_of(payload, "last_agent_message")
    items: list[Item] = answer(session, CLOSING, [last] if last else [], final=bool(last) and not error)
    if error or (state.working and not state.answered):
        text = f"Task failed: {error}" if error else "Task complete."
        items.append(session.event(EventType.RUNTIME, text, ends_turn=state.working, failed=bool(error) or None))
    elif not items and not state.final:
        items.append(TurnEnd())
    session.end_turn()
    return items


def turn_completed(session: Session, payload: Payload) -> list[Item]:
    """2025: the end of a turn, with the tokens it took."""
    return [*call_usage(session, read_counts(payload.get("usage"))), *task_complete(session, payload)]


def turn_aborted(session: Session, payload: Payload) -> list[Item]:
    state = session.state
    reason = text_of(payload, "reason") or "unknown"
    event = session.event(
        EventType.RUNTIME, f"Turn aborted: {reason}", ends_turn=state.working, extra={"interrupted": True}
    )
    state.aborted_prompt = state.last_prompt
    session.end_turn()
    return [event]


def rolled_back(session: Session, payload: Payload) -> list[Item]:
    """The user took turns back. They stay in the archive."""
    return [session.event(EventType.RUNTIME, f"Rolled back turns: {payload.get('num_turns')}")]


# Notes of the runtime


def notice(session: Session, payload: Payload) -> list[Item]:
    """Errors, warnings and the like: a message, sometimes inside."""
    text = text_of(payload, "message") or text_of(mapping_of(payload, "error"), "message") or text_of(payload, "error")
    return [session.event(EventType.RUNTIME, text or as_json(payload))]


def guardian_assessment(session: Session, payload: Payload) -> list[Item]:
    """An automatic reviewer's verdict on an action; while it is still thinking there is none."""
    rationale = text_of(payload, "rationale")
    if not rationale:
        return []
    action = mapping_of(payload, "action")
    about = text_of(action, "command", "tool", "type") or "action"
    return [session.event(EventType.RUNTIME, f"Review of {about}: {text_of(payload, 'status')}. {rationale}")]


def goal_updated(session: Session, payload: Payload) -> list[Item]:
    """Repeated with every change of its token count: only a new objective or status is news."""
    goal = mapping_of(payload, "goal")
    text = f"Goal ({text_of(goal, 'status') or 'set'}): {text_of(goal, 'objective') or ''}"
    if session.state.goal == text:
        return []
    session.state.goal = text
    return [session.event(EventType.RUNTIME, text)]


def entered_review_mode(session: Session, payload: Payload) -> list[Item]:
    hint = text_of(payload, "user_facing_hint") or text_of(payload, "prompt") or ""
    return [session.event(EventType.RUNTIME, f"Review started: {hint}")]


def exited_review_mode(session: Session, payload: Payload) -> list[Item]:
    """The findings; the answer that follows repeats them in prose."""
    review = mapping_of(payload, "review_output")
    findings = review.get("findings")
    parts = ["Review finished.", text_of(review, "overall_explanation")]
    for finding in mappings_of(findings):
        parts += [text_of(finding, "title"), text_of(finding, "body")]
    return [session.event(EventType.RUNTIME, "\n\n".join(filter(None, parts)))]


Counts = tuple[int, ...]
"""Input (with what was cached), cached, written to the cache, output (with reasoning), reasoning."""


def read_counts(usage: Any) -> Counts | None:
    """Counts by the names they have today, and by those of versions before it had settled."""
    if not isinstance(usage, dict):
        return None
    return (
        _count(usage, "input_tokens") or _count(usage, "prompt"),
        _count(usage, "cached_input_tokens"),
        _count(usage, "cache_write_input_tokens"),
        _count(usage, "output_tokens") or _count(usage, "completion"),
        _count(usage, "reasoning_output_tokens")
        or _count(mapping_of(usage, "output_tokens_details"), "reasoning_tokens"),
    )


def _count(usage: Payload, name: str) -> int:
    return max(integer(usage.get(name)) or 0, 0)


def token_usage_record(session: Session, payload: Payload) -> list[Item]:
    """Written as soon as a model call is over, and repeated by the `token_count` that follows what the call started."""
    counts = read_counts(payload.get("usage"))
    session.state.usage_recorded = counts
    return call_usage(session, counts)


def token_count(session: Session, payload: Payload) -> list[Item]:
    """`last_token_usage` is the call's own count, `total_token_usage` the running total of the session. A record whose
    total has not moved repeats an earlier one: Codex writes those whenever rate limits change or a turn begins."""
    info = payload.get("info")
    if not isinstance(info, dict):
        info = payload
    state = session.state
    total = read_counts(info.get("total_token_usage"))
    before = state.usage_total
    if total is not None:
        state.usage_total = total
        if total == before:
            return []
    last = read_counts(info.get("last_token_usage"))
    recorded, state.usage_recorded = state.usage_recorded, None
    if recorded is not None and last in (recorded, None):
        return []
    if last is None:
        last = read_counts(info) if total is None else _growth(before, total, inherits=bool(state.ancestors))
    return call_usage(session, last)


def _growth(before: Counts | None, total: Counts, *, inherits: bool) -> Counts | None:
    if before is None:
        return None if inherits else total  # a fork's first total holds its ancestor's tokens
    if total < before:
        return total  # the count began anew
    return tuple(max(now - then, 0) for now, then in zip(total, before, strict=True))


def call_usage(session: Session, counts: Counts | None) -> list[Item]:
    if counts is None or not any(counts):
        return []
    usage = Usage(
        key=session.usage_key,
        model=session.state.model,
        ts=session.state.ts,
        input_tokens=counts[0],
        cache_read_tokens=counts[1],
        cache_write_5m_tokens=counts[2],
        output_tokens=counts[3],
        reasoning_tokens=counts[4],
    )
    session.end_model_call()
    return [usage]


_NAME = re.compile(r"thread_history_(\d{1,6})\.sqlite")
_SELECT = """
SELECT t.status, t.rollout_end_ordinal, p.next_rollout_ordinal
FROM thread_turns t LEFT JOIN thread_history_projection_state p USING (thread_id)
WHERE t.thread_id = ? AND t.turn_id = ?
"""


class ThreadHistory:
    """Codex's own database of turns, `thread_history_<n>.sqlite` beside the sessions.

    When Codex is killed, the turn it was in has no end in the rollout. Codex notices when it opens the session again,
    and notes the turn as interrupted here alone. The database is only read, never written or waited for, and may be
    missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def was_interrupted(self, thread: str, turn: str, ordinal: int, *, is_last: bool) -> bool:
        """True when the turn is noted as interrupted, as of the record with the number `ordinal`.

        If the database knows later records of the turn, or of the session whose last turn it is, the rollout goes on
        after what was read of it, and may have the end itself.
        """
        path = self._newest()
        if path is None:
            return False
        try:
            with open_database(path, busy_seconds=0) as database:
                row = database.execute(_SELECT, (thread, turn)).fetchone()
        except (OSError, ValueError):  # locked, damaged, or of another version
            return False
        if row is None or row[0] != "interrupted":
            return False
        _, end, following = row
        if isinstance(end, int) and end > ordinal:
            return False
        return not (is_last and isinstance(following, int) and following > ordinal + 1)

    def _newest(self) -> Path | None:
        try:
            found = [path for path in self._folder.iterdir() if _NAME.fullmatch(path.name)]
        except OSError:
            return None
        return max(found, key=lambda path: int(path.stem.rpartition("_")[2]), default=None)
