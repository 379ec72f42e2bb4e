"""Subagents: sessions of their own, linked to the call that started them, wherever their records stand."""

from __future__ import annotations

from pathlib import Path

from claude_code_transcript import (
    SESSION,
    Records,
    call,
    describe,
    events,
    feed,
    feed_with_restarts,
    load,
    prompts,
    transcript,
    write,
)

from backstory.model import EventType
from backstory.sources.base import About, Item, TurnEnd, Usage

CHILD = f"{SESSION}/agent-a1"


def links(items: list[Item]) -> list[About]:
    return [item for item in items if isinstance(item, About) and item.parent]


def place(folder: Path) -> Path:
    return folder / "projects" / "-x" / f"{SESSION}.jsonl"


class Scene:
    """A session that starts one subagent, and the subagent's own records."""

    def __init__(self) -> None:
        r, a = Records(), Records(isSidechain=True, agentId="a1")
        a.user("shift")  # so that no uuid is used twice
        for _ in range(50):
            a.user("shift")
        self.task = a.user("count the views")
        self.search = a.assistant(call("Grep", id="toolu_g"))
        self.found = a.result("toolu_g", "3 files")
        self.answer = a.assistant("There are three.", stop="end_turn")
        self.begin = [
            r.user("how many views?"),
            r.assistant(call("Task", id="toolu_t", description="Count views", prompt="count the views")),
        ]
        first = {**self.task, "message": {"role": "user", "content": [{"type": "text", "text": "count the views"}]}}
        self.nested = [r.progress("a1", "toolu_t", inner) for inner in (first, self.search, self.found)]
        self.end = [
            r.result("toolu_t", "There are three.", toolUseResult={"status": "completed", "agentId": "a1"}),
            r.assistant("Three.", stop="end_turn"),
        ]

    @property
    def own(self) -> list[dict]:
        return [self.task, self.search, self.found, self.answer]


class TestOwnTranscript:
    def test_identity(self, tmp_path: Path) -> None:
        """A subagent's session is named after its parent's and its own id, wherever below `subagents` it lies."""
        folder = place(tmp_path).with_suffix("") / "subagents"
        for path in (folder / "agent-a1.jsonl", folder / "workflows" / "wf_1" / "agent-a1.jsonl"):
            found = describe(write(path, Scene().own))
            assert found is not None
            assert (found.session, found.parent) == (CHILD, SESSION)

    def test_early_layout(self, tmp_path: Path) -> None:
        """Subagents once lay beside their session: their records name it."""
        found = describe(write(place(tmp_path).with_name("agent-a1.jsonl"), Scene().own))
        assert found is not None
        assert (found.session, found.parent) == (CHILD, SESSION)

    def test_under_another_name(self, tmp_path: Path) -> None:
        """A subagent's transcript that was renamed is still the subagent's."""
        found = describe(write(tmp_path / "saved.jsonl", Scene().own))
        assert found is not None
        assert (found.session, found.parent) == (CHILD, SESSION)

    def test_its_turn(self) -> None:
        """Its task starts its first turn, and its answer ends it."""
        yielded = events(feed(Scene().own, transcript(session=CHILD, parent=SESSION)))
        assert [event.starts_turn for event in yielded] == [True, False, False, False]
        assert yielded[-1].ends_turn

    def test_meta_file(self, tmp_path: Path) -> None:
        """The file beside it says what it is about and which call started it."""
        path = write(place(tmp_path).with_suffix("") / "subagents" / "agent-a1.jsonl", Scene().own)
        path.with_suffix(".meta.json").write_text('{"agentType": "Explore", "description": "Count", "toolUseId": "t"}')
        items = feed(load(path), describe(path))
        (about,) = [item for item in items if isinstance(item, About) and item.title]
        assert (about.title, about.title_rank, about.parent_call) == ("Count", 2, "t")


