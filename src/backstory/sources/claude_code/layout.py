"""The files of Claude Code on disk, and the session that each belongs to by its place.

    projects/<slug>/<session>.jsonl                                a session
    projects/<slug>/<session>/subagents/**/agent-<id>.jsonl        its subagents (workflows nest folders)
    projects/<slug>/<session>/subagents/**/agent-<id>.meta.json    what they are about
    projects/<slug>/<session>/tool-results/                        tool output too long for the transcript
    projects/<slug>/agent-<id>.jsonl                               subagents before 2.0.60 or so
    local-agent-mode-sessions/**/local_<id>/.claude/projects/...   the same below each session of Claude Desktop
    local-agent-mode-sessions/**/local_<id>.json                   with its title

A subagent's session is `<session>/agent-<id>`: agent ids are short and only unique within their session.
A session that changes its working directory goes on in the folder of the new one, under the same id.

Left aside: `history.jsonl` beside `projects` keeps the prompts of transcripts that were purged, without their answers
and without the ids by which they could be distinguished from those that were read while the transcripts were there.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ...config import expand_home

DESKTOP = "local-agent-mode-sessions"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_LISTING_SECONDS = 5
_FEW = 8
_AGENT_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
# Runs that Claude Code starts for itself: to summarise a conversation, to guess the next prompt.
_HELPERS = ("agent-acompact-", "agent-aprompt_suggestion-")
_NOT_TRANSCRIPTS = {"audit.jsonl", "history.jsonl", "journal.jsonl"}


def roots_of(home: Path, environ: Mapping[str, str]) -> list[Path]:
    settings = expand_home(environ.get("XDG_CONFIG_HOME") or "~/.config", home)
    given = filter(None, map(str.strip, environ.get("CLAUDE_CONFIG_DIR", "").split(",")))
    bases = [expand_home(name, home) for name in given]
    bases += [home / ".claude", settings / "claude"]
    roots = [base if base.name == "projects" else base / "projects" for base in bases]
    desktops = [home / "Library" / "Application Support" / "Claude", settings / "Claude"]
    if roaming := environ.get("APPDATA"):
        desktops.append(Path(roaming) / "Claude")
    if local := environ.get("LOCALAPPDATA"):
        desktops += sorted(Path(local).glob("Packages/*Claude_*/LocalCache/Roaming/Claude"))
    return list(dict.fromkeys([*roots, *(desktop / DESKTOP for desktop in desktops)]))


def is_transcript_name(path: Path) -> bool:
    """True for a path that may be a transcript, by its name alone."""
    parts = path.parts
    if "tool-results" in parts:
        return False
    if path.suffix == ".json":  # a session exported as one document, or any other: `describe` decides
        return not path.name.endswith((".meta.json", "-index.json")) and DESKTOP not in parts
    if path.suffix != ".jsonl" or path.name in _NOT_TRANSCRIPTS:
        return False
    if "subagents" in parts[:-1] and agent_id(path) is None:
        return False
    return DESKTOP not in parts or desktop_session(path) is not None


def agent_id(path: Path) -> str | None:
    return path.stem.removeprefix("agent-") if path.name.startswith("agent-") and path.suffix == ".jsonl" else None


def agent_session(root: str, agent: str) -> str:
    return f"{root}/agent-{agent}"


def is_helper(path: Path) -> bool:
    return path.name.startswith(_HELPERS)


def is_session_id(name: str) -> bool:
    return _UUID.fullmatch(name) is not None


def desktop_session(path: Path) -> Path | None:
    """The folder `local_<id>` of a Claude Desktop session that a transcript is in."""
    if not any(part.startswith("local_") for part in path.parts):
        return None
    folders = list(path.parents)
    for projects, settings, folder in zip(folders, folders[1:], folders[2:], strict=False):
        if folder.name.startswith("local_") and settings.name == ".claude" and projects.name == "projects":
            return folder
    return None


def session_folder(path: Path) -> Path:
    """The folder beside a session's transcript that holds what belongs to it, existing or not."""
    if "subagents" in path.parts[:-1]:
        for folder in path.parents:
            if folder.name == "subagents":
                return folder.parent
    return path.with_suffix("")


class _Listing(NamedTuple):
    """A folder of projects since a time: the questions about it, and when there are many, the slugs that hold each
    name."""

    since: float
    questions: int = 0
    slugs: dict[str, list[str]] | None = None


class Projects:
    """The folders of projects. A few transcripts are looked for in each folder; for more, all folders are listed once:
    otherwise it would take the square of their number."""

    def __init__(self) -> None:
        self._listings: dict[Path, _Listing] = {}

    def parts_of(self, path: Path) -> list[Path]:
        """The session's transcript or folder: this one, and those below the other working directories it was in."""
        projects = path.parent.parent
        if projects.name != "projects":
            return [path]
        slugs = self._slugs(projects, path.name)
        if path.parent.name not in slugs and path.exists():  # written since they were listed
            del self._listings[projects]
            slugs = self._slugs(projects, path.name)
        return [path, *(projects / slug / path.name for slug in sorted(slugs) if slug != path.parent.name)]

    def find_agent(self, folder: Path, agent: str) -> Path | None:
        """The transcript of a subagent, if it has one of its own."""
        if not _AGENT_ID.fullmatch(agent):  # it comes from a record: it may not lead anywhere else
            return None
        name = f"agent-{agent}.jsonl"
        for place in self.parts_of(folder):
            for path in (place / "subagents" / name, place.parent / name):
                if path.is_file():
                    return path
            for path in (place / "subagents").glob(f"*/**/{name}"):
                return path
        return None

    def _slugs(self, projects: Path, name: str) -> list[str]:
        now = time.monotonic()
        known = self._listings.get(projects)
        if known is None or now - known.since > _LISTING_SECONDS:
            known = _Listing(now)
        slugs = known.slugs
        if slugs is None and known.questions >= _FEW:
            slugs = _slugs_by_name(projects)
        self._listings[projects] = _Listing(known.since, known.questions + 1, slugs)
        return _slugs_with(projects, name) if slugs is None else slugs.get(name, [])


def _slugs_with(projects: Path, name: str) -> list[str]:
    try:
        slugs = os.listdir(projects)  # noqa: PTH208
    except OSError:
        return []
    return [slug for slug in slugs if os.path.exists(projects / slug / name)]  # noqa: PTH110 - raises nothing


def _slugs_by_name(projects: Path) -> dict[str, list[str]]:
    """The folders of projects that hold a session's transcript or folder, by its name."""
    found: dict[str, list[str]] = {}
    try:
        slugs = os.listdir(projects)  # noqa: PTH208 - names are all that is needed, of thousands
    except OSError:
        return found
    for slug in slugs:
        try:
            names = os.listdir(projects / slug)  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            found.setdefault(name, []).append(slug)
    return found
