"""Which solver finds the fixed points of a method: the differentiable ones."""

from __future__ import annotations

from kikuchi.core.budget import Budget
from kikuchi.core.errors import MethodError
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.junction_tree import JunctionTree
from kikuchi.methods.method import EngineMethod, Method
from kikuchi.neural.fixed_points import Solver
from kikuchi.neural.forests import ForestSolver

_DIFFERENTIABLE = "jt, bp, trw, kikuchi, gbp, mf"


def solver_for(graph: FactorGraph, method: Method, budget: Budget) -> Solver:
    """The solver of a method; refused for methods without a differentiable fixed point."""
    if not method.gives_marginals:
        raise MethodError(
            f"{method.text}: a most probable state has no gradient in the tables; use mode=sum"
        )
    if not isinstance(method, EngineMethod):
        raise MethodError(f"{method.text} has no implicit gradient; use one of {_DIFFERENTIABLE}")
    if type(method) is JunctionTree and graph.n_factors and graph.is_forest:
        return ForestSolver(graph, method, budget)
    return Solver(graph, method, budget)
