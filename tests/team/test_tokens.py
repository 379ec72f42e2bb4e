"""Tokens of the members of a hub."""

from __future__ import annotations

from pathlib import Path

from backstory.team.access import Tokens


class TestTokens:
    """A token is known by its secret text, of which only a digest is stored."""

    def test_find(self, tmp_path: Path) -> None:
        tokens = Tokens(tmp_path)
        made, text = tokens.create("alice", ("read", "write"), ("github.com/acme/*",))

        assert tokens.find(text) == made
        assert (made.member, made.rights, made.projects) == ("alice", ("read", "write"), ("github.com/acme/*",))
        tokens.close()

    def test_wrong(self, tmp_path: Path) -> None:
        """Neither another secret nor anything else is one."""
        tokens = Tokens(tmp_path)
        made, text = tokens.create("alice", ("read",), ("*",))

        for wrong in ("", "bst", f"bst_{made.id}_", text[:-1], f"{text}x", text.upper(), "bst_' OR 1 --_x", "\udcff"):
            assert tokens.find(wrong) is None
        tokens.close()

    def test_is_not_stored(self, tmp_path: Path) -> None:
        tokens = Tokens(tmp_path)
        _, text = tokens.create("alice", ("read",), ("*",))
        tokens.close()

        secret = text.split("_", 2)[2].encode()  # it may have such characters itself
        assert all(secret not in path.read_bytes() for path in tmp_path.iterdir())
        assert (tmp_path / "tokens.db").stat().st_mode & 0o077 == 0

    def test_revoke(self, tmp_path: Path) -> None:
        """It holds at once, for all who have the file open."""
        tokens, elsewhere = Tokens(tmp_path), Tokens(tmp_path)
        made, text = tokens.create("alice", ("read",), ("*",))
        assert elsewhere.find(text) == made

        assert tokens.revoke(made.id) is not None
        found = elsewhere.find(text)
        assert found is not None
        assert found.revoked_at is not None
        assert tokens.revoke("nobody") is None
        assert [token.id for token in tokens.list()] == [made.id]
        tokens.close()
        elsewhere.close()
