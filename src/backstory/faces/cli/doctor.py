from __future__ import annotations

import click

from .options import json_option

__all__ = ["doctor"]


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Show what is found, indexed, broken or about to be purged, and how to fix it.

    The exit code is 1 when there is a problem that needs fixing.
    """
    from ... import open_archive
    from ...config import ConfigError, home_folder
    from .checks import Diagnosis, Problem, diagnose
    from .output import print_json

    try:
        library = open_archive()
        found = library.egress(diagnose(library))
    except ConfigError as error:
        home = home_folder()
        found = Diagnosis(home=str(home), problems=[Problem("error", str(error), f"edit {home / 'config.toml'}")])
    if as_json:
        print_json(found)
    else:
        from .report import show_diagnosis

        show_diagnosis(found)
    return int(any(problem.level != "note" for problem in found.problems))
