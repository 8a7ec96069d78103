"""Which solver answers for a method: the differentiable fixed points, by name."""

from __future__ import annotations

from kikuchi.core.budget import Budget
from kikuchi.core.errors import MethodError
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.belief_propagation import BeliefPropagation
from kikuchi.methods.generalised_bp import GeneralisedBP
from kikuchi.methods.junction_tree import JunctionTree
from kikuchi.methods.kikuchi import Kikuchi
from kikuchi.methods.mean_field import MeanField
from kikuchi.methods.method import Method
from kikuchi.methods.tree_reweighted import TreeReweighted
from kikuchi.neural.fixed_points import (
    MeanFieldSolver,
    MessageSolver,
    RegionSolver,
    Solver,
    TreeSolver,
)
from kikuchi.neural.forests import ForestSolver


def solver_for(graph: FactorGraph, method: Method, budget: Budget) -> Solver:
    """The solver of a method; refused for methods without a differentiable fixed point."""
    kinds: list[tuple[type[Method], type[Solver]]] = [
        (JunctionTree, TreeSolver),
        (BeliefPropagation, MessageSolver),
        (TreeReweighted, MessageSolver),
        (Kikuchi, RegionSolver),
        (GeneralisedBP, RegionSolver),
        (MeanField, MeanFieldSolver),
    ]
    if not method.gives_marginals:
        raise MethodError(
            f"{method.text}: a most probable state has no gradient in the tables; use mode=sum"
        )
    if type(method) is JunctionTree and graph.n_factors and graph.is_forest:
        return ForestSolver(graph, method, budget)
    for kind, solver in kinds:
        if type(method) is kind:
            return solver(graph, method, budget)
    raise MethodError(
        f"{method.text} has no implicit gradient; use one of "
        f"{', '.join(kind.name for kind, _ in kinds)}"
    )
