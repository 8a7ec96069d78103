"""How well a trained machine explains rows: reconstructions, free energies and likelihoods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.answer import attributes
from kikuchi.core.errors import MethodError
from kikuchi.core.page import Sections, Tile
from kikuchi.training.answer import RowsAnswer, log_z_text
from kikuchi.training.workflow import DataSet, LogZSettings, Workflow

if TYPE_CHECKING:
    from kikuchi.boltzmann.estimators.estimator import MachineEstimator

Array = NDArray[Any]

_CONNECTIONS = {
    "brf": "no connections within a layer",
    "hrf": "hidden units are connected with each other",
    "poe": "visible units are connected with each other",
    "fcrf": "all units are connected",
}
_MOST_JUDGED = 2000  # rows of which reconstructions and free energies are measured


@dataclass
class MachineEvaluation(RowsAnswer):
    """What was measured of a trained estimator on its rows and on rows held out.

    `reconstruction` and `spread` are root mean squares: of the error of reconstructions, and of the
    data around their means. `shape` is that of images, if the rows are images.
    `log_likelihood_bounds` are those of the mean over the rows, by both ends of the bracket on
    log Z.
    """

    subtitle: ClassVar[str] = "A Boltzmann machine trained on rows of data"

    estimator: MachineEstimator
    source: str
    rows: Array
    held_out: Array | None
    shape: tuple[int, int] | None
    reconstruction: float
    spread: float
    free_energy: float
    free_energy_held_out: float | None
    log_z: dict[str, Any] = field(default_factory=dict)
    log_likelihood: float | None = None
    log_likelihood_held_out: float | None = None
    log_likelihood_bounds: tuple[float, float] | None = None

    @property
    def warnings(self) -> list[str]:
        """Those of the training and of the estimate of log Z."""
        return list(self.estimator.warnings_)

    def facts(self) -> list[tuple[str, str]]:
        """The data, the machine, how the training went, and what was measured."""
        e, machine = self.estimator, self.estimator.model_
        size = f"{machine.n_visible} visible and {machine.n_hidden} hidden units"
        facts = [
            self.data_fact(),
            ("machine", f"{type(e).__name__}, {size}; {_CONNECTIONS[machine.architecture]}"),
            *self.training_facts(),
        ]
        error = f"{self.reconstruction:.4g} rms; data vary by {self.spread:.4g}"
        facts += [("reconstruction error", error), ("free energy", self._free_energies())]
        if self.log_z:
            facts.append(("log Z", log_z_text(self.log_z)))
            facts.append(("log-likelihood per row", self._likelihoods()))
        return facts

    def _free_energies(self) -> str:
        if self.free_energy_held_out is None:
            return f"{self.free_energy:.6g} on average"
        gap = self.free_energy_held_out - self.free_energy
        return f"{self.free_energy:.6g} on average; rows held out differ by {gap:+.4g}"

    def _likelihoods(self) -> str:
        held = self.log_likelihood_held_out
        others = "" if held is None else f", {held:.6g} on rows held out"
        doubts = []
        if self.log_z["method"] != "exact" and self.log_likelihood_bounds is not None:
            low, high = self.log_likelihood_bounds
            doubts.append(f"between {low:.6g} and {high:.6g} by the bracket of log Z")
        if self.estimator.model_.hidden_weights is not None:
            doubts.append("free energies of rows are approximate, as hidden units are connected")
        how = f" ({'; '.join(doubts)})" if doubts else ""
        return f"{self.log_likelihood:.6g}{others}{how}"

    def tiles(self) -> list[Tile]:
        """Reconstructions, free energies and likelihoods."""
        from kikuchi.boltzmann.figures import score_tiles

        return score_tiles(self)

    def figures(self) -> Sections:
        """The trace; of images also reconstructions, samples and filters."""
        from kikuchi.boltzmann.figures import pictures

        return {"Pictures": pictures(self)}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            **self.rows_dict(),
            "reconstruction_rms": self.reconstruction,
            "data_rms": self.spread,
            **attributes(self, "free_energy free_energy_held_out"),
            "log_z": self.log_z or None,
            **attributes(self, "log_likelihood log_likelihood_held_out log_likelihood_bounds"),
            "warnings": self.warnings,
        }


def evaluate(
    estimator: MachineEstimator,
    rows: Array,
    held_out: Array | None = None,
    *,
    log_z: str | None = None,
    shape: tuple[int, int] | None = None,
    source: str = "an array",
) -> MachineEvaluation:
    """Measure a fitted estimator on its rows and on rows held out.

    >>> from kikuchi.boltzmann import RBM
    >>> rows = np.repeat([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 20, axis=0)
    >>> rbm = RBM(2, learner="cd", learning_rate=0.5, max_iter=50, random_state=0).fit(rows)
    >>> evaluation = evaluate(rbm, rows, log_z="exact")
    >>> evaluation.log_z["method"], bool(evaluation.reconstruction < evaluation.spread)
    ('exact', True)
    """
    some = rows[:: max(len(rows) // _MOST_JUDGED, 1)]
    again = estimator.reconstruct(some)
    evaluation = MachineEvaluation(
        estimator,
        source,
        rows,
        held_out,
        shape,
        reconstruction=float(np.sqrt(np.mean((again - some) ** 2))),
        spread=float(np.sqrt(np.mean(np.var(some, axis=0)))),
        free_energy=float(np.mean(estimator.free_energy(some))),
        free_energy_held_out=(
            None if held_out is None else float(np.mean(estimator.free_energy(held_out)))
        ),
    )
    if log_z is not None:
        evaluation.log_z = _measured_log_z(estimator, log_z, some)
        found = estimator.row_likelihoods(some)
        evaluation.log_likelihood = found.mean()
        evaluation.log_likelihood_bounds = float(found.lower.mean()), float(found.upper.mean())
        if held_out is not None:
            evaluation.log_likelihood_held_out = estimator.row_likelihoods(held_out).mean()
    return evaluation


def _measured_log_z(estimator: MachineEstimator, method: str, rows: Array) -> dict[str, Any]:
    chosen: Any = method
    if chosen not in ("auto", "exact", "ais"):
        raise MethodError(f"log_z is 'auto', 'exact' or 'ais', got {method!r}")
    found = estimator.log_z(chosen, data=rows)
    if found.stopped == "exact":
        return {"method": "exact", "estimate": found.estimate}
    names = "estimate lower upper confidence reliable warnings"
    return {"method": "ais", **attributes(found, names)}


class MachineWorkflow(Workflow):
    """Machines are measured by reconstructions, free energies and, if asked, likelihoods."""

    settings: ClassVar[Any] = LogZSettings

    def check(self, estimator: Any, settings: Any) -> None:
        """Refuse other words of --log-z."""
        settings.check()

    def fit(self, estimator: Any, data: DataSet, settings: Any) -> Any:
        """Check the values for the visible units, with advice in options of the command."""
        from kikuchi.boltzmann.units import parse_units
        from kikuchi.training.rows import check_values

        if estimator.limits is not None:
            return super().fit(estimator, data, settings)
        units = parse_units(getattr(estimator, "visible", "binary"))
        advice = f"of {units.name} units; use --divide, --threshold or rbm with --visible gaussian"
        check_values(data.in_file_order(), units.limits, advice, name=data.source, first=1)
        return super().fit(estimator, data, settings)

    def measure(self, estimator: Any, data: DataSet, settings: Any) -> MachineEvaluation:
        """Measure the machine on its rows and on rows held out."""
        shape: Any = data.shape
        return evaluate(
            estimator, data.rows, data.held_out, log_z=settings.log_z, shape=shape,
            source=data.source,
        )  # fmt: skip

    def score(self, estimator: Any, data: DataSet) -> MachineEvaluation:
        """Measure the machine on other rows, with its log Z."""
        shape: Any = data.shape
        return evaluate(estimator, data.rows, log_z="auto", shape=shape, source=data.source)

    def how_drawn(self, estimator: Any) -> str:
        """Return that rows are states of Gibbs chains."""
        return "chains of a sampler, not independent of their start"
