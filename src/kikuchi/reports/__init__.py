"""Runs for people: facts of a model, comparisons of methods, and self-contained HTML pages."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "Comparison": "comparison",
    "ModelFacts": "facts",
    "compare": "comparison",
    "compare_report": "compare_page",
    "describe": "facts",
    "infer_report": "infer_page",
    "learn_report": "learn_page",
}

__all__ = [
    "Comparison",
    "ModelFacts",
    "compare",
    "compare_report",
    "describe",
    "infer_report",
    "learn_report",
]

if TYPE_CHECKING:
    from kikuchi.reports.compare_page import compare_report
    from kikuchi.reports.comparison import Comparison, compare
    from kikuchi.reports.facts import ModelFacts, describe
    from kikuchi.reports.infer_page import infer_report
    from kikuchi.reports.learn_page import learn_report


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kikuchi.reports' has no attribute '{name}'")
    return getattr(import_module(f"kikuchi.reports.{_PUBLIC[name]}"), name)
