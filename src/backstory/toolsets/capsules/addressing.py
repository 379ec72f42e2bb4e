"""Which capsule is meant: by id, or by name in a workspace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ..base import BadArgument, decode_arguments
from .capsule import Capsule
from .errors import CapsuleError
from .inputs import MAX_ITEMS, Address
from .reader import Reader
from .wording import normalise, workspace_or_default

__all__ = ["Target", "refs_of", "target_of", "target_of_ref"]


# How many names and workspaces are looked at for a hint.
_MOST_NAMES = 2_000
_MOST_WORKSPACES = 10


class Target(Struct, frozen=True):
    """A checked address: an id, or a name with its workspace, both as given."""

    id: str | None
    workspace: str
    name: str

    def find(self, reader: Reader, *, include_deleted: bool = False) -> Capsule:
        found = self._find(reader, include_deleted=include_deleted)
        if found is None:
            raise CapsuleError.not_found(self.identifier, hint=self._hint(reader))
        return found

    def find_deleted(self, reader: Reader) -> Capsule:
        if self.id is None:
            found = reader.deleted_by_name(normalise(self.workspace), normalise(self.name))
        else:
            found = reader.by_id(self.id, include_deleted=True)
        if found is None or found.deleted_us is None:
            raise CapsuleError("NOT_FOUND", f"no deleted capsule: {self.identifier}", identifier=self.identifier)
        return found

    @property
    def identifier(self) -> str:
        return self.id or f"{self.workspace}/{self.name}"

    def _hint(self, reader: Reader) -> str:
        """Names that are close to the one that was not found, else the workspaces that hold something."""
        from difflib import get_close_matches

        names: dict[str, list[str]] = {}
        for workspace, name in reader.names(_MOST_NAMES) if self.id is None else ():
            names.setdefault(normalise(name), []).append(f"{workspace}/{name}")
        close = get_close_matches(normalise(self.name), names, n=3, cutoff=0.6)
        if found := [full for name in close for full in names[name]][:5]:
            return f"close to it: {', '.join(found)}"
        workspaces = reader.workspaces(_MOST_WORKSPACES)
        return f"workspaces that hold capsules: {', '.join(workspaces)}" if workspaces else "there are no capsules yet"

    def _find(self, reader: Reader, *, include_deleted: bool) -> Capsule | None:
        if self.id is not None:
            return reader.by_id(self.id, include_deleted=include_deleted)
        workspace, name = normalise(self.workspace), normalise(self.name)
        found = reader.by_name(workspace, name)
        return reader.deleted_by_name(workspace, name) if found is None and include_deleted else found


def target_of(address: Address) -> Target:
    """Exactly one way to address. What is blank was not given: clients fill in fields they do not need."""
    given_id, workspace, name = (_given(part) for part in (address.id, address.workspace, address.name))
    if given_id is not None and (name is not None or workspace is not None):
        raise CapsuleError.ambiguous()
    if given_id is None and name is None:
        raise CapsuleError.invalid("id", "Give the id or the name of a capsule")
    return Target(given_id, workspace_or_default(workspace), name or "")


def target_of_ref(ref: Any) -> Target:
    """One reference of a list, as it came."""
    if not isinstance(ref, Mapping):
        raise CapsuleError.invalid("items", "A reference is an object: {id}, or {name, workspace}")
    try:
        return target_of(decode_arguments(Address, ref))
    except BadArgument as error:
        raise CapsuleError.invalid(error.field or "items", error.message) from None


def refs_of(refs: list[Any] | None) -> list[Any]:
    """The references of a batch, as they came, if there are not too many."""
    if refs is None:
        raise CapsuleError.invalid("items", "items is required")
    if len(refs) > MAX_ITEMS:
        raise CapsuleError.invalid("items", f"at most {MAX_ITEMS} items in one call, not {len(refs)}")
    return refs


def _given(part: str | None) -> str | None:
    return part if part and part.strip() else None
