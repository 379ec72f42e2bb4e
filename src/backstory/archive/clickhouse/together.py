"""Events, turns and sessions by their places, in one statement: three would take the client and the server longer."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ..base import EventRow, SessionRow, TurnRow
from .rows import read_event, read_session, read_turn
from .server import Server, array

# The kinds of rows in the answer.
_EVENT, _TURN, _SESSION = range(3)


class Together(NamedTuple):
    events: dict[tuple[bytes, int], EventRow]
    """By uid and version."""
    turns: dict[tuple[str, int], TurnRow]
    """By session and ordinal."""
    sessions: dict[str, SessionRow]


def read_together(
    server: Server, turns: Collection[tuple[str, int]], events: Collection[tuple[str, int, int]] = ()
) -> Together:
    """The turns at these places with their sessions, and events by session, turn and ordinal."""
    statements = []
    if events:
        places = array(events, "Tuple(String, UInt32, UInt32)")
        statements.append(
            f"SELECT {_EVENT}, e.version, e.row, e.body FROM event e FINAL "
            f"WHERE (e.session, e.turn, e.ordinal) IN {places}"
        )
    statements.append(
        f"SELECT {_TURN}, 0, t.row, '' FROM turn t FINAL "
        f"WHERE (t.session, t.ordinal) IN {array(turns, 'Tuple(String, UInt32)')}"
    )
    statements.append(
        f"SELECT {_SESSION}, 0, s.row, '' FROM session s FINAL "
        f"WHERE s.key IN {array({session for session, _ in turns}, 'String')}"
    )
    found = Together({}, {}, {})
    for kind, version, row, body in server.rows(" UNION ALL ".join(statements)):
        if kind == _EVENT:
            event = read_event((row, body))
            found.events[event.uid, version] = event
        elif kind == _TURN:
            turn = read_turn((row,))
            found.turns[turn.session, turn.ordinal] = turn
        else:
            session = read_session((row,))
            found.sessions[session.key] = session
    return found
