"""Boltzmann machines: dense binary machines with hidden units, restricted and rate-coded ones."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kikuchi.boltzmann.boltzmann_machine import BoltzmannMachine
    from kikuchi.boltzmann.classifier import FreeEnergyClassifier
    from kikuchi.boltzmann.machine import Machine
    from kikuchi.boltzmann.rate_coded import RateCodedRBM
    from kikuchi.boltzmann.rbm import RBM
    from kikuchi.boltzmann.training import Training, train

_HOMES = {
    "BoltzmannMachine": "boltzmann_machine",
    "FreeEnergyClassifier": "classifier",
    "Machine": "machine",
    "RBM": "rbm",
    "RateCodedRBM": "rate_coded",
    "Training": "training",
    "train": "training",
}

__all__ = [
    "RBM",
    "BoltzmannMachine",
    "FreeEnergyClassifier",
    "Machine",
    "RateCodedRBM",
    "Training",
    "train",
]


def __getattr__(name: str) -> Any:
    """Public names are loaded when first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
