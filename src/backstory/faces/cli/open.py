from __future__ import annotations

import click

from .options import json_option

__all__ = ["open_"]


@click.command("open")
@click.argument("id_", metavar="ID")
@json_option
def open_(id_: str, as_json: bool) -> int:
    """Read a session, a turn or an event.

    ID is one that search or sessions showed. The first characters of the agent's own session id will do, and
    with :N that session's turn N.
    """
    from ... import open_archive
    from .handles import find_id, unknown
    from .output import exit_code, print_json

    library = open_archive()
    library.catch_up()
    answer = library.open(find_id(library.archive, id_))
    if as_json:
        print_json(answer)
    elif "error" in answer and answer["error"]["code"] == "invalid_id":
        raise click.ClickException(unknown(id_))
    elif "error" not in answer:
        from .show import show_opened

        show_opened(answer)
    return exit_code(answer)
