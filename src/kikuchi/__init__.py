"""kikuchi: approximate inference and learning in probabilistic models.

The public names are imported when first used, so that `import kikuchi` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC: dict[str, str] = {
    "AdaptiveTap": "inference.expansions.adaptive_tap",
    "alpha_divergence": "core.divergences",
    "alpha_projection": "core.divergences",
    "AlphaBP": "inference.messages.alpha_bp",
    "Auto": "inference.bounds.auto",
    "BeliefOptimisation": "inference.messages.belief_optimisation",
    "BeliefPropagation": "inference.messages.belief_propagation",
    "Beliefs": "inference.beliefs",
    "boltzmann_graph": "graphs.binary",
    "bounds": "inference.bounds.log_z_bounds",
    "Bracket": "inference.bounds.log_z_bounds",
    "BriefGibbs": "learning.local.contrastive",
    "Budget": "core.budget",
    "Certificate": "inference.bounds.certificates",
    "certify": "inference.bounds.certificates",
    "channel_uses": "applications.detection",
    "chow_liu": "learning.structure.graphs",
    "Clamped": "inference.variational.clamping",
    "clamped_log_z": "learning.likelihood.clamped",
    "clamped_statistics": "learning.likelihood.clamped",
    "complete": "graphs.generators",
    "ContrastiveDivergence": "learning.local.contrastive",
    "Data": "learning.data",
    "detect": "applications.detection",
    "draw_samples": "learning.sampling",
    "EM": "learning.likelihood.em",
    "Enumeration": "inference.trees.enumeration",
    "evaluate": "learning.evaluation",
    "example": "data.examples",
    "FactorGraph": "graphs.factor_graph",
    "Feature": "learning.structure.features",
    "FeatureMatrix": "learning.ties",
    "Features": "learning.structure.features",
    "Fit": "learning.fit",
    "FractionalBP": "inference.messages.alpha_bp",
    "GeneralisedBP": "inference.regions.generalised_bp",
    "GeneralisedPropagatedScaling": "inference.messages.iterative_scaling",
    "GeneralisedScaling": "inference.messages.iterative_scaling",
    "GeneralisedScalingML": "learning.scaling.scaling",
    "Gibbs": "inference.sampling.gibbs",
    "GradientML": "learning.likelihood.gradient",
    "graph_from_text": "learning.structure.graphs",
    "grid": "graphs.generators",
    "grow_cliques": "learning.structure.graphs",
    "ImprovedScalingML": "learning.scaling.improved_scaling",
    "induce_features": "learning.structure.induction",
    "infer": "inference.registry",
    "ising": "graphs.binary",
    "IterativeScaling": "inference.messages.iterative_scaling",
    "JunctionTree": "inference.trees.junction_tree",
    "Kikuchi": "inference.regions.kikuchi",
    "KikuchiError": "core.errors",
    "kl_divergence": "core.divergences",
    "ldpc": "graphs.generators",
    "learn": "learning.registry",
    "LoopyScaling": "inference.messages.loopy_scaling",
    "LoopyScalingML": "learning.scaling.loopy_scaling",
    "MeanField": "inference.variational.mean_field",
    "MeanFieldMinusTrw": "learning.likelihood.bound",
    "mimo": "applications.detection",
    "mini_bucket_plan": "inference.mini_buckets.weighted_mini_buckets",
    "MixtureMeanField": "inference.variational.mixture_mean_field",
    "mutual_information": "learning.structure.graphs",
    "OneShot": "learning.local.one_shot",
    "parse_learner": "learning.registry",
    "parse_method": "inference.registry",
    "PersistentDivergence": "learning.local.contrastive",
    "Piecewise": "learning.local.piecewise",
    "plan": "inference.trees.junction_tree",
    "Plefka": "inference.expansions.plefka",
    "plug_in_scaling": "inference.messages.iterative_scaling",
    "PropagatedScaling": "inference.messages.iterative_scaling",
    "ProportionalFitting": "learning.scaling.scaling",
    "pseudo_log_likelihood": "learning.local.pseudo",
    "PseudoLikelihood": "learning.local.pseudo",
    "random_augmentation": "learning.structure.graphs",
    "random_graph": "graphs.generators",
    "random_regular": "graphs.generators",
    "random_tables": "graphs.generators",
    "random_tree": "graphs.generators",
    "read": "graphs.formats",
    "read_data": "learning.files",
    "read_evidence": "graphs.formats",
    "region_graph": "graphs.regions.builders",
    "RegionGraph": "graphs.regions.region_graph",
    "reweighted_free_energy": "inference.messages.reweighted",
    "SaddlePoint": "inference.expansions.saddle_point",
    "sample_set_bound": "inference.variational.mixture_mean_field",
    "StructuredMeanField": "inference.variational.structured_mean_field",
    "Surrogate": "learning.likelihood.surrogate",
    "Tap": "inference.expansions.plefka",
    "Targets": "learning.scaling.targets",
    "to_pairwise": "graphs.pairwise",
    "Trace": "core.trace",
    "TreeReweighted": "inference.messages.tree_reweighted",
    "UnifiedScaling": "inference.messages.unified_scaling",
    "UnifiedScalingML": "learning.scaling.ups_jt",
    "UnifiedTreeScaling": "inference.messages.unified_scaling",
    "VariationalEM": "learning.likelihood.em",
    "WeightedMiniBuckets": "inference.mini_buckets.weighted_mini_buckets",
    "with_prior": "inference.messages.alpha_bp",
    "write": "graphs.formats",
}

__all__ = ["__version__", *_PUBLIC]

if TYPE_CHECKING:  # for type checkers and editors; at run time __getattr__ imports
    from kikuchi.applications.detection import channel_uses, detect, mimo
    from kikuchi.core.budget import Budget
    from kikuchi.core.divergences import alpha_divergence, alpha_projection, kl_divergence
    from kikuchi.core.errors import KikuchiError
    from kikuchi.core.trace import Trace
    from kikuchi.data.examples import example
    from kikuchi.graphs.binary import boltzmann_graph, ising
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
    from kikuchi.graphs.regions.builders import region_graph
    from kikuchi.graphs.regions.region_graph import RegionGraph
    from kikuchi.inference.beliefs import Beliefs
    from kikuchi.inference.bounds.auto import Auto
    from kikuchi.inference.bounds.certificates import Certificate, certify
    from kikuchi.inference.bounds.log_z_bounds import Bracket, bounds
    from kikuchi.inference.expansions.adaptive_tap import AdaptiveTap
    from kikuchi.inference.expansions.plefka import Plefka, Tap
    from kikuchi.inference.expansions.saddle_point import SaddlePoint
    from kikuchi.inference.messages.alpha_bp import AlphaBP, FractionalBP, with_prior
    from kikuchi.inference.messages.belief_optimisation import BeliefOptimisation
    from kikuchi.inference.messages.belief_propagation import BeliefPropagation
    from kikuchi.inference.messages.iterative_scaling import (
        GeneralisedPropagatedScaling,
        GeneralisedScaling,
        IterativeScaling,
        PropagatedScaling,
        plug_in_scaling,
    )
    from kikuchi.inference.messages.loopy_scaling import LoopyScaling
    from kikuchi.inference.messages.reweighted import reweighted_free_energy
    from kikuchi.inference.messages.tree_reweighted import TreeReweighted
    from kikuchi.inference.messages.unified_scaling import UnifiedScaling, UnifiedTreeScaling
    from kikuchi.inference.mini_buckets.weighted_mini_buckets import (
        WeightedMiniBuckets,
        mini_bucket_plan,
    )
    from kikuchi.inference.regions.generalised_bp import GeneralisedBP
    from kikuchi.inference.regions.kikuchi import Kikuchi
    from kikuchi.inference.registry import infer, parse_method
    from kikuchi.inference.sampling.gibbs import Gibbs
    from kikuchi.inference.trees.enumeration import Enumeration
    from kikuchi.inference.trees.junction_tree import JunctionTree, plan
    from kikuchi.inference.variational.clamping import Clamped
    from kikuchi.inference.variational.mean_field import MeanField
    from kikuchi.inference.variational.mixture_mean_field import MixtureMeanField, sample_set_bound
    from kikuchi.inference.variational.structured_mean_field import StructuredMeanField
    from kikuchi.learning.data import Data
    from kikuchi.learning.evaluation import evaluate
    from kikuchi.learning.files import read_data
    from kikuchi.learning.fit import Fit
    from kikuchi.learning.likelihood.bound import MeanFieldMinusTrw
    from kikuchi.learning.likelihood.clamped import clamped_log_z, clamped_statistics
    from kikuchi.learning.likelihood.em import EM, VariationalEM
    from kikuchi.learning.likelihood.gradient import GradientML
    from kikuchi.learning.likelihood.surrogate import Surrogate
    from kikuchi.learning.local.contrastive import (
        BriefGibbs,
        ContrastiveDivergence,
        PersistentDivergence,
    )
    from kikuchi.learning.local.one_shot import OneShot
    from kikuchi.learning.local.piecewise import Piecewise
    from kikuchi.learning.local.pseudo import PseudoLikelihood, pseudo_log_likelihood
    from kikuchi.learning.registry import learn, parse_learner
    from kikuchi.learning.sampling import draw_samples
    from kikuchi.learning.scaling.improved_scaling import ImprovedScalingML
    from kikuchi.learning.scaling.loopy_scaling import LoopyScalingML
    from kikuchi.learning.scaling.scaling import GeneralisedScalingML, ProportionalFitting
    from kikuchi.learning.scaling.targets import Targets
    from kikuchi.learning.scaling.ups_jt import UnifiedScalingML
    from kikuchi.learning.structure.features import Feature, Features
    from kikuchi.learning.structure.graphs import (
        chow_liu,
        graph_from_text,
        grow_cliques,
        mutual_information,
        random_augmentation,
    )
    from kikuchi.learning.structure.induction import induce_features
    from kikuchi.learning.ties import FeatureMatrix


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kikuchi' has no attribute '{name}'")
    return getattr(import_module(f"kikuchi.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
