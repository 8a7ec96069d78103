"""Gibbs sampling: marginals as averages over Markov chains, with diagnostics.

Reference: LAW-I2, TEH-I3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kikuchi.core import seeds
from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.errors import KikuchiError
from kikuchi.engines.feasibility import Constraints
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.run import MethodRun, Solution, Step
from kikuchi.engines.sampling.sweepers import TableSweeper, make_sweeper, state_dtype
from kikuchi.graphs.factor_graph import Conditioned, FactorGraph
from kikuchi.graphs.graph_arrays import GraphArrays, flatten
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.method import Method, option

_WANTED_DRAWS = 500  # minimum number of records of each chain, if `thin` is not given
_CHEAP_BYTES = 2**24  # every sweep is recorded if that takes no more than this
_MOST_BYTES = 5 * 10**8
_FEW_DRAWS = 20  # below this, R-hat is not informative
_ESS_PER_CHAIN = 100
_CHUNK_UPDATES = 4e6  # variable updates between two checks of the clock: about 30 ms
_DIAGNOSED_AT_ONCE = 2**22  # recorded states in a block


@dataclass(frozen=True)
class Gibbs(Method):
    """Gibbs sampling: draw each variable from its conditional given the rest, sweep after sweep.

    Several independent chains start from random states. The marginals are Rao-Blackwellised:
    averages of the conditionals p(x_i | rest), not of the states. Factor beliefs are counts over
    the recorded sweeps, so they agree with the marginals only up to sampling error. There is no
    estimate of log Z; the weight of the best visited state is a certified lower bound on Z,
    returned with that state.

    `diagnostics` has `rhat` and `ess`, one number per variable (the worst over its states), and
    `max_rhat`, `min_ess`. `converged` means that the largest split R-hat is at most `rhat`: a
    necessary condition for agreement between the chains, not a proof.

    >>> import kikuchi as kk
    >>> beliefs = kk.infer(kk.FactorGraph([2, 2], [((0, 1), [[4, 1], [1, 4]])]), "gibbs:seed=1")
    >>> bool(abs(beliefs[0][1] - 0.5) < 0.05), beliefs.diagnostics["chains"]
    (True, 4)
    """

    most_interpreted: ClassVar[int] = 0
    name: ClassVar[str] = "gibbs"
    summary: ClassVar[str] = "Gibbs sampling with several chains, R-hat and effective sample size"
    objective_name: ClassVar[str] = "mean log-weight of the chains"
    certifies = ("lower",)
    gives_log_z: ClassVar[bool] = False
    caveat_with_zeros: ClassVar[str] = "zeros may disconnect the state space"

    chains: int = option(4, "independent chains", low=1, high=4096)
    sweeps: int = option(2000, "recorded sweeps of each chain", low=1)
    burn_in: int = option(500, "initial sweeps of each chain that are discarded", low=0)
    schedule: Literal["sequential", "chromatic"] = option(
        "sequential", "variables in order, or by colour (neighbours have different colours)"
    )
    thin: int | None = option(
        None,
        "interval of recorded sweeps for R-hat, ESS and factors; none: as memory allows",
        low=1,
    )
    rhat: float = option(1.01, "largest split R-hat that counts as converged", above=1.0)
    seed: int = option(0, "seed of the chains", low=0)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        chains = _Chains(self, graph, run)
        limit = chains.burn_in + chains.sweeps
        iterate(chains.step, Iterations(), run, tol=0.0, limit=limit)
        return chains.solution()

    def _answer(self, reduced: Conditioned, solution: Solution, run: MethodRun) -> Beliefs:
        """Return the diagnostics of every variable of the original graph; observed ones are
        certain.
        """
        found = solution.diagnostics
        if "rhat" in found:
            sure = {"rhat": 1.0, "ess": float(found["draws"] * found["chains"])}
            for name, value in sure.items():
                full = np.full(reduced.original.n_variables, value)
                full[reduced.variables] = found[name]
                found[name] = full
            solution.warnings += self._doubts(reduced.original, found["rhat"], found["ess"])
        return super()._answer(reduced, solution, run)

    def _doubts(self, graph: FactorGraph, rhat: Array, ess: Array) -> list[str]:
        doubts = []
        high, worst = int((rhat > self.rhat).sum()), int(rhat.argmax())
        if high:
            doubts.append(
                f"the chains disagree: split R-hat is {rhat[worst]:.3f} for variable "
                f"{graph.label(worst)} and above {self.rhat:g} for {high} of {len(rhat)}; "
                "more sweeps are needed"
            )
        enough = _ESS_PER_CHAIN * self.chains
        low, worst = int((ess < enough).sum()), int(ess.argmin())
        if low:
            doubts.append(
                f"the effective sample size is {ess[worst]:.0f} for variable {graph.label(worst)} "
                f"and below {enough} for {low} of {len(ess)}; more sweeps are needed"
            )
        return doubts


def conditional(graph: FactorGraph, variable: int, state: Ints) -> Array:
    """Return p(x_variable | the rest of `state`), the distribution of a Gibbs update.

    >>> pair = FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    >>> conditional(pair, 0, np.array([0, 0])).tolist()
    [0.25, 0.75]
    """
    from kikuchi.engines.sampling.kernels.gibbs import conditional_log_weights

    sweeper = TableSweeper(flatten(graph), 1, np.arange(graph.n_variables))
    sweeper.set(np.asarray(state)[:, None])
    rows, card = sweeper.rows, int(graph.cardinalities[variable])
    top = conditional_log_weights(
        graph.log_tables,
        np.uint64(card),
        (rows.offsets[variable], rows.offsets[variable + 1]),
        (np.uint64(state[variable]), np.uint64(0)),
        rows.factors,
        rows.strides,
        sweeper.entries,
        sweeper.field,
    )
    weights = np.exp(sweeper.field[:card] - top)
    return np.asarray(weights / weights.sum())


def colouring(graph: FactorGraph) -> Ints:
    """Return a colour for each variable, different for variables that share a factor.

    The colouring is greedy in breadth-first order, which uses two colours if two are enough.
    Variables of one colour are independent given the rest, so a sweep colour by colour could
    update each colour at once.

    >>> chain = [((0, 1), np.ones(4)), ((1, 2), np.ones(4))]
    >>> colouring(FactorGraph([2, 2, 2], chain)).tolist()
    [1, 0, 1]
    """
    from kikuchi.engines.kernels.feasibility import breadth_first
    from kikuchi.engines.sampling.kernels.gibbs import greedy_colours

    pairs = graph.pairs().astype(np.int64)
    both = np.concatenate([pairs, pairs[:, ::-1]])
    both = both[np.argsort(both[:, 0], kind="stable")]
    degrees = np.bincount(both[:, 0], minlength=graph.n_variables)
    offsets = np.concatenate([[0], np.cumsum(degrees)]).astype(np.uint32)
    roots = np.argsort(-degrees, kind="stable").astype(np.int64)
    order = breadth_first(flatten(graph), np.ones(graph.n_factors, dtype=np.uint8), roots)
    colours: Ints = greedy_colours(offsets, both[:, 1].astype(np.uint32), order.astype(np.uint32))
    return colours


class _Chains:
    """All chains of one run: their states and records."""

    def __init__(self, method: Gibbs, graph: FactorGraph, run: MethodRun) -> None:
        self.method = method
        self.graph = graph
        self.run = run
        self.warnings: list[str] = []
        self.burn_in, self.sweeps = self._lengths()
        self.thin = self._thinning()
        flat = flatten(graph)
        self.sweeper = make_sweeper(
            graph, flat, method.chains, _update_order(graph, method.schedule)
        )
        self.sweeper.set(self._starts(flat))
        self.sweeper.seed(seeds.kernel_seeds(method.seed, method.chains))
        self.sweeper.allocate(self.sweeps // self.thin)
        self.burned = 0

    @property
    def kept(self) -> int:
        """Number of recorded sweeps so far."""
        return int(self.sweeper.kept[0])

    def _lengths(self) -> tuple[int, int]:
        """Return the numbers of discarded and recorded sweeps, both reduced in proportion by a
        budget of iterations.
        """
        wanted = self.method.burn_in + self.method.sweeps
        allowed = self.run.clock.iterations(wanted)
        burn_in = self.method.burn_in * allowed // wanted
        return burn_in, allowed - burn_in

    def _thinning(self) -> int:
        budget = self.run.clock.budget
        a_draw = self.graph.n_variables * self.method.chains * _state_type(self.graph).itemsize
        if self.method.thin is not None:
            budget.require_bytes(
                a_draw * (self.sweeps // self.method.thin), "storing the draws", "raise thin"
            )
            return min(self.method.thin, self.sweeps)
        memory = min(_MOST_BYTES, budget.bytes // 4 if budget.bytes is not None else _MOST_BYTES)
        draws = max(1, min(max(_WANTED_DRAWS, _CHEAP_BYTES // a_draw), memory // a_draw))
        return -(-self.sweeps // draws)

    def _starts(self, flat: GraphArrays) -> Ints:
        """Return one state of positive weight for each chain, as different as possible."""
        rng = seeds.generator(np.random.SeedSequence([self.method.seed, 1]))
        shape = (self.graph.n_variables, self.method.chains)
        if np.all(flat.log_tables > -np.inf):
            return rng.integers(0, flat.cards.astype(np.int64)[:, None], size=shape)
        constraints = Constraints(flat)
        if constraints.binding:
            self.warnings.append(
                "the tables have zeros: changing one variable at a time may not reach every "
                "state, and R-hat cannot see states that no chain visits"
            )
        states = np.empty(shape, dtype=np.int64)
        for c in range(self.method.chains):
            wish = rng.random(int(flat.state_offsets[-1]))
            found = constraints.find_state(wish, rng, self.run.clock)
            if found is None:
                raise KikuchiError(
                    "gibbs found no state of positive weight to start from; use jt or bp, "
                    "allow more seconds, or observe variables that settle the hard constraints"
                )
            states[:, c] = found
        return states

    def step(self, state: Iterations) -> Step | None:
        """Make a chunk of sweeps: burn-in first, then recorded sweeps."""
        updates = self.graph.n_variables * self.method.chains
        chunk = max(1, int(_CHUNK_UPDATES / updates))
        if self.burned < self.burn_in:
            many = min(chunk, self.burn_in - self.burned)
            self.sweeper.burn(many)
            self.burned += many
        elif self.kept < self.sweeps:
            self.sweeper.sample(min(chunk, self.sweeps - self.kept), self.thin)
        else:
            return None
        state.done = self.burned + self.kept
        return Step(state.done, objective=self.sweeper.mean_score())

    # ------------------------------------------------------------------ answer

    def solution(self) -> Solution:
        """Return the solution from the sweeps so far."""
        method = self.method
        if self.kept < self.sweeps:
            self.warnings.append(
                f"stopped after {self.burned + self.kept} of {self.burn_in + self.sweeps} sweeps"
                + ("" if self.kept else ", during burn-in: the marginals are not reliable")
            )
        if self.kept < self.thin:  # even an interrupted run records one state, so it has a result
            self.sweeper.sample(self.thin - self.kept, self.thin)
        rhat, ess = self._diagnose()
        agree = rhat is not None and float(rhat.max()) <= method.rhat
        converged = agree and self.run.stopped != "interrupted"
        if self.run.stopped == "iterations" and converged:
            self.run.stopped = "converged"
        state, score = self._best()
        found: dict[str, Any] = {
            "chains": method.chains,
            "sweeps": self.kept,
            "burn_in": self.burned,
            "thin": self.thin,
            "draws": len(self._draws),
            "path": self.sweeper.path,
        }
        if rhat is not None and ess is not None:
            found |= {"rhat": rhat, "ess": ess}
            found |= {"max_rhat": float(rhat.max()), "min_ess": float(ess.min())}
        return Solution(
            marginals=_normalised(self.graph, self.sweeper.sums()),
            converged=converged,
            iterations=self.burned + self.kept,
            log_z_lower=score,
            state=state,
            score=score,
            factor_tables=self._factor_tables,
            warnings=self.warnings,
            diagnostics=found,
        )

    def _best(self) -> tuple[Ints, float]:
        """Return the recorded state of largest weight and its log-weight."""
        scores = self.sweeper.scores[: self.kept // self.thin]
        number, chain = np.unravel_index(int(scores.argmax()), scores.shape)
        state = self._draws[number, :, chain].astype(np.int64)
        return state, float(self.graph.log_score(state)) - self.graph.log_constant

    @property
    def _draws(self) -> NDArray[Any]:
        """Recorded states, shaped (draws, variables, chains)."""
        number = self.kept // self.thin
        shape = (number, self.graph.n_variables, self.method.chains)
        return self.sweeper.draws[:number].reshape(shape)

    def _diagnose(self) -> tuple[Array | None, Array | None]:
        draws = self._draws
        if len(draws) < _FEW_DRAWS:
            self.warnings.append(
                f"only {len(draws)} draws a chain were recorded, too few for R-hat; "
                "allow more sweeps or lower thin"
            )
            return None, None
        return _worst_over_states(draws, self.graph.cardinalities)

    def _factor_tables(self) -> Array:
        return self.sweeper.entry_counts(self.kept // self.thin) / (
            self.kept // self.thin * self.method.chains
        )


# ---------------------------------------------------------------------- parts


def _update_order(graph: FactorGraph, schedule: str) -> Ints:
    if schedule == "sequential":
        return np.arange(graph.n_variables)
    return np.argsort(colouring(graph), kind="stable")


def _state_type(graph: FactorGraph) -> np.dtype[Any]:
    return state_dtype(int(graph.cardinalities.max()))


def _normalised(graph: FactorGraph, sums: Array) -> Array:
    totals = np.add.reduceat(sums, graph.state_offsets[:-1])
    return np.asarray(sums / np.repeat(totals, graph.cardinalities))


def _worst_over_states(draws: NDArray[Any], cards: U4) -> tuple[Array, Array]:
    """Largest split R-hat and smallest ESS over the indicators of each variable's states."""
    from kikuchi.engines.sampling.kernels.gibbs import indicator_diagnostics

    number, n, chains = draws.shape
    rhat, ess = np.empty(n), np.empty(n)
    block = max(1, _DIAGNOSED_AT_ONCE // (number * chains))
    for start in range(0, n, block):
        some = slice(start, start + block)
        series = np.ascontiguousarray(draws[:, some].transpose(1, 2, 0))
        indicator_diagnostics(series, cards[some], rhat[some], ess[some])
    return rhat, ess
