"""What frames the conversation: whose session it is, where turns begin and end, what the runtime noted."""

from __future__ import annotations

from ...model import EventType, digest
from ..base import About, Event, Item, TurnEnd
from .fields import Payload, mapping_of, text_of
from .messages import answer
from .outputs import as_json
from .session import CLOSING, Session
from .usage import call_usage, read_counts

__all__ = [
    "entered_review_mode",
    "exited_review_mode",
    "goal_updated",
    "guardian_assessment",
    "lost_end",
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
    """The end of a turn that the rollout never tells, because Codex was killed: its own database may know of it."""
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
    """The user took turns back. They were said all the same, and stay."""
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
    """The findings; the answer that follows tells them in prose."""
    review = mapping_of(payload, "review_output")
    findings = review.get("findings")
    parts = ["Review finished.", text_of(review, "overall_explanation")]
    for finding in map(mapping_of, findings if isinstance(findings, list) else ()):
        parts += [text_of(finding, "title"), text_of(finding, "body")]
    return [session.event(EventType.RUNTIME, "\n\n".join(filter(None, parts)))]
