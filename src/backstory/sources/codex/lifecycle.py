"""What frames the conversation: whose session it is, where turns begin and end, what the runtime noted."""

from __future__ import annotations

from typing import Any

from ...model import EventType
from ..base import Item, TurnEnd
from .messages import answer
from .outputs import as_json
from .session import CLOSING, Session
from .usage import call_usage, read_counts

__all__ = [
    "entered_review_mode",
    "exited_review_mode",
    "goal_updated",
    "guardian_assessment",
    "notice",
    "parents",
    "rolled_back",
    "session_meta",
    "task_complete",
    "task_started",
    "thread_name_updated",
    "turn_aborted",
    "turn_completed",
    "turn_context",
]

Payload = dict[str, Any]


def _text(payload: Any, *keys: str) -> str | None:
    if not isinstance(payload, dict):
        return None
    return next((value for key in keys if isinstance(value := payload.get(key), str) and value), None)


def _inner(payload: Any, *path: str) -> Payload:
    for key in path:
        payload = payload.get(key) if isinstance(payload, dict) else None
    return payload if isinstance(payload, dict) else {}


def parents(meta: Payload) -> tuple[str | None, str | None]:
    """The session that started this one, and the one it was forked from, as its header names them."""
    spawn = _inner(meta, "source", "subagent", "thread_spawn")
    return _text(spawn, "parent_thread_id") or _text(meta, "parent_thread_id"), _text(meta, "forked_from_id")


def session_meta(session: Session, payload: Payload) -> list[Item]:
    """The first header is the session's own. Others with another id belong to the ancestors it was copied from."""
    state = session.state
    named = _text(payload, "id", "session_id")
    if state.has_header and named != session.id:
        if state.replaying:
            session.descend_from(named)
            state.forked = True
        return []
    state.has_header = True
    parent, forked_from = parents(payload)
    session.descend_from(forked_from, parent)
    state.forked = state.forked or bool(forked_from)
    spawn = _inner(payload, "source", "subagent", "thread_spawn")
    state.agent_path = _text(payload, "agent_path") or _text(spawn, "agent_path")
    return [
        *session.about(
            cwd=_text(payload, "cwd"),
            branch=_text(_inner(payload, "git"), "branch"),
            version=_text(payload, "cli_version"),
            parent=parent,
            forked_from=forked_from,
        )
    ]


def turn_context(session: Session, payload: Payload) -> list[Item]:
    """Also written in the middle of a turn, after a compaction. Its model wrote what follows."""
    if turn := _text(payload, "turn_id"):
        session.begin_turn(turn)
    session.state.model = _text(payload, "model") or session.state.model
    return [] if session.in_copy else [*session.about(cwd=_text(payload, "cwd"))]


def thread_name_updated(session: Session, payload: Payload) -> list[Item]:
    if session.in_copy or payload.get("thread_id", session.id) != session.id:
        return []
    return [*session.about(title=_text(payload, "thread_name"))]


# Turns


def task_started(session: Session, payload: Payload) -> list[Item]:
    if turn := _text(payload, "turn_id"):
        session.begin_turn(turn)
    return []


def task_complete(session: Session, payload: Payload) -> list[Item]:
    """The last answer ends the turn. Work that ends without one (by an error, say) has its end as an event of its own.
    A task that did none, such as a compaction on request, leaves the turn before it as it was."""
    state = session.state
    error = _text(_inner(payload, "error"), "message") or _text(payload, "error")
    last = _text(payload, "last_agent_message")
    items: list[Item] = answer(session, CLOSING, [last] if last else [], ends_turn=not error)
    if error or (state.working and not state.answered):
        text = f"Task failed: {error}" if error else "Task complete."
        items.append(session.event(EventType.RUNTIME, text, ends_turn=state.working))
    elif not items:
        items.append(TurnEnd())
    session.end_turn()
    return items


def turn_completed(session: Session, payload: Payload) -> list[Item]:
    """2025: the end of a turn, with the tokens it took."""
    return [*call_usage(session, read_counts(payload.get("usage"))), *task_complete(session, payload)]


def turn_aborted(session: Session, payload: Payload) -> list[Item]:
    state = session.state
    reason = _text(payload, "reason") or "unknown"
    event = session.event(EventType.RUNTIME, f"Turn aborted: {reason}", ends_turn=state.working)
    state.aborted_prompt = state.last_prompt
    session.end_turn()
    return [event]


def rolled_back(session: Session, payload: Payload) -> list[Item]:
    """The user took turns back. They were said all the same, and stay."""
    return [session.event(EventType.RUNTIME, f"Rolled back turns: {payload.get('num_turns')}")]


# Notes of the runtime


def notice(session: Session, payload: Payload) -> list[Item]:
    """Errors, warnings and the like: a message, sometimes inside."""
    text = _text(payload, "message") or _text(_inner(payload, "error"), "message") or _text(payload, "error")
    return [session.event(EventType.RUNTIME, text or as_json(payload))]


def guardian_assessment(session: Session, payload: Payload) -> list[Item]:
    """An automatic reviewer's verdict on an action; while it is still thinking there is none."""
    rationale = _text(payload, "rationale")
    if not rationale:
        return []
    action = _inner(payload, "action")
    about = _text(action, "command", "tool", "type") or "action"
    return [session.event(EventType.RUNTIME, f"Review of {about}: {_text(payload, 'status')}. {rationale}")]


def goal_updated(session: Session, payload: Payload) -> list[Item]:
    """Repeated with every change of its token count: only a new objective or status is news."""
    goal = _inner(payload, "goal")
    text = f"Goal ({_text(goal, 'status') or 'set'}): {_text(goal, 'objective') or ''}"
    if session.state.goal == text:
        return []
    session.state.goal = text
    return [session.event(EventType.RUNTIME, text)]


def entered_review_mode(session: Session, payload: Payload) -> list[Item]:
    hint = _text(payload, "user_facing_hint") or _text(payload, "prompt") or ""
    return [session.event(EventType.RUNTIME, f"Review started: {hint}")]


def exited_review_mode(session: Session, payload: Payload) -> list[Item]:
    """The findings; the answer that follows tells them in prose."""
    review = _inner(payload, "review_output")
    findings = review.get("findings")
    parts = ["Review finished.", _text(review, "overall_explanation")]
    for finding in findings if isinstance(findings, list) else []:
        parts += [_text(finding, "title"), _text(finding, "body")]
    return [session.event(EventType.RUNTIME, "\n\n".join(filter(None, parts)))]
