"""Every method on every small bundled model gives what it gave before.

The values are in `values.json`; after a change that is meant, write them anew with
`python tests/regression/test_regression.py` and look at the difference before committing it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import KikuchiError
from kikuchi.data.examples import examples
from kikuchi.methods.registry import METHODS

VALUES = Path(__file__).with_name("values.json")
SAMPLED = {"gibbs"}  # their last digits depend on the machine's rounding


NETWORKS = {"renn", "bethe-net"}  # seconds of compilation for each size of model


def cases() -> list[tuple[str, str]]:
    pairs = [(model, method) for model in examples() for method in METHODS]
    return [(m, n) for m, n in pairs if n not in NETWORKS or m in ("cycle4", "hmm30")]


def measure(model: str, method: str) -> dict:
    graph = kk.example(model)
    try:
        beliefs = kk.infer(graph, method)
    except KikuchiError as error:
        return {"refused": type(error).__name__}
    exact = kk.infer(graph, "jt")
    return {
        "log_z": beliefs.log_z,
        "log_z_lower": beliefs.log_z_lower,
        "log_z_upper": beliefs.log_z_upper,
        "converged": beliefs.converged,
        "largest_error": float(np.abs(beliefs.flat_marginals - exact.flat_marginals).max()),
        "mean_error": float(np.abs(beliefs.flat_marginals - exact.flat_marginals).mean()),
    }


@pytest.mark.parametrize(("model", "method"), cases())
def test_same_answer_as_before(model: str, method: str) -> None:
    before = json.loads(VALUES.read_text())[model][method]
    now = measure(model, method)
    assert set(now) == set(before)
    if method in SAMPLED:
        assert now["mean_error"] == pytest.approx(before["mean_error"], abs=0.02)
    elif not before.get("converged", True):
        assert not now["converged"]  # the digits of such an answer mean nothing
    else:
        for name, value in before.items():
            if isinstance(value, float):
                loose = 1e-6 * max(1.0, abs(value))
                assert now[name] == pytest.approx(value, abs=loose), name
            else:
                assert now[name] == value, name


def write() -> None:
    values: dict[str, dict[str, dict]] = {}
    for model, method in cases():
        values.setdefault(model, {})[method] = measure(model, method)
    VALUES.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    write()
