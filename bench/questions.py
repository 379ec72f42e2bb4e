"""Questions about the sessions of a home, made from their transcripts, each with the sessions that answer it.

`questions` makes those that ranking was tuned with, `held_out` others, from texts and by rules that no weight was
chosen by: a gap between the two would show that the weights fit the questions and not the task.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from backstory.library import Library
from backstory.model import EVENT_TYPES, EventType, SessionRef, parse_id, rfc3339

_SEED = 7
_HELD_OUT_SEED = 20
_MAX_PER_KIND = 150
_EVER = (rfc3339(978_307_200_000), rfc3339(4_102_444_799_000))
_COMMIT = re.compile(
    r"""git\s+commit\b[^\n]*?-m\s+(?:"([^"$`\\\n]{12,120})|'([^'\n]{12,120})|"\$\(cat <<'?EOF'?\n([^\n]{12,120}))"""
)
_ERROR = re.compile(r"^.*?\b(?:\w*Error|\w*Exception|error|fatal|FAIL(?:ED)?|panic)\b.{15,160}$", re.MULTILINE)
_NUMBER = re.compile(r"\d+")
_PATH = re.compile(r"(?:/[\w.-]+){3,}\.\w{1,5}\b")
_WORD = re.compile(r"\w[\w'-]*")
_SENTENCE = re.compile(r"[A-Z][^.!?\n|`]{40,240}[.!?]")
# Openings of questions, as people put them before the words they remember.
_ASKED = (
    "what did we say about {}",
    "where was it that {}",
    "do you remember the session with {}",
    "I am looking for when we had {}",
    "how did we handle {}",
    "{}, which session was that?",
)


class Question(Struct, frozen=True):
    """A query and the keys of the sessions that answer it."""

    kind: str
    query: str
    answers: frozenset[str]


class Seen(Struct):
    """The texts of one session that questions are made from."""

    key: str
    prompt: str
    commits: list[str]
    errors: list[str]
    paths: list[str]
    later_prompts: list[str]
    sentences: list[str]
    """One of the middle of each answer."""


def read_sessions(library: Library) -> Iterator[Seen]:
    """All sessions of an archive, through the tools."""
    cursor: dict[str, str] = {}
    while True:
        page = library.sessions(*_EVER, limit=50, **cursor)["data"]
        for session in page["sessions"]:
            yield _read(library, session["id"])
        if not page.get("next_cursor"):
            return
        cursor = {"cursor": page["next_cursor"]}


