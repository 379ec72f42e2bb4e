"""The files that start a hub beside ClickHouse."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import yaml

from backstory.config import Settings, load_settings
from backstory.faces.cli.app import program

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))


class TestCompose:
    def test_settings_of_the_hub(self, compose: Any, tmp_path: Path) -> None:
        """They are settings that exist, and name the server beside it."""
        settings = load_settings(tmp_path, compose["services"]["hub"]["environment"])
        assert settings.archive.engine == "clickhouse"
        assert "@clickhouse:8123/backstory" in settings.archive.clickhouse.url
        assert msgspec.structs.replace(settings, archive=Settings().archive) == Settings()

    def test_hub_is_on_loopback(self, compose: Any) -> None:
        """It has no TLS of its own."""
        assert compose["services"]["hub"]["ports"] == ["127.0.0.1:7717:7717"]

    def test_backups_are_allowed(self, compose: Any) -> None:
        """The configuration of the server is XML, and its disk is the volume."""
        configuration = ElementTree.fromstring(compose["configs"]["backups"]["content"])
        assert configuration.findtext("backups/allowed_disk") == "backups"
        path = configuration.findtext("storage_configuration/disks/backups/path")
        assert f"backups:{path}".rstrip("/") in compose["services"]["clickhouse"]["volumes"]


class TestDockerfile:
    def test_command(self) -> None:
        """The program takes the options that it is started with."""
        line = next(line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("CMD"))
        name, command, *options = msgspec.json.decode(line.removeprefix("CMD "))
        assert name == "backstory"
        serve = program.get_command(None, command)  # type: ignore[arg-type]
        assert serve is not None
        known = {option for parameter in serve.params for option in parameter.opts}
        assert {option for option in options if option.startswith("--")} <= known
