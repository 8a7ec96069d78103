"""The joint distribution of a machine as a mixture of product distributions.

The mathematics is that of `mixture-mf`, on the machine as a graph: the loops are shared.
Here a mixture is kept from one learning step to the next, so it is fitted from where it was.

Reference: LAW-I9, LAW-I15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from kikuchi.boltzmann.conversion import to_factor_graph
from kikuchi.boltzmann.exact import without_diagonal
from kikuchi.boltzmann.fixed_point import check_connected
from kikuchi.boltzmann.machine import Machine
from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import ModelError
from kikuchi.core.progress import silent
from kikuchi.core.trace import Trace
from kikuchi.engines.run import MethodRun
from kikuchi.graphs.graph_arrays import GraphArrays, flatten
from kikuchi.methods.mixture_mean_field import (
    Mixture,
    make_mixture,
    mixture_bound,
    table_workspace,
)
from kikuchi.training.model import Parameters

Form = Literal["lambda", "eliminated"]


class JointMixture(NamedTuple):
    """Q(m) and the means of all units in each component, visible units first.

    `smoothing` are the functions R of the bound, `bound` is below log Z.
    """

    weights: Array
    means: Array
    smoothing: Array
    bound: float
    converged: bool
    sweeps: int


def random_mixture(machine: Machine, components: int, rng: np.random.Generator) -> JointMixture:
    """Components at uniform random means, all of the same weight: a start."""
    n = machine.n_visible + machine.n_hidden
    means = rng.uniform(size=(components, n))
    return JointMixture(
        np.full(components, 1.0 / components),
        means,
        np.ones((components, 2 * n)),
        -np.inf,
        False,
        0,
    )


def fit_mixture(
    machine: Machine,
    start: JointMixture,
    *,
    temperatures: Sequence[float] = (),
    form: Form = "lambda",
    tol: float = 1e-6,
    max_iter: int = 500,
) -> JointMixture:
    """Ascend the mixture's bound on log Z from `start` (4.16 to 4.23).

    One sweep at each of the `temperatures` (the energy divided by it, entropy and information
    not), then sweeps at 1, each block set to its optimum, until no probability moves by more than
    `tol`. `form=eliminated` goes on by gradients of the bound without lambda.

    >>> machine = Machine(np.array([[4.0]]), np.array([-2.0]), np.array([-2.0]))
    >>> one, two = (random_mixture(machine, m, np.random.default_rng(0)) for m in (1, 2))
    >>> [round(fit_mixture(machine, start).bound, 3) for start in (one, two)]
    [0.386, 0.82]
    """
    check_connected(machine.visible)
    check_connected(machine.hidden)
    flat = flatten(to_factor_graph(machine))
    mixture = _as_mixture(flat, start)
    ascent = _MixtureAscent(flat, mixture)
    for temperature in temperatures:
        ascent.sweep(float(temperature))
    change = np.inf
    while change > tol and ascent.sweeps < max_iter + len(temperatures):
        change = ascent.sweep(1.0)
    if form == "eliminated":
        mixture = _follow_gradients(flat, mixture, max_iter)
    bound = mixture_bound(flat, mixture, ascent.scratch, form="eliminated")
    return JointMixture(
        mixture.weights,
        np.ascontiguousarray(mixture.q[:, 1::2]),
        mixture.smoothing,
        bound,
        bool(change <= tol),
        ascent.sweeps,
    )


def mixture_bounds(machine: Machine, mixture: JointMixture) -> dict[Form, float]:
    """Both forms of the bound on log Z: lambda at its optimum, and eliminated (2.24)."""
    flat = flatten(to_factor_graph(machine))
    whole = _as_mixture(flat, mixture)
    forms: tuple[Form, Form] = ("lambda", "eliminated")
    return {form: mixture_bound(flat, whole, form=form) for form in forms}


def mixture_statistics(machine: Machine, mixture: JointMixture) -> Parameters:
    """sum_m Q(m) <s_i>_m <s_j>_m for every connection, and the means (4.25)."""
    d = machine.n_visible
    second = mixture.means.T @ (mixture.weights[:, None] * mixture.means)
    first = mixture.weights @ mixture.means
    found: Parameters = {
        "weights": second[:d, d:],
        "visible_bias": first[:d],
        "hidden_bias": first[d:],
    }
    if machine.visible_weights is not None:
        found["visible_weights"] = without_diagonal(second[:d, :d].copy())
    if machine.hidden_weights is not None:
        found["hidden_weights"] = without_diagonal(second[d:, d:].copy())
    return found


class _MixtureAscent:
    """Sweeps over one mixture, which they change."""

    def __init__(self, flat: GraphArrays, mixture: Mixture) -> None:
        self.flat = flat
        self.mixture = mixture
        self.alive = np.ones(int(flat.state_offsets[-1]), dtype=np.bool_)
        self.field = np.zeros(flat.max_card)
        self.scratch = table_workspace(flat)
        self.bounds = np.zeros(len(mixture.weights))
        self.sweeps = 0

    def sweep(self, temperature: float) -> float:
        """Every block once; answers the largest change of a probability."""
        from kikuchi.engines.mean_field.kernels.mixture_mean_field import overlaps, sweep

        overlaps(self.flat.state_offsets, self.mixture)  # sums and differences drift
        self.sweeps += 1
        return float(
            sweep(
                self.flat,
                self.alive,
                self.mixture,
                temperature,
                self.field,
                self.scratch,
                self.bounds,
            )
        )


def _as_mixture(flat: GraphArrays, start: JointMixture) -> Mixture:
    """The mixture that the loops change; both states of each unit, off first."""
    n = len(flat.cards)
    if start.means.shape != (len(start.weights), n):
        raise ModelError(
            f"mixture: means of shape {start.means.shape} for {len(start.weights)} components of "
            f"a machine with {n} units"
        )
    q = np.empty((len(start.weights), 2 * n))
    q[:, 1::2], q[:, ::2] = start.means, 1.0 - start.means
    return make_mixture(flat, start.weights.copy(), q, start.smoothing.copy())


def _follow_gradients(flat: GraphArrays, mixture: Mixture, limit: int) -> Mixture:
    from kikuchi.engines.mean_field.mixture_gradient import maximise

    run = MethodRun(Budget().start(), silent, Trace(), 0.0)
    return maximise(flat, mixture, limit, run)[0]
