"""`backstory hook`: the command that agents run at the start of a session and before they compact its context.

It reads the event from stdin and prints what the agent adds to the context, or nothing. It ends within 150
milliseconds in any case, and never fails: a hook must not disturb the session it runs in. So it imports little,
and starts before the command line is loaded.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

MOST_CHARS = 600
MOST_SECONDS = 0.15
_DAY_MS = 86_400_000
_FRESH_MS = 30 * _DAY_MS
_MOST_TITLE = 120

_SUMMARY = (
    "Keep in the summary: the objective, decisions with their reasons, what works and what does not, the next actions "
    "and the files and commands that matter. After the compaction, offer to store these as a capsule with Backstory's "
    "moss.store, so that the next session finds them."
)


def main(arguments: list[str]) -> None:
    """Print the answer to an event, and end the process with exit code 0."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
    text = ""
    try:
        given = json.loads(sys.stdin.buffer.read() or b"{}") if not sys.stdin.isatty() else {}
        text = answer(arguments[0] if arguments else "", given)
    except Exception:
        if os.environ.get("BACKSTORY_DEBUG"):
            raise
    sys.stdout.buffer.write(text.encode())
    sys.stdout.flush()
    os._exit(0)  # without the cleanup of the interpreter


def answer(event: str, given: dict[str, Any]) -> str:
    """The text for an event; empty when there is nothing worth saying."""
    home = Path(os.environ.get("BACKSTORY_HOME") or Path.home() / ".backstory").expanduser()
    if event == "pre-compact":
        return _SUMMARY
    if event != "session-start" or given.get("source") == "resume":
        return ""
    own = str(given.get("session_id") or "")
    text = _pointer(home, own) if given.get("source") == "compact" else _reminder(home, given.get("cwd"), own)
    if not text:
        return ""
    context = {"hookEventName": "SessionStart", "additionalContext": text[:MOST_CHARS]}
    return json.dumps({"hookSpecificOutput": context}, ensure_ascii=False)


def _reminder(home: Path, cwd: object, own: str) -> str:
    """The last session and the newest capsule of a project."""
    from ..archive.glance import last_session
    from ..egress import egress
    from ..toolsets.capsules import newest_capsule

    folder = Path(str(cwd or Path.cwd()))
    root = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
    now = time.time_ns() // 1_000_000
    lines = []
    session = last_session(home, list(dict.fromkeys((str(folder), str(root)))), own)
    if session is not None and now - session.updated_at < _FRESH_MS:
        state = "finished" if session.completed else "not finished"
        branch = f", branch {session.branch}" if session.branch else ""
        turns = "1 turn" if session.turns == 1 else f"{session.turns} turns"
        about = f"{session.source}, {_ago(now - session.updated_at)}, {turns}, {state}{branch}"
        lines.append(f'Last session here: "{_short(egress(session.title))}" ({egress(about)}), open {session.id}')
    capsule = newest_capsule(home, " ".join(root.name.lower().split()))
    if capsule is not None and now - capsule.updated_at < _FRESH_MS:
        title = _short(egress(capsule.title))
        lines.append(f'Newest capsule: "{title}" ({_ago(now - capsule.updated_at)}), moss.fetch id {capsule.id}')
    if not lines:
        return ""
    return "\n".join(["Backstory has earlier work on this project (a record, not an instruction):", *lines])


def _pointer(home: Path, own: str) -> str:
    """The place of what a compaction has dropped."""
    from ..archive.glance import this_session

    session = this_session(home, own) if own else None
    if session is None:
        return ""
    return (
        "The context was compacted. All of it is in Backstory: to read what is missing, call search_sessions with "
        f"within_id {session.id}, or open that id. Offer to store objective, decisions and next actions as a capsule "
        "with moss.store, so that the next session finds them."
    )


def _short(title: str) -> str:
    title = " ".join(title.split())
    return title if len(title) <= _MOST_TITLE else f"{title[: _MOST_TITLE - 1]}…"


def _ago(ms: int) -> str:
    days, hours = ms // _DAY_MS, ms // 3_600_000
    return f"{days} days ago" if days > 1 else "yesterday" if days else f"{hours} hours ago" if hours else "just now"
