"""Facts about the session as a whole, and the records that are neither prompt nor answer."""

from __future__ import annotations

from typing import Any

import pytest
from claude_code_transcript import SESSION, Records, call, events, feed, feed_with_restarts, titles

from backstory.model import EventType
from backstory.sources.base import About
from backstory.sources.claude_code import kinds


def abouts(items: list) -> list[dict[str, Any]]:
    fields = ("slug", "cwd", "branch", "version", "forked_from")
    yielded = [item for item in items if isinstance(item, About)]
    return [{name: value for name in fields if (value := getattr(item, name))} for item in yielded]


class TestPlace:
    def test_told_when_it_changes(self) -> None:
        """Folder, branch, version and slug are yielded at first and whenever one changes."""
        r = Records(slug="calm-reading-owl")
        records = [
            r.user("a"),
            r.user("b"),
            r.user("c", cwd="/home/ada/shop/web"),
            r.user("d", cwd="/home/ada/shop/web"),
        ]
        for items in (feed(records), feed_with_restarts(records)):
            assert abouts(items) == [
                {"slug": "calm-reading-owl", "cwd": "/home/ada/shop", "branch": "main", "version": "2.1.160"},
                {"cwd": "/home/ada/shop/web"},
            ]
            assert [event.cwd for event in events(items)][2] == "/home/ada/shop/web"

    def test_detached_head_is_no_branch(self) -> None:
        """A checkout on no branch leaves the branch as it was."""
        r = Records()
        assert abouts(feed([r.user("a"), r.user("b", gitBranch="HEAD"), r.user("c", gitBranch="")]))[1:] == []

    def test_worktrees(self) -> None:
        """Records that say the session moved say where to."""
        worktree = {"worktreePath": "/home/ada/shop/wt", "worktreeBranch": "fix"}
        records = [
            {"type": "worktree-state", "worktreeSession": worktree, "sessionId": SESSION},
            {"type": "worktree-state", "worktreeSession": None, "sessionId": SESSION},
            {"type": "relocated", "relocatedCwd": "/home/ada/shop", "sessionId": SESSION},
        ]
        assert abouts(feed(records)) == [{"cwd": "/home/ada/shop/wt", "branch": "fix"}, {"cwd": "/home/ada/shop"}]

    def test_forks_name_their_origin(self) -> None:
        """A fork that says where it comes from is marked so, once."""
        r = Records(forkedFrom={"sessionId": "origin", "messageUuid": "m"})
        yielded = [about for about in abouts(feed([r.user("a"), r.user("b")])) if "forked_from" in about]
        assert [about["forked_from"] for about in yielded] == ["origin"]


class TestTitles:
    def test_ranks(self) -> None:
        """Titles a person gave rank above generated ones; each is yielded when it changes."""
        generated = {"type": "ai-title", "aiTitle": "Fix carts", "sessionId": SESSION}
        given = {"type": "custom-title", "customTitle": " Carts ", "sessionId": SESSION}
        name = {"type": "agent-name", "agentName": "carts", "sessionId": SESSION}
        records = [generated, generated, given, name, generated]
        assert titles(feed(records)) == [("Fix carts", 2), ("Carts", 3), ("carts", 3)]
        assert titles(feed_with_restarts(records)) == titles(feed(records))

    def test_summary_of_this_conversation(self) -> None:
        """A summary is the title of the conversation that ends with the record it names."""
        user = Records().user("hello")
        summary = {"type": "summary", "summary": "Greeting", "leafUuid": user["uuid"]}
        for records in ([user, summary], [summary, user], [summary, user, {**summary, "leafUuid": "elsewhere"}]):
            items = feed(records)
            assert titles(items) == [("Greeting", 1)]
            assert {item.summary for item in items if isinstance(item, About) and item.summary} == {"Greeting"}

    def test_summary_of_another(self) -> None:
        """Summaries of other sessions, which old versions wrote everywhere, are no titles here."""
        summary = {"type": "summary", "summary": "Something else", "leafUuid": "elsewhere"}
        r = Records()
        assert titles(feed([summary, r.user("hello"), summary])) == []

    def test_links(self) -> None:
        """A pull request is yielded once, not after each prompt."""
        link = {"type": "pr-link", "prUrl": "https://example.invalid/pull/7", "prNumber": 7, "prRepository": "ada/shop"}
        stamps = ("2026-03-01T10:00:00.000Z", "2026-03-01T11:00:00.000Z")
        items = feed([{**link, "timestamp": stamp, "sessionId": SESSION} for stamp in stamps])
        assert [event.text for event in events(items)] == ["ada/shop 7 https://example.invalid/pull/7"]


