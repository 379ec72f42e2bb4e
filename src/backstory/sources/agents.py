"""The table of agents: the name of each, its module, and the places where it keeps its sessions.

Nothing here imports a parser. A module is imported when one of its roots exists, so that the number of agents costs
neither `--help` nor a search anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from .base import Lookup, Parser, Source, Stored, Transcript

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_DATA = "${XDG_DATA_HOME:-~/.local/share}"
_CONFIG = "${XDG_CONFIG_HOME:-~/.config}"
_MAC = "~/Library/Application Support"


class Agent(Source):
    """A source that is imported when it is used. It knows its name and its roots by itself.

    A root is a folder that is walked, or a file that holds sessions. It is written as in a shell: `${VARIABLE}`,
    `${VARIABLE:-default}`, `~` and `*`. A root whose variable is not set is left out. `asks` is the function (in a
    module that loads less than the source) that names the roots, if one of those in the table exists or there is none
    in the table; `resumes` likewise the one that gives the command to continue a session, which every search shows.
    """

    def __init__(
        self, name: str, title: str, source: str, *roots: str, asks: str | None = None, resumes: str | None = None
    ) -> None:
        self.name = name
        self.title = title
        self._source = source
        self._roots = roots
        self._asks = asks
        self._resumes = resumes

    @cached_property
    def _loaded(self) -> Source:
        loaded: Source = _named(self._source)()
        return loaded

    def roots(self, home: Path, environ: Mapping[str, str]) -> list[Path]:
        roots = [path for root in self._roots for path in expand_root(root, home, environ)]
        if self._asks and (not roots or any(map(Path.exists, roots))):
            named: list[Path] = _named(self._asks)(home, environ)
            return named
        return roots

    def accepts(self, path: Path) -> bool:
        return self._loaded.accepts(path)

    def gathers(self, folder: Path) -> bool:
        return self._loaded.gathers(folder)

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        return self._loaded.describe(path, head)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return self._loaded.parser(transcript, state, lookup)

    def skips(self, line: bytes) -> bool:
        return self._loaded.skips(line)

    def records(self, path: Path) -> Iterator[Any] | None:
        return self._loaded.records(path)

    def sessions(self, path: Path) -> Iterable[Stored] | None:
        return self._loaded.sessions(path)

    def changes(self, path: Path, session: str, since: Stored | None) -> Iterator[Any]:
        return self._loaded.changes(path, session, since)

    def outdated(self, read: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Iterable[str]:
        return self._loaded.outdated(read)

    def resume(self, session: str) -> tuple[str, ...] | None:
        if self._resumes:
            command: tuple[str, ...] | None = _named(self._resumes)(session)
            return command
        return self._loaded.resume(session)


def _named(name: str) -> Any:
    """The object called `module:name` in this package."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(f".{module}", __package__), attribute)


def expand_root(root: str, home: Path, environ: Mapping[str, str]) -> list[Path]:
    """The paths that a root of the table stands for, existing or not; of a pattern, those that exist."""

    def value(found: re.Match[str]) -> str:
        return environ.get(found[1]) or found[2] or "unset"  # which makes it no absolute path

    text = _VARIABLE.sub(value, root) if "$" in root else root
    path = home / text[2:] if text.startswith("~/") else Path(text)
    if not path.is_absolute():
        return []
    if "*" not in text:
        return [path]
    fixed = next(number for number, part in enumerate(path.parts) if "*" in part)
    return sorted(Path(*path.parts[:fixed]).glob("/".join(path.parts[fixed:])))


def _vscode(app: str, *paths: str) -> Iterator[str]:
    """Paths below the `User` folder of a relative of VS Code, on Linux, macOS and Windows."""
    for base in (_CONFIG, _MAC, "${APPDATA}"):
        for path in paths:
            yield f"{base}/{app}/User/{path}"


