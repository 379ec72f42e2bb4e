"""The agents that can be given the MCP server: where each is found, where its configuration has the servers, and after
how many days it deletes transcripts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from ..sources.agents import expand_root
from .documents import Format, Refused, read_entry
from .files import read_text

SERVER = "backstory"
_CONFIG = "${XDG_CONFIG_HOME:-~/.config}"
_CONTINUE = "${CONTINUE_GLOBAL_DIR:-~/.continue}"
_MAC = "~/Library/Application Support"
_APPS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")

# The settings of an entry that say what is started; the others are the user's once they are there.
_START_KEYS = ("type", "source", "command", "cmd", "args")
_VERSION_SECONDS = 5
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")
# An agent that is only asked for its version, or to add a server, has no reason to use the network.
QUIET = {
    "DO_NOT_TRACK": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "COPILOT_AUTO_UPDATE": "false",
    "CLINE_NO_AUTO_UPDATE": "1",
    "NO_UPDATE_NOTIFIER": "1",
}

Shape = Literal["plain", "stdio", "opencode", "copilot", "zed", "goose", "cline"]
_DAY = 86_400
_SOON_DAYS = 7
_DAYS_OF = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0}


class Place(Struct, frozen=True):
    """A configuration file. It is the agent's if the folder `sign` exists. Of several names, separated by `|`, the
    first that exists counts. Both are written as roots of sources are: `${VARIABLE:-default}`, `~`."""

    sign: str
    file: str

    def find(self, home: Path, environ: Mapping[str, str]) -> tuple[bool, Path] | None:
        """True if the agent is there, and its file; None where a variable is not set."""
        signs = expand_root(self.sign, home, environ)
        files = [path for name in self.file.split("|") for path in expand_root(name, home, environ)]
        if not signs or not files:
            return None
        return signs[0].exists(), next((path for path in files if path.exists()), files[0])


class Wirable(Struct, frozen=True, kw_only=True):
    """An agent that takes MCP servers."""

    name: str
    """The name of its source, or its own if it has none."""
    title: str
    program: str | None = None
    places: tuple[Place, ...]
    format: Format = "json"
    table: tuple[str, ...] = ("mcpServers",)
    shape: Shape = "plain"
    add: tuple[str, ...] = ()
    """Its own command that adds a server, to be followed by the command of the server."""

    @property
    def path(self) -> tuple[str, ...]:
        """The path of the server's entry in the file."""
        return (*self.table, SERVER)

    def format_of(self, file: Path) -> Format:
        """The format of one of its files. A file of another name than the rest may be JSON."""
        return "json" if file.suffix in (".json", ".jsonc") else self.format

    def installed(self) -> str | None:
        """The path of its program."""
        return shutil.which(self.program) if self.program else None

    def files(self, home: Path, environ: Mapping[str, str]) -> list[Path]:
        """The configuration files on this machine; the first one also if the agent has only its program so far."""
        found = [place for place in (place.find(home, environ) for place in self.places) if place is not None]
        there = list(dict.fromkeys(file for exists, file in found if exists))
        return there or [file for _, file in found[:1] if self.installed()]

    def entry(self, command: Sequence[str]) -> dict[str, Any]:
        """The entry of a server that is started by a command."""
        program, *arguments = command
        match self.shape:
            case "plain":
                return {"command": program, "args": arguments}
            case "stdio":
                return {"type": "stdio", "command": program, "args": arguments}
            case "opencode":
                return {"type": "local", "command": list(command), "enabled": True}
            case "copilot":
                return {"type": "local", "command": program, "args": arguments, "tools": ["*"]}
            case "cline":  # which else gives a server three seconds to start
                return {"command": program, "args": arguments, "timeout": 60}
            case "zed":
                return {"source": "custom", "command": program, "args": arguments, "env": {}}
            case "goose":
                about = "The memory of coding agents"
                kind = {"enabled": True, "type": "stdio", "name": SERVER, "description": about}
                return {**kind, "cmd": program, "args": arguments, "envs": {}, "timeout": 300}

    def updated(self, before: Any, command: Sequence[str]) -> dict[str, Any]:
        """The entry of a server, with all that its user added to the one that is there: arguments behind `mcp`,
        variables, and other settings."""
        old = command_in(before)
        added = old[old.index("mcp") + 1 :] if "mcp" in old else ()
        entry = self.entry((*command, *added))
        kept = before if isinstance(before, dict) else {}
        return {key: value if key in _START_KEYS else kept.get(key, value) for key, value in entry.items()}


