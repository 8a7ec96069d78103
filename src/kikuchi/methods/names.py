"""Names of the inference methods and the classes that are loaded on first use."""

from __future__ import annotations

from typing import Any

from kikuchi.core.options import Registry

METHODS: Registry[Any] = Registry(
    "kikuchi.methods",
    "method",
    {
        "auto": None,  # in `brackets`, which imports the methods
        "enumerate": "enumeration:Enumeration",
        "jt": "junction_tree:JunctionTree",
        "bp": "belief_propagation:BeliefPropagation",
        "mf": "mean_field:MeanField",
        "tree-mf": "structured_mean_field:StructuredMeanField",
        "mixture-mf": "mixture_mean_field:MixtureMeanField",
        "clamp": "clamping:Clamped",
        "is": "iterative_scaling:IterativeScaling",
        "gis": "iterative_scaling:GeneralisedScaling",
        "is-bp": "propagated_scaling:PropagatedScaling",
        "gis-bp": "propagated_scaling:GeneralisedPropagatedScaling",
        "bo": "belief_optimisation:BeliefOptimisation",
        "loopy-is": "loopy_scaling:LoopyScaling",
        "ups": "unified_scaling:UnifiedScaling",
        "ups-t": "unified_scaling:UnifiedTreeScaling",
        "gbp": "generalised_bp:GeneralisedBP",
        "kikuchi": "kikuchi:Kikuchi",
        "trw": "tree_reweighted:TreeReweighted",
        "alpha": "alpha_bp:AlphaBP",
        "fractional": "fractional:FractionalBP",
        "wmb": "weighted_mini_buckets:WeightedMiniBuckets",
        "gibbs": "gibbs:Gibbs",
        "tap": "plefka:Tap",
        "plefka": "plefka:Plefka",
        "adatap": "adaptive_tap:AdaptiveTap",
        "saddle": "saddle_point:SaddlePoint",
        "third-order": "third_order:ThirdOrder",
    },
)
