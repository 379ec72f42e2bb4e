"""The script of the model that real agents talk to: which tool it calls next, and what it says.

A prompt names its task. Until the steps of the task are done, the model thinks, says what it does and calls a tool;
then it gives its answer. The token counts are made up, and differ from one call to the next.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

PROMPTS = {
    1: "TASK-1 Say hello from the shell and list the files.",
    2: "TASK-2 Write a note, then run a command that fails.",
}
SPAWN, SLOW, MORE = 3, 4, 5
"""Tasks beside the two that every agent does: one for a helper, one whose answer never ends, and one without tools."""
MORE_PROMPTS = {SPAWN: "TASK-3 Let a helper say hello.", SLOW: "TASK-4 Take your time.", MORE: "TASK-5 Say more."}
STEPS = {1: ("shell",), 2: ("write", "fail"), SPAWN: ("spawn", "wait"), SLOW: (), MORE: ()}
GREETING = "hello-from-tool-1"
FAILURE = "about-to-fail-2"
EXIT_CODE = 3
NOTE = "note-2.txt"
TITLE = "Hello from the shell"
_COMMANDS = {"shell": f"echo {GREETING} && ls", "fail": f"echo {FAILURE} >&2; exit {EXIT_CODE}"}
_HELPER = {
    "prompt": "SUBTASK-3 Say hello.",
    "message": "SUBTASK-3 Say hello.",
    "task_name": "helper_3",
    "subagent_type": "general-purpose",
    "fork_turns": "none",
}
_NOTE_TEXT = "a note of the scripted model\n"
_PATCH = f"*** Begin Patch\n*** Add File: {NOTE}\n+{_NOTE_TEXT}*** End Patch\n"
_TASK = re.compile(r"\bTASK-(\d)\b")
# The names that agents give to their tools, the preferred one first.
_SHELLS = """
    bash shell shell_command local_shell exec_command run_shell_command run_commands execute_command execute_bash
    terminal run_terminal_cmd run_terminal_command run_command launch-process command developer__shell execute exec
    process
    """.split()
_WRITERS = """
    write write_file writefile write_to_file create create_file save-file save apply_patch str_replace_editor
    str_replace_based_edit_tool file_editor editor developer__text_editor text_editor edit edit_file
    """.split()
_TOOLS = {
    "write": _WRITERS,
    "spawn": "agent task spawn_agent subagent".split(),
    "wait": ["wait_agent"],
}
# Given in a call although the schema does not require them.
_USEFUL = """
    command cmd commands content file_text path file_path filepath description subagent_type run_in_background
    fork_turns
    """.split()


def answer_of(task: int) -> str:
    return f"MARKER-{task} The answer is ready."


@dataclass(frozen=True)
class Tool:
    """A tool that the agent offers to the model."""

    name: str
    schema: dict[str, Any]
    kind: str = "function"
    namespace: str = ""
    description: str = ""


@dataclass(frozen=True)
class Said:
    """One item of the conversation so far: of the `user`, the `assistant`, a `call` of a tool or its `result`."""

    by: str
    text: str = ""


@dataclass(frozen=True)
class Request:
    """A request of an agent, in any wire format."""

    said: list[Said]
    tools: list[Tool]
    schema: dict[str, Any] | None = None
    """The answer is to be JSON of this schema."""


@dataclass
class Answer:
    task: int = 0
    """0 for requests beside the conversation, such as for a title."""
    thought: str = ""
    text: str = ""
    calls: list[tuple[Tool, Any]] = field(default_factory=list)
    fresh: int = 0
    cached: int = 0
    output: int = 0
    """Tokens; those of the input that are not cached, that are, and those of the output without the thought."""
    is_slow: bool = False
    """The stream stops after the first words."""
    asked: list[int] = field(default_factory=list)
    """The tasks that the user has given in the conversation, earlier ones too."""

    @property
    def thinking(self) -> int:
        return 7 if self.thought else 0


def answer(request: Request, cwd: str) -> Answer:
    """The answer to a request of an agent that works in `cwd`."""
    given = _choose(request, cwd)
    given.asked = [task for _, task in _prompts(request)]
    given.fresh = 1000 + len(request.said)
    given.cached = 100 * max(0, len(request.said) - 1)
    given.output = 40 + 10 * len(given.calls)
    return given


def _choose(request: Request, cwd: str) -> Answer:
    if request.schema:
        return Answer(text=json.dumps(_value(request.schema, "title", "", cwd)))
    prompts = _prompts(request)
    if not prompts or not request.tools:
        return Answer(text=TITLE)
    at, task = prompts[-1]
    if any(said.by == "assistant" and answer_of(task) in said.text for said in request.said):
        return Answer(text=TITLE)  # a request about the conversation, such as for a summary
    after = [said.by for said in request.said[at:]]
    done = sum(1 for before, now in pairwise(after) if now == "call" and before != "call")
    if done < len(STEPS[task]) and (call := _call(request.tools, STEPS[task][done], cwd)):
        return Answer(task, f"THOUGHT-{task} A tool is needed.", f"Working on TASK-{task}, step {done + 1}.", [call])
    # Some agents ask for more until the model calls a tool that ends the task.
    end = [(tool, {}) for tool in request.tools if tool.name == "complete"]
    return Answer(task, f"THOUGHT-{task} The tools have answered.", answer_of(task), end, is_slow=task == SLOW)


def _prompts(request: Request) -> list[tuple[int, int]]:
    """The places of prompts that name a task, each with the task."""
    return [
        (at, int(found[-1]))
        for at, said in enumerate(request.said)
        if said.by == "user" and (found := [task for task in _TASK.findall(said.text) if int(task) in STEPS])
    ]


def _call(tools: list[Tool], step: str, cwd: str) -> tuple[Tool, Any] | None:
    """The tool for a step of a task, with its arguments; None if the agent offers none."""
    for tool in tools:
        is_script = tool.kind == "custom" and tool.name == "exec" and "JavaScript" in tool.description
        if is_script and step not in ("spawn", "wait"):
            return tool, _javascript(step)
    names = _TOOLS.get(step, _SHELLS)
    offered = {tool.name.lower().removeprefix("default_api:"): tool for tool in tools}
    tool = next((offered[name] for name in names if name in offered), None)
    if tool is None:
        return None
    if tool.kind == "custom":
        return tool, _PATCH
    if tool.kind == "local_shell":
        return tool, {"type": "exec", "command": ["bash", "-lc", _COMMANDS[step]]}
    return tool, _value(tool.schema, "", step, cwd)


def _javascript(step: str) -> str:
    """A script for agents that let the model call their tools in JavaScript."""
    if step == "write":
        return f"text(await tools.apply_patch({json.dumps(_PATCH)}));"
    return f"text(await tools.exec_command({json.dumps({'cmd': _COMMANDS[step]})}));"


def _value(schema: dict[str, Any], name: str, step: str, cwd: str) -> Any:
    """A value for a JSON schema, chosen by the name of the property."""
    for choice in ("anyOf", "oneOf", "allOf"):
        if schema.get(choice) and not schema.get("properties"):
            some = [each for each in schema[choice] if each.get("type") != "null"]
            return _value(some[0] if some else {}, name, step, cwd)
    if "const" in schema:
        return schema["const"]
    if choices := schema.get("enum"):
        return next((choice for choice in ("create", "default", "low", "read") if choice in choices), choices[0])
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = str(next((each for each in kind if each != "null"), "string") if isinstance(kind, list) else kind).lower()
    if kind == "object":
        required = schema.get("required") or []
        return {
            key: _value(inner, key, step, cwd)
            for key, inner in (schema.get("properties") or {}).items()
            if isinstance(inner, dict) and (key in required or key.lower() in _USEFUL)
        }
    if kind == "array":
        if name.lower() in ("command", "cmd"):
            return ["bash", "-lc", _COMMANDS.get(step, "true")]
        if name.lower() in ("todos", "view_range"):
            return []
        return [_value(schema.get("items") or {}, name, step, cwd)]
    if kind in ("integer", "number"):
        return schema.get("default", 30 if "timeout" in name.lower() or "wait" in name.lower() else 1)
    if kind == "boolean":
        return bool(schema.get("default", name.lower() == "wait"))
    return _text(schema, name.lower(), step, cwd)


def _text(schema: dict[str, Any], name: str, step: str, cwd: str) -> str:
    if name in ("command", "commands", "cmd", "script", "code"):
        return _COMMANDS.get(step, "create")
    if "path" in name or name in ("file", "filename"):
        return f"{cwd}/{NOTE}"
    if name in ("content", "contents", "file_text", "file_content", "text", "new_string", "new_str", "new_text"):
        return _NOTE_TEXT
    if name in ("old_string", "old_str"):
        return ""
    if name in ("patch", "input"):
        return _PATCH
    if name in ("cwd", "workdir", "dir_path", "directory", "working_directory"):
        return cwd
    if step == "spawn" and name in _HELPER:
        return _HELPER[name]
    return str(schema.get("default") or TITLE)
