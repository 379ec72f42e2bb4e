"""The order of plain cases: which session a question finds first."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from backstory.archive import ranking
from backstory.archive.base import Archive, Batch, EventRow, Hit, SearchRequest, SessionRow, TurnRow
from backstory.archive.clickhouse import question as clickhouse_question
from backstory.archive.local import retrieval as local_retrieval
from backstory.model import DEFAULT_TYPES, EventType, digest

PROMPT, ANSWER, CALL, OUTPUT = (
    EventType.USER_INPUT,
    EventType.ASSISTANT_RESPONSE,
    EventType.TOOL_CALL,
    EventType.TOOL_RESPONSE,
)
OLD = 1_700_000_000_000
DAY = 86_400_000
Said = tuple[EventType, str]
Add = Callable[..., None]
Ask = Callable[..., list[Hit]]


@pytest.fixture
def add(engine: Archive) -> Add:
    """Adds a session of one turn."""

    def add(name: str, *said: Said, title: str = "", cwd: str = "/home/ada/shop", ts: int = OLD, **about: str) -> None:
        key = f"codex/{name}"
        events = [
            EventRow(
                uid=digest(key, str(ordinal)),
                session=key,
                turn=1,
                ordinal=ordinal,
                type=kind,
                ts=ts + ordinal,
                text="" if kind is CALL else text,
                tool="Bash" if kind is CALL else None,
                arguments={"command": text} if kind is CALL else None,
                cwd=cwd,
            )
            for ordinal, (kind, text) in enumerate(said, 1)
        ]
        session = SessionRow(
            key=key,
            source="codex",
            title=title or name,
            cwd=cwd,
            started_at=ts,
            updated_at=ts,
            turn_count=1,
            event_count=len(events),
            **about,  # type: ignore[arg-type]
        )
        writer = engine.writer()
        writer.recover()
        turn = TurnRow(session=key, ordinal=1, event_count=len(events), started_at=ts)
        writer.write(Batch(sessions=[session], turns=[turn], events=events))
        writer.close()

    return add


@pytest.fixture
def ask(engine: Archive) -> Ask:
    def ask(query: str, **options: object) -> list[Hit]:
        request = SearchRequest(query=query, **{"types": DEFAULT_TYPES, **options})  # type: ignore[arg-type]
        return engine.search(request).hits

    return ask


def sessions(hits: list[Hit]) -> list[str]:
    return list(dict.fromkeys(hit.session.key.removeprefix("codex/") for hit in hits))


class TestTypes:
    """Words of people and agents weigh more than the output of tools."""

    def test_a_prompt_before_output_that_quotes_it(self, add: Add, ask: Ask) -> None:
        add("asked", (PROMPT, "rotate the signing keys of the gateway"))
        add("listed", (OUTPUT, "a1b2c3d rotate the signing keys of the gateway"))
        assert sessions(ask("rotate signing keys gateway")) == ["asked", "listed"]

    def test_an_error_message_is_found_in_output(self, add: Add, ask: Ask) -> None:
        """Its numbers differ from run to run."""
        add("failed", (PROMPT, "run it"), (OUTPUT, "ConnectionError: pool 17 timed out after 3000 ms (host db-2)"))
        add("talked", (PROMPT, "what is a pool and how long is 4512 ms on a host"))
        assert sessions(ask("ConnectionError: pool 4 timed out after 4512 ms (host db-9)"))[0] == "failed"

    def test_calls_are_evidence(self, add: Add, ask: Ask) -> None:
        """They are not returned, but bring up their session."""
        add("mentioned", (PROMPT, "should we deploy the gateway"), (ANSWER, "not today"))
        add("did", (PROMPT, "deploy the gateway"), (CALL, "kubectl rollout restart gateway deploy"), (ANSWER, "done"))
        hits = ask("deploy gateway")
        assert sessions(hits)[0] == "did"
        assert all(hit.event.type in DEFAULT_TYPES for hit in hits)


class TestSessions:
    """A session that is about the question comes before one that mentions it."""

    def test_several_events_add_up(self, add: Add, ask: Ask) -> None:
        add("once", (PROMPT, "the retry budget"), (ANSWER, "changed the colour of the button instead"))
        add("often", (PROMPT, "the retry budget"), (ANSWER, "the retry budget is spent"), (ANSWER, "retry budget set"))
        assert sessions(ask("retry budget"))[0] == "often"

    def test_title(self, add: Add, ask: Ask) -> None:
        """Words that only the title has find the session, by its first prompt."""
        add("named", (PROMPT, "please begin"), (ANSWER, "all right"), title="Migrate invoices to Postgres")
        (hit,) = ask("invoices postgres")
        assert (hit.session.key, hit.event.text) == ("codex/named", "please begin")

    @pytest.mark.parametrize(
        ("title", "query"),
        [
            ("認証エラーの修正", "認証の問題を直したのはいつ"),
            ("修复数据库连接超时", "数据库"),
            ("결제 서버를 고치기", "서버"),
            ("แก้ไขฐานข้อมูลช้า", "ฐานข้อมูล"),
            ("Fix the getUserName lookup", "user name"),
            ("Die Größe der Tabellen", "größe"),
        ],
    )
    def test_title_in_any_script(self, add: Add, ask: Ask, title: str, query: str) -> None:
        """A title is split into words as a text is, also where no spaces separate them."""
        add("named", (PROMPT, "please begin"), title=title)
        add("other", (PROMPT, "please begin"), title="別の話")
        assert sessions(ask(query)) == ["named"]

    def test_a_title_does_not_pass_filters(self, add: Add, ask: Ask) -> None:
        add("named", (PROMPT, "please begin"), title="Migrate invoices to Postgres", cwd="/home/ada/shop")
        assert ask("invoices postgres", project="garden") == []
        assert ask("invoices postgres", source="aider") == []
        assert ask("invoices postgres", since=OLD + DAY) == []
        assert ask("invoices postgres", types=(OUTPUT,)) == []
        assert ask('"invoices postgres"') == []

    def test_no_session_takes_the_whole_page(self, add: Add, ask: Ask) -> None:
        add("loud", *[(ANSWER, f"the cache is stale again, attempt {n}") for n in range(30)])
        add("quiet", (ANSWER, "somewhere the cache had something stale about it, in a long sentence"))
        assert set(sessions(ask("cache stale", limit=10))) == {"loud", "quiet"}
        assert len(ask("cache stale", limit=10, session="codex/loud")) == 10


class TestRepetitions:
    """The same text once."""

    def test_in_a_subagent(self, add: Add, ask: Ask) -> None:
        add("parent", (PROMPT, "audit it"), (ANSWER, "The audit found a race in the scheduler."))
        add("child", (ANSWER, "The audit found  a race in the scheduler."), parent="codex/parent")
        add("other", (ANSWER, "The audit found a race in the scheduler."))
        assert len(ask("audit race scheduler")) == 2 + 1  # the prompt, the finding of the family, that of another one

    def test_repeated_output(self, add: Add, ask: Ask) -> None:
        add("looped", *[(OUTPUT, "waiting for the lock file")] * 5)
        assert len(ask("lock file")) == 1
        assert len(ask("lock file", session="codex/looped")) == 5

    def test_more_is_exact(self, engine: Archive, add: Add) -> None:
        """Repetitions that are left out are not more hits."""
        add("looped", *[(OUTPUT, "waiting for the lock file")] * 5)
        request = SearchRequest(query="lock file", types=DEFAULT_TYPES, limit=1)
        assert not engine.search(request).more


class TestWords:
    """Words as people type them."""

    @pytest.mark.parametrize(
        ("query", "text"),
        [
            ("why did the migrations fail", "the migration failed because of a lock"),
            ("caching of thumbnails", "we cached each thumbnail"),
            ("why were we choosing it", "redis was chosen for its speed"),
            ("all vertices", "each vertex of the graph"),
            ("warum wurden die Tabellen gelöscht", "die Tabelle wurde beim Aufräumen gelöscht"),
            ("pourquoi les tables ont été supprimées", "la table a été supprimée par erreur"),
            ("デプロイはなぜ失敗したのか", "デプロイが失敗した原因は権限です"),
            ("kuberntes rollout", "the kubernetes rollout"),
            ("recieve webhook", "receive a webhook"),
        ],
    )
    def test_found_first(self, add: Add, ask: Ask, query: str, text: str) -> None:
        """By stem, by an irregular form, in other languages, and with one typing error."""
        add("noise", (PROMPT, "why did we do this and what was that about, in the end, with all of them?"))
        add("right", (ANSWER, text))
        assert sessions(ask(query))[:1] == ["right"]

    @pytest.mark.parametrize(
        ("query", "text"),
        [
            ("quokka", "\x1b[31mquokka\x1b[0m failed"),
            ("boldface", "\x1b[1mbold\x1b[22mface"),
            ("zerowidth", "zero\u200bwidth"),
            ("soft\u00adhyphen", "a softhyphen"),
            ("rightward", "\u202eright\u202cward"),
        ],
    )
    def test_words_as_they_are_shown(self, add: Add, ask: Ask, query: str, text: str) -> None:
        """Colours and characters that nobody sees do not hide a word."""
        add("right", (OUTPUT, text))
        assert sessions(ask(query)) == ["right"]

    @pytest.mark.parametrize("text", [r'{"output": "a line\nwombats dig"}', r"C:\Users\wombats\tests", r"\\twombats"])
    def test_words_behind_an_escape(self, add: Add, ask: Ask, text: str) -> None:
        """The letter of an escape is no part of a word, though it may be: a folder of Windows."""
        add("right", (OUTPUT, text))
        add("other", (OUTPUT, "wombats and nwombats"))  # known words are not corrected
        assert set(sessions(ask("wombats"))) == {"right", "other"}

    def test_exact_words_win(self, add: Add, ask: Ask) -> None:
        add("stem", (ANSWER, "the parser parses things that were parsed"))
        add("exact", (ANSWER, "the parser has a bug in parsing of things"))
        assert sessions(ask("parsing"))[0] == "exact"

    def test_known_words_are_not_corrected(self, engine: Archive, add: Add) -> None:
        """A word that the archive has means itself, however near another one is."""
        add("form", (PROMPT, "the form"))
        add("from", (PROMPT, "copied from there, from everywhere, from the server"))
        found = engine.search(SearchRequest(query="form", types=DEFAULT_TYPES, explain=True))
        assert [term.read_as for term in found.terms] == [()]
        assert sessions(found.hits) == ["form"]

    def test_a_corrected_word_matches_by_its_stem(self, add: Add, ask: Ask) -> None:
        add("listed", (OUTPUT, "migrations"))
        add("right", (ANSWER, "the migration of the table was renamed"))
        assert sessions(ask("migratoins")) == ["right", "listed"]

    def test_a_corrected_word_weighs_as_much(self, add: Add, ask: Ask) -> None:
        add("corrected", (ANSWER, "the kubernetes rollout"), (ANSWER, "the kubernetes cluster"))
        add("known", (ANSWER, "somebody made a mess"), (ANSWER, "a mess it is"))
        add("more", (ANSWER, "a mess"))
        assert sessions(ask("kuberntes mess"))[0] == "corrected"

    def test_stems_are_those_of_the_language(self, add: Add, ask: Ask) -> None:
        """In German, `counter` has the stem that `count` has in English."""
        add("english", (ANSWER, "we count the rows of the table"))
        add("german", (ANSWER, "wir haben die Tabellen in der Nacht kopiert, und das war gut"))
        assert ask("where is the counter") == []
        assert sessions(ask("wann wurde die tabelle kopiert")) == ["german"]
        assert sessions(ask("tabelle")) == ["german"]

    def test_lengths_of_texts(self, add: Add, ask: Ask) -> None:
        """BM25, with lengths from 40 on in four significant bits above 24."""
        kept = {20: 20, 100: 96, 1000: 984}
        for length in kept:
            add(f"of{length}", (OUTPUT, "needle" + " and" * (length - 1)))
        worth = {hit.session.key: 1 / hit.evidence.event for hit in ask("needle") if hit.evidence}
        short, middle, long = (worth[f"codex/of{length}"] for length in kept)
        assert (long - short) / (middle - short) == pytest.approx((984 - 20) / (96 - 20), rel=1e-4)

    def test_numbers_in_errors(self, add: Add, ask: Ask) -> None:
        """An error message is found by its stable part: other numbers and ids do not mislead."""
        add("numbers", (OUTPUT, "17 of 3000 files copied in 8080 ms"))
        add("error", (OUTPUT, "TimeoutError: worker 4 did not answer within 250 ms on port 9090"))
        assert sessions(ask("TimeoutError: worker 17 did not answer within 3000 ms on port 8080"))[0] == "error"

    def test_all_words_before_some(self, add: Add, ask: Ask) -> None:
        add("some", (ANSWER, "schema schema schema schema"))
        add("all", (ANSWER, "a migration of the schema"))
        assert sessions(ask("schema migration"))[0] == "all"


class TestLongQuestions:
    """The more of its words an event has, the better."""

    @pytest.mark.parametrize(
        ("query", "short", "told"),
        [
            (
                "two machines push work",
                "push the work",
                "When two machines push, the second one has to merge first, and otherwise its work is lost. ",
            ),
            (
                "choosing gatewya migration settings",
                "settings of a page",
                "We chose to migrate the database of the gateway, and wrote its settings anew. ",
            ),
        ],
        ids=["words", "forms"],
    )
    def test_most_words_before_a_short_text_with_some(
        self, add: Add, ask: Ask, query: str, short: str, told: str
    ) -> None:
        """BM25 prefers the short one. A stem, another form of a word and a corrected one do as well as the word."""
        add("short", (PROMPT, short), (ANSWER, short))
        add("told", (ANSWER, told + "The rest is about the colours of a terminal and the width of a table. " * 8))
        for number in range(12):
            add(f"other{number}", (ANSWER, f"an answer about the parser and its tokens, number {number} " * 8))
        assert sessions(ask(query))[0] == "told"

    def test_common_words_and_phrases(self, add: Add, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
        """Words that choose no events, and paths, count as any."""
        for module in (local_retrieval, clickhouse_question):
            monkeypatch.setattr(module, "COMMON", 3)
        add("told", (ANSWER, "The signing keys of src/auth.py rotate at the gateway."))
        add("some", (ANSWER, "of a gateway"))
        add("apart", *[(ANSWER, f"auth or src, keys here, signing, {number}, rotate") for number in range(4)])
        add("other", *[(ANSWER, f"about the parser and its tokens, number {number}") for number in range(60)])
        scores = []
        for covered in (0.0, 2.0):
            monkeypatch.setattr(ranking, "WEIGHTS", replace(ranking.WEIGHTS, covered=covered))
            hits = ask("gateway rotate signing keys src/auth")
            (told,) = (hit for hit in hits if hit.session.key == "codex/told")
            assert told.evidence is not None
            scores.append(told.evidence.event)
        assert hits[0] is told
        assert scores[1] == pytest.approx(3 * scores[0])

    def test_very_many_words(self, add: Add, ask: Ask) -> None:
        """More than an engine may tell of each event."""
        words = [f"{first}{second}ingly" for first in "bcdfghjklm" for second in "aeiou"]
        add("short", (PROMPT, "bravely"), (ANSWER, "bravely"))
        add("told", (ANSWER, " ".join([*words, "bravely"]) + " colours of a terminal" * 200))
        assert sessions(ask(" ".join(["bravely", *words])))[0] == "told"

    def test_no_score_above_one(self, add: Add, ask: Ask) -> None:
        add("all", *[(PROMPT, "rotate signing keys gateway monthly")] * 6, title="rotate signing keys gateway monthly")
        assert 0 < ask("rotate signing keys gateway monthly")[0].score <= 1


class TestPreferences:
    """Time, project and age decide between equals, and never bury a clear match."""

    def test_time(self, add: Add, ask: Ask) -> None:
        now = int(time.time() * 1000)
        add("older", (PROMPT, "fix the login form"), ts=now - 40 * DAY)
        add("newer", (PROMPT, "fix the login form"), ts=now - DAY)
        add("clear", (PROMPT, "fix the checkout total"), ts=now - 40 * DAY)
        assert sessions(ask("login form of yesterday"))[0] == "newer"
        assert sessions(ask("login form"))[0] == "newer"
        assert sessions(ask("checkout total of yesterday"))[0] == "clear"

    def test_named_project(self, add: Add, ask: Ask) -> None:
        add("api", (PROMPT, "fix the login form"), cwd="/home/ada/api")
        add("web", (PROMPT, "fix the login form"), cwd="/home/ada/web", ts=OLD + 1)
        assert sessions(ask("login form in the api repo"))[0] == "api"
        assert sessions(ask("login form in the web repo"))[0] == "web"

    def test_time_and_project(self, add: Add, ask: Ask) -> None:
        now = int(time.time() * 1000)
        add("api", (PROMPT, "fix the login form"), cwd="/home/ada/api", ts=now - 7 * DAY)
        add("web", (PROMPT, "fix the login form"), cwd="/home/ada/web", ts=now - 7 * DAY + 1)
        add("before", (PROMPT, "fix the login form"), cwd="/home/ada/api", ts=now - 30 * DAY)
        assert sessions(ask("the login form last week in the api repo")) == ["api", "web", "before"]

    def test_a_clear_match_stays_first(self, add: Add, ask: Ask) -> None:
        """However old it is, and wherever it was."""
        add("clear", (PROMPT, "the invoice rounding loses a cent"), cwd="/home/ada/billing")
        now = int(time.time() * 1000)
        for number in range(20):
            add(f"recent{number}", (PROMPT, "an invoice was sent"), cwd="/home/ada/api", ts=now - number)
        assert sessions(ask("invoice rounding cent", here="/home/ada/api"))[0] == "clear"

    def test_project_of_the_caller(self, add: Add, ask: Ask) -> None:
        add("here", (PROMPT, "fix the login form"), cwd="/home/ada/api")
        add("there", (PROMPT, "fix the login form"), cwd="/home/ada/web", ts=OLD + 1)
        assert sessions(ask("login form"))[0] == "there"
        assert sessions(ask("login form", here="/home/ada/api/src"))[0] == "here"


class TestExplain:
    """A search can say how it came to its scores."""

    def test_words_and_evidence(self, engine: Archive, add: Add) -> None:
        add("one", (PROMPT, "migrate the invoices"), (ANSWER, "invoices migrated"), title="Invoices")
        found = engine.search(SearchRequest(query="invioces migration", types=DEFAULT_TYPES, explain=True))
        assert [(term.word, term.documents, term.read_as) for term in found.terms] == [
            ("invioces", 0, ("invoices",)),
            ("migration", 0, ()),
        ]
        best = found.hits[0]
        assert best.matched["text"] == ["invoices"]
        assert best.matched["stem"] == ["migration"]
        assert best.matched["title"] == ["invoices"]
        assert best.evidence.event > 0
        assert best.evidence.session > 0
