"""Exact sums over the states of small machines, as the measure of everything else.

Only one side of a machine is enumerated when the other is independent given it (a restricted
machine: the smaller side); otherwise all units are. States come in blocks of bounded size, so that
memory does not grow with their number.

Reference: LAW-L6, LAW-M5, TEH-I11, WH-L1, WH-L4, WH-M1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import BinaryUnits, BinomialUnits, Units
from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.errors import BudgetError, DataError, ModelError
from kikuchi.core.numerics import logsumexp
from kikuchi.training.model import Parameters

MOST_STATES = 2**22
"""States of one side that are enumerated at most, the other side summed in closed form."""
MOST_PAIRS_OF_STATES = 2**26
"""Joint states that are enumerated at most when both sides have connections among themselves."""

_BLOCK = 2**18  # numbers in one block of the enumeration
_COMPILED = 2**14  # fields at once for which the compiled pass is worth its loading


@dataclass(frozen=True)
class ExactStatistics:
    """log Z and the expectations of all statistics under the model.

    `statistics` has the names and shapes of the machine's parameters: E[v h'], E[v], E[h] and,
    where there are such weights, E[v v'] and E[h h'] with zeros on the diagonal.
    """

    log_z: float
    statistics: Parameters


@dataclass(frozen=True)
class ClampedStatistics:
    """The model with its visible units clamped to each row of some data.

    `log_weights` is log sum_h exp(-E(v, h)) of each row (minus the free energy), `hidden` the
    means of the hidden units, one row each, and `statistics` the expectations averaged over rows.
    """

    log_weights: Array
    hidden: Array
    statistics: Parameters


def exact(machine: Machine) -> ExactStatistics:
    """log Z and all expectations, by enumeration.

    >>> machine = Machine(np.zeros((3, 2)), np.zeros(3), np.zeros(2))
    >>> answer = exact(machine)
    >>> round(answer.log_z / np.log(2)), answer.statistics["weights"].tolist()[0]
    (5, [0.25, 0.25])
    """
    outer, inner, cross, hidden_outside = _choose_sides(machine)
    sums = _Sums(outer, inner)
    for states in outer.blocks(inner.width):
        scores = outer.scores(states)
        inside = inner.given(states @ cross + inner.bias)
        sums.add(states, scores + inside.log_sums, inside)
    return ExactStatistics(sums.log_z, sums.statistics(machine, hidden_outside))


def clamped(machine: Machine, visible: ArrayLike) -> ClampedStatistics:
    """Exact posterior means, statistics and log weights of each row.

    Hidden units without connections among themselves need no enumeration, however many there are.
    """
    rows = as_rows(machine, visible)
    outer, inner = _sides(machine)
    if inner.lateral is not None:
        _check_states(inner.count, MOST_STATES, f"{inner.size} connected hidden units")
    log_weights = np.empty(len(rows))
    hidden = np.empty((len(rows), inner.size))
    pairs = np.zeros((inner.size, inner.size))
    step = max(1, _BLOCK // inner.width)
    for first in range(0, len(rows), step):
        block = rows[first : first + step]
        inside = inner.given(block @ machine.weights + inner.bias)
        log_weights[first : first + step] = outer.scores(block) + inside.log_sums
        hidden[first : first + step] = inside.means
        pairs += inside.pairs(np.ones(len(block)))
    found = mean_statistics(machine, rows, hidden)
    if "hidden_weights" in found:
        found["hidden_weights"] = without_diagonal(pairs / len(rows))
    return ClampedStatistics(log_weights, hidden, found)


def log_likelihood(machine: Machine, visible: ArrayLike, *, inputs: Mask | None = None) -> Array:
    """Exact log p(v) of each row; with `inputs`, log p(outputs | inputs).

    >>> machine = Machine(np.zeros((2, 1)), np.zeros(2), np.zeros(1))
    >>> (log_likelihood(machine, [[0, 1]]) / np.log(2)).round(6).tolist()
    [-2.0]
    """
    rows = as_rows(machine, visible)
    weights = clamped(machine, rows).log_weights
    if inputs is None:
        return weights - exact(machine).log_z
    return weights - exact_given_inputs(machine, rows, inputs).log_z


def side_states(machine: Machine) -> float:
    """States that `exact` would enumerate; infinite where neither side can be.

    >>> side_states(Machine.random(5, 3))
    8.0
    """
    visible, hidden = _sides(machine)
    if visible.lateral is not None and hidden.lateral is not None:
        return visible.count * hidden.count
    counts = [
        side.count
        for side, other in ((visible, hidden), (hidden, visible))
        if other.lateral is None
    ]
    return min(counts)


def visible_states(machine: Machine) -> float:
    """Return the number of states of the visible units; infinite for real ones.

    >>> visible_states(Machine.random(5, 3))
    32.0
    """
    return _sides(machine)[0].count


def all_visible_states(machine: Machine) -> Array:
    """Return all states of the visible units, one a row."""
    side = _sides(machine)[0]
    _check_states(side.count, MOST_STATES, f"{side.size} visible units")
    return side.states(0, int(side.count))


def sum_of_rows(machine: Machine, rows: ArrayLike) -> float:
    """Return log sum exp(-F(v)) over the distinct rows: a lower bound on log Z.

    Values between two states, which stand for means, are rounded. Rows of real units prove nothing:
    minus infinity.

    >>> machine = Machine.random(5, 3, scale=1.0, random_state=0)
    >>> bool(sum_of_rows(machine, np.eye(5)) < exact(machine).log_z)
    True
    """
    if not np.isfinite(visible_states(machine)) or machine.hidden_weights is not None:
        return -math.inf
    states = np.unique(np.rint(as_rows(machine, rows)), axis=0)
    return float(logsumexp(clamped(machine, states).log_weights)) if len(states) else -math.inf


def exact_samples(machine: Machine, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Independent draws of visible and hidden units from the model itself, by enumeration.

    >>> visible, hidden = exact_samples(Machine.random(3, 2), 5, np.random.default_rng(0))
    >>> visible.shape, hidden.shape
    ((5, 3), (5, 2))
    """
    outer, inner, cross, hidden_outside = _choose_sides(machine)
    scores = np.concatenate(
        [
            outer.scores(states) + inner.given(states @ cross + inner.bias).log_sums
            for states in outer.blocks(inner.width)
        ]
    )
    totals = np.cumsum(np.exp(scores - scores.max()))
    chosen = np.searchsorted(totals, rng.random(count) * totals[-1], side="right")
    outside = outer.states_of(np.minimum(chosen, len(totals) - 1))
    inside = inner.draw(outside @ cross + inner.bias, rng)
    return (inside, outside) if hidden_outside else (outside, inside)


