"""The walk-through of the documentation, executed: the flows of the specification, from saving to moving."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from backstory.toolsets.capsules.sections import missing_sections
from tests.capsule_world import World

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "capsules.md").read_text("utf-8")
EXAMPLE = PAGE.split("```markdown\n")[1].split("```")[0]
WALK = PAGE.split("## Walk-through\n")[1].split("\n## Tools\n")[0]
FLOWS = WALK.split("\n### ")[1:]


class TestExample:
    def test_is_a_good_capsule(self) -> None:
        """The example follows the rules it illustrates."""
        assert missing_sections(EXAMPLE) == []
        assert len(EXAMPLE) < 12_000


class TestCalls:
    def test_as_an_agent_makes_them(self, new_served_world: Callable[..., World]) -> None:
        """Every call of flows A to F succeeds, in the order of the page."""
        world = new_served_world(settings='export_folders = ["~/.backstory/exports"]')
        assert [flow[:2] for flow in FLOWS] == ["A.", "B.", "C.", "D.", "E.", "F."]
        answers = {}
        for flow in FLOWS:
            calls = re.findall(r"^    (moss\.\w+) (\{.*\})$", flow, re.MULTILINE)
            assert calls
            for name, arguments in calls:
                given = json.loads(arguments)
                if given.get("capsule_text") == "...":
                    given["capsule_text"] = EXAMPLE
                answer = world.call(name, given)
                assert not answer.is_error, answer.text
                answers[name] = answer.data

        assert answers["moss.fetch"]["capsule_text"] == EXAMPLE
        assert answers["moss.latest"]["item"]["capsule_text"] == EXAMPLE
        assert answers["moss.search"]["items"][0]["name"] == "auth"
        assert answers["moss.history"]["version"] == 3
        assert answers["moss.import"] == {"imported": 0, "skipped": 1, "errors": []}
        restored = world.ok("fetch", name="auth", workspace="shop")["capsule_text"]
        assert "(agreed with support).\n- Refresh tokens live 30 days.\n\n## Next actions" in restored


class TestCommands:
    @pytest.fixture
    def environment(self, tmp_path: Path) -> dict[str, str]:
        program = tmp_path / "bin" / "backstory"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m backstory "$@"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        (tmp_path / "auth.md").write_text(EXAMPLE, "utf-8")
        return {"HOME": str(tmp_path), "PATH": f"{program.parent}:{os.environ['PATH']}", "LANG": "C.UTF-8"}

    def test_as_a_person_types_them(self, tmp_path: Path, environment: dict[str, str]) -> None:
        """Every command succeeds and prints what the page says; `…` stands for anything."""
        blocks = re.findall(r"```console\n(.*?)```", WALK, re.DOTALL)
        assert len(blocks) == 6
        for block in blocks:
            for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, expected = step.partition("\n")
                done = subprocess.run(
                    ["sh", "-c", command], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, f"{command}: {done.stderr}"
                pattern = ".*".join(re.escape(part) for part in expected.strip().split("…"))
                assert not expected or re.fullmatch(pattern, done.stdout.strip(), re.DOTALL), done.stdout
