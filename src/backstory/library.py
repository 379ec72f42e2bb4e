"""Backstory as a library: one object that opens an archive, keeps it up to date and calls its tools.

Every face (MCP, terminal, HTTP) is a thin layer over this.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import msgspec
from msgspec import Struct

from .keeper import Keeper
from .model import EVENT_TYPES, EventType
from .toolsets.base import Reply, Tool, Toolset

if TYPE_CHECKING:
    from .archive.base import Archive
    from .ingest.images import Image
    from .toolsets.capsules.service import Capsules
    from .toolsets.history.service import History
    from .toolsets.history.types import CapsuleLink, ReadEvent

__all__ = ["TOOLSETS", "Library", "Location", "Scope"]

TOOLSETS: tuple[str, ...] = ("history", "conversations", "capsules", "traces", "live")
_CAPSULES = "capsules"
Scope = Literal["local", "team", "both"]
T = TypeVar("T")


class Location(Struct, frozen=True, kw_only=True):
    """The project of a session, and the command that continues it."""

    source: str
    native_id: str
    """The agent's own session id."""
    project: str | None
    branch: str | None
    resume: tuple[str, ...] | None
    """The agent's command; it finds the session when it is run in the project's folder."""
    user: str | None = None
    """Of a session of a team: the member that shared it, and the machine that it is on."""
    machine: str | None = None

    @property
    def origin(self) -> str | None:
        return None if self.user is None else f"{self.user} on {self.machine}"


