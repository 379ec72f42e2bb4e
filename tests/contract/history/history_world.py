"""A small made-up history, written straight into an archive, and what the contract tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from backstory.archive.base import Archive, Batch, EventRow, SessionRow, SyncState, TurnRow
from backstory.model import EventType, digest, event_id, session_id, turn_id
from tests.engines import open_home

F = TypeVar("F", bound=Callable[..., Any])
Call = Callable[..., dict[str, Any]]

DAY = 86_400_000
NOON = 1_777_464_000_000  # 2026-04-29T12:00:00Z

MIGRATION = "codex/01-migration"
MONITOR = "claude-code/02-monitor"
HELPER = "claude-code/02-monitor-helper"
STOPPED = "codex/03-stopped"
SCRIPTS = "claude-code/04-scripts"
ECHOES = "codex/05-echoes"
LISTED = tuple(f"claude-code/listed-{number:02}" for number in range(24))

PROMPT = "The ClickHouse schema migration is failing after adding the event ordinal column. Please find and fix it."
ANSWER = "Updated the migration ordering and verified the ClickHouse schema applies cleanly. Validation: tests pass."
OUTPUT = "cargo test --workspace --locked failed in store-client\n\nfailures:\n    migrations_apply_in_order\n"
LONG = "log line without meaning, number {}\n"
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def covers(*rows: str) -> Callable[[F], F]:
    """Ties a test to rows of the contract's matrices; `test_history_manifest` checks that none is left."""

    def tie(test: F) -> F:
        test.__dict__["covers"] = rows
        return test

    return tie


def event(kind: str, text: str = "", **more: Any) -> dict[str, Any]:
    return {"type": EventType(kind), "text": text, **more}


def uid(key: str, turn: int, ordinal: int) -> bytes:
    return digest(key, str(turn), str(ordinal))


def event_of(key: str, turn: int, ordinal: int) -> str:
    return event_id(uid(key, turn, ordinal))


def turn_of(key: str, ordinal: int) -> str:
    return turn_id(key, ordinal)


def session_of(key: str) -> str:
    return session_id(key)


def build(key: str, turns: list[list[dict[str, Any]]], *, start: int, step: int = 1000, **about: Any) -> Batch:
    """Rows as ingest would write them: one event every `step` ms, a turn ends where an event says `terminal`."""
    batch = Batch()
    ts = start
    for ordinal, specs in enumerate(turns, 1):
        turn = TurnRow(session=key, ordinal=ordinal, started_at=ts, event_count=len(specs))
        for position, spec in enumerate(specs, 1):
            fields = {name: value for name, value in spec.items() if name != "terminal"}
            row = EventRow(
                uid=uid(key, ordinal, position),
                session=key,
                turn=ordinal,
                ordinal=position,
                **{"ts": ts, "cwd": about.get("cwd"), **fields},
            )
            batch.events.append(row)
            if turn.prompt is None and row.type is EventType.USER_INPUT:
                turn.prompt = row.uid
            if row.type is EventType.TOOL_CALL and row.tool and row.tool not in turn.tools:
                turn.tools += (row.tool,)
            if row.type not in turn.types:
                turn.types += (row.type,)
            if spec.get("terminal"):
                turn.terminal, turn.terminal_type = row.uid, row.type
            turn.updated_at = row.ts
            ts += step
        batch.turns.append(turn)
    batch.sessions.append(
        SessionRow(
            key=key,
            source=key.partition("/")[0],
            started_at=start,
            turn_count=len(turns),
            event_count=len(batch.events),
            completed=bool(batch.turns) and batch.turns[-1].completed,
            **{"updated_at": batch.turns[-1].updated_at, **about},
        )
    )
    return batch


def batches() -> list[Batch]:
    return [_migration(), *_monitor(), _stopped(), _scripts(), _echoes(), *_listed()]


def _migration() -> Batch:
    model = {"originating_model": "gpt-5"}
    command = {"cmd": "cargo test --workspace --locked", "workdir": "/home/ada/src/store"}
    return build(
        MIGRATION,
        [
            [
                event("user_input", PROMPT),
                event("reasoning", "The ordinal column probably breaks the view order.", model="gpt-5", **model),
                event("tool_call", tool="exec_command", arguments=command, call_id="c1", **model),
                event("tool_response", OUTPUT, tool="exec_command", exit_code=101, call_id="c1", **model),
                event(
                    "tool_call", tool="apply_patch", arguments="*** Begin Patch\n*** End Patch", call_id="c2", **model
                ),
                event("tool_response", "Done", tool="apply_patch", failed=False, call_id="c2", **model),
                event("tool_call", tool="exec_command", arguments={"cmd": "cargo fmt"}, call_id="c3", **model),
                event("assistant_response", ANSWER, model="gpt-5", terminal=True, **model),
            ],
            [
                event("user_input", "Can you summarize the validation?"),
                event(
                    "assistant_response", "Validation passed with cargo test.", model="gpt-5", terminal=True, **model
                ),
            ],
        ],
        start=NOON,
        title="Fix ClickHouse schema migration failure",
        cwd="/home/ada/src/store",
        slug="fix-migration",
        summary="Migration ordering fixed.",
        mode="tool_calling",
    )


