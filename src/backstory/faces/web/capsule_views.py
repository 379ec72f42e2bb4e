"""Capsules as data of pages, read through their tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from starlette.exceptions import HTTPException

from ...toolsets.capsules.answers import Item, Summary, Version
from ...toolsets.capsules.capsule import secret_warnings
from ...toolsets.capsules.sections import PURPOSES, missing_sections
from .rendering import Diff, capsule_url, compare

if TYPE_CHECKING:
    from ...library import Library

_PAGE = 100
_MOST_WORKSPACES = 500


class Lint(Struct, frozen=True, kw_only=True):
    """The check of a text as `moss.store` makes it."""

    chars: int
    max_chars: int
    sections: dict[str, bool]
    """The six sections, and if the text has them."""
    warnings: list[str]

    @property
    def purposes(self) -> dict[str, str]:
        return PURPOSES

    @property
    def is_too_long(self) -> bool:
        return self.chars > self.max_chars

    @property
    def is_thin(self) -> bool:
        return not all(self.sections.values())


class Workspace(Struct, kw_only=True):
    name: str
    count: int
    chosen: bool


class Entry(Summary, frozen=True, kw_only=True, omit_defaults=True):
    """A capsule of the list."""

    address: str
    snippet: str | None = None
    """The place in its text that a search found."""


class CapsuleList(Struct, kw_only=True):
    """The data of `/capsules`."""

    query: str
    workspace: str | None
    deleted: bool
    """Deleted capsules are listed too."""
    workspaces: list[Workspace]
    items: list[Entry]
    total: int
    offset: int
    next_offset: int | None
    notice: str | None = None
    problems: list[str] = []


class CapsulePage(Struct, kw_only=True):
    """The data of `/capsules/<workspace>/<name>`."""

    address: str
    capsule: Item
    """Without its text."""
    versions: list[Version]
    version: int
    """The version that is shown."""
    text: str
    diff: Diff | None = None
    """The changes of the version to the one before, if `?version=` asks for one."""


# The tool's own words name a parameter.
_TOO_THIN = "Capsule missing required sections: the check names them. Write them, or save it as a quick note."


def address_of(capsule: Mapping[str, Any]) -> str:
    return capsule_url(capsule["workspace"], capsule.get("name"), capsule["id"])


class Refused(Exception):
    """A capsule tool refused a request; the message is for people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def call(library: Library, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The answer of a capsule tool. Raises Refused for an error."""
    answer = library.call(tool, arguments)
    if error := answer.get("error"):
        raise Refused(error["status"], _TOO_THIN if error["code"] == "CAPSULE_TOO_THIN" else error["message"])
    return answer


def find(library: Library, path: str) -> dict[str, Any]:
    """The capsule of an address, also a deleted one. Names may have slashes; those that egress changes, and
    capsules without a name, are found by what is shown of them."""
    parts = path.split("/")
    for cut in range(1, len(parts)):
        workspace, name = "/".join(parts[:cut]), "/".join(parts[cut:])
        for address in ({"workspace": workspace, "name": name}, {"id": name}):
            item = library.call("moss.fetch", {**address, "include_deleted": True})
            if "error" not in item:
                return item
    for item in library.call("moss.inventory", {"limit": 500, "include_deleted": True}).get("items", ()):
        if f"{item['workspace']}/{item.get('name')}" == path:
            return library.call("moss.fetch", {"id": item["id"], "include_deleted": True})
    raise HTTPException(404, "There is no such capsule.")


def read_list(
    library: Library,
    *,
    query: str = "",
    workspace: str | None = None,
    deleted: bool = False,
    offset: str = "0",
) -> CapsuleList:
    skip = int(offset) if offset.isascii() and offset.isdecimal() and len(offset) < 9 else 0
    given: dict[str, Any] = {"limit": _PAGE, "offset": skip, "include_deleted": deleted}
    if workspace:
        given["workspace"] = workspace
    tool, more = ("moss.search", {"query": query}) if query.strip() else ("moss.inventory", {})
    try:
        answer = call(library, tool, {**given, **more})
    except Refused as refused:
        raise HTTPException(refused.status, refused.message) from None
    pagination = answer["pagination"]
    return CapsuleList(
        query=library.egress(query),
        workspace=library.egress(workspace),
        deleted=deleted,
        workspaces=_workspaces(library, workspace, deleted),
        items=[msgspec.convert({**item, "address": address_of(item)}, Entry) for item in answer["items"]],
        total=pagination["total"],
        offset=skip,
        next_offset=skip + len(answer["items"]) if pagination["has_more"] else None,
    )


def _workspaces(library: Library, chosen: str | None, deleted: bool) -> list[Workspace]:
    """The workspaces with the number of their capsules, the last used first."""
    found: dict[str, Workspace] = {}
    for item in library.call("moss.inventory", {"limit": _MOST_WORKSPACES, "include_deleted": deleted}).get(
        "items", ()
    ):
        name = item["workspace"]
        found.setdefault(name, Workspace(name=name, count=0, chosen=name == chosen)).count += 1
    return list(found.values())


def read_capsule(library: Library, path: str, version: int | None = None) -> CapsulePage:
    item = find(library, path)
    history = call(library, "moss.history", {"id": item["id"], "include_deleted": True})
    text = item.pop("capsule_text")
    page = CapsulePage(
        address=address_of(item),
        capsule=msgspec.convert(item, Item),
        versions=msgspec.convert(history["items"], list[Version]),
        version=item["version"],
        text=text,
    )
    if version is not None:
        numbers = [entry.version for entry in page.versions]
        if version not in numbers:
            raise HTTPException(404, f"There is no version {version} of this capsule.")
        older = max((number for number in numbers if number < version), default=None)
        page.version, page.text = version, _text_of(library, item["id"], version)
        before = _text_of(library, item["id"], older) if older is not None else ""
        page.diff = Diff("", compare(before, page.text))
    return page


def _text_of(library: Library, id: str, version: int) -> str:
    answer = call(library, "moss.history", {"id": id, "version": version, "include_deleted": True})
    return str(answer["items"][0]["capsule_text"])


def lint_text(library: Library, text: str) -> Lint:
    missing = missing_sections(text)
    return Lint(
        chars=len(text),
        max_chars=library.settings.capsules.most_chars,
        sections={section: section not in missing for section in PURPOSES},
        warnings=secret_warnings(text),
    )
