"""kikuchi: approximate inference and learning in probabilistic models.

The public names are imported when first used, so that `import kikuchi` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC: dict[str, str] = {
    "AdaptiveTap": "inference.adaptive_tap",
    "alpha_divergence": "core.divergences",
    "alpha_projection": "core.divergences",
    "AlphaBP": "inference.alpha_bp",
    "Auto": "inference.auto",
    "BeliefOptimisation": "inference.belief_optimisation",
    "BeliefPropagation": "inference.belief_propagation",
    "Beliefs": "inference.beliefs",
    "boltzmann_graph": "graphs.binary",
    "bounds": "inference.bracket",
    "Bracket": "inference.bracket",
    "BriefGibbs": "learning.contrastive",
    "Budget": "core.budget",
    "Certificate": "inference.certificates",
    "certify": "inference.certificates",
    "channel_uses": "graphs.mimo",
    "chow_liu": "learning.structure",
    "Clamped": "inference.clamping",
    "clamped_log_z": "learning.clamped",
    "clamped_statistics": "learning.clamped",
    "complete": "graphs.generators",
    "ContrastiveDivergence": "learning.contrastive",
    "Data": "learning.data",
    "detect": "inference.mimo",
    "draw_samples": "learning.sampling",
    "EM": "learning.em",
    "Enumeration": "inference.enumeration",
    "evaluate": "learning.evaluation",
    "example": "data.examples",
    "FactorGraph": "graphs.factor_graph",
    "Feature": "learning.features",
    "FeatureMatrix": "learning.ties",
    "Features": "learning.features",
    "Fit": "learning.fit",
    "FractionalBP": "inference.alpha_bp",
    "GeneralisedBP": "inference.generalised_bp",
    "GeneralisedPropagatedScaling": "inference.iterative_scaling",
    "GeneralisedScaling": "inference.iterative_scaling",
    "GeneralisedScalingML": "learning.scaling",
    "Gibbs": "inference.gibbs",
    "GradientML": "learning.gradient",
    "graph_from_text": "learning.structure",
    "grid": "graphs.generators",
    "grow_cliques": "learning.structure",
    "ImprovedScalingML": "learning.improved_scaling",
    "induce_features": "learning.induction",
    "infer": "inference.registry",
    "ising": "graphs.binary",
    "IterativeScaling": "inference.iterative_scaling",
    "JunctionTree": "inference.junction_tree",
    "Kikuchi": "inference.kikuchi",
    "KikuchiError": "core.errors",
    "kl_divergence": "core.divergences",
    "ldpc": "graphs.generators",
    "learn": "learning.registry",
    "LoopyScaling": "inference.loopy_scaling",
    "LoopyScalingML": "learning.loopy_scaling",
    "MeanField": "inference.mean_field",
    "MeanFieldMinusTrw": "learning.bound",
    "mimo": "graphs.mimo",
    "mini_bucket_plan": "inference.mini_buckets",
    "MixtureMeanField": "inference.mixture_mean_field",
    "mutual_information": "learning.structure",
    "OneShot": "learning.linear_response",
    "parse_learner": "learning.registry",
    "parse_method": "inference.registry",
    "PersistentDivergence": "learning.contrastive",
    "Piecewise": "learning.piecewise",
    "plan": "inference.junction_tree",
    "Plefka": "inference.plefka",
    "plug_in_scaling": "inference.iterative_scaling",
    "PropagatedScaling": "inference.iterative_scaling",
    "ProportionalFitting": "learning.scaling",
    "pseudo_log_likelihood": "learning.pseudo",
    "PseudoLikelihood": "learning.pseudo",
    "random_augmentation": "learning.structure",
    "random_graph": "graphs.generators",
    "random_regular": "graphs.generators",
    "random_tables": "graphs.generators",
    "random_tree": "graphs.generators",
    "read": "graphs.formats",
    "read_data": "learning.files",
    "read_evidence": "graphs.formats",
    "region_graph": "graphs.region_builders",
    "RegionGraph": "graphs.regions",
    "reweighted_free_energy": "inference.reweighted",
    "SaddlePoint": "inference.saddle_point",
    "sample_set_bound": "inference.mixture_mean_field",
    "StructuredMeanField": "inference.structured_mean_field",
    "Surrogate": "learning.surrogate",
    "Tap": "inference.plefka",
    "Targets": "learning.targets",
    "to_pairwise": "graphs.pairwise",
    "Trace": "core.trace",
    "TreeReweighted": "inference.tree_reweighted",
    "UnifiedScaling": "inference.unified_scaling",
    "UnifiedScalingML": "learning.ups_jt",
    "UnifiedTreeScaling": "inference.unified_scaling",
    "VariationalEM": "learning.em",
    "WeightedMiniBuckets": "inference.mini_buckets",
    "with_prior": "inference.alpha_bp",
    "write": "graphs.formats",
}

__all__ = ["__version__", *_PUBLIC]

if TYPE_CHECKING:  # for type checkers and editors; at run time __getattr__ imports
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
    from kikuchi.graphs.mimo import channel_uses, mimo
    from kikuchi.graphs.pairwise import to_pairwise
    from kikuchi.graphs.region_builders import region_graph
    from kikuchi.graphs.regions import RegionGraph
    from kikuchi.inference.adaptive_tap import AdaptiveTap
    from kikuchi.inference.alpha_bp import AlphaBP, FractionalBP, with_prior
    from kikuchi.inference.auto import Auto
    from kikuchi.inference.belief_optimisation import BeliefOptimisation
    from kikuchi.inference.belief_propagation import BeliefPropagation
    from kikuchi.inference.beliefs import Beliefs
    from kikuchi.inference.bracket import Bracket, bounds
    from kikuchi.inference.certificates import Certificate, certify
    from kikuchi.inference.clamping import Clamped
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
    from kikuchi.inference.mimo import detect
    from kikuchi.inference.mini_buckets import WeightedMiniBuckets, mini_bucket_plan
    from kikuchi.inference.mixture_mean_field import MixtureMeanField, sample_set_bound
    from kikuchi.inference.plefka import Plefka, Tap
    from kikuchi.inference.registry import infer, parse_method
    from kikuchi.inference.reweighted import reweighted_free_energy
    from kikuchi.inference.saddle_point import SaddlePoint
    from kikuchi.inference.structured_mean_field import StructuredMeanField
    from kikuchi.inference.tree_reweighted import TreeReweighted
    from kikuchi.inference.unified_scaling import UnifiedScaling, UnifiedTreeScaling
    from kikuchi.learning.bound import MeanFieldMinusTrw
    from kikuchi.learning.clamped import clamped_log_z, clamped_statistics
    from kikuchi.learning.contrastive import BriefGibbs, ContrastiveDivergence, PersistentDivergence
    from kikuchi.learning.data import Data
    from kikuchi.learning.em import EM, VariationalEM
    from kikuchi.learning.evaluation import evaluate
    from kikuchi.learning.features import Feature, Features
    from kikuchi.learning.files import read_data
    from kikuchi.learning.fit import Fit
    from kikuchi.learning.gradient import GradientML
    from kikuchi.learning.improved_scaling import ImprovedScalingML
    from kikuchi.learning.induction import induce_features
    from kikuchi.learning.linear_response import OneShot
    from kikuchi.learning.loopy_scaling import LoopyScalingML
    from kikuchi.learning.piecewise import Piecewise
    from kikuchi.learning.pseudo import PseudoLikelihood, pseudo_log_likelihood
    from kikuchi.learning.registry import learn, parse_learner
    from kikuchi.learning.sampling import draw_samples
    from kikuchi.learning.scaling import GeneralisedScalingML, ProportionalFitting
    from kikuchi.learning.structure import (
        chow_liu,
        graph_from_text,
        grow_cliques,
        mutual_information,
        random_augmentation,
    )
    from kikuchi.learning.surrogate import Surrogate
    from kikuchi.learning.targets import Targets
    from kikuchi.learning.ties import FeatureMatrix
    from kikuchi.learning.ups_jt import UnifiedScalingML


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kikuchi' has no attribute '{name}'")
    return getattr(import_module(f"kikuchi.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
