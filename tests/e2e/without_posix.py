"""Runs `backstory` as on a system without POSIX: `python without_posix.py ARGUMENTS...`; without arguments it imports
every module.

Modules that Windows lacks cannot be imported by Backstory, and names that Windows lacks are gone from `os` and
`signal`. Libraries, which have their own ways on Windows, still get the modules.
"""

from __future__ import annotations

import asyncio  # noqa: F401 - it needs what is taken away below
import builtins
import importlib
import multiprocessing.connection  # noqa: F401
import os
import pkgutil
import signal
import subprocess  # noqa: F401
import sys
from typing import Any

MODULES = {"fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}
NAMES = {
    os: (
        *("chown", "fdatasync", "fork", "forkpty", "getegid"),
        *("geteuid", "getgid", "getloadavg", "getpgid", "getuid", "killpg", "mkfifo", "nice", "posix_fadvise"),
        *("pread", "pwrite", "sched_getaffinity", "setsid", "statvfs", "sysconf", "uname", "wait3"),
    ),
    signal: ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1", "alarm", "pthread_sigmask", "setitimer"),
}
# Parts that need a package of an extra.
EXTRAS = ("backstory.archive.clickhouse",)


def take_away() -> None:
    whole_import = builtins.__import__

    def limited_import(name: str, globals: Any = None, *rest: Any, **named: Any) -> Any:
        importer = str((globals or {}).get("__name__"))
        if name in MODULES and importer.startswith("backstory"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return whole_import(name, globals, *rest, **named)

    builtins.__import__ = limited_import
    for module, names in NAMES.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)


def import_everything() -> None:
    import backstory

    for module in pkgutil.walk_packages(backstory.__path__, "backstory."):
        if not module.name.startswith(EXTRAS) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            sys.stdout.write(f"{module.name}\n")


if __name__ == "__main__":
    take_away()
    if sys.argv[1:]:
        from backstory.__main__ import main

        main()
    import_everything()
