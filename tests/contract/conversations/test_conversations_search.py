"""search_conversations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from tests.conversation_world import Json, Session, World, tool_use

TOKEN = "sk-ant-api03-" + "a1B2c3D4" * 5


def places(results: list[Json]) -> list[tuple[str, int]]:
    return [(result["session_id"], result["turn_number"]) for result in results]


class TestResults:
    """The fields of a result."""

    def test_fields(self, world: World) -> None:
        session = Session("s", "/home/dev/sites/shop").prompt("Hello").answer("Hi.")
        session.prompt("How do I debounce the watchdog?").call("Grep", {"pattern": "Timer"}, "").answer("Two seconds.")
        world.read(session)

        (result,) = world.search("watchdog debounce", pattern="-home-dev-sites*")

        assert list(result) == ["session_id", "project", "turn_number", "score", "snippet", "timestamp"]
        assert result == {
            "session_id": session.id,
            "project": "shop",
            "turn_number": 1,
            "score": result["score"],
            "snippet": "How do I debounce the watchdog?\nTwo seconds.\ntools: Grep",
            "timestamp": session.records[2]["timestamp"],
        }

    def test_score(self, world: World) -> None:
        """Raw BM25 to four decimals, best first."""
        for number in range(6):
            session = Session(f"s{number}").prompt("needle " * (number + 1) + "hay " * 10).answer("ok")
            session.write(world.home)
        world.read(Session("none").prompt("hay").answer("ok"))

        scores = [result["score"] for result in world.search("needle")]

        assert scores == sorted(scores, reverse=True)
        assert len(set(scores)) == 6
        assert all(score > 0 and score == round(score, 4) for score in scores)

    def test_ties(self, world: World) -> None:
        """Turns that say the same come newest first, every time, and a page ends in the middle of them."""
        starts = [1_780_000_000_000 + number * 60_000 for number in range(9)]
        sessions = [Session(str(start), start_ms=start).prompt("same").answer("same") for start in starts]
        world.read(*sessions[::2])
        world.read(*sessions[1::2])
        newest_first = [(session.id, 0) for session in reversed(sessions)]

        assert places(world.search("same")) == newest_first
        assert places(world.search("same", limit=4)) == newest_first[:4]
        world.library.reindex()
        assert places(world.search("same", limit=4)) == newest_first[:4]

    def test_snippet(self, world: World) -> None:
        """The first 300 characters of prompt, answer and tools' names, a line each."""
        answer = "and so on " * 40
        prompts = {length: f"word{length} " + "p" * length for length in (1, 280, 299, 300, 301, 5_000)}
        for prompt in prompts.values():
            session = Session(prompt).prompt(prompt).call("Write", {"file_path": "/a", "content": "x"}, "ok")
            session.call("Bash", {"command": "ls"}, "ok").answer(answer).write(world.home)
        world.library.sync()

        for length, prompt in prompts.items():
            (result,) = world.search(f'"word{length}"')
            assert result["snippet"] == f"{prompt}\n{answer}\ntools: Bash Write"[:300]

    def test_snippet_of_many_short_answers(self, world: World) -> None:
        session = Session("s").prompt("word")
        for number in range(40):
            session.answer(f"step {number}", None)
        world.read(session)

        (result,) = world.search("word")

        assert result["snippet"] == ("word\n" + "\n".join(f"step {n}" for n in range(40)) + "\ntools: ")[:300]

    def test_nothing_said(self, world: World) -> None:
        """A prompt without answer or tools."""
        world.read(Session("s").prompt("lonely"))

        assert world.search("lonely")[0]["snippet"] == "lonely\n\ntools: "

    def test_secrets(self, world: World) -> None:
        """Not even half of one is shown where the snippet ends."""
        prompts = [f"word {'x' * before} {TOKEN} and more" for before in (0, 250, 290)]
        world.read(*(Session(prompt).prompt(prompt) for prompt in prompts))

        results = world.search("word")

        assert len(results) == len(prompts)
        assert not any("a1B2" in result["snippet"] for result in results)

    def test_hostile_characters(self, world: World) -> None:
        """Characters that act unseen on a reader are not passed on, wherever they stand."""
        session = Session("s", "/home/dev/shop").user("word \x1b[31mred\u202e", gitBranch="ma\u200bin", slug="a\x07b")
        world.read(session.says(tool_use("Ba\u202esh", {"command": "x"}), "ok"))

        answers = [
            world.ask(tool, **arguments)
            for tool, arguments in {
                "search_conversations": {"query": "word"},
                "list_conversations": {},
                "read_conversation": {"session_id": session.id},
            }.items()
        ]

        assert not {"\x1b", "\u202e", "\u200b", "\x07"} & set(repr(answers).encode().decode("unicode_escape"))