def _read(library: Library, session_id: str) -> Seen:
    ref = parse_id(session_id)
    assert isinstance(ref, SessionRef)
    seen = Seen(ref.key, "", [], [], [], [], [])
    for turn in library.open(session_id)["data"]["turns"]:
        for event in library.read_turn(turn["id"], EVENT_TYPES):
            text, kind = _text(event.content), event.event.type
            if kind == EventType.USER_INPUT:
                if seen.prompt:
                    seen.later_prompts.append(text)
                seen.prompt = seen.prompt or text
            elif kind == EventType.ASSISTANT_RESPONSE:
                sentences = _SENTENCE.findall(text)
                seen.sentences += sentences[len(sentences) // 2 :][:1]
            elif kind == EventType.TOOL_CALL:
                seen.commits += [next(filter(None, match.groups())).strip() for match in _COMMIT.finditer(text)]
                seen.paths += _PATH.findall(text)
            elif kind == EventType.TOOL_RESPONSE:
                seen.errors += [line.strip() for line in _ERROR.findall(text)[:3]]
    return seen


def _text(content: Any) -> str:
    """The text of an event; of a tool call the strings among its arguments."""
    arguments = getattr(content, "arguments", None)
    if isinstance(arguments, dict):
        return "\n".join(value for value in arguments.values() if isinstance(value, str))
    return str(getattr(content, "text", "") or "")


def questions(sessions: Sequence[Seen], known_items: Path) -> list[Question]:
    """Questions of every kind, the same ones for the same sessions."""
    chance = random.Random(_SEED)
    made = [
        *_shared("commit subject", sessions, lambda seen: seen.commits, lambda subject: subject),
        *_prompts(sessions, chance),
        *_shared("error, other numbers", sessions, lambda seen: seen.errors, lambda line: _renumber(line, chance)),
        *_shared(
            "path by its tail", sessions, lambda seen: seen.paths, lambda path: "/".join(PurePosixPath(path).parts[-2:])
        ),
    ]
    return [*_known(sessions, known_items), *_limited(made, chance)]


def _shared(
    kind: str, sessions: Sequence[Seen], texts: Callable[[Seen], Iterable[str]], ask: Callable[[str], str]
) -> Iterator[Question]:
    """A question for every text that at most three sessions hold."""
    holders: dict[str, set[str]] = defaultdict(set)
    for seen in sessions:
        for text in texts(seen):
            holders[text].add(seen.key)
    for text, keys in holders.items():
        if len(keys) <= 3:
            yield Question(kind, ask(text), frozenset(keys))


def _prompts(sessions: Sequence[Seen], chance: random.Random) -> Iterator[Question]:
    """A first prompt as somebody remembers it: half of its words, in another order."""
    for seen in sessions:
        words = list(dict.fromkeys(_WORD.findall(seen.prompt[:600])))
        if len(words) >= 6:
            kept = chance.sample(words, min(10, len(words) // 2))
            same = frozenset(other.key for other in sessions if other.prompt == seen.prompt)
            yield Question("prompt, half its words", " ".join(kept), same)


def _renumber(line: str, chance: random.Random) -> str:
    return _NUMBER.sub(lambda match: "".join(chance.choice("0123456789") for _ in match[0]), line)


def _known(sessions: Sequence[Seen], path: Path) -> Iterator[Question]:
    by_native = {seen.key.partition("/")[2]: seen.key for seen in sessions}
    if not path.exists():
        return
    for line in path.read_text("utf-8").splitlines():
        item = json.loads(line)
        keys = frozenset(by_native[native] for native in item["sessions"] if native in by_native)
        if keys:
            yield Question("known item", item["query"], keys)


def held_out(sessions: Sequence[Seen]) -> list[Question]:
    """Questions as people ask them about what they remember: words of the middle of an answer or of a later prompt,
    in order, behind an opening of function words; and words of two different answers of one session."""
    chance = random.Random(_HELD_OUT_SEED)
    made = [
        *_shared("middle of an answer", sessions, lambda seen: seen.sentences, lambda text: _remembered(text, chance)),
        *_shared("later prompt", sessions, lambda seen: seen.later_prompts, lambda text: _remembered(text, chance)),
        *_joined(sessions, chance),
    ]
    return _limited((question for question in made if len(question.query.split()) > 5), chance)


def _remembered(text: str, chance: random.Random) -> str:
    """Up to seven words of the text behind an opening: every second one of the longer ones, in order."""
    words = [word for word in _WORD.findall(text[:400]) if len(word) > 3]
    kept = sorted(chance.sample(range(len(words)), min(7, len(words) // 2)))
    return chance.choice(_ASKED).format(" ".join(words[place] for place in kept))


def _joined(sessions: Sequence[Seen], chance: random.Random) -> Iterator[Question]:
    for seen in sessions:
        if len(seen.sentences) > 3:
            one, other = (_some_words(text, chance) for text in chance.sample(seen.sentences, 2))
            query = f"the session about {one} and then {other}"
            yield Question("two answers of a session", query, frozenset([seen.key]))


def _some_words(text: str, chance: random.Random) -> str:
    words = [word for word in _WORD.findall(text) if len(word) > 4]
    return " ".join(chance.sample(words, min(3, len(words))))


def _limited(made: Iterable[Question], chance: random.Random) -> list[Question]:
    """At most `_MAX_PER_KIND` questions of each kind, by chance."""
    by_kind: dict[str, list[Question]] = defaultdict(list)
    for question in made:
        by_kind[question.kind].append(question)
    for group in by_kind.values():
        chance.shuffle(group)
        del group[_MAX_PER_KIND:]
    return [question for group in by_kind.values() for question in group]
