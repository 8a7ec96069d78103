"""Belief networks: held-out log-likelihood of binary rows."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from benchmarks.defaults.frame import Contender, Task

Rows = NDArray[np.float64]
_COMPONENTS = (1, 2, 4, 8, 16, 32)  # of which held-out rows choose
_MOST_ENUMERATED = 16  # hidden units whose states are all visited
_ROUNDS = 200  # of EM


@dataclass(frozen=True)
class Table:
    """Rows to learn from, rows to score, and the hidden layers that the network is given."""

    train: Rows
    test: Rows
    layers: tuple[int, ...] | None = None  # None: those of the defaults


# ---------------------------------------------------------------------- tables


def bars(side: int, layers: tuple[int, ...] | None = None, *, rows: int = 1000) -> Table:
    """Bars that all lie or all stand. The score is the expectation over all of them, so that the
    best possible one is minus their entropy.
    """
    masks = np.array(list(itertools.product((0.0, 1.0), repeat=side)))
    lying = np.repeat(masks[:, :, None], side, axis=2).reshape(len(masks), -1)
    standing = np.repeat(masks[:, None, :], side, axis=1).reshape(len(masks), -1)
    every = np.concatenate([lying, standing])
    drawn = np.random.default_rng(77).integers(0, len(every), rows)
    return Table(every[drawn], every, layers)


def noisy_bars(side: int, *, rows: int = 1500, noise: float = 0.05) -> Table:
    """Bars in both directions at once, each on with probability 1/4, some pixels flipped."""
    rng = np.random.default_rng(side)
    on = rng.random((2, 2 * rows, side)) < 0.25
    image = (on[0][:, :, None] | on[1][:, None, :]).reshape(2 * rows, -1)
    flipped = np.where(rng.random(image.shape) < noise, ~image, image).astype(np.float64)
    return Table(flipped[:rows], flipped[rows:])


def network(layers: tuple[int, ...], seed: int, *, span: float, rows: int = 1500) -> Table:
    """Rows of a sigmoid belief network with uniform weights."""
    rng = np.random.default_rng(seed)
    weights = [rng.uniform(-span, span, size=pair) for pair in itertools.pairwise(layers)]
    states = (rng.random((2 * rows, layers[0])) < 0.5).astype(np.float64)
    for matrix in weights:
        z = (states - 0.5) @ matrix + rng.uniform(-1.0, 1.0, size=matrix.shape[1])
        states = (rng.random(z.shape) < expit(z)).astype(np.float64)
    return Table(states[:rows], states[rows:])


def digits(*, half: bool) -> Table:
    """Binary digits 8 x 8, whole or only the classes 0 to 4."""
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = (found.data > 7).astype(np.float64)
    if half:
        pixels = pixels[found.target < 5]
    return divided(pixels, 0.7)


def small_mnist(rows: int = 3000) -> Table:
    """Binary digits 28 x 28, each block of 2 x 2 pixels averaged."""
    from kikuchi.data.digits import digits as load

    pixels = load("mnist").pixels[:rows].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
    return divided((pixels.reshape(len(pixels), -1) > 0.5).astype(np.float64), 0.7)


def medians(name: str) -> Table:
    """A table of measurements, each column above its median or not."""
    from sklearn import datasets

    values = getattr(datasets, f"load_{name}")().data
    return divided((values > np.median(values, axis=0)).astype(np.float64), 0.7)


def divided(rows: Rows, share: float) -> Table:
    order = np.random.default_rng(0).permutation(len(rows))
    cut = round(share * len(rows))
    return Table(rows[order[:cut]], rows[order[cut:]])


# ---------------------------------------------------------------------- contenders


def our_network(table: Table, seed: int) -> float:
    from kikuchi.beliefnets import SigmoidBeliefNetwork

    given = {} if table.layers is None else {"hidden_layer_sizes": table.layers}
    net = SigmoidBeliefNetwork(**given, random_state=seed).fit(table.train)
    if len(net.model_.hidden) <= _MOST_ENUMERATED:
        return _enumerated(net.model_, table.test)
    return float(net.row_likelihoods(table.test, "ais").mean())


def _enumerated(network: Any, rows: Rows) -> float:
    """Mean log-likelihood by a sum over all states of the hidden units, apart from the library."""
    hidden = network.hidden
    states = np.zeros((1 << len(hidden), network.n_units))
    states[:, hidden] = (np.arange(len(states))[:, None] >> np.arange(len(hidden))) & 1
    z = network.inputs(states)
    constant = np.sum(states * z - np.logaddexp(0.0, z), axis=1)
    inputs = z[:, network.visible].T
    some = (logsumexp(rows[at : at + 50] @ inputs + constant, axis=1) for at in _starts(rows))
    return float(np.mean(np.concatenate(list(some))))


def _starts(rows: Rows) -> Iterator[int]:
    yield from range(0, len(rows), 50)


def restricted_machine(table: Table, seed: int) -> float:
    """scikit-learn's RBM with as many hidden units; log Z by a sum over their states."""
    from sklearn.neural_network import BernoulliRBM

    hidden = sum(table.layers or (16,))
    machine = BernoulliRBM(hidden, random_state=seed).fit(table.train)
    states = ((np.arange(1 << hidden)[:, None] >> np.arange(hidden)) & 1).astype(np.float64)
    inputs = states @ machine.components_ + machine.intercept_visible_
    weight = states @ machine.intercept_hidden_ + np.sum(np.logaddexp(0.0, inputs), axis=1)
    above = table.test @ machine.components_.T + machine.intercept_hidden_
    free = table.test @ machine.intercept_visible_ + np.sum(np.logaddexp(0.0, above), axis=1)
    return float(np.mean(free) - logsumexp(weight))


