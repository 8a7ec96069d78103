"""kikuchi: approximate inference and learning in probabilistic models.

The public names are imported when first used, so that `import kikuchi` stays light.
"""

from __future__ import annotations

from kikuchi.core.extensions import extend
from kikuchi.core.lazy import public_names

__version__ = "0.1.0"

_DETECTION = "kikuchi_experiments.applications.detection"
_MOVED = {
    "channel_uses": f"{_DETECTION}.channel_uses",
    "detect": f"{_DETECTION}.detect",
    "mimo": f"{_DETECTION}.mimo",
    "applications": "kikuchi_experiments.applications",
    "reproduce": "kikuchi_experiments",
}

__getattr__, __dir__, _names = public_names(__name__, __file__, _MOVED)
__all__ = ["__version__", *_names]

extend(
    "kikuchi.methods",
    {
        "auto": "kikuchi.brackets.auto:Auto",
        "renn": "kikuchi.neural.region_networks:Renn",
        "bethe-net": "kikuchi.neural.region_networks:BetheNet",
    },
)
extend(
    "kikuchi.learning",
    {
        "min-max": "kikuchi.neural.min_max:RegionMinMax",
        "mf-trw-net": "kikuchi.neural.amortised_bound:AmortisedBound",
    },
)
