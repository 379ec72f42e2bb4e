"""`doctor --report`: what an issue needs, and nothing private."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.transcripts import Transcript

from .conftest import Program

SECRET = "ghp_" + "a1B2" * 9


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose transcripts have a broken line, an unknown record and a private project."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("BACKSTORY_CATCH_UP_SECONDS")  # a report has the settings that are not the default
    transcript = Transcript("one", f"{tmp_path}/Acme Takeover").prompt("The merger is a wombat").answer("Noted.")
    transcript.write(tmp_path)
    with transcript.path(tmp_path).open("a") as stream:
        stream.write("{the broken line}\n")
        stream.write(
            json.dumps({"type": "novelty", "uuid": "u-9", "sessionId": transcript.id, "text": "wombat"}) + "\n"
        )
    return tmp_path


def configure(home: Path, text: str) -> None:
    (home / ".backstory").mkdir(mode=0o700, exist_ok=True)
    (home / ".backstory" / "config.toml").write_text(text)


class TestReport:
    def test_has_what_an_issue_needs(self, home: Path, backstory: Program) -> None:
        """Versions, counts per source, kinds of errors, changed settings and problems."""
        configure(home, "redact = 'off'\n[mcp]\noutput_schemas = 'full'\n")
        backstory("sync")

        report = backstory("doctor", "--report", "--json").json

        assert {"Backstory", "Python", "platform", "SQLite"} == set(report["versions"])
        assert "tantivy" in report["libraries"]
        assert report["archive"]["sessions"] == 1
        (source,) = report["sources"]
        assert (source["source"], source["sessions"], source["files"]) == ("claude-code", 1, 1)
        assert (source["files_with_errors"], source["errors"]) == (1, {"a line is not JSON": 1})
        assert source["unknown_records"] == 1
        assert report["settings"] == {"redact": "off", "mcp.output_schemas": "full"}
        assert report["home"] == "~/.backstory"

    def test_markdown_says_the_same(self, home: Path, backstory: Program) -> None:
        """As tables and lists that a forge renders."""
        backstory("sync")

        out = backstory("doctor", "--report").out

        assert out.startswith("### Backstory report\n\n| | |\n|---|---|\n| Backstory | ")
        assert "\n| claude-code | 1 | 1 | 0.0 MB | 0 | 1 | 1 |\n" in out
        assert "\n- claude-code: a line is not JSON: 1 file\n" in out
        assert "Settings that differ from the default:\n\n- none\n" in out

    def test_has_nothing_private(self, home: Path, backstory: Program) -> None:
        """No text, no name and no path of a project, no secret, also with redaction off."""
        configure(
            home,
            f"redact = 'off'\n[extra_roots]\ncodex = ['{home}/Acme Takeover/logs of agents', '{home}/.x/Acme/y']\n"
            f"[live]\nadapter = {{name = 'bridge', config = {{url = 'ws://user:{SECRET}@example.com'}}}}\n",
        )
        backstory("sync")
        folder = Transcript("one", f"{home}/Acme Takeover").path(home).parent
        (home / ".backstory").chmod(0o755)

        for out in (backstory("doctor", "--report").out, backstory("doctor", "--report", "--json").out):
            for private in (SECRET, "wombat", "broken line", "Acme", "Takeover", "logs of", str(home), folder.name):
                assert private not in out, private
            assert "~/.x/…" in out
            assert "others on this machine can read ~/.backstory" in out

    def test_without_an_archive(self, home: Path, backstory: Program) -> None:
        """Broken settings are a problem of the report, not its end."""
        configure(home, "colour = 1\n")

        result = backstory("doctor", "--report")

        assert result.code == 1
        assert "| archive | cannot be read |" in result.out
        assert "unknown field `colour`" in result.out
