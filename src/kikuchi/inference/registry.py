"""Method texts: `name:option=value,...`, read once for the command line and for Python alike."""

from __future__ import annotations

from logging import INFO
from typing import Any

from kikuchi.core.budget import Budget, limits
from kikuchi.core.log import log_warnings, logger
from kikuchi.core.options import Registry
from kikuchi.core.progress import ProgressOption
from kikuchi.graphs._checks import check_graph
from kikuchi.graphs.factor_graph import Evidence, FactorGraph
from kikuchi.inference.beliefs import Beliefs
from kikuchi.inference.method import Method

DEFAULT = "auto"
_LOG = logger("inference")

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
        "third-order": "expansions.third_order:ThirdOrder",
    },
)


def parse_method(text: str | Method) -> Method:
    """A method from its text; a method is returned as it is.

    A value in parentheses may hold commas, so that one method can name another.

    `text` is a name, perhaps with options, as in "bp:damping=0.5".

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
    seconds: float | None = None,
    memory: int | str | None = None,
    progress: ProgressOption = None,
    **options: Any,
) -> Beliefs:
    """Return the marginals and log Z of `graph`, computed by `method`.

    Parameters
    ----------
    graph : the model.
    method : a method object such as `kk.BeliefPropagation(damping=0.5)`, or its text such as
        "bp:damping=0.5"; "auto" is exact where that fits the limits, else the best approximation.
        `kikuchi methods` and the page of methods list all of them with their options.
    evidence : observed states by variable, both by name or number; or observed marginals, a
        distribution in place of a state, where the method takes them.
    budget : limits as a `Budget`, in place of the next two.
    seconds : most seconds; iterations end with the best answer so far, marked as not converged.
    memory : most memory that the run may add, in bytes or as a text such as "2GB"; 4 GB by default.
    progress : True for a bar, or a function that is told how far the run is.
    options : options of the method by name, as in `kk.infer(graph, "bp", damping=0.5)`.

    Returns
    -------
    Beliefs
        marginals of variables and factors, log Z and its bounds, whether it converged, and
        warnings. Records go to the loggers `kikuchi.inference` and below.

    >>> from kikuchi import FactorGraph
    >>> infer(FactorGraph([2], [((0,), [1, 3])]), "bp")[0].round(6).tolist()
    [0.25, 0.75]
    """
    check_graph(graph, "infer")
    allowed = limits(budget, seconds, memory)
    chosen_method = METHODS.parse(method, options)
    beliefs = chosen_method.run(graph, evidence=evidence, budget=allowed, progress=progress)
    if _LOG.isEnabledFor(INFO) and "chosen" in beliefs.diagnostics:
        chosen, why = beliefs.diagnostics["chosen"], beliefs.diagnostics.get("why")
        _LOG.info("%s chose %s: %s", beliefs.method, chosen, why)
    log_warnings(_LOG, beliefs.method, beliefs.warnings)
    return beliefs
