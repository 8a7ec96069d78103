"""Alpha-BP and fractional BP: message passing for other divergences than KL.

They lead from belief propagation (alpha = 1) to mean field (alpha near 0).

Reference: HOJ-X7, LIU-D2, LIU-D6, LIU-I6, LIU-I7, LIU-M7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import ImpossibleEvidenceError, MethodError
from kikuchi.core.numerics import log
from kikuchi.engines.certificates import attach_uniqueness_certificate
from kikuchi.engines.loops.iterate import iterate_to_best
from kikuchi.engines.loops.state import State
from kikuchi.engines.messages.reweighted import (
    ReweightedMessages,
    numbers_of,
    numbers_text,
    shortened,
)
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import Method, more_damping, option

_SMALLEST = 1e-6  # alpha nearer to 0 than this is mean field to working accuracy
_SWEEPS_PER_STEP = 4
_SINGLE_STEPS = 16


@dataclass(frozen=True)
class _PowerMethod(Method):
    """What both share besides `_pass_messages`."""

    objective_name: ClassVar[str] = "reweighted log Z"
    takes_start: ClassVar[bool] = True

    @property
    def text(self) -> str:
        """The method as one text; long lists of numbers are cut."""
        return shortened(super().text)


@dataclass(eq=False)
class _SweptState(State):
    """The messages of the engine, after so many sweeps."""

    messages: Array
    done: int = 0


def _sweeps(
    engine: ReweightedMessages, damping: float, limit: int, tol: float
) -> Callable[[_SweptState], Step | None]:
    """A step of one sweep at first, then of a few."""

    def sweep(state: _SweptState) -> Step | None:
        done = state.done
        many = 1 if done < _SINGLE_STEPS or tol == 0 else min(_SWEEPS_PER_STEP, limit - done)
        residual = engine.sweeps(many, damping)
        state.done += many
        return Step(state.done, residual) if math.isfinite(residual) else None

    return sweep


def _pass_messages(
    method: AlphaBP | FractionalBP,
    graph: FactorGraph,
    run: MethodRun,
    powers: Array,
    steps: Array | float,
    way_out: str,
) -> tuple[Solution, ReweightedMessages]:
    """Sweeps with given powers of the factors (1 / weight); `way_out` advises if they fail."""
    engine = ReweightedMessages(
        graph, 1.0 / powers, steps, schedule=method.schedule, budget=run.clock.budget, copies=2
    )
    if run.start is not None and run.reduced is not None:
        engine.state = run.start.messages(run.reduced, graph)
    sweep = _sweeps(engine, method.damping, run.clock.iterations(method.max_iterations), method.tol)
    state, limit = _SweptState(engine.messages), method.max_iterations
    ended = iterate_to_best(sweep, state, run, tol=method.tol, limit=limit)
    if not ended.converged:
        engine.set_messages(state.messages)
    solution = Solution(
        engine.marginals(),
        engine.log_z(),
        converged=ended.converged,
        iterations=ended.iterations,
        factor_tables=engine.factor_marginals,
        engine=engine,
        diagnostics={
            "arithmetic": engine.arithmetic,
            "residual": ended.residual if math.isfinite(ended.residual) else None,
        },
    )
    if not ended.converged:
        solution.warnings.append(
            f"{'diverged' if run.stopped == 'diverged' else 'not converged'}: the best "
            f"messages seen still change by {ended.residual:.2g}; {way_out}"
        )
    return solution, engine


@dataclass(frozen=True)
class AlphaBP(_PowerMethod):
    r"""Alpha-BP: between mean field and belief propagation.

    Each factor is replaced by a product of messages that is best in the alpha-divergence:

        m_{a->i} <- m_{a->i}^(1 - alpha) sum_{x_a \ x_i} phi_a^alpha
                    prod_{j != i} m_{a->j}^(1 - alpha) prod_{b != a} m_{b->j}.

    alpha = 1 is belief propagation, alpha -> 0 naive mean field (alpha = 0 itself moves nothing:
    use `mf`), values between lie between. Where belief propagation converges it is usually the
    more accurate; smaller alpha converges on many dense, strongly coupled graphs where it does not.
    alpha > 1 over-relaxes and needs damping, alpha < 0 is defined for positive tables only and
    rarely converges; nothing is certified outside (0, 2). `alpha` is one number, or one for each
    factor of the graph, `[0.5, 0.7, ...]` or `0.5/0.7/...` (those of factors of one variable are
    not looked at). Factors may be of any order.

    `prior` multiplies variables by distributions that another estimator gave, in Python
    {variable: distribution} or one distribution for each variable, as a text `0:0.2+0.8/3:0.6+0.4`.
    `log_z` is then that of the multiplied model. It is minus the reweighted free energy
    with weights 1 / alpha, which the fixed points make stationary: an estimate, not a bound.

    A run that does not converge answers with the messages of the smallest residual.

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
    edge_seconds: ClassVar[float] = 3e-7
    edge_bytes: ClassVar[int] = 272

    alpha: str | float | Sequence[float] = option(
        "0.5", "of the divergence: one number, or one per factor such as 0.5/0.7"
    )
    prior: str | Sequence[Any] | Mapping[int, Any] = option(
        "none", "distributions that multiply variables, such as 0:0.2+0.8/3:0.6+0.4"
    )
    schedule: Literal["parallel", "sequential"] = option(
        "parallel", "order of updates: all at once, or variable by variable"
    )
    damping: float = option(0.0, "further weight on the old message", low=0, below=1)
    tol: float = option(1e-9, "largest change of a message to stop at; 0 runs on", low=0)
    max_iterations: int = option(1000, "most sweeps over all messages", low=1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", numbers_text(self.name, "alpha", self.alpha))
        object.__setattr__(self, "prior", _prior_text(self.prior))
        super().__post_init__()

    def _powers(self, graph: FactorGraph, run: MethodRun) -> Array:
        assert isinstance(self.alpha, str)
        alpha = numbers_of(self.name, "alpha", self.alpha, run)
        orders = np.diff(graph.scope_offsets)
        small = np.flatnonzero((np.abs(alpha) < _SMALLEST) & (orders > 1))
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
        solution, engine = _pass_messages(self, multiplied, run, powers, powers, way_out)
        attach_uniqueness_certificate(multiplied, solution, powers)
        size = graph.log_tables.size
        solution.factor_tables = lambda: engine.factor_marginals()[:size]
        assert solution.log_z is not None
        solution.log_z += constant
        return solution


@dataclass(frozen=True)
class FractionalBP(_PowerMethod):
    """Fractional belief propagation: the reweighted free energy with weights 1 / fraction.

    The fixed points are those of `alpha` with alpha = fraction; the updates are the plain
    reweighted ones, without the step that alpha-BP has built in. fraction = 1 is belief
    propagation; fractions below 1 weigh the mutual informations more and tend to mean field, those
    above 1 weigh them less, as tree-reweighted weights do, which makes the free energy flatter and
    easier to minimise. One number, or one for each factor, `[0.5, 0.7, ...]` or `0.5/0.7/...`, all
    above 0. `log_z` is an estimate, not a bound: see `trw` for weights that give one.

    >>> import kikuchi as kk
    >>> ring = kk.boltzmann_graph({(0, 1): 2.0, (1, 2): -1.5, (2, 3): 1.0, (0, 3): 3.0}, [0.1] * 4)
    >>> round(FractionalBP(fraction=0.5).run(ring).log_z, 4)
    6.0908
    """

    name: ClassVar[str] = "fractional"
    edge_seconds: ClassVar[float] = 3e-7
    edge_bytes: ClassVar[int] = 272
    summary: ClassVar[str] = "fractional BP: belief propagation with weighted informations"

    fraction: str | float | Sequence[float] = option(
        "0.8", "of each factor: one number, or one per factor such as 0.8/1"
    )
    schedule: Literal["parallel", "sequential"] = option(
        "sequential", "order of updates: all at once, or variable by variable"
    )
    damping: float = option(0.0, "weight on the old log-message", low=0, below=1)
    tol: float = option(1e-9, "largest change of a message to stop at; 0 runs on", low=0)
    max_iterations: int = option(1000, "most sweeps over all messages", low=1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fraction", numbers_text(self.name, "fraction", self.fraction))
        super().__post_init__()

    def _powers(self, graph: FactorGraph, run: MethodRun) -> Array:
        assert isinstance(self.fraction, str)
        fraction = numbers_of(self.name, "fraction", self.fraction, run)
        many = np.diff(graph.scope_offsets) > 1
        if np.any(fraction[many] < _SMALLEST):
            raise MethodError(
                f"method fractional: fractions must be above 0, got {fraction[many].min():g}; the "
                "limit at 0 is naive mean field, use mf"
            )
        return np.where(many, fraction, 1.0)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        way_out = f"try {more_damping(self.damping)}, a larger fraction, or trw"
        return _pass_messages(self, graph, run, self._powers(graph, run), 1.0, way_out)[0]


# ---------------------------------------------------------------------- priors (LIU-M7)


def with_prior(graph: FactorGraph, prior: Mapping[Any, ArrayLike]) -> FactorGraph:
    """The model with one more factor for each entry of `prior`: {variable: distribution}.

    The distributions come from any other estimator; what they know is counted twice, on purpose.
    They are weights >= 0 and need not sum to 1. Every method runs on the answer.

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
                f"prior of variable {graph.label(v)}: {count} finite weights >= 0 are needed, "
                f"got {shortened(str(table.tolist()))}"
            )
        if table.max() == 0:
            raise MethodError(f"prior of variable {graph.label(v)}: all weights are 0")
        fields.append((v, log(table)))
    return graph.with_fields(fields)


def _prior_text(prior: Any) -> str:
    """The option as a text: `variable:weight+weight/...`."""
    if prior is None or (isinstance(prior, str) and prior.strip() == "none"):
        return "none"
    if isinstance(prior, str):
        rows = _read_prior(prior)
    elif isinstance(prior, Mapping):
        rows = dict(prior)
    else:
        rows = dict(enumerate(prior))
    parts = []
    for variable, weights in rows.items():
        if weights is None:
            continue
        values = np.asarray(weights, dtype=np.float64).ravel().tolist()
        if not isinstance(variable, int | np.integer) or variable < 0 or not values:
            raise _bad_prior(prior)
        parts.append(f"{int(variable)}:" + "+".join(_unsigned(v) for v in values))
    return "/".join(parts) or "none"


def _unsigned(value: float) -> str:
    """A number without a + in its exponent, which separates weights."""
    return repr(value).replace("e+", "e")


def _read_prior(text: str) -> dict[int, list[float]]:
    rows: dict[int, list[float]] = {}
    for part in text.split("/"):
        variable, _, weights = part.partition(":")
        try:
            rows[int(variable)] = [float(w) for w in weights.split("+")]
        except ValueError:
            raise _bad_prior(text) from None
    return rows


def _bad_prior(prior: Any) -> MethodError:
    return MethodError(
        "method alpha: option prior must be none, {variable number: distribution} or a text such "
        f"as 0:0.2+0.8/3:0.6+0.4, got {shortened(repr(prior))}"
    )


def _priors_left(text: str, run: MethodRun) -> tuple[dict[int, Array], float]:
    """Priors of the variables that evidence has left, and the log-weight of the observed ones."""
    if text == "none" or run.reduced is None:
        return {}, 0.0
    reduced = run.reduced
    left: dict[int, Array] = {}
    constant = 0.0
    for variable, weights in _read_prior(text).items():
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
