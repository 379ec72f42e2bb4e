"""`backstory team`, and `--team`, as people use them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from backstory.archive.base import SessionsRequest
from backstory.faces.cli.app import run
from backstory.library import Library
from tests.team_world import SECRET, Laptop, ServedHub, project

SHOP = "/home/dev/shop"


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Program = Callable[..., Result]


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """The program in a home, called as from a pipe."""

    def call(home: Path, *arguments: str) -> Result:
        monkeypatch.setenv("HOME", str(home))
        capsys.readouterr()
        code = run(arguments)
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture
def alice(tmp_path: Path, hub: ServedHub) -> Laptop:
    laptop = Laptop(tmp_path, "alice", url=hub.url, token=hub.token("alice"), projects=[SHOP])
    laptop.write(
        project("a", SHOP, f"the gateway needs {SECRET}", "it works"),
        project("b", "/home/dev/diary", "a private gateway"),
    )
    return laptop


class TestShare:
    def test_from_dry_run_to_forget(self, hub: ServedHub, alice: Laptop, tmp_path: Path, program: Program) -> None:
        """A session would be shared, is shared, is found by another member, and is taken back."""
        status = program(alice.home, "team", "status").out
        assert "Would be shared: 1 session" in status
        assert "private" not in status

        records = [json.loads(line) for line in program(alice.home, "team", "status", "--dry-run").out.splitlines()]
        kinds = [record["record"] for record in records]
        assert kinds == ["session", "turn", "event", "event", "usage", "exchange"]
        assert "[redacted:" in records[2]["text"]
        assert SECRET not in str(records)
        assert hub.archive.sessions(SessionsRequest(empty=True)) == []

        assert program(alice.home, "team", "push").out == "Sent 2 events of 1 session.\n"
        hub.settle()
        (session,) = program(alice.home, "team", "status", "--json").json["sessions"]
        assert (session["state"], session["events"], session["sent"]) == ("shared", 2, 2)

        bob = Laptop(tmp_path, "bob", url=hub.url, token=hub.token("bob"))
        found = program(bob.home, "search", "--team", "gateway")
        assert "alice on alice-laptop" in found.out
        assert "private" not in found.out
        assert "From alice" not in found.err
        answer = program(bob.home, "search", "--team", "--json", "gateway").json
        assert any("From alice on alice-laptop" in warning for warning in answer["warnings"])
        assert "alice on alice-laptop" in program(bob.home, "sessions", "--team", "--since", "2020-01-01").out
        handle = session["session"].partition("/")[2]
        assert "alice on alice-laptop" in program(bob.home, "open", "--team", handle).out
        assert program(bob.home, "usage", "--team", "--since", "2020-01-01", "--json").json["total"]["calls"] == 1

        taken = program(alice.home, "team", "forget", handle)
        assert (taken.code, taken.out) == (0, "Taken back: 1 session. It is not shared again.\n")
        assert program(bob.home, "search", "--team", "--json", "gateway").json["data"]["results"] == []
        assert program(alice.home, "team", "push").out == "Sent 0 events of 0 sessions.\n"
        assert "Was shared: 1 session" in program(alice.home, "team", "status").out

    def test_forget_without_the_server(self, alice: Laptop, program: Program) -> None:
        """It is not shared from then on, and taken back later."""
        program(alice.home, "sync")
        alice.configure(url="http://127.0.0.1:1", token="bst_x_y", projects=[SHOP])
        handle = project("a", SHOP).id
        result = program(alice.home, "team", "forget", handle)

        assert result.code == 1
        assert "It is not shared from now on" in result.out
        assert "does not answer" in result.err
        (session,) = program(alice.home, "team", "status", "--json").json["sessions"]
        assert session["state"] == "withheld"

    def test_a_session_that_is_no_longer_there(
        self, hub: ServedHub, alice: Laptop, tmp_path: Path, program: Program
    ) -> None:
        """Another machine has taken it back: the status says so after the next push, also once there is more of it."""
        other = Laptop(tmp_path, "other", url=hub.url, token=hub.token("alice"))
        program(alice.home, "team", "push")
        hub.settle()
        talk = project("a", SHOP, "the gateway needs a token", "it works")
        assert program(other.home, "team", "forget", talk.id).code == 0

        for more in (False, True):
            if more:
                alice.write(talk.prompt("Once more, please."))
            program(alice.home, "team", "push")
            (session,) = program(alice.home, "team", "status", "--json").json["sessions"]
            assert (session["state"], session["sent"]) == ("lost", 0)
            shown = program(alice.home, "team", "status").out
            assert "Was shared: 1 session" in shown
            assert "no longer there" in shown

    def test_forget_nothing(self, alice: Laptop, program: Program) -> None:
        result = program(alice.home, "team", "forget", "nosuchsession")
        assert (result.code, "No session, turn or event matches" in result.err) == (1, True)

    def test_nothing_is_set(self, tmp_path: Path, program: Program) -> None:
        home = tmp_path / "plain"
        home.mkdir()
        assert "no server of a team is set" in program(home, "team", "status").out
        result = program(home, "team", "push")
        assert (result.code, "set team.url" in result.err) == (1, True)
        assert "set team.url" in program(home, "search", "--team", "x").err
        with Library(home / ".backstory", agents_home=home, environ={}, scope="both") as library:
            assert any("set team.url" in warning for warning in library.search("x")["warnings"])

    def test_refused(self, hub: ServedHub, alice: Laptop, program: Program) -> None:
        """The exit code and the status say so."""
        alice.configure(url=hub.url, token=hub.token("alice", projects=("/elsewhere",)), projects=[SHOP])
        result = program(alice.home, "team", "push")

        assert (result.code, "The server refused 1 session" in result.err) == (1, True)
        assert "the token does not cover its project" in program(alice.home, "team", "status").out

    def test_report(self, alice: Laptop, program: Program) -> None:
        """The report for issues names neither server, token nor projects."""
        report = program(alice.home, "doctor", "--report").out
        assert "team.token" in report
        assert not any(text in report for text in ("bst_", "127.0.0.1", SHOP))


class TestTokens:
    def test_create_list_revoke(self, tmp_path: Path, program: Program) -> None:
        """The token is shown once, when it is made."""
        made = program(tmp_path, "team", "token", "create", "alice", "--project", "github.com/acme/*")
        token = made.out.strip()
        assert token.startswith("bst_")
        (listed,) = program(tmp_path, "team", "token", "list", "--json").json["tokens"]
        assert (listed["member"], listed["rights"]) == ("alice", ["read", "write"])
        assert token not in program(tmp_path, "team", "token", "list").out
        assert program(tmp_path, "team", "token", "revoke", listed["id"]).out.startswith("Revoked the token")
        assert "revoked" in program(tmp_path, "team", "token", "list").out
        assert program(tmp_path, "team", "token", "revoke", "nosuch").code == 1

    @pytest.mark.parametrize(("option", "rights"), [("--read-only", ["read"]), ("--write-only", ["write"])])
    def test_rights(self, tmp_path: Path, program: Program, option: str, rights: list[str]) -> None:
        made = program(tmp_path, "team", "token", "create", "ci", option, "--json").json
        assert made["rights"] == rights
        assert made["token"].startswith(f"bst_{made['id']}_")

    def test_contradiction(self, tmp_path: Path, program: Program) -> None:
        assert program(tmp_path, "team", "token", "create", "ci", "--read-only", "--write-only").code == 2

    def test_nobody(self, tmp_path: Path, program: Program) -> None:
        """A variable of a script that is not set makes no token."""
        assert program(tmp_path, "team", "token", "create", "").code == 2
        assert program(tmp_path, "team", "token", "create", "ci", "--project", "").code == 2
        assert program(tmp_path, "team", "token", "list", "--json").json["tokens"] == []
