"""Generators of models: grids, complete and regular graphs, trees, random tables, LDPC codes."""

from __future__ import annotations

from kikuchi.core.lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
