"""Options that several commands share."""

from __future__ import annotations

from typing import Any

import click

from ..words import parse_moment


class Moment(click.ParamType[int]):
    """A point in time as people write it, converted to milliseconds since the epoch."""

    name = "time"

    def __init__(self, *, end: bool = False) -> None:
        self.end = end

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        moment = parse_moment(value, end=self.end)
        if moment is None:
            self.fail(f"{value!r} is not a time: use 3d, 2h, yesterday, 2026-01-31 or RFC 3339", param, ctx)
        return moment


def _inherit(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """`backstory --json COMMAND` is `backstory COMMAND --json`."""
    return value or bool(ctx.find_root().params.get("as_json"))


json_option = click.option("--json", "as_json", is_flag=True, callback=_inherit, help="Print one JSON document.")
since_option = click.option(
    "--since", type=Moment(), metavar="TIME", help="Not before: 3d, 2h, yesterday, a date, or RFC 3339."
)
until_option = click.option(
    "--until", type=Moment(end=True), metavar="TIME", help="Not after; a date includes that day."
)
project_option = click.option("--project", metavar="TEXT", help="Only projects whose path or repository contains this.")
source_option = click.option("--source", metavar="NAME", help="Only this agent: claude-code, codex, ...")
team_option = click.option("--team", is_flag=True, help="Ask the archive of your team, not that of this machine.")
