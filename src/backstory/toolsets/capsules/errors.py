"""The error contract: seven codes of the specification, one more for a lost race."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .lint import PURPOSES

__all__ = ["CapsuleError"]

_STATUS = {
    "AMBIGUOUS_ADDRESSING": 400,
    "INVALID_REQUEST": 400,
    "NOT_FOUND": 404,
    "NAME_ALREADY_EXISTS": 409,
    "CONFLICT": 409,
    "CAPSULE_TOO_LARGE": 413,
    "CAPSULE_TOO_THIN": 422,
    "INTERNAL": 500,
}


class CapsuleError(Exception):
    """A refusal with its code; `details` say what it is about in a form programs can use."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    def as_reply(self) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": self.message, "status": _STATUS[self.code]}
        if self.details:
            error["details"] = self.details
        return {"error": error}

    @classmethod
    def ambiguous(cls) -> CapsuleError:
        return cls("AMBIGUOUS_ADDRESSING", "Give either id or name (with workspace), not both")

    @classmethod
    def invalid(cls, field: str, message: str) -> CapsuleError:
        return cls("INVALID_REQUEST", message, field=field)

    @classmethod
    def not_found(cls, identifier: str, hint: str = "") -> CapsuleError:
        message = f"capsule not found: {identifier}" + (f" ({hint})" if hint else "")
        return cls("NOT_FOUND", message, identifier=identifier)

    @classmethod
    def file_not_found(cls, path: str) -> CapsuleError:
        return cls("NOT_FOUND", f"file not found: {path}", path=path)

    @classmethod
    def name_taken(cls, workspace: str, name: str) -> CapsuleError:
        return cls(
            "NAME_ALREADY_EXISTS",
            f'A capsule named "{name}" already exists in workspace "{workspace}"; '
            'store with mode "replace" to overwrite it, or choose another name',
            workspace=workspace,
            name=name,
        )

    @classmethod
    def changed_meanwhile(cls, updated_at: int, version: int) -> CapsuleError:
        message = f"The capsule has changed since you read it (now version {version}); fetch it again and redo it"
        return cls("CONFLICT", message, updated_at=updated_at, version=version)

    @classmethod
    def too_large(cls, max_chars: int, actual_chars: int) -> CapsuleError:
        return cls(
            "CAPSULE_TOO_LARGE",
            f"Capsule has {actual_chars} characters, the limit is {max_chars}; "
            "compress it, but keep the decisions and the next actions",
            max_chars=max_chars,
            actual_chars=actual_chars,
        )

    @classmethod
    def too_thin(cls, missing: Sequence[str]) -> CapsuleError:
        wanted = "; ".join(f"{section} ({PURPOSES[section]})" for section in missing)
        return cls(
            "CAPSULE_TOO_THIN",
            f"Capsule missing required sections: {wanted}. Give each a heading such as `## {missing[0]}`, "
            "or pass allow_thin: true for a quick note",
            missing=list(missing),
            missing_sections=list(missing),
        )

    @classmethod
    def internal(cls, cause: str | None = None) -> CapsuleError:
        """`cause` is a sentence that names the reason and the cure, where both are known."""
        return cls("INTERNAL", cause or "The capsule store failed unexpectedly; the log of this process says why")
