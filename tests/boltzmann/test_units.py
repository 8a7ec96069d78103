"""Kinds of units against sums and integrals over their states."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from kikuchi.boltzmann.units import UNITS, BinaryUnits, BinomialUnits, GaussianUnits, parse_units
from kikuchi.core.errors import MethodError

FIELDS = np.array([-3.0, -0.4, 0.0, 1.7])


@pytest.mark.parametrize("units, top", [(BinaryUnits(), 1), (BinomialUnits(replicas=4), 4)])
def test_sums_over_states(units, top: int) -> None:
    states = np.arange(top + 1.0)
    for x in FIELDS:
        weights = np.exp(units.log_base(states) + x * states)
        assert units.log_partition(np.array([x]))[0] == pytest.approx(np.log(weights.sum()))
        assert units.mean(np.array([x]))[0] == pytest.approx(weights @ states / weights.sum())
    assert units.limits == (0.0, float(top))


def test_integrals_over_real_states() -> None:
    units = GaussianUnits()
    for x in FIELDS:
        weight = lambda s, x=x: np.exp(units.log_base(np.array([s]))[0] + x * s)  # noqa: E731
        total = quad(weight, -12, 12)[0]
        mean = quad(lambda s, w=weight: s * w(s), -12, 12)[0] / total
        assert units.log_partition(np.array([x]))[0] == pytest.approx(np.log(total), abs=1e-8)
        assert units.mean(np.array([x]))[0] == pytest.approx(mean, abs=1e-8)
    assert units.limits == (-np.inf, np.inf)


@pytest.mark.parametrize("text", [*UNITS, "binomial:replicas=3"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_draws_have_their_means_and_dtype(text: str, dtype) -> None:
    units = parse_units(text)
    field = np.tile(FIELDS.astype(dtype), (40_000, 1))
    drawn = units.draw(field, np.random.default_rng(0))
    assert drawn.dtype == dtype
    error = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert np.all(np.abs(drawn.mean(axis=0) - units.mean(field[0])) < 4.5 * error + 1e-6)


def test_unknown_units_are_refused() -> None:
    with pytest.raises(MethodError, match="did you mean 'gaussian'"):
        parse_units("gausian")
