"""Mean field ICA: noisy, overcomplete, binary and positive sources (HOJ).

The public names are imported when first used.
"""

from __future__ import annotations

from kikuchi.core.lazy import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
