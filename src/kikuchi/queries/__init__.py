"""Questions by name: labelled distributions, batches of cases, and models of other libraries."""

from __future__ import annotations

from kikuchi.core.lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
