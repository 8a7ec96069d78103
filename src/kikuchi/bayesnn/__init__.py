"""Bayesian neural networks: variational posteriors of weights, relevance of inputs and units.

Moments of erf units, networks and their priors, posteriors, the bound, removal of nodes, and the
estimator.
"""

from kikuchi.core.lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
