"""The table of agents: the name of each, its module, where it keeps its sessions, and how one is continued.

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

from ..config import expand_home
from .base import Lookup, Parser, Source, Stored, Transcript

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_DATA = "${XDG_DATA_HOME:-~/.local/share}"
_CONFIG = "${XDG_CONFIG_HOME:-~/.config}"
_MAC = "~/Library/Application Support"


class Agent(Source):
    """A source that is imported when it is used. It knows its name, its roots and its command by itself.

    A root is a folder that is walked, or a file that holds sessions. It is written as in a shell: `${VARIABLE}`,
    `${VARIABLE:-default}`, `~` and `*`. A root whose variable is not set is left out. `asks` is the function (in a
    module that loads less than the source) that names the roots, if one of those in the table exists or there is none
    in the table. `resume` is the command that continues a session, whose id is `{}`; without it the source is asked.
    """

    def __init__(
        self, name: str, title: str, source: str, *roots: str, asks: str | None = None, resume: str | None = None
    ) -> None:
        self.name = name
        self.title = title
        self._source = source
        self._roots = roots
        self._asks = asks
        self._resume = resume

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
        """None also for a subagent, whose id has that of its session before it."""
        if self._resume is None:
            return self._loaded.resume(session)
        if "/" in session and "{}" in self._resume:
            return None
        return tuple(word.replace("{}", session) for word in self._resume.split())


def _named(name: str) -> Any:
    """The object called `module:name` in this package."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(f".{module}", __package__), attribute)


def expand_root(root: str, home: Path, environ: Mapping[str, str]) -> list[Path]:
    """The paths that a root of the table stands for, existing or not; of a pattern, those that exist."""

    def value(found: re.Match[str]) -> str:
        given = environ.get(found[1], "")
        if not expand_home(given, home).is_absolute():  # nobody knows the folder it would be relative to
            given = found[2] or "unset"
        return given

    text = _VARIABLE.sub(value, root) if "$" in root else root
    path = expand_home(text, home)
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
        resume="claude --resume {}",
    ),
    # Archived sessions are moved from one folder to the other. TRAE's CLI writes the same format.
    Agent(
        "codex",
        "Codex",
        "codex:Codex",
        "${CODEX_HOME:-~/.codex}/sessions",
        "${CODEX_HOME:-~/.codex}/archived_sessions",
        "~/.trae/cli/sessions",
        resume="codex resume {}",
    ),
    Agent(
        "gemini-cli",
        "Gemini CLI",
        "gemini:GeminiCli",
        "${GEMINI_CLI_HOME:-~}/.gemini/tmp",
        resume="gemini --resume {}",
    ),
    Agent(
        "opencode",
        "OpenCode",
        "opencode:OpenCode",
        "${OPENCODE_DB}",
        f"{_DATA}/opencode/opencode*.db",
        f"{_DATA}/opencode/storage",
        resume="opencode --session {}",
    ),
    Agent(
        "cursor",
        "Cursor",
        "cursor:Cursor",
        "${CURSOR_DATA_DIR:-~/.cursor}/projects",
        *_vscode("Cursor", "globalStorage/state.vscdb"),
        resume="cursor-agent --resume={}",
    ),
    Agent(
        "copilot-cli",
        "Copilot CLI",
        "copilot_cli:CopilotCli",
        "${COPILOT_HOME:-~/.copilot}/session-state",
        resume="copilot --resume {}",
    ),
    Agent(
        "pi",
        "Pi",
        "pi:Pi",
        "${PI_CODING_AGENT_SESSION_DIR}",
        "${PI_CODING_AGENT_DIR:-~/.pi/agent}/sessions",
        "~/.prime/agent/sessions",
        resume="pi --session {}",
    ),
    Agent(
        "qwen-code",
        "Qwen Code",
        "qwen_code:QwenCode",
        "${QWEN_RUNTIME_DIR}/projects",
        "${QWEN_HOME:-~/.qwen}/projects",
        resume="qwen --resume {}",
    ),
    Agent(
        "kimi-cli",
        "Kimi",
        "kimi:Kimi",
        "${KIMI_CODE_HOME:-~/.kimi-code}/sessions",
        "~/.kimi/sessions",
        resume="kimi --session {}",
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
        resume="goose session --resume --session-id {}",
    ),
    Agent("amp", "Amp", "amp:Amp", f"{_DATA}/amp/threads", resume="amp threads continue {}"),
    Agent(
        "factory-droid",
        "Factory Droid",
        "factory_droid:FactoryDroid",
        "~/.factory/sessions",
        resume="droid --resume {}",
    ),
    Agent(
        "kilo",
        "Kilo Code",
        "opencode:Kilo",
        f"{_DATA}/kilo/kilo.db",
        f"{_DATA}/kilo/storage",
        *_extension("kilocode.kilo-code"),
        resume="kilo --session {}",
    ),
    Agent(
        "continue",
        "Continue",
        "continue_dev:Continue",
        "${CONTINUE_GLOBAL_DIR:-~/.continue}/sessions",
        resume="cn --fork {}",
    ),
    Agent(
        "grok-build", "Grok Build", "grok_build:GrokBuild", "${GROK_HOME:-~/.grok}/sessions", resume="grok --resume {}"
    ),
    Agent(
        "mistral-vibe",
        "Mistral Vibe",
        "mistral_vibe:MistralVibe",
        "${VIBE_HOME:-~/.vibe}/logs/session",
        resume="vibe --resume {}",
    ),
    Agent(
        "openhands", "OpenHands", "openhands:OpenHands", "~/.openhands/conversations", resume="openhands --resume {}"
    ),
    Agent(
        "gptme", "gptme", "gptme:Gptme", "${GPTME_LOGS_HOME}", f"{_DATA}/gptme/logs", resume="gptme --name {} --resume"
    ),
    Agent("openclaw", "OpenClaw", "pi:OpenClaw", "~/.openclaw/agents"),
    Agent("oh-my-pi", "oh-my-pi", "pi:OhMyPi", "~/.omp/agent/sessions", resume="omp --resume {}"),
    Agent(
        "hermes",
        "Hermes",
        "hermes:Hermes",
        "${HERMES_HOME:-~/.hermes}/state.db",
        "${HERMES_HOME:-~/.hermes}/profiles/*/state.db",
        resume="hermes --resume {}",
    ),
    Agent("auggie", "Auggie", "auggie:Auggie", "~/.augment/sessions", resume="auggie --resume {}"),
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
        resume="kiro-cli chat --resume",
    ),
    Agent(
        "kiro-ide",
        "Kiro IDE",
        "continue_dev:KiroIde",
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
        "cursor_editor:Windsurf",
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
        resume="letta --conversation {}",
    ),
    Agent("iflow", "iFlow CLI", "iflow:IFlow", "~/.iflow/projects", resume="iflow --resume {}"),
    Agent("qoder", "Qoder", "iflow:Qoder", "~/.qoder/projects", resume="qodercli --resume {}"),
    Agent("tabnine", "Tabnine", "gemini:Tabnine", "~/.tabnine/agent/tmp"),
    Agent("claude-ai", "Claude.ai", "exports:ClaudeAi", "${BACKSTORY_HOME:-~/.backstory}/imports/claude-ai"),
    Agent("chatgpt", "ChatGPT", "exports:ChatGpt", "${BACKSTORY_HOME:-~/.backstory}/imports/chatgpt"),
    Agent("live", "Live sessions", "live:Live", asks="live:roots_of"),
    # The library adds the folder, which lies in Backstory's home.
    Agent("otel", "OpenTelemetry", "otel:Otel"),
)
