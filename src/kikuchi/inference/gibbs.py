"""Gibbs sampling: marginals as averages over Markov chains, with their diagnostics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kikuchi.core import diagnostics, seeds
from kikuchi.core.errors import KikuchiError
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.inference.feasibility import Constraints
from kikuchi.inference.flat import Bits, FlatGraph, bits_form, flatten
from kikuchi.inference.method import Method, Run, Solution, Step, option

Array = NDArray[np.float64]

_WANTED_DRAWS = 500  # kept of each chain for R-hat and ESS when `thin` is not given
_DRAW_BYTES = 5 * 10**8
_FEW_DRAWS = 20  # below this, R-hat says nothing
_ESS_PER_CHAIN = 100
_LARGEST_EXPONENT = 700.0  # of e^x in double precision, with a margin
_CHUNK_UPDATES = 4e6  # variable updates between two looks at the clock: about 30 ms
_DIAGNOSED_AT_ONCE = 2**21  # numbers in a block of draws


@dataclass(frozen=True)
class Gibbs(Method):
    """Sample each variable from its conditional given the rest, sweep after sweep.

    Rows TEH-I3 and LAW-I2. Several independent chains start from random states. The marginals are
    Rao-Blackwellised: averages of the conditionals p(x_i | rest) and not of the states. Factor
    beliefs are counts over the recorded sweeps, so they agree with the marginals only up to
    sampling error. There is no estimate of log Z; the weight of the best state met is a
    certified lower bound on Z, answered with that state.

    `diagnostics` has `rhat` and `ess`, one number a variable (the worst over its states), and
    `max_rhat`, `min_ess`. `converged` means that the largest split R-hat is at most `rhat`: a
    necessary sign of agreement between the chains, never a proof.

    >>> import kikuchi as kk
    >>> beliefs = kk.infer(kk.FactorGraph([2, 2], [((0, 1), [[4, 1], [1, 4]])]), "gibbs:seed=1")
    >>> bool(abs(beliefs[0][1] - 0.5) < 0.05), beliefs.diagnostics["chains"]
    (True, 4)
    """

    name: ClassVar[str] = "gibbs"
    summary: ClassVar[str] = "Gibbs sampling with several chains, R-hat and effective sample size"
    objective_name: ClassVar[str] = "mean log-weight of the chains"

    chains: int = option(4, "independent chains", low=1, high=4096)
    sweeps: int = option(2000, "sweeps kept of each chain", low=1)
    burn_in: int = option(500, "sweeps of each chain thrown away first", low=0)
    schedule: Literal["sequential", "chromatic"] = option(
        "sequential", "variables in order, or colour by colour (no two neighbours share one)"
    )
    thin: int | None = option(
        None, "record every so many sweeps for R-hat, ESS and factors; none: about 500", low=1
    )
    rhat: float = option(1.01, "largest split R-hat that counts as converged", above=1.0)
    seed: int = option(0, "seed of the chains", low=0)

    def _solve(self, graph: FactorGraph, run: Run) -> Solution:
        chains = _Chains(self, graph, run)
        run.iterate(chains.steps(), tol=0.0, limit=chains.burn_in + chains.sweeps)
        return chains.solution()


def conditional(graph: FactorGraph, variable: int, state: NDArray[np.int64]) -> Array:
    """p(x_variable | the rest of `state`): what a Gibbs update draws from.

    >>> pair = FactorGraph([2, 2], [((0, 1), [[1, 2], [3, 4]])])
    >>> conditional(pair, 0, np.array([0, 0])).tolist()
    [0.25, 0.75]
    """
    from kikuchi.inference.kernels.gibbs import conditional_weights

    sweeper = _TableSweeper(flatten(graph), 1, np.arange(graph.n_variables))
    sweeper.set(np.asarray(state)[:, None])
    v = np.uint64(variable)
    total = conditional_weights(
        sweeper.flat,
        v,
        np.uint64(state[variable]),
        np.uint64(0),
        sweeper.rows,
        sweeper.row_factors,
        sweeper.row_strides,
        sweeper.entries,
        sweeper.field,
    )
    return np.asarray(sweeper.field[: int(graph.cardinalities[variable])] / total)


def colouring(graph: FactorGraph) -> NDArray[np.int64]:
    """A colour for each variable, different for variables that share a factor.

    Greedy, from the variable with most neighbours to that with fewest. Variables of one colour
    are independent given the rest, so a sweep colour by colour may update each colour at once.

    >>> chain = [((0, 1), np.ones(4)), ((1, 2), np.ones(4))]
    >>> colouring(FactorGraph([2, 2, 2], chain)).tolist()
    [1, 0, 1]
    """
    from kikuchi.inference.kernels.gibbs import greedy_colours

    pairs = graph.pairs().astype(np.int64)
    both = np.concatenate([pairs, pairs[:, ::-1]])
    both = both[np.argsort(both[:, 0], kind="stable")]
    degrees = np.bincount(both[:, 0], minlength=graph.n_variables)
    offsets = np.concatenate([[0], np.cumsum(degrees)]).astype(np.uint32)
    order = np.argsort(-degrees, kind="stable").astype(np.uint32)
    colours: NDArray[np.int64] = greedy_colours(offsets, both[:, 1].astype(np.uint32), order)
    return colours


class _Chains:
    """All chains of one run: where they are and what has been kept of them."""

    def __init__(self, method: Gibbs, graph: FactorGraph, run: Run) -> None:
        self.method = method
        self.graph = graph
        self.run = run
        self.warnings: list[str] = []
        self.burn_in, self.sweeps = self._lengths()
        self.thin = self._thinning()
        flat = flatten(graph)
        self.sweeper = _sweeper(graph, flat, method.chains, _update_order(graph, method.schedule))
        self.sweeper.set(self._starts(flat))
        self.sweeper.seed(seeds.kernel_seeds(method.seed, method.chains))
        self.sweeper.allocate(max(1, self.sweeps // self.thin))
        self.burned = 0
        self.kept = 0

    def _lengths(self) -> tuple[int, int]:
        """Sweeps to throw away and to keep, both cut alike by a budget of iterations."""
        wanted = self.method.burn_in + self.method.sweeps
        allowed = self.run.clock.iterations(wanted)
        burn_in = self.method.burn_in * allowed // wanted
        return burn_in, allowed - burn_in

    def _thinning(self) -> int:
        budget = self.run.clock.budget
        a_draw = self.graph.n_variables * self.method.chains * _state_type(self.graph).itemsize
        if self.method.thin is not None:
            budget.require_bytes(
                a_draw * (self.sweeps // self.method.thin), "keeping the draws", "raise thin"
            )
            return self.method.thin
        room = min(_DRAW_BYTES, budget.bytes // 4 if budget.bytes is not None else _DRAW_BYTES)
        draws = max(1, min(_WANTED_DRAWS, room // a_draw))
        return -(-self.sweeps // draws)

    def _starts(self, flat: FlatGraph) -> NDArray[np.int64]:
        """One state of positive weight for each chain, as different as can be."""
        rng = seeds.generator([self.method.seed, 1])
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

    def steps(self) -> Iterator[Step]:
        """Burn in, then keep, in chunks."""
        updates = self.graph.n_variables * self.method.chains
        chunk = max(1, int(_CHUNK_UPDATES / updates))
        while self.burned < self.burn_in:
            many = min(chunk, self.burn_in - self.burned)
            self.sweeper.burn(many)
            self.burned += many
            yield self._step()
        while self.kept < self.sweeps:
            self._keep(min(chunk, self.sweeps - self.kept))
            yield self._step()

    def _keep(self, many: int) -> None:
        self.sweeper.sample(self.kept, many, self.thin)
        self.kept += many

    def _step(self) -> Step:
        return Step(self.burned + self.kept, objective=self.sweeper.mean_score())

    # ------------------------------------------------------------------ answer

    def solution(self) -> Solution:
        """What the sweeps so far say."""
        method = self.method
        if self.kept == 0:
            self.warnings.append("the run ended during burn-in; the marginals are of one sweep")
            self.thin = 1
            self._keep(1)
        rhat, ess = self._diagnose()
        converged = rhat is not None and float(rhat.max()) <= method.rhat
        if self.run.stopped == "iterations" and converged:
            self.run.stopped = "converged"
        best = self.sweeper.best()
        found: dict[str, Any] = {
            "chains": method.chains,
            "sweeps": self.kept,
            "burn_in": self.burned,
            "thin": self.thin,
            "path": self.sweeper.path,
        }
        if rhat is not None and ess is not None:
            found |= {"rhat": rhat, "ess": ess}
            found |= {"max_rhat": float(rhat.max()), "min_ess": float(ess.min())}
        return Solution(
            marginals=_normalised(self.graph, self.sweeper.sums()),
            converged=converged,
            iterations=self.burned + self.kept,
            log_z_lower=None if best is None else best[1],
            state=None if best is None else best[0],
            score=None if best is None else best[1],
            factor_tables=self._factor_tables,
            warnings=self.warnings,
            diagnostics=found,
        )

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
        rhat, ess = _worst_over_states(draws, self.graph.cardinalities)
        if float(rhat.max()) > self.method.rhat:
            v = int(rhat.argmax())
            self.warnings.append(
                f"the chains disagree: split R-hat is {rhat[v]:.3f} for variable "
                f"{self.graph.label(v)} and above {self.method.rhat:g} for "
                f"{int((rhat > self.method.rhat).sum())} of {len(rhat)}; more sweeps are needed"
            )
        enough = _ESS_PER_CHAIN * self.method.chains
        if float(ess.min()) < enough:
            v = int(ess.argmin())
            self.warnings.append(
                f"the effective sample size is {ess[v]:.0f} for variable {self.graph.label(v)} and "
                f"below {enough} for {int((ess < enough).sum())} of {len(ess)}; "
                "more sweeps are needed"
            )
        return rhat, ess

    def _factor_tables(self) -> Array:
        counts = self.sweeper.counts.astype(np.float64)
        if self.graph.n_factors == 0:
            return counts
        sums = np.add.reduceat(counts, self.graph.table_offsets[:-1])
        return np.asarray(counts / np.repeat(sums, np.diff(self.graph.table_offsets)))


# ---------------------------------------------------------------------- sweepers


class _Sweeper(ABC):
    """Chains in lock step: states, random streams and sums, and the kernels that move them."""

    path: ClassVar[str]

    def __init__(self, flat: FlatGraph, chains: int, dtype: np.dtype[Any]) -> None:
        self.flat = flat
        self.chains = chains
        self.states = np.zeros(flat.n_variables * chains, dtype=dtype)
        self.entries = np.zeros(flat.n_factors * chains, dtype=np.uint64)
        self.counts = np.zeros(flat.log_tables.size, dtype=np.int64)
        self._best = np.array([-np.inf])
        self._best_state = np.zeros(flat.n_variables, dtype=np.int64)

    def set(self, states: NDArray[np.int64]) -> None:
        """Put chain c at `states[:, c]`."""
        from kikuchi.inference.kernels.gibbs import locate

        self.states[:] = states.ravel()
        locate(self.flat, self.states, self.entries)

    def seed(self, words: NDArray[np.uint64]) -> None:
        """Give each chain its own random stream."""
        from kikuchi.inference.kernels.gibbs import seed_streams

        self.streams = seed_streams(words)

    def allocate(self, draws: int) -> None:
        """Make room for the recorded states."""
        self.draws = np.zeros((draws, len(self.states)), dtype=self.states.dtype)

    def mean_score(self) -> float:
        """Mean log-weight of the chains' states."""
        from kikuchi.inference.kernels.gibbs import chain_scores, locate

        locate(self.flat, self.states, self.entries)
        return float(chain_scores(self.flat, self.chains, self.entries).mean())

    def best(self) -> tuple[NDArray[np.int64], float] | None:
        """The recorded state of largest weight and its log-weight."""
        if self._best[0] == -np.inf:
            return None
        return self._best_state.copy(), float(self._best[0])

    @abstractmethod
    def burn(self, sweeps: int) -> None:
        """Sweep and keep nothing."""

    @abstractmethod
    def sample(self, first: int, sweeps: int, thin: int) -> None:
        """Sweep, add up the conditionals, record every `thin`-th state."""

    @abstractmethod
    def sums(self) -> Array:
        """Summed conditionals, flat as the marginals."""