class TestMatching:
    """The turns that are found."""

    def test_words_spread_over_a_turn(self, world: World) -> None:
        """One in the prompt, one in the answer, one a tool's name: the turn that has them all is the best."""
        session = Session("s").prompt("The carburettor coughs").call("WebSearch", {"query": "x"}, "")
        session.answer("Clean the venturi.").prompt("carburettor").answer("Which?").prompt("venturi").answer("Which?")
        world.read(session)

        results = world.search("carburettor venturi websearch")

        assert places(results) == [(session.id, 0), (session.id, 2), (session.id, 1)]

    def test_coloured_words(self, world: World) -> None:
        """A turn is found by its words as they are shown."""
        session = Session("s").prompt("\x1b[1mvent\x1b[22muri").answer("ok")
        world.read(session)

        assert places(world.search("venturi")) == [(session.id, 0)]

    def test_later_answers(self, world: World) -> None:
        """Everything said in a turn counts, not only its beginning."""
        session = Session("s").prompt("Go")
        for number in range(30):
            session.answer(f"step {number}", None)
        world.read(session.answer("Finally the quokka."))

        assert places(world.search("quokka")) == [(session.id, 0)]

    @pytest.fixture(scope="class")
    @classmethod
    def timers(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
        world = World(tmp_path_factory.mktemp("timers"))
        session = Session("s").prompt("debounce the watchdog timer in src/watch/timer.py of getUserName and user_id")
        world.read(session.says(tool_use("mcp__shop__add", {})).answer("naïveté 日本語"))
        yield world
        world.library.close()

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("DEBOUNCE", True),
            ("src/watch/timer.py", True),
            ("timer", True),
            ("getUserName", True),
            ("user name", True),
            ("user_id", True),
            ("naïveté", True),
            ("naivete", True),
            ("日本", True),
            ("the", True),
            ('"watchdog timer"', True),
            ('"timer watchdog"', False),
            ("mcp__shop__add", True),
            ("zebra", False),
            ("???", False),
            ('"', False),
            ("\\ ( * ~ +zebra", False),
            ("text:debounce^", True),
        ],
    )
    def test_queries(self, timers: World, query: str, found: bool) -> None:
        """Any word in any script, identifiers and paths whole and by part; nothing is syntax but double quotes."""
        assert bool(timers.search(query)) is found

    def test_a_long_query(self, world: World) -> None:
        """A pasted page is a question too."""
        world.read(Session("s").prompt("needle").answer("ok"))

        assert len(world.search("needle " + "some other words " * 20_000)) == 1

    def test_limit(self, world: World) -> None:
        world.read(*(Session(f"s{n}").prompt("same words").answer("ok") for n in range(25)))

        assert len(world.search("same")) == 10
        assert len(world.search("same", limit=1)) == 1
        assert len(world.search("same", limit=24)) == 24
        assert len(world.search("same", limit=10**30)) == 25


class TestFilters:
    """Where to look."""

    @pytest.fixture
    def sites(self, world: World) -> dict[str, Session]:
        folders = ("/home/dev/sites/shop", "/home/dev/sites/blog", "/home/dev/sites", "/srv/engine")
        sessions = {folder: Session(folder, folder).prompt("same words").answer("ok") for folder in folders}
        world.read(*sessions.values())
        return sessions

    PROJECTS: ClassVar[dict[str | None, set[str]]] = {
        None: {"shop", "blog", "-home-dev-sites"},
        "": {"shop", "blog", "-home-dev-sites"},
        "shop": {"shop"},
        "SHO": {"shop"},
        "o": {"shop", "blog", "-home-dev-sites"},
        "home": {"-home-dev-sites"},
        "engine": set(),
        "%": set(),
        "*": set(),
    }

    def test_project(self, world: World, sites: Any) -> None:
        """A part of the name the project has under the pattern, in any case; no wildcards."""
        for project, found in self.PROJECTS.items():
            results = world.search("same", pattern="-home-dev-sites*", project=project)
            assert {result["project"] for result in results} == found, project

    def test_session(self, world: World, sites: dict[str, Session]) -> None:
        session = sites["/home/dev/sites/blog"]

        assert places(world.search("same", session_id=session.id)) == [(session.id, 0)]
        assert world.search("same", session_id=session.id, project="shop") == []

    def test_sessions_out_of_sight(self, world: World, sites: dict[str, Session]) -> None:
        """A session that the pattern leaves out is not found by its id either, nor one that does not exist."""
        outside = sites["/srv/engine"].id

        for id in (outside, "", "nonsense", "../" + outside, f"claude-code/{outside}", "%", "a\x00b", "\ud800"):
            assert world.search("same", pattern="-home-dev-sites*", session_id=id) == []

    def test_other_agents(self, world: World) -> None:
        """These tools are about Claude Code's sessions."""
        folder = world.home / ".codex" / "sessions" / "2026" / "01" / "02"
        folder.mkdir(parents=True)
        (folder / "rollout-2026-01-02T03-04-05-0198a001-0000-4000-8000-00000000000d.jsonl").write_text(
            '{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"0198a001-0000-4000-8000-'
            '00000000000d","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/home/dev/sites/shop","originator":"codex"}}\n'
            '{"timestamp":"2026-01-02T03:04:06.000Z","type":"event_msg","payload":{"type":"user_message",'
            '"message":"same words"}}\n'
        )
        world.library.sync()

        assert world.library.archive.counts().by_source == {"codex": 1}
        assert (world.search("same"), world.list()) == ([], [])
