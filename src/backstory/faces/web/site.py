"""The site of `backstory serve`: it renders templates, answers JSON twins, serves its assets, and checks forms.

A page is a path, a template and a function that builds its data. The same data is the page and its JSON twin.
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import parse_qsl, urlencode

import anyio
from anyio.to_thread import run_sync
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ...archive.errors import DeadlineExceeded, explain
from ..http import json_response, read_body
from ..mcp import PARALLEL_CALLS
from . import make_environment

if TYPE_CHECKING:
    from ...library import Library

log = logging.getLogger("backstory.web")

Build = Callable[[Request], Any]
"""Gives the data of a page, a value that JSON can hold, an Answer with it, or a Response that is answered as it is.
It runs in a thread. An HTTPException becomes an error page."""

Handle = Callable[[Request, "Form"], Any]
"""Does what a form asks for, in a thread: gives the data of the page to show, an Answer, or Changed."""

THEMES = ("system", "light", "dark")
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
_THEME_COOKIE = "backstory_theme"
_YEAR_SECONDS = 365 * 86_400
_MAX_FORM_BYTES = 4 << 20
_STATIC = Path(__file__).with_name("static")
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_PAGE_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cache-Control": "private, no-cache",
    # With `no-referrer` a browser sends forms of our own pages with `Origin: null`, and they are refused.
    "Referrer-Policy": "same-origin",
    "Vary": "Accept-Encoding, Cookie",
}
_COMPRESSED_BYTES = 1024
_GZIP_LEVEL = 4
_HEADINGS = {403: "Refused", 404: "Not found", 413: "Too large", 500: "Something broke", 503: "Not available"}
_MOST_KEPT = 16

T = TypeVar("T")


class Nav(Struct, frozen=True):
    """An entry of the navigation; `g` and its key open it."""

    label: str
    path: str
    key: str


class Asset(Struct, frozen=True):
    """A static file, also compressed."""

    content: bytes
    packed: bytes
    media_type: str


class Form(Struct, frozen=True):
    """The fields of a form, and its file if it was sent with one."""

    fields: dict[str, str]
    content: bytes | None = None


class Answer(Struct, frozen=True):
    """The data of a page, with its status."""

    data: Any
    status: int = 200


class Changed(Struct, frozen=True):
    """A form has changed something; `address` is the page that shows it."""

    address: str


class Site:
    def __init__(self, library: Library) -> None:
        self.library = library
        self.navigation: list[Nav] = []
        self._assets = {path.name: _read_asset(path) for path in sorted(_STATIC.iterdir())}
        # Part of the addresses of assets, so that browsers keep them until one changes.
        self._version = _digest(asset.content for asset in self._assets.values())
        self.form_token = secrets.token_urlsafe(24)
        self._limiter = anyio.CapacityLimiter(PARALLEL_CALLS)
        self._templates = make_environment(asset=self.asset_url)

    # Pages

    def page(
        self, path: str, template: str, build: Build, *, nav: Nav | None = None, parts: Sequence[str] = ()
    ) -> list[Route]:
        """The routes of a page and its JSON twin. `?part=NAME` answers one block of the template, of those in `parts`:
        scripts put it into the page."""
        if nav is not None:
            self.navigation.append(nav)

        async def html(request: Request) -> Response:
            part = request.query_params.get("part")
            return await self.answer(request, lambda: self._page(request, template, build, part, parts))

        async def twin(request: Request) -> Response:
            return await run_sync(lambda: _as_json(build(request)), limiter=self._limiter)

        # The twin first: `/s/{id}` would take `/s/x.json` as well.
        return [Route(f"{path}.json", twin, methods=["GET"]), Route(path, html, methods=["GET"])]

    async def answer(self, request: Request, work: Callable[[], Response]) -> Response:
        """The response of a function that runs in a thread; its failures become error pages."""
        try:
            return await run_sync(work, limiter=self._limiter)
        except HTTPException as error:
            return self.error_page(request, error.status_code, error.detail)
        except DeadlineExceeded:
            return self.error_page(request, 503, "The archive did not answer in time. Ask for less, or try again.")
        except Exception as error:
            reason = explain(error)
            if reason is None:
                log.exception("%s failed", request.url.path)
            return self.error_page(request, 500, reason or "The server's log has the details.")

    def _page(self, request: Request, template: str, build: Build, part: str | None, parts: Sequence[str]) -> Response:
        answer = build(request)
        if isinstance(answer, Response):
            return answer
        if not isinstance(answer, Answer):
            answer = Answer(answer)
        if part in parts and part is not None:
            return self.block(request, template, part, answer.data)
        return self.respond(request, template, answer.data, answer.status)

    def respond(self, request: Request, template: str, data: Any, status: int = 200) -> Response:
        """A page with this data, for routes that are not one of `page`."""
        return self._html(request, self.render(request, template, data=data), status)

    def block(self, request: Request, template: str, name: str, data: Any) -> Response:
        """One block of a template."""
        return self._html(request, self._block(request, template, name, data))

    def render(self, request: HTTPConnection, template: str, **values: Any) -> str:
        return self._templates.get_template(template).render(self._context(request), **values)

    def _block(self, request: Request, template: str, name: str, data: Any) -> str:
        found = self._templates.get_template(template)
        context = found.new_context({**self._context(request), "data": data})
        return "".join(found.blocks[name](context))

    def _context(self, request: HTTPConnection) -> dict[str, Any]:
        theme = request.cookies.get(_THEME_COOKIE)
        query = [(name, value) for name, value in request.query_params.multi_items() if name not in ("part", "token")]
        path = request.scope["path"]
        return {
            "navigation": self.navigation,
            "path": path,
            "here": self.library.egress(path + (f"?{urlencode(query)}" if query else "")),
            "theme": theme if theme in THEMES else "system",
            "form_token": self.form_token,
        }

    def error_page(self, request: HTTPConnection, status: int, message: str) -> Response:
        message = self.library.egress(message)
        heading = _HEADINGS.get(status, "That did not work")
        text = self.render(request, "error.html", status=status, heading=heading, message=message)
        return self._html(request, text, status)

    def _html(self, request: HTTPConnection, text: str, status: int = 200) -> Response:
        content = text.encode("utf-8", "replace")
        headers = dict(_PAGE_HEADERS)
        if len(content) >= _COMPRESSED_BYTES and _accepts_gzip(request):
            content = gzip.compress(content, _GZIP_LEVEL, mtime=0)
            headers["Content-Encoding"] = "gzip"
        return Response(content, status, headers, media_type="text/html")

    # Forms

    def form(
        self, path: str, template: str, handle: Handle, *, block: str | None = None, max_file: int = 0
    ) -> list[Route]:
        """The routes that a form is sent to: its own, and by `.json` one that answers the same data as JSON. `block` is
        the block of the template to answer; `max_file` are the bytes that a form with a file may have."""

        async def html(request: Request) -> Response:
            form = await self._read_form(request, max_file)
            return await self.answer(request, lambda: self._outcome(request, template, handle(request, form), block))

        async def twin(request: Request) -> Response:
            form = await self._read_form(request, max_file)
            return await run_sync(lambda: _as_json(handle(request, form)), limiter=self._limiter)

        return [Route(f"{path}.json", twin, methods=["POST"]), Route(path, html, methods=["POST"])]

    def _outcome(self, request: Request, template: str, outcome: Any, block: str | None) -> Response:
        if isinstance(outcome, Changed):
            return RedirectResponse(outcome.address, status_code=303)
        if block is not None:
            return self.block(request, template, block, outcome)
        answer = outcome if isinstance(outcome, Answer) else Answer(outcome)
        return self.respond(request, template, answer.data, answer.status)

    async def _read_form(self, request: Request, max_file: int) -> Form:
        """A form of ours. One without `form_token`, which only our pages know, is refused."""
        if max_file and request.headers.get("content-type", "").startswith("multipart/"):
            form = await read_upload(request, await read_body(request, max_file))
        else:
            form = Form(await read_form(request))
        if not hmac.compare_digest(form.fields.pop("form_token", "").encode(), self.form_token.encode()):
            raise HTTPException(
                403, "This form is not from a page of this server, or the server was started anew. Reload the page."
            )
        return form

    # Assets

    def asset_url(self, name: str) -> str:
        assert name in self._assets, name
        return f"/static/{self._version}/{name}"

    def common_routes(self) -> list[Route]:
        """Assets, and the switch of the theme."""

        async def asset(request: Request) -> Response:
            found = self._assets.get(request.path_params["name"])
            if found is None:
                raise HTTPException(404)
            packed = _accepts_gzip(request)
            headers = {"Cache-Control": f"public, max-age={_YEAR_SECONDS}, immutable", "Vary": "Accept-Encoding"}
            if packed:
                headers["Content-Encoding"] = "gzip"
            return Response(found.packed if packed else found.content, 200, headers, media_type=found.media_type)

        async def theme(request: Request) -> Response:
            fields = await read_form(request)
            chosen = fields.get("theme", "")
            response = RedirectResponse(own_path(fields.get("back", "")), status_code=303)
            if chosen in THEMES:
                response.set_cookie(_THEME_COOKIE, chosen, max_age=_YEAR_SECONDS, httponly=True, samesite="strict")
            return response

        return [
            Route("/static/{version}/{name}", asset, methods=["GET"]),
            Route("/theme", theme, methods=["POST"]),
        ]

    # Errors of other routes, and access

    def http_error(self, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        """An exception handler: browsers that open a page or send a form get an error page, programs get JSON."""

        async def handler(request: Request, error: HTTPException) -> Response:
            if "text/html" not in request.headers.get("accept", "") or request.url.path.endswith(".json"):
                response: Response = await otherwise(request, error)
                return response
            message = "There is no page at this address." if error.status_code == 404 else error.detail
            return self.error_page(request, error.status_code, message)

        return handler

    def token_page(self, request: HTTPConnection, *, refused_from: str | None = None) -> Response:
        """The page that asks for the token, once for each browser; again, with the address to go on at, if another one
        was given."""
        text = self.render(request, "token.html", refused_from=refused_from)
        return self._html(request, text, 401)


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form that was sent without files; of a field that comes twice, the last."""
    body = await read_body(request, _MAX_FORM_BYTES)
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))
    except ValueError:
        raise HTTPException(400, "The form cannot be read.") from None


