"""Belief networks: sigmoid and noisy-or units, linear threshold units.

Models, posteriors of their hidden units by family, learning, likelihoods, and the estimators.
"""

from kikuchi.core.lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
