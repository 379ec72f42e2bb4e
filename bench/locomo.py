"""LoCoMo, the public benchmark of long dialogues: `python -m bench.locomo locomo10.json` measures how often the session
that holds the answer is found.

The data set is not part of this repository: its file has ten dialogues of two people, each of up to 32 sessions, and
questions with the messages that answer them. Each dialogue becomes an archive of its own, each of its sessions a
transcript, in which one speaker prompts and the other one answers. Questions without evidence are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from backstory.library import Library
from bench.questions import Question
from bench.relevance import Scores, evaluate, show

# As the data set numbers them.
_CATEGORIES = {1: "several sessions", 2: "time", 3: "inference", 4: "one session", 5: "adversarial"}
_SESSION = re.compile(r"session_(\d+)")
_EVIDENCE = re.compile(r"D:?(\d+)")
_TIME = "%I:%M %p on %d %B, %Y"
_FIRST = datetime(2023, 1, 1, tzinfo=UTC)


def write_dialogue(sample: Mapping[str, Any], home: Path) -> None:
    """Write the sessions of a dialogue as transcripts of Claude Code."""
    dialogue = sample["conversation"]
    folder = home / ".claude" / "projects" / "-home-dev-dialogue"
    folder.mkdir(parents=True)
    for name, messages in dialogue.items():
        match = _SESSION.fullmatch(name)
        if match and messages:
            session = _session_id(sample, int(match[1]))
            clock = _time(dialogue.get(f"{name}_date_time"))
            lines = list(_records(session, messages, dialogue["speaker_a"], clock))
            (folder / f"{session}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def questions(sample: Mapping[str, Any]) -> Iterator[Question]:
    """The questions of a dialogue that name the messages with the answer."""
    for asked in sample["qa"]:
        places = {int(place) for one in asked.get("evidence") or () for place in _EVIDENCE.findall(one)}
        if places:
            answers = frozenset(f"claude-code/{_session_id(sample, place)}" for place in places)
            yield Question(_CATEGORIES.get(asked["category"], "other"), asked["question"], answers)


def _session_id(sample: Mapping[str, Any], number: int) -> str:
    return str(uuid5(NAMESPACE_URL, f"{sample['sample_id']}/{number}"))


def _time(text: str | None) -> datetime:
    return datetime.strptime(text, _TIME).replace(tzinfo=UTC) if text else _FIRST


def _records(session: str, messages: Sequence[Mapping[str, str]], prompts: str, clock: datetime) -> Iterator[Any]:
    parent = None
    for number, message in enumerate(messages):
        text = f"{message['speaker']}: {message['text']}"
        if caption := message.get("blip_caption"):  # of the picture that was sent with it
            text += f" ({caption})"
        role = "user" if message["speaker"] == prompts else "assistant"
        uuid = str(uuid5(NAMESPACE_URL, f"{session}/{number}"))
        yield {
            "type": role,
            "uuid": uuid,
            "parentUuid": parent,
            "sessionId": session,
            "cwd": "/home/dev/dialogue",
            "timestamp": (clock + timedelta(seconds=30 * number)).isoformat(),
            "message": {"role": role, "content": [{"type": "text", "text": text}]},
        }
        parent = uuid


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="locomo10.json of the data set")
    options = parser.parse_args()
    samples = json.loads(options.file.read_text("utf-8"))
    table: dict[str, Scores] = {}
    for sample in samples:
        with tempfile.TemporaryDirectory(prefix="backstory-locomo-") as folder:
            home = Path(folder)
            write_dialogue(sample, home)
            with Library(home / "archive", agents_home=home, environ={"PATH": os.environ["PATH"]}) as library:
                library.sync()
                for kind, scores in evaluate(library, list(questions(sample))).items():
                    whole = table.setdefault(kind, Scores([], [], []))
                    whole.ranks += scores.ranks
                    whole.gains += scores.gains
                    whole.seconds += scores.seconds
    everything = table.pop("all")
    show(f"{len(samples)} dialogues", {**dict(sorted(table.items())), "all": everything})
    return 0


if __name__ == "__main__":
    sys.exit(main())
