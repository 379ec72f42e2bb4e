"""`backstory` and `python -m backstory`."""

from __future__ import annotations

import sys


def main() -> None:
    from .faces.cli.app import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
