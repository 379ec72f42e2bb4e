"""Bringing imported records into the store: what collides, and what each mode does about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import overload

from msgspec.structs import replace

from .capsule import Capsule
from .errors import CapsuleError
from .limits import MAX_FIELD_CHARS
from .transfer import Entry, to_capsule
from .types import Imported, ImportProblem
from .wording import normalise
from .writer import Writer

__all__ = ["MODES", "Merge", "Refused"]

# A file of nothing but problems must not fill the memory or the answer.
_MAX_PROBLEMS = 100
_SHOWN_CHARS = 600
# Codes of single records; the store's own refusal of a field is one of the record here.
_RECORD_CODES = {"INVALID_REQUEST": "INVALID_RECORD"}


class Refused(Exception):
    """In mode `error` one problem is enough: nothing is imported."""

    def __init__(self, outcome: Imported) -> None:
        super().__init__("nothing was imported")
        self.outcome = outcome


class _Collision(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Merge:
    """One import: what `admit` lets in is placed by the mode's rule, in one transaction or in several."""

    def __init__(self, mode: str, admit: Callable[[Capsule], Capsule]) -> None:
        self._mode = mode
        self._admit = admit
        self._place = _PLACING[mode]()
        self._imported = self._skipped = self._unlisted = 0
        self._problems: list[ImportProblem] = []

    def add(self, writer: Writer, entries: Iterable[Entry]) -> None:
        for line, entry in entries:
            if isinstance(entry, ImportProblem):
                self._note(entry)
                continue
            try:
                placed = self._place(writer, self._admit(to_capsule(entry, writer.now)))
                self._imported, self._skipped = self._imported + placed, self._skipped + (not placed)
            except (CapsuleError, _Collision) as error:
                code = _RECORD_CODES.get(error.code, error.code)
                self._note(ImportProblem(line, code, _short(error.message), _short(entry.id), _short(entry.name_raw)))

    def outcome(self) -> Imported:
        """Raises Refused, for the transaction to be rolled back, if it is all or nothing."""
        problems = self._problems
        if self._unlisted:
            message = f"{self._unlisted:,} more problems are not listed"
            problems = [*problems, ImportProblem(0, "TOO_MANY_PROBLEMS", message)]
        if problems and self._mode == "error":
            raise Refused(Imported(0, self._skipped, problems))
        return Imported(self._imported, self._skipped, problems)

    def _note(self, problem: ImportProblem) -> None:
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(problem)
        else:
            self._unlisted += 1


class _Placing(ABC):
    """Puts one capsule into the store: True if it was stored, False if there was nothing to do."""

    @abstractmethod
    def __call__(self, writer: Writer, capsule: Capsule) -> bool: ...


def _same_id(writer: Writer, capsule: Capsule) -> Capsule | None:
    return writer.by_id(capsule.id, include_deleted=True)


def _same_name(writer: Writer, capsule: Capsule) -> Capsule | None:
    """The live capsule of this name. A deleted one has no claim to a name, on either side."""
    if capsule.name_norm is None or capsule.deleted_us is not None:
        return None
    return writer.by_name(capsule.workspace_norm, capsule.name_norm)


@overload
def _short(text: str) -> str: ...
@overload
def _short(text: str | None) -> str | None: ...
def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


class _Strict(_Placing):
    def __call__(self, writer: Writer, capsule: Capsule) -> bool:
        if stored := _same_id(writer, capsule):
            if _identical(stored, capsule):
                return False
            raise _Collision("ID_COLLISION", f"a capsule with id {capsule.id} already exists")
        if _same_name(writer, capsule):
            raise _Collision(
                "NAME_COLLISION", f'a capsule named "{capsule.name}" already exists in workspace "{capsule.workspace}"'
            )
        writer.insert(capsule)
        return True


class _Replacing(_Placing):
    def __call__(self, writer: Writer, capsule: Capsule) -> bool:
        same_id, same_name = _same_id(writer, capsule), _same_name(writer, capsule)
        if same_id and same_name and same_id.id != same_name.id:
            raise _Collision(
                "AMBIGUOUS_COLLISION",
                f'id {capsule.id} is one stored capsule, the name "{capsule.name}" is another ({same_name.id})',
            )
        target = same_id or same_name
        if target is None:
            writer.insert(capsule)
            return True
        if capsule.deleted_us is not None and target.deleted_us is None:
            # A record of something deleted leaves what is alive alone.
            return False
        if _identical(target, replace(capsule, id=target.id)):
            return False
        writer.overwrite(target, capsule)
        return True


class _Renaming(_Placing):
    def __init__(self) -> None:
        self._suffixes: dict[tuple[str, str], int] = {}

    def __call__(self, writer: Writer, capsule: Capsule) -> bool:
        if stored := _same_id(writer, capsule):
            if _identical(stored, capsule):
                return False
            capsule = replace(capsule, id=writer.new_id())
        if _same_name(writer, capsule):
            capsule = replace(capsule, name=self._free_name(writer, capsule))
        writer.insert(capsule)
        return True

    def _free_name(self, writer: Writer, capsule: Capsule) -> str:
        assert capsule.name is not None
        key = (capsule.workspace_norm, normalise(capsule.name))
        while True:
            # Counting on from the last one keeps a file of many equal names from trying them all each time.
            self._suffixes[key] = self._suffixes.get(key, 0) + 1
            suffix = f"-{self._suffixes[key]}"
            name = capsule.name.strip()[: MAX_FIELD_CHARS - len(suffix)] + suffix
            if writer.by_name(capsule.workspace_norm, normalise(name)) is None:
                return name


def _identical(stored: Capsule, capsule: Capsule) -> bool:
    """Whether an export of the stored capsule would be this record."""
    return _exported(stored) == _exported(capsule)


def _exported(capsule: Capsule) -> Capsule:
    return replace(capsule, version=1, updated_us=capsule.updated_us // 1000, deleted_us=capsule.deleted_at)


_PLACING: dict[str, type[_Placing]] = {"error": _Strict, "replace": _Replacing, "rename": _Renaming}
MODES: tuple[str, ...] = tuple(_PLACING)
