"""Tool calls, a line each."""

from __future__ import annotations

from typing import Any

from tests.conversation_world import Session, World, tool_use

TOKEN = "sk-ant-api03-" + "a1B2c3D4" * 5


class TestSummaries:
    """Each tool by the arguments that tell what the call was about, and nothing else of it."""

    def test_by_tool(self, world: World) -> None:
        calls: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
            ("Read", {"file_path": "/a.py", "offset": 3, "limit": 9}, {"file": "/a.py"}),
            ("Write", {"file_path": "/a.py", "content": "x" * 1234}, {"file": "/a.py", "chars": 1234}),
            ("Write", {"file_path": "/a.py", "content": "ñ👍\n"}, {"file": "/a.py", "chars": 3}),
            ("Edit", {"file_path": "/a.py", "old_string": "a", "new_string": "b"}, {"file": "/a.py"}),
            ("Bash", {"command": "git status", "description": "Look"}, {"command": "git status"}),
            ("Bash", {"command": "x" * 201}, {"command": "x" * 200}),
            ("Grep", {"pattern": "def .*", "path": "/src"}, {"pattern": "def .*"}),
            ("Glob", {"pattern": "**/*.py"}, {"pattern": "**/*.py"}),
            (
                "Task",
                {"subagent_type": "Explore", "description": "Find it", "prompt": "Look everywhere"},
                {"type": "Explore", "description": "Find it"},
            ),
            ("WebFetch", {"url": "https://example.invalid", "prompt": "?"}, {}),
            ("MultiEdit", {"file_path": "/a.py", "edits": []}, {}),
            ("TodoWrite", {"todos": [{"content": "x"}]}, {}),
            ("mcp__shop__add", {"item": "x"}, {}),
        ]
        used = [tool_use(tool, arguments, f"toolu_{number}") for number, (tool, arguments, _) in enumerate(calls)]
        (turn,) = world.turns(Session("s").prompt("Ask").says(*used))
        assert turn["tools_used"] == [{"tool": tool, **rest} for tool, _, rest in calls]

    def test_without_arguments(self, world: World) -> None:
        """A missing argument is null."""
        expected: list[dict[str, Any]] = [
            {"tool": "Read", "file": None},
            {"tool": "Write", "file": None, "chars": 0},
            {"tool": "Edit", "file": None},
            {"tool": "Bash", "command": None},
            {"tool": "Grep", "pattern": None},
            {"tool": "Task", "type": None, "description": None},
            {"tool": "Other"},
        ]
        cases: tuple[Any, ...] = ({}, None, [], "text", 3)
        sessions = []
        for arguments in cases:
            calls = [tool_use(call["tool"], arguments, f"toolu_{number}") for number, call in enumerate(expected)]
            sessions.append(Session(repr(arguments)).prompt("Ask").says(*calls))

        for arguments, (turn,) in zip(cases, world.turns_of_each(sessions), strict=True):
            assert turn["tools_used"] == expected, arguments

    def test_arguments_of_other_types(self, world: World) -> None:
        """They are shown as they were written."""
        session = Session("s").prompt("Ask")
        session.says(
            tool_use("Read", {"file_path": ["/a", 1]}, "1"),
            tool_use("Bash", {"command": {"cmd": "ls " + "x" * 300}}, "2"),
            tool_use("Write", {"file_path": 7, "content": {"a": 1}}, "3"),
            tool_use("Glob", {"pattern": False}, "4"),
        )

        (turn,) = world.turns(session)

        assert turn["tools_used"] == [
            {"tool": "Read", "file": '["/a",1]'},
            {"tool": "Bash", "command": ('{"cmd":"ls ' + "x" * 300)[:200]},
            {"tool": "Write", "file": "7", "chars": len('{"a":1}')},
            {"tool": "Glob", "pattern": "false"},
        ]

    def test_every_call(self, world: World) -> None:
        """In their order, the same ones again too."""
        calls = [tool_use("Bash", {"command": "make"}, f"toolu_{number}") for number in range(3)]

        (turn,) = world.turns(Session("s").prompt("Ask").says(*calls, "Done."))

        assert turn["tools_used"] == [{"tool": "Bash", "command": "make"}] * 3

    def test_secrets_at_the_cut(self, world: World) -> None:
        """Not even half of one is shown."""
        calls = [
            tool_use("Bash", {"command": "x" * before + f" curl -H {TOKEN} now"}, f"toolu_{before}")
            for before in (0, 180, 195)
        ]

        (turn,) = world.turns(Session("s").prompt("Ask").says(*calls))

        assert len(turn["tools_used"]) == len(calls)
        for call in turn["tools_used"]:
            assert "a1B2" not in call["command"]
            assert len(call["command"]) <= 200
