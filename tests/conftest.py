"""Shared by all tests: where they write, a home folder for each, real transcripts, and the number of examples."""

from __future__ import annotations

import gc
import inspect
import itertools
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, settings

from backstory import repository, sources, sqlite
from backstory.archive.local import database as record
from backstory.archive.local.documents import EVENTS, EXCHANGES
from backstory.archive.local.index import Index
from backstory.archive.local.spans import database as traces
from backstory.toolsets.capsules import store as capsules

_CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"
_AGENTS_VARIABLES = ("BACKSTORY_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")

PATIENCE = 60.0
"""The seconds that a test waits for anything: for much longer than it takes, so that load does not matter."""

# `make test` runs "fast", `make test-slow` runs "thorough"; a test with a number of its own takes `tests.examples`.
# Neither fails because a busy machine makes examples slowly.
_UNCHECKED = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
settings.register_profile("fast", max_examples=10, deadline=None, suppress_health_check=_UNCHECKED)
settings.register_profile("thorough", max_examples=400, deadline=None, suppress_health_check=_UNCHECKED)
settings.load_profile("fast")


def _write_to_memory(folder: Path = Path("/dev/shm"), needed: int = 2 << 30) -> None:
    """Let tests write to memory where there is enough: thousands of small archives need not wait for a disk."""
    if "TMPDIR" not in os.environ and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > needed:
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)  # pytest has asked for the folder before it reads this


def _keep_memory() -> None:
    """Let the processes that run tests keep the memory they have freed. Each search index takes 20 MB for a moment;
    taking them from the system each time costs a sixth of the time of a small archive. Only glibc reads this."""
    os.environ.setdefault("MALLOC_ARENA_MAX", "1")
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(32 << 20))
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(1 << 30))


_write_to_memory()
_keep_memory()
# No test needs a certificate, and httpx would read all of the system's for each request, in 25 ms. Here are none.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)
# On a busy machine an answer may take longer than the 5 s that httpx waits by default.
_waits = inspect.signature(httpx.get).parameters["timeout"].default
_waits.connect = _waits.read = _waits.write = _waits.pool = PATIENCE


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Modules and collected tests stay to the end: no search for garbage goes through them, now or later."""
    _take_turns_at_compiling(session.config)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _take_turns_at_compiling(config: pytest.Config) -> None:
    """Let each process that runs tests begin with other folders. In a fresh checkout all of them would compile the same
    modules at the same time; so each finds most of them compiled by the others."""
    worker = getattr(config, "workerinput", None)
    tests = Path(__file__).parent
    if worker is not None and [config.rootpath / each for each in config.args] == [tests]:
        parts = sorted(str(path) for path in tests.iterdir() if path.is_dir() or path.match("test_*.py"))
        first = int(worker["workerid"].removeprefix("gw")) * len(parts) // worker["workercount"]
        config.args[:] = parts[first:] + parts[:first]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order that all processes have in common."""
    items.sort(key=lambda item: item.path.parts)


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Real transcripts beside the checkout; tests that need them are skipped where there are none."""
    if not (_CORPUS / "home").is_dir():
        pytest.skip("no corpus of real transcripts beside the checkout")
    return _CORPUS


@pytest.fixture(scope="session")
def clickhouse_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a ClickHouse server that the tests of this process share."""
    from tests.archive import clickhouse_server

    if reason := clickhouse_server.missing():
        pytest.skip(reason)
    with clickhouse_server.serving(tmp_path_factory.mktemp("clickhouse")) as url:
        yield url


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Paths for home folders. `mktemp` would look through all former ones each time."""
    base = tmp_path_factory.mktemp("homes")
    return (base / str(number) for number in itertools.count())


@pytest.fixture(scope="session", autouse=True)
def _installed_plugins() -> Iterator[None]:
    """Look for plugins of sources once: site-packages stays as it is, and every library would look through it."""
    found, looked_in = sources._are_installed(), [*sys.path]
    look = sources._are_installed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "_are_installed", lambda: found if sys.path == looked_in else look())
        yield


@pytest.fixture(scope="session", autouse=True)
def _databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Create each database from its migrations once, and the empty indexes of an archive; where this process creates
    one later, it copies them, at a twentieth of the time. Like the empty file that it stands for, a database appears
    all at once, or not at all, and after the indexes that belong to it."""
    folder = tmp_path_factory.mktemp("databases")
    sqlite.prepare(folder / "archive.db", record.MIGRATIONS, functions=record.FUNCTIONS)
    traces.prepare(folder / "traces.db")
    sqlite.prepare(folder / capsules.FILE, capsules._MIGRATIONS)
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    indexes = tmp_path_factory.mktemp("indexes")
    for kind in (EVENTS, EXCHANGES):
        Index(indexes, kind).build(lambda writer: 0)
    create, numbers = sqlite._create_private, itertools.count()

    def copy(path: Path) -> None:
        if path.name not in contents or path.exists():
            create(path)
            return
        whole = path.with_name(f"{path.name}.{os.getpid()}.{next(numbers)}")
        if path.name == "archive.db" and not (index := path.with_name("index")).exists():
            shutil.copytree(indexes, whole, copy_function=shutil.copyfile)
            try:
                whole.rename(index)
            except OSError:  # another one was faster
                shutil.rmtree(whole)
        create(whole)
        whole.write_bytes(contents[path.name])
        with suppress(FileExistsError):
            os.link(whole, path)
        whole.unlink()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "_create_private", copy)
        yield


@pytest.fixture(autouse=True)
def _own_home(_homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test reads or writes the home folder of the user who runs it, logs to the stderr of an earlier one, or finds
    less because the machine is busy."""
    home = next(_homes)
    home.mkdir(mode=0o700)
    for name in _AGENTS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))  # the name of HOME on Windows
    monkeypatch.setenv("BACKSTORY_CATCH_UP_SECONDS", str(PATIENCE))
    monkeypatch.setattr(repository, "_GIT_SECONDS", PATIENCE)
    handlers = logging.root.handlers[:]
    yield
    logging.root.handlers[:] = handlers