# ---------------------------------------------------------------------- inputs clamped


@dataclass(frozen=True)
class GivenInputs:
    """log Z of each row with its inputs clamped, and the expectations averaged over rows."""

    log_z: Array
    statistics: Parameters


def exact_given_inputs(machine: Machine, visible: ArrayLike, inputs: Mask) -> GivenInputs:
    """The free phase of the conditional machine: inputs stay at the data."""
    rows = as_rows(machine, visible)
    mask = as_inputs(machine, inputs)
    distinct, member = np.unique(rows[:, mask], axis=0, return_inverse=True)
    share = np.bincount(member.ravel(), minlength=len(distinct)) / len(rows)
    log_z = np.empty(len(distinct))
    total = {name: np.zeros(a.shape) for name, a in machine.parameters.items()}
    for k, values in enumerate(distinct):
        reduced, constant = clamp_inputs(machine, mask, values)
        answer = exact(reduced)
        log_z[k] = answer.log_z + constant
        for name, part in _with_inputs(machine, mask, values, answer.statistics).items():
            total[name] += share[k] * part
    return GivenInputs(log_z[member.ravel()], total)


def clamp_inputs(machine: Machine, inputs: Mask, values: Array) -> tuple[Machine, float]:
    """The machine of the other units, its fields moved by the clamped ones, and the constant left.

    >>> machine = Machine(np.ones((2, 1)), np.zeros(2), np.zeros(1))
    >>> reduced, constant = clamp_inputs(machine, np.array([True, False]), np.array([1.0]))
    >>> reduced.hidden_bias.tolist(), constant
    ([1.0], 0.0)
    """
    free = ~inputs
    bias = machine.visible_bias[free].astype(np.float64)
    constant = float(values @ machine.visible_bias[inputs])
    constant += float(np.sum(machine.visible.log_base(values)))
    lateral = None
    if machine.visible_weights is not None:
        v = machine.visible_weights.astype(np.float64)
        bias = bias + values @ v[np.ix_(inputs, free)]
        constant += 0.5 * float(values @ v[np.ix_(inputs, inputs)] @ values)
        lateral = v[np.ix_(free, free)]
    reduced = Machine(
        weights=machine.weights[free].astype(np.float64),
        visible_bias=bias,
        hidden_bias=machine.hidden_bias + values @ machine.weights[inputs],
        visible_weights=lateral,
        hidden_weights=machine.hidden_weights,
        visible=machine.visible,
        hidden=machine.hidden,
    )
    return reduced, constant


