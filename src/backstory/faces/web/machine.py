"""The page of this machine: the diagnosis of `backstory doctor`, the progress of the first read, the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.routing import Route

from ...archive.base import SyncState
from ...config import Settings
from ...model import rfc3339
from ..diagnosis import NOT_ALL_READ, Diagnosis, Problem, diagnose
from .site import Kept, Nav, Site

if TYPE_CHECKING:
    from ...library import Library

# Redaction by rules is for texts; a setting of this name is a secret of any shape.
_SECRETS = ("token", "password", "secret")
_KEPT_SECONDS = 60


class Setting(Struct, frozen=True, kw_only=True):
    """A setting with its value as JSON."""

    name: str
    value: str
    is_default: bool


class Sync(Struct, frozen=True, kw_only=True):
    """The progress of reading transcripts."""

    running: bool
    first: bool
    """Everything is read for the first time; a search does not find all of it yet."""
    files_done: int
    files_total: int
    finished_at: str | None


class MachinePage(Struct, kw_only=True):
    """The data of `/doctor`. `?part=sync` answers only the progress, `?anew` with a new diagnosis."""

    sync: Sync | None
    diagnosis: Diagnosis | None = None
    diagnosed_at: str | None = None
    settings: list[Setting] = []

    @property
    def problems(self) -> list[Problem]:
        """Without those that a sync mends, while one is running."""
        found = self.diagnosis.problems if self.diagnosis else []
        is_running = self.sync is not None and self.sync.running
        return [problem for problem in found if not (is_running and problem.fix == NOT_ALL_READ.fix)]


def routes(site: Site) -> list[Route]:
    # A diagnosis looks at every transcript of every agent.
    kept = Kept[Diagnosis](_KEPT_SECONDS)

    def build(request: Request) -> MachinePage:
        query = request.query_params
        return read_machine(site.library, kept, only_sync=query.get("part") == "sync", anew="anew" in query)

    return site.page("/doctor", "machine.html", build, nav=Nav("Machine", "/doctor", "m"), parts=["sync"])


def read_machine(
    library: Library, kept: Kept[Diagnosis], *, only_sync: bool = False, anew: bool = False
) -> MachinePage:
    if only_sync:
        return MachinePage(sync=_sync(library.archive.sync_state()))
    found = kept.get("diagnosis", lambda: diagnose(library), anew=anew)
    page = MachinePage(
        # An archive that is damaged has no state of a sync, either.
        sync=_sync(library.archive.sync_state()) if found.value.sync else None,
        diagnosis=found.value,
        diagnosed_at=rfc3339(found.made_at),
        settings=_settings(library.settings),
    )
    return library.egress(page)


def _sync(state: SyncState) -> Sync:
    return Sync(
        running=bool(state.started_at) and state.finished_at is None,
        first=state.first_finished_at is None,
        files_done=state.files_done,
        files_total=state.files_total,
        finished_at=rfc3339(state.finished_at) if state.finished_at else None,
    )


def _settings(settings: Settings) -> list[Setting]:
    defaults = dict(_leaves(msgspec.to_builtins(Settings())))
    found = dict(_leaves(msgspec.to_builtins(settings)))
    return [
        Setting(
            name=name,
            value=msgspec.json.encode(value).decode(),
            is_default=name in defaults and defaults[name] == value,
        )
        for name, value in found.items()
    ]


def _leaves(table: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """The values of a nested table with their dotted names."""
    leaves: list[tuple[str, Any]] = []
    for name, value in table.items():
        if name in _SECRETS and value:
            leaves.append((f"{prefix}{name}", "[redacted:secret]"))
        elif isinstance(value, dict) and value:
            leaves += _leaves(value, f"{prefix}{name}.")
        else:
            leaves.append((f"{prefix}{name}", value))
    return leaves
