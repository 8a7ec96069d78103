"""Evaluations of flows: log-likelihoods compared with Gaussian mixtures, or errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr

from kikuchi.core import text
from kikuchi.core.arrays import Array
from kikuchi.core.page import Sections
from kikuchi.flows.start import CANDIDATES
from kikuchi.training.answer import MeasuredAnswer
from kikuchi.training.workflow import DataSet, Workflow

GAUSSIANS = CANDIDATES
"""Components of the Gaussian mixtures beside flows: as many as those that flows begin from."""


@dataclass
class FlowEvaluation(MeasuredAnswer):
    """Evaluation of fitted flows: `measures` are numbers by name, `notes` comment on some.

    `held_out` rows were seen neither by the training nor by its validation; `names` are those of
    the columns, if they have any.
    """

    estimator: Any
    source: str
    rows: Array
    held_out: Array | None
    measures: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    names: list[str] | None = None

    subtitle: ClassVar[str] = "Normalising flows, and the Gaussian mixture they began from"

    def figures(self) -> Sections:
        """Held-out scores by epoch, and samples beside data."""
        from kikuchi.flows.figures import samples, training

        return {"Training": training(self), "Samples": samples(self)}

    def training_facts(self) -> list[tuple[str, str]]:
        """The end of the training; its objective is for standardised rows, unlike the measures."""
        work = f"{text.count(self.estimator.n_iter_, 'epoch')}, {text.seconds(self.seconds)}"
        return [("training", f"{self.stopped} ({work})")]

    def facts(self) -> list[tuple[str, str]]:
        """The data, the flows, how the training went, and what was measured."""
        e = self.estimator
        spec = e.model_.spec
        flows = f"{text.count(spec.components, 'component')}, flow {spec.flow} ({spec.form})"
        if spec.groups > 1:
            flows = f"{spec.groups} classes of {flows}"
        facts = [self.data_fact(), ("model", flows), *self._gain(), *self.training_facts()]
        return [*facts, *self.measured_facts()]

    def _gain(self) -> list[tuple[str, str]]:
        """The gain of the flow over the Gaussian mixture from which it started."""
        gain = getattr(self.estimator, "flow_gain_", np.nan)
        if np.isnan(gain):
            return []
        told = f"{gain:+.3g} nats per held-out row over the Gaussian mixture that it began from"
        none = "none: a Gaussian mixture is better on held-out rows and is the result"
        return [("gain of the flow", told if gain > 0 else none)]


def gaussian_mixture_scores(
    estimator: Any, rows: Array, held_out: Array, components: tuple[int, ...] = GAUSSIANS
) -> dict[int, Array]:
    """Log-densities of held-out rows by Gaussian mixtures (scikit-learn's, full covariances) of the
    same rows, dequantised and standardised in the same way, by number of components.
    """
    import warnings

    from sklearn.mixture import GaussianMixture

    told = estimator.preparation_
    rng = np.random.default_rng(0)
    learnt = told.standardised(told.dequantised(rows, rng))
    found: dict[int, Array] = {}
    for k in components:
        if k > len(learnt) // 2:
            break
        with warnings.catch_warnings(action="ignore"):
            model = GaussianMixture(k, random_state=0).fit(learnt)
        found[k] = told.cell_average(held_out, model.score_samples)
    return found


def evaluate(
    estimator: Any,
    rows: Array,
    held_out: Array | None = None,
    *,
    source: str = "an array",
    labels: tuple[Any, Any] | None = None,
    names: list[str] | None = None,
) -> FlowEvaluation:
    """Measure fitted flows on their rows and on rows held out, Gaussian mixtures beside.

    >>> from kikuchi.flows import FlowMixture
    >>> rows = np.random.default_rng(0).normal(size=(100, 2))
    >>> model = FlowMixture(1, flow="affine", max_iter=1, random_state=0).fit(rows[:80])
    >>> sorted(evaluate(model, rows[:80], rows[80:]).measures)[0]
    'Gaussian mixture, rows held out'
    """
    rows = np.asarray(rows, dtype=np.float64)
    found = FlowEvaluation(estimator, source, rows, held_out, names=names)
    if labels is not None:
        _measure_errors(found, labels)
        return found
    for name, part in (("training rows", rows), ("rows held out", held_out)):
        if part is not None and len(part) > 1:
            mean, error = estimator.score_with_error(part)
            found.measures[f"log-likelihood per row, {name}"] = mean
            found.notes[f"log-likelihood per row, {name}"] = f"± {error:.2g}"
    if held_out is not None and len(held_out) > 1:
        _measure_gaussians(found, held_out)
    return found


def _measure_gaussians(found: FlowEvaluation, held_out: Array) -> None:
    """The best Gaussian mixture on the held-out rows, and the difference to it, pair by pair."""
    scores = gaussian_mixture_scores(found.estimator, found.rows, held_out)
    best = max(scores, key=lambda k: float(np.mean(scores[k])))
    name = "Gaussian mixture, rows held out"
    found.measures[name] = float(np.mean(scores[best]))
    found.notes[name] = f"best of up to {max(scores)} components: {best}, chosen by these rows"
    gain = found.estimator.score_samples(held_out) - scores[best]
    error = float(np.std(gain, ddof=1) / np.sqrt(len(gain)))
    found.measures["flow minus Gaussian mixture"] = float(np.mean(gain))
    sure = float(ndtr(np.mean(gain) / error)) if error > 0 else float(np.mean(gain) > 0)
    found.notes["flow minus Gaussian mixture"] = f"± {error:.2g}; above with probability {sure:.2g}"


def _measure_errors(found: FlowEvaluation, labels: tuple[Any, Any]) -> None:
    e = found.estimator
    wrong = e.predict(found.rows) != labels[0]
    found.measures["errors on training rows"] = float(np.mean(wrong))
    if found.held_out is not None:
        wrong = e.predict(found.held_out) != labels[1]
        found.measures["errors on rows held out"] = float(np.mean(wrong))
        found.notes["errors on rows held out"] = f"{int(wrong.sum())} of {len(wrong)}"


class FlowWorkflow(Workflow):
    """Flows are measured by log-likelihoods with Gaussian mixtures beside, or by errors."""

    def measure(self, estimator: Any, data: DataSet, settings: Any) -> FlowEvaluation:
        """Measure the flows on their rows and on rows held out."""
        labels = None if data.targets is None else (data.targets, data.held_out_targets)
        return evaluate(
            estimator, np.asarray(data.rows), data.held_out, source=data.source, labels=labels,
            names=data.names,
        )  # fmt: skip
