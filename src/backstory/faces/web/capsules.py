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
from starlette.responses import PlainTextResponse, RedirectResponse, Response
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
from .site import Nav, Site

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
    error: str | None = None
    warnings: list[str] = []


def routes(site: Site) -> list[Route]:
    pages = _Pages(site)
    return [
        *site.page("/capsules", "capsules.html", pages.listing, nav=Nav("Capsules", "/capsules", "c")),
        Route("/capsules", pages.change_all, methods=["POST"]),
        Route("/capsules/lint", pages.lint, methods=["POST"]),
        Route("/capsules/new", pages.new, methods=["GET", "POST"]),
        Route("/capsules/{path:path}/edit", pages.edit, methods=["GET", "POST"]),
        Route("/capsules/{path:path}.md", pages.download, methods=["GET"]),
        *site.page("/capsules/{path:path}", "capsule.html", pages.capsule),
        Route("/capsules/{path:path}", pages.change, methods=["POST"]),
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

    # Writing

    async def lint(self, request: Request) -> Response:
        """The check of what was typed, as the block of the form that shows it."""
        fields = await self._site.form(request)
        data = EditPage(address=None, fields=fields, lint=lint_text(self._library, fields.get("text", "")))
        return await self._site.answer(request, lambda: self._site.block(request, "capsule_edit.html", "lint", data))

    async def new(self, request: Request) -> Response:
        if request.method == "GET":
            workspace = self._library.egress(request.query_params.get("workspace", ""))
            fields = {"text": _TEMPLATE, "workspace": workspace, "name": "", "title": "", "tags": ""}
            return await self._form(request, None, fields)
        fields = await self._site.form(request)

        def store() -> str:
            stored = call(self._library, "moss.store", {**_written(fields), **_names(fields)})
            return address_of(call(self._library, "moss.fetch", {"id": stored["id"], "include_text": False}))

        return await self._save(request, None, fields, store)

    async def edit(self, request: Request) -> Response:
        path = request.path_params["path"]
        if request.method == "GET":
            return await self._site.answer(request, lambda: self._edit_form(request, path))
        fields = await self._site.form(request)

        def update() -> str:
            item = find(self._library, path)
            version = fields.get("version", "")
            guard = {"if_version": int(version)} if version.isdecimal() and len(version) < 9 else {}
            call(self._library, "moss.update", {"id": item["id"], **_written(fields), **guard})
            return address_of(item)

        return await self._save(request, f"/capsules/{quote(path)}", fields, update)

    def _edit_form(self, request: Request, path: str) -> Response:
        item = find(self._library, path)
        fields = {
            "text": item["capsule_text"],
            "title": item.get("title", ""),
            "tags": ", ".join(item.get("tags", ())),
            "version": str(item["version"]),
        }
        lint = lint_text(self._library, fields["text"])
        data = EditPage(address=address_of(item), fields=fields, lint=lint, warnings=item.get("warnings", []))
        return self._site.respond(request, "capsule_edit.html", data)

    async def _form(self, request: Request, address: str | None, fields: dict[str, str]) -> Response:
        data = EditPage(address=address, fields=fields, lint=lint_text(self._library, fields["text"]))
        return await self._site.answer(request, lambda: self._site.respond(request, "capsule_edit.html", data))

    async def _save(
        self, request: Request, address: str | None, fields: dict[str, str], write: Callable[[], str]
    ) -> Response:
        """Write, and show the capsule; or the form again with what was typed and why it was refused."""

        def work() -> Response:
            try:
                return RedirectResponse(write(), status_code=303)
            except Refused as refused:
                data = EditPage(
                    address=address,
                    fields=self._library.egress(fields),
                    lint=lint_text(self._library, fields.get("text", "")),
                    error=refused.message,
                )
                return self._site.respond(request, "capsule_edit.html", data, refused.status)

        return await self._site.answer(request, work)

    async def change(self, request: Request) -> Response:
        """Delete or restore a capsule, or make an old version the current one."""
        fields = await self._site.form(request)
        path = request.path_params["path"]
        return await self._site.answer(request, lambda: self._change(path, fields))

    def _change(self, path: str, fields: dict[str, str]) -> Response:
        library, action = self._library, fields.get("action")
        item = find(library, path)
        try:
            if action == "delete":
                call(library, "moss.delete", {"id": item["id"]})
            elif action == "restore":
                call(library, "moss.restore", {"id": item["id"]})
            elif action == "revert":
                _revert(library, item["id"], fields.get("version", ""))
            else:
                raise HTTPException(400, "The action is delete, restore or revert.")
        except Refused as refused:
            raise HTTPException(refused.status, refused.message) from None
        back = "/capsules?deleted" if action == "delete" else address_of(item)
        return RedirectResponse(back, status_code=303)

    async def change_all(self, request: Request) -> Response:
        """Export to a file on this machine, or import a file."""
        if request.headers.get("content-type", "").startswith("multipart/"):
            upload = await self._site.upload(request, _MAX_IMPORT_BYTES)
            return await self._site.answer(request, lambda: self._import(request, upload.fields, upload.content))
        fields = await self._site.form(request)
        return await self._site.answer(request, lambda: self._export(request, fields))

    def _import(self, request: Request, fields: dict[str, str], content: bytes) -> Response:
        with _file_in(self._library, content) as path:
            arguments = {"path": path, "mode": fields.get("mode") or "error"}
            return self._outcome(request, "moss.import", arguments, _imported)

    def _export(self, request: Request, fields: dict[str, str]) -> Response:
        workspace = fields.get("workspace")
        arguments = {"workspace": workspace} if workspace else {}
        return self._outcome(request, "moss.export", arguments, _exported)

    def _outcome(
        self, request: Request, tool: str, arguments: dict[str, Any], say: Callable[[dict[str, Any]], str]
    ) -> Response:
        """The list with what a tool answered."""
        try:
            answer = call(self._library, tool, arguments)
            notice, problems, status = say(answer), answer.get("errors", []), 200
        except Refused as refused:
            notice, problems, status = refused.message, [], refused.status
        data = read_list(self._library)
        data.notice = notice
        data.problems = [f"line {problem['line']}: {problem['message']}" for problem in problems]
        return self._site.respond(request, "capsules.html", data, status)


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
