"""Inference methods: each module contains the options of a method, the problem that it solves and
the construction of its result from an engine. Every method returns `Beliefs`.
"""

from __future__ import annotations

from kikuchi.core.lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
