"""Every question in these tests is asked twice, and both results must be equal.

Only a question with a time limit that the exact tree does not answer may return another estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import BudgetError

QUESTIONS = (
    "information_gain",
    "marginal_map",
    "most_probable",
    "predict_proba",
    "query",
    "sensitivity",
)


def plain(answer: Any) -> Any:
    """What an answer says, as data that can be compared."""
    if isinstance(answer, kk.Distributions):
        return answer.log_evidence, [answer[name].values_array.tolist() for name in answer]
    if isinstance(answer, kk.queries.JointDistribution):
        return answer.log_evidence, answer.table.tolist()
    if hasattr(answer, "derivatives"):
        return answer.probability, {a: t.tolist() for a, t in answer.derivatives.items()}
    if hasattr(answer, "columns"):
        numbers = answer.to_numpy()
        return list(answer.columns), np.where(np.isnan(numbers), None, numbers).tolist()
    return answer if isinstance(answer, dict) else answer.to_dict()


def twice(ask: Callable[..., Any]) -> Callable[..., Any]:
    """A question that compares its answer, or its error, with that to a second call."""

    @wraps(ask)
    def asked(*arguments: Any, **options: Any) -> Any:
        try:
            answer = ask(*arguments, **options)
        except kk.KikuchiError as error:
            with pytest.raises(type(error)) as again:
                ask(*arguments, **options)
            if not isinstance(error, BudgetError):  # which says how far it came
                assert str(again.value) == str(error)
            raise
        again = ask(*arguments, **options)
        if not _limited_estimate(answer, options):
            assert plain(again) == plain(answer)
        return answer

    return asked


def _limited_estimate(answer: Any, options: dict[str, Any]) -> bool:
    """Whether a result is an estimate that depends on how far a run came within its seconds."""
    budget = options.get("budget")
    limited = "seconds" in options or (budget is not None and budget.seconds is not None)
    return limited and not getattr(answer, "exact", True)


@pytest.fixture(autouse=True)
def _asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in QUESTIONS:
        monkeypatch.setattr(kk, name, twice(getattr(kk, name)))
