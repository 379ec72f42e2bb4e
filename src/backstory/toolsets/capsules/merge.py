"""Bringing imported records into the store: what collides, and what each mode does about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from .capsule import SECOND, Capsule
from .errors import CapsuleError
from .transfer import Entry, Record, to_capsule
from .types import Imported, ImportProblem
from .wording import normalise
from .writer import Writer

__all__ = ["MODES", "Refused", "merge"]

# A file of nothing but problems must not fill the memory or the answer.
_MAX_PROBLEMS = 10_000
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


def merge(writer: Writer, entries: Iterable[Entry], mode: str, admit: Callable[[Capsule], Capsule]) -> Imported:
    """Import what `admit` lets in. Raises Refused, for the transaction to be rolled back, if it is all or nothing."""
    place = _PLACING[mode](writer)
    imported = skipped = unlisted = 0
    problems: list[ImportProblem] = []
    for line, entry in entries:
        problem = entry if isinstance(entry, ImportProblem) else None
        if isinstance(entry, Record):
            try:
                placed = place(admit(to_capsule(entry, writer.now_us // SECOND)))
                imported, skipped = imported + placed, skipped + (not placed)
            except (CapsuleError, _Collision) as error:
                code = _RECORD_CODES.get(error.code, error.code)
                problem = ImportProblem(line, code, error.message, entry.id, entry.name_raw)
        if problem and len(problems) < _MAX_PROBLEMS:
            problems.append(problem)
        elif problem:
            unlisted += 1
    if unlisted:
        problems.append(ImportProblem(0, "TOO_MANY_PROBLEMS", f"{unlisted} more problems are not listed"))
    if problems and mode == "error":
        raise Refused(Imported(0, skipped, problems))
    return Imported(imported, skipped, problems)


class _Placing(ABC):
    """Puts one capsule into the store: True if it was stored, False if there was nothing to do."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    @abstractmethod
    def __call__(self, capsule: Capsule) -> bool: ...

    def _same_id(self, capsule: Capsule) -> Capsule | None:
        return self.writer.by_id(capsule.id, include_deleted=True)

    def _same_name(self, capsule: Capsule) -> Capsule | None:
        """The live capsule of this name. A deleted one has no claim to a name, on either side."""
        if capsule.name_norm is None or capsule.deleted_us is not None:
            return None
        return self.writer.by_name(capsule.workspace_norm, capsule.name_norm)


class _Strict(_Placing):
    def __call__(self, capsule: Capsule) -> bool:
        if stored := self._same_id(capsule):
            if _identical(stored, capsule):
                return False
            raise _Collision("ID_COLLISION", f"a capsule with id {capsule.id} already exists")
        if self._same_name(capsule):
            raise _Collision(
                "NAME_COLLISION", f'a capsule named "{capsule.name}" already exists in workspace "{capsule.workspace}"'
            )
        self.writer.insert(capsule)
        return True


class _Replacing(_Placing):
    def __call__(self, capsule: Capsule) -> bool:
        same_id, same_name = self._same_id(capsule), self._same_name(capsule)
        if same_id and same_name and same_id.id != same_name.id:
            raise _Collision(
                "AMBIGUOUS_COLLISION",
                f'id {capsule.id} is one stored capsule, the name "{capsule.name}" is another ({same_name.id})',
            )
        target = same_id or same_name
        if target is None:
            self.writer.insert(capsule)
            return True
        if capsule.deleted_us is not None and target.deleted_us is None:
            # A record of something deleted leaves what is alive alone.
            return False
        if _identical(target, replace(capsule, id=target.id)):
            return False
        self.writer.overwrite(target, capsule)
        return True


class _Renaming(_Placing):
    def __init__(self, writer: Writer) -> None:
        super().__init__(writer)
        self._suffixes: dict[tuple[str, str], int] = {}

    def __call__(self, capsule: Capsule) -> bool:
        if stored := self._same_id(capsule):
            if _identical(stored, capsule):
                return False
            capsule = replace(capsule, id=self.writer.new_id())
        if self._same_name(capsule):
            capsule = replace(capsule, name=self._free_name(capsule))
        self.writer.insert(capsule)
        return True

    def _free_name(self, capsule: Capsule) -> str:
        assert capsule.name is not None
        key = (capsule.workspace_norm, normalise(capsule.name))
        while True:
            # Counting on from the last one keeps a file of many equal names from trying them all each time.
            self._suffixes[key] = self._suffixes.get(key, 0) + 1
            name = f"{capsule.name.strip()}-{self._suffixes[key]}"
            if self.writer.by_name(capsule.workspace_norm, normalise(name)) is None:
                return name


def _identical(stored: Capsule, capsule: Capsule) -> bool:
    """Whether an export of the stored capsule would be this record."""
    return _exported(stored) == _exported(capsule)


def _exported(capsule: Capsule) -> Capsule:
    return replace(capsule, version=1, updated_us=capsule.updated_us // 1000, deleted_us=capsule.deleted_at)


_PLACING: dict[str, type[_Placing]] = {"error": _Strict, "replace": _Replacing, "rename": _Renaming}
MODES: tuple[str, ...] = tuple(_PLACING)
