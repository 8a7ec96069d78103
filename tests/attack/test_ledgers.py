"""The attack on ledgers sees what it looks for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from attack.ledgers import attack, read_damaged, shared
from kikuchi_experiments.experiment import Finished
from kikuchi_experiments.ledger import Ledger


class Trusting(Ledger):
    """Reads whatever JSON says, and truncates where its own look at the file saw a whole line."""

    def _read(self) -> None:
        data = self.path.read_bytes() if self.path.exists() else b""
        self.whole = data.rfind(b"\n") + 1
        for line in data[: self.whole].splitlines():
            self._take(json.loads(line))

    def add(self, finished: Finished) -> None:
        if self.path.exists() and not self.path.read_bytes().endswith(b"\n"):
            os.truncate(self.path, self.whole)
        super().add(finished)


def test_nothing_is_found() -> None:
    tally = attack(60, 3, 20.0)
    assert tally.tried == 60 and tally.faults == []


def test_cases_that_are_lost_are_seen(tmp_path: Path) -> None:
    found = [shared(tmp_path / str(k), np.random.default_rng(k), Trusting) for k in range(30)]
    assert sum(any("lost" in fault for fault in faults) for faults in found) > 5


def test_foreign_exceptions_are_seen(tmp_path: Path) -> None:
    found = [read_damaged(tmp_path / str(k), np.random.default_rng(k), Trusting) for k in range(60)]
    kinds = {fault.split(":")[0] for faults in found for fault in faults}
    assert {"JSONDecodeError", "OverflowError"} <= kinds