class _BitSweeper(_Sweeper):
    """Positive binary pairwise models: products of odds, no exponential."""

    path = "bits"

    def __init__(
        self, flat: FlatGraph, bits: Bits, chains: int, order: NDArray[np.int64]
    ) -> None:
        super().__init__(flat, chains, np.dtype(np.uint8))
        self._order = order
        degrees = np.diff(bits.offsets.astype(np.int64))[order]
        offsets = np.concatenate([[0], np.cumsum(degrees)])
        first = bits.offsets[:-1].astype(np.int64)[order]
        gather = np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], degrees)
        multipliers = np.ones((len(gather), 2))
        multipliers[:, 1] = np.exp(bits.weights[gather])
        self._rows = (
            (order * chains).astype(np.uint64),
            offsets.astype(np.uint64),
            bits.neighbours[gather].astype(np.uint64) * np.uint64(chains),
            multipliers.ravel(),
            np.exp(bits.biases[order]),
        )
        self._sums = np.zeros(flat.n_variables)
        self._sweeps = 0

    def burn(self, sweeps: int) -> None:
        from kikuchi.inference.kernels.gibbs import burn_bits

        burn_bits(*self._rows, self.states, self.streams, sweeps, self._sums)

    def sample(self, first: int, sweeps: int, thin: int) -> None:
        from kikuchi.inference.kernels.gibbs import sample_bits

        sample_bits(
            self.flat,
            *self._rows,
            self.states,
            self.streams,
            first,
            sweeps,
            thin,
            self._sums,
            self.entries,
            self.draws,
            self.counts,
            self._best,
            self._best_state,
        )
        self._sweeps += sweeps

    def sums(self) -> Array:
        ones = np.empty(len(self._sums))
        ones[self._order] = self._sums
        return np.stack([self._sweeps * self.chains - ones, ones], axis=1).ravel()


