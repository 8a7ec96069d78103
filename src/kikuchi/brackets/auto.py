"""`auto`: exact where that fits the budget, otherwise the best approximation, with bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kikuchi.core import text
from kikuchi.core.numerics import count_states
from kikuchi.engines.run import MethodRun, Solution
from kikuchi.engines.small_work import SMALL
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.enumeration import FEW_STATES, Enumeration
from kikuchi.methods.method import Method, option

if TYPE_CHECKING:
    from kikuchi.brackets.auto_search import Search

_MOST_OVERFULL = 64.0  # factor over the memory limit up to which sums over slices are considered


@dataclass(frozen=True)
class Auto(Method):
    """Exact inference if the budget allows, else the best approximation with bounds.

    A model with few states is enumerated. If the cheapest junction tree fits into memory and, by
    the measured speed of the machine, may fit into the time, exact inference is tried, with an
    estimate in reserve; if it exceeds the memory by a small factor, as a sum over slices of a few
    variables. Otherwise it computes estimates (belief propagation, then Kikuchi free energies over
    growing regions), and certified bounds on log Z from both sides; `bounds` is the fraction of the
    time for the bounds. Without a limit the time is 30 seconds. The result is the converged
    estimate over the largest regions that lies inside the bounds; `diagnostics` contains its method
    (`chosen`), the reason (`why`), and the other methods tried. Observed marginals are fitted by
    `is` if there is time for dozens of propagations, by `loopy-is` if it converges, and by `ups`
    otherwise.

    >>> import kikuchi as kk
    >>> kk.infer(kk.grid(4, 4, seed=0), "auto").diagnostics["chosen"]
    'jt'
    """

    name: ClassVar[str] = "auto"
    objective_name: ClassVar[str] = "estimate of log Z"
    edge_seconds: ClassVar[float] = 1.5e-7
    edge_bytes: ClassVar[int] = 100
    exactness = "affordable"
    certifies = ("lower", "upper")
    gives_covariance: ClassVar[bool] = True
    takes_observed_marginals: ClassVar[bool] = True
    most_interpreted: ClassVar[int] = SMALL

    exact: bool = option(True, "use exact inference if it fits the budget")
    bounds: float = option(0.4, "fraction of the time for bounds if not exact", low=0, high=0.9)
    ibound: int | None = option(
        None, "largest i-bound of the bounds; none: as large as time allows"
    )

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        if self._certainly_exact(graph, run):
            return _by_enumeration(graph, run)
        from kikuchi.brackets import auto_exact
        from kikuchi.brackets.log_z_bounds import check_ibound
        from kikuchi.engines.trees.slices import sliced_plan

        cost, plan = auto_exact.least_cost(graph, run)
        sliced = None
        if self.exact and not run.targets and 1.0 < cost.overfull <= _MOST_OVERFULL:
            sliced = sliced_plan(plan, run.clock)
            if sliced is not None:
                cost = auto_exact.ExactCost.of(plan, run, sliced)
        exact = self.exact and cost.fits
        why = cost.why if self.exact else "exact inference was not requested"
        if run.targets:
            return auto_exact.with_marginals(graph, run, plan, why)
        search = None
        if exact:
            if not cost.sure:
                search = self._search(graph, run)
                search.reserve()
            answer = (
                auto_exact.by_junction_tree(plan, run, why)
                if sliced is None
                else auto_exact.in_slices(sliced, run, why)
            )
            if answer is not None:
                return answer
            why = f"exact inference would have taken too long ({cost.need})"
        check_ibound(graph, self.ibound)
        search = search or self._search(graph, run)
        search.improve(self.bounds, self.ibound)
        return search.answer(why)

    def _certainly_exact(self, graph: FactorGraph, run: MethodRun) -> bool:
        return self.exact and not run.targets and count_states(graph.cardinalities) <= FEW_STATES

    def _search(self, graph: FactorGraph, run: MethodRun) -> Search:
        from kikuchi.brackets.auto_search import Search

        return Search(graph, run)


def _by_enumeration(graph: FactorGraph, run: MethodRun) -> Solution:
    """Return the exact result of a model with few states, without a compiled loop."""
    solution = Enumeration().solve(graph, run)
    why = f"the model has {text.count(count_states(graph.cardinalities), 'state')} in all"
    solution.diagnostics.update(chosen=Enumeration.name, why=why)
    return solution
