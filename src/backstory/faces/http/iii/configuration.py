"""Settings kept by the configuration worker of an iii engine, under the id that the contract gives them.

At start the schema is registered there, with values when it has none yet; what it has counts from then on, and a
`configuration` trigger tells when it changes. An engine without such a worker leaves everything to `config.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from iii import InvocationError  # type: ignore[import-untyped]

from ....config import ConfigError
from ....toolsets.live.settings import configuration_schema

if TYPE_CHECKING:
    from iii.iii import III  # type: ignore[import-untyped]

__all__ = ["Configuration", "read_seed"]

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
