"""Log lines on stderr. They quote paths, errors and transcripts, so they pass egress like every answer.

A module of its own, because every process imports it at its start and few import anything else of a face.
"""

from __future__ import annotations

import logging
import sys

SERVER_FORMAT = "backstory: %(levelname)s: %(message)s"
# Libraries that warn of requests which they repeat, and of errors that Backstory reports itself.
_TALKATIVE = ("urllib3", "clickhouse_connect")


class _EgressFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        from ..egress import egress  # most processes log nothing

        return egress(super().format(record))


def log_to_stderr(format: str = SERVER_FORMAT) -> None:
    """Write warnings and errors to stderr; replaces the format of an earlier call."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_EgressFormatter(format))
    handler.addFilter(lambda record: not record.name.startswith(_TALKATIVE))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
