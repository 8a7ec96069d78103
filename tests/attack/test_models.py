"""Models on which the attack once found a fault, and that it sees what it looks for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attack.models import faults, make
from kikuchi.methods.registry import METHODS


@pytest.mark.parametrize(
    ("number", "method"),
    [
        (2982, "plefka:tol=9.3e-09,max_iter=200,seed=5"),  # outside its own bounds by 1e-11
        (8059, "auto:exact=false"),
        (9119, "auto:exact=false"),
        (9235, "mf:order=random,tol=4e-11,max_iter=5"),  # fewer than no sweeps left
    ],
)
def test_faults_that_were_mended(number: int, method: str) -> None:
    assert faults(make(20240, number), METHODS.parse(method)) == []


def test_a_wrong_answer_is_seen() -> None:
    model = make(20240, 9119)
    shifted = replace(model, weights=model.weights + np.log(2.0))
    assert any("bound" in fault for fault in faults(shifted, METHODS.parse("jt")))
