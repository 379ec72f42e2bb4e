from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.team_world import ServedHub, serving


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[ServedHub]:
    with serving(tmp_path / "hub") as served:
        yield served
