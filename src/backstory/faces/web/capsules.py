"""The pages of capsules: all of them by workspace, and one to read, edit, compare with its history, delete, restore."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ...config import make_private_folder
from ...toolsets.capsules.sections import PURPOSES
from .capsule_views import (
    CapsuleList,
    CapsulePage,
    Lint,
    Refused,
    address_of,
    call,
    find,
    lint_text,
    read_capsule,
    read_list,
)
from .site import Answer, Changed, Form, Nav, Site

if TYPE_CHECKING:
    from ...library import Library

_MAX_IMPORT_BYTES = 64 << 20
_TEMPLATE = "\n\n".join(f"## {section}\n\n" for section in PURPOSES)


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
        query = request.query_params
        return read_list(
            self._library,
            query=query.get("q", ""),
            workspace=query.get("workspace"),
            deleted="deleted" in query,
            offset=query.get("offset", "0"),
        )

    def capsule(self, request: Request) -> CapsulePage:
        version = request.query_params.get("version", "")
        return read_capsule(
            self._library,
            request.path_params["path"],
            int(version) if version.isdecimal() and len(version) < 9 else None,
        )

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
        fields = {"text": _TEMPLATE, "workspace": workspace, "name": "", "title": "", "tags": ""}
        return self._form(None, fields)

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
            stored = call(self._library, "moss.store", {**_written(form.fields), **_names(form.fields)})
            return address_of(call(self._library, "moss.fetch", {"id": stored["id"], "include_text": False}))

        return self._save(None, form.fields, write)

    def update(self, request: Request, form: Form) -> Changed | Answer:
        path, fields = request.path_params["path"], form.fields

        def write() -> str:
            item = find(self._library, path)
            version = fields.get("version", "")
            guard = {"if_version": int(version)} if version.isdecimal() and len(version) < 9 else {}
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
            page.fields, page.error = self._library.egress(fields), refused.message
            return Answer(page, refused.status)

    def change(self, request: Request, form: Form) -> Changed:
        """Delete or restore a capsule, or make an old version the current one."""
        library, action = self._library, form.fields.get("action")
        item = find(library, request.path_params["path"])
        try:
            if action == "delete":
                call(library, "moss.delete", {"id": item["id"]})
            elif action == "restore":
                call(library, "moss.restore", {"id": item["id"]})
            elif action == "revert":
                _revert(library, item["id"], form.fields.get("version", ""))
            else:
                raise HTTPException(400, "The action is delete, restore or revert.")
        except Refused as refused:
            raise HTTPException(refused.status, refused.message) from None
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
            notice, problems, status = refused.message, [], refused.status
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


def _names(fields: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name in ("workspace", "name") if (value := fields.get(name, "").strip())}


def _revert(library: Library, id: str, version: str) -> None:
    """Make the text of an old version the current one, exactly as it was stored."""
    if not (version.isdecimal() and len(version) < 9):
        raise HTTPException(400, "The version is a number.")
    old = call(library, "moss.history", {"id": id, "version": int(version), "raw": True})
    call(library, "moss.update", {"id": id, "capsule_text": old["items"][0]["capsule_text"], "allow_thin": True})


@contextmanager
def _file_in(library: Library, content: bytes) -> Iterator[str]:
    """The content as a file that the import tool may read."""
    folder = make_private_folder(library.home / "exports")
    handle, name = tempfile.mkstemp(".jsonl", "import-", folder)
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        yield name
    finally:
        path.unlink()


def _imported(answer: dict[str, Any]) -> str:
    if answer["errors"] and not answer["imported"]:
        return "Nothing was imported."
    return f"{answer['imported']:,} imported, {answer['skipped']:,} already there."


def _exported(answer: dict[str, Any]) -> str:
    return f"{answer['count']:,} written to {answer['path']}, exactly as stored: treat the file like the store."


def _file_name(item: Mapping[str, Any]) -> str:
    return "".join(char if char.isalnum() or char in "-_." else "-" for char in item.get("name") or item["id"])
