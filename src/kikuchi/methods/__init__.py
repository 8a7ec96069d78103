"""Inference methods: one module each, with its options, the problem that it solves and how the
result is read off an engine. Every method returns `Beliefs`.
"""

from __future__ import annotations

from kikuchi.core.lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