def independent_bits(table: Table, seed: int) -> float:
    return _mixture(table.train, table.test, 1, seed)


def bernoulli_mixture(table: Table, seed: int) -> float:
    """A mixture of products by EM; a fifth of the rows chooses how many components it has."""
    inner = divided(table.train, 0.8)
    scores = {k: _mixture(inner.train, inner.test, k, seed) for k in _COMPONENTS}
    return _mixture(table.train, table.test, max(_COMPONENTS, key=lambda k: scores[k]), seed)


def _mixture(train: Rows, test: Rows, components: int, seed: int) -> float:
    rng = np.random.default_rng(seed)
    mean = 0.25 + 0.5 * train[rng.integers(len(train), size=components)]
    share = np.full(components, 1.0 / components)
    for _ in range(1 if components == 1 else _ROUNDS):
        logs = _log_products(train, mean) + np.log(share)
        owned = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
        weight = owned.sum(axis=0)
        mean = (owned.T @ train + 0.5) / (weight[:, None] + 1.0)
        share = (weight + 1.0) / (len(train) + components)
    return float(np.mean(logsumexp(_log_products(test, mean) + np.log(share), axis=1)))


def _log_products(rows: Rows, mean: Rows) -> Rows:
    return np.asarray(rows @ np.log(mean).T + (1.0 - rows) @ np.log1p(-mean).T)


def tasks() -> Sequence[Task]:
    make: Callable[..., Any] = functools.partial
    contenders = (
        Contender("SigmoidBeliefNetwork()", "ours", our_network),
        Contender("sklearn BernoulliRBM()", "peer", restricted_machine),
        Contender("mixture of Bernoulli products", "peer", bernoulli_mixture),
        Contender("independent bits", "baseline", independent_bits),
    )
    measure = "held-out log-likelihood in nats per row, by enumeration of the hidden units"
    return (
        Task(
            "Belief networks on binary rows",
            measure,
            higher_is_better=True,
            tolerance=0.1,
            choosing={
                "bars 4 x 4, layers (1, 8)": make(bars, 4, (1, 8)),
                "noisy bars 5 x 5": make(noisy_bars, 5),
                "digits 8 x 8, 0 to 4": make(digits, half=True),
                "network 3-6-20": make(network, (3, 6, 20), 1, span=3.0),
                "iris, medians": make(medians, "iris"),
                "breast cancer, medians": make(medians, "breast_cancer"),
            },
            reporting={
                "bars 3 x 3, layers (1, 6)": make(bars, 3, (1, 6), rows=500),
                "bars 5 x 5, layers (1, 10)": make(bars, 5, (1, 10), rows=2000),
                "bars 4 x 4, layers (16,)": make(bars, 4),
                "noisy bars 7 x 7": make(noisy_bars, 7),
                "digits 8 x 8": make(digits, half=False),
                "digits 14 x 14": small_mnist,
                "network 2-4-12": make(network, (2, 4, 12), 2, span=2.0),
                "network 4-12-40": make(network, (4, 12, 40), 3, span=4.0),
                "wine, medians": make(medians, "wine"),
                "diabetes, medians": make(medians, "diabetes"),
            },
            contenders=contenders,
            seeds=(0, 1, 2),
        ),
    )
