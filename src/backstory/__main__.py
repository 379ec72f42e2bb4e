"""`backstory` and `python -m backstory`."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    # Most of a command is imports; looking for garbage among what they make takes a tenth of its time.
    gc.set_threshold(50_000)
    # Whatever this process writes is for its owner only, also what libraries write.
    os.umask(0o077)
    if os.environ.get("HOME") == "":  # Python takes an empty one for `/`
        del os.environ["HOME"]
    if sys.argv[1:2] == ["hook"]:  # not worth the imports of the command line
        from .faces.hook import main as answer_hook

        answer_hook(sys.argv[2:])
    if sys.argv[1:] == ["mcp"] and _is_started_by_an_agent():  # nor here: every session of an agent waits for it
        sys.exit(_serve_agent())
    from .faces.cli.app import run

    code = run(sys.argv[1:])
    # Nor at its end: all is freed with the process, and to look through it would take as long as reading it did.
    gc.freeze()
    sys.exit(code)


def _is_started_by_an_agent() -> bool:
    return sys.stdin is not None and sys.stderr is not None and not sys.stdin.isatty()


def _serve_agent() -> int:
    from . import open_archive
    from .faces.mcp import serve_stdio

    try:
        serve_stdio(open_archive())
    except Exception as error:
        from .faces.cli.app import report

        return report(error)
    return 0


if __name__ == "__main__":
    main()
