"""Several processes on one store at once: no call fails, no change is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.capsule_world import GOOD, World, handler_call

WORKERS = 4
MANY = pytest.mark.parametrize("workers", [WORKERS, pytest.param(10, marks=pytest.mark.slow)])

# Every worker says when it is ready, waits for the others, then makes its calls and prints the answers.
PRELUDE = """
import json, sys
from pathlib import Path
from backstory.config import load_settings
from backstory.toolsets.capsules.tools import toolset

home, number, text = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
tools = {tool.name: tool for tool in toolset(home, load_settings(home).capsules).tools}

def call(verb, **arguments):
    return tools[f"moss.{verb}"].handler(arguments).data

print("ready", flush=True)
sys.stdin.readline()
"""


def start(home: Path, script: str, number: int) -> subprocess.Popen[bytes]:
    """A worker that waits for a line on its stdin."""
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + script, str(home), str(number), GOOD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def run(home: Path, script: str, workers: int = WORKERS) -> list[Any]:
    """The answers that each of the workers printed, as JSON."""
    processes = [start(home, script, number) for number in range(workers)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    outputs = [process.communicate() for process in processes]
    for process, (_, err) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, err.decode()
    return [json.loads(out) for out, _ in outputs]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, handler_call(tmp_path))


class TestOneName:
    @MANY
    def test_replaces_make_one_capsule(self, world: World, workers: int) -> None:
        """The home is empty, so that the processes create the store at once, too."""
        script = 'print(json.dumps(call("store", capsule_text=text, name="same", title=str(number), mode="replace")))'
        results = run(world.home, script, workers)

        assert len({result["id"] for result in results}) == 1
        assert sorted("created" in result for result in results) == [False] * (workers - 1) + [True]
        assert world.ok("inventory", include_deleted=True)["pagination"]["total"] == 1
        assert world.ok("history", name="same")["version"] == workers

    @MANY
    def test_stores_have_one_winner(self, world: World, workers: int) -> None:
        """The others get NAME_ALREADY_EXISTS."""
        results = run(world.home, 'print(json.dumps(call("store", capsule_text=text, name="same")))', workers)

        errors = [result["error"]["code"] for result in results if "error" in result]
        assert errors == ["NAME_ALREADY_EXISTS"] * (workers - 1)
        assert world.ok("inventory", include_deleted=True)["pagination"]["total"] == 1

    def test_guarded_changes_are_never_lost(self, world: World) -> None:
        """Each adds one to a counter, and reads again after a conflict."""
        world.store("count", "## Log\n0\n" + GOOD)
        script = """
done = conflicts = 0
while done < 3:
    # The text of an older version, if another worker changes the capsule between the two calls.
    read = call("history", name="count", version=call("history", name="count")["version"])
    version, old = read["version"], read["items"][0]["capsule_text"]
    value = int(old.split("\\n")[1])
    new = old.replace(f"## Log\\n{value}\\n", f"## Log\\n{value + 1}\\n")
    answer = call("update", name="count", capsule_text=new, if_version=version)
    if "error" in answer:
        assert answer["error"]["code"] == "CONFLICT", answer
        conflicts += 1
    else:
        done += 1
print(json.dumps(conflicts))
"""
        run(world.home, script, workers=4)

        assert world.ok("fetch", name="count")["capsule_text"].startswith("## Log\n12\n")


class TestMixed:
    SCRIPT = """
for count in range(ROUNDS):
    name = f"own {number} {count}"
    answers = [
        call("store", capsule_text=text, name=name, tags=[str(number)]),
        call("append", name="shared", section="Decisions", content=f"- {number}.{count}"),
        call("fetch", name=name),
        call("list", limit=5),
        call("search", query=f"own {number}"),
        call("store", capsule_text=text, name="replaced", mode="replace"),
    ]
    if count % 3 == 0:
        answers += [call("delete", name=name), call("restore", name=name)]
    for answer in answers:
        assert "error" not in answer, answer
print(json.dumps(ROUNDS))
"""

    def check(self, world: World, rounds: int) -> None:
        (world.home / "config.toml").write_text("[capsules]\nmax_chars = 10000000\n")
        opened = World(world.home, handler_call(world.home))
        opened.store("shared")
        run(world.home, self.SCRIPT.replace("ROUNDS", str(rounds)))

        for number in range(WORKERS):
            assert opened.ok("inventory", tag=str(number))["pagination"]["total"] == rounds
        lines = opened.ok("fetch", name="shared")["capsule_text"].split("\n")
        assert {f"- {number}.{made}" for number in range(WORKERS) for made in range(rounds)} <= set(lines)
        assert opened.ok("history", name="shared")["version"] == 1 + WORKERS * rounds
        assert opened.ok("history", name="replaced")["version"] == WORKERS * rounds
        listed = [item["updated_at"] for item in opened.ok("inventory", limit=500)["items"]]
        assert listed == sorted(listed, reverse=True)

    def test_a_few_rounds(self, world: World) -> None:
        """Processes that store, change, delete, read and search: no error, no lost update."""
        self.check(world, 4)

    @pytest.mark.slow
    def test_many_rounds(self, world: World) -> None:
        self.check(world, 40)

    def test_threads_of_one_process(self, world: World) -> None:
        """Threads of one process share the store, as in an MCP server."""
        from concurrent.futures import ThreadPoolExecutor

        def work(number: int) -> None:
            for made in range(5):
                world.ok("store", capsule_text=GOOD, name=f"{number}.{made}")
                world.ok("append", name="shared", section="risks", content=f"- {number}.{made}")
                world.ok("search", query="work")

        world.store("shared")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))

        assert world.ok("inventory")["pagination"]["total"] == 41
        assert world.ok("history", name="shared")["version"] == 41


class TestKilled:
    def test_what_was_acknowledged_is_there(self, world: World) -> None:
        """Every acknowledged capsule survives a kill, and the store opens as after a normal end."""
        for _ in range(3):
            process = start(
                world.home, "while True:\n    print(call('store', capsule_text=text)['id'], flush=True)\n", 0
            )
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            ids = [process.stdout.readline().decode().strip() for _ in range(20)]
            os.kill(process.pid, signal.SIGKILL)
            ids += [line.decode().strip() for line in process.stdout if line.endswith(b"\n")]
            process.stdout.close()
            assert process.stderr is not None
            process.stderr.close()
            process.wait()
            answer = [world.ok("fetch", id=one)["id"] for one in ids]
            assert answer == ids
        world.store("after")
