"""read_turn and read_conversation."""

from __future__ import annotations

import random

import pytest

from tests.conversation_world import Session, World


class TestReadTurn:
    """One turn in full."""

    def test_fields(self, world: World) -> None:
        session = Session("s").prompt("Hello").answer("Hi.").prompt("Look").call("Read", {"file_path": "/a"}, "...")
        world.read(session.answer("Seen."))

        turn = world.ask("read_turn", session_id=session.id, turn_number=1)

        assert list(turn.items()) == [
            ("session_id", session.id),
            ("turn_number", 1),
            ("timestamp", session.records[2]["timestamp"]),
            ("user_text", "Look"),
            ("assistant_text", "Seen."),
            ("tools_used", [{"tool": "Read", "file": "/a"}]),
        ]

    def test_out_of_range(self, world: World) -> None:
        """The error says how many turns there are."""
        session = Session("s").prompt("One").prompt("Two")
        world.read(session)

        for number in (-1, -(10**30), 2, 3, 10**30):
            answer = world.ask("read_turn", session_id=session.id, turn_number=number)
            assert answer == {"error": f"Turn {number} out of range (session has 2 turns)"}

    def test_large(self, world: World) -> None:
        """Two megabytes and more come back to the last character."""
        words = random.Random(1).choices(["alpha", "beta", "ñandú", "日本", "x = 1;", "\n", "\t"], k=400_000)
        text = " ".join(words)
        assert len(text.encode()) > 2_000_000
        session = (
            Session("s").prompt(text).answer(text).call("Write", {"file_path": "/a", "content": text[:9000]}, "ok")
        )
        world.read(session)

        turn = world.ask("read_turn", session_id=session.id, turn_number=0)

        assert turn["user_text"] == text
        assert turn["assistant_text"] == text
        assert turn["tools_used"] == [{"tool": "Write", "file": "/a", "chars": 9000}]

    def test_transcript_gone(self, world: World) -> None:
        """Conversations that were read stay when the agent purges its files."""
        session = Session("s").prompt("Precious words").answer("Kept.")
        path = session.write(world.home)
        world.library.sync()
        path.unlink()
        path.parent.rmdir()
        world.library.sync()

        assert world.ask("read_turn", session_id=session.id, turn_number=0)["user_text"] == "Precious words"
        assert len(world.search("precious")) == len(world.list()) == 1

    def test_growing(self, world: World) -> None:
        """A turn read while it is still going on has what was said so far."""
        session = Session("s").prompt("Go").answer("First.", None)
        world.read(session)
        before = world.ask("read_turn", session_id=session.id, turn_number=0)
        world.read(session.answer("Second."))
        after = world.ask("read_turn", session_id=session.id, turn_number=0)

        assert (before["assistant_text"], after["assistant_text"]) == ("First.", "First.\nSecond.")
        assert len(world.search("first second")) == 1


class TestReadConversation:
    """A session, a page at a time."""

    @pytest.fixture
    def session(self, world: World) -> Session:
        session = Session("s", "/home/dev/sites/shop")
        for number in range(24):
            session.prompt(f"Question {number}").answer(f"Answer {number}")
        world.read(session)
        return session

    def test_fields(self, world: World, session: Session) -> None:
        part = world.ask("read_conversation", pattern="-home-dev-sites*", session_id=session.id)

        turns = part.pop("turns")
        assert list(part.items()) == [
            ("session_id", session.id),
            ("project", "shop"),
            ("cwd", "/home/dev/sites/shop"),
            ("git_branch", "main"),
            ("total_turns", 24),
            ("offset", 0),
            ("limit", 10),
        ]
        assert turns == [world.ask("read_turn", session_id=session.id, turn_number=number) for number in range(10)]

    def test_pages(self, world: World, session: Session) -> None:
        """A page begins and ends where it is asked to, within the session."""
        for offset, limit, numbers in (
            (10, 10, range(10, 20)),
            (20, 10, range(20, 24)),
            (23, 1, range(23, 24)),
            (24, 10, range(0)),
            (10**30, 10**30, range(0)),
            (0, 10**30, range(24)),
        ):
            part = world.ask("read_conversation", session_id=session.id, offset=offset, limit=limit)
            assert [turn["turn_number"] for turn in part["turns"]] == list(numbers), (offset, limit)
            assert (part["offset"], part["limit"], part["total_turns"]) == (offset, limit, 24)


class TestUnknown:
    """Sessions that are not there, for whatever reason."""

    @pytest.mark.parametrize(("tool", "place"), [("read_turn", {"turn_number": 0}), ("read_conversation", {})])
    def test_no_such_session(self, world: World, tool: str, place: dict[str, int]) -> None:
        world.read(Session("s").prompt("Hello"))
        absent = "00000000-0000-4000-8000-000000000000"
        for id in (absent, "", "nonsense", "../../etc/passwd", "*", "%", "' OR 1=1 --", "a\nb"):
            assert world.ask(tool, session_id=id, **place) == {"error": f"Unknown session_id: {id}"}

    def test_an_endless_id(self, world: World) -> None:
        """Is repeated in part."""
        error = world.ask("read_conversation", session_id="x" * 100_000)["error"]

        assert error.startswith("Unknown session_id: xxx")
        assert len(error) < 4096

    def test_out_of_sight(self, world: World) -> None:
        """Conversations that the pattern leaves out are not there."""
        session = Session("s", "/srv/engine").prompt("Hello")
        world.read(session)

        for tool, place in (("read_turn", {"turn_number": 0}), ("read_conversation", {})):
            answer = world.ask(tool, pattern="-home-dev*", session_id=session.id, **place)
            assert answer == {"error": f"Unknown session_id: {session.id}"}
            assert "error" not in world.ask(tool, pattern="-srv*", session_id=session.id, **place)

    def test_hostile(self, world: World) -> None:
        """The answer can be written down and read without harm."""
        for id in ("\ud83d", "a\x1b[31mb", "\u202eb"):
            error = world.ask("read_turn", session_id=id, turn_number=0)["error"]

            assert error.startswith("Unknown session_id: ")
            assert error.isprintable()
            assert error.encode()
