"""Remotes of git repositories, as agents record them."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_MOST_CHARS = 300
_SCP_LIKE = re.compile(r"(?:[^@/]*@)?([^:/@]+):(?!//)(.+)")
_ADDRESS = re.compile(r"[\w.-]+(?:/[\w.~+-]+)+")


def remote_address(url: object) -> str | None:
    """The address of a remote without protocol, port, user and password, in lower case: `github.com/acme/demo`. None
    for a folder, and for what is no URL."""
    if not isinstance(url, str) or len(url) > _MOST_CHARS:
        return None
    url = url.strip()
    scp_like = _SCP_LIKE.fullmatch(url)
    if "://" in url:
        try:
            parts = urlsplit(url)
            host, path = parts.hostname or "", parts.path
        except ValueError:
            return None
    elif scp_like and len(scp_like[1]) > 1:  # not `C:\folder`
        host, path = scp_like[1], scp_like[2]
    else:
        return None
    path = path.strip("/").removesuffix(".git").rstrip("/")
    address = f"{host}/{path}".lower()
    return address if host and _ADDRESS.fullmatch(address) else None
