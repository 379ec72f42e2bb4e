"""The archive is the same whatever the order and the batches in which the transcripts come."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

import pytest
from family_world import Files, append, changes, dump, home, relative
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backstory.archive.local import writer
from backstory.archive.local.writer import LocalWriter
from backstory.ingest import families, pipeline, scan
from backstory.ingest.progress import Pass
from backstory.library import Library
from tests.examples import PATIENT, examples
from tests.transcripts import Transcript, stable_uuid

HOME = home()
NAMES = sorted(HOME)
OWNERS = {
    form: name
    for name in ("first", "second")
    for form in (relative(Transcript(name)), f"claude-code/{stable_uuid(name)}")
}


def library_in(folder: Path) -> Library:
    return Library(folder / "backstory", agents_home=folder / "home", environ=PATIENT)


class Contents:
    """The content of an archive."""

    def __init__(self, library: Library) -> None:
        self.rows = dump(library)

    def __sub__(self, other: Contents) -> list[Any]:
        return changes(self.rows, other.rows)


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contents]:
    """Rows after one sync of everything."""
    folder = tmp_path_factory.mktemp("at_once")
    for name, parts in HOME.items():
        append(folder / "home", name, b"".join(parts))
    library = library_in(folder)
    library.sync()
    yield Contents(library)
    library.close()


def read(folder: Path, batches: list[list[tuple[str, bytes]]], *, catch_up: bool = False) -> Contents:
    library = library_in(folder)
    for batch in batches:
        for name, data in batch:
            append(folder / "home", name, data)
        if catch_up:  # as before a search: what has changed is looked for, and only that is read
            library.catch_up()
        else:
            assert library.sync().skipped == 0
    result = Contents(library)
    library.close()
    return result


def whole(name: str) -> tuple[str, bytes]:
    return name, b"".join(HOME[name])


class TestOrder:
    def test_what_belongs_to_whom(self, at_once: Contents) -> None:
        """No turn is repeated, and none is lost."""
        prompts = [event["text"] for event in at_once.rows["events"] if event["type"] == "user_input"]
        assert sorted(prompts) == sorted(
            {
                *(f"question {name}" for name in ("one", "two", "three", "of old", "here", "there")),
                *(f"question for agent {name}" for name in ("a1", "a2", "a3")),
                *(f"agent {name}, look around" for name in ("a1", "a2", "a3")),
                "question to be helped with", "question after the summary",
                "another question", "fork of two", "fork of the fork", "marked fork",
                *(f"question of {name}" for name in ("one", "two", "three", "of an agent")),
                *(f"question of {name}" for name in ("fork", "fork of the fork", "early fork", "orphan")),
                "question of of a session that is gone",
                *(f"question of {name}" for name in ("without a name", "without one either", "fork without a name")),
            }
        )  # fmt: skip

    def test_a_few_files_at_a_time(self, at_once: Contents, tmp_path: Path) -> None:
        batches = [NAMES[start : start + 4] for start in range(0, len(NAMES), 4)]
        assert at_once - read(tmp_path, [[whole(name) for name in batch] for batch in batches]) == []

    def test_one_at_a_time_the_other_way_round(self, at_once: Contents, tmp_path: Path) -> None:
        assert at_once - read(tmp_path, [[whole(name)] for name in reversed(NAMES)]) == []

    @pytest.mark.parametrize("size", [1, 3, 100_000])
    def test_any_commit_size(self, at_once: Contents, tmp_path: Path, size: int) -> None:
        with patch.object(pipeline, "_EVENTS_PER_COMMIT", size), patch.object(pipeline, "_FILES_PER_COMMIT", size):
            assert at_once - read(tmp_path, [[whole(name) for name in NAMES]]) == []

    def test_a_copy_that_ends_where_a_turn_begins(self, tmp_path: Path) -> None:
        """The copy of a turn has only begun, and its original is still to come: it is the original's all the same."""
        copy = next(name for name in NAMES if b'"parent_thread_id"' in HOME[name][0])
        parent = json.loads(HOME[copy][1])["payload"]["id"]
        original = next(name for name in NAMES if parent in name)
        expected = read(tmp_path / "whole", [[whole(original), whole(copy)]])

        def split(name: str, after: int) -> tuple[tuple[str, bytes], tuple[str, bytes]]:
            """Before the record that begins the second turn, or so many records later."""
            starts = [number for number, line in enumerate(HOME[name]) if b'"task_started"' in line]
            cut = starts[1] + after
            return (name, b"".join(HOME[name][:cut])), (name, b"".join(HOME[name][cut:]))

        for after in (1, 2):
            begun, rest = split(copy, after)
            first, second = split(original, 0)
            found = read(tmp_path / str(after), [[begun], [first], [second], [rest]])
            assert expected - found == []

    @settings(max_examples=examples(0.2), suppress_health_check=list(HealthCheck))
    @given(
        seed=st.integers(0, 1 << 32),
        size=st.sampled_from([1, 5, 4000]),
        batches=st.integers(1, 9),
        few=st.sampled_from([0, 2, 16]),
        catch_up=st.booleans(),
    )
    def test_any_order_in_any_batches(
        self, at_once: Contents, seed: int, size: int, batches: int, few: int, catch_up: bool
    ) -> None:
        """Files come in any order, cut anywhere, a few at a time. Relatives are looked up for so few, else all are
        loaded."""
        plan = scatter(HOME, random.Random(seed), batches)
        with (
            patch.object(pipeline, "_EVENTS_PER_COMMIT", size),
            patch.object(pipeline, "_FILES_PER_COMMIT", size),
            patch.object(families, "_FEW", few),
            patch.object(scan, "_FEW", few),
            tempfile.TemporaryDirectory() as folder,
        ):
            assert at_once - read(Path(folder), plan, catch_up=catch_up) == []


