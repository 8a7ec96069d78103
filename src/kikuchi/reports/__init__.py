"""Reports of runs: facts of a model, comparisons of methods, and self-contained HTML pages."""

from __future__ import annotations

from kikuchi.core.lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
