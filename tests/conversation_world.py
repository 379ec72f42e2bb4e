"""Claude Code conversations for tests: transcripts in a home of their own, asked through the tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from backstory.library import Library
from tests.schemas import validator
from tests.transcripts import Transcript

Json = dict[str, Any]


class Session(Transcript):
    """A transcript of any records."""

    def add(self, kind: str, **fields: Any) -> Session:
        self._record(kind, **fields)
        return self

    def user(self, content: Any, **fields: Any) -> Session:
        return self.add("user", message={"role": "user", "content": content}, **fields)

    def says(self, *blocks: Any) -> Session:
        """The assistant, in one message; texts or content blocks."""
        content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        self._assistant(content, "end_turn")
        return self

    def bare(self, **record: Any) -> Session:
        """A record without the fields that all the others have."""
        self.records.append(record)
        return self


def tool_use(name: str, arguments: Any, id: str = "toolu_1") -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


@cache
def _validator(schema: bytes) -> Any:
    """To make one takes longer than to use it."""
    return validator(msgspec.json.decode(schema))


class World:
    """A home with transcripts, and the tools as a server with this pattern offers them."""

    def __init__(
        self, folder: Path, environ: Mapping[str, str] | None = None, *, agents_home: Path | None = None
    ) -> None:
        self.home = agents_home or folder
        self.library = Library(folder / "backstory", agents_home=self.home, environ=environ or {})

    def read(self, *sessions: Transcript) -> None:
        for session in sessions:
            session.write(self.home)
        self.library.sync()

    def ask(self, tool: str, pattern: str = "*", **arguments: Any) -> Json:
        """The answer of the tool, which always follows its schema."""
        (found,) = (t for t in self.library.toolset("conversations", pattern=pattern).tools if t.name == tool)
        reply = found.handler(arguments)
        assert not reply.is_error, reply.text
        _validator(msgspec.json.encode(found.output_schema)).validate(reply.data)
        return reply.data

    def search(self, query: str, **arguments: Any) -> list[Json]:
        results: list[Json] = self.ask("search_conversations", query=query, **arguments)["results"]
        return results

    def list(self, **arguments: Any) -> list[Json]:
        conversations: list[Json] = self.ask("list_conversations", **arguments)["conversations"]
        return conversations

    def turns(self, session: Transcript) -> list[Json]:
        """A session just written, as it is read."""
        (turns,) = self.turns_of_each([session])
        return turns

    def turns_of_each(self, sessions: Sequence[Transcript]) -> list[list[Json]]:
        """Sessions just written, as they are read. Many cases cost little more than one."""
        self.read(*sessions)
        return [self.ask("read_conversation", session_id=session.id, limit=1_000)["turns"] for session in sessions]
