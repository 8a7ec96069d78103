"""kikuchi: approximate inference and learning in probabilistic models.

The public names are imported when first used, so that `import kikuchi` stays light.
"""

from __future__ import annotations

from kikuchi.core.lazy import public_names

__version__ = "0.1.0"

__getattr__, __dir__, _names = public_names(__name__, __file__)
__all__ = ["__version__", *_names]