class TestLink:
    def test_response_names_the_child(self) -> None:
        """The response to the call carries the child's session; the child gets its parent, call and title, once."""
        scene = Scene()
        items = feed([*scene.begin, *scene.end])
        (response,) = events(items, EventType.TOOL_RESPONSE)
        assert response.extra == {"child_session": CHILD}
        (link,) = links(items)
        assert (link.session, link.parent, link.parent_call, link.title) == (CHILD, SESSION, "toolu_t", "Count views")

    def test_child_of_a_child(self) -> None:
        """A subagent's subagent belongs to the one that started it, under the same session's folder."""
        scene = Scene()
        items = feed([*scene.begin, *scene.end], transcript(session=f"{SESSION}/agent-a0", parent=SESSION))
        (link,) = links(items)
        assert (link.session, link.parent) == (CHILD, f"{SESSION}/agent-a0")


class TestNestedRecords:
    def test_belong_to_the_child(self) -> None:
        """Records repeated in progress are the child's where it has no transcript, and never the parent's."""
        scene = Scene()
        items = feed([*scene.begin, *scene.nested, *scene.end])
        assert prompts(items) == ["how many views?"]
        assert prompts(items, CHILD) == ["count the views"]
        assert [event.tool for event in events(items, session=CHILD)] == [None, "Grep", "Grep", None]
        assert [event.tool for event in events(items) if event.tool] == ["Task", "Task"]
        assert len(links(items)) == 1

    def test_the_answer_it_handed_back(self) -> None:
        """Its answer stands only in the parent's response: it is yielded as the child's, too, and ends its turn."""
        scene = Scene()
        records = [*scene.begin, *scene.nested, *scene.end]
        items = feed(records)
        (response,) = [event for event in events(items, EventType.TOOL_RESPONSE) if event.tool == "Task"]
        answer = events(items, session=CHILD)[-1]
        assert (answer.type, answer.text, answer.ends_turn) == (EventType.ASSISTANT_RESPONSE, response.text, True)
        assert answer.model == "claude-opus-4-8"
        assert answer.uid not in {event.uid for event in events(items)}
        assert feed(records) == feed_with_restarts(records)

    def test_a_child_that_failed(self) -> None:
        """A response that is an error is no answer of the child's."""
        scene = Scene()
        error = Records().result("toolu_t", "stopped", error=True, toolUseResult={"agentId": "a1"})
        items = feed([*scene.begin, *scene.nested, error])
        assert events(items, EventType.ASSISTANT_RESPONSE, session=CHILD) == []

    def test_not_doubled_by_its_transcript(self, tmp_path: Path) -> None:
        """Where the child has a transcript, only that is read."""
        scene, path = Scene(), place(tmp_path)
        records = [*scene.begin, *scene.nested, *scene.end]
        write(path.with_suffix("") / "subagents" / "agent-a1.jsonl", scene.own)
        items = feed(records, transcript(path))
        assert events(items, session=CHILD) == []
        assert len(links(items)) == 1

    def test_same_events_as_its_transcript(self) -> None:
        """Should the transcript appear later, the nested records turn out to be the same events."""
        scene = Scene()
        nested = events(feed([*scene.begin, *scene.nested]), session=CHILD)
        own = events(feed(scene.own, transcript(session=CHILD, parent=SESSION)))
        assert [event.uid for event in nested] == [event.uid for event in own[:3]]
        assert [event.text for event in nested] == [event.text for event in own[:3]]

    def test_other_progress(self) -> None:
        """Ticks of hooks and commands say nothing."""
        tick = Records().record("progress", data={"type": "bash_progress", "output": "..."})
        assert events(feed([tick])) == []


