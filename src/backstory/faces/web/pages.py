"""The pages of `backstory serve` for people. Each module of a page gives its routes; a new page is one more line."""

from __future__ import annotations

from starlette.routing import BaseRoute

from . import capsules, live, machine, search, session, traces, usage
from .site import Site


def page_routes(site: Site) -> list[BaseRoute]:
    """The routes of all pages; their data comes from the library's tools, or through `library.egress`."""
    return [
        *site.common_routes(),
        *search.routes(site),
        *session.routes(site),
        *traces.routes(site),
        *usage.routes(site),
        *live.routes(site),
        *capsules.routes(site),
        *machine.routes(site),
    ]
