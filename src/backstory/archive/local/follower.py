"""A process that lets the index and the traces follow while the writer goes on reading: two cores instead of one.

It is told what to do line by line, and ends when its writer does, however that ends. It only reads the record, so a
writer that has lost it does the rest itself.
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

__all__ = ["Follower"]

# Take in what is new; make it searchable; that, and say so; end.
_FOLLOW, _PUBLISH, _FLUSH, _CLOSE = "follow", "publish", "flush", "close"
_FLUSHED = "flushed"
_NICENESS = 10
# The traces of what was just read take less. If there are many more, because prices have changed or they are all to be
# made anew, whoever waits for a flush does not wait for those.
_PROJECT_SECONDS, _LAST_SECONDS = 1.0, 3.0

_log = logging.getLogger(__name__)


class Follower:
    """The writer's end."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @classmethod
    def start(cls, home: Path) -> Follower | None:
        """None where no other process can be started."""
        # -P: what lies in the folder that somebody happens to be in is not a part of this program.
        command = [sys.executable, "-P", "-m", __name__, os.fspath(home.absolute())]
        pipe = subprocess.PIPE
        try:
            # In a session of its own: an interrupt from the keyboard is for the writer, which then says what to do.
            process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, start_new_session=True
            )
        except OSError as error:
            _log.warning("no second process could be started, this one does everything: %s", error)
            return None
        return cls(process)

    def follow(self) -> None:
        """There is more in the record."""
        self._tell(_FOLLOW)

    def flush(self, *, wait: bool) -> bool:
        """Make everything searchable that is in the record now, or soon. False if there is nobody to do it any more."""
        assert self._process.stdout is not None
        if self._tell(_FLUSH if wait else _PUBLISH) and (
            not wait or self._process.stdout.readline().strip() == _FLUSHED
        ):
            return True
        _log.warning("the index is brought up to date by one process alone: the second one ended")
        return False

    def close(self) -> None:
        """Let it finish what it is at; afterwards the index is free for another."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._tell(_CLOSE)
        try:
            self._process.wait()
        finally:
            # The end of its input, which it would take for the end of its writer, comes after its own.
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.stdout.close()

    def _tell(self, command: str) -> bool:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{command}\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return False
        return True


def main() -> None:
    """The other end."""
    from .archive import LocalArchive

    if hasattr(os, "nice"):  # searches go before indexing
        os.nice(max(_NICENESS - os.nice(0), 0))
    gc.disable()  # nothing here is ever part of a cycle, and looking for some takes a twentieth of the time
    commands: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(commands,), daemon=True).start()
    archive = LocalArchive(Path(sys.argv[1]))
    following = archive.following()
    while (command := commands.get()) != _CLOSE:
        if command == _FOLLOW:
            following.feed()
            following.project(_PROJECT_SECONDS)
        else:
            following.flush()
            following.project(_LAST_SECONDS)
        if command == _FLUSH:
            sys.stdout.write(f"{_FLUSHED}\n")
            sys.stdout.flush()
    following.close()
    archive.close()
    os._exit(0)  # the other thread listens until the end


def _listen(commands: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        commands.put(line.strip())
    # The writer was killed. Another one may be waiting for the index already.
    os._exit(1)


if __name__ == "__main__":
    main()
