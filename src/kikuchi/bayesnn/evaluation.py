"""What there is to say of a fitted network: errors, calibration, relevance, and its bound."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.bayesnn.classifier import BayesianMLPClassifier
from kikuchi.bayesnn.estimator import BayesianNetworkEstimator
from kikuchi.bayesnn.regressor import BayesianMLPRegressor
from kikuchi.core import text
from kikuchi.core.answer import TextTable
from kikuchi.core.arrays import Array
from kikuchi.training.answer import RowsAnswer

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
_BINS = 10
_MOST_LISTED = 20


@dataclass
class NetworkEvaluation(RowsAnswer):
    """What was measured of a fitted network on rows it learnt from, on rows held out, or on new."""

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