class _TableSweeper(_Sweeper):
    """Any cardinalities, any order, zeros."""

    path = "tables"

    def __init__(self, flat: FlatGraph, chains: int, order: NDArray[np.int64]) -> None:
        super().__init__(flat, chains, _state_dtype(flat.max_card))
        self.rows = flat.variable_offsets.astype(np.uint64)
        factors = flat.edge_factors[flat.variable_edges]
        self.row_factors = factors.astype(np.uint64) * np.uint64(chains)
        self.row_strides = flat.edge_strides[flat.variable_edges].astype(np.uint64)
        self.field = np.zeros(flat.max_card)
        self._order = order.astype(np.uint64)
        self._sums = np.zeros(int(flat.state_offsets[-1]))

    @property
    def _rows(self) -> tuple[NDArray[np.uint64], ...]:
        return self._order, self.rows, self.row_factors, self.row_strides

    def burn(self, sweeps: int) -> None:
        from kikuchi.inference.kernels.gibbs import burn_tables

        burn_tables(
            self.flat,
            *self._rows,
            self.states,
            self.streams,
            sweeps,
            self.field,
            self._sums,
            self.entries,
        )

    def sample(self, first: int, sweeps: int, thin: int) -> None:
        from kikuchi.inference.kernels.gibbs import sample_tables

        sample_tables(
            self.flat,
            *self._rows,
            self.states,
            self.streams,
            first,
            sweeps,
            thin,
            self.field,
            self._sums,
            self.entries,
            self.draws,
            self.counts,
            self._best,
            self._best_state,
        )

    def sums(self) -> Array:
        return self._sums


