"""Mean field ICA: noisy, overcomplete, binary and positive sources (HOJ).

The public names are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PUBLIC: dict[str, str] = {
    "BayesianICA": "bayesian.bayesian_ica",
    "InfomaxICA": "infomax.infomax_ica",
    "Recording": "recordings",
    "read_recording": "recordings",
    "amari_distance": "measures",
    "match_sources": "measures",
    "MeanFieldICA": "mean_field_ica",
    "Moments": "posteriors.posterior",
    "parse_posterior": "posteriors.posterior",
    "parse_prior": "priors.prior",
    "POSTERIORS": "posteriors.posterior",
    "PRIORS": "priors.prior",
    "Problem": "posteriors.posterior",
    "SourcePrior": "priors.prior",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kikuchi.ica' has no attribute '{name}'")
    return getattr(import_module(f"kikuchi.ica.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