def _with_inputs(machine: Machine, mask: Mask, values: Array, found: Parameters) -> Parameters:
    """Expectations of the whole machine from those of the machine without the inputs."""
    free = ~mask
    means = np.empty(machine.n_visible)
    means[mask], means[free] = values, found["visible_bias"]
    whole: Parameters = {"visible_bias": means, "hidden_bias": found["hidden_bias"]}
    whole["weights"] = np.empty(machine.weights.shape)
    whole["weights"][mask] = np.outer(values, found["hidden_bias"])
    whole["weights"][free] = found["weights"]
    if machine.visible_weights is not None:
        pairs = np.outer(means, means)
        pairs[np.ix_(free, free)] = found["visible_weights"]
        whole["visible_weights"] = without_diagonal(pairs)
    if machine.hidden_weights is not None:
        whole["hidden_weights"] = found["hidden_weights"]
    return whole


# ---------------------------------------------------------------------- shared helpers


def as_rows(machine: Machine, visible: ArrayLike) -> Array:
    """Data as rows of float64, one column for each visible unit."""
    rows = np.atleast_2d(np.asarray(visible, dtype=np.float64))
    if rows.ndim != 2 or rows.shape[1] != machine.n_visible:
        raise DataError(
            f"data of shape {np.shape(visible)}: the machine has {machine.n_visible} visible "
            "units, give one column for each"
        )
    if not np.all(np.isfinite(rows)):
        raise DataError("data hold values that are not finite numbers; remove or fill these rows")
    return rows


def as_inputs(machine: Machine, inputs: ArrayLike) -> Mask:
    """The mask of clamped visible units, checked."""
    mask = np.asarray(inputs)
    if mask.dtype != np.bool_ or mask.shape != (machine.n_visible,):
        raise DataError(
            f"inputs must be {machine.n_visible} booleans, one for each visible unit, "
            f"got {mask.dtype} of shape {mask.shape}"
        )
    return mask


def without_diagonal(pairs: Array) -> Array:
    """The matrix with zeros on its diagonal, in place."""
    np.fill_diagonal(pairs, 0.0)
    return pairs


def mean_statistics(machine: Machine, visible: Array, hidden: Array) -> Parameters:
    """Statistics of product distributions with these means, averaged over rows."""
    count = len(visible)
    found: Parameters = {
        "weights": visible.T @ hidden / count,
        "visible_bias": visible.mean(axis=0),
        "hidden_bias": hidden.mean(axis=0),
    }
    if machine.visible_weights is not None:
        found["visible_weights"] = without_diagonal(visible.T @ visible / count)
    if machine.hidden_weights is not None:
        found["hidden_weights"] = without_diagonal(hidden.T @ hidden / count)
    return found


