"""Small models as files."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import COIN_AND_COPY, LOOP


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """Two binary variables, Z = 12."""
    path = tmp_path / "pair.uai"
    path.write_text(COIN_AND_COPY)
    return path


@pytest.fixture
def loop(tmp_path: Path) -> Path:
    """Three binary variables in a frustrated cycle."""
    path = tmp_path / "loop.uai"
    path.write_text(LOOP)
    return path
