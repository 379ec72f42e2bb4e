"""Ids and times."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.model import (
    EVENT_TYPES,
    EventRef,
    EventType,
    InvalidId,
    SessionRef,
    TurnRef,
    digest,
    event_id,
    parse_id,
    parse_time,
    rfc3339,
    session_id,
    turn_id,
)

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
keys = st.builds(lambda source, native: f"{source}/{native}", names.filter(lambda n: "/" not in n), names)


class TestIds:
    """An id leads back to what it stands for; every other string is refused."""

    @given(keys)
    def test_sessions(self, key: str) -> None:
        assert parse_id(session_id(key)) == SessionRef(key)

    @given(keys, st.integers(1, (1 << 20) - 1))
    def test_turns(self, key: str, ordinal: int) -> None:
        assert parse_id(turn_id(key, ordinal)) == TurnRef(key, ordinal)

    @given(st.binary(min_size=16, max_size=16))
    def test_events(self, uid: bytes) -> None:
        assert parse_id(event_id(uid)) == EventRef(uid)

    @given(st.text())
    def test_any_text(self, text: str) -> None:
        """Whatever is accepted is exactly what we would have written."""
        try:
            ref = parse_id(text)
        except InvalidId:
            return
        assert str(ref) == text

    @given(keys, st.data())
    def test_a_changed_character_never_gives_the_same_object(self, key: str, data: st.DataObject) -> None:
        id = session_id(key)
        place = data.draw(st.integers(8, len(id) - 1))
        other = id[:place] + data.draw(st.sampled_from("AZaz09-_=+/ ")) + id[place + 1 :]
        try:
            assert (parse_id(other) == SessionRef(key)) == (other == id)
        except InvalidId:
            assert other != id

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "session:",
            "session",
            "event:",
            "not-a-valid-id",
            "Session:Y29kZXgvYQ",
            "session:Y29kZXgvYQ==",  # padding
            "session:Y29kZXgvYR",  # stray bits
            "session:Y29kZXgvYQ ",
            "session:Y29kZXg",  # no slash in it
            "session:L2E",  # no source
            "session:Y29kZXgv",  # no native id
            "session:_w",  # not UTF-8
            "turn:Y29kZXgvYQ",
            "turn:Y29kZXgvYQ:",
            "turn:Y29kZXgvYQ:0",
            "turn:Y29kZXgvYQ:01",
            "turn:Y29kZXgvYQ:-1",
            "turn:Y29kZXgvYQ:1048576",
            "turn:Y29kZXgvYQ:١",
            "event:AAAA",
            "event:" + base64.urlsafe_b64encode(bytes(17)).decode().rstrip("="),
            "session:" + "A" * 100_000,
        ],
    )
    def test_malformed(self, text: str) -> None:
        with pytest.raises(InvalidId):
            parse_id(text)

    def test_as_written_down(self) -> None:
        """The format is fixed: ids outlive versions."""
        assert session_id("claude-code/6f0c") == "session:Y2xhdWRlLWNvZGUvNmYwYw"
        assert turn_id("codex/a", 7) == "turn:Y29kZXgvYQ:7"
        assert event_id(bytes(range(16))) == "event:AAECAwQFBgcICQoLDA0ODw"


class TestDigest:
    @given(st.lists(st.text()), st.lists(st.text()))
    def test_differs_when_the_parts_do(self, one: list[str], other: list[str]) -> None:
        assert (digest(*one) == digest(*other)) == (one == other)

    def test_lone_surrogates(self) -> None:
        assert len(digest("\ud800")) == 16


class TestTimes:
    """Times as agents write them, in milliseconds; anything else is None."""

    @pytest.mark.parametrize(
        ("value", "ms"),
        [
            ("2026-02-10T08:19:22.658Z", 1770711562658),
            ("2026-02-10T09:19:22.658+01:00", 1770711562658),
            ("2026-02-10T08:19:22.658123456Z", 1770711562658),
            ("2026-02-10T08:19:22", 1770711562000),
            (1770711562, 1770711562000),
            (1770711562.658, 1770711562658),
            (1770711562658, 1770711562658),
            (1770711562658000, 1770711562658),
            ("yesterday", None),
            ("0001-01-01T00:00:00Z", None),
            (0, None),
            (True, None),
            (float("nan"), None),
            (float("inf"), None),
            (None, None),
            ({}, None),
        ],
    )
    def test_parse_time(self, value: object, ms: int | None) -> None:
        assert parse_time(value) == ms

    @given(st.integers(978_307_200_000, 4_102_444_799_999))
    def test_round_trip(self, ms: int) -> None:
        text = rfc3339(ms)
        assert len(text) == 24
        assert text.endswith("Z")
        assert parse_time(text) == ms


class TestEventTypes:
    def test_codes_are_for_ever(self) -> None:
        """The archive stores them."""
        assert [(kind, kind.code) for kind in EVENT_TYPES] == [
            ("user_input", 0),
            ("assistant_response", 1),
            ("reasoning", 2),
            ("tool_call", 3),
            ("tool_response", 4),
            ("compaction", 5),
            ("system", 6),
            ("runtime", 7),
            ("unknown", 8),
        ]
        assert EventType("user_input") is EventType.USER_INPUT
