"""list_conversations."""

from __future__ import annotations

import pytest

from tests.conversation_world import Session, World


class TestConversations:
    """All conversations, the most recent activity first."""

    def test_fields(self, world: World) -> None:
        session = Session("s", "/home/dev/sites/shop").prompt("Hello").answer("Hi.").prompt("More").answer("Yes.")
        for record in session.records:
            record["slug"] = "velvet-puzzling-eclipse"
        world.read(session)

        (conversation,) = world.list(pattern="-home-dev-sites*")

        assert conversation == {
            "session_id": session.id,
            "project": "shop",
            "summary": "velvet-puzzling-eclipse",
            "slug": "velvet-puzzling-eclipse",
            "first_timestamp": session.records[0]["timestamp"],
            "last_timestamp": session.records[-1]["timestamp"],
            "turn_count": 2,
            "cwd": "/home/dev/sites/shop",
            "git_branch": "main",
        }
        assert list(conversation)[:4] == ["session_id", "project", "summary", "slug"]

    def test_times(self, world: World) -> None:
        """Those of the user's and the assistant's records, whatever Claude Code itself wrote before and after them."""
        session = Session("s").add("queue-operation", operation="enqueue", content="Hello").user("Caveat", isMeta=True)
        session.add("system", subtype="informational", content="Ready").prompt("Hello").answer("Hi.")
        session.user([{"type": "text", "text": "[Request interrupted by user]"}])
        session.add("system", subtype="turn_duration", durationMs=5).add("system", subtype="away_summary", content="x")
        world.read(session)

        (conversation,) = world.list()

        times = (conversation["first_timestamp"], conversation["last_timestamp"])
        assert times == (session.records[3]["timestamp"], session.records[5]["timestamp"])

    def test_what_is_not_known(self, world: World) -> None:
        """Is null, and the first prompt stands in for a summary."""
        session = Session("s").prompt("Hello")
        for name in ("cwd", "gitBranch", "version"):
            del session.records[0][name]
        world.read(session)

        (conversation,) = world.list()

        assert (conversation["slug"], conversation["cwd"], conversation["git_branch"]) == (None, None, None)
        assert conversation["summary"] == "Hello"

    @pytest.mark.parametrize("pattern", ["*", "-home*"])
    def test_order(self, world: World, pattern: str) -> None:
        """By when each was last active, whatever its project; the limit cuts the oldest."""
        starts = [50, 10, 40, 20, 30]
        sessions = [
            Session(f"s{n}", f"/home/dev/p{n % 2}", start_ms=1_780_000_000_000 + start * 60_000).prompt("x")
            for n, start in enumerate(starts)
        ]
        world.read(*sessions)
        # The oldest one goes on.
        sessions[1]._ms += 10**9
        world.read(sessions[1].answer("Back again"))

        listed = [conversation["session_id"] for conversation in world.list(pattern=pattern)]

        assert listed == [sessions[n].id for n in (1, 0, 2, 4, 3)]
        assert [c["session_id"] for c in world.list(pattern=pattern, limit=2)] == listed[:2]

    def test_limit(self, world: World) -> None:
        world.read(*(Session(f"s{n}").prompt("x") for n in range(60)))

        assert len(world.list()) == 50
        assert len(world.list(limit=7)) == 7
        assert len(world.list(limit=10**30)) == 60

    def test_project(self, world: World) -> None:
        folders = ("/home/dev/sites/shop", "/home/dev/sites/blog", "/srv/engine")
        world.read(*(Session(folder, folder).prompt("x") for folder in folders))

        def listed(**arguments: str) -> set[str]:
            return {conversation["project"] for conversation in world.list(**arguments)}

        assert listed() == {"-home-dev-sites-shop", "-home-dev-sites-blog", "-srv-engine"}
        assert listed(project="Sites") == {"-home-dev-sites-shop", "-home-dev-sites-blog"}
        assert listed(pattern="-home-dev-sites*") == {"shop", "blog"}
        assert listed(pattern="-home-dev-sites*", project="blog") == {"blog"}
        assert listed(pattern="-home-dev-sites*", project="engine") == set()

    def test_a_transcript_that_moves(self, world: World) -> None:
        """To the folder of another project, as people move it when they rename the project: it is of that one, and of
        no other. A copy leaves it where it is."""
        session = Session("s", "/home/dev/old").prompt("Wombat").answer("Hi.")
        world.read(session)
        old = session.path(world.home)
        new = old.parent.with_name("-home-dev-zoo") / old.name
        new.parent.mkdir()
        new.write_bytes(old.read_bytes())
        world.library.sync()
        assert [one["project"] for one in world.list()] == ["-home-dev-old"]
        new.unlink()
        old.rename(new)
        world.library.sync()

        assert [one["project"] for one in world.list(pattern="-home-dev-*")] == ["zoo"]
        assert [one["project"] for one in world.search("wombat", pattern="-home-dev-z*")] == ["oo"]
        assert world.search("wombat", pattern="-home-dev-old") == world.list(pattern="-home-dev-old") == []

    def test_subagents(self, world: World) -> None:
        """They have sessions of their own, which are not conversations."""
        session = Session("s").prompt("Ask").answer("Yes.")
        path = session.write(world.home)
        inner = Session("inner").prompt("Do it").answer("Done.")
        for record in inner.records:
            record |= {"isSidechain": True, "agentId": "a1", "sessionId": session.id}
        folder = path.with_suffix("") / "subagents"
        folder.mkdir(parents=True)
        (folder / "agent-a1.jsonl").write_text(inner.text())
        world.library.sync()

        assert [conversation["session_id"] for conversation in world.list()] == [session.id]
        assert world.search("Done") == []
        error = world.ask("read_turn", session_id=f"{session.id}/agent-a1", turn_number=0)["error"]
        assert error == f"Unknown session_id: {session.id}/agent-a1"

    def test_without_prompts(self, world: World) -> None:
        """A session of commands alone has no turns."""
        world.read(Session("s").user("<command-name>/clear</command-name>"))

        (conversation,) = world.list()

        assert (conversation["turn_count"], conversation["summary"]) == (0, "")
        assert world.ask("read_conversation", session_id=conversation["session_id"])["turns"] == []


