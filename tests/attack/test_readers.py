"""The attack on readers sees what it looks for."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from attack.readers import DAMAGES, Reader, Target, damaged, trial
from kikuchi.core.errors import DataError


def raises(error: BaseException) -> Reader:
    def reader(place: Path) -> object:
        raise error

    return reader


def tried(reader: Reader, folder: Path) -> str | None:
    return trial(Target("case", ".txt", b"1 2 3", reader), folder, np.random.default_rng(0))


def test_answers_and_our_own_errors_are_no_faults(tmp_path: Path) -> None:
    assert tried(Path.read_bytes, tmp_path) is None
    assert tried(raises(DataError("a.csv: not a table")), tmp_path) is None


@pytest.mark.parametrize("error", [KeyError("x"), MemoryError(), RecursionError(), SystemExit(1)])
def test_every_other_exception_is_one(tmp_path: Path, error: BaseException) -> None:
    assert type(error).__name__ in str(tried(raises(error), tmp_path))


def test_so_are_warnings_and_empty_messages(tmp_path: Path) -> None:
    assert "careful" in str(tried(lambda place: warnings.warn("careful", stacklevel=1), tmp_path))
    assert "message" in str(tried(raises(DataError("")), tmp_path))


def test_damage_is_seeded_and_each_kind_changes_something() -> None:
    content = b"MARKOV 2  2 2  1  2 0 1  4  1 2 3 4\n" * 3
    first, second = (damaged(content, ".uai", np.random.default_rng(5)) for _ in range(2))
    assert first == second != content
    for damage in DAMAGES:
        results = {damage(content, np.random.default_rng(k)) for k in range(20)}
        assert len(results) > 5
