"""`backstory live worker` as a process, at an engine that has no sessions of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from backstory.config import expand_placeholders
from backstory.faces.http.iii import Engine, iii_socket
from tests.e2e.iii_client import MESSAGE, Client, TriggerHandler, connected, iii
from tests.e2e.served import Process, eventually, run

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed:DeprecationWarning")


class Nothing:
    """Live sessions without functions and trigger types: what is left is an engine."""

    def functions(self) -> tuple[()]:
        return ()

    trigger_types = functions


@contextmanager
def running_engine(port: int = 0) -> Iterator[str]:
    """The address of an engine."""
    started: Any = threading.Event()
    nothing: Any = Nothing()

    async def serve() -> None:
        app = Starlette(routes=[WebSocketRoute("/", iii_socket(Engine(nothing)))])
        config = uvicorn.Config(app, port=port, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        started.server = server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.005)
        started.port = server.servers[0].sockets[0].getsockname()[1]
        started.set()
        await serving

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert started.wait(60)
    yield f"ws://127.0.0.1:{started.port}"
    started.server.should_exit = True
    thread.join(60)


@pytest.fixture
def engine() -> Iterator[str]:
    with running_engine() as url:
        yield url


class TestWorker:
    """The session functions are there for everyone at the engine, as long as the worker runs."""

    def test_serves_sessions(self, engine: str, tmp_path: Path) -> None:
        with Process(tmp_path, "live", "worker", "--url", engine, "--json") as worker:
            assert json.loads(worker.first_line) == {"url": engine}
            with connected(engine) as client:
                seen = client.on("session::message-added")
                session_id = client.call("session::create", {"title": "there"})["session_id"]
                client.call("session::append", {"session_id": session_id, "message": MESSAGE})
                assert seen.get(timeout=60)["message"] == MESSAGE
                with pytest.raises(iii.InvocationError, match="session/not_found: ") as failure:
                    client.call("session::append", {"session_id": "s_0", "message": MESSAGE})
                assert failure.value.stacktrace is None
                assert worker.process.poll() is None
                worker.process.send_signal(signal.SIGTERM)
                assert worker.process.wait(60) == 0
                assert worker.stderr == ""
                with pytest.raises(iii.InvocationError, match="function_not_found"):
                    client.call("session::list")

    def test_a_wrong_address(self, tmp_path: Path) -> None:
        answer = run(tmp_path, "live", "worker", "--url", "http://127.0.0.1:1")
        assert answer.returncode == 2
        assert "ws://" in answer.stderr

    def test_a_folder_in_use(self, engine: str, tmp_path: Path) -> None:
        with Process(tmp_path, "live", "worker", "--url", engine, "--json"):
            answer = run(tmp_path, "live", "worker", "--url", engine)
        assert answer.returncode == 1
        assert "in use by process" in answer.stderr


class ConfigurationWorker(TriggerHandler):  # type: ignore[misc]
    """A configuration worker as iii engines have one: entries with a schema and a value, and a trigger for changes.

    Like theirs it validates values, expands placeholders when they are read, and calls who is bound to what changed.
    """

    def __init__(self, client: Client, environ: dict[str, str] | None = None) -> None:
        self.client = client
        self.entries: dict[str, dict[str, Any]] = {}
        self.environ = environ or {}
        self.bindings: dict[str, Any] = {}
        client.sdk.register_function("configuration::register", self.register)
        client.sdk.register_function("configuration::get", self.get)
        client.sdk.register_function("configuration::set", self.set)
        client.sdk.register_trigger_type({"id": "configuration", "description": "Changes."}, self)
        client.call("engine::workers::list")

    def register(self, entry: Any) -> Any:
        known = self.entries.setdefault(entry["id"], {"value": None})
        known["schema"] = entry["schema"]
        jsonschema.Draft202012Validator.check_schema(entry["schema"])
        if "initial_value" in entry:
            self.set({"id": entry["id"], "value": entry["initial_value"]})
        return entry

    def get(self, request: Any) -> Any:
        entry = self.entries.get(request["id"])
        if entry is None:
            raise iii.InvocationError("NOT_FOUND", "NOT_FOUND: there is no such configuration")
        return {"id": request["id"], "value": expand_placeholders(entry["value"], self.environ)}

    def set(self, request: Any) -> Any:
        entry = self.entries[request["id"]]
        jsonschema.validate(expand_placeholders(request["value"], self.environ), entry["schema"])
        entry["value"] = request["value"]
        for binding in list(self.bindings.values()):
            if binding.config["configuration_id"] == request["id"]:
                event = {"id": request["id"], "event_type": "configuration:updated"}
                call = {"function_id": binding.function_id, "payload": event, "action": iii.TriggerAction.Void()}
                threading.Thread(target=self.client.sdk.trigger, args=(call,)).start()
        return request

    async def register_trigger(self, config: Any) -> None:
        self.bindings[config.id] = config

    async def unregister_trigger(self, config: Any) -> None:
        self.bindings.pop(config.id, None)

    @property
    def value(self) -> Any:
        return self.entries["session-manager"]["value"]


class TestConfiguration:
    """With a configuration worker at the engine the settings are there; a change is taken without a restart."""

    def test_first_start(self, engine: str, tmp_path: Path) -> None:
        with connected(engine) as keeper, connected(engine) as client:
            configuration = ConfigurationWorker(keeper)
            with Process(tmp_path, "live", "worker", "--url", engine, "--json") as worker:
                folder = str(tmp_path / ".backstory" / "live")
                assert configuration.value == {
                    "adapter": {"name": "fs", "config": {"data_dir": folder}},
                    "default_list_limit": 50,
                    "max_list_limit": 500,
                }
                names = [variant["title"] for variant in self.variants(configuration)]
                assert names == ["fs", "bridge"]
                assert client.call("session::create")["session_id"]
                eventually(lambda: configuration.bindings)
                worker.process.send_signal(signal.SIGTERM)
                assert worker.process.wait(60) == 0
                assert worker.stderr == ""

    def variants(self, configuration: ConfigurationWorker) -> list[Any]:
        schema = configuration.entries["session-manager"]["schema"]
        found: list[Any] = schema["properties"]["adapter"]["oneOf"]
        return found

    def test_a_stored_value_counts(self, engine: str, tmp_path: Path) -> None:
        stored = {"adapter": {"name": "fs", "config": {"data_dir": "${WHERE:nowhere}"}}, "default_list_limit": 1}
        seed = tmp_path / "seed.json"
        seed.write_text(json.dumps({"default_list_limit": 7}))
        with connected(engine) as keeper, connected(engine) as client:
            configuration = ConfigurationWorker(keeper, {"WHERE": str(tmp_path / "elsewhere")})
            configuration.entries["session-manager"] = {"value": stored}
            with Process(tmp_path, "live", "worker", "--url", engine, "--json", "--config", str(seed)):
                assert configuration.value == stored
                for _ in range(3):
                    client.call("session::create")
                assert len(client.call("session::list")["sessions"]) == 1
                assert len(list((tmp_path / "elsewhere").glob("*.jsonl"))) == 3

    def test_changes_are_taken_while_it_runs(self, engine: str, tmp_path: Path) -> None:
        with connected(engine) as keeper, connected(engine) as client:
            configuration = ConfigurationWorker(keeper)
            with Process(tmp_path, "live", "worker", "--url", engine, "--json"):
                for _ in range(3):
                    client.call("session::create")
                eventually(lambda: configuration.bindings)
                value = {**configuration.value, "default_list_limit": 2}
                client.call("configuration::set", {"id": "session-manager", "value": value})
                eventually(lambda: len(client.call("session::list")["sessions"]) == 2)
                bad = {"adapter": {"name": "fs", "config": {"data_dir": "/dev/null/no"}}}
                client.call("configuration::set", {"id": "session-manager", "value": bad})
                status = eventually(lambda: self.rejected(client))
                assert "/dev/null/no" in status["last_error"]
                assert len(client.call("session::list")["sessions"]) == 2
                other = {"adapter": {"name": "fs", "config": {"data_dir": str(tmp_path / "other")}}}
                client.call("configuration::set", {"id": "session-manager", "value": other})
                eventually(lambda: client.call("session::list")["sessions"] == [])
                assert client.call("session::config-status")["last_outcome"] == "applied"

    def test_an_engine_that_was_away(self, tmp_path: Path) -> None:
        """The worker registers its schema again and reads the values that changed."""
        with ExitStack() as stack:
            with running_engine() as url:
                configuration = ConfigurationWorker(stack.enter_context(connected(url)))
                client = stack.enter_context(connected(url))
                stack.enter_context(Process(tmp_path, "live", "worker", "--url", url, "--json"))
                for _ in range(3):
                    client.call("session::create")
            configuration.entries["session-manager"] = {"value": {**configuration.value, "default_list_limit": 2}}
            with running_engine(int(url.rpartition(":")[2])):
                eventually(lambda: len(self.listed(client)) == 2)
                assert configuration.entries["session-manager"]["schema"]

    def listed(self, client: Client) -> list[Any]:
        try:
            found: list[Any] = client.call("session::list")["sessions"]
        except iii.InvocationError:
            return []
        return found

    def rejected(self, client: Client) -> Any:
        status = client.call("session::config-status")
        return status if status["last_outcome"] == "rejected" else None

    def test_a_seed(self, engine: str, tmp_path: Path) -> None:
        seed = tmp_path / "seed.json"
        seed.write_text('{"default_list_limit": 7}')
        with connected(engine) as keeper:
            configuration = ConfigurationWorker(keeper)
            arguments = ("live", "worker", "--url", engine, "--json", "--config", str(seed))
            with Process(tmp_path, *arguments):
                assert configuration.value == {"default_list_limit": 7}
            configuration.set({"id": "session-manager", "value": {"default_list_limit": 8}})
            with Process(tmp_path, *arguments):
                assert configuration.value == {"default_list_limit": 8}

    def test_forms_of_a_seed(self, tmp_path: Path) -> None:
        """JSON, TOML with or without the name of the table, and YAML."""
        from backstory.faces.http.iii.worker import read_seed

        forms = {
            "seed.json": '{"default_list_limit": 7}',
            "seed.toml": "[live]\ndefault_list_limit = 7\n",
            "bare.toml": "default_list_limit = 7\n",
            "seed.yaml": "# a comment\ndefault_list_limit: 7\n",
        }
        for name, text in forms.items():
            (tmp_path / name).write_text(text)
            assert read_seed(tmp_path / name) == {"default_list_limit": 7}

    def test_a_bad_value_at_the_start(self, engine: str, tmp_path: Path) -> None:
        with connected(engine) as keeper:
            configuration = ConfigurationWorker(keeper)
            configuration.entries["session-manager"] = {"value": {"default_list_limit": "many"}}
            answer = run(tmp_path, "live", "worker", "--url", engine)
        assert answer.returncode == 1
        assert "default_list_limit" in answer.stderr
        assert "Traceback" not in answer.stderr

    def test_a_bad_seed(self, engine: str, tmp_path: Path) -> None:
        (tmp_path / "seed.json").write_text('{"default_list_limit": "many"}')
        answer = run(tmp_path, "live", "worker", "--url", engine, "--config", str(tmp_path / "seed.json"))
        assert answer.returncode == 1
        assert "default_list_limit" in answer.stderr

    def test_without_a_configuration_worker(self, engine: str, tmp_path: Path) -> None:
        (tmp_path / ".backstory").mkdir()
        (tmp_path / ".backstory" / "config.toml").write_text("[live]\ndefault_list_limit = 1\n")
        with Process(tmp_path, "live", "worker", "--url", engine, "--json"), connected(engine) as client:
            for _ in range(3):
                client.call("session::create")
            assert len(client.call("session::list")["sessions"]) == 1
            (tmp_path / ".backstory" / "config.toml").write_text("[live]\ndefault_list_limit = 2\n")
            eventually(lambda: len(client.call("session::list")["sessions"]) == 2)
