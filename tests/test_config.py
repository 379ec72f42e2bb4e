"""Settings, from the file and the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from backstory.config import ConfigError, Settings, home_folder, load_settings, make_private_folder, user_home


class TestLoadSettings:
    """The environment wins over the file, the file over the defaults; mistakes are named."""

    def test_defaults(self, tmp_path: Path) -> None:
        assert load_settings(tmp_path, {}) == Settings()

    def test_file(self, tmp_path: Path) -> None:
        (tmp_path / "config.toml").write_text('redact = "ingest"\n[capsules]\nmax_chars = 500\n')
        settings = load_settings(tmp_path, {})
        assert (settings.redact, settings.capsules.max_chars) == ("ingest", 500)

    def test_the_capsule_formats_own_name(self, tmp_path: Path) -> None:
        """`capsule_max_chars` is `max_chars` and goes before it."""
        (tmp_path / "config.toml").write_text("[capsules]\nmax_chars = 500\ncapsule_max_chars = 700\n")
        assert load_settings(tmp_path, {}).capsules.most_chars == 700

    def test_environment(self, tmp_path: Path) -> None:
        (tmp_path / "config.toml").write_text('redact = "ingest"\n')
        environ = {
            "BACKSTORY_REDACT": "off",
            "BACKSTORY_SOURCES": "codex,claude-code",
            "BACKSTORY_CATCH_UP_SECONDS": "0.5",
            "BACKSTORY_CAPSULES_UNDERSCORE_NAMES": "true",
            "BACKSTORY_EXTRA_ROOTS": '{"codex": ["/srv/codex"]}',
        }
        settings = load_settings(tmp_path, environ)
        assert settings.redact == "off"
        assert settings.sources == ("codex", "claude-code")
        assert settings.catch_up_seconds == 0.5
        assert settings.capsules.underscore_names is True
        assert settings.extra_roots == {"codex": ("/srv/codex",)}

    @pytest.mark.parametrize(
        ("text", "named"),
        [
            ("redact = 3", "redact"),
            ('redact = "sometimes"', "redact"),
            ("no_such_setting = 1", "no_such_setting"),
            ("[capsules]\nmax_chars = true", "max_chars"),
            ("[capsules]\nmax_chars = 0", "max_chars"),
            ("[capsules]\ncapsule_max_chars = -1", "capsule_max_chars"),
            ("redact = ", "config.toml"),
            ("sources = 'codex'", "sources"),
            ("catch_up_seconds = -1", "catch_up_seconds"),
            ("catch_up_seconds = nan", "catch_up_seconds"),
        ],
    )
    def test_mistakes(self, tmp_path: Path, text: str, named: str) -> None:
        (tmp_path / "config.toml").write_text(text)
        with pytest.raises(ConfigError, match=named):
            load_settings(tmp_path, {})

    def test_a_variable_that_does_not_fit(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="BACKSTORY_CATCH_UP_SECONDS"):
            load_settings(tmp_path, {"BACKSTORY_CATCH_UP_SECONDS": "soon"})

    def test_not_text(self, tmp_path: Path) -> None:
        (tmp_path / "config.toml").write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigError):
            load_settings(tmp_path, {})


class TestHome:
    def test_variable(self, tmp_path: Path) -> None:
        assert home_folder({"BACKSTORY_HOME": str(tmp_path)}) == tmp_path

    def test_default(self) -> None:
        assert home_folder({}) == Path.home() / ".backstory"

    def test_an_account_without_a_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
        for ask in (user_home, lambda: home_folder({})):
            with pytest.raises(ConfigError, match="set HOME"):
                ask()

    def test_a_path_that_is_not_utf8(self) -> None:
        with pytest.raises(ConfigError, match="/h\ufffd/home is not UTF-8"):
            home_folder({"BACKSTORY_HOME": os.fsdecode(b"/h\xff/home")})

    def test_a_file_in_the_place_of_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for folder in (tmp_path / "file", tmp_path / "file" / "below"):
            with pytest.raises(NotADirectoryError, match=r"not a folder: .*file'"):
                make_private_folder(folder)

    def test_private_folders_up_to_what_was_there(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        make_private_folder(tmp_path / "a" / "b")
        assert [path.stat().st_mode & 0o777 for path in (tmp_path, tmp_path / "a", tmp_path / "a" / "b")] == [
            0o755,
            0o700,
            0o700,
        ]
