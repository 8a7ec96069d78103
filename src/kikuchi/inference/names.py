"""Names of the inference methods and the classes that are loaded when a method is named."""

from __future__ import annotations

from typing import Any

from kikuchi.core.options import Registry

METHODS: Registry[Any] = Registry(
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
