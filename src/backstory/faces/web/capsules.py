"""The pages of capsules: all of them by workspace, and one to read, edit, compare with its history, delete, restore."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ...config import make_private_folder
from ...toolsets.capsules.answers import Item, Summary, Version
from ...toolsets.capsules.capsule import secret_warnings
from ...toolsets.capsules.sections import PURPOSES, missing_sections
from ..words import plural
from . import capsule_url
from .edits import Diff, compare
from .site import Answer, Changed, Form, Nav, Site

if TYPE_CHECKING:
    from ...library import Library

_MAX_IMPORT_BYTES = 64 << 20
_TEMPLATE = "\n\n".join(f"## {section}\n\n" for section in PURPOSES)
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


class EditPage(Struct, kw_only=True):
    """The form to edit a capsule, or to make one: with what was typed, and what is wrong with it."""

    address: str | None
    """None: a new capsule."""
    fields: dict[str, str]
    lint: Lint
    form_token: str
    error: str | None = None
    warnings: list[str] = []


class Checked(Struct, frozen=True):
    """The check of a text while it is typed."""

    lint: Lint


def routes(site: Site) -> list[Route]:
    pages = _Pages(site)
    return [
        *site.page("/capsules", "capsules.html", pages.listing, nav=Nav("Capsules", "/capsules", "c")),
        *site.form("/capsules", "capsules.html", pages.change_all, max_file=_MAX_IMPORT_BYTES),
        *site.form("/capsules/lint", "capsule_edit.html", pages.lint, block="lint"),
        *site.page("/capsules/new", "capsule_edit.html", pages.new),
        *site.form("/capsules/new", "capsule_edit.html", pages.store),
        *site.page("/capsules/{path:path}/edit", "capsule_edit.html", pages.edit),
        *site.form("/capsules/{path:path}/edit", "capsule_edit.html", pages.update),
        Route("/capsules/{path:path}.md", pages.download, methods=["GET"]),
        *site.page("/capsules/{path:path}", "capsule.html", pages.capsule),
        *site.form("/capsules/{path:path}", "capsule.html", pages.change),
    ]


class _Pages:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._library = site.library

    # Reading

    def listing(self, request: Request) -> CapsuleList:
        return read_list(self._library, request.query_params)

    def capsule(self, request: Request) -> CapsulePage:
        return read_capsule(self._library, request.path_params["path"], _number(request.query_params.get("version")))

    async def download(self, request: Request) -> Response:
        def work() -> Response:
            item = find(self._library, request.path_params["path"])
            return PlainTextResponse(
                item["capsule_text"],
                media_type="text/markdown",
                headers={"Content-Disposition": f"attachment; filename*=UTF-8''{quote(_file_name(item), safe='')}.md"},
            )

        return await self._site.answer(request, work)

    # Forms

    def new(self, request: Request) -> EditPage:
        workspace = self._library.egress(request.query_params.get("workspace", ""))
        return self._form(None, {"text": _TEMPLATE, "workspace": workspace, "name": "", "title": "", "tags": ""})

    def edit(self, request: Request) -> EditPage:
        item = find(self._library, request.path_params["path"])
        fields = {
            "text": item["capsule_text"],
            "title": item.get("title", ""),
            "tags": ", ".join(item.get("tags", ())),
            "version": str(item["version"]),
        }
        page = self._form(address_of(item), fields)
        page.warnings = item.get("warnings", [])
        return page

    def _form(self, address: str | None, fields: dict[str, str]) -> EditPage:
        lint = lint_text(self._library, fields.get("text", ""))
        return EditPage(address=address, fields=fields, lint=lint, form_token=self._site.form_token)

    # Writing

    def lint(self, request: Request, form: Form) -> Checked:
        return Checked(lint_text(self._library, form.fields.get("text", "")))

    def store(self, request: Request, form: Form) -> Changed | Answer:
        def write() -> str:
            names = {name: given for name in ("workspace", "name") if (given := form.fields.get(name, "").strip())}
            stored = call(self._library, "moss.store", {**_written(form.fields), **names})
            return address_of(call(self._library, "moss.fetch", {"id": stored["id"], "include_text": False}))

        return self._save(None, form.fields, write)

    def update(self, request: Request, form: Form) -> Changed | Answer:
        path, fields = request.path_params["path"], form.fields

        def write() -> str:
            item = find(self._library, path)
            version = _number(fields.get("version"))
            guard = {} if version is None else {"if_version": version}
            call(self._library, "moss.update", {"id": item["id"], **_written(fields), **guard})
            return address_of(item)

        return self._save(f"/capsules/{quote(path)}", fields, write)

    def _save(self, address: str | None, fields: dict[str, str], write: Callable[[], str]) -> Changed | Answer:
        """The capsule; or the form again with what was typed and why it was refused."""
        try:
            return Changed(write())
        except Refused as refused:
            # The check is of the text as it was typed, with what egress redacts.
            page = self._form(address, fields)
            page.fields, page.error = self._library.egress(fields), refused.detail
            return Answer(page, refused.status_code)

    def change(self, request: Request, form: Form) -> Changed:
        """Delete or restore a capsule, or make an old version the current one."""
        library, action = self._library, form.fields.get("action")
        item = find(library, request.path_params["path"])
        if action in ("delete", "restore"):
            call(library, f"moss.{action}", {"id": item["id"]})
        elif action == "revert":
            _revert(library, item["id"], _number(form.fields.get("version")))
        else:
            raise HTTPException(400, "The action is delete, restore or revert.")
        return Changed("/capsules?deleted" if action == "delete" else address_of(item))

    def change_all(self, request: Request, form: Form) -> Answer:
        """Export to a file on this machine, or import a file."""
        if form.content is not None:
            with _file_in(self._library, form.content) as path:
                arguments = {"path": path, "mode": form.fields.get("mode") or "error"}
                return self._outcome("moss.import", arguments, _imported)
        workspace = form.fields.get("workspace")
        return self._outcome("moss.export", {"workspace": workspace} if workspace else {}, _exported)

    def _outcome(self, tool: str, arguments: dict[str, Any], say: Callable[[dict[str, Any]], str]) -> Answer:
        """The list with what a tool answered."""
        try:
            answer = call(self._library, tool, arguments)
            notice, problems, status = say(answer), answer.get("errors", []), 200
        except Refused as refused:
            notice, problems, status = refused.detail, [], refused.status_code
        data = read_list(self._library)
        data.notice = notice
        data.problems = [f"line {problem['line']}: {problem['message']}" for problem in problems]
        return Answer(data, status)


def _written(fields: Mapping[str, str]) -> dict[str, Any]:
    """The arguments for the text and the labels of a form. Browsers send line breaks as CR LF."""
    return {
        "capsule_text": fields.get("text", "").replace("\r\n", "\n"),
        "title": fields.get("title", ""),
        "tags": [tag for part in fields.get("tags", "").split(",") if (tag := part.strip())],
        "allow_thin": "allow_thin" in fields,
    }


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 9 else None


def _revert(library: Library, id: str, version: int | None) -> None:
    """Make the text of an old version the current one, exactly as it was stored."""
    if version is None:
        raise HTTPException(400, "The version is a number.")
    old = call(library, "moss.history", {"id": id, "version": version, "raw": True})
    call(library, "moss.update", {"id": id, "capsule_text": old["items"][0]["capsule_text"], "allow_thin": True})


@contextmanager
def _file_in(library: Library, content: bytes) -> Iterator[str]:
    """The content as a file that the import tool may read."""
    folder = make_private_folder(library.home / "exports")
    handle, name = tempfile.mkstemp(".jsonl", "import-", folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        yield name
    finally:
        Path(name).unlink()


def _exported(answer: dict[str, Any]) -> str:
    count = plural(answer["count"], "capsule")
    return f"{count} written to {answer['path']}, exactly as stored: treat the file like the store."


def _imported(answer: dict[str, Any]) -> str:
    if answer["errors"] and not answer["imported"]:
        return "Nothing was imported."
    return f"{plural(answer['imported'], 'capsule')} imported, {answer['skipped']:,} already there."


def _file_name(item: Mapping[str, Any]) -> str:
    return "".join(char if char.isalnum() or char in "-_." else "-" for char in item.get("name") or item["id"])


# Reading through the tools

# The tool's own words name a parameter.
_TOO_THIN = "Capsule missing required sections: the check names them. Write them, or save it as a quick note."


def address_of(capsule: Mapping[str, Any]) -> str:
    return capsule_url(capsule["workspace"], capsule.get("name"), capsule["id"])


class Refused(HTTPException):
    """A capsule tool refused a request; the detail is for people."""


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


def read_list(library: Library, given: Mapping[str, str] = {}) -> CapsuleList:
    query, workspace, deleted = given.get("q", ""), given.get("workspace"), "deleted" in given
    skip = _number(given.get("offset")) or 0
    arguments = {"limit": _PAGE, "offset": skip, "include_deleted": deleted, "workspace": workspace or None}
    tool, more = ("moss.search", {"query": query}) if query.strip() else ("moss.inventory", {})
    answer = call(library, tool, {**arguments, **more})
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
    listed = library.call("moss.inventory", {"limit": _MOST_WORKSPACES, "include_deleted": deleted})
    for item in listed.get("items", ()):
        name = item["workspace"]
        found.setdefault(name, Workspace(name=name, count=0, chosen=name == chosen)).count += 1
    return list(found.values())


def read_capsule(library: Library, path: str, version: int | None) -> CapsulePage:
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
        page.diff = Diff.of("", compare(before, page.text))
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
