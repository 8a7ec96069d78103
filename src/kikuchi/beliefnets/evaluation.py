"""How well a trained belief network explains rows: bounds, nearer likelihoods, or errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from kikuchi.beliefnets.estimator import SigmoidBeliefNetwork
from kikuchi.beliefnets.threshold import ThresholdNetworkClassifier
from kikuchi.core import text
from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.core.page import Sections
from kikuchi.training.answer import MeasuredAnswer, training_picture
from kikuchi.training.workflow import DataSet, LogZSettings, Workflow

_MOST_JUDGED = 500  # rows whose bounds are measured
_MOST_SAMPLED = 100  # rows whose likelihood is estimated by draws
_DRAWS = 500


@dataclass
class BeliefEvaluation(MeasuredAnswer):
    """What was measured of a trained belief network.

    `measures` are numbers by name: of sigmoid networks the mean bound of training rows and held
    out, the mean log-likelihood as estimated on some of them and the gap; of noisy-or networks the
    bracket; of threshold networks fractions of errors.
    """

    estimator: Any
    source: str
    rows: Array
    held_out: Array | None
    shape: tuple[int, ...] | None
    measures: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    subtitle: ClassVar[str] = "A network of binary causes trained on rows of data"

    def figures(self) -> Sections:
        """The bound over time; of images also samples and features by layer."""
        from kikuchi.beliefnets.figures import pictures

        return {"Training": [training_picture(self.estimator)], "Pictures": pictures(self)}

    def facts(self) -> list[tuple[str, str]]:
        """The data, the network, how the training went, and what was measured."""
        return [
            self.data_fact(),
            ("network", self._form()),
            *self.training_facts(),
            *self.measured_facts(),
        ]

    @property
    def objective(self) -> float | None:
        """The objective of the training, unless bounds were measured: it is of other rows."""
        return None if self.measures else super().objective

    def _form(self) -> str:
        e = self.estimator
        if isinstance(e, SigmoidBeliefNetwork):
            layers = e.model_.layers
            return f"{'-'.join(map(str, layers))} sigmoid units, layers from the top"
        if isinstance(e, ThresholdNetworkClassifier):
            sizes = "-".join(str(int(n)) for n in e.model_[0].sizes)
            return f"{sizes} threshold units, {text.count(len(e.model_), 'network')}"
        return f"{e.n_components} causes of {e.n_features_in_} findings, noisy-or"


def evaluate(
    estimator: Any,
    rows: Array,
    held_out: Array | None = None,
    *,
    labels: tuple[Any, Any] | None = None,
    shape: tuple[int, ...] | None = None,
    source: str = "an array",
    seed: int = 0,
    annealed: bool = False,
    new: bool = False,
) -> BeliefEvaluation:
    """Measure a fitted network on its rows and on rows held out.

    `new` says that the network was not learnt from `rows`.
    """
    rows = np.asarray(rows)
    found = BeliefEvaluation(estimator, source, rows, held_out, shape)
    if labels is not None:
        _measure_errors(found, labels)
    else:
        _measure_bounds(found, seed, annealed, new)
    return found


def _measure_errors(found: BeliefEvaluation, labels: tuple[Any, Any]) -> None:
    e = found.estimator
    found.measures["errors on training rows"] = float(np.mean(e.predict(found.rows) != labels[0]))
    if found.held_out is not None:
        wrong = e.predict(found.held_out) != labels[1]
        found.measures["errors on rows held out"] = float(np.mean(wrong))
        found.notes["errors on rows held out"] = f"{int(wrong.sum())} of {len(wrong)}"


def _measure_bounds(found: BeliefEvaluation, seed: int, annealed: bool, new: bool) -> None:
    e = found.estimator
    groups = {
        "these rows" if new else "training rows": found.rows,
        "rows held out": found.held_out,
    }
    if getattr(e, "posterior", "").startswith("gibbs"):
        groups = {}
    sampled = hasattr(e, "row_likelihoods")
    for name, rows in groups.items():
        if rows is not None:
            # the rows of the likelihood, or the bound of others may stand above it
            some = rows[: _MOST_SAMPLED if sampled else _MOST_JUDGED]
            found.measures[f"bound per row, {name}"] = e.score(some)
            if len(some) < len(rows):
                found.notes[f"bound per row, {name}"] = f"first {len(some)} rows"
    judged = found.rows if found.held_out is None else found.held_out
    judged = judged[:_MOST_SAMPLED]
    if not sampled:
        return
    likely = e.row_likelihoods(judged, draws=_DRAWS, random_state=seed)
    which = "these rows" if new else found.judged
    name = f"log-likelihood per row, {which}"
    found.measures[name] = likely.mean()
    exact = bool(np.array_equal(likely.lower, likely.upper))
    how = "exact" if exact else f"{_DRAWS} draws, ± {likely.error:.2g}"
    found.notes[name] = f"first {len(judged)} rows, {how}"
    if groups:
        found.measures["gap of the bound there"] = likely.mean() - e.score(judged)
    if getattr(e, "posterior", "").startswith("recognition"):
        for name in found.measures:
            if "bound" in name:
                found.notes[name] = "by draws: a bound in expectation"
    if annealed:
        between = e.row_likelihoods(judged, "ais", random_state=seed)
        low, high = between.mean_bounds()
        found.measures["annealed, from below"] = low
        found.measures["annealed, from above"] = high
        for name in ("annealed, from below", "annealed, from above"):
            found.notes[name] = f"limits at {between.confidence:.0%} confidence"


class BeliefWorkflow(Workflow):
    """Belief networks are measured by bounds and, if asked, annealed likelihoods."""

    settings: ClassVar[Any] = LogZSettings

    def check(self, estimator: Any, settings: Any) -> None:
        """Refuse other words of --log-z."""
        settings.check()
        if settings.log_z == "exact":
            raise MethodError("belief networks have Z = 1; leave --log-z exact out")

    def measure(self, estimator: Any, data: DataSet, settings: Any) -> BeliefEvaluation:
        """Measure bounds of the rows and of rows held out."""
        return evaluate(
            estimator, data.rows, data.held_out, shape=data.shape, source=data.source,
            seed=data.seed, annealed=settings.log_z == "ais",
        )  # fmt: skip

    def score(self, estimator: Any, data: DataSet) -> BeliefEvaluation:
        """Measure bounds of other rows."""
        return evaluate(estimator, data.rows, shape=data.shape, source=data.source, new=True)


class ThresholdWorkflow(Workflow):
    """Classifiers of threshold units are measured by errors."""

    def measure(self, estimator: Any, data: DataSet, settings: Any) -> BeliefEvaluation:
        """Measure errors on the rows and on rows held out."""
        labels = data.targets, data.held_out_targets
        return evaluate(estimator, data.rows, data.held_out, labels=labels, source=data.source)
