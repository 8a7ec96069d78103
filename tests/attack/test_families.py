"""The attack on estimators sees what it looks for: estimators with a planted fault."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attack.families import _end, _interrupted, _not_numbers, _short
from common.estimators import Family, ctrl_c_works

_PAUSE = 0.01  # seconds of a step
_ROWS = np.ones((5, 2))


@dataclass
class Counter:
    """Adds up its rows, one step at a time; `fault` is what is wrong with it."""

    fault: str = ""
    steps: int = 20
    seconds: float | None = None
    checkpoint: Path | None = None
    random_state: int = 0

    def fit(self, rows: Any) -> Counter:
        if self.fault != "trusting" and not np.isfinite(rows).all():
            raise ValueError("rows that are not finite")
        self.n_iter_, self.total_ = self._resumed()
        self.stopped_, begin = "iterations", time.process_time()
        try:
            while self.n_iter_ < self.steps:
                time.sleep(0 if self.seconds else _PAUSE)
                self.total_ = self.total_ + rows.sum()
                self.n_iter_ += 1
                self._keep()
                limit = (self.seconds or np.inf) * (2.5 if self.fault == "slow" else 1)
                if time.process_time() - begin > limit:
                    self.stopped_ = "seconds"
                    break
        except KeyboardInterrupt:
            if self.fault == "clumsy":
                raise IndexError("nothing was done") from None
            self.stopped_ = "interrupted"
        if self.fault == "silent" and self.stopped_ == "seconds":
            self.stopped_ = "iterations"
        self.converged_ = self.fault == "boastful"
        return self

    def _resumed(self) -> tuple[int, Any]:
        if self.checkpoint is None or not self.checkpoint.exists():
            return 0, np.array(0.0)
        done, total = map(float, self.checkpoint.read_text().split())
        return int(done), np.array(0.0 if self.fault == "forgetful" else total)

    def _keep(self) -> None:
        if self.checkpoint is not None:
            new = self.checkpoint.with_name("new")
            new.write_text(f"{self.n_iter_} {self.total_}")
            new.replace(self.checkpoint)
            if self.fault == "untidy":
                self.checkpoint.with_name(".left").touch()

    def _fitted_state(self) -> tuple[dict[str, Any], None, None]:
        return (
            {"total": np.asarray(self.total_), "trace/seconds": np.array(time.time())},
            None,
            None,
        )


@dataclass(frozen=True)
class Planted(Family):
    """A family whose estimator has this fault."""

    fault: str = ""

    def make(self, **options: Any) -> Any:
        return Counter(fault=self.fault, **{self.limit: self.size, **options})


def planted(fault: str) -> Planted:
    return Planted("", (_ROWS,), "steps", 20, fault=fault)


def cut(fault: str, folder: Path) -> list[str]:
    family = planted(fault)
    with ctrl_c_works():
        return _interrupted(family, family.fit(), folder, np.array([0.06, 0.05]))


def test_a_sound_family_has_no_faults(tmp_path: Path) -> None:
    family = planted("")
    assert cut("", tmp_path) == []
    assert [*_end(family.fit()), *_short(family), *_not_numbers(family)] == []


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        ("forgetful", "['total'] differ"),
        ("untidy", "hidden files stay"),
        ("clumsy", "IndexError: nothing was done"),
    ],
)
def test_faults_of_resuming_are_seen(fault: str, seen: str, tmp_path: Path) -> None:
    assert any(seen in found for found in cut(fault, tmp_path))


def test_faults_of_the_end_are_seen() -> None:
    assert "converged is True" in _end(planted("boastful").fit())[0]
    assert any("of the processor" in found for found in _short(planted("slow")))
    assert any("it says iterations" in found for found in _short(planted("silent")))
    assert len(_not_numbers(planted("trusting"))) == 2