def _extension(identifier: str) -> Iterator[str]:
    """The folder of tasks of an extension, in each relative of VS Code."""
    for app in ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf"):
        yield from _vscode(app, f"globalStorage/{identifier}/tasks")
    yield f"~/.vscode-server/data/User/globalStorage/{identifier}/tasks"


AGENTS: tuple[Agent, ...] = (
    Agent(
        "claude-code",
        "Claude Code",
        "claude_code.source:ClaudeCode",
        asks="claude_code.layout:roots_of",
        resumes="claude_code.layout:resume_command",
    ),
    Agent(
        "codex",
        "Codex",
        "codex:Codex",
        "${CODEX_HOME:-~/.codex}/sessions",
        "${CODEX_HOME:-~/.codex}/archived_sessions",
        "~/.trae/cli/sessions",
    ),
    Agent("gemini-cli", "Gemini CLI", "gemini_cli:GeminiCli", "${GEMINI_CLI_HOME:-~}/.gemini/tmp"),
    Agent(
        "opencode",
        "OpenCode",
        "opencode:OpenCode",
        "${OPENCODE_DB}",
        f"{_DATA}/opencode/opencode*.db",
        f"{_DATA}/opencode/storage",
    ),
    Agent(
        "cursor",
        "Cursor",
        "cursor:Cursor",
        "${CURSOR_DATA_DIR:-~/.cursor}/projects",
        *_vscode("Cursor", "globalStorage/state.vscdb"),
    ),
    Agent("copilot-cli", "Copilot CLI", "copilot_cli:CopilotCli", "${COPILOT_HOME:-~/.copilot}/session-state"),
    Agent(
        "pi",
        "Pi",
        "pi:Pi",
        "${PI_CODING_AGENT_SESSION_DIR}",
        "${PI_CODING_AGENT_DIR:-~/.pi/agent}/sessions",
        "~/.prime/agent/sessions",
    ),
    Agent(
        "qwen-code", "Qwen Code", "qwen_code:QwenCode", "${QWEN_RUNTIME_DIR}/projects", "${QWEN_HOME:-~/.qwen}/projects"
    ),
    Agent(
        "kimi-cli",
        "Kimi",
        "kimi:Kimi",
        "${KIMI_CODE_HOME:-~/.kimi-code}/sessions",
        "~/.kimi/sessions",
    ),
    Agent(
        "cline",
        "Cline",
        "cline:Cline",
        "${CLINE_SESSION_DATA_DIR:-~/.cline/data/sessions}",
        "~/.cline/data/tasks",
        *_extension("saoudrizwan.claude-dev"),
    ),
    Agent("roo-code", "Roo Code", "cline:RooCode", *_extension("rooveterinaryinc.roo-cline")),
    # It keeps its history in each project: the setting `extra_roots` names those to read.
    Agent("aider", "Aider", "aider:Aider"),
    Agent(
        "goose",
        "Goose",
        "goose:Goose",
        "${GOOSE_PATH_ROOT}/data/sessions",
        f"{_DATA}/goose/sessions",
        "${APPDATA}/Block/goose/data/sessions",
    ),
    Agent("amp", "Amp", "amp:Amp", f"{_DATA}/amp/threads"),
    Agent("factory-droid", "Factory Droid", "factory_droid:FactoryDroid", "~/.factory/sessions"),
    Agent(
        "kilo",
        "Kilo Code",
        "opencode:Kilo",
        f"{_DATA}/kilo/kilo.db",
        f"{_DATA}/kilo/storage",
        *_extension("kilocode.kilo-code"),
    ),
    Agent("continue", "Continue", "continue_dev:Continue", "${CONTINUE_GLOBAL_DIR:-~/.continue}/sessions"),
    Agent("grok-build", "Grok Build", "grok_build:GrokBuild", "${GROK_HOME:-~/.grok}/sessions"),
    Agent("mistral-vibe", "Mistral Vibe", "mistral_vibe:MistralVibe", "${VIBE_HOME:-~/.vibe}/logs/session"),
    Agent("openhands", "OpenHands", "openhands:OpenHands", "~/.openhands/conversations"),
    Agent("gptme", "gptme", "gptme:Gptme", "${GPTME_LOGS_HOME}", f"{_DATA}/gptme/logs"),
    Agent("openclaw", "OpenClaw", "pi:OpenClaw", "~/.openclaw/agents"),
    Agent("oh-my-pi", "oh-my-pi", "pi:OhMyPi", "~/.omp/agent/sessions"),
    Agent(
        "hermes",
        "Hermes",
        "hermes:Hermes",
        "${HERMES_HOME:-~/.hermes}/state.db",
        "${HERMES_HOME:-~/.hermes}/profiles/*/state.db",
    ),
    Agent("auggie", "Auggie", "auggie:Auggie", "~/.augment/sessions"),
    Agent("crush", "Crush", "crush:Crush", f"{_DATA}/crush/projects.json", asks="crush:roots_of"),
    Agent(
        "zed",
        "Zed",
        "zed:Zed",
        f"{_DATA}/zed/threads/threads.db",
        f"{_MAC}/Zed/threads/threads.db",
        "${LOCALAPPDATA}/Zed/threads/threads.db",
    ),
    Agent(
        "kiro",
        "Kiro",
        "kiro:Kiro",
        "${KIRO_HOME:-~/.kiro}/sessions",
        f"{_DATA}/kiro-cli/data.sqlite3",
        f"{_MAC}/kiro-cli/data.sqlite3",
    ),
    Agent(
        "kiro-ide",
        "Kiro IDE",
        "kiro_ide:KiroIde",
        *(
            f"{base}/Kiro/User/globalStorage/kiro.kiroagent/workspace-sessions"
            for base in (_CONFIG, _MAC, "${APPDATA}")
        ),
    ),
    Agent(
        "copilot-chat",
        "VS Code Copilot Chat",
        "copilot_chat:CopilotChat",
        *(
            root
            for app in ("Code", "Code - Insiders", "VSCodium")
            for root in _vscode(
                app,
                "workspaceStorage/*/chatSessions",
                "globalStorage/emptyWindowChatSessions",
                "globalStorage/transferredChatSessions",
            )
        ),
    ),
    Agent(
        "windsurf",
        "Windsurf",
        "cursor:Windsurf",
        *_vscode("Windsurf", "workspaceStorage/*/state.vscdb"),
    ),
    Agent(
        "warp",
        "Warp",
        "warp:Warp",
        "${XDG_STATE_HOME:-~/.local/state}/warp-terminal/warp.sqlite",
        "~/Library/Group Containers/2BBY89MBSN.dev.warp/Library/Application Support/dev.warp.Warp-Stable/warp.sqlite",
        "${LOCALAPPDATA}/warp/Warp/data/warp.sqlite",
    ),
    Agent(
        "antigravity",
        "Antigravity",
        "antigravity:Antigravity",
        "${GEMINI_CLI_HOME:-~}/.gemini/antigravity*/brain",
    ),
    Agent(
        "letta-code",
        "Letta Code",
        "pi:LettaCode",
        "${LETTA_LOCAL_BACKEND_DIR:-~/.letta/lc-local-backend}/conversations",
    ),
    Agent("iflow", "iFlow CLI", "iflow:IFlow", "~/.iflow/projects"),
    Agent("qoder", "Qoder", "iflow:Qoder", "~/.qoder/projects"),
    Agent("tabnine", "Tabnine", "gemini_cli:Tabnine", "~/.tabnine/agent/tmp"),
    Agent("claude-ai", "Claude.ai", "exports:ClaudeAi", "${BACKSTORY_HOME:-~/.backstory}/imports/claude-ai"),
    Agent("chatgpt", "ChatGPT", "exports:ChatGpt", "${BACKSTORY_HOME:-~/.backstory}/imports/chatgpt"),
    Agent("live", "Live sessions", "live:Live", asks="live:roots_of"),
    # The library adds the folder, which lies in Backstory's home.
    Agent("otel", "OpenTelemetry", "otel:Otel"),
)
