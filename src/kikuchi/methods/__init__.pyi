from kikuchi.core.divergences import alpha_divergence as alpha_divergence
from kikuchi.core.divergences import alpha_projection as alpha_projection
from kikuchi.core.divergences import kl_divergence as kl_divergence
from kikuchi.engines.messages.reweighted import reweighted_free_energy as reweighted_free_energy
from kikuchi.methods.adaptive_tap import AdaptiveTap as AdaptiveTap
from kikuchi.methods.alpha_bp import AlphaBP as AlphaBP
from kikuchi.methods.alpha_bp import with_prior as with_prior
from kikuchi.methods.belief_optimisation import BeliefOptimisation as BeliefOptimisation
from kikuchi.methods.belief_propagation import BeliefPropagation as BeliefPropagation
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
from kikuchi.methods.plug_in import plug_in_scaling as plug_in_scaling
from kikuchi.methods.propagated_scaling import (
    GeneralisedPropagatedScaling as GeneralisedPropagatedScaling,
)
from kikuchi.methods.propagated_scaling import PropagatedScaling as PropagatedScaling
from kikuchi.methods.registry import parse_method as parse_method
from kikuchi.methods.saddle_point import SaddlePoint as SaddlePoint
from kikuchi.methods.structured_mean_field import StructuredMeanField as StructuredMeanField
from kikuchi.methods.third_order import ThirdOrder as ThirdOrder
from kikuchi.methods.tree_reweighted import TreeReweighted as TreeReweighted
from kikuchi.methods.unified_scaling import UnifiedScaling as UnifiedScaling
from kikuchi.methods.unified_scaling import UnifiedTreeScaling as UnifiedTreeScaling
from kikuchi.methods.weighted_mini_buckets import WeightedMiniBuckets as WeightedMiniBuckets
from kikuchi.methods.weighted_mini_buckets import mini_bucket_plan as mini_bucket_plan
