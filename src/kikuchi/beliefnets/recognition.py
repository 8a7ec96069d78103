"""Recognition networks: layered sigmoid networks that run upwards and guess the hidden units.

q(h | v) is a sigmoid network from the visible layer to the top, learnt with the generative one. Its
draws h_1 ... h_K give the importance-weighted bound E log mean_k P(v, h_k) / q(h_k | v), which
rises with K to the log-likelihood. Three learners: `wake-sleep`, `reweighted` (wake-sleep with
weighted draws), and `vimco`, which ascends the importance-weighted bound itself in both networks.

Reference: LIU-L7.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import expit

from kikuchi.beliefnets.learning import add_relevance_prior
from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Clock
from kikuchi.core.errors import MethodError
from kikuchi.core.numerics import logsumexp
from kikuchi.core.options import Registry, option
from kikuchi.training.model import Parameters
from kikuchi.training.rule import GradientEstimate, Rule, State

UP = ("up_weights", "up_bias")
_SCORED = 20  # draws of the bound of rows that were not learnt from


def add_recognition(network: SigmoidNetwork, rng: np.random.Generator) -> None:
    """Give a layered network a recognition network, begun as its own turned upside down.

    >>> net = SigmoidNetwork.random((2, 3), random_state=0)
    >>> add_recognition(net, np.random.default_rng(0))
    >>> net.parameters["up_weights"].shape, net.parameters["up_bias"].shape
    ((6,), (2,))
    """
    if not network.layers:
        raise MethodError(
            "a recognition network needs a layered network; use learner='bound' for other forms"
        )
    up = [w.T.ravel() for w in reversed(network.matrices())]
    noise = 0.01 * rng.normal(size=network.n_edges)
    network.parameters["up_weights"] = np.concatenate(up) + noise
    network.parameters["up_bias"] = np.zeros(sum(network.layers[:-1]))


def has_recognition(network: SigmoidNetwork) -> bool:
    """Whether the network has a recognition network."""
    return all(name in network.parameters for name in UP)


def upward(network: SigmoidNetwork) -> list[tuple[slice, slice, Array, Array]]:
    """From the visible layer up: units below, units above, weights (below, above) and biases of
    the recognition network, as views.
    """
    if not has_recognition(network):
        raise MethodError(
            "the network has no recognition network; fit it with learner='vimco', 'reweighted' or "
            "'wake-sleep'"
        )
    slices, found, at = network.layer_slices(), [], 0
    for below, above in zip(slices[:0:-1], slices[-2::-1], strict=True):
        shape = (below.stop - below.start, above.stop - above.start)
        size = shape[0] * shape[1]
        weights = network.parameters["up_weights"][at : at + size].reshape(shape)
        found.append((below, above, weights, network.parameters["up_bias"][above]))
        at += size
    return found


class Draws(NamedTuple):
    """States of all units (rows, draws, units), and log q of each draw (rows, draws)."""

    states: Array
    log_q: Array

    def log_weights(self, network: SigmoidNetwork) -> Array:
        """log P(v, h) / q(h | v) of each draw."""
        flat = self.states.reshape(-1, self.states.shape[-1])
        return network.log_joint(flat).reshape(self.log_q.shape) - self.log_q


def draw_hidden(
    network: SigmoidNetwork, rows: Array, draws: int, rng: np.random.Generator
) -> Draws:
    """Draws of the hidden units from the recognition network, for rows of visible ones."""
    n = len(rows)
    states = np.zeros((n * draws, network.n_units))
    states[:, network.visible] = np.repeat(rows, draws, axis=0)
    log_q = np.zeros(n * draws)
    for below, above, weights, bias in upward(network):
        z = states[:, below] @ weights + bias
        x = (rng.random(z.shape) < expit(z)).astype(np.float64)
        states[:, above] = x
        log_q += np.sum(x * z - np.logaddexp(0.0, z), axis=1)
    return Draws(states.reshape(n, draws, -1), log_q.reshape(n, draws))


def importance_bound(log_weights: Array) -> Array:
    """log mean exp of the log-weights of each row: the importance-weighted bound."""
    return np.asarray(logsumexp(log_weights, axis=1) - np.log(log_weights.shape[1]))


def leave_one_out(log_weights: Array) -> Array:
    """What each draw adds to the bound of its row: the bound, minus that with the draw's weight put
    in place by the geometric mean of the others.
    """
    n, k = log_weights.shape
    others = (log_weights.sum(axis=1, keepdims=True) - log_weights) / (k - 1)
    changed = np.repeat(log_weights[:, None, :], k, axis=1)
    changed[:, np.arange(k), np.arange(k)] = others
    without = logsumexp(changed.reshape(n * k, k), axis=1).reshape(n, k) - np.log(k)
    return np.asarray(importance_bound(log_weights)[:, None] - without)


def generative_gradient(network: SigmoidNetwork, states: Array, weights: Array) -> Parameters:
    """Gradient of the weighted sum of log P over states (rows, units)."""
    error = (states - expit(network.inputs(states))) * weights[:, None]
    slices = network.layer_slices()
    parts = [(states[:, above].T @ error[:, below]).ravel() for above, below in pairwise(slices)]
    return {"weights": np.concatenate(parts), "bias": error.sum(axis=0)}


def recognition_gradient(network: SigmoidNetwork, states: Array, weights: Array) -> Parameters:
    """Gradient of the weighted sum of log q over states (rows, units)."""
    parts, bias = [], np.zeros_like(network.parameters["up_bias"])
    for below, above, matrix, offset in upward(network):
        q = expit(states[:, below] @ matrix + offset)
        error = (states[:, above] - q) * weights[:, None]
        parts.append((states[:, below].T @ error).ravel())
        bias[above] = error.sum(axis=0)
    return {"up_weights": np.concatenate(parts), "up_bias": bias}


# ---------------------------------------------------------------------- learners


@dataclass(frozen=True)
class RecognitionRule(Rule[SigmoidNetwork]):
    """Base of the learners with a recognition network: draws, their weights, both gradients.

    The generative network always follows the gradient of the importance-weighted bound, which is
    the mean of the gradients of log P with normalised weights.
    """

    objective_name: ClassVar[str] = "importance-weighted bound per row"
    main_option: ClassVar[str] = "draws"

    draws: int = option(5, "draws of the hidden units per row", low=1)
    ard: bool = option(False, "precision of the weights of each hidden unit")
    n_rows: int = option(1, "rows of the data", low=1)

    def begin(self, model: SigmoidNetwork, data: Any, rng: np.random.Generator) -> State:
        """Refuse networks without a recognition network."""
        upward(model)
        return {}

    def gradient(
        self, model: SigmoidNetwork, batch: Any, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """One batch: draws, weights, and the directions of both networks."""
        drawn = draw_hidden(model, batch, self.draws, rng)
        logs = drawn.log_weights(model)
        shares = np.exp(logs - logsumexp(logs, axis=1)[:, None])
        flat = drawn.states.reshape(-1, model.n_units)
        ascent = generative_gradient(model, flat, shares.ravel())
        ascent |= self._upward(model, flat, logs, shares, rng)
        for array in ascent.values():
            array /= len(rows)
        if self.ard:
            add_relevance_prior(model, ascent, self.n_rows)
        return GradientEstimate(ascent, float(np.mean(importance_bound(logs))))

    @abstractmethod
    def _upward(
        self, model: SigmoidNetwork, states: Array, logs: Array, shares: Array,
        rng: np.random.Generator,
    ) -> Parameters:  # fmt: skip
        """Direction of the recognition network, summed over the rows."""

    def score(self, model: Any, rows: Any) -> float:
        """Mean importance-weighted bound of rows that were not learnt from, with fixed draws."""
        return float(np.mean(self.row_scores(model, rows)))

    def row_scores(self, model: SigmoidNetwork, rows: Any, clock: Clock | None = None) -> Array:
        """Importance-weighted bound of each row, with fixed draws."""
        rng = np.random.default_rng(0)
        drawn = draw_hidden(model, np.asarray(rows, dtype=np.float64), _SCORED, rng)
        return importance_bound(drawn.log_weights(model))


@dataclass(frozen=True)
class WakeSleep(RecognitionRule):
    """Wake-sleep: draws of the recognition network teach the generative one, dreams of the
    generative network teach the recognition one.
    """

    name: ClassVar[str] = "wake-sleep"
    summary: ClassVar[str] = "recognition network learnt from dreams of the generative one"

    draws: int = option(1, "draws of the hidden units per row", low=1)

    def _upward(
        self, model: SigmoidNetwork, states: Array, logs: Array, shares: Array,
        rng: np.random.Generator,
    ) -> Parameters:  # fmt: skip
        dreams = model.sample_states(len(logs), rng)
        return recognition_gradient(model, dreams, np.ones(len(dreams)))


class ReweightedWakeSleep(RecognitionRule):
    """Reweighted wake-sleep: both networks learn from weighted draws, which come from the posterior
    as their number grows.
    """

    name: ClassVar[str] = "reweighted"
    summary: ClassVar[str] = "both networks learnt from importance-weighted draws"

    def _upward(
        self, model: SigmoidNetwork, states: Array, logs: Array, shares: Array,
        rng: np.random.Generator,
    ) -> Parameters:  # fmt: skip
        return recognition_gradient(model, states, shares.ravel())


@dataclass(frozen=True)
class ImportanceAscent(RecognitionRule):
    """The importance-weighted bound itself is ascended in both networks, with what each draw adds
    to the bound as the signal of its score (baselines by leaving one out).
    """

    name: ClassVar[str] = "vimco"
    summary: ClassVar[str] = "gradient of the importance-weighted bound in both networks"

    draws: int = option(5, "draws of the hidden units per row", low=2)

    def _upward(
        self, model: SigmoidNetwork, states: Array, logs: Array, shares: Array,
        rng: np.random.Generator,
    ) -> Parameters:  # fmt: skip
        signal = leave_one_out(logs) - shares
        return recognition_gradient(model, states, signal.ravel())


RECOGNITION_LEARNERS: Registry[RecognitionRule] = Registry(
    "kikuchi.beliefnets",
    "learner",
    {
        "wake-sleep": "recognition:WakeSleep",
        "reweighted": "recognition:ReweightedWakeSleep",
        "vimco": "recognition:ImportanceAscent",
    },
)


def parse_recognition(text: str) -> RecognitionRule:
    """The learner of a text such as `vimco:10`, `reweighted:draws=5` or `wake-sleep`.

    >>> parse_recognition("vimco:10").draws
    10
    """
    name, _, rest = text.strip().partition(":")
    if rest.strip().isdigit():
        text = f"{name}:draws={rest.strip()}"
    found: Sequence[str] = tuple(RECOGNITION_LEARNERS)
    if name.strip() not in found:
        raise MethodError(f"learner is one of bound, {', '.join(found)}; got {text!r}")
    return RECOGNITION_LEARNERS.parse(text)
