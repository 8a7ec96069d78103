"""Evaluation of a fitted network: errors, calibration, relevance, and its bound."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.bayesnn.classifier import BayesianMLPClassifier
from kikuchi.bayesnn.estimator import BayesianNetworkEstimator
from kikuchi.bayesnn.regressor import BayesianMLPRegressor
from kikuchi.core import text
from kikuchi.core.answer import TextTable
from kikuchi.core.arrays import Array
from kikuchi.core.options import option
from kikuchi.core.page import Sections, Tile
from kikuchi.training.answer import RowsAnswer
from kikuchi.training.workflow import DataSet, Workflow

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
_BINS = 10
_MOST_LISTED = 20


@dataclass
class NetworkEvaluation(RowsAnswer):
    """Evaluation of a fitted network on training rows, held-out rows, or new rows."""

    subtitle: ClassVar[str] = "A network whose weights have a variational posterior"

    estimator: BayesianNetworkEstimator
    source: str
    rows: Array
    targets: Array
    held_out: Array | None = None
    held_out_targets: Array | None = None
    new: bool = False

    @property
    def judged_rows(self) -> tuple[Array, Array]:
        """The rows that were measured, and their targets."""
        if self.held_out is None or self.held_out_targets is None:
            return self.rows, self.targets
        return self.held_out, self.held_out_targets

    @property
    def names(self) -> list[str]:
        """Names of the inputs."""
        known = self.estimator.columns_[:-1]
        return known or [f"input {k}" for k in range(self.estimator.n_features_in_)]

    @property
    def regression(self) -> bool:
        """Whether targets are numbers rather than classes."""
        return isinstance(self.estimator, BayesianMLPRegressor)

    @cached_property
    def scores(self) -> dict[str, float]:
        """Errors and mean log-density of the judged rows."""
        x, y = self.judged_rows
        if isinstance(self.estimator, BayesianMLPRegressor):
            mean = np.asarray(self.estimator.predict(x))
            rmse = float(np.sqrt(np.mean((mean - y) ** 2)))
            share = 1.0 - rmse**2 / float(np.var(y)) if np.var(y) > 0 else float("nan")
            return {"rmse": rmse, "r_squared": share, "coverage_95": self.coverage[0.95]}
        assert isinstance(self.estimator, BayesianMLPClassifier)
        p = self.estimator.predict_proba(x)
        codes = self.estimator._read(x, y, reset=False)[1].astype(np.int64)
        own = p[np.arange(len(y)), codes]
        return {
            "accuracy": float(np.mean(np.argmax(p, axis=1) == codes)),
            "log_probability": float(np.mean(np.log(np.maximum(own, 1e-300)))),
        }

    @cached_property
    def coverage(self) -> dict[float, float]:
        """Share of the judged targets within central intervals of each level (regression)."""
        assert isinstance(self.estimator, BayesianMLPRegressor)
        x, y = self.judged_rows
        found = {}
        for level in LEVELS:
            low, high = self.estimator.predict_interval(x, level)
            found[level] = float(np.mean((low <= y) & (y <= high)))
        return found

    def reliability(self) -> tuple[Array, Array, NDArray[np.int64]]:
        """Mean probability, share that came true, and count, by bins of probability (classes)."""
        assert isinstance(self.estimator, BayesianMLPClassifier)
        x, y = self.judged_rows
        p = self.estimator.predict_proba(x).ravel()
        true = (y[:, None] == self.estimator.classes_).ravel()
        place = np.minimum((_BINS * p).astype(np.int64), _BINS - 1)
        count = np.bincount(place, minlength=_BINS)
        some = count > 0
        told = [np.bincount(place, a, _BINS)[some] / count[some] for a in (p, true)]
        return told[0], told[1], count[some]

    def facts(self) -> list[tuple[str, str]]:
        """The data, the network, how the fit went, and what was measured."""
        e = self.estimator
        kept = "" if self.held_out is None else f", {len(self.held_out)} held out"
        size = f"{e.n_features_in_} inputs, {e._network.n_hidden} hidden units"
        left = f"{int(e.inputs_kept_.sum())} inputs, {int(e.hidden_kept_.sum())} hidden units"
        work = f"{text.count(e.n_iter_, 'step')}, {text.seconds(self.seconds)}"
        facts = [
            ("data", f"{self.source}: {text.count(len(self.rows), 'row')}{kept}"),
            ("network", f"{size}{', skip connections' if e.skip else ''}"),
            ("posterior, prior", f"{e.posterior}, {e.prior}"),
            ("fit", f"{self.stopped} ({work})"),
            ("bound on the log evidence", f"{e.bound_:.2f}"),
        ]
        if e.pruning_:
            facts.append(("left by pruning", left))
        if isinstance(e, BayesianMLPRegressor):
            facts.append(("noise", f"{e.noise_:.4g} ({e.scale} scale)"))
            facts.append(("RMSE", f"{self.scores['rmse']:.4g}, {self.judged}"))
            facts.append(("R²", f"{self.scores['r_squared']:.4f}"))
            facts.append(("within 95 % intervals", f"{self.scores['coverage_95']:.1%}"))
        else:
            facts.append(("accuracy", f"{self.scores['accuracy']:.1%}, {self.judged}"))
            facts.append(("log-probability per row", f"{self.scores['log_probability']:.4f}"))
        return facts

    def table(self) -> TextTable:
        """Relevance of the inputs, the largest first."""
        order = np.argsort(-self.estimator.relevance_, kind="stable")[:_MOST_LISTED]
        rows = [[self.names[k], f"{self.estimator.relevance_[k]:.3f}"] for k in order]
        return TextTable(["input", "relevance"], rows, right=[1])

    def ending_tiles(self) -> list[Tile]:
        """The end of the fit, its bound, and its duration."""
        e = self.estimator
        return [
            Tile("fit", self.stopped, "good" if e.converged_ else "bad"),
            Tile("bound", f"{e.bound_:.1f} nats"),
            Tile("time", text.seconds(self.seconds)),
        ]

    def tiles(self) -> list[Tile]:
        """Errors and calibration."""
        from kikuchi.bayesnn.figures import score_tiles

        return score_tiles(self)

    def figures(self) -> Sections:
        """Predictions with bands, calibration, relevance, and the bound."""
        from kikuchi.bayesnn.figures import network_figures

        return network_figures(self)

    def python(self) -> str:
        """The equivalent code."""
        name = type(self.estimator).__name__
        return f"from kikuchi.bayesnn import {name}\nnet = {self.estimator!r}.fit(X, y)"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        e = self.estimator
        found = {
            **self.rows_dict(),
            "judged": self.judged,
            "bound": e.bound_,
            **self.scores,
            "relevance": dict(zip(self.names, e.relevance_.tolist(), strict=True)),
            "hidden_kept": int(e.hidden_kept_.sum()),
            "inputs_kept": [n for n, k in zip(self.names, e.inputs_kept_, strict=True) if k],
            "pruning": e.pruning_,
        }
        if self.regression:
            found["coverage"] = {f"{level:g}": share for level, share in self.coverage.items()}
        return found


@dataclass
class NetworkSettings:
    """Further options of `kikuchi fit bayesnn`."""

    prune: bool = option(False, "Remove inputs and units that the bound does not need.")


class NetworkWorkflow(Workflow):
    """Networks predict a column, are pruned on request, and measured by errors and calibration."""

    settings: ClassVar[Any] = NetworkSettings

    def fit(self, estimator: Any, data: DataSet, settings: Any) -> Any:
        """Fit, prune, and keep the names of the columns, the target last."""
        super().fit(estimator, data, settings)
        if settings.prune and estimator.stopped_ not in ("seconds", "interrupted"):
            estimator.prune()
        estimator.columns_ = data.columns or []
        return estimator

    def measure(self, estimator: Any, data: DataSet, settings: Any) -> NetworkEvaluation:
        """Measure predictions of rows held out, or else of its own."""
        return NetworkEvaluation(
            estimator, data.source, data.rows, data.targets, data.held_out, data.held_out_targets
        )

    def score(self, estimator: Any, data: DataSet) -> NetworkEvaluation:
        """Measure predictions of other rows."""
        return NetworkEvaluation(estimator, data.source, data.rows, data.targets, new=True)

    def predict(self, estimator: Any, data: DataSet) -> tuple[list[str], list[Any]]:
        """Return predictions; of numbers with intervals of 95 %."""
        columns, values = super().predict(estimator, data)
        if "numbers" in self.kind.gives:
            columns += [f"{columns[0]}_low", f"{columns[0]}_high"]
            values += list(estimator.predict_interval(data.rows))
        return columns, values
