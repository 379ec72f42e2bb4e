"""The pages of `backstory serve` for people."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

if TYPE_CHECKING:
    from ...library import Library

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Backstory</title>
<style>
  :root {{ color-scheme: light dark }}
  body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem }}
  dt {{ font-family: ui-monospace, monospace; margin-top: .75rem }}
  dd {{ margin: 0 }}
</style>
<h1>Backstory {version}</h1>
<p>The memory of your coding agents is being served here.</p>
<dl>
  <dt><a href="/api/tools">GET /api/tools</a></dt><dd>every tool, with its schema</dd>
  <dt>POST /api/tools/&lt;name&gt;</dt><dd>call one with JSON arguments</dd>
  <dt>/mcp</dt><dd>MCP over HTTP</dd>
  <dt>POST /session/&lt;function&gt;</dt><dd>live sessions</dd>
  <dt>GET /session/events</dt><dd>their events as a stream (SSE)</dd>
  <dt>WebSocket on /</dt><dd>the iii protocol, for any iii SDK</dd>
</dl>
</html>
"""


def page_routes(library: Library) -> Sequence[BaseRoute]:
    """The routes of all pages; their data comes from the library's tools, or through `library.egress`."""
    page = _PAGE.format(version=version("backstory"))

    async def home(request: Request) -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"})

    return [Route("/", home, methods=["GET"])]
