"""Reading JSONL that is being written."""

from __future__ import annotations

import contextlib
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.ingest import reading
from backstory.ingest.reading import BrokenLine, decode_line, lines

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(max_size=8), json_values, max_size=4)


def read(data: bytes, offset: int = 0) -> list[tuple[int, bytes]]:
    stream = io.BytesIO(data)
    stream.seek(offset)
    return list(lines(stream, offset))


class TestLines:
    """Whole lines come with the offset after them; what is not whole waits."""

    @given(st.lists(st.binary(max_size=50).filter(lambda b: b"\n" not in b)), st.integers(1, 40))
    def test_any_bytes_any_chunks(self, parts: list[bytes], chunk: int) -> None:
        data = b"".join(part + b"\n" for part in parts)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "_CHUNK_BYTES", chunk)
            found = read(data)
        assert [line for _, line in found] == parts
        assert all(data[:end].endswith(line + b"\n") for end, line in found)
        assert not found or found[-1][0] == len(data)

    @given(st.lists(json_objects, min_size=1, max_size=4), st.data())
    def test_reading_on_misses_and_repeats_nothing(self, records: list[object], data: st.DataObject) -> None:
        """However a file grows, each record is read once."""
        text = b"".join(json.dumps(record).encode() + b"\n" for record in records)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
        offset, seen = 0, []
        for cut in [*cuts, len(text)]:
            for end, line in read(text[:cut], offset):
                seen += decode_line(line)
                offset = end
        assert seen == records

    def test_a_torn_tail_waits(self) -> None:
        assert read(b'{"a": 1}\n{"b": ') == [(9, b'{"a": 1}')]

    def test_a_whole_object_without_newline_counts(self) -> None:
        """Many agents write no last newline; an object cannot grow into another one."""
        assert read(b'{"a": 1}\n{"b": 2}') == [(9, b'{"a": 1}'), (17, b'{"b": 2}')]

    def test_a_tail_torn_inside_a_character_waits(self) -> None:
        whole = '{"a": "é"}'.encode()
        assert read(whole[:-3]) == []

    def test_a_number_at_the_end_waits(self) -> None:
        """More digits may follow."""
        assert read(b"12") == []

    def test_a_line_beyond_the_limit_is_cut_and_the_next_one_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "MAX_LINE_BYTES", 100)
        monkeypatch.setattr(reading, "_CHUNK_BYTES", 30)
        data = b'{"big": "' + b"x" * 500 + b'"}\n{"small": 1}\n'
        found = read(data)
        assert [end for end, _ in found] == [data.index(b"\n") + 1, len(data)]
        assert len(found[0][1]) <= 130
        assert found[1][1] == b'{"small": 1}'


class TestDecodeLine:
    """A line gives its JSON values, and a broken one whatever can be saved of it."""

    @given(json_objects)
    def test_round_trip(self, record: object) -> None:
        assert decode_line(json.dumps(record).encode()) == [record]

    @given(st.lists(json_objects, min_size=2, max_size=4))
    def test_glued_objects(self, records: list[object]) -> None:
        assert decode_line("".join(map(json.dumps, records)).encode()) == records

    @given(st.binary(max_size=200))
    def test_any_bytes(self, line: bytes) -> None:
        """Nothing but BrokenLine is ever raised."""
        with contextlib.suppress(BrokenLine):
            decode_line(line)

    def test_an_object_after_a_torn_one_is_saved(self) -> None:
        with pytest.raises(BrokenLine) as caught:
            decode_line(b'{"type": "user", "te{"type": "assistant"}')
        assert caught.value.records == [{"type": "assistant"}]

    def test_lone_surrogates_are_replaced(self) -> None:
        assert decode_line(b'{"a": "x\\ud800y", "b": "\\ud83d\\ude00"}') == [{"a": "x\ufffdy", "b": "😀"}]

    def test_nul_bytes_after_a_crash_are_ignored(self) -> None:
        assert decode_line(b'\0\0\0{"a": 1}') == [{"a": 1}]

    def test_a_byte_order_mark_is_ignored(self) -> None:
        assert decode_line(b'\xef\xbb\xbf{"a": 1}') == [{"a": 1}]

    def test_blank(self) -> None:
        assert decode_line(b"  \r") == []

    def test_nesting_beyond_reason_is_a_broken_line(self) -> None:
        with pytest.raises(BrokenLine):
            decode_line(b'{"a":' * 100_000)
