from kikuchi.brackets.auto import Auto as Auto
from kikuchi.brackets.log_z_bounds import LogZBounds as LogZBounds
from kikuchi.brackets.log_z_bounds import bounds as bounds
from kikuchi.core.budget import Budget as Budget
from kikuchi.core.divergences import alpha_divergence as alpha_divergence
from kikuchi.core.divergences import alpha_projection as alpha_projection
from kikuchi.core.divergences import kl_divergence as kl_divergence
from kikuchi.core.errors import KikuchiError as KikuchiError
from kikuchi.core.trace import Trace as Trace
from kikuchi.data.examples import example as example
from kikuchi.engines.certificates import Certificate as Certificate
from kikuchi.engines.certificates import certify as certify
from kikuchi.engines.messages.reweighted import reweighted_free_energy as reweighted_free_energy
from kikuchi.engines.trees.calibrated import plan as plan
from kikuchi.graphs.arrows import network as network
from kikuchi.graphs.binary import boltzmann_graph as boltzmann_graph
from kikuchi.graphs.binary import ising as ising
from kikuchi.graphs.canonical import deterministic as deterministic
from kikuchi.graphs.canonical import noisy_max as noisy_max
from kikuchi.graphs.canonical import noisy_or as noisy_or
from kikuchi.graphs.directed import bayesian_network as bayesian_network
from kikuchi.graphs.factor_graph import FactorGraph as FactorGraph
from kikuchi.graphs.formats import read as read
from kikuchi.graphs.formats import read_evidence as read_evidence
from kikuchi.graphs.formats import write as write
from kikuchi.graphs.generators import complete as complete
from kikuchi.graphs.generators import grid as grid
from kikuchi.graphs.generators import ldpc as ldpc
from kikuchi.graphs.generators import random_graph as random_graph
from kikuchi.graphs.generators import random_regular as random_regular
from kikuchi.graphs.generators import random_tables as random_tables
from kikuchi.graphs.generators import random_tree as random_tree
from kikuchi.graphs.pairwise import to_pairwise as to_pairwise
from kikuchi.graphs.regions.builders import region_graph as region_graph
from kikuchi.graphs.regions.region_graph import RegionGraph as RegionGraph
from kikuchi.learning.data import Data as Data
from kikuchi.learning.evaluation import evaluate as evaluate
from kikuchi.learning.files import read_data as read_data
from kikuchi.learning.fit import Fit as Fit
from kikuchi.learning.likelihood.bound import MeanFieldMinusTrw as MeanFieldMinusTrw
from kikuchi.learning.likelihood.clamped import clamped_log_z as clamped_log_z
from kikuchi.learning.likelihood.clamped import clamped_statistics as clamped_statistics
from kikuchi.learning.likelihood.em import EM as EM
from kikuchi.learning.likelihood.em import VariationalEM as VariationalEM
from kikuchi.learning.likelihood.gradient import GradientML as GradientML
from kikuchi.learning.likelihood.surrogate import Surrogate as Surrogate
from kikuchi.learning.local.conditionals import pseudo_log_likelihood as pseudo_log_likelihood
from kikuchi.learning.local.contrastive import BriefGibbs as BriefGibbs
from kikuchi.learning.local.contrastive import ContrastiveDivergence as ContrastiveDivergence
from kikuchi.learning.local.contrastive import PersistentDivergence as PersistentDivergence
from kikuchi.learning.local.one_shot import OneShot as OneShot
from kikuchi.learning.local.piecewise import Piecewise as Piecewise
from kikuchi.learning.local.pseudo import PseudoLikelihood as PseudoLikelihood
from kikuchi.learning.registry import learn as learn
from kikuchi.learning.registry import parse_learner as parse_learner
from kikuchi.learning.sampling import draw_samples as draw_samples
from kikuchi.learning.scaling.improved_scaling import ImprovedScalingML as ImprovedScalingML
from kikuchi.learning.scaling.loopy_scaling import LoopyScalingML as LoopyScalingML
from kikuchi.learning.scaling.scaling import GeneralisedScalingML as GeneralisedScalingML
from kikuchi.learning.scaling.scaling import ProportionalFitting as ProportionalFitting
from kikuchi.learning.scaling.targets import Targets as Targets
from kikuchi.learning.scaling.ups_jt import UnifiedScalingML as UnifiedScalingML
from kikuchi.learning.structure.families import fitted_network as fitted_network
from kikuchi.learning.structure.features import Feature as Feature
from kikuchi.learning.structure.features import Features as Features
from kikuchi.learning.structure.graphs import chow_liu as chow_liu
from kikuchi.learning.structure.graphs import graph_from_text as graph_from_text
from kikuchi.learning.structure.graphs import grow_cliques as grow_cliques
from kikuchi.learning.structure.graphs import mutual_information as mutual_information
from kikuchi.learning.structure.graphs import random_augmentation as random_augmentation
from kikuchi.learning.structure.hill_climb import edge_confidence as edge_confidence
from kikuchi.learning.structure.hill_climb import hill_climb as hill_climb
from kikuchi.learning.structure.induction import induce_features as induce_features
from kikuchi.learning.structure.pc import pc as pc
from kikuchi.learning.ties import FeatureMatrix as FeatureMatrix
from kikuchi.methods.adaptive_tap import AdaptiveTap as AdaptiveTap
from kikuchi.methods.alpha_bp import AlphaBP as AlphaBP
from kikuchi.methods.alpha_bp import with_prior as with_prior
from kikuchi.methods.belief_optimisation import BeliefOptimisation as BeliefOptimisation
from kikuchi.methods.belief_propagation import BeliefPropagation as BeliefPropagation
from kikuchi.methods.beliefs import Beliefs as Beliefs
from kikuchi.methods.clamping import Clamped as Clamped
from kikuchi.methods.enumeration import Enumeration as Enumeration
from kikuchi.methods.fractional import FractionalBP as FractionalBP
from kikuchi.methods.generalised_bp import GeneralisedBP as GeneralisedBP
from kikuchi.methods.gibbs import Gibbs as Gibbs
from kikuchi.methods.iterative_scaling import GeneralisedScaling as GeneralisedScaling
from kikuchi.methods.iterative_scaling import IterativeScaling as IterativeScaling
from kikuchi.methods.junction_tree import JunctionTree as JunctionTree
from kikuchi.methods.kikuchi import Kikuchi as Kikuchi
from kikuchi.methods.loopy_scaling import LoopyScaling as LoopyScaling
from kikuchi.methods.mean_field import MeanField as MeanField
from kikuchi.methods.mixture_mean_field import MixtureMeanField as MixtureMeanField
from kikuchi.methods.mixture_mean_field import sample_set_bound as sample_set_bound
from kikuchi.methods.plefka import Plefka as Plefka
from kikuchi.methods.plefka import Tap as Tap
from kikuchi.methods.plug_in_scaling import plug_in_scaling as plug_in_scaling
from kikuchi.methods.propagated_scaling import (
    GeneralisedPropagatedScaling as GeneralisedPropagatedScaling,
)
from kikuchi.methods.propagated_scaling import PropagatedScaling as PropagatedScaling
from kikuchi.methods.registry import infer as infer
from kikuchi.methods.registry import parse_method as parse_method
from kikuchi.methods.saddle_point import SaddlePoint as SaddlePoint
from kikuchi.methods.structured_mean_field import (
    StructuredMeanField as StructuredMeanField,
)
from kikuchi.methods.third_order import ThirdOrder as ThirdOrder
from kikuchi.methods.tree_reweighted import TreeReweighted as TreeReweighted
from kikuchi.methods.unified_scaling import UnifiedScaling as UnifiedScaling
from kikuchi.methods.unified_scaling import UnifiedTreeScaling as UnifiedTreeScaling
from kikuchi.methods.weighted_mini_buckets import (
    WeightedMiniBuckets as WeightedMiniBuckets,
)
from kikuchi.methods.weighted_mini_buckets import (
    mini_bucket_plan as mini_bucket_plan,
)
from kikuchi.queries.answers import Distributions as Distributions
from kikuchi.queries.answers import JointDistribution as JointDistribution
from kikuchi.queries.case_files import predict_file as predict_file
from kikuchi.queries.converters import as_model as as_model
from kikuchi.queries.converters import to_networkx as to_networkx
from kikuchi.queries.converters import to_pgmpy as to_pgmpy
from kikuchi.queries.converters import to_pyagrum as to_pyagrum
from kikuchi.queries.dynamic import TwoSliceNetwork as TwoSliceNetwork
from kikuchi.queries.marginal_map import marginal_map as marginal_map
from kikuchi.queries.most_probable import most_probable as most_probable
from kikuchi.queries.predict import predict_proba as predict_proba
from kikuchi.queries.query import query as query
from kikuchi.queries.sensitivity import information_gain as information_gain
from kikuchi.queries.sensitivity import sensitivity as sensitivity
from kikuchi.queries.show import show as show

__version__: str
