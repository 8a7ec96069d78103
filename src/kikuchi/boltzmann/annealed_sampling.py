"""Annealed importance sampling and its reverse: a bracket on log Z with a stated confidence.

Chains are led from a base machine without weights, whose Z is known, to the machine itself along

    log f_beta = (1 - beta) b_base'v - beta E(v, h) + log base(v),       beta = 0 ... 1.

The product of the ratios of f along a chain has expectation Z / Z_base (forward); led back from
samples of the machine it has expectation Z_base / Z (reverse). The mean of the forward weights is
thus an unbiased estimate of Z, whose logarithm is too small on average; that of the reverse weights
is one of 1/Z, and its log Z is too large on average. A poor schedule makes the bracket wide, not
wrong; what the reverse bound does need are true samples of the machine to start from.

Any set of distinct states bounds Z from below for certain: Z >= sum of exp(-F(v)) over distinct v.
The rows and the states that chains visit are summed in this way.
"""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.boltzmann.exact import as_rows, exact_samples, side_states
from kikuchi.boltzmann.gibbs_chains import TemperedChains, draw_side
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import BinaryUnits, GaussianUnits, Units
from kikuchi.core.errors import MethodError
from kikuchi.core.numerics import logsumexp
from kikuchi.core.run import Run
from kikuchi.core.seeds import Seed, generator
from kikuchi.engines.loops.annealing import AnnealedBatches
from kikuchi.engines.sampling.annealing import (
    TEMPERED_STARTS,
    LogZ,
    Schedule,
    beta_steps,
    bracket,
)

Array = NDArray[Any]

_MOST_FOR_EXACT_SAMPLES = 2**17
_MOST_ROWS = 10_000  # of the data whose distinct states are summed
_ROUNDING = 1e-12
_ANNEALED_STARTS = (
    "reverse chains began at ends of forward chains, not at exact samples: the upper end is valid "
    "only if forward chains have found all modes of the machine"
)
_LEAST_SHARE = 0.2  # of the forward chains, that the ends of reverse chains must stand for
_LEAST_TRIPS = 1.0  # round trips between the temperatures, for each chain


def ais(
    machine: Machine,
    *,
    data: ArrayLike | None = None,
    betas: int | ArrayLike = 1000,
    schedule: Schedule = "linear",
    chains: int = 100,
    batches: int = 5,
    reverse: bool = True,
    width: float = 0.1,
    confidence: float = 0.95,
    burn_in: int = 500,
    starts: Literal["tempered", "annealed"] = "tempered",
    random_state: Seed = None,
    run: Run | None = None,
) -> LogZ:
    """log Z of a machine by annealed importance sampling, forward and reverse.

    Parameters
    ----------
    machine : the machine.
    data : rows like those that it was trained on, as states of the visible units. The base machine
        gets their means (without them the visible biases of the machine), the lower end gets the
        sum over distinct ones, and half of the tempered chains begin at them.
    betas, schedule : steps from the base to the machine, and their spacing.
    chains : chains of a batch, in each direction.
    batches : maximum number of batches; they end when the bracket is at most `width` nats wide
        (0 runs them all), or with the budget of `run`.
    reverse : whether to run chains back from the machine, which gives the upper end.
    confidence : probability that log Z is in the bracket.
    burn_in : sweeps of the chains that the reverse chains begin at, before each batch.
    starts : where reverse chains begin if the machine is too large for exact samples. "tempered":
        at replica exchange with ten temperatures. "annealed": half of them at ends of the forward
        chains of the same batch, drawn by their weights, and half at rows of the data, if there
        are any. Use "annealed" for large machines, whose temperatures do not exchange states; it
        needs as many betas as give forward chains similar weights.
    random_state : seed.

    >>> machine = Machine.random(6, 4, scale=1.0, random_state=0)
    >>> found = ais(machine, betas=200, chains=50, random_state=0)
    >>> found.lower < found.estimate < found.upper, found.exact_starts
    (True, True)
    """
    if not 0.0 < confidence < 1.0:
        raise MethodError(f"ais: confidence must be between 0 and 1, got {confidence}")
    if chains < 2 or batches < 1:
        raise MethodError("ais: at least two chains and one batch are needed")
    if starts not in ("tempered", "annealed"):
        raise MethodError(f"ais: starts must be 'tempered' or 'annealed', got {starts!r}")
    steps = beta_steps(betas, schedule)
    path = _Path(machine, data)
    work = _Work(
        path, steps, chains, reverse, confidence, burn_in, starts == "annealed",
        generator(random_state), run,
    )  # fmt: skip
    return work.batches(width, batches)


