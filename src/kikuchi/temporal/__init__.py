"""Models in time: Gaussian algebra, linear Gaussian state spaces, moment passing, hidden chains.

Each family has `models.py` (estimators) and `inference.py`; compiled loops stand in `kernels/`.
"""

from kikuchi.core.lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
