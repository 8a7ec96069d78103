"""Samples of a model: exact from a junction tree where it fits, otherwise from Gibbs chains.

Reference: LIU-I1, TEH-I3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import numpy as np

from kikuchi.core import seeds
from kikuchi.core.arrays import Ints
from kikuchi.core.budget import Budget, RunLimits, limits, named_limits
from kikuchi.core.errors import BudgetError, KikuchiError, MethodError
from kikuchi.engines.feasibility import Constraints
from kikuchi.engines.sampling.sweepers import make_sweeper
from kikuchi.engines.trees.calibrated import plan
from kikuchi.graphs.conditioned import expand_states
from kikuchi.graphs.factor_graph import Evidence, FactorGraph, check_graph
from kikuchi.graphs.graph_arrays import flatten

_MOST_CHAINS = 64
_BURN_IN = 1000  # sweeps
_THIN = 20  # sweeps between two samples of a chain


@dataclass(frozen=True, eq=False)
class Samples:
    """Rows of states, and how they were drawn: exact ones are independent, Gibbs ones are not."""

    states: Ints
    exact: bool
    how: str

    def __repr__(self) -> str:
        rows, variables = self.states.shape
        return f"Samples({rows} rows of {variables} variables: {self.how})"


@named_limits
def draw_samples(
    graph: FactorGraph,
    n: int,
    *,
    evidence: Evidence | None = None,
    seed: int = 0,
    **within: Unpack[RunLimits],
) -> Samples:
    """`n` samples given evidence.

    Exact if the junction tree fits the memory of the budget; otherwise states of Gibbs chains,
    taken every few sweeps after a burn-in, so neither exact nor independent.

    Parameters
    ----------
    graph : the model.
    n : how many.
    evidence : observed states by variable, both by name or number.
    seed : of the draws.
    budget, seconds, memory : limits of the run: a budget, or seconds and memory.

    >>> coin = FactorGraph([2], [((0,), [1, 3])])
    >>> samples = draw_samples(coin, 1000, seed=1)
    >>> samples.exact, bool(abs(samples.states.mean() - 0.75) < 0.05)
    (True, True)
    """
    check_graph(graph, "draw_samples")
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise MethodError(f"the number of samples must be an integer of at least 0, got {n!r}")
    budget = limits(**within)
    try:
        found = plan(graph, evidence=evidence)
        states = found.calibrate(budget=budget).sample(n, seed=seed)
        return Samples(states, True, f"exact, from a junction tree of width {found.width}")
    except BudgetError as error:
        return _by_gibbs(graph, n, evidence, seed, budget, str(error))


def _by_gibbs(
    graph: FactorGraph, n: int, evidence: Evidence | None, seed: int, budget: Budget, why: str
) -> Samples:
    reduced = graph.reduce(graph.resolve(evidence))
    chains = max(1, min(n, _MOST_CHAINS))
    draws = -(-n // chains)
    flat = flatten(reduced.graph)
    n_variables = reduced.graph.n_variables
    budget.require_bytes(
        8 * draws * chains * graph.n_variables, f"{n} samples", "request fewer samples"
    )
    sweeper = make_sweeper(reduced.graph, flat, chains, np.arange(n_variables))
    sweeper.set(_starts(reduced.graph, chains, seed, budget))
    sweeper.seed(seeds.kernel_seeds(seed, chains))
    clock = budget.start()
    out = np.empty((draws, chains, n_variables), dtype=np.int64)
    sweeper.burn(_BURN_IN)
    for k in range(draws):
        sweeper.burn(_THIN)
        out[k] = sweeper.states.reshape(n_variables, chains).T
        if clock.expired and k + 1 < draws:
            raise BudgetError(
                f"the time ended after {(k + 1) * chains} of {n} samples; allow more seconds or "
                "request fewer"
            )
    states = expand_states(reduced, out.reshape(draws * chains, n_variables)[:n])
    how = (
        f"Gibbs, {chains} chains, every {_THIN} sweeps after {_BURN_IN}: neither exact nor "
        f"independent ({why.partition(';')[0]})"
    )
    return Samples(states, False, how)


def _starts(graph: FactorGraph, chains: int, seed: int, budget: Budget) -> Ints:
    """A state of positive weight for each chain."""
    rng = seeds.generator(np.random.SeedSequence([seed, 1]))
    cards = graph.cardinalities.astype(np.int64)
    if np.all(np.isfinite(graph.log_tables)):
        return rng.integers(0, cards[:, None], size=(graph.n_variables, chains))
    constraints = Constraints(flatten(graph))
    clock = budget.start()
    states = np.empty((graph.n_variables, chains), dtype=np.int64)
    for c in range(chains):
        found = constraints.find_state(rng.random(int(graph.state_offsets[-1])), rng, clock)
        if found is None:
            raise KikuchiError(
                "no state of positive weight was found to start from; allow more memory for exact "
                "samples, or more seconds"
            )
        states[:, c] = found
    return states
