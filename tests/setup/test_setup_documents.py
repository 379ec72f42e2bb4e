"""Editing configuration files: one entry comes or goes, all else keeps every byte."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.setup import json_text
from backstory.setup.documents import Format, Refused, drop_entry, read_entry, set_entry

ENTRY = {"command": "/opt/backstory/bin/backstory", "args": ["mcp"]}

ZED = """// Zed settings
{
  "theme": "One Dark", // evenings
  /* servers */
  "context_servers": {
    "postgres": {
      "command": "pg", // local
      "args": [],
    },
  },
  "vim_mode": true,
}
"""
CODEX = """# Codex
model = "gpt-5.4"   # the default
notify = ["bell"]

[mcp_servers.docs]
command = "docs-server"
args = ["--stdio"]

[projects."/home/dev/shop"]
trust_level = "trusted"
"""
GOOSE = """# goose
GOOSE_PROVIDER: openai
extensions:
  developer:   # built in
    enabled: true
    type: builtin
    name: developer

  memory:
    enabled: false
    type: builtin
GOOSE_MODE: auto
"""
CONTINUE = """# Continue
name: Mine
models:
  - name: backstory # a model of that name
    provider: openai
mcpServers:   # tools
  # documents
  - name: docs
    command: npx
    args:
      - -y
      - docs-server

  # a block of the hub
  - uses: acme/search
rules:
  - Be brief.