class Library(Keeper):
    """An archive that is kept up to date, with its tools. Search prefers the project that the folder `here` belongs to
    a little. Tools ask the archive of this machine, that of a team, or both; `name_origins` lets their answers name the
    members and machines of a team."""

    def __init__(
        self,
        home: Path | None = None,
        *,
        agents_home: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        here: Path | None = None,
        scope: Scope = "local",
        name_origins: bool = True,
    ) -> None:
        super().__init__(home, agents_home=agents_home, environ=environ)
        self._here = here
        self._scope: Scope = scope
        self._names_origins = name_origins
        self._toolsets: dict[tuple[str, str], Toolset] = {}

    def in_scope(self, scope: Scope) -> Library:
        """The same library for another scope. Both are closed by their users."""
        if scope == self._scope:
            return self
        return Library(self.home, agents_home=self.agents_home, environ=self._environ, here=self._here, scope=scope)

    @cached_property
    def asked(self) -> Archive:
        """The archive that tools ask."""
        match self._scope:
            case "local":
                return self.archive
            case "team":
                return self.team.open_archive()
            case "both":
                from .team.union import UnionArchive

                return UnionArchive(self.archive, self.team.open_archive)

    # Tools

    def toolset(self, name: str, *, pattern: str = "*") -> Toolset:
        """Raises KeyError for a name that is not in TOOLSETS. `pattern` selects the projects of `conversations`."""
        if (name, pattern) not in self._toolsets:
            self._toolsets[name, pattern] = self._load_toolset(name, pattern)
        return self._toolsets[name, pattern]

    def _load_toolset(self, name: str, pattern: str) -> Toolset:
        match name:
            case "history":
                from .toolsets.history.tools import toolset as history

                return history(self._history)
            case "conversations":
                from .toolsets.conversations import toolset as conversations

                return conversations(lambda: self.asked, self.settings, pattern, until_ready=self._await_first_sync)
            case "capsules":
                from .toolsets.capsules.tools import toolset_of as capsules

                return capsules(self._capsules)
            case "traces":
                from .toolsets.traces.tools import toolset as traces

                return traces(lambda: self.asked, self.settings)
            case "live":
                from .toolsets.live.tools import toolset as live

                return live(self.home, self.settings, self._own_environ)
        raise KeyError(name)

    @cached_property
    def _capsules(self) -> Capsules:
        from .toolsets.capsules.service import Capsules

        return Capsules(self.home, self.settings.capsules, self.settings.redact)

    def capsules_of(self, key: str) -> list[CapsuleLink]:
        """The capsules of a session, which they name by its id, its key or the agent's own id."""
        from .model import session_id
        from .toolsets.history.types import CapsuleLink

        if self._scope == "team" or not (self.home / "capsules.db").exists():
            return []
        names = (session_id(key), key, key.partition("/")[2])
        found = {capsule.id: capsule for name in names for capsule in self._capsules.of_session(name)}
        return [CapsuleLink(c.id, c.workspace, c.name, c.title) for c in found.values()]

    def tool(self, name: str) -> Tool:
        """A tool of any toolset, by its name or an alias. Raises KeyError when there is none."""
        for toolset in TOOLSETS:
            for tool in self.toolset(toolset).tools:
                if name == tool.name or name in tool.aliases:
                    return tool
        raise KeyError(name)

    def reply(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Reply:
        return self.tool(tool).handler(dict(arguments or {}))

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Any tool's structured result; errors are results too, as the tool's contract shapes them."""
        return self.reply(tool, arguments).data

    # The history tools, without the schemas of any

    def search(self, query: str, *, explain: bool = False, **options: Any) -> dict[str, Any]:
        """The answer of `search_sessions`, with matching capsules beside it: `source="capsules"` gives only those.

        Filters that capsules do not have (a session, event types, a project, another source) leave them out. `explain`
        adds to the data how the words were read, and for each hit the words and the evidence that made its score.
        """
        answer = self._history.search_sessions({"query": query, **options}, explain=explain).data
        if "error" not in answer:
            if options.get("source") == _CAPSULES:
                answer["warnings"] = []  # all of them are about sessions
            answer["capsules"] = self._matching_capsules(query, options, answer)
        return answer

    def _matching_capsules(self, query: str, options: Mapping[str, Any], answer: dict[str, Any]) -> list[Any]:
        """Capsules are in no index but that of their own store: to delete one there is to delete it everywhere."""
        given = {name for name, value in options.items() if value is not None}
        if given & {"within_id", "event_types", "project"} or options.get("source") not in (None, _CAPSULES):
            return []
        if self._scope == "team" or not (self.home / "capsules.db").exists():
            return []
        from msgspec import to_builtins

        from .egress import egress
        from .model import parse_rfc3339
        from .toolsets.capsules.store import database_trouble

        since, until = (parse_rfc3339(options.get(name) or "") for name in ("since", "until"))
        try:
            found = self._capsules.matches(query, answer["data"]["limit"], since=since, until=until)
        except Exception as error:
            cause = database_trouble(error)
            if cause is None:
                raise
            answer["warnings"].append(f"Capsules were not searched: {cause}")
            return []
        matches: list[Any] = egress(to_builtins(found), self.settings.redact)
        return matches

    def open(self, id: str, **options: Any) -> dict[str, Any]:
        return self._history.open({"id": id, **options}).data

    def sessions(self, start_datetime: str, end_datetime: str, **options: Any) -> dict[str, Any]:
        window = {"start_datetime": start_datetime, "end_datetime": end_datetime}
        return self._history.list_sessions({**window, **options}).data

    def locate(self, id: str) -> Location | None:
        """The location of a session, by its id or the id of one of its turns."""
        from .model import EventRef, parse_id

        ref = parse_id(id)
        session = None if isinstance(ref, EventRef) else self.asked.session(ref.key)
        if session is None:
            return None
        source = next((source for source in self.sources if source.name == session.source), None)
        native_id = self.egress(session.key.partition("/")[2])
        return Location(
            source=session.source,
            native_id=native_id,
            project=self.egress(session.cwd or None),
            branch=self.egress(session.branch or None),
            resume=source.resume(native_id) if source and not session.parent and session.user is None else None,
            user=self.egress(session.user),
            machine=self.egress(session.machine),
        )

    def image(self, id: str, number: int) -> Image | None:
        """An image of an event, counted from 1, from the transcript or its raw records; None if neither has it."""
        from .ingest.images import find_image
        from .model import EventRef, parse_id

        ref = parse_id(id)
        found = self.archive.open(ref) if isinstance(ref, EventRef) else None
        return find_image(self.archive, self.raw, found.event, number) if found is not None else None

    def has_transcript(self, key: str) -> bool:
        """True if the transcript of a session is on disk, or its raw records are kept."""
        from .ingest.images import has_transcript

        session = self.archive.session(key)
        return session is not None and has_transcript(self.archive, self.raw, session)

    def egress(self, value: T) -> T:
        """A value of the archive without secrets and hostile characters, for exits that no tool answers through."""
        from .egress import egress

        plain = egress(msgspec.to_builtins(value), self.settings.redact)
        return msgspec.convert(plain, type(value)) if isinstance(value, Struct) else cast("T", plain)

    def read_turn(self, id: str, types: Sequence[EventType] = EVENT_TYPES) -> list[ReadEvent]:
        """The events of a turn with their whole content; `open` gives the beginning of each."""
        from .model import TurnRef, parse_id

        ref = parse_id(id)
        return self._history.read_turn(ref, types) if isinstance(ref, TurnRef) else []

    @cached_property
    def _history(self) -> History:
        from .toolsets.history.service import History

        return History(
            lambda: self.asked,
            self.settings,
            self.capsules_of,
            here=self._here,
            is_behind=self.is_behind,
            name_origins=self._names_origins,
        )

    def close(self) -> None:
        if self._scope != "local" and "asked" in self.__dict__:
            self.asked.close()
        super().close()
        if "_capsules" in self.__dict__:
            self._capsules.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
