"""Turns the records of one transcript into items."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ...model import EventType, digest
from ..base import About, Event, Item, Transcript, TurnEnd, Usage
from ..content import count_images, readable
from ..fields import text_of
from ..parsing import remember
from .answers import begin_exchange, is_synthetic, mark_answers, mark_user, read_answer
from .children import Children, displaced_records, read_sidecar
from .content import Part, is_notification, is_slash_command, split_prompt
from .inputs import MACHINES, add_pieces, add_prompt, add_waiting, read_input
from .kinds import ATTACHMENTS, SKIPPED_ATTACHMENTS, SKIPPED_RECORDS, SKIPPED_SUBTYPES, SUBTYPES, TITLES, Reading
from .layout import Projects, agent_id, session_folder
from .state import Entry, State, Thread
from .usage import usage_key

_MAX_SUMMARIES = 64
_MAX_TWINS = 4096
_LEAVES = 16
_NO_BRANCH = {"", "HEAD"}
_TURN_OVER = {"turn_duration", "stop_hook_summary"}
_FACTS = {
    "trigger": "trigger",
    "preTokens": "tokens_before",
    "postTokens": "tokens_after",
    "tokensSaved": "tokens_saved",
}


class ClaudeCodeParser:
    def __init__(self, transcript: Transcript, state: dict[str, Any] | None, projects: Projects) -> None:
        path, parent = transcript.path, transcript.parent
        if state is None:
            self._state = State(main=Thread(child=parent is not None))
        else:
            self._state = msgspec.convert(state, State)
        self._path = path
        self._session = transcript.session
        self._in_folder = transcript.folder is not None
        self._folder = session_folder(path)
        if agent_id(path) and parent and self._folder == path.with_suffix(""):
            self._folder = path.with_name(parent)  # before 2.0.60 or so subagents lay beside their session
        self._children = Children(self._state, transcript.session, parent or transcript.session, self._folder, projects)
        self._displaced = displaced_records(self._folder, projects) if parent is None else {}

    def parse(self, record: Any) -> Iterable[Item]:
        if type(record) is not dict:
            raise ValueError(f"not a JSON object but {type(record).__name__}")
        items = self._read(record)
        if self._in_folder and (record.get("type") not in ("user", "assistant") or record.get("isMeta") is True):
            items = list(items)
            _set_aside(items)
        if self._in_folder and (record.get("sessionId") != self._session or "forkedFrom" in record):
            items = list(items)
            self._note_origin(record, items)
        return items

    def _read(self, record: dict[str, Any]) -> Iterable[Item]:
        kind = record.get("type")
        if kind == "progress":  # half of all records: ticks of hooks and commands, whose outcome stands elsewhere
            data = record.get("data")
            if type(data) is dict and data.get("type") == "agent_progress":
                return self._read_nested(record, data)
            return self._recover(record) if self._displaced else ()
        if kind != "assistant" and kind != "user" and isinstance(kind, str):
            if kind in SKIPPED_RECORDS:
                return ()
            if handler := _HANDLERS.get(kind):
                return handler(self, record)
        items = self._recover(record) if self._displaced else []
        self._converse(record, self._thread_of(record, items), items)
        return items

    def finish(self) -> Iterable[Item]:
        items: list[Item] = []
        about = read_sidecar(self._path)
        if about and self._is_news(about.title_rank, about.title or about.parent_call or ""):
            items.append(about)
        if not self._state.end_turns:
            items.append(TurnEnd(provisional=True))
        return items

    def state(self) -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(self._state)
        return built

    def _note_origin(self, record: dict[str, Any], items: list[Item]) -> None:
        """A fork names the session that it copied a record from; a copy of the file has the id of the other session."""
        origin = text_of(record.get("forkedFrom"), "sessionId") or text_of(record, "sessionId")
        if origin and origin not in (self._session, self._path.stem):
            for item in items:
                if isinstance(item, Event | Usage):
                    item.origin = origin

    # ---- the conversation

    def _recover(self, record: dict[str, Any]) -> list[Item]:
        """The records that belong before this one, and stand in another file (`displaced_records`)."""
        items: list[Item] = []
        for name in ("parentUuid", "logicalParentUuid"):
            lost = self._displaced.pop(text_of(record, name) or "", None)
            if lost and lost["uuid"] not in self._state.recovered:
                self._state.recovered.append(lost["uuid"])
                items += self._recover(lost)
                self._converse(lost, self._state.main, items)
        return items

    def _thread_of(self, record: dict[str, Any], items: list[Item]) -> Thread:
        state = self._state
        if record.get("isSidechain") is not True:
            state.plain = True
        elif state.plain and not state.main.child:
            thread, about = self._children.of_sidechain(record, state.main)
            if about:
                items.append(about)
            return thread
        return state.main

    def _converse(self, record: dict[str, Any], thread: Thread, items: list[Item]) -> None:
        self._add_about(record, thread, items)
        state = self._state
        entry = Entry(record, thread, self._identity(record, thread), items)
        kind, message = record.get("type"), record.get("message")
        if kind == "user" and isinstance(message, dict):
            before = len(items)
            read_input(entry, message, state, self._children, self._folder)
            if self._has_exchanges(thread):
                mark_user(entry, message, items[before:])
            if state.waiting and state.waiting.begun:
                items[before:before] = add_waiting(state)
            if state.queue.absorbed and thread is state.main and _starts_turn(items[before:]):
                items[before:before] = self._absorbed()
        elif kind == "assistant" and isinstance(message, dict):
            key = usage_key(message, record, entry.identity)
            # Between two records of one message the agent got nothing new.
            if (state.queue.absorbed or state.waiting) and thread is state.main and thread.message != key.hex():
                items += self._absorbed()
                self._begin_answer(record, message, items)
            before = len(items)
            read_answer(entry, message, key, state)
            if self._has_exchanges(thread):
                mark_answers(entry, message, items[before:])
        elif kind == "system":
            self._read_system(entry)
        elif kind == "attachment":
            self._read_attachment(entry)
        elif kind == "saved_hook_context":  # written again after each turn, under the same uuid
            entry.add("0", EventType.SYSTEM, readable(record.get("content")))
        else:
            entry.add_unknown()

    def _has_exchanges(self, thread: Thread) -> bool:
        """True for a session in a project folder; subagents have no exchanges."""
        return self._in_folder and thread is self._state.main

    def _identity(self, record: dict[str, Any], thread: Thread) -> str:
        """The identity of the record in every copy: its uuid, else its content and the count of equal ones so far."""
        state = self._state
        if uuid := text_of(record, "uuid"):
            if thread is state.main:
                state.leaves.append(uuid)
                if len(state.leaves) > 2 * _LEAVES:
                    del state.leaves[:_LEAVES]
            return uuid
        said = {name: value for name, value in record.items() if name not in ("sessionId", "session_id")}
        instant = text_of(record, "timestamp") or self._session
        mark = digest(instant, json.dumps(said, sort_keys=True)).hex()
        if instant != state.instant:
            state.instant, state.twins = instant, {}
        count = state.twins.get(mark, 0)
        remember(state.twins, mark, count + 1, _MAX_TWINS)
        return f"{mark} {count}"

    def _add_about(self, record: dict[str, Any], thread: Thread, items: list[Item]) -> None:
        """The folder, branch and version of the session, when they have changed."""
        state = self._state
        news: dict[str, Any] = {}
        if (cwd := record.get("cwd")) != thread.cwd and isinstance(cwd, str) and cwd:
            thread.cwd = news["cwd"] = cwd
        if (
            (branch := record.get("gitBranch")) != thread.branch
            and isinstance(branch, str)
            and branch not in _NO_BRANCH
        ):
            thread.branch = news["branch"] = branch
        if (version := record.get("version")) != thread.version and isinstance(version, str) and version:
            thread.version = news["version"] = version
        if (slug := record.get("slug")) != thread.slug and isinstance(slug, str) and slug:
            thread.slug = news["slug"] = slug
        if "forkedFrom" in record and thread is state.main:
            fork = text_of(record["forkedFrom"], "sessionId")
            if fork and fork != state.forked_from:
                state.forked_from = news["forked_from"] = fork
        if news:
            items.append(About(session=thread.session, **news))
        if state.summaries and (summary := state.summaries.pop(text_of(record, "uuid") or "", None)):
            state.summarised = True
            items.append(About(title=summary, title_rank=1, summary=summary))

    def _absorbed(self) -> list[Item]:
        """Prompts that reached the agent without a record of their own (see `queue`)."""
        items: list[Item] = []
        for queued in self._state.queue.drain():
            stamp = queued.absorbed or queued.typed
            identity = digest("queued", queued.typed, queued.text).hex()
            entry = Entry({"timestamp": stamp}, self._state.main, identity, items)
            if is_notification(queued.text) or is_slash_command(queued.text):
                entry.add("prompt", EventType.SYSTEM, queued.text)
            else:
                prompt = add_prompt(entry, queued.text, queued=True)
                if self._has_exchanges(entry.thread):
                    begin_exchange(prompt, queued.text)
        return items

    def _begin_answer(self, record: dict[str, Any], message: dict[str, Any], items: list[Item]) -> None:
        """A message of the model begins: the prompts it answers, where that was not known before."""
        if is_synthetic(record, message):
            self._state.waiting = None
        else:
            items += add_waiting(self._state)

    def _read_system(self, entry: Entry) -> None:
        record, subtype = entry.record, text_of(entry.record, "subtype") or ""
        if subtype == "local_command":
            pieces = split_prompt(readable(record.get("content")))
            if self._state.waiting and any(piece.part is Part.OUTPUT for piece in pieces):
                self._state.waiting.printed = True
            add_pieces(entry, pieces, typed=False, queued=False)
        elif reading := SUBTYPES.get(subtype):
            self._add_reading(entry, reading, record)
            entry.thread.compacted = subtype == "compact_boundary"
            if entry.thread.compacted and entry.thread is self._state.main:
                self._state.costs.add_compaction(entry.identity, entry.ts)
        elif subtype not in SKIPPED_SUBTYPES:
            entry.add_unknown()
        if subtype in _TURN_OVER:
            entry.end_turn()

    def _read_attachment(self, entry: Entry) -> None:
        attachment: Any = entry.record.get("attachment")
        kind = text_of(attachment, "type") or ""
        if kind == "queued_command":
            self._read_queued(entry, attachment)
        elif reading := ATTACHMENTS.get(kind):
            self._add_reading(entry, reading, attachment)
        elif kind not in SKIPPED_ATTACHMENTS:
            entry.add_unknown()

    def _read_queued(self, entry: Entry, attachment: dict[str, Any]) -> None:
        prompt = attachment.get("prompt")
        text = readable(prompt)
        if not self._state.queue.attach(text):
            return
        typed = attachment.get("commandMode") in (None, "prompt") and attachment.get("isMeta") is not True
        typed = typed and text_of(attachment.get("origin"), "kind") not in MACHINES
        images, before = count_images(prompt), len(entry.items)
        add_pieces(entry, split_prompt(text), typed=typed, queued=True, images=images)
        if self._has_exchanges(entry.thread) and not is_slash_command(text):
            for event in entry.items[before:]:
                if isinstance(event, Event) and event.starts_turn:
                    begin_exchange(event, text)

    def _add_reading(self, entry: Entry, reading: Reading, table: dict[str, Any]) -> None:
        text = reading.text(table)
        if not text.strip():
            return
        if reading.ends_turn:
            entry.add_stop("0", text)
            return
        if isinstance(table.get("promptSubmitEnding"), dict):  # a hook did not let the prompt through
            entry.add("0", reading.type, text, ends_turn=not entry.thread.ended)
            entry.thread.ended = True
            return
        details = table.get("compactMetadata") or table.get("microcompactMetadata")
        known = details if isinstance(details, dict) else {}
        facts = {fact: known[name] for name, fact in _FACTS.items() if isinstance(known.get(name), int | str)}
        entry.add("0", reading.type, text, extra=facts or None)

    def _read_nested(self, record: dict[str, Any], data: dict[str, Any]) -> Iterable[Item]:
        """A subagent's record, repeated while it runs: the subagent's, not the session's."""
        agent, inner = text_of(data, "agentId"), data.get("message")
        if not agent or not isinstance(inner, dict):
            return ()
        items: list[Item] = []
        session, call_id = self._children.session_of(agent), text_of(record, "parentToolUseID")
        call = self._state.main.calls.get(call_id) if call_id else None
        if about := self._children.link(session, call_id, call.title if call else None):
            items.append(about)
        if inner.get("type") in ("user", "assistant") and not self._children.has_transcript(agent):
            place = {name: record.get(name) for name in ("cwd", "gitBranch", "version")}
            thread = self._children.thread(session)
            thread.repeated = True
            self._converse({**place, **inner}, thread, items)
        return items

    # ---- about the session

    def _read_title(self, record: dict[str, Any]) -> Iterable[Item]:
        field, rank = TITLES[record["type"]]
        title = (text_of(record, field) or "").strip()
        return (About(title=title, title_rank=rank),) if title and self._is_news(rank, title) else ()

    def _is_news(self, rank: int, title: str) -> bool:
        """True for a title that differs: titles are written again after each prompt."""
        if self._state.titles.get(str(rank)) == title:
            return False
        self._state.titles[str(rank)] = title
        return True

    def _read_summary(self, record: dict[str, Any]) -> Iterable[Item]:
        """The summary of a conversation, named by its last record; one that names no record can only be of this one.
        Old versions wrote those of other sessions, too, mostly of the one that this goes on from: such a summary is no
        title here, and gives way to one of its own."""
        summary, leaf = text_of(record, "summary"), text_of(record, "leafUuid")
        if isinstance(record.get("message"), dict):  # what a compaction left, in transcripts of other tools
            items: list[Item] = []
            entry = Entry(record, self._state.main, self._identity(record, self._state.main), items)
            entry.add("prompt", EventType.COMPACTION, readable(record["message"].get("content")))
            return items
        if not summary:
            return ()
        if leaf is None or leaf in self._state.leaves:
            self._state.summarised = True
            return (About(title=summary, title_rank=1, summary=summary),)
        remember(self._state.summaries, leaf, summary, _MAX_SUMMARIES)
        return () if self._state.summarised else (About(summary=summary),)

    def _read_costs(self, record: dict[str, Any]) -> Iterable[Item]:
        return self._state.costs.settle(record)

    def _read_queue(self, record: dict[str, Any]) -> Iterable[Item]:
        self._state.queue.apply(record)
        return ()

    def _read_link(self, record: dict[str, Any]) -> Iterable[Item]:
        """A pull request or a published page. It is written again after each prompt."""
        parts = ("prRepository", "prNumber", "prUrl", "title", "path", "frameUrl")
        link = " ".join(str(record[name]) for name in parts if record.get(name))
        if not link or link == self._state.link:
            return ()
        self._state.link = link
        items: list[Item] = []
        main = self._state.main
        Entry(record, main, self._identity(record, main), items).add("0", EventType.SYSTEM, link)
        return items

    def _read_place(self, record: dict[str, Any]) -> Iterable[Item]:
        worktree = record.get("worktreeSession")
        place = worktree if isinstance(worktree, dict) else {}
        moved = {
            "cwd": record.get("relocatedCwd") or place.get("worktreePath"),
            "gitBranch": place.get("worktreeBranch"),
        }
        items: list[Item] = []
        self._add_about(moved, self._state.main, items)
        return items


_HANDLERS: dict[str, Callable[[ClaudeCodeParser, dict[str, Any]], Iterable[Item]]] = {
    "cost-state": ClaudeCodeParser._read_costs,
    "queue-operation": ClaudeCodeParser._read_queue,
    "summary": ClaudeCodeParser._read_summary,
    "pr-link": ClaudeCodeParser._read_link,
    "frame-link": ClaudeCodeParser._read_link,
    "worktree-state": ClaudeCodeParser._read_place,
    "relocated": ClaudeCodeParser._read_place,
    **dict.fromkeys(TITLES, ClaudeCodeParser._read_title),
}


def _set_aside(items: Iterable[Item]) -> None:
    """Mark the events of a record that is no message; prompts from the queue are in such records, too."""
    for item in items:
        if isinstance(item, Event):
            item.aside = item.exchange is None


def _starts_turn(items: Iterable[Item]) -> bool:
    return any(isinstance(item, Event) and item.starts_turn for item in items)
