"""Import takes any bytes: their problems are a list in the answer, never an error of the program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backstory.toolsets.capsules.files as formats
from tests.capsule_world import GOOD, HEADER, World, handler_call, record

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
# Lines that look like records, with anything in any field.
records = st.fixed_dictionaries({}, optional=dict.fromkeys(record(), json_values) | {"allow_thin": json_values})
lines = st.one_of(
    st.binary(max_size=60),
    records.map(lambda fields: json.dumps(record(1) | fields).encode()),
    st.integers(1, 3).map(lambda number: json.dumps(record(number)).encode()),
    st.sampled_from([json.dumps(HEADER).encode(), b"", b"[" * 3000, b'{"id":"\\ud800"}', b"\xff\xfe", b"null", b"NaN"]),
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, handler_call(tmp_path))


class TestAnyBytes:
    @given(
        content=st.lists(lines, max_size=6),
        mode=st.sampled_from(("error", "replace", "rename")),
        end=st.binary(max_size=9),
    )
    def test_in_a_clean_list_out(self, world: World, content: list[bytes], mode: str, end: bytes) -> None:
        """Every problem has a line that is in the file, a code and a message; in mode error it is all or nothing."""
        before = world.ok("inventory", include_deleted=True)["pagination"]["total"]
        data = b"\n".join([*content, end])
        path = world.write("in.jsonl")
        path.write_bytes(data)
        answer = world.ok("import", path=str(path), mode=mode)

        assert set(answer) == {"imported", "skipped", "errors"}
        for error in answer["errors"]:
            assert 1 <= error["line"] <= data.count(b"\n") + 1
            assert error["code"].isupper()
            assert error["message"]
        after = world.ok("inventory", include_deleted=True)["pagination"]["total"]
        if mode == "error" and answer["errors"]:
            assert answer["imported"] == 0
        assert after <= before + answer["imported"]
        if mode != "replace":
            assert after == before + answer["imported"]

    def test_a_line_without_end(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """A line that is too long is an error and is not read into memory; the lines around it are imported."""
        monkeypatch.setattr(formats, "_LINE_BYTES", 5000)
        long = json.dumps(record(2, capsule_text=GOOD + "x" * 90_000)).encode()
        answer = world.ok("import", path=str(world.write("in.jsonl", record(1), long, record(3), long)), mode="replace")

        assert answer["imported"] == 2
        assert [(error["line"], error["code"]) for error in answer["errors"]] == [
            (2, "PARSE_ERROR"),
            (4, "PARSE_ERROR"),
        ]

    def test_a_file_of_nothing_but_problems(self, world: World) -> None:
        """The answer lists a hundred problems and the number of the others."""
        answer = world.ok("import", path=str(world.write("in.jsonl", *[b"x"] * 10_500)), mode="replace")

        assert len(answer["errors"]) == 101
        assert "10,400 more" in answer["errors"][-1]["message"]
        assert len(str(answer)) < 20_000


class TestAnyCapsule:
    @given(
        text=st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip),
        name=st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=50).filter(str.strip),
        fields=st.fixed_dictionaries(
            {},
            optional={
                "workspace": st.text(st.characters(codec="utf-8"), max_size=50),
                "title": st.text(st.characters(codec="utf-8"), max_size=50),
                "tags": st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=5),
                "source": st.text(st.characters(codec="utf-8"), max_size=50),
            },
        ),
    )
    def test_comes_back_as_it_was_given(
        self, world: World, text: str, name: str | None, fields: dict[str, Any]
    ) -> None:
        """Through the store, the search index, and an export that is imported again."""
        given = (
            {"capsule_text": text, "allow_thin": True, "mode": "replace"} | fields | ({"name": name} if name else {})
        )
        stored = world.ok("store", **given)
        item = world.ok("fetch", id=stored["id"], raw=True)
        assert item["capsule_text"] == text
        assert item.get("name") == name
        assert item.get("tags", []) == fields.get("tags", [])
        if name is not None:
            assert world.ok("fetch", name=f" {name}\t", workspace=item["workspace"])["id"] == stored["id"]
        world.ok("search", query=text[:1000].strip() or "x")
        exported = world.ok("export", path=str(world.exports / "all.jsonl"))
        assert world.ok("import", path=exported["path"])["skipped"] == exported["count"]
        world.ok("delete", id=stored["id"])
        world.ok("purge")
