"""Energy-based models: products of experts learnt by contrastive divergence with Hamiltonian moves.

Energies and experts, the sampler, learners, log Z between bounds, whitening, and the estimators.
"""

from kikuchi.core.lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
