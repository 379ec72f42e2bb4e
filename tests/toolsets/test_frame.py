"""The frame that every tool answers through, and the echo of a request in an error."""

from __future__ import annotations

import time
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from backstory.toolsets.base import (
    BadArgument,
    Failure,
    Frame,
    Released,
    Reply,
    Tool,
    decode_arguments,
    excerpt,
    input_schema,
    output_schema,
    received,
    received_at,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=60,
)


class Request(Struct, frozen=True, forbid_unknown_fields=True):
    word: str
    number: int = 0


class Answer(Struct, frozen=True):
    said: str


def refuse(error: Exception) -> Failure | None:
    return Failure({"error": str(error)}) if isinstance(error, BadArgument | LookupError) else None


FRAME = Frame(refuse=refuse, unexpected=lambda message: Failure({"error": message}))


def call(action: Any, arguments: Any) -> Reply:
    return FRAME.handler("speak", Request, action)(arguments)


class TestFrame:
    def test_answers(self) -> None:
        """With decoded arguments in, and the object and its JSON out."""
        reply = call(lambda asked: Answer(asked.word), {"word": "hi"})
        assert (reply.data, reply.text, reply.is_error) == ({"said": "hi"}, '{"said":"hi"}', False)

    @pytest.mark.parametrize(
        "arguments", [{}, {"word": 1}, {"word": "x", "more": 1}, {"word": "\ud800"}, {"\udcff": 1}, [], None, 7]
    )
    def test_refuses_what_does_not_fit(self, arguments: Any) -> None:
        """For any value."""
        assert call(lambda asked: Answer(asked.word), arguments).is_error

    def test_knows_the_errors_of_its_contract(self) -> None:
        """And says them in the contract's words."""

        def action(asked: Request) -> Any:
            raise LookupError("no such word")

        reply = call(action, {"word": "x"})
        assert (reply.data, reply.text, reply.is_error) == (
            {"error": "no such word"},
            '{"error":"no such word"}',
            True,
        )

    def test_keeps_the_details_of_all_others(self) -> None:
        """They are for the log."""

        def action(asked: Request) -> Any:
            raise RuntimeError("an inner detail")

        reply = call(action, {"word": "x"})

        assert "speak failed unexpectedly" in reply.data["error"]
        assert "inner detail" not in reply.text

    def test_errors_pass_the_border_too(self) -> None:
        """An error repeats only short texts, stripped and redacted like anything else."""

        def action(asked: Request) -> Any:
            raise LookupError(f"\x1b[31m ghp_{'a' * 36} " + asked.word)

        reply = call(action, {"word": "x" * 1_000_000})

        assert "\x1b" not in reply.data["error"]
        assert "[redacted:github-token]" in reply.data["error"]
        assert len(reply.text) < 4096


class TestBorder:
    """Every answer passes egress on its way into a reply; the object and its text are the same."""

    TOKEN = "gh" + "p_" + "a1B2c3D4e5" * 4

    def test_answers_are_stripped_and_redacted(self) -> None:
        """At any depth, keys included."""
        reply = Reply.of({"a": [Answer(f"\x1b[1m{self.TOKEN}")], self.TOKEN: None})

        assert reply.data == {"a": [{"said": "[redacted:github-token]"}], "[redacted:github-token]": None}
        assert msgspec.json.decode(reply.text) == reply.data

    @pytest.mark.parametrize("mode", ["egress", "ingest", "off"])
    def test_by_the_setting(self, mode: Any) -> None:
        """Hostile characters are stripped in any mode."""
        frame = Frame(refuse=refuse, unexpected=lambda message: Failure({"error": message}), mode=mode)
        reply = frame.handler("speak", Request, lambda asked: Answer(asked.word))({"word": f"\u202e{self.TOKEN}"})

        assert reply.data == {"said": self.TOKEN if mode == "off" else "[redacted:github-token]"}

    def test_what_was_redacted_before_is_not_looked_at_again(self) -> None:
        """The toolset answers for it: its excerpts are cut from redacted text."""
        assert Reply.of(Released(Answer(self.TOKEN))).data == {"said": self.TOKEN}

    def test_stored_text_leaves_when_it_is_asked_for(self) -> None:
        """By a caller who says so."""
        assert call(lambda asked: Released(Answer(asked.word)), {"word": f"\x1b{self.TOKEN}"}).data == {
            "said": f"\x1b{self.TOKEN}"
        }


class TestArguments:
    @pytest.mark.parametrize(("value", "said"), [("1", True), (1.5, False), ([], False), (None, False)])
    def test_a_number_sent_as_a_string(self, value: Any, said: bool) -> None:
        """Is no number, and the error says that this was it."""
        with pytest.raises(BadArgument) as refused:
            decode_arguments(Request, {"word": "x", "number": value})

        assert refused.value.field == "number"
        assert ("sent as a string" in refused.value.message) is said


class TestExcerpt:
    @given(JSON)
    def test_is_never_longer_than_the_limit(self, value: Any) -> None:
        """For any value."""
        assert len(msgspec.json.encode(excerpt(value, 200))) <= 200

    def test_a_plain_request_is_unchanged(self) -> None:
        """Nulls, nesting and other scripts included."""
        given = {"query": "ошибка", "n_hits": 3.5, "event_types": ["a", {"b": None}], "x": True}

        assert excerpt(given) == given

    def test_a_cut_leaves_no_half_of_a_secret(self) -> None:
        """Texts are redacted before they are cut, wherever that is."""
        token = TestBorder.TOKEN
        for before in range(150, 201):
            assert token[:8] not in excerpt("x" * before + " " + token + " and more" * 100, 200)

    @pytest.mark.parametrize(
        "value",
        [
            {"query": "x" * 30_000_000},
            {"x" * 30_000_000: 1},
            {str(number): number for number in range(300_000)},
            {"deep": [[["x"] * 1000] * 1000] * 1000},
            {"odd": ["\ud800", object(), 10**5000, float("nan"), {1: 2}]},
        ],
        ids=["text", "name", "fields", "items", "odd"],
    )
    def test_huge_values_are_cut(self, value: Any) -> None:
        """In time that does not grow with them, into something JSON can say."""
        started = time.process_time()
        short = excerpt(value)

        assert time.process_time() - started < 5
        assert 10 < len(msgspec.json.encode(short)) <= 3072


class TestReceipt:
    def test_time_counts_from_receipt(self) -> None:
        """Where a face says when that was; otherwise from now on."""
        with received(12.5):
            assert received_at() == 12.5
        before = time.monotonic()
        assert before <= received_at() <= time.monotonic()


class TestSchemas:
    def test_are_made_when_they_are_asked_for(self) -> None:
        """Once; a call needs none."""
        made: list[str] = []

        def schema() -> dict[str, Any]:
            made.append("input")
            return {"type": "object"}

        tool = Tool(name="x", description="x", input=schema, handler=lambda _: Reply.of({"done": True}))

        assert tool.handler({}).data == {"done": True}
        assert made == []
        assert (tool.input_schema, tool.input_schema, tool.output_schema) == (
            {"type": "object"},
            {"type": "object"},
            None,
        )
        assert made == ["input"]

    def test_input_is_flat(self) -> None:
        """No references, no titles."""
        schema = input_schema(Request)()

        assert schema["type"] == "object"
        assert "$ref" not in str(schema)
        jsonschema.validate({"word": "x"}, schema)

    def test_output_admits_errors_where_they_are_structured(self) -> None:
        """And only there."""

        class Problem(Struct):
            error: str

        jsonschema.validate({"error": "x"}, output_schema(Answer, Problem)())
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"error": "x"}, output_schema(Answer)())
