"""Experiments of the source documents as commands: ours beside the published figures."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "EXPERIMENTS": "catalogue",
    "Experiment": "experiment",
    "Outcome": "runner",
    "Row": "experiment",
    "find_experiment": "catalogue",
    "reproduce": "runner",
}

__all__ = ["EXPERIMENTS", "Experiment", "Outcome", "Row", "find_experiment", "reproduce"]

if TYPE_CHECKING:
    from kikuchi.reproduce.catalogue import EXPERIMENTS, find_experiment
    from kikuchi.reproduce.experiment import Experiment, Row
    from kikuchi.reproduce.runner import Outcome, reproduce


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kikuchi.reproduce' has no attribute '{name}'")
    return getattr(import_module(f"kikuchi.reproduce.{_PUBLIC[name]}"), name)
