from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backstory.library import Library


@pytest.fixture(scope="session")
def corpus_library(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """The real transcripts in an archive, for tests that do not change it."""
    with Library(tmp_path_factory.mktemp("corpus"), agents_home=corpus / "home", environ={}) as library:
        report = library.sync()
        assert (report.errors, report.skipped) == (0, 0)
        yield library
