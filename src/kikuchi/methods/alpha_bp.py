"""Alpha-BP: message passing for other divergences than KL.

It interpolates between belief propagation (alpha = 1) and mean field (alpha near 0).

Reference: HOJ-X7, LIU-D2, LIU-D6, LIU-I6, LIU-I7, LIU-M7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import ImpossibleEvidenceError, MethodError
from kikuchi.core.numerics import log
from kikuchi.engines.certificates import attach_uniqueness_certificate
from kikuchi.engines.run import MethodRun, Solution
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.lists import (
    distributions_of,
    distributions_text,
    numbers_of,
    numbers_text,
    shortened,
)
from kikuchi.methods.method import more_damping, option
from kikuchi.methods.power_messages import SMALLEST, PowerMethod, pass_messages


@dataclass(frozen=True)
class AlphaBP(PowerMethod):
    r"""Alpha-BP: between mean field and belief propagation.

    Each factor is replaced by a product of messages that is best in the alpha-divergence:

        m_{a->i} <- m_{a->i}^(1 - alpha) sum_{x_a \ x_i} phi_a^alpha
                    prod_{j != i} m_{a->j}^(1 - alpha) prod_{b != a} m_{b->j}.

    alpha = 1 is belief propagation and alpha -> 0 naive mean field (alpha = 0 itself changes no
    message: use `mf`); values between interpolate. If belief propagation converges, it is usually
    more accurate; smaller alpha converges on many dense, strongly coupled graphs where it does not.
    alpha > 1 over-relaxes and needs damping; alpha < 0 is defined for positive tables only and
    rarely converges; nothing is certified outside (0, 2). `alpha` is one number, or one for each
    factor of the graph, `[0.5, 0.7, ...]` or `0.5/0.7/...` (those of single-variable factors are
    ignored). Factors may be of any order.

    `prior` multiplies variables by distributions from another estimator: in Python {variable:
    distribution} or one distribution for each variable, in a specification string
    `0:0.2+0.8/3:0.6+0.4`. `log_z` is then that of the multiplied model. It is minus the reweighted
    free energy with weights 1 / alpha, which the fixed points make stationary: an estimate, not a
    bound.

    A run that does not converge returns the messages with the smallest residual.

    >>> import kikuchi as kk
    >>> ring = kk.boltzmann_graph({(0, 1): 2.0, (1, 2): -1.5, (2, 3): 1.0, (0, 3): 3.0}, [0.1] * 4)
    >>> for alpha in (0.1, 0.5, 1.0):
    ...     print(round(AlphaBP(alpha=alpha).run(ring).log_z, 4))
    6.0677
    6.0908
    6.1245
    >>> AlphaBP(prior={0: [0.9, 0.1]}).run(ring)[0].round(4).tolist()
    [0.1233, 0.8767]
    """

    name: ClassVar[str] = "alpha"

    alpha: str | float | Sequence[float] = option(
        "0.5", "order of the divergence: one number, or one per factor such as 0.5/0.7"
    )
    prior: str | Sequence[Any] | Mapping[int, Any] = option(
        "none", "distributions that multiply variables, such as 0:0.2+0.8/3:0.6+0.4"
    )
    schedule: Literal["parallel", "sequential"] = option(
        "parallel", "order of updates: all at once, or variable by variable"
    )
    damping: float = option(0.0, "additional weight on the old message", low=0, below=1)
    tol: float = option(1e-9, "stop when no message changes by more than this; 0: never", low=0)
    max_iter: int = option(1000, "maximum number of sweeps over all messages", low=1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", numbers_text(self.name, "alpha", self.alpha))
        prior = distributions_text(self.prior)
        if prior is None:
            raise MethodError(
                "method alpha: option prior must be none, {variable number: distribution} or a "
                f"string such as 0:0.2+0.8/3:0.6+0.4, got {shortened(repr(self.prior))}"
            )
        object.__setattr__(self, "prior", prior)
        super().__post_init__()

    def _powers(self, graph: FactorGraph, run: MethodRun) -> Array:
        assert isinstance(self.alpha, str)
        alpha = numbers_of(self.name, "alpha", self.alpha, run)
        orders = np.diff(graph.scope_offsets)
        small = np.flatnonzero((np.abs(alpha) < SMALLEST) & (orders > 1))
        if small.size:
            raise MethodError(
                f"method alpha: alpha = {alpha[small[0]]:g} sends no messages; its limit at 0 is "
                "naive mean field, use mf"
            )
        sizes = np.diff(graph.table_offsets)
        negative = np.repeat((alpha < 0) & (orders > 1), sizes)
        if np.any(graph.log_tables[negative] == -np.inf):
            a = int(np.searchsorted(graph.table_offsets, np.flatnonzero(negative)[0], "right")) - 1
            raise MethodError(
                f"method alpha: alpha below 0 needs tables without zeros, factor {a} has some; "
                "use alpha above 0"
            )
        return np.where(orders > 1, alpha, 1.0)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        powers = self._powers(graph, run)
        priors, constant = _priors_left(str(self.prior), run)
        multiplied = with_prior(graph, priors)
        powers = np.concatenate([powers, np.ones(multiplied.n_factors - graph.n_factors)])
        sequential = "" if self.schedule == "sequential" else " or schedule=sequential"
        way_out = f"try alpha nearer to 0.5, {more_damping(self.damping)}{sequential}"
        solution, engine = pass_messages(self, multiplied, run, powers, powers, way_out)
        attach_uniqueness_certificate(multiplied, solution, powers)
        size = graph.log_tables.size
        solution.factor_tables = lambda: engine.factor_marginals()[:size]
        assert solution.log_z is not None
        solution.log_z += constant
        return solution


# ---------------------------------------------------------------------- priors (LIU-M7)


def with_prior(graph: FactorGraph, prior: Mapping[Any, ArrayLike]) -> FactorGraph:
    """Return the model with one more factor for each entry of `prior`: {variable: distribution}.

    The distributions come from any other estimator; their information is deliberately counted
    twice. They are non-negative weights that need not sum to 1. The result is a model for any
    method.

    `graph` is the model.

    >>> model = FactorGraph([2, 2], [((0, 1), [[2, 1], [1, 2]])])
    >>> with_prior(model, {1: [0.3, 0.7]}).n_factors
    2
    """
    if not prior:
        return graph
    fields = []
    for variable, weights in prior.items():
        v = graph.index(variable)
        table = np.asarray(weights, dtype=np.float64).ravel()
        count = int(graph.cardinalities[v])
        if table.size != count or not np.all(np.isfinite(table)) or table.min() < 0:
            raise MethodError(
                f"prior of variable {graph.label(v)}: {count} finite non-negative weights are "
                f"required, got {shortened(str(table.tolist()))}"
            )
        if table.max() == 0:
            raise MethodError(f"prior of variable {graph.label(v)}: all weights are 0")
        fields.append((v, log(table)))
    return graph.with_fields(fields)


def _priors_left(text: str, run: MethodRun) -> tuple[dict[int, Array], float]:
    """Return the priors of the unobserved variables, and the log-weight of the observed ones."""
    if text == "none" or run.reduced is None:
        return {}, 0.0
    reduced = run.reduced
    left: dict[int, Array] = {}
    constant = 0.0
    for variable, weights in distributions_of(text).items():
        v = reduced.original.index(variable)
        if v not in reduced.observed:
            left[int(np.searchsorted(reduced.variables, v))] = np.array(weights)
            continue
        checked = with_prior(reduced.original, {v: weights})
        weight = float(checked.log_table(checked.n_factors - 1)[reduced.observed[v]])
        if weight == -math.inf:
            raise ImpossibleEvidenceError(
                f"variable {reduced.original.label(v)} is observed in a state that its prior "
                "excludes; change the prior or the evidence"
            )
        constant += weight
    return left, constant
