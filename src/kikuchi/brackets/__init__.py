"""Certified bounds on log Z that tighten with time, and `auto`, which selects methods by budget."""

from __future__ import annotations

from kikuchi.core.lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
