"""`backstory ui` as a process, with a program in the place of the browser."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx

from tests.e2e.served import Process, eventually, run


def stub_browser(folder: Path) -> tuple[str, Path]:
    """The value of BROWSER, and the file with the addresses that were opened."""
    opened = folder / "opened"
    script = folder / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    script.chmod(0o700)
    return f"{script} %s", opened


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


class TestUi:
    def test_starts_a_server_and_uses_it_the_next_time(self, tmp_path: Path) -> None:
        browser, opened = stub_browser(tmp_path)
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        with Process(tmp_path, "ui", "--port", port, BROWSER=browser) as server:
            assert server.first_line == f"Backstory is at {url}\n"
            eventually(opened.exists)
            assert "Nothing has been read yet" in httpx.get(url).text
            again = run(tmp_path, "ui", "--port", port, BROWSER=browser)
            assert (again.returncode, again.stdout) == (0, f"{url}\n")
            assert eventually(lambda: len(opened.read_text().split()) == 2)
            assert set(opened.read_text().split()) == {url}
            assert server.stop() == 0
