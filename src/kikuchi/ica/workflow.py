"""How independent components are fitted to recordings and measured by the commands."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.options import option
from kikuchi.ica.evaluation import PreparedRecording, SourceEvaluation, evaluate
from kikuchi.ica.order import Choice
from kikuchi.ica.posteriors.posterior import Problem
from kikuchi.ica.priors.prior import as_priors
from kikuchi.training.workflow import DataSet, Workflow


@dataclass
class RecordingData(DataSet):
    """A recording as it was read; `rows` are its samples."""

    prepared: PreparedRecording | None = None


@dataclass
class OrderSettings:
    """How the number of sources is chosen."""

    most: int | None = option(
        None, "Choose the number of sources by BIC, from none to so many.", low=1
    )


class SourceWorkflow(Workflow):
    """The workflow of independent component analysis."""

    choice: Choice | None = None

    def measure(self, estimator: Any, data: DataSet, settings: Any) -> SourceEvaluation:
        """Return the sources from the strongest to the weakest."""
        prepared = getattr(data, "prepared", None)
        if prepared is None:
            raise DataError(f"{data.source}: was not read as a recording")
        return evaluate(
            estimator, self.kind.name, prepared, choice=self.choice, seconds=data.fit_seconds
        )


class MeanFieldWorkflow(SourceWorkflow):
    """Mean field ICA can choose its number of sources."""

    settings: ClassVar[Any] = OrderSettings

    def check(self, estimator: Any, settings: Any) -> None:
        """Refuse a number of sources together with a choice."""
        if settings.most is not None and estimator.n_components is not None:
            raise MethodError("--most chooses the number of sources; leave --n-components out")

    def fit(self, estimator: Any, data: DataSet, settings: Any) -> Any:
        """Fit one model, or models of all numbers of sources and return the best."""
        count = settings.most or estimator.n_components or data.rows.shape[1]
        _check_enumeration(estimator, count)
        if settings.most is None:
            return super().fit(estimator, data, settings)
        largest = max(1, min(settings.most, data.rows.shape[1], len(data.rows) - 1))
        if estimator.seconds is not None:
            estimator.set_params(seconds=estimator.seconds / largest)
        with warnings.catch_warnings(action="ignore"):  # they are in warnings_
            self.choice = estimator.choose_sources(data.rows, range(largest + 1))
        if self.choice.best is None:
            raise DataError(
                "no sources were found: a Gaussian without any explains the data better; try "
                "another --prior, or give a number of sources"
            )
        return self.choice.best


class InfomaxWorkflow(SourceWorkflow):
    """Infomax with more sources than sensors takes the causal view."""

    def fit(self, estimator: Any, data: DataSet, settings: Any) -> Any:
        """Fit to the samples."""
        if (estimator.n_components or 0) > data.rows.shape[1]:
            estimator.set_params(view="causal")
        return super().fit(estimator, data, settings)


def _check_enumeration(estimator: Any, count: int) -> None:
    """Raise an error for enumeration over too many states, before anything is computed."""
    priors = as_priors(estimator.prior, count)
    posterior, _ = estimator.method_for(priors)
    if posterior.name == "exact":
        posterior.solve(Problem(np.eye(count), np.zeros((count, 1)), priors))
