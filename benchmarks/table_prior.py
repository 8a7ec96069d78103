"""Which pseudo-count should `learn` add to the cells of conditional tables by default?

For each network, rows are drawn from it and its tables are estimated from them with different
priors. The figure is the held-out loss: the mean log-likelihood of 5000 other rows under the true
network minus that under the estimate, in nats per row (0 is perfect). BDeu divides the prior over
each table, as pgmpy's `BayesianEstimator` does (5 by default); 1 is pyAgrum's smoothing prior.
Maximum likelihood ("none"), the default of both, has an infinite loss as soon as a held-out row has
a combination that the rows did not have.

    python benchmarks/table_prior.py [SEEDS]
"""

from __future__ import annotations

import sys
from importlib.resources import files

import numpy as np

import kikuchi as kk
from kikuchi.graphs.directed import ancestral_sample

NETWORKS = [
    "asia",
    "survey",
    "sachs",
    "child",
    "insurance",
    "alarm",
    "water",
    "hailfinder",
    "win95pts",
    "hepar2",
]
SIZES = (30, 100, 300, 1000, 3000)
PRIORS = {
    "0.01": "em:prior=0.01",
    "0.05": "em:prior=0.05",
    "0.1": "em:prior=0.1",
    "0.2": "em:prior=0.2",
    "0.5": "em:prior=0.5",
    "1": "em:prior=1",
    "BDeu 1": "em:prior=1,spread=table",
    "BDeu 5": "em:prior=5,spread=table",
    "BDeu 10": "em:prior=10,spread=table",
    "none": "em",
}
HELD_OUT = 5000


def main(seeds: int) -> None:
    """Print a table for each network, and the mean over networks at the end."""
    everything = []
    for name in NETWORKS:
        truth = kk.read(str(files("pgmpy.utils") / "example_models" / f"{name}.bif.gz"))
        losses = np.array([[_losses(truth, n, seed) for n in SIZES] for seed in range(seeds)])
        _print(f"{name}: {truth.n_variables} variables, {truth.log_tables.size} cells", losses)
        everything.append(losses.mean(axis=0))
    _print("mean over networks", np.array(everything))


def _losses(truth: kk.FactorGraph, rows: int, seed: int) -> list[float]:
    drawn = ancestral_sample(truth, rows + HELD_OUT, seed=seed)
    flat = np.zeros_like(truth.log_tables)
    blank = kk.FactorGraph.from_arrays(
        truth.cardinalities, truth.scopes, truth.scope_offsets, flat, children=truth.children
    )
    best = truth.log_score(drawn[rows:]).mean()
    return [
        float(best - _estimated(blank, drawn[:rows], text).log_score(drawn[rows:]).mean())
        for text in PRIORS.values()
    ]


def _estimated(blank: kk.FactorGraph, rows: np.ndarray, text: str) -> kk.FactorGraph:
    return kk.learning.parse_learner(text).fit(blank, rows, score=False).graph


def _print(title: str, losses: np.ndarray) -> None:
    print(f"\n{title}\n{'rows':>6}" + "".join(f"{name:>9}" for name in PRIORS))
    for size, line in zip(SIZES, losses.mean(axis=0), strict=True):
        print(f"{size:>6}" + "".join(f"{value:9.4f}" for value in line))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