class TestSummary:
    """A summary record, else the slug, else how the conversation began."""

    def summary(self, world: World, session: Session) -> str:
        world.read(session)
        (conversation,) = world.list()
        summary: str = conversation["summary"]
        return summary

    def test_record(self, world: World) -> None:
        session = Session("s").user("Hello", slug="velvet-puzzling-eclipse").answer("Hi.")
        session.bare(type="summary", summary="Project inspection", leafUuid=session.records[-1]["uuid"])

        assert self.summary(world, session) == "Project inspection"
        assert world.list()[0]["slug"] == "velvet-puzzling-eclipse"

    def test_record_ahead(self, world: World) -> None:
        """It may stand before the record that it names, or name none."""
        session = Session("s").prompt("Hello")
        session.records.insert(0, {"type": "summary", "summary": "Ahead", "leafUuid": session.records[0]["uuid"]})
        assert self.summary(world, session) == "Ahead"

        session.bare(type="summary", summary="Nameless")
        assert self.summary(world, session) == "Nameless"

    def test_record_of_another_session(self, world: World) -> None:
        """A record that names none of this session's is its summary as long as there is no better one: old versions
        wrote that of the session that this one goes on from at the top."""
        elsewhere = {"type": "summary", "summary": "Inherited", "leafUuid": "elsewhere"}
        session = Session("s").bare(**elsewhere).user("Hello", slug="velvet-puzzling-eclipse")
        assert self.summary(world, session) == "Inherited"
        (listed,) = world.library.sessions("2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z")["data"]["sessions"]
        assert listed["session"]["title"] == "Hello"

        session.bare(type="summary", summary="Own", leafUuid=session.records[-1]["uuid"])
        assert self.summary(world, session) == "Own"
        assert self.summary(world, session.bare(**elsewhere)) == "Own"

    def test_titles_are_no_summaries(self, world: World) -> None:
        session = Session("s").prompt("Hello").bare(type="custom-title", customTitle="A title", sessionId="s")
        session.add("system", subtype="away_summary", content="While you were away")

        assert self.summary(world, session.bare(type="ai-title", aiTitle="Another", sessionId="s")) == "Hello"

    def test_first_message(self, world: World) -> None:
        """The first 200 characters of the first prompt that a person typed."""
        session = Session("s").user("Injected", isMeta=True).user("<command-name>/clear</command-name>")

        assert self.summary(world, session.prompt("word " * 100).prompt("Later")) == ("word " * 100)[:200]

    def test_secrets(self, world: World) -> None:
        token = "sk-ant-api03-" + "a1B2c3D4" * 5

        assert "a1B2" not in self.summary(world, Session("s").prompt("x" * 170 + f" {token}"))
