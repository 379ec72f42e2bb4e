"""The session page."""

from __future__ import annotations

from starlette.routing import Route

from .site import Site


def routes(site: Site) -> list[Route]:
    return []