# ---------------------------------------------------------------------- the path


class _Path:
    """The machines between the base and the one asked for, and how chains move in them.

    A side that is connected inside is kept as states, the other is summed in closed form; where
    only the hidden side is connected the sides change places, which leaves Z as it is.
    """

    def __init__(self, machine: Machine, data: ArrayLike | None) -> None:
        m = machine.copy(np.float64)
        base = m.visible_bias if data is None else m.mean_biases(as_rows(m, data))
        if m.hidden_weights is not None and m.visible_weights is None:
            m = _turned(m)
            base = m.visible_bias
            data = None  # rows are states of the other side
        self.machine = m
        self.rows = None if data is None else _states(m.visible, as_rows(m, data))
        self.base = base.astype(np.float64)
        self.summed = m.hidden_weights is None
        nothing = np.zeros(m.n_hidden)
        self.log_z_base = float(np.sum(m.visible.log_partition(self.base)))
        self.log_z_base += float(np.sum(m.hidden.log_partition(nothing)))

    def base_states(self, chains: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Samples of the base machine."""
        m = self.machine
        v = m.visible.draw(np.tile(self.base, (chains, 1)), rng)
        return v, m.hidden.draw(np.zeros((chains, m.n_hidden)), rng)

    def gain(self, old: float, new: float, v: Array, h: Array, fields: Array) -> Array:
        """log f_new - log f_old of each chain; `fields` are those on the hidden units at beta 1."""
        m = self.machine
        linear = v @ (m.visible_bias - self.base)
        if m.visible_weights is not None:
            linear = linear + 0.5 * np.sum((v @ m.visible_weights) * v, axis=1)
        if self.summed:
            sums = log_sums(m.hidden, new * fields) - log_sums(m.hidden, old * fields)
            return np.asarray((new - old) * linear + sums)
        assert m.hidden_weights is not None
        on_hidden = fields + 0.5 * h @ m.hidden_weights
        return np.asarray((new - old) * (linear + np.sum(h * on_hidden, axis=1)))

    def fields(self, v: Array) -> Array:
        """Fields on the hidden units at beta = 1."""
        return np.asarray(v @ self.machine.weights + self.machine.hidden_bias)

    def move(
        self, beta: float, h: Array, v: Array, fields: Array, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """One Gibbs sweep that leaves f_beta as it is: hidden units first, then visible ones."""
        m = self.machine
        lateral = None if m.hidden_weights is None else beta * m.hidden_weights
        h = draw_side(m.hidden, beta * fields, lateral, h, rng)
        on_visible = beta * (h @ m.weights.T + m.visible_bias) + (1.0 - beta) * self.base
        lateral = None if m.visible_weights is None else beta * m.visible_weights
        return draw_side(m.visible, on_visible, lateral, v, rng), h


class _ProvenSum:
    """The sum of exp(-F) over distinct states: a lower bound on Z that needs no approximation.

    States of the visible side are counted, those of the hidden side where visible units are real
    numbers, and states of both where neither side can be summed in closed form.
    """

    def __init__(self, path: _Path) -> None:
        m = path.machine
        self.both = not path.summed
        self.turned = not self.both and isinstance(m.visible, GaussianUnits)
        self.machine = _turned(m) if self.turned else m
        self.possible = not isinstance(self.machine.visible, GaussianUnits)
        self.states = np.empty((0, m.n_visible + m.n_hidden if self.both else self._side(m)))
        if path.rows is not None:
            rows = path.rows[:: max(len(path.rows) // _MOST_ROWS, 1)]
            self.add(rows, np.rint(m.hidden.mean(path.fields(rows))))

    def _side(self, machine: Machine) -> int:
        return machine.n_hidden if self.turned else machine.n_visible

    def add(self, v: Array, h: Array) -> None:
        """Add states of both sides."""
        if self.possible:
            new = np.hstack([v, h]) if self.both else (h if self.turned else v)
            self.states = np.unique(np.vstack([self.states, new]), axis=0)

    @property
    def log_sum(self) -> float:
        """Logarithm of the sum, less what rounding may add; minus infinity without states."""
        if not len(self.states):
            return -math.inf
        total = float(logsumexp(self._log_weights()))
        return total - _ROUNDING * max(1.0, abs(total))

    def _log_weights(self) -> Array:
        m = self.machine
        if self.both:
            v, h = np.split(self.states, [m.n_visible], axis=1)
            logs = -np.asarray(m.energy(v, h))
            return logs + _log_base(m.visible, v) + _log_base(m.hidden, h)
        v = self.states
        logs = v @ m.visible_bias + log_sums(m.hidden, v @ m.weights + m.hidden_bias)
        if m.visible_weights is not None:
            logs = logs + 0.5 * np.sum((v @ m.visible_weights) * v, axis=1)
        return np.asarray(logs + _log_base(m.visible, v))


def _states(units: Units, rows: Array) -> Array:
    """Rows as states: values between two states, which stand for means, are rounded."""
    return rows if isinstance(units, GaussianUnits) else np.rint(rows)


def _log_base(units: Units, states: Array) -> Array:
    return np.asarray(np.sum(units.log_base(states), axis=1))


def log_sums(units: Units, fields: Array) -> Array:
    """Sum over the units of each row of their log_partition."""
    if isinstance(units, BinaryUnits):
        from kikuchi.boltzmann.kernels.sampling import logistic

        sums, work = np.empty(len(fields)), np.ascontiguousarray(fields, dtype=np.float64)
        logistic(work.copy() if work is fields else work, np.zeros(fields.shape[1]), sums)
        return sums
    return np.asarray(np.sum(units.log_partition(fields), axis=1))


def _turned(machine: Machine) -> Machine:
    """The machine with its sides exchanged."""
    return Machine(
        weights=np.ascontiguousarray(machine.weights.T),
        visible_bias=machine.hidden_bias,
        hidden_bias=machine.visible_bias,
        visible_weights=machine.hidden_weights,
        hidden_weights=machine.visible_weights,
        visible=machine.hidden,
        hidden=machine.visible,
    )


# ---------------------------------------------------------------------- the work


@dataclass(eq=False)
class _Work(AnnealedBatches):
    """Batches of chains, and the bracket so far."""

    path: _Path
    steps: Array
    chains: int
    reverse: bool
    confidence: float
    burn_in: int
    annealed: bool  # whether reverse chains begin at the ends of forward ones
    rng: np.random.Generator
    given_run: InitVar[Run | None]

    def __post_init__(self, given_run: Run | None) -> None:
        super().__init__(given_run)
        self.proven = _ProvenSum(self.path)
        self.tempered: TemperedChains | None = None
        self.ends: tuple[Array, Array] | None = None  # of the last forward chains
        self.effective: list[float] = []  # shares of forward chains that reverse ones begin at
        count = side_states(self.path.machine)
        self.exact_starts = self.reverse and count <= _MOST_FOR_EXACT_SAMPLES
        self.annealed = self.annealed and not self.exact_starts

    def lead(self) -> tuple[Array, Array] | None:
        """Log weights of a batch in both directions; None if the time ended before."""
        up = self._anneal(self.steps, *self.path.base_states(self.chains, self.rng))
        if up is None or not self.reverse:
            return None if up is None else (up, np.empty(0))
        begin = self._resampled(up) if self.annealed else self._samples()
        down = None if begin is None else self._anneal(self.steps[::-1], *begin)
        return None if down is None else (up, down)

    def _anneal(self, steps: Array, v: Array, h: Array) -> Array | None:
        """Log weights of chains led along the steps; None if the time ended before. States at
        beta = 1 are added to the proven sum.
        """
        path, weights = self.path, np.zeros(len(v))
        if steps[0] == 1.0:
            self.proven.add(v, h)
        fields = path.fields(v)
        for old, new in pairwise(steps):
            weights += path.gain(float(old), float(new), v, h, fields)
            v, h = path.move(float(new), h, v, fields, self.rng)
            fields = path.fields(v)
            if self.run.clock.expired:
                return None
        if steps[-1] == 1.0:
            self.proven.add(v, h)
            self.ends = v, h
        return weights

    def _resampled(self, up: Array) -> tuple[Array, Array] | None:
        """Ends of forward chains drawn by their weights, the first half of them rows of the data,
        after `burn_in` sweeps of the machine; None if the time ended before.
        """
        share = np.exp(up - up.max())
        share /= share.sum()
        self.effective.append(1.0 / (len(up) * float(np.sum(share**2))))
        places = (np.arange(len(up)) + self.rng.random()) / len(up)
        chosen = np.minimum(np.searchsorted(np.cumsum(share), places), len(up) - 1)
        assert self.ends is not None
        v, h = (side[self.rng.permutation(chosen)] for side in self.ends)
        if self.path.rows is not None:
            half = len(up) // 2
            v[:half] = self.path.rows[self.rng.integers(0, len(self.path.rows), half)]
        for _ in range(self.burn_in):
            v, h = self.path.move(1.0, h, v, self.path.fields(v), self.rng)
            if self.run.clock.expired:
                return None
        return v, h

    def _samples(self) -> tuple[Array, Array]:
        """Where reverse chains begin: samples of the machine itself."""
        machine = self.path.machine
        if self.exact_starts:
            return exact_samples(machine, self.chains, self.rng)
        if self.tempered is None:
            self.tempered = TemperedChains(
                machine, self.chains, betas=10, single=True, visible=self._starts(),
                random_state=self.rng,
            )  # fmt: skip
        self.tempered.run(self.burn_in)
        v, h = self.tempered.visible, self.tempered.hidden
        return v.astype(np.float64), h.astype(np.float64)

    def _starts(self) -> Array | None:
        """Where tempered chains begin: the first half at rows, the others at random states."""
        if self.path.rows is None:
            return None
        m = self.path.machine
        starts = m.visible.draw(np.tile(m.visible_bias, (self.chains, 1)), self.rng)
        half = self.chains // 2
        starts[:half] = self.path.rows[self.rng.integers(0, len(self.path.rows), half)]
        return starts

    # ------------------------------------------------------------------ answers

    def bracket(self) -> LogZ:
        """The bracket of all finished batches."""
        groups: list[Array] = []
        if (
            self.backward
            and not self.exact_starts
            and self.path.rows is not None
            and self.chains >= 4
        ):
            half = self.chains // 2
            parts = (slice(None, half), slice(half, None))
            groups = [np.concatenate([batch[p] for batch in self.backward]) for p in parts]
        return bracket(
            self.path.log_z_base,
            self.weights,
            self.confidence,
            exact_starts=self.exact_starts,
            stopped=self.run.stopped,
            certain=(self.proven.log_sum, math.inf),
            groups=groups,
            doubts=self._doubts(),
            starts=_ANNEALED_STARTS if self.annealed else TEMPERED_STARTS,
        )

    def _doubts(self) -> list[str]:
        """What makes the starts of the reverse chains doubtful."""
        if self.effective and min(self.effective) < _LEAST_SHARE:
            return [
                f"reverse chains began at ends of {100 * min(self.effective):.2g} % of the forward "
                "chains (effective sample size), too few to be samples of the machine; raise betas"
            ]
        if self.tempered is None:
            return []
        trips = self.tempered.round_trips / self.chains
        if trips >= _LEAST_TRIPS:
            return []
        return [
            f"tempered chains made {trips:.2g} round trips each between the temperatures: they "
            "have not mixed; raise burn_in"
        ]
