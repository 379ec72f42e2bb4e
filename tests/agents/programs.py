"""The agents that are installed and run: package, configuration, and the commands of the two tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.agents.model_server import MODEL, WITHOUT_TOOLS

PROMPT = "PROMPT"
_OPENAI_KEY = "tests"


@dataclass(frozen=True)
class Program:
    """An agent as a package. In configurations, `<url>` stands for the address of the model service and `<home>` for
    the home of the agent; `PROMPT` in a command is a prompt."""

    source: str
    package: str
    """`npm:` or `pypi:` and the name of a package, with others that it needs after it."""
    program: str
    """Its path in the folder of the packages."""
    first: tuple[str, ...]
    then: tuple[str, ...]
    """The commands of the first task, and of the second, in the same session if the agent can continue one."""
    environ: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    prepare: tuple[str, ...] = ()
    """A command that configures it."""
    older: str = ""
    """A version to take where the newest one cannot be installed."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Things that it does not record, with the reason."""
    at_terminal: tuple[str, ...] = ()
    """Options that it needs to talk to the model of the tests when a session is resumed at a terminal."""
    with_prompt: tuple[str, ...] = ()
    """Options by which a resumed session gets its prompt, where nothing can be typed at its terminal here."""
    forks: bool = False
    """A session is continued as a new one, which begins with a copy."""
    takes_file: bool = False
    """It is given the MCP server in its configuration file, not by a command of its own."""
    delegates: bool = False
    """It can give work to a helper, and be stopped."""
    seconds: float = 300

    @property
    def name(self) -> str:
        return self.package.split(":", 1)[1].split()[0]


def _bin(name: str) -> str:
    return f"node_modules/.bin/{name}"


_RELATIVE_OF_OPENCODE = """{
  "model": "tests/MODEL", "small_model": "tests/MODEL", "autoupdate": false, "share": "disabled",
  "permission": {"*": "allow"},
  "provider": {"tests": {
    "npm": "@ai-sdk/openai-compatible", "name": "Tests", "options": {"baseURL": "<url>/v1", "apiKey": "tests"},
    "models": {"MODEL": {"name": "Scripted", "tool_call": true, "reasoning": true,
                         "limit": {"context": 200000, "output": 8192}}}}}
}""".replace("MODEL", MODEL)
_RELATIVE_OF_GEMINI = """{
  "security": {"auth": {"selectedType": "AUTH"}, "folderTrust": {"enabled": false}},
  "general": {"enableAutoUpdate": false, "disableAutoUpdate": true},
  "privacy": {"usageStatisticsEnabled": false}, "telemetry": {"enabled": false}
}"""
_MODELS_OF_PI = """{"providers": {"tests": {
  "baseUrl": "<url>/v1", "api": "openai-completions", "apiKey": "tests",
  "models": [{"id": "MODEL", "name": "Scripted", "reasoning": true, "input": ["text"],
    "cost": {"input": 1, "output": 2, "cacheRead": 0.1, "cacheWrite": 1}, "contextWindow": 200000, "maxTokens": 8192}]
}}}""".replace("MODEL", MODEL)

_CLAUDE_FLAGS = ("--output-format", "json", "--permission-mode", "bypassPermissions")
_CODEX_FLAG = "--dangerously-bypass-approvals-and-sandbox"
_AIDER_FLAGS = ("--yes-always", "--no-show-model-warnings", "--no-gitignore", "--no-pretty", "--edit-format", "diff")
_ENDED_SHELL = "a command that exits ends its shell, and the output is lost"

