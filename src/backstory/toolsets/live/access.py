"""Opening live sessions where another process may already have them: then through that one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...config import load_settings
from .deletion import Forget
from .errors import InUse
from .runtime import Live

__all__ = ["open_live"]


async def open_live(
    home: Path,
    *,
    table: Mapping[str, Any] | None = None,
    wait_seconds: float = 0.0,
    forget: Forget | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Live:
    """Started sessions of a home, or of a `[live]` table instead of the one in its `config.toml`.

    When a server has them they are used through it. When another process has them that serves nothing, it is waited for
    so long; then InUse is raised.
    """
    given = dict(table) if table is not None else None
    while True:
        fetch = _fetch(given) if given is not None else None
        live = Live(home, fetch_config=fetch, forget=forget, environ=environ)
        try:
            await live.start(wait_seconds)
            return live
        except InUse as error:
            if not error.url:
                raise
            limits = given if given is not None else load_settings(home, environ).live
            given = _through(error.url, limits, environ)


def _through(url: str, table: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """The table, with the server at a URL in the place of the folder."""
    token = environ.get("BACKSTORY_TOKEN")
    config = {"url": url} | ({"token": token} if token else {})
    return {**table, "adapter": {"name": "bridge", "config": config}}


def _fetch(table: Mapping[str, Any]) -> Any:
    async def fetch() -> Mapping[str, Any]:
        return table

    return fetch
