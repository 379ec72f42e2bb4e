"""The archive that tests of the pages look at: made-up sessions, one of them long, one of them hostile."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from backstory.library import Library
from backstory.model import session_id
from tests.capsule_world import capsule_text
from tests.transcripts import Transcript

HOSTILE = (
    "<script>alert(1)</script> <img src=x onerror=alert(2)> [click](javascript:alert(3)) "
    "![pixel](https://evil.example/p.png) "
    "<style>body{display:none}</style> \x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07link\x1b]8;;\x07 "
    "\u202egnp.exe\u202c " + "x" * 20_000
)
LONG_TURNS = 120
CHILD_CALLS = 60


class World(NamedTuple):
    home: Path
    shop: str
    """Ids of sessions: one with every kind of event, a long one, a hostile one."""
    long: str
    hostile: str
    parent: str
    """A session with a subagent of `CHILD_CALLS` calls."""


def make_world(home: Path) -> World:
    shop, long, hostile, parent = _shop(), _long(), _hostile(), _parent()
    for transcript in (shop, long, hostile, parent):
        transcript.write(home)
    _write_child(home, parent)
    with Library(home / ".backstory", agents_home=home, environ={}) as library:
        library.sync()
        library.call(
            "moss.store",
            {"capsule_text": capsule_text("the flaky checkout test"), "name": "checkout", "allow_thin": True},
        )
    return World(home, *(session_id(f"claude-code/{each.id}") for each in (shop, long, hostile, parent)))


def _shop() -> Transcript:
    transcript = Transcript("shop")
    transcript.prompt("The **checkout** test is flaky. Find out why.")
    transcript.call(
        "Bash", {"command": "pytest tests/test_checkout.py"}, "1 failed, 3 passed\nE assert 1 == 2", failed=True
    )
    transcript.call(
        "Edit",
        {"file_path": "/home/dev/shop/cart.py", "old_string": "total = 1\nkeep", "new_string": "total = 2\nkeep"},
        "The file has been updated.",
    )
    transcript.call("Read", {"file_path": "/home/dev/shop/cart.py"}, "def total():\n    return 2")
    transcript.answer(
        "Fixed: see `cart.py`.\n\n```python\ndef total():\n    return 2\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    )
    transcript.prompt("Thanks. Now add a changelog entry.")
    transcript.call("Write", {"file_path": "CHANGELOG.md", "content": "# Changes\n- fix"}, "ok")
    transcript.answer("Done.")
    return transcript


def _long() -> Transcript:
    transcript = Transcript("long", "/home/dev/warehouse", start_ms=1_770_000_000_000)
    for number in range(LONG_TURNS):
        transcript.prompt(f"Step {number}: what about pallet{number}?")
        transcript.call("Bash", {"command": f"count pallet{number}"}, f"{number} pallets")
        transcript.answer(f"There are {number} of them, as the inventory says.")
    return transcript


def _hostile() -> Transcript:
    transcript = Transcript("hostile", "/home/dev/<b>bold</b>", start_ms=1_775_000_000_000)
    transcript.prompt(f"wombat {HOSTILE}")
    arguments = {"command": f"echo {HOSTILE}", "<script>": "</script><script>alert(4)</script>"}
    transcript.call(f"Bash {HOSTILE[:200]}", arguments, f"wombat {HOSTILE}")
    code = "```html\n</code></pre><script>alert(5)</script>\n```"
    transcript.answer(f"wombat {HOSTILE}\n\n<iframe src=https://evil.example></iframe>\n\n{code}")
    for record in transcript.records:
        record["gitBranch"] = HOSTILE[:200]
    return transcript


def _parent() -> Transcript:
    transcript = Transcript("parent", "/home/dev/library", start_ms=1_776_000_000_000)
    transcript.prompt("Let somebody count the shelves.")
    transcript.call("Task", {"description": "Count shelves", "prompt": "Count all shelves."}, "There are sixty.")
    transcript.records[-1]["toolUseResult"] = {"status": "completed", "agentId": "a1"}
    transcript.answer("Sixty.")
    transcript.prompt("Thanks.").answer("You are welcome.")
    return transcript


def _write_child(home: Path, parent: Transcript) -> None:
    child = Transcript("child", parent.cwd, start_ms=1_776_000_001_000)
    child.prompt("Count all shelves.")
    for number in range(CHILD_CALLS):
        child.call("Bash", {"command": f"measure shelf-{number}"}, f"shelf-{number} is there")
    child.answer("There are sixty.")
    for record in child.records:
        record |= {"isSidechain": True, "agentId": "a1", "sessionId": parent.id}
    path = parent.path(home).with_suffix("") / "subagents" / "agent-a1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(child.text(), "utf-8")
