"""Loopy iterative scaling: belief propagation with observed marginals.

Reference: TEH-I14, TEH-M23, TEH-M24.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.messages.clamped_messages import (
    ClampedMessages,
    by_original,
    observed_marginals,
)
from kikuchi.engines.messages.tables import with_logarithms_if_needed
from kikuchi.engines.run import MethodRun, Solution
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.damped_sweeps import damped_sweeps
from kikuchi.methods.method import ObservedMarginalsMethod, more_damping, option


@dataclass(frozen=True)
class LoopyScaling(ObservedMarginalsMethod):
    """Loopy iterative scaling: BP with observed marginals.

    Seeks a stationary point of the Bethe free energy among beliefs that agree with each other and
    with the observed marginals. An unobserved variable sends the messages of belief propagation;
    one with observed marginal o sends each factor o divided by that factor's own message. Exact on
    forests; without observed marginals it is loopy belief propagation.

    `log_z` is minus the Bethe free energy of the beliefs: on a forest log Z - KL(Q || P), where Q
    is the distribution closest to the model P with the observed marginals. `damping` is the weight
    on the old message (in thesis eq. 5.28, that on the new one); with `damping_end` it changes
    linearly to that value over `anneal` iterations. Convergence is not guaranteed, since scaling
    uses marginals that have not converged. Method `ups` finds the same points and always converges.
    `diagnostics["tilts"]` contains the log-tilts of the observed variables (largest entry 0).

    >>> import kikuchi as kk
    >>> chain = kk.boltzmann_graph({(0, 1): 1.0, (1, 2): -2.0}, [0.5, -0.3, 0.2])
    >>> beliefs = kk.infer(chain, "loopy-is", evidence={0: [0.3, 0.7], 2: [0.6, 0.4]})
    >>> beliefs[1].round(6).tolist(), round(beliefs.log_z, 6)
    ([0.569402, 0.430598], 2.36008)
    """

    name: ClassVar[str] = "loopy-is"
    edge_seconds: ClassVar[float] = 4e-7  # with many observed marginals
    edge_setup_seconds: ClassVar[float | None] = 4.5e-7
    edge_bytes: ClassVar[int] = 150
    objective_name: ClassVar[str] = "Bethe log Z"
    exactness = "forests"

    schedule: Literal["parallel", "sequential"] = option(
        "sequential", "update all messages at once, or variable by variable"
    )
    damping: float = option(0.0, "weight on the old message", low=0, below=1)
    damping_kind: Literal["linear", "geometric"] = option(
        "linear", "mix probabilities, or their logarithms"
    )
    damping_end: float | None = option(
        None, "weight on the old message after `anneal` iterations", low=0, below=1
    )
    anneal: int = option(2000, "iterations over which damping changes to damping_end", low=1)
    tol: float = option(1e-10, "stop when no message changes by more than this; 0: never", low=0)
    max_iter: int = option(2000, "maximum number of sweeps over all messages", low=1)
    trace_energy: bool = option(False, "also record the Bethe log Z at every step")

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        return with_logarithms_if_needed(lambda mode: self._solved(graph, run, mode), run)

    def _solved(self, graph: FactorGraph, run: MethodRun, mode: int) -> Solution:
        messages = ClampedMessages(graph, mode)
        messages.clamp(*observed_marginals(graph, run.targets))
        orders = itertools.repeat(np.arange(graph.n_variables, dtype=np.uint32))
        sweep = damped_sweeps(self, messages, run, orders, traced=self.trace_energy)
        ended = iterate(sweep, Iterations(), run, tol=self.tol, limit=self.max_iter)
        marginals = messages.marginals()
        messages.refresh()
        solution = Solution(
            marginals,
            log_z=messages.log_z(marginals),
            converged=ended.converged,
            iterations=ended.iterations,
            factor_tables=messages.factor_marginals,
            diagnostics={
                "arithmetic": messages.arithmetic,
                "residual": run.trace.last_residual,
                "messages": ended.iterations * _changing_messages(graph),
                "tilts": by_original(messages.tilts(run.targets), run),
            },
        )
        if not ended.converged:
            solution.warnings.append(
                f"not converged: a message still changes by {run.trace.last_residual:.2g}; "
                f"try ups, which always converges, or {more_damping(self.damping)}"
            )
        return solution


def _changing_messages(graph: FactorGraph) -> int:
    """Return the number of messages that one sweep computes: those of factors over several
    variables.
    """
    orders = np.diff(graph.scope_offsets)
    return int(orders[orders > 1].sum())
