"""`backstory` and `python -m backstory`."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    # Most of a command is imports, and objects that live until the end: looking for garbage among them is a tenth of it.
    gc.set_threshold(50_000)
    from .faces.cli.app import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
