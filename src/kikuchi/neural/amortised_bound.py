"""Learning with the amortised mean-field-minus-TRW bound: networks and model in turn.

Reference: LIU-L8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kikuchi.core.options import option
from kikuchi.core.run import Step
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.learner import FitRun, Learned, check_undirected
from kikuchi.learning.likelihood.bound import noise_where_flat
from kikuchi.neural.bound_networks import BoundNetworks
from kikuchi.neural.turns import UNWATCHED, TurnLearner, Turns


@dataclass(frozen=True)
class AmortisedBound(TurnLearner):
    """Hidden variables: mean field minus TRW by networks, a certified bound.

    One network reads a row and writes the mean field of its hidden cells, the other reads the
    log-tables and writes the messages of the tree-reweighted bound; each turn takes `network_steps`
    of Adam on both, then one on the log-tables, all up the same bound. `lower` in the trace is
    certified at every turn, whatever the networks have reached, and so is
    `diagnostics["certified_lower"]`. `mf-trw` solves both inner problems anew and is
    tighter; the networks answer rows that they have not seen. `converged` means that no slope of
    the tables is above `tol` while those of the networks are below it too.

    >>> import kikuchi as kk
    >>> rbm = kk.boltzmann_graph({(0, 2): 0.5, (1, 2): -0.5}, [0.0, 0.0, 0.0])
    >>> rows = [[0, 0, -1], [1, 1, -1], [1, 1, -1], [0, 1, -1]]
    >>> fit = AmortisedBound(max_iter=20).fit(rbm, rows)
    >>> fit.diagnostics["certified_lower"] <= fit.log_likelihood
    True
    """

    name: ClassVar[str] = "mf-trw-net"
    objective_name: ClassVar[str] = "lower bound on the log-likelihood per row"
    takes_missing: ClassVar[bool] = True

    hidden: int = option(32, "units in the hidden layer of each network", low=1)
    rate: float = option(0.01, "step size of Adam on the networks", above=0)
    network_steps: int = option(5, "steps on the networks per turn", low=1)
    noise: float = option(0.1, "random numbers added to uninformative tables", low=0)
    seed: int = option(0, "seed of the networks, the noise and the forests", low=0)

    def _fit(self, graph: FactorGraph, data: Data, run: FitRun) -> Learned:
        check_undirected(self.name, graph)
        turns = _BoundTurns(self, graph, data, run)
        learned = self._in_turns(turns, run)
        lower = turns.networks.lower(turns.tables, data) if turns.done else None
        learned.diagnostics |= {"certified_lower": lower, "distinct_rows": len(turns.rows[2])}
        return learned


@dataclass(eq=False, init=False)
class _BoundTurns(Turns):
    """The state of a fit: theta under Adam, and the networks."""

    networks: BoundNetworks

    def __init__(
        self, learner: AmortisedBound, graph: FactorGraph, data: Data, run: FitRun
    ) -> None:
        super().__init__(learner, graph, run)
        self.data = data
        self.networks = BoundNetworks(graph, learner.hidden, learner.seed, run.clock.budget)
        self.rows = self.networks.rows(data)
        drawn = noise_where_flat(graph, data, self.parameters, learner.noise, learner.seed)
        self.theta.values += drawn
        self._slope = np.zeros(0)

    def report(self) -> Step:
        value, largest = self._evaluate()
        self.objective = value - self.penalty
        slope = float(np.abs(self._slope).max(initial=0.0))
        lower = self.networks.lower(self.tables, self.data)
        return Step(self.done, max(slope, largest), self.objective, lower=lower)

    def follow(self) -> None:
        learner = self.learner
        for done in range(0, learner.network_steps, UNWATCHED):
            if done:
                self.require_time()
            steps = min(UNWATCHED, learner.network_steps - done)
            self.networks.train(self.tables, self.data, steps=steps, rate=learner.rate)

    def _evaluate(self) -> tuple[float, float]:
        """The bound, and the largest slope of the networks; keeps the slope by theta."""
        import jax

        with jax.enable_x64(True):
            value, (nets, by_tables) = self.networks.functions.model_slope(
                self.networks.networks, self.tables, self.rows
            )
            largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(nets))
        slope = self.parameters.pull_back(self.tables, np.asarray(by_tables))
        self._slope = slope - self.learner.l2 * self.theta.values
        return float(value), largest

    def move(self) -> None:
        self.slow_down()
        self.theta.step(-self._slope)

    def measure(self) -> None:
        self._evaluate()
