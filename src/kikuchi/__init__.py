"""kikuchi: approximate inference and learning in probabilistic models.

The public names are imported when first used, so that `import kikuchi` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC: dict[str, str] = {
    "BeliefOptimisation": "inference.belief_optimisation",
    "BeliefPropagation": "inference.belief_propagation",
    "Beliefs": "inference.beliefs",
    "boltzmann": "graphs.binary",
    "Budget": "core.budget",
    "complete": "graphs.generators",
    "Enumeration": "inference.enumeration",
    "example": "data.examples",
    "FactorGraph": "graphs.factor_graph",
    "GeneralisedBP": "inference.generalised_bp",
    "GeneralisedPropagatedScaling": "inference.iterative_scaling",
    "GeneralisedScaling": "inference.iterative_scaling",
    "Gibbs": "inference.gibbs",
    "grid": "graphs.generators",
    "infer": "inference.registry",
    "ising": "graphs.binary",
    "IterativeScaling": "inference.iterative_scaling",
    "JunctionTree": "inference.junction_tree",
    "Kikuchi": "inference.kikuchi",
    "KikuchiError": "core.errors",
    "ldpc": "graphs.generators",
    "LoopyScaling": "inference.loopy_scaling",
    "MeanField": "inference.mean_field",
    "parse_method": "inference.registry",
    "plan": "inference.junction_tree",
    "plug_in_scaling": "inference.iterative_scaling",
    "PropagatedScaling": "inference.iterative_scaling",
    "random_graph": "graphs.generators",
    "random_regular": "graphs.generators",
    "random_tables": "graphs.generators",
    "random_tree": "graphs.generators",
    "read": "graphs.formats",
    "read_evidence": "graphs.formats",
    "region_graph": "graphs.region_builders",
    "RegionGraph": "graphs.regions",
    "to_pairwise": "graphs.pairwise",
    "Trace": "core.trace",
    "UnifiedScaling": "inference.unified_scaling",
    "UnifiedTreeScaling": "inference.unified_scaling",
    "write": "graphs.formats",
}

__all__ = ["__version__", *_PUBLIC]

if TYPE_CHECKING:  # for type checkers and editors; at run time __getattr__ imports
    from kikuchi.core.budget import Budget
    from kikuchi.core.errors import KikuchiError
    from kikuchi.core.trace import Trace
    from kikuchi.data.examples import example
    from kikuchi.graphs.binary import boltzmann, ising
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.graphs.formats import read, read_evidence, write
    from kikuchi.graphs.generators import (
        complete,
        grid,
        ldpc,
        random_graph,
        random_regular,
        random_tables,
        random_tree,
    )
    from kikuchi.graphs.pairwise import to_pairwise
    from kikuchi.graphs.region_builders import region_graph
    from kikuchi.graphs.regions import RegionGraph
    from kikuchi.inference.belief_optimisation import BeliefOptimisation
    from kikuchi.inference.belief_propagation import BeliefPropagation
    from kikuchi.inference.beliefs import Beliefs
    from kikuchi.inference.enumeration import Enumeration
    from kikuchi.inference.generalised_bp import GeneralisedBP
    from kikuchi.inference.gibbs import Gibbs
    from kikuchi.inference.iterative_scaling import (
        GeneralisedPropagatedScaling,
        GeneralisedScaling,
        IterativeScaling,
        PropagatedScaling,
        plug_in_scaling,
    )
    from kikuchi.inference.junction_tree import JunctionTree, plan
    from kikuchi.inference.kikuchi import Kikuchi
    from kikuchi.inference.loopy_scaling import LoopyScaling
    from kikuchi.inference.mean_field import MeanField
    from kikuchi.inference.registry import infer, parse_method
    from kikuchi.inference.unified_scaling import UnifiedScaling, UnifiedTreeScaling


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kikuchi' has no attribute '{name}'")
    return getattr(import_module(f"kikuchi.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
