"""The live sessions as a worker of another iii engine, connected with the iii SDK.

The SDK has a thread and an event loop of its own; the live sessions stay on the loop of this process. An engine with a
configuration worker keeps the settings, under the id that the contract names: the schema is registered there, with
values when it has none, and a `configuration` trigger reports changes. Otherwise `config.toml` holds them.
"""

from __future__ import annotations

import asyncio
import logging
import re
import tomllib
import warnings
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from iii import InitOptions, InvocationError, TriggerAction  # type: ignore[import-untyped]
from iii.iii import III  # type: ignore[import-untyped]
from iii.trigger import TriggerConfig, TriggerHandler  # type: ignore[import-untyped]

from ....config import ConfigError
from ....toolsets.live import Live, LiveError
from ....toolsets.live.types import configuration_schema

WORKER_NAME = "backstory"
_ON_CHANGE = "session::on-config-change"
_WAIT_SECONDS = 2.0
T = TypeVar("T")


class Worker:
    """Serves every function and trigger type of `live` at the engine behind `url`, and reconnects by itself.

    Calls wait until `start` has opened the sessions: the engine may be asked for their settings first.
    """

    def __init__(self, live: Live, url: str, token: str | None = None) -> None:
        self._live = live
        self._open = False
        self._started = asyncio.Event()
        self._configuration: Configuration | None = None
        self._loop = asyncio.get_running_loop()
        self._bound: dict[str, tuple[TriggerConfig, Callable[[], None]]] = {}
        self._connected = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.failed: asyncio.Future[None] = self._loop.create_future()
        """Done when the engine has refused this worker for good."""
        options = InitOptions(
            worker_name=WORKER_NAME,
            worker_description="Durable, reactive, branching sessions of typed messages.",
            headers={"Authorization": f"Bearer {token}"} if token else None,
            otel={"enabled": False},
            enable_metrics_reporting=False,
        )
        logging.getLogger("iii.iii").addFilter(_is_logged)
        self._client = _Client(url, options)
        self._register()
        self._client.add_connection_state_listener(self._on_state)
        self._client.begin()

    async def connected(self) -> None:
        """Wait until the engine is connected."""
        await self._connected.wait()

    async def start(self, seed: Mapping[str, Any]) -> bool:
        """Open the sessions, with the settings of the engine's configuration worker, which gets the seed where it has
        none. False when the engine has no such worker: then `config.toml` counts."""
        configuration = Configuration(self._client, seed)
        found = await self._on_client(configuration.register())
        if found:
            self._configuration = configuration
            self._live.take_config_from(self._fetch_config)
        await self._live.start(_WAIT_SECONDS)
        self._open = True
        if found:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                configuration.follow(_ON_CHANGE)
        self._started.set()
        return found

    async def _fetch_config(self) -> Mapping[str, Any]:
        assert self._configuration is not None
        return await self._on_client(self._configuration.fetch())

    async def close(self) -> None:
        for _, unbind in self._bound.values():
            unbind()
        self._bound.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.to_thread(self._client.shutdown)
        if self._open:
            await self._live.close()

    def _register(self) -> None:
        for function in self._live.functions():
            self._client.register_function(
                function.id,
                self._handler(function.id),
                description=function.description,
                request_format=function.request_schema,
                response_format=function.response_schema,
            )
        with warnings.catch_warnings():
            # Engines before 0.25 know trigger types only, and later ones still do.
            warnings.simplefilter("ignore", DeprecationWarning)
            for kind in self._live.trigger_types():
                self._client.register_trigger_type(
                    {"id": kind.id, "description": kind.description, "trigger_request_format": kind.config_schema},
                    _Bindings(self, kind.id),
                )

    def _handler(self, function_id: str) -> Any:
        async def work(data: Any) -> Any:
            await self._started.wait()
            return await self._live.call(function_id, data)

        async def call(data: Any) -> Any:
            return await self.on_loop(work(data))

        return call

    async def bind(self, trigger_type: str, config: TriggerConfig) -> None:
        """On the loop of this process. The engine repeats every binding after a reconnect; an unchanged one stays."""
        await self._started.wait()
        known = self._bound.get(config.id)
        if known is not None and known[0] == config:
            return

        after = config.config.get("after") if isinstance(config.config, dict) else None
        if isinstance(after, int):
            await self._live.ensure_kept(after)

        async def deliver(payload: dict[str, Any], seq: int) -> None:
            await self._connected.wait()
            request = {"function_id": config.function_id, "payload": payload, "action": TriggerAction.Void()}
            if config.metadata is not None:
                request["metadata"] = config.metadata
            if config.namespace is not None:
                request["namespace"] = config.namespace
            await self._client.trigger_async(request)

        self._bound[config.id] = (config, self._live.bind(config.id, trigger_type, config.config, deliver))

    async def unbind(self, binding_id: str) -> None:
        if known := self._bound.pop(binding_id, None):
            known[1]()

    def on_loop(self, coroutine: Any) -> asyncio.Future[Any]:
        """Run a coroutine on the loop of this process and await it on the SDK's."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    async def _on_client(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the SDK's loop and await it on the loop of this process."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._client._loop))

    def _on_state(self, state: str) -> None:
        self._loop.call_soon_threadsafe(self._set_state, state)

    def _set_state(self, state: str) -> None:
        if state == "connected":
            self._connected.set()
            if self._configuration is not None:
                self._spawn(self._register_again(self._configuration))
        else:
            self._connected.clear()
        if state == "failed" and not self.failed.done():
            self.failed.set_result(None)

    async def _register_again(self, configuration: Configuration) -> None:
        """Register the schema again: the engine may have lost it, or have other values."""
        try:
            await self._on_client(configuration.register())
        except ConfigError as error:
            logging.getLogger(__name__).warning("%s", error)
        await self._live.reload()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Bindings(TriggerHandler):  # type: ignore[misc]
    """The provider of one trigger type, as the SDK expects it. The binding client gets the errors raised here."""

    def __init__(self, worker: Worker, trigger_type: str) -> None:
        self._worker = worker
        self._trigger_type = trigger_type

    async def register_trigger(self, config: TriggerConfig) -> None:
        await self._worker.on_loop(self._worker.bind(self._trigger_type, config))

    async def unregister_trigger(self, config: TriggerConfig) -> None:
        await self._worker.on_loop(self._worker.unbind(config.id))


class _Client(III):  # type: ignore[misc]
    """The SDK's client, except that no stack trace leaves this process, that it connects when everything is registered
    (what is registered while it connects may get lost), and that it leaves nothing open."""

    def __init__(self, url: str, options: InitOptions) -> None:
        self._complete = asyncio.Event()
        super().__init__(url, options)

    def begin(self) -> None:
        self._loop.call_soon_threadsafe(self._complete.set)

    async def connect_async(self) -> None:
        await self._complete.wait()
        await super().connect_async()

    def shutdown(self) -> None:
        super().shutdown()
        self._loop.close()

    def _to_dict(self, msg: Any) -> dict[str, Any]:
        data: dict[str, Any] = super()._to_dict(msg)
        if isinstance(data.get("error"), dict):
            data["error"].pop("stacktrace", None)
        return data


_DEPRECATION = re.compile("register_trigger(_type)? is deprecated")


def _is_logged(record: logging.LogRecord) -> bool:
    """False for refused calls, which the caller sees, and for the deprecation of trigger types."""
    error = record.exc_info[1] if record.exc_info else None
    refused = isinstance(error, LiveError) or isinstance(getattr(error, "__cause__", None), LiveError)
    return not refused and not _DEPRECATION.search(record.getMessage())


CONFIGURATION_ID = "session-manager"
_TIMEOUT_MS = 10_000
_ABSENT = ("function_not_found", "function_not_invokable")


class Configuration:
    def __init__(self, client: III, seed: Mapping[str, Any]) -> None:
        """`seed` are the values for a configuration worker that has none."""
        self._client = client
        self._seed = seed

    async def register(self) -> bool:
        """Register the schema, and the seed where nothing is stored; False when the engine has no such worker."""
        try:
            stored = await self._stored()
        except InvocationError as error:
            if error.code in _ABSENT:
                return False
            raise ConfigError(f"configuration::get: {error}") from None
        entry = {
            "id": CONFIGURATION_ID,
            "name": "Live sessions",
            "description": "Where Backstory keeps its live sessions, and how long their pages are.",
            "schema": configuration_schema(),
        }
        try:
            await self._call("configuration::register", entry if stored else {**entry, "initial_value": self._seed})
        except InvocationError as error:
            raise ConfigError(f"configuration::register: {error}") from None
        return True

    async def fetch(self) -> Mapping[str, Any]:
        """The values as they are now, with what they take from the environment of the engine."""
        try:
            stored = await self._stored()
        except InvocationError as error:
            raise ConfigError(f"configuration::get: {error}") from None
        if stored is not None and not isinstance(stored, dict):
            raise ConfigError(f"configuration {CONFIGURATION_ID}: an object is expected")
        return stored or {}

    def follow(self, function_id: str) -> None:
        """Let a function be called whenever the values change."""
        config = {"configuration_id": CONFIGURATION_ID, "event_types": ["configuration:updated"]}
        self._client.register_trigger({"type": "configuration", "function_id": function_id, "config": config})

    async def _stored(self) -> Any:
        try:
            answer = await self._call("configuration::get", {"id": CONFIGURATION_ID})
        except InvocationError as error:
            if error.code == "NOT_FOUND" or "NOT_FOUND" in error.message:  # of the entry, not of the function
                return None
            raise
        return answer.get("value") if isinstance(answer, dict) else None

    async def _call(self, function_id: str, payload: Any) -> Any:
        request = {"function_id": function_id, "payload": payload, "timeout_ms": _TIMEOUT_MS}
        return await self._client.trigger_async(request)


def read_seed(path: Path) -> dict[str, Any]:
    """Settings from a file: YAML (or JSON, which is YAML), or TOML with or without the `[live]` table's name."""
    try:
        data = path.read_bytes()
        if path.suffix == ".toml":
            table = tomllib.loads(data.decode())
            found = table.get("live", table)
        else:
            found = msgspec.json.decode(data) if path.suffix == ".json" else msgspec.yaml.decode(data)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ImportError:
        raise ConfigError(f"{path}: reading YAML needs PyYAML: pip install 'backstory[iii]'") from None
    except (ValueError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: settings with names are expected")
    return found
