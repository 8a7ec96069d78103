"""Method texts: `name:option=value,...`, read once for the command line and for Python alike."""

from __future__ import annotations

from kikuchi.core.budget import Budget
from kikuchi.core.options import find_class, parse
from kikuchi.core.progress import Progress
from kikuchi.graphs.factor_graph import Evidence, FactorGraph
from kikuchi.inference.beliefs import Beliefs
from kikuchi.inference.method import Method

DEFAULT = "auto"

METHODS: dict[str, str] = {
    "auto": "auto:Auto",
    "enumerate": "enumeration:Enumeration",
    "jt": "junction_tree:JunctionTree",
    "bp": "belief_propagation:BeliefPropagation",
    "mf": "mean_field:MeanField",
    "tree-mf": "structured_mean_field:StructuredMeanField",
    "mixture-mf": "mixture_mean_field:MixtureMeanField",
    "clamp": "clamping:Clamped",
    "is": "iterative_scaling:IterativeScaling",
    "gis": "iterative_scaling:GeneralisedScaling",
    "is-bp": "iterative_scaling:PropagatedScaling",
    "gis-bp": "iterative_scaling:GeneralisedPropagatedScaling",
    "bo": "belief_optimisation:BeliefOptimisation",
    "loopy-is": "loopy_scaling:LoopyScaling",
    "ups": "unified_scaling:UnifiedScaling",
    "ups-t": "unified_scaling:UnifiedTreeScaling",
    "gbp": "generalised_bp:GeneralisedBP",
    "kikuchi": "kikuchi:Kikuchi",
    "trw": "tree_reweighted:TreeReweighted",
    "alpha": "alpha_bp:AlphaBP",
    "fractional": "alpha_bp:FractionalBP",
    "wmb": "mini_buckets:WeightedMiniBuckets",
    "gibbs": "gibbs:Gibbs",
    "tap": "plefka:Tap",
    "plefka": "plefka:Plefka",
    "adatap": "adaptive_tap:AdaptiveTap",
    "saddle": "saddle_point:SaddlePoint",
}


def method_class(name: str) -> type[Method]:
    """The class of a registered method."""
    cls: type[Method] = find_class(name, METHODS, "kikuchi.inference", "method")
    return cls


def parse_method(text: str) -> Method:
    """A method from its text.

    A value in parentheses may hold commas, so that one method can name another.

    >>> parse_method("bp:damping=0.5,schedule=residual").text
    'bp:schedule=residual,damping=0.5'
    >>> parse_method("clamp:method=(mf:restarts=9,tol=1e-6),k=3").text
    'clamp:method=(mf:restarts=9,tol=1e-6),k=3'
    """
    return parse(text, method_class)


def as_method(method: str | Method) -> Method:
    """A method given as such or as a text."""
    return method if isinstance(method, Method) else parse_method(method)


def infer(
    graph: FactorGraph,
    method: str | Method = DEFAULT,
    *,
    evidence: Evidence | None = None,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> Beliefs:
    """Marginals and log Z of `graph` by `method`, an object or a text such as "bp:damping=0.5".

    >>> from kikuchi import FactorGraph
    >>> infer(FactorGraph([2], [((0,), [1, 3])]), "bp")[0].round(6).tolist()
    [0.25, 0.75]
    """
    return as_method(method).run(graph, evidence=evidence, budget=budget, progress=progress)
