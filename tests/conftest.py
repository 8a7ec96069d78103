"""Fixtures that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from kikuchi.core.compiling import COMPILING

settings.register_profile(
    "kikuchi", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("kikuchi")
COMPILING.tell = None  # tests of what is printed must not depend on what was compiled before them


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference models beside the project; tests skip where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("the folder of reference models is not here")
    return folder
