"""The rules of sharing."""

from __future__ import annotations

import pytest

from backstory.archive.base import SessionRow
from backstory.config import ConfigError, TeamSettings
from backstory.team.sharing import Projects, Sharing
from tests.team_world import SECRET


def row(key: str = "claude-code/a", **fields: object) -> SessionRow:
    return SessionRow(key=key, source=key.partition("/")[0], started_at=1_780_000_000_000, **fields)  # type: ignore[arg-type]


def covers(settings: TeamSettings, *rows: SessionRow, withheld: tuple[str, ...] = ()) -> set[str]:
    return Sharing(settings).covered({each.key: each for each in rows}, withheld)


class TestProjects:
    """Patterns match the identity of a repository or its folder, and what is below it."""

    @pytest.mark.parametrize(
        ("pattern", "name", "matches"),
        [
            ("github.com/acme/*", "github.com/acme/shop", True),
            ("github.com/acme/*", "github.com/acme-private/shop", False),
            ("github.com/acme", "github.com/acme/shop", True),
            ("GitHub.com/Acme/shop", "github.com/acme/shop", True),
            ("/home/dev/shop", "/home/dev/shop", True),
            ("/home/dev/shop/", "/home/dev/shop/src", True),
            ("/home/dev/shop", "/home/dev/shopping", False),
            ("shop", "/home/dev/shop", False),
            ("/", "/home/dev/shop", True),
            ("/", "github.com/acme/shop", False),
            ("", "/home/dev/shop", False),
            ("*", "anything", True),
        ],
    )
    def test_match(self, pattern: str, name: str, matches: bool) -> None:
        assert Projects((pattern,)).match(row(cwd=name)) is matches
        assert Projects((pattern,)).match(row(project=name)) is matches

    def test_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A pattern may begin with the home folder."""
        monkeypatch.setenv("HOME", "/home/dev")
        assert Projects(("~/shop",)).match(row(cwd="/home/dev/shop"))

    def test_none(self) -> None:
        """Without patterns nothing matches."""
        assert not Projects(()).match(row(cwd="/home/dev/shop"))

    def test_literals(self) -> None:
        """Each pattern has a part that all its matches contain."""
        assert Projects(("github.com/acme/*", "~/shop?x")).literals == ["github.com/acme/", "~/shop"]
        assert Projects(("*",)).literals == []


class TestSharing:
    """A session is shared if projects, agents and time match, and those that led to it do."""

    def test_default(self) -> None:
        """Nothing is shared unless asked for."""
        assert covers(TeamSettings(), row(cwd="/home/dev/shop")) == set()

    def test_projects(self) -> None:
        shop, diary = row("claude-code/a", cwd="/home/dev/shop"), row("claude-code/b", cwd="/home/dev/diary")
        assert covers(TeamSettings(projects=("/home/dev/shop",)), shop, diary) == {"claude-code/a"}

    def test_agents(self) -> None:
        rows = row("claude-code/a", cwd="/w"), row("codex/b", cwd="/w")
        assert covers(TeamSettings(projects=("*",), agents=("codex",)), *rows) == {"codex/b"}

    def test_since(self) -> None:
        settings = TeamSettings(projects=("*",), since="2026-05-28")
        old = SessionRow(key="codex/old", source="codex", cwd="/w", started_at=1_700_000_000_000)
        assert covers(settings, row(cwd="/w"), old) == {"claude-code/a"}

    def test_since_that_is_no_time(self) -> None:
        with pytest.raises(ConfigError, match=r"team\.since"):
            Sharing(TeamSettings(since="soon"))

    def test_subagents(self) -> None:
        """One without a project takes that of its parent; one of a private session is private."""
        shop, diary = row("claude-code/a", cwd="/shop"), row("claude-code/b", cwd="/diary")
        helper = row("claude-code/a/1", parent="claude-code/a")
        hidden = row("claude-code/b/1", parent="claude-code/b", cwd="/shop")
        assert covers(TeamSettings(projects=("/shop",)), shop, diary, helper, hidden) == {
            "claude-code/a",
            "claude-code/a/1",
        }

    def test_without_a_project(self) -> None:
        """It is shared only where everything is."""
        assert covers(TeamSettings(projects=("/*",)), row()) == set()
        assert covers(TeamSettings(projects=("*",)), row()) == {"claude-code/a"}

    def test_withheld(self) -> None:
        """With those that it started."""
        rows = row("claude-code/a", cwd="/w"), row("claude-code/a/1", parent="claude-code/a", cwd="/w")
        assert covers(TeamSettings(projects=("*",)), *rows, withheld=("claude-code/a",)) == set()

    def test_received(self) -> None:
        """Telemetry and live sessions are not shared."""
        assert covers(TeamSettings(projects=("*",)), row("otel/a", cwd="/w"), row("live/b", cwd="/w")) == set()

    def test_a_secret_in_its_key(self) -> None:
        """The key of a session cannot be redacted, so the session stays here."""
        assert covers(TeamSettings(projects=("*",)), row(f"codex/{SECRET}", cwd="/w")) == set()

    def test_loop(self) -> None:
        """Sessions that claim to have started one another are not shared."""
        rows = row("codex/a", parent="codex/b", cwd="/w"), row("codex/b", parent="codex/a", cwd="/w")
        assert covers(TeamSettings(projects=("*",)), *rows) == set()
