"""What there is to say of a trained energy model: how well it explains rows, and its filters."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.answer import attributes
from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.options import option
from kikuchi.core.page import Sections, Tile
from kikuchi.energy.defaults import AUTO
from kikuchi.energy.estimator import EnergyModel
from kikuchi.energy.expert_ica import ExpertICA
from kikuchi.energy.filters import GaborFits, TimeFrequency, fit_gabors, time_frequency
from kikuchi.energy.preparation import Patches
from kikuchi.energy.transposed import prepare_transposed
from kikuchi.training.answer import RowsAnswer, log_z_text
from kikuchi.training.workflow import DataSet, LogZSettings, Workflow

_MOST_JUDGED = 2000  # rows of which densities and score-matching losses are measured
_SMALLEST_SIDE = 6  # pixels: below, every filter is near some Gabor function


@dataclass
class EnergyEvaluation(RowsAnswer):
    """What was measured of a fitted energy model on its rows, or on rows held out.

    `likelihood` is the mean log-density of these rows by the upper and the lower end of the bracket
    on log Z, `gaussian` that of the normal distribution with the covariance of the rows learnt
    from; both in the coordinates of the rows. `shape` is that of the pieces: height and width of
    patches, or samples of windows; None for other rows. Of a `transposed` model the rows are
    pixels, and its filters are shown as what they answer at all pixels.
    """

    subtitle: ClassVar[str] = "An energy-based model trained on rows of data"

    estimator: EnergyModel
    source: str
    rows: NDArray[Any]
    held_out: NDArray[Any] | None
    shape: tuple[int, ...] | None
    score_matching: float
    gaussian: float
    log_z: dict[str, Any] = field(default_factory=dict)
    likelihood: tuple[float, float] | None = None
    new: bool = False
    transposed: bool = False

    @property
    def warnings(self) -> list[str]:
        """Those of the rows, of the training and of the estimate of log Z."""
        told = self.estimator.preparation_
        first = [] if told is None else told.warnings()
        return [*first, *self.estimator.warnings_]

    @cached_property
    def filters(self) -> Array | None:
        """What each feature looks for, as pieces (rows); those of largest white norm first. None
        where the energy has no linear features.
        """
        if not isinstance(self.estimator, ExpertICA):
            return None
        if self.transposed:
            outputs = np.asarray(self.estimator.transform(self.rows), dtype=np.float64).T
            return outputs[np.argsort(-np.linalg.norm(outputs, axis=1), kind="stable")]
        shown = self.estimator.basis_
        if self.estimator.preparation_ is not None:
            shown = self.estimator.preparation_.directions(shown)
        order = np.argsort(-np.linalg.norm(self.estimator.white_filters_, axis=1), kind="stable")
        return np.asarray(shown[order])

    @cached_property
    def gabors(self) -> GaborFits | None:
        """Gabor functions of the filters, in their order; None for other than pictures."""
        if self.filters is None or self.shape is None or len(self.shape) != 2:
            return None
        if min(self.shape) < _SMALLEST_SIDE:
            return None
        return fit_gabors(self.filters, (self.shape[0], self.shape[1]))

    @cached_property
    def sounds(self) -> TimeFrequency | None:
        """Time and frequency of the filters, in their order; None for other than sounds."""
        if self.filters is None or self.shape is None or len(self.shape) != 1:
            return None
        told = self.estimator.preparation_
        return time_frequency(self.filters, (told and told.rate) or 1.0)

    def facts(self) -> list[tuple[str, str]]:
        """The data, the model, how the training went, and what was measured."""
        e = self.estimator
        facts = [self.data_fact("pixel" if self.transposed else "row")]
        if e.preparation_ is not None:
            facts += e.preparation_.facts()
        expert = f", {e.expert}" if isinstance(e, ExpertICA) else ""
        columns = e.whitening_.forward.shape[0]
        energy = e.recipe_.energy if e.energy == AUTO else e.energy
        size = f"{e._n_features_out} features of {columns} white columns"
        facts += [("energy", f"{energy}{expert}: {size}"), *self.training_facts()]
        facts.append(("score matching", f"{self.score_matching:.5g} per row, {self.judged}"))
        if not e.has_density:
            facts.append(("log Z", "infinite: there is no density"))
        if self.log_z and self.likelihood is not None:
            low, high = self.likelihood
            each = f"{low / columns:.4f} to {high / columns:.4f} per dimension"
            facts.append(("log Z", log_z_text(self.log_z)))
            between = f"{low:.4f}" if low == high else f"between {low:.3f} and {high:.3f}"
            facts.append(("log-density per row", f"{between} ({each}), {self.judged}"))
            facts.append(("of a normal distribution", f"{self.gaussian:.3f}"))
        return facts

    def tiles(self) -> list[Tile]:
        """Features, Gabor fits and densities."""
        from kikuchi.energy.figures import model_tiles

        return model_tiles(self)

    def figures(self) -> Sections:
        """Filters, samples beside data, and how the training went."""
        from kikuchi.energy.figures import model_figures

        return model_figures(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        e = self.estimator
        shapes = e.shapes_ if isinstance(e, ExpertICA) else None
        contrast = None
        if "log_lengths" in e._values:
            lengths = np.exp(np.asarray(e._values["log_lengths"], dtype=np.float64))
            weights = np.asarray(e._values["contrast"])
            contrast = {"lengths": lengths.tolist(), "weights": weights.tolist()}
        return {
            **self.rows_dict(),
            "preparation": None if e.preparation_ is None else e.preparation_.to_dict(),
            "features": e._n_features_out,
            "transposed": self.transposed,
            "score_matching": self.score_matching,
            "log_z": self.log_z or None,
            "log_density": None if self.likelihood is None else list(self.likelihood),
            "log_density_normal": self.gaussian,
            "shapes": None if shapes is None else shapes.tolist(),
            "contrast": contrast,
            "gabor": None if self.gabors is None else self.gabors.to_dict(),
            "time_frequency": None if self.sounds is None else self.sounds.to_dict(),
            "measures": e.trace_.measures,
            "warnings": self.warnings,
        }


def evaluate(
    estimator: EnergyModel,
    rows: NDArray[Any],
    held_out: NDArray[Any] | None = None,
    *,
    log_z: str | None = None,
    shape: tuple[int, ...] | None = None,
    source: str = "an array",
    new: bool = False,
    transposed: bool = False,
) -> EnergyEvaluation:
    """Measure a fitted energy model on rows held out, or else on its own.

    `log_z` is `exact` (square models), `ais` for a bracket, or None; a model without density has
    none. `new` says that the model was not learnt from `rows`, `transposed` that these are the
    pixels of images of this `shape`.

    >>> rows = np.random.default_rng(0).laplace(size=(500, 3))
    >>> model = ExpertICA(expert="logistic", learner="exact", max_iter=5, random_state=0).fit(rows)
    >>> found = evaluate(model, rows, log_z="exact")
    >>> found.likelihood[0] == found.likelihood[1] > found.gaussian
    True
    """
    judged = rows if held_out is None else held_out
    some = judged[:: max(len(judged) // _MOST_JUDGED, 1)]
    evaluation = EnergyEvaluation(
        estimator,
        source,
        rows,
        held_out,
        shape,
        score_matching=estimator.score_matching_loss(some),
        gaussian=_normal_log_density(estimator, some),
        new=new,
        transposed=transposed,
    )
    if log_z is not None and estimator.has_density:
        evaluation.log_z = _measured_log_z(estimator, log_z)
        evaluation.likelihood = estimator.score_bounds(some)
    return evaluation


def _normal_log_density(estimator: EnergyModel, rows: NDArray[Any]) -> float:
    """Mean log-density under the normal distribution of the training rows."""
    whitening = estimator.whitening_
    logs = whitening.normal_log_densities(whitening(rows), estimator._base_rows)
    return float(np.mean(logs)) + whitening.log_det


def _measured_log_z(estimator: EnergyModel, method: str) -> dict[str, Any]:
    if method not in ("exact", "ais"):
        raise MethodError(f"log Z is found by 'exact' or 'ais', not {method!r}")
    if method == "exact" and not estimator.is_square:
        raise MethodError(
            "log Z is exact only for linear experts without contrast and with as many features as "
            "white columns; use ais"
        )
    found = estimator.log_z_ if hasattr(estimator, "log_z_") else estimator.log_z()
    told: dict[str, Any] = {"method": "exact" if found.stopped == "exact" else "ais"}
    return told | attributes(found, "estimate lower upper confidence reliable warnings")


@dataclass
class EnergyFitSettings(LogZSettings):
    """Further options of `kikuchi fit energy`."""

    transposed: bool = option(False, "Pixels are the rows and images the columns.")


class EnergyWorkflow(Workflow):
    """Energy models learn from rows or patches, and are measured by densities and filters."""

    settings: ClassVar[Any] = EnergyFitSettings

    def check(self, estimator: Any, settings: Any) -> None:
        """Refuse other words of --log-z."""
        settings.check()

    def fit(self, estimator: Any, data: DataSet, settings: Any) -> Any:
        """Fit to the rows, or to the pixels of images."""
        if settings.transposed:
            if data.held_out is not None:
                raise DataError(
                    "--hold-out keeps images, and --transposed learns from pixels: leave it out"
                )
            rows = data.rows.undone() if isinstance(data.rows, Patches) else data.rows
            data.rows, data.names = prepare_transposed(rows, estimator), None
        return super().fit(estimator, data, settings)

    def measure(self, estimator: Any, data: DataSet, settings: Any) -> EnergyEvaluation:
        """Measure the model on rows held out, or else on its own."""
        return evaluate(
            estimator, np.asarray(data.rows), data.held_out, log_z=settings.log_z,
            shape=data.shape, source=data.source, transposed=settings.transposed,
        )  # fmt: skip

    def score(self, estimator: Any, data: DataSet) -> EnergyEvaluation:
        """Measure the model on other rows, with its log Z."""
        estimator.log_z(seconds=data.seconds)
        rows = np.asarray(data.rows)
        return evaluate(
            estimator, rows, log_z="ais", shape=data.shape, source=data.source, new=True
        )

    def how_drawn(self, estimator: Any) -> str:
        """Return that rows are exact draws of square models, else states of chains."""
        chains = "chains of a sampler, not independent of their start"
        return "exact" if estimator.is_square else chains

    def bundle(self, estimator: Any, rows: Any, model: str) -> Patches | None:
        """Return patches, where those of the fit say how they were prepared."""
        told = estimator.preparation_
        if told is None:
            return None
        kept = dataclasses.replace(told, drawn=0, flat=0, rows=len(rows), sources=(model,))
        return Patches(np.asarray(rows, dtype=np.float32), kept)