def command_in(entry: Any) -> tuple[str, ...]:
    """The command that an entry of any shape starts; empty for what is no such entry."""
    if not isinstance(entry, dict):
        return ()
    program = entry.get("command", entry.get("cmd"))
    arguments = entry.get("args") or []
    parts = [*program] if isinstance(program, list) else [program, *arguments]
    return tuple(parts) if all(isinstance(part, str) for part in parts) else ()


def environment_in(entry: Any) -> dict[str, str]:
    """The variables that an entry sets for its server."""
    for key in ("env", "envs", "environment"):
        if isinstance(found := entry.get(key), dict):
            return {name: value for name, value in found.items() if isinstance(value, str)}
    return {}


def version_of(program: str | None) -> str | None:
    """The version that a program prints, or that of its npm package if it takes too long."""
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "--version"],
            env={**os.environ, **QUIET},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_SECONDS,
            check=False,
        )
        if number := _VERSION.search(done.stdout):
            return number[0]
    except (OSError, subprocess.TimeoutExpired):
        pass
    for folder in Path(program).resolve().parents[:3]:
        try:
            return str(json.loads((folder / "package.json").read_bytes())["version"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def _vscode(apps: Sequence[str], file: str, sign: str = "") -> Iterator[Place]:
    """A file below the `User` folder of relatives of VS Code, on Linux, macOS and Windows."""
    for base in (_CONFIG, _MAC, "${APPDATA}"):
        for app in apps:
            yield Place(f"{base}/{app}/User/{sign}", f"{base}/{app}/User/{file}")


def _extension(identifier: str, file: str) -> Iterator[Place]:
    folder = f"globalStorage/{identifier}"
    yield from _vscode(_APPS, f"{folder}/settings/{file}", folder)


WIRABLE: tuple[Wirable, ...] = (
    Wirable(
        name="claude-code",
        title="Claude Code",
        program="claude",
        places=(Place("${CLAUDE_CONFIG_DIR:-~/.claude}", "${CLAUDE_CONFIG_DIR:-~}/.claude.json"),),
        shape="stdio",
        add=("mcp", "add", "--scope", "user", SERVER, "--"),
    ),
    Wirable(
        name="codex",
        title="Codex",
        program="codex",
        places=(Place("${CODEX_HOME:-~/.codex}", "${CODEX_HOME:-~/.codex}/config.toml"),),
        format="toml",
        table=("mcp_servers",),
        add=("mcp", "add", SERVER, "--"),
    ),
    Wirable(
        name="gemini-cli",
        title="Gemini CLI",
        program="gemini",
        places=(Place("${GEMINI_CLI_HOME:-~}/.gemini", "${GEMINI_CLI_HOME:-~}/.gemini/settings.json"),),
        add=("mcp", "add", "--scope", "user", SERVER),
    ),
    Wirable(
        name="qwen-code",
        title="Qwen Code",
        program="qwen",
        places=(Place("${QWEN_HOME:-~/.qwen}", "${QWEN_HOME:-~/.qwen}/settings.json"),),
        add=("mcp", "add", "--scope", "user", SERVER),
    ),
    Wirable(
        name="opencode",
        title="OpenCode",
        program="opencode",
        places=(Place(f"{_CONFIG}/opencode", f"{_CONFIG}/opencode/opencode.jsonc|{_CONFIG}/opencode/opencode.json"),),
        table=("mcp",),
        shape="opencode",
        add=("mcp", "add", SERVER, "--"),
    ),
    Wirable(name="cursor", title="Cursor", program="cursor", places=(Place("~/.cursor", "~/.cursor/mcp.json"),)),
    Wirable(
        name="copilot-chat",
        title="VS Code (Copilot)",
        places=tuple(_vscode(_APPS[:3], "mcp.json")),
        table=("servers",),
        shape="stdio",
    ),
    Wirable(
        name="copilot-cli",
        title="Copilot CLI",
        program="copilot",
        places=(Place("${COPILOT_HOME:-~/.copilot}", "${COPILOT_HOME:-~/.copilot}/mcp-config.json"),),
        shape="copilot",
        add=("mcp", "add", SERVER, "--"),
    ),
    Wirable(
        name="cline",
        title="Cline",
        program="cline",
        places=(
            Place("~/.cline", "~/.cline/data/settings/cline_mcp_settings.json"),
            *_extension("saoudrizwan.claude-dev", "cline_mcp_settings.json"),
        ),
        shape="cline",
    ),
    Wirable(
        name="roo-code",
        title="Roo Code",
        places=tuple(_extension("rooveterinaryinc.roo-cline", "mcp_settings.json")),
    ),
    Wirable(
        name="windsurf",
        title="Windsurf",
        places=(Place("~/.codeium/windsurf", "~/.codeium/windsurf/mcp_config.json"),),
    ),
    Wirable(
        name="zed",
        title="Zed",
        places=(
            Place(f"{_CONFIG}/zed", f"{_CONFIG}/zed/settings.json"),
            Place("${APPDATA}/Zed", "${APPDATA}/Zed/settings.json"),
        ),
        table=("context_servers",),
        shape="zed",
    ),
    Wirable(
        name="kimi-cli",
        title="Kimi",
        program="kimi",
        places=(
            Place("${KIMI_CODE_HOME:-~/.kimi-code}", "${KIMI_CODE_HOME:-~/.kimi-code}/mcp.json"),
            Place("~/.kimi", "~/.kimi/mcp.json"),
        ),
    ),
    Wirable(
        name="goose",
        title="Goose",
        program="goose",
        places=(
            Place(f"{_CONFIG}/goose", f"{_CONFIG}/goose/config.yaml"),
            Place("${APPDATA}/Block/goose/config", "${APPDATA}/Block/goose/config/config.yaml"),
        ),
        format="yaml",
        table=("extensions",),
        shape="goose",
    ),
    Wirable(
        name="amp",
        title="Amp",
        program="amp",
        places=(Place(f"{_CONFIG}/amp", f"{_CONFIG}/amp/settings.json"),),
        table=("amp.mcpServers",),
    ),
    Wirable(
        name="crush",
        title="Crush",
        program="crush",
        places=(Place(f"{_CONFIG}/crush", f"{_CONFIG}/crush/crush.json"),),
        table=("mcp",),
        shape="stdio",
    ),
    # The command line reads only the YAML. The extension reads that and every file of the folder: one entry is enough.
    Wirable(
        name="continue",
        title="Continue",
        places=(Place(_CONTINUE, f"{_CONTINUE}/mcpServers/backstory.json|{_CONTINUE}/config.yaml"),),
        format="yaml list",
    ),
    Wirable(
        name="claude-desktop",
        title="Claude Desktop",
        places=tuple(
            Place(f"{base}/Claude", f"{base}/Claude/claude_desktop_config.json")
            for base in (_CONFIG, _MAC, "${APPDATA}")
        ),
    ),
)


class Retention(Struct, frozen=True, kw_only=True):
    """The transcripts of an agent that deletes them."""

    agent: str
    title: str
    days: float
    setting: str
    """The setting that changes it, with its file."""
    files: int
    soon: int
    """Transcripts that it deletes within a week, or when it starts next."""


def retentions(home: Path | None = None, environ: Mapping[str, str] = os.environ) -> list[Retention]:
    """The agents here that delete transcripts."""
    home = home or Path.home()
    claude = expand_root("${CLAUDE_CONFIG_DIR:-~/.claude}", home, environ)[0]
    gemini = expand_root("${GEMINI_CLI_HOME:-~}/.gemini", home, environ)[0]
    found = []
    for agent, title, folder, pattern, days, setting in (
        ("claude-code", "Claude Code", claude, "projects/*/*.jsonl", claude_days(claude), "cleanupPeriodDays"),
        ("gemini-cli", "Gemini CLI", gemini, "tmp/*/chats/session-*", _gemini_days(gemini), "general.sessionRetention"),
    ):
        times = [path.stat().st_mtime for path in folder.glob(pattern)]
        if days is None or not times:
            continue
        limit = time.time() + (_SOON_DAYS - days) * _DAY
        found.append(
            Retention(
                agent=agent,
                title=title,
                days=days,
                setting=f"{setting} in {folder / 'settings.json'}",
                files=len(times),
                soon=sum(changed < limit for changed in times),
            )
        )
    return found


def claude_days(folder: Path) -> float:
    """The days after which Claude Code deletes the transcripts below its folder."""
    days = _setting(folder, "cleanupPeriodDays")
    return float(days) if isinstance(days, int | float) and not isinstance(days, bool) else 30.0


def _gemini_days(folder: Path) -> float | None:
    """It deletes sessions only where it is set to."""
    if _setting(folder, "general", "sessionRetention", "enabled") is not True:
        return None
    age = re.fullmatch(r"(\d+)([hdwm])", str(_setting(folder, "general", "sessionRetention", "maxAge")))
    return int(age[1]) * _DAYS_OF[age[2]] if age else None


def _setting(folder: Path, *path: str) -> object:
    try:
        value: object = read_entry(read_text(folder / "settings.json"), "json", path)
        return value
    except Refused:
        return None
