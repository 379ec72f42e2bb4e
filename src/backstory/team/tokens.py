"""The members of a hub and their tokens. Only digests of tokens are stored."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ..sqlite import Readers, connect, prepare
from .sharing import Projects

Right = Literal["read", "write"]
RIGHTS: tuple[Right, ...] = ("read", "write")
_PREFIX = "bst"
_MIGRATIONS = (
    """
    CREATE TABLE token (
        id TEXT PRIMARY KEY, digest BLOB NOT NULL, member TEXT NOT NULL, rights TEXT NOT NULL, projects TEXT NOT NULL,
        created_at INTEGER NOT NULL, revoked_at INTEGER
    ) STRICT, WITHOUT ROWID
    """,
)
_COLUMNS = "id, member, rights, projects, created_at, revoked_at"


class Token(Struct, frozen=True, kw_only=True):
    """The rights of a token. The token itself is shown once, when it is made."""

    id: str
    member: str
    rights: tuple[Right, ...]
    projects: tuple[str, ...]
    """Patterns of the projects that it reads and writes."""
    created_at: int
    revoked_at: int | None = None

    def allows(self, right: Right) -> bool:
        return right in self.rights

    @property
    def scope(self) -> Projects:
        return Projects(self.projects)


class Tokens:
    """The tokens of the hub whose home this is. Changes hold at once, also in a running hub."""

    def __init__(self, home: Path) -> None:
        self._path = home / "tokens.db"
        prepare(self._path, _MIGRATIONS)
        self._readers = Readers(lambda: connect(self._path, writable=False))

    def create(self, member: str, rights: Sequence[Right], projects: Sequence[str]) -> tuple[Token, str]:
        """A new token of a member, and its secret text."""
        token = Token(
            id=secrets.token_hex(4),
            member=member,
            rights=tuple(rights),
            projects=tuple(projects),
            created_at=time.time_ns() // 1_000_000,
        )
        text = f"{_PREFIX}_{token.id}_{secrets.token_urlsafe(32)}"
        self._execute(
            "INSERT INTO token (id, digest, member, rights, projects, created_at) VALUES (?, ?, ?, ?, ?, ?)",
            token.id,
            _digest(text),
            member,
            ",".join(rights),
            msgspec.json.encode(token.projects).decode(),
            token.created_at,
        )
        return token, text

    def list(self) -> list[Token]:
        rows = self._readers.connection.execute(f"SELECT {_COLUMNS} FROM token ORDER BY created_at, id")
        return [_token(row) for row in rows]

    def revoke(self, id: str) -> Token | None:
        """Revoke a token; None if there is none with this id."""
        self._execute(
            "UPDATE token SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", time.time_ns() // 1_000_000, id
        )
        return next((token for token in self.list() if token.id == id), None)

    def find(self, text: str) -> Token | None:
        """The token with this secret text, also a revoked one."""
        id = text.partition("_")[2].partition("_")[0]
        row = self._readers.connection.execute(f"SELECT {_COLUMNS}, digest FROM token WHERE id = ?", (id,)).fetchone()
        return _token(row[:-1]) if row and hmac.compare_digest(row[-1], _digest(text)) else None

    def close(self) -> None:
        self._readers.close()

    def _execute(self, sql: str, *values: Any) -> None:
        with closing(connect(self._path, writable=True, pragmas={"synchronous": "FULL"})) as db:
            db.execute(sql, values)


def _token(row: Sequence[Any]) -> Token:
    id, member, rights, projects, created_at, revoked_at = row
    return Token(
        id=id,
        member=member,
        rights=tuple(rights.split(",")),
        projects=tuple(msgspec.json.decode(projects)),
        created_at=created_at,
        revoked_at=revoked_at,
    )


def _digest(text: str) -> bytes:
    """Tokens are random, so a plain digest cannot be reversed."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
