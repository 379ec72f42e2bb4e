"""Hooks of agents: short, cited, silent when there is nothing to say, and light."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from backstory.faces.hook import MOST_CHARS, answer
from backstory.library import Library
from backstory.model import session_id
from tests.capsule_world import GOOD
from tests.transcripts import Transcript

DAY_MS = 86_400_000


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BACKSTORY_HOME", str(tmp_path / ".backstory"))
    return tmp_path


def remember(home: Path, *transcripts: Transcript) -> None:
    for transcript in transcripts:
        transcript.write(home)
    with Library(home / ".backstory", agents_home=home, environ={}) as library:
        library.sync()


def days_ago(days: int) -> int:
    return time.time_ns() // 1_000_000 - days * DAY_MS - DAY_MS // 2


def start(cwd: str, **given: Any) -> str:
    """The context that the start of a session gets."""
    text = answer("session-start", {"cwd": cwd, "session_id": "new", "source": "startup", **given})
    return str(json.loads(text)["hookSpecificOutput"]["additionalContext"]) if text else ""


class TestSessionStart:
    def test_the_last_session_of_the_project(self, home: Path) -> None:
        """With title, age, state and id."""
        old = Transcript("old", start_ms=days_ago(9)).prompt("Old work").answer("Done.")
        last = Transcript("last", start_ms=days_ago(3)).prompt("Fix the flaky checkout test").answer("Fixed.")
        other = Transcript("other", "/home/dev/engine", start_ms=days_ago(1)).prompt("Other work").answer("Done.")
        remember(home, old, last, other)

        text = start("/home/dev/shop")

        assert '"Fix the flaky checkout test" (claude-code, 3 days ago, 1 turn, finished, branch main)' in text
        assert session_id(f"claude-code/{last.id}") in text
        assert "Old work" not in text
        assert "Other work" not in text

    def test_the_newest_capsule(self, home: Path) -> None:
        """Of the workspace that is named as the project is."""
        with Library(home / ".backstory", agents_home=home, environ={}) as library:
            library.sync()
            stored = library.call("moss.store", {"workspace": "Shop", "name": "auth", "capsule_text": GOOD})

        text = start("/home/dev/shop")

        assert '"auth" (just now), moss.fetch id ' in text
        assert str(stored["id"]) in text

    @pytest.mark.parametrize(
        ("days", "cwd", "given"),
        [
            (40, "/home/dev/shop", {}),
            (1, "/home/dev/elsewhere", {}),
            (1, "/home/dev/shop", {"source": "resume"}),
            (1, "/home/dev/shop", {"session_id": Transcript("last").id}),
        ],
        ids=["too old", "another project", "the session is resumed", "it is the session itself"],
    )
    def test_nothing_worth_saying(self, home: Path, days: int, cwd: str, given: dict[str, Any]) -> None:
        """Then nothing is said."""
        remember(home, Transcript("last", start_ms=days_ago(days)).prompt("Fix it").answer("Fixed."))

        assert start(cwd, **given) == ""

    def test_is_short_and_safe(self, home: Path) -> None:
        """However long a title is, and whatever is in it, in the name of the branch or in the title of a capsule."""
        secret = "ghp_" + "a1B2" * 9
        title = f"Use {secret} \x1b[31m" + "and a very long prompt " * 100
        last = Transcript("last", start_ms=days_ago(1)).prompt(title).answer("Fixed.")
        for record in last.records:
            record["gitBranch"] = f"{secret} \x1b[31m"
        remember(home, last)
        with Library(home / ".backstory", agents_home=home, environ={}) as library:
            library.call("moss.store", {"workspace": "shop", "title": title[:200], "capsule_text": GOOD})

        text = start("/home/dev/shop")

        assert "branch [redacted:github-token]" in text
        assert 'Newest capsule: "Use [redacted:github-token]' in text
        assert len(text) <= MOST_CHARS
        assert secret not in text
        assert "\x1b" not in text


class TestCompaction:
    def test_before(self, home: Path) -> None:
        """An offer of a capsule."""
        text = answer("pre-compact", {"session_id": "x"})

        assert "moss.store" in text
        assert len(text) <= MOST_CHARS

    def test_after(self, home: Path) -> None:
        """A pointer to the session that has all of it."""
        remember(home, transcript := Transcript("last", start_ms=days_ago(1)).prompt("Fix it").answer("Fixed."))

        text = start("/home/dev/shop", source="compact", session_id=transcript.id)

        assert session_id(f"claude-code/{transcript.id}") in text


class TestProcess:
    @pytest.mark.parametrize("given", [b"", b"not json", b"[1]", b'{"cwd": 3}'])
    def test_errors_are_silent(self, home: Path, given: bytes) -> None:
        """Nothing on either stream, and success."""
        (home / ".backstory").mkdir()
        (home / ".backstory" / "archive.db").write_text("not a database")

        done = subprocess.run(
            [sys.executable, "-m", "backstory", "hook", "session-start"], input=given, capture_output=True, check=False
        )

        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

    def test_is_light(self, home: Path) -> None:
        """None of the libraries that take time to import."""
        remember(home, Transcript("last", start_ms=days_ago(1)).prompt("Fix it").answer("Fixed."))
        script = (
            "import sys; from backstory.faces.hook import answer; "
            "assert 'Fix it' in answer('session-start', {'cwd': '/home/dev/shop'}); "
            "print(*{'msgspec', 'click', 'tantivy', 'rich', 'asyncio'} & set(sys.modules))"
        )

        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

        assert done.stdout.strip() == ""
