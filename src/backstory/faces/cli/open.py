from __future__ import annotations

import click

from .options import json_option

__all__ = ["open_"]


@click.command("open")
@click.argument("id_", metavar="ID")
@click.option("--full", is_flag=True, help="Show every event and every line.")
@click.option("--md", "as_markdown", is_flag=True, help="Print Markdown; with --full also tool output and reasoning.")
@json_option
def open_(id_: str, full: bool, as_markdown: bool, as_json: bool) -> int:
    """Read a session, a turn or an event.

    ID is one that search or sessions showed. The first characters of the agent's own session id will do, and
    with :N that session's turn N. On a terminal long texts are folded; a line says how to see the rest.
    """
    from .handles import find_id, unknown
    from .output import exit_code, print_json
    from .progress import up_to_date

    library = up_to_date(as_json=as_json)
    answer = library.open(find_id(library.archive, id_))
    if as_json:
        print_json(answer)
    elif "error" in answer and answer["error"]["code"] == "invalid_id":
        raise click.ClickException(unknown(id_))
    elif "error" not in answer and as_markdown:
        from .markdown import to_markdown

        click.echo(to_markdown(library, answer, full=full), nl=False)
    elif "error" not in answer:
        from .reading import Reader

        Reader(library, full=full).show(answer)
    return exit_code(answer)