class TestSidechains:
    def test_between_the_sessions_own_records(self) -> None:
        """In the first transcripts each chain of sidechain records is a child, linked by its prompt."""
        r, s = Records(version="1.0.24"), Records(version="1.0.24", isSidechain=True)
        [s.user("shift") for _ in range(50)]
        s._last = None
        a = [s.user("count the views"), s.assistant(call("Grep", id="g")), s.result("g", "3"), s.assistant("Three.")]
        s._last = None
        b = [s.user("count the tests"), s.assistant("Nine.")]
        task_a = call("Task", id="ta", prompt="count the views", description="Views")
        task_b = call("Task", id="tb", prompt="count the tests", description="Tests")
        interleaved = [a[0], b[0], a[1], b[1], a[2], a[3]]
        done = [r.result("tb", "Nine."), r.result("ta", "Three.")]
        items = feed([r.user("count"), r.assistant(task_a, task_b), *interleaved, *done, r.assistant("3 and 9.")])
        assert prompts(items) == ["count"]
        assert [event.text for event in events(items, EventType.ASSISTANT_RESPONSE)] == ["3 and 9."]
        chains = {link.parent_call: link.session for link in links(items)}
        assert prompts(items, chains["ta"]) == ["count the views"]
        assert [event.text for event in events(items, session=chains["tb"])] == ["count the tests", "Nine."]
        assert len(events(items, session=chains["ta"])) == 4
        responses = events(items, EventType.TOOL_RESPONSE)
        assert [event.extra["child_session"] for event in responses] == [chains["tb"], chains["ta"]]

    def test_answer_in_several_blocks(self) -> None:
        """A child whose records are all there has its answer already, also when it is handed back as one text."""
        r, s = Records(version="1.0.24"), Records(version="1.0.24", isSidechain=True)
        [s.user("shift") for _ in range(50)]
        s._last = None
        child = [s.user("count"), s.assistant("Three.", "And that is all.")]
        begin = [r.user("go"), r.assistant(call("Task", prompt="count"))]
        items = feed([*begin, *child, r.result("toolu_1", "Three.\nAnd that is all.")])
        (link,) = links(items)
        assert [event.text for event in events(items, session=link.session)][1:] == ["Three.", "And that is all."]
        assert [item.session for item in items if isinstance(item, TurnEnd)] == [link.session, None]

    def test_file_of_nothing_else(self) -> None:
        """Where all records are marked so, they are the file's own."""
        s = Records(isSidechain=True)
        assert prompts(feed([s.user("hello")])) == ["hello"]


class TestHelpers:
    """Runs Claude Code starts for itself."""

    def scene(self, tmp_path: Path) -> tuple[Path, Path]:
        path, r, h = place(tmp_path), Records(), Records(isSidechain=True, agentId="aprompt_suggestion-1f")
        [h.user("shift") for _ in range(50)]
        records = [r.user("go"), r.assistant({"type": "thinking", "thinking": "Hm."})]
        lost = h.assistant("Here it is.", message={"usage": {"input_tokens": 1, "output_tokens": 2}})
        lost["parentUuid"], r._last = r._last, lost["uuid"]
        records += [r.record("progress", data={"type": "hook_progress"}), r.system("turn_duration"), r.user("thanks")]
        guess = [
            h.user("[SUGGESTION MODE: Suggest what the user might type.]"),
            h.assistant("commit", message={"usage": {"output_tokens": 1}}),
        ]
        helper = path.with_suffix("") / "subagents" / "agent-aprompt_suggestion-1f.jsonl"
        write(helper, [lost, *guess])
        return write(path, records), helper

    def test_no_sessions(self, tmp_path: Path) -> None:
        """A helper is part of the session it helps, and says only what it cost."""
        _, helper = self.scene(tmp_path)
        found = describe(helper)
        assert found is not None
        assert (found.session, found.parent, found.folder) == (SESSION, None, "-x")
        assert {type(item) for item in feed(load(helper), found)} == {Usage}

    def test_displaced_answers(self, tmp_path: Path) -> None:
        """An answer that stands only in a helper's file is put back where the session goes on from it."""
        path, _ = self.scene(tmp_path)
        yielded = events(feed(load(path), describe(path)))
        assert [event.text for event in yielded] == ["go", "Hm.", "Here it is.", "thanks"]
        assert yielded[2].session is None

    def test_once(self, tmp_path: Path) -> None:
        """It is put back once, also when reading stops and goes on, and in whichever folder the helper ran."""
        path, helper = self.scene(tmp_path)
        other = tmp_path / "projects" / "-x-src" / SESSION / "subagents"
        other.mkdir(parents=True)
        helper.rename(other / helper.name)
        r = Records()
        again = {**r.user("more"), "parentUuid": load(other / helper.name)[0]["uuid"], "uuid": "later"}
        yielded = events(feed([*load(path), again], describe(path)))
        assert [event.text for event in yielded].count("Here it is.") == 1
