"""Folders that a pattern selects, and the names of projects."""

from __future__ import annotations

import time

import pytest

from backstory.toolsets.conversations import Projects


class TestName:
    """The folder without the pattern's beginning."""

    @pytest.mark.parametrize(
        ("pattern", "folder", "name"),
        [
            ("-home-gbr-work-001-sites*", "-home-gbr-work-001-sites-diff-website", "diff-website"),
            ("-home-gbr-work-001-sites-*", "-home-gbr-work-001-sites-diff-website", "diff-website"),
            ("-home-gbr-work-001-sites*", "-home-gbr-work-001-sites", "-home-gbr-work-001-sites"),
            ("-home-gbr*", "-home-gbr--config-nvim", "config-nvim"),
            ("*", "-home-gbr-shop", "-home-gbr-shop"),
            ("-*", "-home-gbr-shop", "home-gbr-shop"),
            ("*-shop", "-home-gbr-shop", "-home-gbr-shop"),
            ("-home-*-shop", "-home-gbr-shop", "gbr-shop"),
            ("-home-?br-*", "-home-gbr-shop", "gbr-shop"),
            ("-home-[fg]br-*", "-home-gbr-shop", "gbr-shop"),
            ("-home-gbr-shop", "-home-gbr-shop", "-home-gbr-shop"),
            ("C--Users-*", "C--Users-me-shop", "me-shop"),
        ],
    )
    def test_loses_the_prefix(self, pattern: str, folder: str, name: str) -> None:
        projects = Projects(pattern)

        assert projects.matches(folder)
        assert projects.name(folder) == name


class TestSelect:
    """The folders of a pattern."""

    FOLDERS = ("-home-me-Sites-shop", "-home-me-sites-blog", "-home-you-sites-shop", "-srv-engine")

    @pytest.mark.parametrize(
        ("pattern", "part", "selected"),
        [
            ("*", None, (0, 1, 2, 3)),
            ("-home-me-*", None, (0, 1)),
            ("-home-*-sites-*", None, (1, 2)),
            ("-home-me-sites-blog", None, (1,)),
            ("-srv", None, ()),
            ("", None, ()),
            ("*", "SHOP", (0, 2)),
            ("-home-me-*", "me", ()),
            ("-home-me-*", "sites", (0, 1)),
        ],
    )
    def test_by_pattern_and_part(self, pattern: str, part: str | None, selected: tuple[int, ...]) -> None:
        """Patterns mind the case, parts of names do not."""
        assert list(filter(Projects(pattern).having(part), self.FOLDERS)) == [self.FOLDERS[n] for n in selected]

    def test_hostile_patterns(self) -> None:
        """No pattern takes long."""
        started = time.process_time()
        list(filter(Projects("*a" * 40 + "b").having(None), ["a" * 200] * 20))
        list(filter(Projects("[" * 1000).having(None), self.FOLDERS))

        assert time.process_time() - started < 10
