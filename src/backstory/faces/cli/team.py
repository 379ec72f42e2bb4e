"""`backstory team`: sharing sessions with a team."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from ..words import find_id, home_path, plural, unknown
from .app import json_option
from .output import headline, hint, print_json, put_facts, since, stdout_console, tell, warn
from .sync import up_to_date

if TYPE_CHECKING:
    from ...archive.base import Batch
    from ...library import Library
    from ...team.access import Token
    from ...team.member import SharedSession, Status

# The states of sessions, by the question that each answers.
_GROUPS = (
    ("Is shared", ("shared", "changed")),
    ("Would be shared", ("waiting", "refused")),
    ("Was shared", ("kept", "lost", "withheld", "taken back")),
)
_WORDS = {
    "changed": "more of it waits to be sent",
    "refused": "refused",
    "kept": "the server has it, the settings do not cover it any more",
    "lost": "no longer there: it was deleted on the server",
    "withheld": "to be taken back",
    "taken back": "taken back",
}
_SHOWN = 20


@click.group()
def team() -> None:
    """Share sessions with a team, and take them back.

    Nothing leaves this machine unless `[team]` in config.toml names projects to share; secrets are redacted before
    anything is sent. To search what others share: backstory search --team WORDS.
    """


@team.command()
@click.option("--dry-run", is_flag=True, help="Print the records that the next push would send, as JSON Lines.")
@click.option("--all", "show_all", is_flag=True, help="List every session.")
@json_option
def status(dry_run: bool, show_all: bool, as_json: bool) -> None:
    """Show what is, would be and was shared. Nothing is sent."""
    library = up_to_date(as_json=as_json or dry_run)
    if dry_run:
        _print_records(library.team.preview())
        return
    found = library.egress(library.team.status())
    if as_json:
        print_json(found)
    else:
        _show_status(library, found, most=None if show_all else _SHOWN)


def _print_records(batches: Iterable[Batch]) -> None:
    """Print rows as JSON Lines; the row of a session once, although every piece has it."""
    from base64 import b64encode

    import msgspec

    def encode(value: Any) -> str:
        return b64encode(value).decode()

    shown: set[str] = set()
    for batch in batches:
        for kind in ("sessions", "turns", "events", "exchanges", "usage"):
            for row in getattr(batch, kind):
                if kind == "sessions" and row.key in shown:
                    continue
                shown.update({row.key} if kind == "sessions" else ())
                record = msgspec.to_builtins(row, builtin_types=(bytes, bytearray))
                click.echo(msgspec.json.encode({"record": kind.removesuffix("s"), **record}, enc_hook=encode).decode())


def _show_status(library: Library, found: Status, most: int | None) -> None:
    console = stdout_console()
    if found.server is None:
        click.echo("Nothing is shared: no server of a team is set.")
        hint(f"set team.url and team.projects in {home_path(str(library.home / 'config.toml'))}; see the docs on teams")
        return
    headline(console, f"Team at {found.server}")
    put_facts(console, f"this machine: {found.machine}", f"agents: {', '.join(found.agents) or 'all'}", indent=2)
    rules = ", ".join(found.projects) or "none, so nothing is shared"
    put_facts(console, f"projects: {rules}", f"since {found.since}" if found.since else None, indent=2)
    put_facts(console, f"last push {since(found.pushed_at)}" if found.pushed_at else "never pushed", indent=2)
    if found.error:
        warn([f"The last push failed: {found.error}"])
    for title, states in _GROUPS:
        sessions = [session for session in found.sessions if session.state in states]
        if sessions:
            headline(console, f"{title}: {plural(len(sessions), 'session')}")
        for session in sorted(sessions, key=lambda each: each.updated or 0, reverse=True)[:most]:
            _show_session(session)
        if most is not None and len(sessions) > most:
            put_facts(console, f"{len(sessions) - most} more: --all", indent=2)


def _show_session(session: SharedSession) -> None:
    console = stdout_console()
    amount = plural(session.events, "event") if session.events == session.sent else None
    partly = None if amount else f"{session.sent:,} of {plural(session.events, 'event')}"
    note = _WORDS.get(session.state)
    if session.reason:
        note = f"{note}: {session.reason}"
    put_facts(console, session.title or "(no title)", session.session, amount or partly, note, indent=2)


@team.command()
@click.option("--again", is_flag=True, help="Send everything once more, for a server that has lost something.")
@json_option
def push(again: bool, as_json: bool) -> int:
    """Send what is to be shared now, and take back what was withheld.

    `backstory watch`, `serve` and `mcp` do this in the background.
    """
    library = up_to_date(as_json=as_json)
    if not library.settings.team.projects:
        tell("team.projects in config.toml names no project, so nothing is shared.")
    report = library.team.push(again=again)
    if as_json:
        print_json(report)
    else:
        click.echo(f"Sent {plural(report.events, 'event')} of {plural(report.sessions, 'session')}.")
        if report.withdrawn:
            click.echo(f"Took back {plural(report.withdrawn, 'session')}.")
        if report.refused:
            warn([f"The server refused {plural(report.refused, 'session')}: backstory team status shows why."])
    return int(bool(report.refused))


@team.command()
@click.argument("id_", metavar="SESSION")
@json_option
def forget(id_: str, as_json: bool) -> int:
    """Take a session back from the team, and keep it from being shared again.

    The archive of this machine keeps it. SESSION is as for `backstory open`; sessions of its subagents go with it.
    """
    from ...archive.errors import ArchiveError

    library = up_to_date(as_json=as_json)
    keys = _keys_of(library, id_)
    library.team.withhold(keys)
    error = None
    try:
        library.team.push()
    except ArchiveError as failure:
        error = str(failure)
    states = {each.session: each.state for each in library.team.status().sessions if each.session in keys}
    taken = all(state == "taken back" for state in states.values())
    if as_json:
        print_json(library.egress({"sessions": states, "taken_back": taken, "error": error}))
    elif taken:
        click.echo(f"Taken back: {plural(len(keys), 'session')}. It is not shared again.")
    else:
        click.echo("It is not shared from now on. The server still has it, and is asked again with every push.")
        refused = [each.reason for each in library.team.status().sessions if each.session in keys and each.reason]
        warn([error] if error else refused)
    return int(not taken)


def _keys_of(library: Library, text: str) -> list[str]:
    """The keys of a session and those it started; of this machine, or else of the team."""
    from ...model import InvalidId, SessionRef, parse_id

    try:
        return [row.key for row in library.family(find_id(library.archive, text))]
    except LookupError:  # deleted here, or shared from another machine
        full_id = find_id(library.in_scope("team").asked, text)
    try:
        ref = parse_id(full_id)
    except InvalidId:
        ref = None
    if not isinstance(ref, SessionRef):
        raise click.ClickException(unknown(text))
    return [ref.key]


@team.group()
def token() -> None:
    """Tokens for the members of a hub, on the machine that runs `backstory serve --hub`."""


@token.command()
@click.argument("member")
@click.option("--read-only", is_flag=True, help="The member may search, and not share.")
@click.option("--write-only", is_flag=True, help="The member may share, and not search.")
@click.option(
    "--project", "projects", multiple=True, metavar="PATTERN", help="Only these projects. Repeatable.  [default: all]"
)
@json_option
def create(member: str, read_only: bool, write_only: bool, projects: tuple[str, ...], as_json: bool) -> None:
    """Make a token for MEMBER, and print it. It is shown this once: only its digest is kept."""
    from ...team.access import RIGHTS, Tokens

    if read_only and write_only:
        raise click.UsageError("--read-only and --write-only exclude one another")
    if not member.strip() or not all(projects):
        raise click.UsageError("MEMBER and PATTERN cannot be empty")
    rights = [right for right in RIGHTS if right not in (("write",) if read_only else ("read",) if write_only else ())]
    made, text = Tokens(_hub_home()).create(member, rights, projects or ("*",))
    shown = _shown(made)
    if as_json:
        print_json({**shown, "token": text})
    else:
        click.echo(text)
        tell(f"Token {made.id} of {shown['member']}: {' and '.join(rights)}, projects {', '.join(shown['projects'])}.")
        tell("Give it to the member, who sets BACKSTORY_TEAM_TOKEN or team.token_file. It is not shown again.")


def _shown(token: Token) -> dict[str, Any]:
    from msgspec import to_builtins

    from ...egress import egress

    shown: dict[str, Any] = egress(to_builtins(token))
    return shown


@token.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the tokens of this hub."""
    from ...team.access import Tokens

    found = [_shown(each) for each in Tokens(_hub_home()).list()]
    if as_json:
        print_json({"tokens": found})
        return
    if not found:
        hint("There are no tokens: backstory team token create MEMBER")
    for each in found:
        state = f"revoked {since(each['revoked_at'])}" if each["revoked_at"] else f"made {since(each['created_at'])}"
        rights, projects = " and ".join(each["rights"]), ", ".join(each["projects"])
        put_facts(stdout_console(), each["id"], each["member"], rights, projects, state)


@token.command()
@click.argument("id_", metavar="ID")
@json_option
def revoke(id_: str, as_json: bool) -> None:
    """Revoke a token at once. ID is as in the list."""
    from ...team.access import Tokens

    found = Tokens(_hub_home()).revoke(id_)
    if found is None:
        raise click.ClickException(f"there is no token {id_}; backstory team token list shows them")
    if as_json:
        print_json(_shown(found))
    else:
        click.echo(f"Revoked the token {found.id} of {_shown(found)['member']}.")


def _hub_home() -> Any:
    from ...config import home_folder, make_private_folder

    return make_private_folder(home_folder())