PROGRAMS = (
    Program(
        "claude-code",
        "npm:@anthropic-ai/claude-code",
        _bin("claude"),
        ("-p", PROMPT, *_CLAUDE_FLAGS),
        ("-p", PROMPT, "--continue", *_CLAUDE_FLAGS),
        environ={
            "ANTHROPIC_BASE_URL": "<url>",
            "ANTHROPIC_API_KEY": "tests",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        files={
            ".claude.json": '{"hasCompletedOnboarding": true, "bypassPermissionsModeAccepted": true,'
            ' "customApiKeyResponses": {"approved": ["tests"], "rejected": []},'
            ' "projects": {"<home>/demo": {"hasTrustDialogAccepted": true}}}',
            ".claude/settings.json": '{"skipDangerousModePermissionPrompt": true}',
        },
        delegates=True,
    ),
    Program(
        "codex",
        "npm:@openai/codex",
        _bin("codex"),
        ("exec", _CODEX_FLAG, PROMPT),
        ("exec", "resume", "--last", _CODEX_FLAG, PROMPT),
        environ={"MODEL_KEY": "tests"},
        files={
            ".codex/config.toml": """model_provider = "tests"
check_for_update_on_startup = false
[model_providers.tests]
name = "tests"
base_url = "<url>/v1"
wire_api = "responses"
env_key = "MODEL_KEY"
[analytics]
enabled = false
[projects."<home>/demo"]
trust_level = "trusted"
"""
        },
        delegates=True,
    ),
    Program(
        "gemini-cli",
        "npm:@google/gemini-cli",
        _bin("gemini"),
        ("--yolo", "-p", PROMPT),
        ("--yolo", "--resume", "latest", "-p", PROMPT),
        environ={
            "GEMINI_API_KEY": "tests",
            "GOOGLE_GEMINI_BASE_URL": "<url>",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        files={".gemini/settings.json": _RELATIVE_OF_GEMINI.replace("AUTH", "gemini-api-key")},
    ),
    Program(
        "opencode",
        "npm:opencode-ai",
        _bin("opencode"),
        ("run", PROMPT),
        ("run", "--continue", PROMPT),
        environ={
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        },
        files={".config/opencode/opencode.json": _RELATIVE_OF_OPENCODE},
    ),
    Program(
        "qwen-code",
        "npm:@qwen-code/qwen-code",
        _bin("qwen"),
        ("--yolo", "-p", PROMPT),
        ("--yolo", "--continue", "-p", PROMPT),
        environ={"OPENAI_API_KEY": _OPENAI_KEY, "OPENAI_BASE_URL": "<url>/v1", "OPENAI_MODEL": MODEL},
        files={".qwen/settings.json": _RELATIVE_OF_GEMINI.replace("AUTH", "openai")},
    ),
    Program(
        "copilot-cli",
        "npm:@github/copilot",
        _bin("copilot"),
        ("-p", PROMPT, "--allow-all-tools"),
        ("--continue", "-p", PROMPT, "--allow-all-tools"),
        environ={
            "COPILOT_PROVIDER_BASE_URL": "<url>/v1",
            "COPILOT_PROVIDER_TYPE": "openai",
            "COPILOT_PROVIDER_API_KEY": "tests",
            "COPILOT_MODEL": MODEL,
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
        },
    ),
    Program(
        "cline",
        "npm:cline",
        _bin("cline"),
        ("--json", PROMPT),
        ("--json", PROMPT),
        takes_file=True,
        environ={"CLINE_TELEMETRY_DISABLED": "1", "CLINE_NO_AUTO_UPDATE": "1"},
        prepare=(
            *("auth", "--provider", "openai", "--apikey", "tests"),
            *("--modelid", MODEL, "--baseurl", "<url>/v1"),
        ),
    ),
    Program(
        "kimi-cli",
        "npm:@moonshot-ai/kimi-code",
        _bin("kimi"),
        ("-p", PROMPT),
        ("--continue", "-p", PROMPT),
        takes_file=True,
        environ={"KIMI_CODE_NO_AUTO_UPDATE": "1"},
        files={
            ".kimi-code/config.toml": f"""default_model = "tests"
telemetry = false
[providers.tests]
type = "openai"
base_url = "<url>/v1"
api_key = "tests"
[models.tests]
provider = "tests"
model = "{MODEL}"
max_context_size = 200000
capabilities = ["thinking"]
"""
        },
    ),
    Program(
        "continue",
        "npm:@continuedev/cli",
        _bin("cn"),
        ("--config", "<home>/.continue/config.yaml", "--auto", "-p", PROMPT),
        ("--config", "<home>/.continue/config.yaml", "--auto", "--resume", "-p", PROMPT),
        at_terminal=("--config", "<home>/.continue/config.yaml"),
        forks=True,
        takes_file=True,
        environ={"CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_CLI_AUTO_UPDATED": "1"},
        files={
            ".continue/config.yaml": f"""name: Tests
version: 1.0.0
schema: v1
models:
  - name: tests
    provider: openai
    model: {MODEL}
    apiBase: <url>/v1
    apiKey: tests
    roles: [chat]
    capabilities: [tool_use]
"""
        },
    ),
    Program(
        "goose",
        "npm:@aaif/goose",
        _bin("goose"),
        ("run", "--with-builtin", "developer", "-t", PROMPT),
        ("run", "--with-builtin", "developer", "--resume", "-t", PROMPT),
        takes_file=True,
        environ={
            "GOOSE_PROVIDER": "openai",
            "OPENAI_HOST": "<url>",
            "OPENAI_API_KEY": _OPENAI_KEY,
            "GOOSE_MODEL": MODEL,
            "GOOSE_MODE": "auto",
            "GOOSE_DISABLE_KEYRING": "1",
            "GOOSE_TELEMETRY_ENABLED": "false",
        },
        files={".config/goose/config.yaml": "GOOSE_MODE: auto\n"},
    ),
    Program(
        "pi",
        "npm:@earendil-works/pi-coding-agent",
        _bin("pi"),
        ("--provider", "tests", "--model", MODEL, "-p", PROMPT),
        ("--provider", "tests", "--model", MODEL, "--continue", "-p", PROMPT),
        at_terminal=("--provider", "tests", "--model", MODEL),
        environ={"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"},
        files={".pi/agent/models.json": _MODELS_OF_PI},
        older="0.87.1",
    ),
    Program(
        "grok-build",
        "npm:@xai-official/grok",
        _bin("grok"),
        ("-m", MODEL, "--always-approve", "-p", PROMPT),
        ("-m", MODEL, "--always-approve", "--continue", "-p", PROMPT),
        environ={"XAI_API_KEY": "tests", "GROK_DISABLE_AUTOUPDATER": "1"},
        files={
            ".grok/config.toml": f"""[models]
default = "{MODEL}"
[model.{MODEL}]
model = "{MODEL}"
name = "Scripted"
base_url = "<url>/v1"
api_key = "tests"
context_window = 200000
[cli]
auto_update = false
[telemetry]
enabled = false
"""
        },
    ),
    Program(
        "kilo",
        "npm:@kilocode/cli-linux-x64",
        "node_modules/@kilocode/cli-linux-x64/bin/kilo",
        ("run", "--auto", PROMPT),
        ("run", "--auto", "--continue", PROMPT),
        environ={
            "KILO_DISABLE_AUTOUPDATE": "1",
            "KILO_DISABLE_MODELS_FETCH": "1",
            "KILO_TELEMETRY_LEVEL": "off",
            "KILO_DISABLE_LSP_DOWNLOAD": "1",
        },
        files={".config/kilo/kilo.json": _RELATIVE_OF_OPENCODE},
    ),
    Program(
        "factory-droid",
        "npm:@factory/cli-linux-x64",
        "node_modules/@factory/cli-linux-x64/bin/droid",
        ("exec", "--auto", "high", "-m", "custom:Tests-0", PROMPT),
        ("exec", "--auto", "high", "-m", "custom:Tests-0", PROMPT),
        environ={
            "FACTORY_API_KEY": "fk-tests",
            # Else its terminal asks its service for the account.
            "FACTORY_AIRGAP_ENABLED": "true",
            "FACTORY_DROID_AUTO_UPDATE_ENABLED": "false",
            "FACTORY_TELEMETRY": "0",
        },
        files={
            ".factory/settings.json": '{"customModels": [{"model": "' + MODEL + '", "displayName": "Tests",'
            ' "baseUrl": "<url>/v1", "apiKey": "tests", "provider": "generic-chat-completion-api",'
            ' "maxOutputTokens": 8192}], "cloudSessionSync": false}'
        },
    ),
    Program(
        "oh-my-pi",
        "npm:@oh-my-pi/pi-coding-agent bun",
        _bin("omp"),
        ("--model", f"tests/{MODEL}", "--smol", f"tests/{MODEL}", "-p", PROMPT),
        ("--model", f"tests/{MODEL}", "--smol", f"tests/{MODEL}", "--continue", "-p", PROMPT),
        at_terminal=("--model", f"tests/{MODEL}"),
        environ={"PI_OFFLINE": "1"},
        files={".omp/agent/models.yml": _MODELS_OF_PI},
        older="18.2.3",
    ),
    Program(
        "openclaw",
        "npm:openclaw",
        _bin("openclaw"),
        ("agent", "--local", "--agent", "main", "--message", PROMPT),
        ("agent", "--local", "--agent", "main", "--message", PROMPT),
        environ={"OPENCLAW_TELEMETRY": "0", "OPENCLAW_NO_UPDATE_CHECK": "1"},
        files={
            ".openclaw/openclaw.json": '{"models": '
            + _MODELS_OF_PI
            + ', "agents": {"defaults": {"model": {"primary": "tests/'
            + MODEL
            + '"}, "workspace": "<home>/demo"}}}'
        },
        seconds=600,
    ),
    Program(
        "auggie",
        "npm:@augmentcode/auggie",
        _bin("auggie"),
        ("--print", PROMPT),
        ("--continue", "--print", PROMPT),
        with_prompt=("--print", PROMPT),
        environ={
            "AUGMENT_SESSION_AUTH": '{"accessToken": "tests", "tenantURL": "<url>/", "scopes": ["read", "write"]}',
            "AUGMENT_DISABLE_AUTO_UPDATE": "1",
        },
    ),
    Program(
        "mistral-vibe",
        "pypi:mistral-vibe",
        "bin/vibe",
        ("--trust", "--auto-approve", "-p", PROMPT),
        ("--trust", "--auto-approve", "--continue", "-p", PROMPT),
        environ={"MISTRAL_API_KEY": "tests", "MODEL_KEY": "tests", "VIBE_ENABLE_TELEMETRY": "false"},
        files={
            ".vibe/config.toml": f"""active_model = "tests"
enable_telemetry = false
enable_update_checks = false
enable_auto_update = false
[[providers]]
name = "tests"
api_base = "<url>/v1"
api_key_env_var = "MODEL_KEY"
backend = "generic"
[[models]]
name = "{MODEL}"
provider = "tests"
alias = "tests"
"""
        },
    ),
    Program(
        "openhands",
        "pypi:openhands",
        "bin/openhands",
        ("--headless", "--override-with-envs", "-t", PROMPT),
        ("--headless", "--override-with-envs", "--resume", "--last", "-t", PROMPT),
        with_prompt=("--headless", "--override-with-envs", "-t", PROMPT),
        environ={
            "LLM_API_KEY": "tests",
            "LLM_BASE_URL": "<url>/v1",
            "LLM_MODEL": f"openai/{MODEL}",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENHANDS_SUPPRESS_BANNER": "1",
        },
        lacks={"exit code": _ENDED_SHELL, "tool response": _ENDED_SHELL},
        seconds=600,
    ),
    Program(
        "gptme",
        "pypi:gptme",
        "bin/gptme",
        ("--non-interactive", "--tool-format", "tool", "-m", f"local/{MODEL}", "--name", "demo", PROMPT),
        ("--non-interactive", "--tool-format", "tool", "-m", f"local/{MODEL}", "--name", "demo", "--resume", PROMPT),
        # A session that a task has ended ends at once at a terminal.
        with_prompt=("--non-interactive", "--tool-format", "tool", "-m", f"local/{MODEL}", PROMPT),
        environ={
            "OPENAI_API_KEY": _OPENAI_KEY,
            "OPENAI_BASE_URL": "<url>/v1",
            "GPTME_TELEMETRY_ENABLED": "false",
        },
        seconds=600,
    ),
    Program(
        "aider",
        "pypi:aider-chat",
        "bin/aider",
        ("--model", f"openai/{WITHOUT_TOOLS}", *_AIDER_FLAGS, "--message", PROMPT),
        ("--model", f"openai/{WITHOUT_TOOLS}", *_AIDER_FLAGS, "--restore-chat-history", "--message", PROMPT),
        environ={
            "OPENAI_API_KEY": _OPENAI_KEY,
            "OPENAI_API_BASE": "<url>/v1",
            "AIDER_ANALYTICS": "false",
            "AIDER_CHECK_UPDATE": "false",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        lacks={
            "tokens": "they are rounded",
            **dict.fromkeys(("tool call", "tool response", "exit code"), "the model has no tools"),
        },
        seconds=600,
    ),
    Program(
        "hermes",
        "pypi:hermes-agent",
        "bin/hermes",
        ("chat", "-Q", "--yolo", "-q", PROMPT),
        ("chat", "-Q", "--yolo", "--continue", "-q", PROMPT),
        environ={"OPENAI_API_KEY": _OPENAI_KEY, "HERMES_DISABLE_UPDATE_CHECK": "1"},
        files={
            ".hermes/config.yaml": f"""model:
  default: {MODEL}
  provider: custom
  base_url: <url>/v1
  api_key: tests
"""
        },
        seconds=600,
    ),
)
