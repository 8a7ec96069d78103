"""How models of sequences are fitted, measured and asked by the commands."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from kikuchi.core.answer import Answer
from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.core.options import option
from kikuchi.temporal.evaluation import DatedRows, TemporalEvaluation, carry_out
from kikuchi.training.workflow import DataSet, Workflow


@dataclass
class SequenceData(DataSet):
    """Sequences: `rows`, `targets`, `inputs` and `dates` are lists with an entry for each."""

    inputs: list[Array] | None = None
    dates: list[DatedRows | None] = field(default_factory=list)


@dataclass
class SequenceSettings:
    """Further options of a fit to sequences."""

    forecast: int = option(0, "Forecast so many steps after the last row.", low=0)


@dataclass
class FactorialSettings(SequenceSettings):
    """Further options of a fit of several chains."""

    method: Literal["mean-field", "bp", "exact"] = option(
        "mean-field", "Posterior of the states that is shown."
    )


class SequenceWorkflow(Workflow):
    """The workflow of models of sequences; `form` selects what is shown of the model."""

    settings: ClassVar[Any] = SequenceSettings
    form: ClassVar[str] = "blood"

    def evaluation(self, estimator: Any, task: str, data: Any) -> TemporalEvaluation:
        """Return an evaluation without its answer."""
        names = data.names or [f"column{k}" for k in range(data.rows[0].shape[1])]
        return TemporalEvaluation(
            estimator, self.form, task, data.rows, names, data.fit_seconds,
            labels=data.targets or [], dates=data.dates, source=data.source,
        )  # fmt: skip

    def fit(self, estimator: Any, data: DataSet, settings: Any) -> Any:
        """Fit to the list of sequences."""
        return estimator.fit(data.rows)

    def measure(self, estimator: Any, data: DataSet, settings: Any) -> Answer:
        """Return the states given all rows and, if asked, a forecast."""
        done = self.evaluation(estimator, "fit", data)
        more = self._method(settings)
        done.columns, done.rows, done.result = carry_out(
            estimator, self.form, "filter", data.rows, steps=1, smooth=True, names=done.names,
            **more,
        )  # fmt: skip
        if settings.forecast:
            _, _, done.forecast = carry_out(
                estimator, self.form, "forecast", data.rows, steps=settings.forecast,
                smooth=False, **more,
            )  # fmt: skip
        return done

    def _method(self, settings: Any) -> dict[str, Any]:
        return {"method": settings.method} if hasattr(settings, "method") else {}

    def how_drawn(self, estimator: Any) -> str:
        """Return that the rows are one sequence."""
        return "one sequence"

    def carry_out(self, task: str, estimator: Any, data: DataSet, **how: Any) -> Answer:
        """Return states, or a forecast."""
        begin = time.perf_counter()
        name = "forecast" if task == "forecast" else "filter"
        done = self.evaluation(estimator, name, data)
        steps, method = how.get("steps", 1), how.get("method")
        if method is not None and self.settings is not FactorialSettings:
            raise MethodError(f"{self.kind.name} has no option --method; leave it out")
        done.columns, done.rows, done.result = carry_out(
            estimator, self.form, name, data.rows, steps=steps, smooth=task == "smooth",
            method=method, names=done.names,
        )  # fmt: skip
        done.seconds = time.perf_counter() - begin
        return done

    def predict(self, estimator: Any, data: DataSet) -> tuple[list[str], list[Any]]:
        """Return the most probable states."""
        if not hasattr(estimator, "predict"):
            raise MethodError(
                f"{self.kind.name} has states that are numbers; use kikuchi filter MODEL DATA"
            )
        found = [np.asarray(estimator.predict(rows)) for rows in data.rows]
        states = np.concatenate([f.reshape(len(f), -1) for f in found])
        names = ["state"] if states.shape[1] == 1 else [f"state{k}" for k in range(states.shape[1])]
        return names, list(states.T)


class StateSpaceWorkflow(SequenceWorkflow):
    """State spaces may have known inputs."""

    form = "ssm"

    def fit(self, estimator: Any, data: DataSet, settings: Any) -> Any:
        """Fit to the sequences and their inputs."""
        inputs = getattr(data, "inputs", None)
        if inputs is not None and settings.forecast:
            raise MethodError("with --inputs there is no forecast; leave --forecast out")
        return estimator.fit(data.rows, inputs=inputs)

    def measure(self, estimator: Any, data: DataSet, settings: Any) -> Answer:
        """With inputs, return the fit only."""
        if getattr(data, "inputs", None) is not None:
            return self.evaluation(estimator, "fit", data)
        return super().measure(estimator, data, settings)


class ChainWorkflow(SequenceWorkflow):
    """Hidden Markov models."""

    form = "hmm"


class FactorialWorkflow(SequenceWorkflow):
    """Several hidden chains."""

    settings = FactorialSettings
    form = "factorial"


class WalkWorkflow(SequenceWorkflow):
    """Sources that move."""

    form = "ica"


class ProbitWorkflow(SequenceWorkflow):
    """On-line classification: probabilities before each label was seen."""

    form = "probit"

    def check(self, estimator: Any, settings: Any) -> None:
        """There is no forecast."""
        if settings.forecast:
            raise MethodError("probit has no forecast; leave --forecast out")

    def fit(self, estimator: Any, data: DataSet, settings: Any) -> Any:
        """Fit to all rows, one after the other."""
        return estimator.fit(np.concatenate(data.rows), np.concatenate(data.targets))

    def measure(self, estimator: Any, data: DataSet, settings: Any) -> Answer:
        """Return the probabilities before each label was seen."""
        done = self.evaluation(estimator, "fit", data)
        p = done.result = estimator.predicted_
        done.columns, done.rows = ["probability"], p[:, None]
        return done

    def score(self, estimator: Any, data: DataSet) -> Answer:
        """Return errors of the labels by the final weights."""
        data.rows, data.targets = np.concatenate(data.rows), np.concatenate(data.targets)
        return super().score(estimator, data)

    def carry_out(self, task: str, estimator: Any, data: DataSet, **how: Any) -> Answer:
        """Return the probabilities by the final weights."""
        if task != "filter":
            raise MethodError(f"probit has no {task}; use kikuchi filter MODEL DATA")
        done = self.evaluation(estimator, "filter", data)
        p = estimator.predict_proba(np.concatenate(data.rows))[:, 1]
        done.result, done.columns, done.rows = p, ["probability"], p[:, None]
        return done

    def predict(self, estimator: Any, data: DataSet) -> tuple[list[str], list[Any]]:
        """Return classes with probabilities."""
        data.rows = np.concatenate(data.rows)
        return Workflow.predict(self, estimator, data)