def _sweeper(
    graph: FactorGraph, flat: FlatGraph, chains: int, order: NDArray[np.int64]
) -> _Sweeper:
    bits = bits_form(graph)
    if bits is not None and _odds_fit(bits):
        return _BitSweeper(flat, bits, chains, order)
    return _TableSweeper(flat, chains, order)


def _odds_fit(bits: Bits) -> bool:
    """Whether no product of odds can leave the range of double precision."""
    rows = np.repeat(np.arange(len(bits.biases)), np.diff(bits.offsets.astype(np.int64)))
    reach = np.abs(bits.biases)
    reach += np.bincount(rows, weights=np.abs(bits.weights), minlength=len(reach))
    return bool(np.all(reach < _LARGEST_EXPONENT))


def _update_order(graph: FactorGraph, schedule: str) -> NDArray[np.int64]:
    if schedule == "sequential":
        return np.arange(graph.n_variables)
    return np.argsort(colouring(graph), kind="stable")


def _state_dtype(max_card: int) -> np.dtype[Any]:
    return np.dtype(np.uint8 if max_card <= 256 else np.uint32)


def _state_type(graph: FactorGraph) -> np.dtype[Any]:
    return _state_dtype(int(graph.cardinalities.max()))


def _normalised(graph: FactorGraph, sums: Array) -> Array:
    totals = np.add.reduceat(sums, graph.state_offsets[:-1])
    return np.asarray(sums / np.repeat(totals, graph.cardinalities))


def _worst_over_states(
    draws: NDArray[Any], cards: NDArray[np.uint32]
) -> tuple[Array, Array]:
    """Largest split R-hat and smallest ESS over the indicators of each variable's states."""
    number, n, chains = draws.shape
    rhat, ess = np.ones(n), np.full(n, float(number * chains))
    block = max(1, _DIAGNOSED_AT_ONCE // (number * chains))
    for k in range(int(cards.max())):
        # the two indicators of a binary variable mirror each other: one is enough
        concerned = np.flatnonzero((cards > k) & ((cards > 2) | (k == 1)))
        for start in range(0, len(concerned), block):
            some = concerned[start : start + block]
            series = np.ascontiguousarray((draws[:, some] == k).transpose(2, 0, 1))
            rhat[some] = np.maximum(rhat[some], diagnostics.split_rhat(series))
            ess[some] = np.minimum(ess[some], diagnostics.effective_sample_size(series))
    return rhat, ess
