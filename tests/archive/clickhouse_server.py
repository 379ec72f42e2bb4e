"""A ClickHouse server for tests: chDB, the same engine in process, behind the part of ClickHouse's HTTP interface that
`clickhouse-connect` uses. Where a `clickhouse` binary is on the machine, that is started instead.

`python -m tests.archive.clickhouse_server FOLDER [PORT]` serves a data folder and prints its port. Queries of several
connections run at the same time. Settings in the URL are ignored, except `database`; those in a query apply.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

_START_SECONDS = 60
# The data begins behind the line: its first byte is the number of columns, which may be that of a space.
_INSERT = re.compile(rb"\s*INSERT\s+INTO\s+(.+?)\s+FORMAT\s+Native *\n", re.IGNORECASE | re.DOTALL)


def missing() -> str | None:
    """The reason why no server can be started here; None if one can."""
    import importlib.util

    if importlib.util.find_spec("clickhouse_connect") is None:
        return "clickhouse-connect is not installed: pip install 'backstory[clickhouse-test]'"
    if shutil.which("clickhouse") is None and importlib.util.find_spec("chdb") is None:
        return "neither a clickhouse binary nor chdb is installed: pip install 'backstory[clickhouse-test]'"
    return None


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The URL of a server with its data in this folder, for as long as the context lasts."""
    binary = shutil.which("clickhouse")
    process, port = _start_binary(binary, folder) if binary else _start_bridge(folder)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=_START_SECONDS)


def command(url: str, sql: str) -> str:
    """Run a statement; gives its rows as lines."""
    with urllib.request.urlopen(url, sql.encode(), timeout=_START_SECONDS) as answer:
        return str(answer.read(), "utf-8")


def _start_bridge(folder: Path) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-m", "tests.archive.clickhouse_server", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def _start_binary(binary: str, folder: Path) -> tuple[subprocess.Popen[str], int]:
    import socket
    import time

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [binary, "server", "--", f"--path={folder}", f"--http_port={port}", "--listen_host=127.0.0.1"]
    command += ["--tcp_port=0", "--mysql_port=0", "--postgresql_port=0"]
    process = subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    patience = time.monotonic() + _START_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=1).close()
            return process, port
        except OSError:
            if time.monotonic() > patience:
                process.terminate()
                raise
            time.sleep(0.1)


class _Bridge(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer is one packet: in two, each would wait for the other side's delayed acknowledgement.
    disable_nagle_algorithm = True
    wbufsize = -1
    connect: Callable[[], Any]
    database: str | None = None

    def setup(self) -> None:
        """Each connection of a client has one to chDB of its own, which has its own database in use."""
        super().setup()
        self.connection_to_chdb = type(self).connect()

    def finish(self) -> None:
        self.connection_to_chdb.close()
        super().finish()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self._body()
        parts = urlsplit(self.path)
        if parts.path == "/ping":
            self._send(200, b"Ok.\n")
            return
        options = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        query = options["query"].encode() + b"\n" + body if "query" in options else body
        try:
            self._send(200, self._run(query, options.get("database"), options.get("default_format", "TSV")))
        except RuntimeError as error:
            text = str(error)
            code = re.search(r"Code: (\d+)", text)
            self._send(500, text.encode(), {"X-ClickHouse-Exception-Code": code[1] if code else "1"})

    def _run(self, query: bytes, database: str | None, output: str) -> bytes:
        run = self.connection_to_chdb.query
        if database != self.database:
            run(f"USE {database or 'default'}")
            self.database = database
        insert = _INSERT.match(query)
        if insert is None:
            return bytes(run(query.decode(), output).bytes())
        with tempfile.NamedTemporaryFile() as data:
            data.write(query[insert.end() :])
            data.flush()
            run(f"INSERT INTO {insert[1].decode()} SELECT * FROM file('{data.name}', 'Native')")
        return b""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        else:
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            data = b"".join(chunks)
        return _decompress(data) if self.headers.get("Content-Encoding") == "lz4" else data

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: the output of this process is its port."""


def _decompress(data: bytes) -> bytes:
    """Each block of an insert is a frame of its own."""
    import lz4.frame

    blocks = []
    while data:
        frame = lz4.frame.LZ4FrameDecompressor()
        blocks.append(frame.decompress(data))
        data = frame.unused_data or b""
    return b"".join(blocks)


def main(folder: str, port: str = "0") -> None:
    import chdb

    connect: Any = chdb.connect  # untyped
    _Bridge.connect = staticmethod(partial(connect, folder))
    with closing(connect(folder)):  # the engine ends with its last connection
        server = ThreadingHTTPServer(("127.0.0.1", int(port)), _Bridge)
        print(server.server_address[1], flush=True)  # noqa: T201
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
