"""Method texts: `name:option=value,...`, read once for the command line and for Python alike."""

from __future__ import annotations

from kikuchi.core.budget import Budget
from kikuchi.core.options import Registry
from kikuchi.core.progress import Progress
from kikuchi.graphs.factor_graph import Evidence, FactorGraph
from kikuchi.inference.beliefs import Beliefs
from kikuchi.inference.method import Method

DEFAULT = "auto"

METHODS: Registry[Method] = Registry(
    "kikuchi.inference",
    "method",
    {
        "auto": "bounds.auto:Auto",
        "enumerate": "trees.enumeration:Enumeration",
        "jt": "trees.junction_tree:JunctionTree",
        "bp": "messages.belief_propagation:BeliefPropagation",
        "mf": "variational.mean_field:MeanField",
        "tree-mf": "variational.structured_mean_field:StructuredMeanField",
        "mixture-mf": "variational.mixture_mean_field:MixtureMeanField",
        "clamp": "variational.clamping:Clamped",
        "is": "messages.iterative_scaling:IterativeScaling",
        "gis": "messages.iterative_scaling:GeneralisedScaling",
        "is-bp": "messages.iterative_scaling:PropagatedScaling",
        "gis-bp": "messages.iterative_scaling:GeneralisedPropagatedScaling",
        "bo": "messages.belief_optimisation:BeliefOptimisation",
        "loopy-is": "messages.loopy_scaling:LoopyScaling",
        "ups": "messages.unified_scaling:UnifiedScaling",
        "ups-t": "messages.unified_scaling:UnifiedTreeScaling",
        "gbp": "regions.generalised_bp:GeneralisedBP",
        "kikuchi": "regions.kikuchi:Kikuchi",
        "trw": "messages.tree_reweighted:TreeReweighted",
        "alpha": "messages.alpha_bp:AlphaBP",
        "fractional": "messages.alpha_bp:FractionalBP",
        "wmb": "mini_buckets.weighted_mini_buckets:WeightedMiniBuckets",
        "gibbs": "sampling.gibbs:Gibbs",
        "tap": "expansions.plefka:Tap",
        "plefka": "expansions.plefka:Plefka",
        "adatap": "expansions.adaptive_tap:AdaptiveTap",
        "saddle": "expansions.saddle_point:SaddlePoint",
    },
)


def parse_method(text: str | Method) -> Method:
    """A method from its text; a method is returned as it is.

    A value in parentheses may hold commas, so that one method can name another.

    >>> parse_method("bp:damping=0.5,schedule=residual").text
    'bp:schedule=residual,damping=0.5'
    >>> parse_method("clamp:method=(mf:restarts=9,tol=1e-6),k=3").text
    'clamp:method=(mf:restarts=9,tol=1e-6),k=3'
    """
    return METHODS.parse(text)


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
    return METHODS.parse(method).run(graph, evidence=evidence, budget=budget, progress=progress)