def _monitor() -> list[Batch]:
    parent = build(
        MONITOR,
        [
            [
                event("user_input", "Where does the monitor read its config?"),
                event("assistant_response", "From config/monitor.toml.", model="claude-opus", terminal=True),
            ],
            [
                event("user_input", "Check whether the monitor starts after the latest config change."),
                event("tool_call", tool="Task", arguments={"prompt": "look at the startup"}, call_id="task-1"),
            ],
        ],
        start=NOON + DAY,
        title="Investigate monitor startup",
        cwd="/home/ada/src/monitor",
        mode="tool_calling",
    )
    child = build(
        HELPER,
        [[event("user_input", "look at the startup"), event("assistant_response", "It starts.", terminal=True)]],
        start=NOON + DAY + 60_000,
        title="look at the startup",
        cwd="/home/ada/src/monitor",
        parent=MONITOR,
        parent_call="task-1",
    )
    return [parent, child]


def _stopped() -> Batch:
    return build(
        STOPPED,
        [
            [
                event("system", "zebra as told by the system"),
                event("user_input", "Count the zebra herds"),
                event("compaction", "zebra summary of what came before"),
                event("unknown", "zebra in a record nobody understands"),
                event("runtime", "zebra run interrupted by the user", terminal=True),
            ]
        ],
        start=NOON + 2 * DAY,
        title="",
        cwd="/home/ada/src/zoo",
    )


def _scripts() -> Batch:
    haystack = "".join(LONG.format(number) for number in range(4000))
    middle = len(haystack) // 2
    buried = f"{haystack[:middle]}\nthe needlework pattern was found in drawer seven\n{haystack[middle:]}"
    return build(
        SCRIPTS,
        [
            [
                event("user_input", "ошибка подключения к базе данных"),
                event("assistant_response", "数据库连接失败的原因是密码错误"),
            ],
            [event("user_input", "read the log"), event("tool_response", buried, tool="Read")],
            [
                event("user_input", f"deploy with token {SECRET} quickly"),
                event("tool_call", tool="Bash", arguments={"command": f"GH_TOKEN={SECRET} gh release create"}),
                event("tool_response", "released\x1b[31m in red\x1b[0m and \u202ebackwards\u202c", tool="Bash"),
            ],
        ],
        start=NOON + 3 * DAY,
        title=f"Deploy with {SECRET}",
        cwd="/home/ada/src/scripts",
        mode="web_search",
    )


def _echoes() -> Batch:
    """Sixty times the same answer, in pairs of the same time: only time and id tell them apart."""
    answers = [
        event("assistant_response", "echo location pulse", ts=NOON + 4 * DAY + 1000 * (n // 2)) for n in range(60)
    ]
    return build(ECHOES, [[event("user_input", "repeat"), *answers]], start=NOON + 4 * DAY, title="Echoes")


def _listed() -> list[Batch]:
    """One session a day, two of them updated at the same moment; the modes in turn."""
    modes = ("chat", "tool_calling", "mcp_internal", "web_search")
    sessions = []
    for number, key in enumerate(LISTED):
        start = NOON - 60 * DAY + number * DAY
        turns = [[event("user_input", f"small talk {number}"), event("assistant_response", "yes", terminal=True)]]
        day = number - 1 if number == 11 else number
        about = {"title": f"Talk {number}", "cwd": "/home/ada/talks", "mode": modes[number % 4]}
        sessions.append(build(key, turns, start=start, **about, updated_at=NOON - 60 * DAY + day * DAY + 5000))
    return sessions


def write_world(home: Path) -> Archive:
    archive = open_home(home, projection=None)
    writer = archive.writer()
    writer.recover()
    for batch in batches():
        writer.write(batch)
    writer.flush()
    writer.write(Batch(sync=SyncState(started_at=NOON, finished_at=NOON, first_finished_at=NOON)))
    writer.close()
    return archive


def server(home: Path) -> dict[str, Any]:
    """`backstory mcp` over this home, where no agent has left anything to read."""
    return {
        "command": sys.executable,
        "args": ["-m", "backstory", "mcp", "--tools", "history"],
        "env": {"BACKSTORY_HOME": str(home), "HOME": str(home.parent), "PATH": os.environ.get("PATH", "")},
    }


class Altered:
    """An archive that behaves differently in one place."""

    def __init__(self, archive: Archive, **methods: Callable[..., Any]) -> None:
        self._archive = archive
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._archive, name)
