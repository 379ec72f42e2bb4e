"""Output on a terminal: lines that fit its width, cut texts, the pager."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path

import pytest

from backstory.faces.cli.terminal import Terminal
from backstory.faces.words import fit, width
from tests.transcripts import Transcript

from .conftest import Program

WIDE = "データベース接続が拒否されました 데이터베이스 연결 ÄÖÜ 👩‍👩‍👧 "


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    return tmp_path


def shown(backstory: Program, *arguments: str) -> list[str]:
    result = backstory(*arguments)
    assert result.code in (0, 1), result.err
    return re.sub(r"\x1b\[[0-9;]*m", "", result.out).splitlines()


class TestWidths:
    """No line is wider than the terminal, unless it is one word, or a folder to change to: a path, an id or a command
    can then be copied whole."""

    def test_every_screen(self, home: Path, backstory: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        """In narrow and wide terminals, with texts of wide characters."""
        folder = "/home/dev/a-project-with-a-rather-long-name/and-a-worktree-below-it/開発"
        transcript = Transcript("wide", folder).prompt(WIDE * 6 + "kangaroo")
        transcript.call("Bash", {"command": f"echo {WIDE * 4}"}, WIDE * 30, failed=True)
        table = "| a | b |\n|---|---|\n| " + WIDE + " | kangaroo |\n"
        transcript.answer(f"# Kangaroo\n\n{WIDE * 20}\n\n{table}\n```python\nprint('kangaroo')\n```")
        transcript.write(home)

        screens = (
            ["search", "kangaroo"],
            ["sessions", "--since", "9y"],
            ["open", transcript.id],
            ["open", f"{transcript.id}:1"],
            ["open", f"{transcript.id}:1", "--full"],
            ["doctor"],
            ["sources"],
            ["sources", "--all"],
            ["setup", "--dry-run"],
            ["traces", "list"],
            ["traces", "show", f"{transcript.id}:1"],
            ["traces", "stats"],
            *(["usage", "--since", "9y", "--by", by] for by in ("day", "project", "session", "tool", "model")),
        )
        for columns, arguments in product((60, 80, 120, 200), screens):
            monkeypatch.setenv("COLUMNS", str(columns))
            for line in shown(backstory, *arguments):
                word = line.strip().removeprefix("cd ").removesuffix(" &&").removesuffix(" ·")
                assert width(line) <= columns or " " not in word, (columns, arguments, width(line), line)

    def test_a_command_in_a_long_folder(self, home: Path, backstory: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        """It breaks behind `&&` only: as lines of a shell, a copy does the same."""
        monkeypatch.setenv("COLUMNS", "60")
        folder = f"/home/dev/{'long-' * 12}folder"
        transcript = Transcript("long", folder).prompt("Hello kangaroo").answer("Hi.")
        transcript.write(home)

        for arguments in (["search", "kangaroo"], ["sessions", "--since", "9y"], ["open", transcript.id]):
            lines = [line.strip() for line in shown(backstory, *arguments)]
            assert lines[lines.index(f"cd {folder} &&") + 1] == f"claude --resume {transcript.id}"
            assert "·" not in lines

    def test_columns_line_up(self, home: Path, backstory: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        """Amounts stand under their titles, also behind names of wide characters."""
        monkeypatch.setenv("COLUMNS", "80")
        for name in ("a", "b"):
            Transcript(name, f"/home/dev/{name}/開発{name}").prompt("Hello").answer("Hi.").write(home)

        header, *rows = shown(backstory, "usage", "--since", "9y", "--by", "project")

        end = width(header[: header.index("calls") + len("calls")])
        for row in rows:
            digits = re.search(r"\d+(?=\s)", row[1:])
            assert digits is not None
            assert width(row[: digits.end() + 1]) == end


class TestReading:
    def test_long_texts_are_folded(self, home: Path, backstory: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        """With the command that shows the rest; --full shows it at once."""
        monkeypatch.setenv("COLUMNS", "80")
        output = "\n".join(f"line {number}" for number in range(100))
        transcript = Transcript("long").prompt("Run it").call("Bash", {"command": "seq"}, output).answer("Done.")
        transcript.write(home)

        folded = "\n".join(shown(backstory, "open", f"{transcript.id}:1"))
        whole = "\n".join(shown(backstory, "open", f"{transcript.id}:1", "--full"))

        assert "line 7" in folded
        assert "line 8" not in folded
        assert re.search(r"… 92 more lines: backstory open event:[\w-]{22}", folded)
        assert "line 99" in whole

    def test_markdown_keeps_all_text(self, home: Path, backstory: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        """Headings and lists are rendered; tags, which are no Markdown, are shown as they stand."""
        monkeypatch.setenv("COLUMNS", "80")
        transcript = Transcript("md").prompt("Go").answer("## Plan\n\n- **first**\n- <details> a tag\n\n<b>bold</b>")
        transcript.write(home)

        text = "\n".join(shown(backstory, "open", transcript.id))

        assert "• first" in text
        assert "<details> a tag" in text
        assert "<b>bold</b>" in text

    def test_markdown_that_does_not_fit(self, home: Path, backstory: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        """Long cells are folded; a table of too many columns and what is nested too deeply stand as they are."""
        monkeypatch.setenv("COLUMNS", "60")
        path = "/srv/" + "kangaroo" * 12
        cells = [f"cell{number}" for number in range(40)]
        row = f"| {' | '.join(cells)} |"
        wide = f"{row}\n{'|---' * 40}|\n{row}"
        transcript = Transcript("tables").prompt("Go")
        transcript.answer(f"**bold**\n\n| a | b |\n|---|---|\n| 1 | {path} |\n\n{wide}")
        transcript.prompt("Deeper").answer("> " * 30 + "deepest").write(home)

        text = "".join(line.strip() for line in shown(backstory, "open", transcript.id, "--full"))

        assert path in text.replace("1  ", "")
        assert text.count("cell39") == 2
        assert "**bold**" not in text
        assert "deepest" in text


class TestFit:
    def test_takes_exactly_so_many_cells(self) -> None:
        for text, cells, fitted in [
            ("abc", 5, "abc  "),
            ("abcdef", 4, "abc…"),
            ("日本語", 4, "日 …"),
            ("日本語", 6, "日本語"),
            ("e\u0301a", 3, "e\u0301a "),
        ]:
            assert fit(text, cells) == fitted, text
            assert width(fitted) == cells, text

    def test_keeps_the_end_of_a_path(self) -> None:
        assert fit("/home/dev/shop", 8, keep_end=True) == "…ev/shop"


class TestPager:
    @pytest.fixture
    def through(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> Callable[[str, Iterable[str]], str]:
        """Show lines in the terminal with this PAGER, then one line after them."""

        def show(pager: str, lines: Iterable[str]) -> str:
            monkeypatch.setenv("TERM", "xterm-256color")
            monkeypatch.setenv("PAGER", pager)
            monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
            terminal = Terminal()
            assert terminal.is_terminal
            with terminal.pages():
                for line in lines:
                    terminal.wrap(line, indent=0)
            terminal.wrap("after it", indent=0)
            return capfd.readouterr().out

        return show

    def test_shows_the_first_lines_at_once(self, through: Callable[[str, Iterable[str]], str]) -> None:
        """The pager reads while the rest is rendered, and rendering ends when the reader leaves."""
        lines = (f"line {number}" for number in range(1_000_000))

        assert through("head -n 2", lines) == "line 0\nline 1\nafter it\n"
        assert next(lines, None) is not None

    def test_without_one(self, through: Callable[[str, Iterable[str]], str]) -> None:
        """Everything is printed."""
        assert through("", ["line"]) == "line\nafter it\n"
        assert through("no-such-pager -x", ["line"]) == "line\nafter it\n"
        assert through("less '", ["line"]) == "line\nafter it\n"

    def test_options_of_less(
        self, through: Callable[[str, Iterable[str]], str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By default less ends by itself after a short text and keeps colours; the user's LESS wins."""
        monkeypatch.delenv("LESS", raising=False)
        assert through("sh -c 'cat; echo $LESS'", ["line"]) == "line\n-FRX\nafter it\n"

        monkeypatch.setenv("LESS", "-S")
        assert through("sh -c 'cat; echo $LESS'", ["line"]) == "line\n-S\nafter it\n"


class TestLongTexts:
    @pytest.mark.parametrize("markdown", [False, True])
    def test_are_cut(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], markdown: bool) -> None:
        """A cut text shows its first lines and counts the others, at any length."""
        monkeypatch.setenv("COLUMNS", "80")
        text = "\n".join(f"- line {number}" for number in range(50_000))

        hidden = Terminal().passage(text, indent=0, lines=8, markdown=markdown)

        assert hidden == 49_992
        assert len(capfd.readouterr().out.splitlines()) == 8