async def read_upload(request: Request, body: bytes) -> Form:
    """The fields and the file `file` of a form of the type multipart/form-data."""
    from starlette.datastructures import UploadFile
    from starlette.formparsers import MultiPartException, MultiPartParser

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        form = await MultiPartParser(request.headers, stream(), max_files=1, max_fields=20).parse()
    except MultiPartException as error:
        raise HTTPException(400, f"The form cannot be read: {error.message}") from None
    try:
        file = form.get("file")
        content = await file.read() if isinstance(file, UploadFile) else b""
        return Form({name: value for name, value in form.items() if isinstance(value, str)}, content)
    finally:
        await form.close()


def own_path(address: str) -> str:
    """A path of this server from a form; anything else becomes the first page."""
    is_own = address.startswith("/") and not address.startswith("//") and "\\" not in address and address.isprintable()
    return address if is_own else "/"


def _accepts_gzip(request: HTTPConnection) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def _as_json(data: Any) -> Response:
    if isinstance(data, Response):
        return data
    answer = data if isinstance(data, Answer) else Answer(data)
    return json_response(answer.data, answer.status, {"Cache-Control": "private, no-cache"})


def _read_asset(path: Path) -> Asset:
    content = path.read_bytes()
    return Asset(content, gzip.compress(content, 9, mtime=0), _MEDIA_TYPES[path.suffix])


def _digest(contents: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=6)
    for content in contents:
        digest.update(content)
    return digest.hexdigest()


# Answers that take long to make, kept for a while; pages show their age


class Dated(Struct, Generic[T], frozen=True):
    """An answer, and the time it was made at in milliseconds."""

    value: T
    made_at: int


class Kept(Generic[T]):
    """The last answers by their keys. One thread at a time makes one; others wait for it instead of making it too."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.time) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[Hashable, Dated[T]] = {}

    def find(self, key: Hashable) -> Dated[T] | None:
        """The answer that is kept, if it is not too old."""
        found = self._answers.get(key)
        return found if found is not None and self._clock() - found.made_at / 1000 < self._seconds else None

    def get(self, key: Hashable, make: Callable[[], T], *, anew: bool = False) -> Dated[T]:
        """The answer that is kept, or else a new one; with `anew` always a new one."""
        asked_at = self._clock() * 1000
        with self._lock:
            found = self.find(key)
            if found is not None and (not anew or found.made_at >= asked_at):
                return found
            answer = Dated(make(), int(self._clock() * 1000))
            self._answers.pop(key, None)
            self._answers[key] = answer
            while len(self._answers) > _MOST_KEPT:
                del self._answers[next(iter(self._answers))]
            return answer
