"""Normalising flows: mixtures of flows, a flow with a mixture as latent, classifiers, chains of
states with flows as emissions, and generators learnt by optimal transport.

Bijections are those of flowjax; training, files and options those of `kikuchi.training`.
"""

from kikuchi.core.lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