class TestTables:
    def test_skipped_records(self) -> None:
        """Records of bookkeeping give nothing."""
        assert (
            events(feed([{"type": kind, "sessionId": SESSION, "content": "x"} for kind in kinds.SKIPPED_RECORDS])) == []
        )

    def test_skipped_attachments(self) -> None:
        """Attachments that only repeat or list give nothing."""
        r = Records()
        assert events(feed([r.attachment(kind, content="x") for kind in kinds.SKIPPED_ATTACHMENTS])) == []

    def test_attachments_of_any_shape(self) -> None:
        """An attachment without the fields it should have is no problem."""
        r = Records()
        for kind in kinds.ATTACHMENTS:
            feed([r.attachment(kind)])
            feed([r.attachment(kind, content={"x": [1]}, files="x", memories=3, blockingError=[], error=7)])

    def test_every_omission_has_its_reason(self) -> None:
        """Nothing is skipped without saying why."""
        for table in (kinds.SKIPPED_RECORDS, kinds.SKIPPED_ATTACHMENTS, kinds.SKIPPED_SUBTYPES):
            assert all(table.values())

    @pytest.mark.parametrize(
        ("attachment", "kind", "text"),
        [
            (
                {
                    "type": "file",
                    "filename": "/a.py",
                    "displayPath": "a.py",
                    "content": {"type": "text", "file": {"content": "x = 1"}},
                },
                "system",
                "a.py\nx = 1",
            ),
            ({"type": "edited_text_file", "filename": "/a.py", "snippet": "1\tx = 2"}, "system", "/a.py\n1\tx = 2"),
            (
                {
                    "type": "nested_memory",
                    "displayPath": "CLAUDE.md",
                    "content": {"type": "Project", "content": "Use tabs."},
                },
                "system",
                "CLAUDE.md\nUse tabs.",
            ),
            (
                {"type": "hook_additional_context", "hookName": "PostToolUse:Edit", "content": ["lint failed"]},
                "system",
                "PostToolUse:Edit: lint failed",
            ),
            ({"type": "hook_success", "hookName": "SessionStart", "content": "", "stdout": "{}"}, "system", None),
            (
                {"type": "hook_blocking_error", "hookName": "Stop", "blockingError": {"blockingError": "no tests"}},
                "runtime",
                "Stop blocked: no tests",
            ),
            (
                {"type": "hook_non_blocking_error", "hookName": "Stop", "stderr": "oops", "stdout": ""},
                "runtime",
                "Stop: oops",
            ),
            (
                {"type": "task_status", "description": "build", "status": "completed", "deltaSummary": None},
                "system",
                "build\ncompleted",
            ),
            ({"type": "teammate_mailbox", "messages": [{"from": "lead", "text": "go"}]}, "system", "lead\ngo"),
        ],
    )
    def test_attachments(self, attachment: dict[str, Any], kind: str, text: str | None) -> None:
        """The text of an attachment is what it shows the agent."""
        yielded = [
            (str(event.type), event.text)
            for event in events(feed([Records().record("attachment", attachment=attachment)]))
        ]
        assert yielded == ([(kind, text)] if text else [])

    def test_system_records(self) -> None:
        """System records give their text."""
        r = Records()
        records = [
            r.system("away_summary", content="Carts are fixed."),
            r.system("local_command", content="<command-name>/mcp</command-name><command-args></command-args>"),
            r.system("bridge_status", content="/remote-control is active"),
            r.system("model_refusal_fallback", content="Refused.", originalModel="a", fallbackModel="b"),
            r.system("stop_hook_summary", hookErrors=["lint failed"]),
        ]
        yielded = [(event.type, event.text) for event in events(feed(records))]
        assert yielded == [
            (EventType.SYSTEM, "Carts are fixed."),
            (EventType.SYSTEM, "/mcp"),
            (EventType.RUNTIME, "/remote-control is active"),
            (EventType.RUNTIME, "Refused.\na -> b"),
            (EventType.RUNTIME, "lint failed"),
        ]

    def test_saved_hook_context(self) -> None:
        """Context that is written again after each turn is the same event each time."""
        r = Records()
        records = [r.record("saved_hook_context", uuid="same", content=["be kind"]) for _ in range(2)]
        assert len({event.uid for event in events(feed(records))}) == 1

    @pytest.mark.parametrize(
        "record",
        [
            {"type": "frobnicate", "text": "new"},
            {"type": "system", "subtype": "frobnicated", "content": "new"},
            {"type": "attachment", "attachment": {"type": "frobnicated", "text": "new"}},
            {"type": "attachment", "attachment": "new"},
            {"silly": "new"},
        ],
    )
    def test_unknown_is_kept(self, record: dict[str, Any]) -> None:
        """An unknown record is kept whole."""
        (event,) = events(feed([record]))
        assert event.type is EventType.UNKNOWN
        assert '"new"' in event.text


class TestIdentity:
    def test_of_records_without_uuid(self) -> None:
        """Records without uuid are distinguished by what they say, when, and how often; not by their place."""

        def said(text: str, stamp: str = "2026-03-01T10:00:00.000Z") -> dict[str, Any]:
            return {"type": "user", "timestamp": stamp, "message": {"role": "user", "content": text}}

        records = [said("a"), said("a"), said("b"), said("a", "2026-03-01T10:00:01.000Z")]
        uids = [event.uid for event in events(feed(records))]
        assert len(set(uids)) == 4
        assert uids == [event.uid for event in events(feed_with_restarts(records))]
        moved = [Records().user("before"), *({**record, "sessionId": "copy"} for record in records)]
        assert [event.uid for event in events(feed(moved))][1:] == uids

    def test_of_copies(self) -> None:
        """A record copied into another session is the same events."""
        r = Records()
        records = [r.user("go"), r.assistant("I look.", call("Read")), r.result("toolu_1", "x")]
        copies = [{**record, "sessionId": "another", "cwd": "/elsewhere"} for record in records]
        assert [event.uid for event in events(feed(records))] == [event.uid for event in events(feed(copies))]