"""
FILES: list[tuple[Format, tuple[str, ...], str]] = [
    ("json", ("context_servers", "backstory"), ZED),
    ("json", ("mcpServers", "backstory"), '{"mcpServers": {"docs": {"command": "docs"}}, "numStartups": 3}'),
    ("json", ("mcpServers", "backstory"), '{\n\t"mcpServers": {\n\t\t"docs": {"command": "docs"} // here\n\t}\n}\n'),
    ("json", ("mcpServers", "backstory"), '{\r\n    "theme": "dark"\r\n}\r\n'),
    ("json", ("amp.mcpServers", "backstory"), '{\n  "amp.notifications.enabled": true\n}\n'),
    ("json", ("mcpServers", "backstory"), '\ufeff{"theme": "dark"}'),
    ("toml", ("mcp_servers", "backstory"), CODEX),
    ("toml", ("mcp_servers", "backstory"), CODEX.rstrip("\n")),
    ("toml", ("mcp_servers", "backstory"), CODEX.replace("\n", "\r\n")),
    ("yaml", ("extensions", "backstory"), GOOSE),
    ("yaml", ("extensions", "backstory"), GOOSE.replace("  ", "    ")),
    ("yaml list", ("mcpServers", "backstory"), CONTINUE),
    ("yaml list", ("mcpServers", "backstory"), CONTINUE.replace("\n  ", "\n")),
    ("yaml list", ("mcpServers", "backstory"), CONTINUE.replace("\n", "\r\n")),
    ("yaml list", ("mcpServers", "backstory"), CONTINUE.partition("rules")[0].rstrip()),
]
IDS = [f"{number}-{format}" for number, (format, _, _) in enumerate(FILES)]


@pytest.mark.parametrize(("format", "path", "text"), FILES, ids=IDS)
class TestFiles:
    """Files of the real shape of Zed, Claude Code, Cursor, Gemini CLI, Amp, Codex and Goose."""

    def test_an_entry_is_added(self, format: Format, path: tuple[str, ...], text: str) -> None:
        """Every line that was there stays, comments too."""
        changed = set_entry(text, format, path, ENTRY)

        assert read_entry(changed, format, path) == ENTRY
        for line in text.splitlines():
            comment = re.search(r"(#|//|/\*).*", line)
            assert comment is None or comment[0] in changed

    def test_twice_is_once(self, format: Format, path: tuple[str, ...], text: str) -> None:
        """An entry that is there is left alone."""
        changed = set_entry(text, format, path, ENTRY)

        assert set_entry(changed, format, path, ENTRY) == changed

    def test_an_outdated_entry_is_updated(self, format: Format, path: tuple[str, ...], text: str) -> None:
        """Entries that the user has added to it stay."""
        old = set_entry(text, format, path, {**ENTRY, "command": "/old/backstory", "startup_timeout_sec": 60})

        assert read_entry(set_entry(old, format, path, ENTRY), format, path) == {**ENTRY, "startup_timeout_sec": 60}

    def test_removing_it_keeps_the_rest(self, format: Format, path: tuple[str, ...], text: str) -> None:
        """Also where another program has written to the file since."""
        without = drop_entry(set_entry(text, format, path, ENTRY), format, path)

        if format != "json" or read_entry(text, format, path[:-1]) is not None:
            assert without.rstrip() == text.rstrip()
        else:
            assert read_entry(without, format, ()) == {**read_entry(text, format, ()), path[0]: {}}


class TestBroken:
    @pytest.mark.parametrize(
        ("format", "text"),
        [
            ("json", '{"mcpServers": {'),
            ("json", '{"mcpServers": {}} and more'),
            ("json", "[1, 2]"),
            ("json", '{"mcpServers": ["a list"]}'),
            ("json", '{"a" 1}'),
            ("toml", "model = "),
            ("toml", 'mcpServers = "text"'),
            ("yaml", "extensions: [unclosed"),
            ("yaml", "- a\n- list\n"),
            ("yaml list", "mcpServers: [unclosed"),
            ("yaml list", "mcpServers: text\n"),
            ("yaml list", "mcpServers:\n  - name: docs\n  - name: docs\n"),
        ],
    )
    def test_is_refused(self, format: Format, text: str) -> None:
        """A file that cannot be parsed, or that has something else where the servers belong."""
        with pytest.raises(Refused):
            set_entry(text, format, ("mcpServers", "backstory"), ENTRY)

    @pytest.mark.parametrize(
        ("format", "text"),
        [
            ("toml", "mcp_servers = {docs = {command = 'docs'}}\n"),
            ("yaml", "mcp_servers: {docs: {command: docs}}\n"),
            ("yaml list", "mcp_servers: [{name: docs, command: docs}]\n"),
        ],
    )
    def test_a_layout_that_cannot_be_edited_is_refused(self, format: Format, text: str) -> None:
        """Inline tables: a change that would be more than the entry is not made."""
        with pytest.raises(Refused, match="layout"):
            set_entry(text, format, ("mcp_servers", "backstory"), ENTRY)


class TestEmpty:
    @pytest.mark.parametrize("format", ["json", "toml", "yaml", "yaml list"])
    @pytest.mark.parametrize("text", ["", "\n"])
    def test_a_file_without_settings(self, format: Format, text: str) -> None:
        """It gets the table with the entry."""
        changed = set_entry(text, format, ("mcpServers", "backstory"), ENTRY)

        assert read_entry(changed, format, ()) == {"mcpServers": {"backstory": ENTRY}}

    def test_an_empty_mapping_of_yaml(self) -> None:
        """It becomes a block."""
        changed = set_entry("extensions: {}\nother: 1\n", "yaml", ("extensions", "backstory"), ENTRY)

        assert read_entry(changed, "yaml", ()) == {"extensions": {"backstory": ENTRY}, "other": 1}


class TestJsonText:
    """Editing JSON of any shape."""

    @given(
        st.dictionaries(st.text(max_size=5), st.recursive(st.integers() | st.text(max_size=5), st.lists, max_leaves=4)),
        st.sampled_from([None, 1, 2, "\t"]),
    )
    def test_added_and_dropped_again(self, settings: dict[str, object], indent: int | str | None) -> None:
        """The settings are what they were, whatever they are."""
        settings.pop("mcpServers", None)
        text = json.dumps(settings, indent=indent)
        changed = json_text.put(text, ("mcpServers", "backstory"), ENTRY)

        assert json.loads(changed) == {**settings, "mcpServers": {"backstory": ENTRY}}
        assert json.loads(json_text.drop(changed, ("mcpServers",))) == settings

    @pytest.mark.parametrize("text", ['{"a": [1, 2]}', '{"a": [\n  1, // one\n  2\n]}', '{"a": [\n  1,\n  2,\n]}'])
    def test_items_of_arrays(self, text: str) -> None:
        """One is added at the end and taken out again, to the byte."""
        changed = json_text.append(text, ("a",), 3)

        assert json_text.parse(changed) == {"a": [1, 2, 3]}
        assert json_text.drop_items(changed, ("a",), lambda item: item == 3) == text