def ascent(machine: Machine, positive: Parameters, negative: Parameters) -> Parameters:
    """Positive minus negative statistics in the machine's dtype, zero where a mask says so."""
    moved: Parameters = {}
    for name, array in machine.parameters.items():
        difference = (positive[name] - negative[name]).astype(array.dtype)
        if name in machine.masks:
            difference[~machine.masks[name]] = 0
        moved[name] = difference
    return moved


# ---------------------------------------------------------------------- sides of a machine


@dataclass(frozen=True)
class _Inside:
    """One side given rows of fields: log of the sum over its states, means, weights of states."""

    log_sums: Array
    means: Array
    states: Array | None = None
    probabilities: Array | None = None

    def pairs(self, weights: Array) -> Array:
        """Weighted sum over rows of E[s s'] of this side; zeros where it is independent."""
        if self.states is None or self.probabilities is None:
            size = self.means.shape[1]
            return np.zeros((size, size))
        by_state = weights @ self.probabilities
        return np.asarray(self.states.T @ (by_state[:, None] * self.states))


class _Side:
    """Units of one side, with their biases and connections among themselves."""

    def __init__(self, units: Units, bias: Array, lateral: Array | None, name: str) -> None:
        self.units = units
        self.bias = bias.astype(np.float64)
        self.lateral = None if lateral is None else lateral.astype(np.float64)
        self.name = name
        self.size = len(bias)
        self.levels = _levels(units)
        self._all: tuple[Array, Array] | None = None
        if self.lateral is not None and not isinstance(units, BinaryUnits):
            raise ModelError(
                f"{name} units of kind {units.text} cannot be connected among themselves here; "
                "use binary units or leave out those connections"
            )

    @property
    def count(self) -> float:
        """Number of states; infinite for real units."""
        return float(self.levels) ** self.size if self.levels else math.inf

    @property
    def width(self) -> int:
        """Numbers that one state of the other side needs."""
        return max(self.size, 1) if self.lateral is None else int(self.count)

    def states(self, first: int, last: int) -> Array:
        """States by number, the first unit the slowest digit."""
        return self.states_of(np.arange(first, last, dtype=np.int64))

    def states_of(self, numbers: Ints) -> Array:
        """States of these numbers."""
        places = self.levels ** np.arange(self.size - 1, -1, -1, dtype=np.int64)
        return (numbers[:, None] // places % self.levels).astype(np.float64)

    def blocks(self, width: int) -> Iterator[Array]:
        """All states, as many at once as fit beside `width` numbers each."""
        step = max(1, _BLOCK // max(width, self.size, 1))
        for first in range(0, int(self.count), step):
            yield self.states(first, min(first + step, int(self.count)))

    def scores(self, states: Array) -> Array:
        """What each state contributes by itself: biases, connections and base measure."""
        on_each = self.bias if self.lateral is None else self.bias + 0.5 * states @ self.lateral
        own = np.sum(states * on_each, axis=1)
        return np.asarray(own + np.sum(self.units.log_base(states), axis=1))

    def given(self, fields: Array) -> _Inside:
        """Sum over the states of this side for each row of fields (biases included)."""
        if self.lateral is None:
            return _independent(self.units, fields)
        if self._all is None:
            states = self.states(0, int(self.count))
            self._all = states, self.scores(states) - states @ self.bias
        states, own = self._all
        scores = fields @ states.T + own
        log_sums = np.asarray(logsumexp(scores, axis=1))
        probabilities = np.exp(scores - log_sums[:, None])
        return _Inside(log_sums, probabilities @ states, states, probabilities)

    def draw(self, fields: Array, rng: np.random.Generator) -> Array:
        """One state of this side for each row of fields."""
        if self.lateral is None:
            return np.asarray(self.units.draw(fields, rng))
        step = max(1, _BLOCK // self.width)
        parts = [np.empty((0, self.size))]
        for first in range(0, len(fields), step):
            inside = self.given(fields[first : first + step])
            assert inside.states is not None and inside.probabilities is not None
            totals = np.cumsum(inside.probabilities, axis=1)
            passed = totals < rng.random(len(totals))[:, None] * totals[:, -1:]
            parts.append(inside.states[passed.sum(axis=1)])
        return np.concatenate(parts)


def _independent(units: Units, fields: Array) -> _Inside:
    """Units that are independent given their fields, in closed form."""
    if isinstance(units, BinaryUnits) and fields.size > _COMPILED:
        from kikuchi.boltzmann.kernels.sampling import logistic

        means, sums = np.array(fields, dtype=np.float64, order="C"), np.empty(len(fields))
        logistic(means, np.zeros(fields.shape[1]), sums)
        return _Inside(sums, means)
    return _Inside(np.sum(units.log_partition(fields), axis=1), units.mean(fields))


class _Sums:
    """Running sums over the states of the outer side, scaled by the largest weight so far."""

    def __init__(self, outer: _Side, inner: _Side) -> None:
        n, m = outer.size, inner.size
        self.top = -math.inf
        self.total: Any = 0.0
        self.parts = [np.zeros(n), np.zeros(m), np.zeros((n, m)), np.zeros((n, n))]
        self.parts.append(np.zeros((m, m)))

    def add(self, states: Array, scores: Array, inside: _Inside) -> None:
        """Take in a block of outer states with their log weights."""
        top = max(self.top, float(scores.max()))
        old = math.exp(self.top - top) if self.top > -math.inf else 0.0
        weights = np.exp(scores - top)
        weighted = weights[:, None] * states
        new = (
            weighted.sum(axis=0),
            weights @ inside.means,
            weighted.T @ inside.means,
            weighted.T @ states,
            inside.pairs(weights),
        )
        self.parts = [old * a + b for a, b in zip(self.parts, new, strict=True)]
        self.total = old * self.total + weights.sum()
        self.top = top

    @property
    def log_z(self) -> float:
        """log of the sum of all weights."""
        return self.top + math.log(self.total)

    def statistics(self, machine: Machine, hidden_outside: bool) -> Parameters:
        """Expectations by the names of the machine's parameters."""
        outer, inner, cross, outer_pairs, inner_pairs = (p / self.total for p in self.parts)
        if hidden_outside:
            outer, inner, cross = inner, outer, cross.T
            outer_pairs, inner_pairs = inner_pairs, outer_pairs
        found: Parameters = {"weights": cross, "visible_bias": outer, "hidden_bias": inner}
        if machine.visible_weights is not None:
            found["visible_weights"] = without_diagonal(outer_pairs)
        if machine.hidden_weights is not None:
            found["hidden_weights"] = without_diagonal(inner_pairs)
        return found


def _sides(machine: Machine) -> tuple[_Side, _Side]:
    visible = _Side(machine.visible, machine.visible_bias, machine.visible_weights, "visible")
    hidden = _Side(machine.hidden, machine.hidden_bias, machine.hidden_weights, "hidden")
    return visible, hidden


def _choose_sides(machine: Machine) -> tuple[_Side, _Side, Array, bool]:
    """The side to enumerate, the side summed inside it, weights between them, which is outside."""
    visible, hidden = _sides(machine)
    weights = machine.weights.astype(np.float64)
    if visible.lateral is not None and hidden.lateral is not None:
        what = f"{visible.size + hidden.size} units with connections on both sides"
        _check_states(visible.count * hidden.count, MOST_PAIRS_OF_STATES, what)
        hidden_outside = hidden.count > visible.count
    else:
        hidden_outside = visible.lateral is None and (
            hidden.lateral is not None or hidden.count <= visible.count
        )
        outer = hidden if hidden_outside else visible
        _check_states(outer.count, MOST_STATES, f"{outer.size} {outer.name} units")
    if hidden_outside:
        return hidden, visible, weights.T, True
    return visible, hidden, weights, False


def _levels(units: Units) -> int:
    """States of one unit, 0 when it is real."""
    if isinstance(units, BinomialUnits):
        return units.replicas + 1
    return 2 if isinstance(units, BinaryUnits) else 0


def _check_states(count: float, most: int, what: str) -> None:
    if count > most:
        raise BudgetError(
            f"enumeration: {what} have {count:.3g} states, at most {most} are summed; "
            "use ais for log Z or a rule that samples"
        )
