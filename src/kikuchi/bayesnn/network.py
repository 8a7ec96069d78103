"""The network of one hidden layer, and the precisions that its weights have a priori.

    f(x) = sum_h v_h g(u_h' (x, 1)) + w' (x, 1),        g(a) = erf(a / sqrt 2)

where w is the output bias alone, or with skip connections has a weight per input as well. Targets
are f(x) plus Gaussian noise of precision beta, weights are Gaussian around 0 with precisions alpha,
and all precisions have gamma priors. Which weights share a precision is the family of the prior;
under node relevance the precision of a weight is the product of those of its two ends.

Reference: LAW-M6, LAW-M7, LAW-M8.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kikuchi.bayesnn.moments import activation
from kikuchi.core.errors import MethodError, suggestion

PRIORS = ("single", "grouped", "ard", "nrd")
"""One precision for all weights; one per kind of weight; one per input; two ends per weight."""

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Network:
    """Sizes of a network; a flat vector of weights holds u (unit by unit, bias last), w and v.

    `n_inputs` and `n_hidden` are numbers of units; with `skip` inputs act on the output directly,
    too.

    >>> network = Network(n_inputs=2, n_hidden=3)
    >>> network.n_weights
    13
    >>> network.names()[:3]
    ['input 0 to unit 0', 'input 1 to unit 0', 'bias of unit 0']
    """

    n_inputs: int
    n_hidden: int
    skip: bool = False

    @property
    def n_linear(self) -> int:
        """Weights of the linear part: the output bias, and skip connections if there are any."""
        return self.n_inputs + 1 if self.skip else 1

    @property
    def n_into_hidden(self) -> int:
        """Weights into hidden units, with their biases."""
        return self.n_hidden * (self.n_inputs + 1)

    @property
    def n_output(self) -> int:
        """Weights into the output: the linear part and those of hidden units."""
        return self.n_linear + self.n_hidden

    @property
    def n_weights(self) -> int:
        """All weights."""
        return self.n_into_hidden + self.n_output

    def split(self, weights: Any) -> tuple[Any, Any]:
        """The parts of `weights` (..., n_weights): u with one row per hidden unit, and the weights
        into the output, along the last axis.
        """
        into = weights[..., : self.n_into_hidden]
        shape = (*weights.shape[:-1], self.n_hidden, self.n_inputs + 1)
        return into.reshape(shape), weights[..., self.n_into_hidden :]

    def linear_features(self, x: Any) -> Any:
        """Return the inputs of the linear part, given rows `x` (rows, inputs + 1) that end with a
        1.
        """
        return x if self.skip else x[:, -1:]

    def output(self, weights: Any, x: Any) -> Any:
        """f of rows `x` (rows, inputs + 1) that end with a 1, for one vector of `weights`."""
        u, o = self.split(weights)
        features = jnp.concatenate([self.linear_features(x), activation(x @ u.T)], axis=1)
        return features @ o

    # ------------------------------------------------------------------ ends of the weights

    @cached_property
    def sources(self) -> Indices:
        """Node at which each weight begins: inputs 0 to I - 1, the bias I, hidden units, and last
        the constant unit of the output bias.
        """
        inputs = np.arange(self.n_inputs + 1)
        hidden = self.n_inputs + 1 + np.arange(self.n_hidden)
        constant = np.array([self.n_inputs + 1 + self.n_hidden])
        linear = np.concatenate([inputs[:-1] if self.skip else inputs[:0], constant])
        return np.concatenate([np.tile(inputs, self.n_hidden), linear, hidden])

    @cached_property
    def units(self) -> Indices:
        """Hidden unit that each weight belongs to, -1 for the linear part."""
        hidden = np.arange(self.n_hidden)
        into = np.repeat(hidden, self.n_inputs + 1)
        return np.concatenate([into, np.full(self.n_linear, -1), hidden])

    @cached_property
    def inputs(self) -> Indices:
        """Input that each weight begins at, -1 where it is none."""
        return np.where(self.sources < self.n_inputs, self.sources, -1)

    def names(self) -> list[str]:
        """The units that each weight joins."""
        into = [
            f"{f'input {i} to' if i < self.n_inputs else 'bias of'} unit {h}"
            for h in range(self.n_hidden)
            for i in range(self.n_inputs + 1)
        ]
        skipped = [f"input {i} to output" for i in range(self.n_inputs if self.skip else 0)]
        return [*into, *skipped, "bias of output", *(f"unit {h}" for h in range(self.n_hidden))]


@dataclass(frozen=True)
class Precisions:
    """Groups of weights that share a precision.

    The precision of weight k is that of group `first[k]` times that of `second[k]`, where -1 stands
    for 1. The posterior of a group in `free` depends on that of other groups; all others are best
    for given weights in closed form.
    """

    names: list[str]
    first: Indices
    second: Indices
    free: Indices

    @property
    def incidence(self) -> NDArray[np.float64]:
        """Matrix (groups, weights) with a 1 where a weight belongs to a group."""
        matrix = np.zeros((len(self.names), len(self.first)))
        for ends in (self.first, self.second):
            there = ends >= 0
            matrix[ends[there], np.flatnonzero(there)] += 1.0
        return matrix


def precisions(network: Network, prior: str) -> Precisions:
    """The groups of a family of priors.

    >>> precisions(Network(3, 2), "ard").names
    ['input 0', 'input 1', 'input 2', 'hidden biases', 'output weights', 'output bias']
    """
    if prior not in PRIORS:
        raise MethodError(f"there is no prior '{prior}'; {suggestion(prior, PRIORS)}")
    if prior == "nrd":
        return _node_relevance(network)
    if prior == "single":
        return _groups(["weights"], np.zeros(network.n_weights, dtype=np.int64))
    i, h = network.n_inputs, network.n_hidden
    each = prior == "ard"
    names = [f"input {n}" for n in range(i)] if each else ["input weights"]
    inputs = np.arange(i) if each else np.zeros(i, dtype=np.int64)
    bias, out, out_bias = len(names) + np.arange(3)
    names += ["hidden biases", "output weights", "output bias"]
    skipped = np.zeros(0, dtype=np.int64)
    if network.skip:
        skipped = len(names) + inputs
        names += [f"input {n} to output" for n in range(i)] if each else ["skip weights"]
    into = np.tile(np.append(inputs, bias), h)
    return _groups(names, np.concatenate([into, skipped, [out_bias], np.full(h, out)]))


def _groups(names: list[str], first: Indices) -> Precisions:
    return Precisions(names, first, np.full(len(first), -1), np.zeros(0, dtype=np.int64))


def _node_relevance(network: Network) -> Precisions:
    i, h = network.n_inputs, network.n_hidden
    names = [*(f"input {n}" for n in range(i)), "input bias", *(f"unit {n}" for n in range(h))]
    names += ["constant unit", "output"]
    output = len(names) - 1
    hidden = i + 1 + np.arange(h)
    into = np.repeat(hidden, i + 1)
    second = np.concatenate([into, np.full(network.n_linear + h, output)])
    return Precisions(names, network.sources, second, np.append(hidden, output))
