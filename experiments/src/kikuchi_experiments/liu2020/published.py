"""Figures of chapter 3 of Liu's thesis, read from its plots (LIU-E1, E2); more in `tables`."""

from __future__ import annotations

from typing import NamedTuple

Curve = tuple[float, float]  # alpha, density of edges

CURVES: tuple[Curve, ...] = ((1.0, 0.2), (0.5, 0.4), (0.5, 0.2), (1.0, 0.4))
SPREADS = (0.010, 0.041, 0.056, 0.071, 0.102, 0.147, 0.208, 0.254, 0.300)
SIGMA_MAX: dict[Curve, tuple[float, ...]] = {
    (1.0, 0.2): (0.10, 0.45, 0.62, 0.71, 1.08, 1.36, 1.89, 2.24, 2.50),
    (0.5, 0.4): (0.57, 0.78, 0.89, 0.99, 1.24, 1.63, 2.15, 2.48, 2.96),
    (0.5, 0.2): (0.54, 0.66, 0.72, 0.80, 0.92, 1.13, 1.41, 1.63, 1.85),
    (1.0, 0.4): (0.19, 0.77, 1.01, 1.26, 1.74, 2.52, 3.35, 3.90, 4.14),
}

CERTIFIED: dict[tuple[Curve, float], tuple[float, float, float]] = {
    ((0.5, 0.2), 0.10): (0.76, 1.00, 1.00),
    ((0.5, 0.4), 0.10): (0.01, 0.59, 0.95),
    ((1.0, 0.2), 0.20): (0.03, 0.91, 1.00),
    ((1.0, 0.4), 0.10): (0.00, 0.89, 1.00),
    ((1.0, 0.4), 0.50): (0.00, 0.00, 0.12),
}
"""Shares certified by singular value, by spectral radius, and converged: recomputed, LIU D.1."""


class Regime(NamedTuple):
    """One panel of the convergence traces: log10 of the mean distance by sweep."""

    alpha: float
    density: float
    spread: float
    certified: bool
    published: dict[int, float]
    note: str


TRACES: dict[str, Regime] = {
    "a": Regime(
        1.0,
        0.4,
        0.5,
        False,
        {0: -0.31, 20: -0.09, 60: -0.08, 100: -0.08},
        "mean over graphs that converge and graphs that do not",
    ),
    "b": Regime(
        0.5,
        0.2,
        0.1,
        True,
        {0: -3.36, 10: -5.14, 20: -6.69, 40: -9.38, 60: -11.84, 80: -14.25, 150: -16.4},
        "the published run begins ten times nearer; which messages it measured is not known",
    ),
}

RATIOS = (1.0, 5.33, 9.67, 14.0, 18.33, 22.67, 27.0, 31.33, 35.67, 40.0)
