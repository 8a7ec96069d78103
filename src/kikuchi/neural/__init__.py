"""Differentiable inference, region-energy networks and amortised messages.

`log_z`, `marginals` and `factor_beliefs` of a graph as JAX functions with implicit gradients; the
methods `renn` and `bethe-net`, the learners `min-max` and `mf-trw-net`; a message network that
learns to correct belief propagation.
"""

from kikuchi.core.lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
