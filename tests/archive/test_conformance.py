"""The behaviour of every engine, written against `archive.base` alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from backstory.archive.base import (
    Archive,
    ArchiveBusy,
    Batch,
    DeadlineExceeded,
    EventRow,
    ExchangeRow,
    ExchangesRequest,
    FileRow,
    FilesRequest,
    FolderRow,
    Head,
    Part,
    SearchRequest,
    SessionRow,
    SessionsRequest,
    SyncState,
    TurnRow,
    UsageRow,
    Writer,
    any_folder,
)
from backstory.model import (
    DEFAULT_TYPES,
    SEARCHABLE_TYPES,
    EventRef,
    EventType,
    SessionRef,
    TurnRef,
    digest,
    event_id,
    session_id,
    session_mark,
)

NOW = 1_780_000_000_000
MINUTE = 60_000
KEY = "codex/one"
PROMPT, ANSWER, CALL, RESULT = (
    EventType.USER_INPUT,
    EventType.ASSISTANT_RESPONSE,
    EventType.TOOL_CALL,
    EventType.TOOL_RESPONSE,
)
Said = tuple[EventType, str]


def uid(key: str, turn: int, ordinal: int) -> bytes:
    return digest(key, str(turn), str(ordinal))


def session(key: str = KEY, **fields: object) -> SessionRow:
    start = fields.pop("start", NOW)
    row = SessionRow(key=key, source=key.partition("/")[0], title=f"About {key}", started_at=start, updated_at=start)  # type: ignore[arg-type]
    return msgspec.structs.replace(row, **fields)


def event(key: str, turn: int, ordinal: int, kind: EventType, text: str, ts: int) -> EventRow:
    is_call = kind is CALL
    return EventRow(
        uid=uid(key, turn, ordinal),
        session=key,
        turn=turn,
        ordinal=ordinal,
        type=kind,
        ts=ts,
        text="" if is_call else text,
        tool="Bash" if is_call else None,
        arguments={"command": text} if is_call else None,
        call_id="call" if kind in (CALL, RESULT) else None,
    )


def batch(row: SessionRow, *turns: list[Said]) -> Batch:
    """A session with these turns; its events are a second apart."""
    made = Batch(sessions=[row])
    for number, said in enumerate(turns, 1):
        events = [
            event(row.key, number, ordinal, kind, text, row.started_at + (number * 100 + ordinal) * 1000)
            for ordinal, (kind, text) in enumerate(said, 1)
        ]
        made.events += events
        kinds = [each.type for each in events]
        made.turns.append(
            TurnRow(
                session=row.key,
                ordinal=number,
                started_at=events[0].ts,
                updated_at=events[-1].ts,
                event_count=len(events),
                prompt=events[0].uid if kinds[0] is PROMPT else None,
                terminal=events[-1].uid if kinds[-1] is ANSWER else None,
                terminal_type=ANSWER if kinds[-1] is ANSWER else None,
                tools=("Bash",) if CALL in kinds else (),
                types=tuple(dict.fromkeys(kinds)),
            )
        )
    row.turn_count, row.event_count = len(turns), len(made.events)
    row.updated_at = max([row.updated_at, *(each.ts for each in made.events)])
    return made


@contextmanager
def writing(archive: Archive) -> Iterator[Writer]:
    writer = archive.writer()
    try:
        writer.recover()
        yield writer
    finally:
        writer.close()


def write(archive: Archive, *batches: Batch) -> None:
    with writing(archive) as writer:
        for each in batches:
            writer.write(each)


def talk(word: str = "needle") -> list[Said]:
    return [(PROMPT, f"find the {word}"), (CALL, f"grep {word}"), (RESULT, f"{word} is here"), (ANSWER, "found it")]


def found(archive: Archive, query: str, **options: object) -> list[str]:
    options.setdefault("types", DEFAULT_TYPES)
    return [hit.event.text for hit in archive.search(SearchRequest(query=query, **options)).hits]  # type: ignore[arg-type]


def keys(archive: Archive, **options: object) -> list[str]:
    return [row.key for row in archive.sessions(SessionsRequest(**options))]  # type: ignore[arg-type]


class TestWriting:
    def test_rows_come_back_as_they_were_written(self, engine: Archive) -> None:
        row = session(cwd="/home/dev/shop", branch="main", slug="a-slug", mode="tool_calling", forked_from="codex/x")
        made = batch(row, talk(), [(PROMPT, "x" * 5000), (ANSWER, "数据库 ✓")])
        usage = UsageRow(key=b"u" * 16, session=KEY, turn=1, ts=NOW, model="m", input_tokens=7, cost=0.5)
        made.usage = [usage]
        write(engine, made)
        assert engine.session(KEY) == row
        assert engine.turns(KEY) == made.turns
        events = [each for turn in (1, 2) for each in engine.events(KEY, turn)]
        assert [msgspec.structs.replace(each, text="") for each in events] == [
            msgspec.structs.replace(each, text="") for each in made.events
        ]
        assert events[1].text == 'Bash(command="grep needle")'
        assert [events[4].text, events[5].text] == ["x" * 5000, "数据库 ✓"]
        assert engine.turns(KEY, Part(usage=True))[0].usage == [usage]

    def test_the_same_rows_again_change_nothing(self, engine: Archive) -> None:
        made = batch(session(), talk())
        write(engine, made)
        write(engine, Batch(sessions=made.sessions, turns=made.turns, replaced=made.events))
        assert engine.counts().events == 4
        assert len(engine.events(KEY, 1)) == 4
        assert sorted(found(engine, "needle")) == ["find the needle", "needle is here"]

    def test_usage_takes_the_larger_numbers(self, engine: Archive) -> None:
        rows = [
            UsageRow(key=b"u" * 16, session=KEY, turn=1, ts=NOW, output_tokens=tokens, stop_reason=reason)
            for tokens, reason in ((5, None), (9, "end"), (7, None))
        ]
        write(engine, batch(session(), talk()), *(Batch(usage=[row]) for row in rows))
        (usage,) = engine.turns(KEY, Part(usage=True))[0].usage
        assert (usage.output_tokens, usage.stop_reason) == (9, "end")

    def test_a_batch_is_written_whole_or_not_at_all(self, engine: Archive) -> None:
        made = batch(session(), talk())
        broken = msgspec.structs.replace(made.events[1], uid=b"b" * 16, ordinal=9, arguments={"of": object()})
        with writing(engine) as writer:
            with pytest.raises(TypeError):
                writer.write(msgspec.structs.replace(made, events=[*made.events, broken]))
            assert engine.session(KEY) is None
            writer.write(made)
        assert engine.counts().events == 4
        assert len(found(engine, "needle")) == 2

    def test_the_writer_reads_what_it_wrote(self, engine: Archive) -> None:
        with writing(engine) as writer:
            writer.write(batch(session(), talk()))
            assert writer.session(KEY) == engine.session(KEY)
            assert writer.turns(KEY) == engine.turns(KEY)
            assert writer.events(KEY, 1) == engine.events(KEY, 1)

    def test_there_is_one_writer(self, engine: Archive) -> None:
        with writing(engine), pytest.raises(ArchiveBusy):
            engine.writer()
        engine.writer().close()

    def test_what_is_flushed_is_found(self, engine: Archive) -> None:
        with writing(engine) as writer, writer.bulk(1000):
            writer.write(batch(session(), talk()))
            writer.flush()
            assert len(found(engine, "needle")) == 2


class TestReplacing:
    def test_an_event_under_its_uid(self, engine: Archive) -> None:
        """The record and the index have the new text, in the old place."""
        made = batch(session(), talk("apricot"))
        write(engine, made)
        after = msgspec.structs.replace(made.events[2], text="a banana instead")
        for _ in range(2):
            write(engine, Batch(sessions=made.sessions, turns=made.turns, replaced=[after]))
            assert [each.text for each in engine.events(KEY, 1)][2] == "a banana instead"
            assert found(engine, "apricot") == ["find the apricot"]
            assert found(engine, "banana") == ["a banana instead"]
        assert engine.counts().documents == 4

    def test_before_and_after_a_rebuilt_index(self, engine: Archive) -> None:
        made = batch(session(), talk("apricot"))
        write(engine, made)
        after = msgspec.structs.replace(made.events[0], text="a cherry")
        write(engine, Batch(sessions=made.sessions, turns=made.turns, replaced=[after]))
        with writing(engine) as writer:
            writer.recover(reindex=True)
        assert found(engine, "cherry") == ["a cherry"]
        assert "find the apricot" not in found(engine, "find")
        assert engine.counts().documents == 4

    def test_an_exchange_follows_its_events(self, engine: Archive) -> None:
        made = batch(session("claude-code/a", folder="-home", last_at=NOW, exchange_count=1), talk("apricot"))
        exchange = ExchangeRow(session="claude-code/a", number=0, ts=NOW, user=made.events[0].uid)
        exchange.said += made.events[3].uid
        write(engine, msgspec.structs.replace(made, exchanges=[exchange]))
        after = msgspec.structs.replace(made.events[3], text="a banana instead")
        write(engine, Batch(sessions=made.sessions, turns=made.turns, replaced=[after], exchanges=[exchange]))
        request = ExchangesRequest(query="banana", limit=5)
        assert [[each.text for each in hit.said] for hit in engine.exchanges(request)] == [["a banana instead"]]
        assert list(engine.exchanges(ExchangesRequest(query="found", limit=5))) == []


class TestDeleting:
    def test_removed_sessions_can_be_read_again(self, engine: Archive) -> None:
        file = FileRow(path="/t/one", source="codex", session="one", offset=10)
        made = batch(session(), talk())
        other = batch(session("codex/two"), talk())
        write(engine, msgspec.structs.replace(made, files=[file]), other)
        write(engine, Batch(removed=[KEY]))
        assert (engine.session(KEY), engine.turns(KEY), engine.events(KEY, 1)) == (None, [], [])
        assert list(engine.files()) == []
        assert len(found(engine, "needle")) == 2
        assert not engine.forgotten([session_mark(KEY), made.events[0].uid])
        write(engine, made)
        assert len(found(engine, "needle")) == 4

    @pytest.mark.parametrize("wipe", [True, False])
    @pytest.mark.parametrize("remember", [True, False])
    def test_forgotten_sessions(self, engine: Archive, remember: bool, wipe: bool) -> None:
        """With those that they started; by its digests the content is recognised, unless `remember` is off."""
        made = batch(session(), talk("secret"))
        made.turns[0].turn_key = "t1"
        child = batch(session("codex/child", parent=KEY), talk("secret"))
        write(engine, made, child, batch(session("codex/other"), talk()))
        engine.forget(KEY, remember=remember, wipe=wipe)
        assert engine.sync_state().forgetting == (KEY,)
        with writing(engine):
            pass
        assert engine.sync_state().forgetting == ()
        assert engine.sync_state().recovered
        assert found(engine, "secret", types=SEARCHABLE_TYPES) == []
        assert keys(engine, empty=True) == ["codex/other"]
        marks = [session_mark(KEY), made.events[0].uid, child.events[0].uid]
        assert engine.forgotten([*marks, session_mark("codex/other")]) == (frozenset(marks) if remember else set())
        assert engine.turn_keys(KEY) == ({"t1"} if remember else set())

    def test_digests_of_a_batch(self, engine: Archive) -> None:
        with writing(engine) as writer:
            assert not writer.forgotten([b"d" * 16])
            writer.write(Batch(forgotten=[b"d" * 16]))
            assert writer.forgotten([b"d" * 16])
        assert engine.forgotten([b"d" * 16, b"e" * 16]) == {b"d" * 16}


class TestSearching:
    @pytest.fixture(scope="class")
    @classmethod
    def world(cls, shared: Archive) -> Archive:
        write(
            shared,
            batch(session("codex/a", cwd="/home/dev/Shop", folder="/home/dev/Shop"), talk(), talk("needle again")),
            batch(session("codex/b", start=NOW + 60 * MINUTE), talk()),
            batch(session("claude-code/c", start=NOW + 120 * MINUTE), talk()),
        )
        return shared

    @pytest.mark.parametrize(
        ("options", "count"),
        [
            ({}, 8),
            ({"types": SEARCHABLE_TYPES}, 12),
            ({"types": (CALL,)}, 4),
            ({"types": (PROMPT,)}, 4),
            ({"session": "codex/a"}, 4),
            ({"session": "codex/a", "turn": 2}, 2),
            ({"source": "codex"}, 6),
            ({"source": "nobody"}, 0),
            ({"since": NOW + 60 * MINUTE}, 4),
            ({"until": NOW + 60 * MINUTE}, 4),
            ({"since": NOW + 60 * MINUTE, "until": NOW + 120 * MINUTE}, 2),
            ({"source": "codex", "types": (RESULT,), "since": NOW + 60 * MINUTE}, 1),
        ],
    )
    def test_filters(self, world: Archive, options: dict[str, object], count: int) -> None:
        assert len(found(world, "needle", limit=50, **options)) == count

    def test_projects(self, engine: Archive) -> None:
        made = batch(session(), talk())
        for each in made.events:
            each.cwd = "/home/dev/Shop"
        write(engine, made, batch(session("codex/two"), talk()))
        assert len(found(engine, "needle", project="dev/SHOP")) == 2
        assert found(engine, "needle", project="elsewhere") == []

    def test_repositories_of_folders(self, engine: Archive) -> None:
        """Sessions in a folder get its identity, unless they have that of a remote; folders below it are found, too."""
        made = batch(session(cwd="/home/dev/shop"), talk())
        for each in made.events:
            each.cwd = "/home/dev/shop/src"
        others = [
            batch(session("codex/two", cwd="/home/dev/shop", project="shop@1f3a"), talk()),
            batch(session("codex/three", cwd="/home/dev/shop", project="example.com/fork"), talk()),
            batch(session("codex/four", cwd="/home/dev/other"), talk()),
        ]
        write(engine, made, *others, Batch(projects={"/home/dev/shop": "example.com/acme/till"}))
        assert sorted(keys(engine, project="ACME/till")) == [KEY, "codex/two"]
        assert keys(engine, project="fork") == ["codex/three"]
        assert sorted(keys(engine, placed=True)) == [KEY, "codex/three", "codex/two"]
        assert len(found(engine, "needle", project="acme/TILL")) == 2

    def test_unknown_places(self, world: Archive) -> None:
        """Are reported as unknown, unlike places without a match."""
        for session_, turn, known in (("codex/a", None, True), ("codex/a", 9, False), ("codex/z", None, False)):
            request = SearchRequest(query="nothing", types=DEFAULT_TYPES, session=session_, turn=turn)
            assert world.search(request).known is known

    def test_hits_have_their_rows(self, world: Archive) -> None:
        hit = world.search(SearchRequest(query="needle", types=(CALL,), session="codex/b")).hits[0]
        assert hit.session == world.session("codex/b")
        assert hit.turn == world.turns("codex/b")[0]
        assert hit.event == world.events("codex/b", 1)[1]

    def test_all_terms_come_before_some(self, engine: Archive) -> None:
        said = [(PROMPT, "migration migration migration"), (ANSWER, "the migration of the schema")]
        write(engine, batch(session(), said))
        assert found(engine, "schema migration") == ["the migration of the schema", "migration migration migration"]

    def test_ties_are_broken_exactly(self, engine: Archive) -> None:
        """By time, the newest first, then by event id; a page never depends on the order of writing."""
        batches = []
        for number in (3, 1, 4, 2, 0):
            made = batch(session(f"codex/{number}"), [(PROMPT, "the same words")])
            made.events[0].ts = made.turns[0].started_at = NOW + (number // 2) * MINUTE
            batches.append(made)
        write(engine, *batches)
        request = SearchRequest(query="same words", types=DEFAULT_TYPES)
        order = [(-hit.event.ts, event_id(hit.event.uid)) for hit in engine.search(request).hits]
        assert order == sorted(order)
        assert len(order) == 5
        for limit in (1, 2, 3, 4):
            page = engine.search(msgspec.structs.replace(request, limit=limit))
            assert [(-hit.event.ts, event_id(hit.event.uid)) for hit in page.hits] == order[:limit]
            assert page.more

    def test_a_page_is_the_beginning_of_a_longer_one(self, engine: Archive) -> None:
        """Events of a session are evidence for one another, also those that a short page has no room for."""
        long = "needle" + 50 * " straw"
        write(
            engine,
            batch(session("codex/a", start=NOW + MINUTE), [(PROMPT, "one needle")]),
            batch(session("codex/b"), [(PROMPT, "two needle")], *([(PROMPT, long)] for _ in range(5))),
            batch(session("codex/answers"), [(ANSWER, "needle" + number % 30 * " hay") for number in range(300)]),
            batch(session("codex/others"), [(ANSWER, "straw")] * 300),
        )
        request = SearchRequest(query="needle", types=(PROMPT,), limit=50)
        longest = engine.search(request)
        assert [hit.session.key for hit in longest.hits[:2]] == ["codex/b", "codex/a"]
        assert (len(longest.hits), longest.more) == (7, False)
        for limit in range(1, 8):
            page = engine.search(msgspec.structs.replace(request, limit=limit))
            assert page.hits == longest.hits[:limit]
            assert page.more is (limit < 7)

    def test_scores_and_counts(self, world: Archive) -> None:
        all_of_them = world.search(SearchRequest(query="needle", types=DEFAULT_TYPES, limit=8))
        assert (all_of_them.more, all_of_them.documents) == (False, 16)
        scores = [hit.score for hit in all_of_them.hits]
        assert scores == sorted(scores, reverse=True)
        assert all(0 < score <= 1 for score in scores)

    @pytest.mark.parametrize(
        ("query", "options", "events", "sources"),
        [
            ("needle", {}, 8, {"codex": 6, "claude-code": 2}),
            ("needle", {"limit": 1}, 8, {"codex": 6, "claude-code": 2}),
            ("needle", {"source": "codex"}, 6, {"codex": 6}),
            ("needle", {"types": (CALL,), "since": NOW + 60 * MINUTE}, 2, {"codex": 1, "claude-code": 1}),
            ("needle found", {}, 12, {"codex": 9, "claude-code": 3}),
            ('"needle again"', {}, 2, {"codex": 2}),
            ("nothing", {}, 0, {}),
        ],
    )
    def test_totals(
        self, world: Archive, query: str, options: dict[str, object], events: int, sources: dict[str, int]
    ) -> None:
        """Count all matches, however few are asked for."""
        times = (NOW + 120 * MINUTE, 0, NOW + 60 * MINUTE)
        request = {"types": DEFAULT_TYPES, "limit": 50, "totals": times, **options}
        page = world.search(SearchRequest(query=query, **request))  # type: ignore[arg-type]
        assert page.totals is not None
        assert (page.totals.events, page.totals.sources) == (events, sources)
        assert request["limit"] == 1 or len(page.hits) == events
        for key, count in page.totals.sessions.items():
            within = SearchRequest(query=query, **{**request, "session": key, "limit": 50})  # type: ignore[arg-type]
            assert count == len(world.search(within).hits)
        assert page.totals.sessions.keys() == {hit.session.key for hit in page.hits}
        since = msgspec.structs.replace(SearchRequest(query=query, **request), limit=50)  # type: ignore[arg-type]
        for time_, count in zip(times, page.totals.since, strict=True):
            later = msgspec.structs.replace(since, since=max(time_, since.since or 0))
            assert count == len(world.search(later).hits)

    def test_totals_of_types_and_projects(self, engine: Archive) -> None:
        made = batch(session(), talk(), talk())
        for each in made.events[:4]:
            each.cwd = "/home/dev/shop"
        write(engine, made, batch(session("codex/two"), talk()))
        request = SearchRequest(query="needle", types=(PROMPT, CALL), limit=1, totals=())
        totals = engine.search(request).totals
        assert totals is not None
        assert (totals.events, totals.projects, totals.since) == (6, {"/home/dev/shop": 2}, [])
        assert totals.types == {PROMPT: 3, CALL: 3, RESULT: 3}
        assert engine.search(msgspec.structs.replace(request, totals=None)).totals is None

    def test_totals_of_models_branches_and_failures(self, engine: Archive) -> None:
        """All matches are counted by model, by the branch of their session, and where a tool call failed."""
        for key, branch, model in (("codex/a", "main", "gpt-6"), ("codex/b", "main", "opus 5"), ("codex/c", "", None)):
            about = session(key)
            about.branch = branch
            made = batch(about, talk(), talk())
            for each in made.events:
                if each.type is not PROMPT:
                    each.model, each.originating_model = "gpt-6", model
                if each.type is RESULT and model:
                    each.exit_code, each.failed = (3, None) if each.turn == 1 else (0, branch == "main")
            write(engine, made)
        request = SearchRequest(query="needle", types=(PROMPT, RESULT), limit=1, totals=())
        totals = engine.search(request).totals
        assert totals is not None
        assert totals.events == 12
        assert totals.models == {"gpt-6": 4, "opus 5": 2}
        assert totals.branches == {"main": 8}
        assert totals.failed == 4
        prompts = engine.search(msgspec.structs.replace(request, types=(PROMPT,))).totals
        assert prompts is not None
        assert (prompts.models, prompts.branches, prompts.failed) == ({}, {"main": 4}, 0)

    def test_deadlines(self, world: Archive) -> None:
        with pytest.raises(DeadlineExceeded):
            world.search(SearchRequest(query="needle", types=DEFAULT_TYPES, deadline=time.monotonic() - 1))

    def test_threads(self, world: Archive) -> None:
        results: list[int] = []
        threads = [threading.Thread(target=lambda: results.append(len(found(world, "needle")))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [8] * 4


class TestSessions:
    @pytest.fixture(scope="class")
    @classmethod
    def world(cls, shared: Archive) -> Archive:
        for number in range(6):
            start = NOW + number // 2 * 60 * MINUTE
            row = session(f"codex/{number}a", start=start, cwd=f"/home/dev/P{number % 2}")
            row.mode = "chat" if number % 3 else "tool_calling"
            made = batch(row, [(PROMPT, "hello")])
            made.events[0].ts = row.updated_at = start
            write(shared, made)
        write(shared, Batch(sessions=[session("codex/empty", parent="codex/0a")]))
        write(shared, batch(session("claude-code/0a/agent-1", parent="codex/0a"), [(PROMPT, "hi")]))
        return shared

    @pytest.mark.parametrize("ascending", [True, False])
    def test_pages(self, world: Archive, ascending: bool) -> None:
        """Page by page come the same sessions as at once, also where times are equal."""
        everything = world.sessions(SessionsRequest(source="codex", ascending=ascending))
        order = [(row.updated_at, session_id(row.key)) for row in everything]
        assert order == sorted(order, reverse=not ascending)
        assert len(order) == 6
        paged: list[tuple[int, str]] = []
        while page := world.sessions(
            SessionsRequest(source="codex", ascending=ascending, limit=2, after=paged[-1] if paged else None)
        ):
            paged += [(row.updated_at, session_id(row.key)) for row in page]
        assert paged == order

    @pytest.mark.parametrize(
        ("options", "count"),
        [
            ({}, 7),
            ({"empty": True}, 8),
            ({"start": NOW + 60 * MINUTE}, 4),
            ({"end": NOW + 60 * MINUTE}, 3),
            ({"mode": "tool_calling"}, 2),
            ({"project": "DEV/p1"}, 3),
            ({"keys": ("codex/1a", "codex/empty", "codex/nobody")}, 1),
            ({"keys": ("codex/1a", "codex/empty"), "empty": True}, 2),
            ({"keys": ()}, 0),
            ({"cwds": ("/home/dev/P1", "/home/dev")}, 3),
            ({"cwds": ()}, 0),
            ({"prefix": "0"}, 2),
            ({"prefix": "0", "source": "codex"}, 1),
            ({"prefix": "0a/agent"}, 1),
            ({"prefix": "codex"}, 0),
            ({"prefix": "0%"}, 0),
            ({"parent": "codex/0a"}, 1),
            ({"parent": "codex/0a", "empty": True}, 2),
            ({"limit": 3}, 3),
        ],
    )
    def test_conditions(self, world: Archive, options: dict[str, object], count: int) -> None:
        assert len(keys(world, **options)) == count

    def test_folders(self, engine: Archive) -> None:
        """Top-level sessions in project folders, also without events, the latest activity first."""
        rows = [session(f"claude-code/{number}", folder=f"-f{number % 3}", last_at=NOW + number) for number in range(6)]
        others = [
            session("claude-code/child", folder="-f0", last_at=NOW, parent="claude-code/0"),
            session("claude-code/loose", last_at=NOW),
            session("codex/x", folder="-f0", last_at=NOW),
        ]
        write(engine, Batch(sessions=[*rows, *others]))
        select = SessionsRequest(source="claude-code", folders=any_folder)
        assert [row.key for row in engine.sessions(select)] == [f"claude-code/{number}" for number in range(5, -1, -1)]
        some = msgspec.structs.replace(select, folders=lambda name: name != "-f1", limit=3)
        assert [row.key for row in engine.sessions(some)] == ["claude-code/5", "claude-code/3", "claude-code/2"]


class TestParts:
    """Turns and events in their order, whole or in part."""

    @pytest.fixture(scope="class")
    @classmethod
    def world(cls, shared: Archive) -> Archive:
        write(shared, batch(session(), *[talk(f"word{n}") if n % 2 else [(PROMPT, "hm")] for n in range(1, 8)]))
        return shared

    @pytest.mark.parametrize(
        ("part", "ordinals"),
        [
            (Part(), [1, 2, 3, 4, 5, 6, 7]),
            (Part(types=(CALL,)), [1, 3, 5, 7]),
            (Part(above=2, below=6), [3, 4, 5]),
            (Part(above=2, limit=2), [3, 4]),
            (Part(around=4, before=2, after=1), [2, 3, 4, 5]),
            (Part(around=4, before=1, after=9, types=(CALL,)), [3, 4, 5, 7]),
            (Part(around=9, before=5, after=5), []),
            (Part(around=uid(KEY, 5, 2), before=1), [4, 5]),
            (Part(around=uid("codex/other", 5, 2), before=1), []),
        ],
    )
    def test_turns(self, world: Archive, part: Part, ordinals: list[int]) -> None:
        assert [turn.ordinal for turn in world.turns(KEY, part)] == ordinals

    @pytest.mark.parametrize(
        ("part", "ordinals"),
        [
            (Part(), [1, 2, 3, 4]),
            (Part(types=(CALL, ANSWER)), [2, 4]),
            (Part(above=1, limit=2), [2, 3]),
            (Part(around=uid(KEY, 3, 3), before=1, after=1), [2, 3, 4]),
            (Part(around=3, after=1), [3, 4]),
            (Part(around=uid(KEY, 1, 3), before=1), []),
        ],
    )
    def test_events(self, world: Archive, part: Part, ordinals: list[int]) -> None:
        assert [each.ordinal for each in world.events(KEY, 3, part)] == ordinals

    def test_events_by_uid(self, world: Archive) -> None:
        """Wherever they are; unknown ones are left out, and texts if they are not needed."""
        uids = (uid(KEY, 3, 3), uid(KEY, 1, 1), b"?" * 16)
        assert {each.text for each in world.events(part=Part(uids=uids))} == {"word3 is here", "find the word1"}
        bare = world.events(part=Part(uids=(*uids, uid(KEY, 5, 2)), texts=False))
        assert {(each.session, each.turn, each.text) for each in bare} == {(KEY, turn, "") for turn in (1, 3, 5)}
        assert world.events(part=Part(uids=())) == []

    def test_heads(self, engine: Archive) -> None:
        """The beginnings of prompt and response, wherever they are in the turn."""
        made = batch(session(), [(EventType.SYSTEM, "context"), *talk("w"), (RESULT, "late")], [(ANSWER, "")])
        made.turns[0].prompt, made.turns[0].terminal = made.events[1].uid, made.events[4].uid
        made.turns[0].terminal_type = ANSWER
        write(engine, made)
        first, second = engine.turns(KEY, Part(heads=5))
        assert (first.prompt_head, first.response_head) == (Head("find ", True), Head("found", True))
        assert (second.prompt_head, second.response_head) == (None, Head("", False))
        assert engine.turns(KEY)[0].prompt_head is None


class TestOpening:
    @pytest.fixture(scope="class")
    @classmethod
    def world(cls, shared: Archive) -> Archive:
        for number, name in enumerate(("zero", "one", "two")):
            row = session(f"codex/{name}", start=NOW + number, cwd="/x")
            write(shared, batch(row, talk(), talk(), [(PROMPT, "hm")]))
        elsewhere = batch(session("codex/elsewhere", start=NOW, cwd="/y"), talk())
        children = [
            batch(session("codex/child", parent=KEY, parent_call="call", start=NOW + 2), talk()),
            batch(session("codex/first", parent=KEY, start=NOW + 1, cwd="/z"), talk()),
            batch(session("codex/orphan", parent="codex/gone"), talk()),
        ]
        write(shared, elsewhere, *children, Batch(sessions=[session("codex/empty", parent=KEY)]))
        return shared

    def test_a_session(self, world: Archive) -> None:
        opened = world.open(SessionRef(KEY), Part(limit=2, heads=4))
        assert opened is not None
        assert opened.session == world.session(KEY)
        assert opened.turns == world.turns(KEY, Part(limit=2, heads=4))
        assert (opened.previous, opened.next, opened.total) == ("codex/zero", "codex/two", 3)
        assert (opened.parent, opened.children) == (None, ["codex/first", "codex/child"])
        some = world.open(SessionRef(KEY), Part(types=(CALL,)))
        assert some is not None
        assert (some.total, len(some.turns)) == (2, 2)

    def test_links_lead_to_what_is_there(self, world: Archive) -> None:
        child, orphan = world.open(SessionRef("codex/child")), world.open(SessionRef("codex/orphan"))
        assert child is not None
        assert orphan is not None
        assert (child.parent, orphan.parent) == (KEY, None)

    def test_a_turn(self, world: Archive) -> None:
        opened = world.open(TurnRef(KEY, 2), Part(types=(CALL, RESULT), heads=4))
        assert opened is not None
        assert (opened.session, opened.turn.ordinal) == (world.session(KEY), 2)
        assert opened.turn.prompt_head == Head("find", True)
        assert [each.ordinal for each in opened.events] == [2, 3]
        assert (opened.total, opened.first, opened.last) == (2, uid(KEY, 2, 1), uid(KEY, 2, 4))
        assert (opened.has_previous, opened.has_next) == (True, True)
        first = world.open(TurnRef(KEY, 1))
        assert first is not None
        assert (first.has_previous, first.has_next, first.total) == (False, True, 4)

    def test_an_event(self, world: Archive) -> None:
        opened = world.open(EventRef(uid(KEY, 1, 2)))
        assert opened is not None
        assert opened.session == world.session(KEY)
        assert opened.turn == world.turns(KEY)[0]
        assert opened.event == world.events(KEY, 1)[1]
        assert (opened.previous, opened.next) == (uid(KEY, 1, 1), uid(KEY, 1, 3))
        assert (opened.has_previous_turn, opened.has_next_turn) == (False, True)
        assert (opened.children, opened.events) == (["codex/child"], [])
        near = world.open(EventRef(uid(KEY, 3, 1)), Part(around=uid(KEY, 3, 1), before=2, after=2))
        assert near is not None
        assert (near.previous, near.next, near.children) == (None, None, [])
        assert [each.ordinal for each in near.events] == [1]

    def test_nothing(self, world: Archive) -> None:
        assert world.open(SessionRef("codex/nobody")) is None
        assert world.open(TurnRef(KEY, 4)) is None
        assert world.open(EventRef(b"?" * 16)) is None


class TestExchanges:
    @pytest.fixture(scope="class")
    @classmethod
    def world(cls, shared: Archive) -> Archive:
        for name, folder in (("a", "-f1"), ("b", "-f2")):
            key = f"claude-code/{name}"
            made = batch(session(key, folder=folder, last_at=NOW, exchange_count=3), *[talk(f"w{n}") for n in range(3)])
            for number in range(3):
                events = [each for each in made.events if each.turn == number + 1]
                row = ExchangeRow(session=key, number=number, ts=NOW + number, user=events[0].uid)
                row.said += events[1].uid + events[3].uid
                row.user_text = "a longer text" if number == 2 else None
                made.exchanges.append(row)
            write(shared, made)
        return shared

    def test_of_a_session(self, world: Archive) -> None:
        found = list(world.exchanges(ExchangesRequest(session="claude-code/a")))
        assert [each.row.number for each in found] == [0, 1, 2]
        assert [each.user_text for each in found] == ["find the w0", "find the w1", "a longer text"]
        assert [each.type for each in found[0].said] == [CALL, ANSWER]
        assert found[0].session == world.session("claude-code/a")

    def test_parts(self, world: Archive) -> None:
        request = ExchangesRequest(session="claude-code/a", first=1, limit=1, events=1)
        (one,) = world.exchanges(request)
        assert (one.row.number, len(one.said)) == (1, 1)
        (bare,) = world.exchanges(msgspec.structs.replace(request, texts=False))
        assert (bare.row, bare.user_text, bare.said) == (one.row, None, [])
        assert list(world.exchanges(ExchangesRequest(session="claude-code/a", first=1 << 70))) == []

    def test_many(self, engine: Archive) -> None:
        """More than are read at once, in order and without gaps."""
        key = "claude-code/long"
        row = session(key, folder="-f", last_at=NOW, exchange_count=250)
        made = batch(row, *[[(PROMPT, f"question {number}")] for number in range(250)])
        made.exchanges = [
            ExchangeRow(session=key, number=number, ts=NOW + number, user=each.uid)
            for number, each in enumerate(made.events)
        ]
        write(engine, made)
        whole = [each.user_text for each in engine.exchanges(ExchangesRequest(session=key))]
        assert whole == [f"question {number}" for number in range(250)]
        hits = [hit.row.number for hit in engine.exchanges(ExchangesRequest(query="question"))]
        assert hits == list(range(249, -1, -1))

    def test_by_words_spread_over_an_exchange(self, world: Archive) -> None:
        hits = list(world.exchanges(ExchangesRequest(query="w1 found Bash", limit=2)))
        assert {(hit.session.key, hit.row.number) for hit in hits} == {("claude-code/a", 1), ("claude-code/b", 1)}
        assert all(hit.score > 0 and len(hit.said) == 2 for hit in hits)

    @pytest.mark.parametrize(
        ("options", "count"),
        [
            ({}, 2),
            ({"session": "claude-code/a"}, 1),
            ({"session": "claude-code/nobody"}, 0),
            ({"folders": any_folder}, 2),
            ({"folders": lambda name: name == "-f2"}, 1),
            ({"folders": lambda name: False}, 0),
            ({"limit": 1}, 1),
        ],
    )
    def test_filters(self, world: Archive, options: dict[str, object], count: int) -> None:
        assert len(list(world.exchanges(ExchangesRequest(query='"w1"', **options)))) == count  # type: ignore[arg-type]


class TestFilesAndState:
    def test_files(self, engine: Archive) -> None:
        """They are replaced by path, in the order of paths, with or without their states."""
        rows = [FileRow(path=f"/t/{n}", source="codex", session=f"{n}", state={"at": n}, prefix=b"p") for n in (2, 1)]
        write(engine, Batch(files=rows))
        write(engine, Batch(files=[msgspec.structs.replace(rows[0], offset=7, missing=True, errors=1)]))
        assert [(row.path, row.offset, row.state) for row in engine.files()] == [
            ("/t/1", 0, {"at": 1}),
            ("/t/2", 7, {"at": 2}),
        ]
        assert [row.state for row in engine.files(FilesRequest(states=False))] == [{}, {}]
        counts = engine.counts()
        assert (counts.files, counts.files_missing, counts.files_with_errors) == (2, 1, 1)

    def test_some_files(self, engine: Archive) -> None:
        """By path, by source, below a folder, the latest, and a page of them."""
        places = (("/t/a", "codex", 3), ("/t/a/b", "pi", 1), ("/t/ab", "codex", 2))
        rows = [FileRow(path=path, source=source, session="", mtime_ns=time) for path, source, time in places]
        write(engine, Batch(files=rows))

        def found(**request: object) -> list[str]:
            return [row.path for row in engine.files(FilesRequest(**request))]  # type: ignore[arg-type]

        assert found(paths=["/t/ab", "/t/none"]) == ["/t/ab"]
        assert found(source="codex") == ["/t/a", "/t/ab"]
        assert found(below="/t/a") == ["/t/a/b"]
        assert found(newest=2) == ["/t/a", "/t/ab"]
        assert found(after="/t/a", limit=1) == ["/t/a/b"]
        assert found(after="/t/ab") == []
        assert [row.state for row in engine.files(FilesRequest(states=False))] == [None, None, None]

    def test_files_by_name(self, engine: Archive) -> None:
        """By a name that was written with the file, now or before; an engine may give some others, too."""
        family = 'fam"ily'
        row = FileRow(path="/t/a", source="codex", session="s", state={"of": family}, names=("s", family))
        other = FileRow(path="/t/b", source="codex", session="s2", state={"after": ["s"]}, names=("s2", "s"))
        write(engine, Batch(files=[row, other, FileRow(path="/t/c", source="codex", session="s3", names=("s3",))]))
        write(engine, Batch(files=[msgspec.structs.replace(row, offset=7, names=())]))

        def found(name: str) -> set[str]:
            return {row.path for row in engine.files(FilesRequest(source="codex", naming=name))}

        assert found("s") == {"/t/a", "/t/b"}
        assert found(family) == {"/t/a"}
        assert found("s2") == {"/t/b"}
        write(engine, Batch(removed=["codex/s"]))
        assert found(family) == set()

    def test_stamps(self, engine: Archive) -> None:
        """The properties that show a change, of the files that are there."""
        seen = FileRow(path="/t/a", source="codex", session="", inode=1, size=2, mtime_ns=3)
        read = msgspec.structs.replace(seen, session="s", offset=2, prefix=b"p", state={"a": 1}, errors=1)
        gone = FileRow(path="/t/b", source="codex", session="s", missing=True)
        other = FileRow(path="/t/c", source="pi", session="", inode=4, size=5, mtime_ns=6)
        write(engine, Batch(files=[read, gone, other]))

        def stamps(**request: object) -> list[FileRow]:
            return list(engine.files(FilesRequest(stamps=True, **request)))  # type: ignore[arg-type]

        assert sorted(stamps(), key=lambda row: row.path) == [seen, other]
        assert stamps(newest=1) == [other]
        assert stamps(after="/t/a", limit=2) == [other]
        assert stamps(paths=["/t/a", "/t/b"]) == [seen]
        assert stamps(source="codex", below="/t") == [seen]

    def test_folders(self, engine: Archive) -> None:
        """They are replaced as a whole, and stay as they are in a batch without any."""
        rows = [FolderRow("/t/a", "codex", 1), FolderRow("/t/a", "pi", 1), FolderRow("/t/b", "pi", 2)]
        write(engine, Batch(folders=[FolderRow("/t/z", "pi", 9)]))
        write(engine, Batch(folders=rows))
        write(engine, Batch())
        assert engine.sync_state(folders=True).folders == tuple(rows)
        assert engine.sync_state().folders == ()

    def test_the_writer_is_seen(self, engine: Archive) -> None:
        assert not engine.sync_state().writing
        with writing(engine):
            assert engine.sync_state().writing
        assert not engine.sync_state().writing

    def test_sync_state(self, engine: Archive) -> None:
        assert engine.sync_state().started_at == 0
        state = SyncState(started_at=1, files_total=4, files_done=2, first_finished_at=3)
        with writing(engine) as writer:
            writer.write(Batch(sync=state))
            assert writer.sync_state().files_done == 2
        after = engine.sync_state()
        assert (after.files_total, after.finished_at, after.first_finished_at) == (4, None, 3)
        assert (after.index_behind, after.read_only, after.recovered) == (False, False, True)

    def test_counts(self, engine: Archive) -> None:
        write(engine, batch(session(), talk()), batch(session("claude-code/x"), talk(), talk()))
        counts = engine.counts()
        assert (counts.sessions, counts.turns, counts.events, counts.documents) == (2, 3, 12, 12)
        assert counts.by_source == {"claude-code": 1, "codex": 1}
