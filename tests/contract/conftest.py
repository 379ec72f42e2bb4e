"""The engines that the contracts of history, conversations and traces are held on."""

from __future__ import annotations

import pytest

from tests.engines import ENGINES, PrepareHome, home_preparer


@pytest.fixture(scope="session", params=ENGINES)
def prepare_home(request: pytest.FixtureRequest) -> PrepareHome:
    return home_preparer(request)