class TestReadingAgain:
    """A copy that was read before its original is read again when that comes."""

    FIRST = next(name for name in NAMES if "first" in OWNERS.get(name, ""))
    SECOND = next(name for name in NAMES if "second" in OWNERS.get(name, ""))

    def put(self, folder: Path, *names: str) -> None:
        for name in names:
            append(folder / "home", *whole(name))

    def prompts(self, library: Library) -> dict[str, list[str]]:
        rows = dump(library)["events"]
        prompts: dict[str, list[str]] = {}
        for row in rows:
            if row["type"] == "user_input":
                prompts.setdefault(OWNERS[row["session"]], []).append(row["text"])
        return prompts

    def test_copies_of_an_original_that_never_comes(self, tmp_path: Path) -> None:
        self.put(tmp_path, self.SECOND)
        library = library_in(tmp_path)
        library.sync()
        assert self.prompts(library) == {"second": ["question one", "question two", "fork of two"]}
        library.close()

    def test_nothing_that_was_read_is_lost(self, tmp_path: Path) -> None:
        """A copy whose transcript is gone keeps what it has: it could not be read again."""
        self.put(tmp_path, self.SECOND)
        library = library_in(tmp_path)
        library.sync()
        (tmp_path / "home" / self.SECOND).unlink()
        self.put(tmp_path, self.FIRST)
        library.sync()
        prompts = self.prompts(library)
        assert prompts == {"second": ["question one", "question two", "fork of two"], "first": ["question three"]}
        library.close()

    def test_nothing_is_lost_that_was_cut_off(self, tmp_path: Path) -> None:
        """Nor does a copy that was cut after it was read lose its end: it could not be read again."""
        self.put(tmp_path, self.SECOND)
        library = library_in(tmp_path)
        library.sync()
        (tmp_path / "home" / self.SECOND).write_bytes(b"".join(HOME[self.SECOND][:-1]))
        library.sync()
        self.put(tmp_path, self.FIRST)
        library.sync()
        assert "answer to the fork" in {row["text"] for row in dump(library)["events"]}
        library.close()

    @pytest.mark.parametrize("step", ["_remove", "flush"])
    def test_killed_on_the_way(self, tmp_path: Path, step: str) -> None:
        """After a crash the next process sees what is left to do."""
        self.put(tmp_path, self.SECOND)
        library = library_in(tmp_path)
        library.sync()
        self.put(tmp_path, self.FIRST)
        with patch.object(LocalWriter, step, side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            library.sync()
        library.close()
        library = library_in(tmp_path)
        library.sync()
        assert self.prompts(library) == {
            "first": ["question one", "question two", "question three"],
            "second": ["fork of two"],
        }
        library.close()

    def test_while_another_process_follows(
        self, at_once: Contents, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It makes the traces of agents whose session is being read again, because of the transcript of another one."""
        batches = [[whole(name) for name in NAMES if "agent-a2" not in name]]
        batches.append([whole(name) for name in NAMES if "agent-a2" in name])
        with patch.object(writer, "_BULK_BYTES", 0):
            assert at_once - read(tmp_path, batches) == []
        assert caplog.messages == []

    def test_past_the_deadline(self, tmp_path: Path) -> None:
        """The next sync does the rest; until then nothing is missing."""
        self.put(tmp_path, self.SECOND)
        library = library_in(tmp_path)
        library.sync()
        self.put(tmp_path, self.FIRST)
        with patch.object(Pass, "is_over", new_callable=PropertyMock, side_effect=chain([False], repeat(True))):
            library.sync()
        assert sum(len(texts) for texts in self.prompts(library).values()) == 4
        assert library.sync().files
        assert self.prompts(library)["second"] == ["fork of two"]
        assert library.sync().files == 0
        library.close()


def scatter(files: Files, chance: random.Random, batches: int) -> list[list[tuple[str, bytes]]]:
    """The files in batches; most come whole, some in several of them, torn at any byte."""
    plan: list[dict[str, bytes]] = [{} for _ in range(batches)]
    for name, parts in files.items():
        data = b"".join(parts)
        cuts = sorted(chance.sample(range(1, len(data)), chance.choice([0, 0, 1, 2])))
        pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        for batch, piece in zip(sorted(chance.choices(range(batches), k=len(pieces))), pieces, strict=True):
            plan[batch][name] = plan[batch].get(name, b"") + piece
    return [chance.sample(sorted(batch.items()), len(batch)) for batch in plan]
