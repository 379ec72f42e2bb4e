"""What is here: a page for people at `/`, and `/healthz` for programs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from .errors import json_response

__all__ = ["home_routes"]

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


def home_routes() -> Sequence[BaseRoute]:
    page = _PAGE.format(version=version("backstory"))

    async def home(request: Request) -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"})

    async def healthz(request: Request) -> Response:
        return json_response({"status": "ok"})

    return [Route("/", home, methods=["GET"]), Route("/healthz", healthz, methods=["GET"])]
