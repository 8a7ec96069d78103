"""What a trained machine has learnt: figures for the screen, and a page with pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import MethodError
from kikuchi.plots.convergence import convergence
from kikuchi.plots.images import image_rows, tiles
from kikuchi.reports import html, parts, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kikuchi.boltzmann.estimator import MachineEstimator

Array = NDArray[Any]

_MOST_JUDGED = 2000  # rows of which reconstructions and free energies are measured
_SHOWN = 12  # images in a row
_MOST_FILTERS = 60
_SAMPLE_STEPS = 500


@dataclass
class Findings:
    """What was found out about a trained estimator."""

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

    @property
    def warnings(self) -> list[str]:
        """What a reader must know."""
        return [*self.estimator.warnings_, *self.log_z.get("warnings", [])]

    def pairs(self) -> list[tuple[str, str]]:
        """Labels with their values, for the screen."""
        e, machine = self.estimator, self.estimator.machine_
        size = f"{machine.n_visible} visible and {machine.n_hidden} hidden units"
        work = f"{text.count(e.n_iter_, 'epoch')}, {text.seconds(self.seconds)}"
        kept = "" if self.held_out is None else f", {len(self.held_out)} held out"
        found = [
            ("data", f"{self.source}: {text.count(len(self.rows), 'row')}{kept}"),
            ("machine", f"{type(e).__name__} ({machine.architecture}), {size}"),
            ("learner", e.learner),
            ("training", f"{_stopped(e.stopped_)} ({work})"),
        ]
        objective = self.objective
        if objective is not None:
            found.append((e.trace_.objective_name, f"{objective:.6g}"))
        found.append(
            (
                "reconstruction error",
                f"{self.reconstruction:.4g} rms; data vary by {self.spread:.4g}",
            )
        )
        found.append(("free energy", self._free_energies()))
        if self.log_z:
            found.append(("log Z", self._log_z()))
            found.append(("log-likelihood per row", self._likelihoods()))
        return found

    @property
    def seconds(self) -> float:
        """Of the training."""
        taken = self.estimator.trace_.seconds
        return taken[-1] if taken else 0.0

    @property
    def objective(self) -> float | None:
        """The last objective of the trace, if the rule has one."""
        values = self.estimator.trace_.objective
        return values[-1] if values and np.isfinite(values[-1]) else None

    def _free_energies(self) -> str:
        if self.free_energy_held_out is None:
            return f"{self.free_energy:.6g} on average"
        gap = self.free_energy_held_out - self.free_energy
        return f"{self.free_energy:.6g} on average; rows held out differ by {gap:+.4g}"

    def _log_z(self) -> str:
        if self.log_z["method"] == "exact":
            return f"{self.log_z['estimate']:.6f} (exact)"
        low, high = self.log_z["lower"], self.log_z["upper"]
        share = 100 * self.log_z["confidence"]
        return f"{self.log_z['estimate']:.4f}, between {low:.4f} and {high:.4f} ({share:g} %)"

    def _likelihoods(self) -> str:
        held = self.log_likelihood_held_out
        rest = "" if held is None else f", {held:.6g} on rows held out"
        doubts = [] if self.log_z["method"] == "exact" else ["with log Z as estimated"]
        if self.estimator.machine_.hidden_weights is not None:
            doubts.append("free energies of rows are approximate, as hidden units are connected")
        how = f" ({'; '.join(doubts)})" if doubts else ""
        return f"{self.log_likelihood:.6g}{rest}{how}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        e = self.estimator
        return {
            "estimator": type(e).__name__,
            "options": e.plain_options(),
            "rows": len(self.rows),
            "held_out": 0 if self.held_out is None else len(self.held_out),
            "epochs": e.n_iter_,
            "stopped": e.stopped_,
            "seconds": self.seconds,
            "objective_name": e.trace_.objective_name,
            "objective": self.objective,
            "reconstruction_rms": self.reconstruction,
            "data_rms": self.spread,
            "free_energy": self.free_energy,
            "free_energy_held_out": self.free_energy_held_out,
            "log_z": self.log_z or None,
            "log_likelihood": self.log_likelihood,
            "log_likelihood_held_out": self.log_likelihood_held_out,
            "warnings": self.warnings,
        }


def find(
    estimator: MachineEstimator,
    rows: Array,
    held_out: Array | None = None,
    *,
    log_z: str | None = None,
    shape: tuple[int, int] | None = None,
    source: str = "an array",
) -> Findings:
    """Measure a fitted estimator on its rows and on rows held out.

    >>> from kikuchi.boltzmann import RBM
    >>> rows = np.repeat([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 20, axis=0)
    >>> rbm = RBM(2, learner="cd", learning_rate=0.5, epochs=50, random_state=0).fit(rows)
    >>> found = find(rbm, rows, log_z="exact")
    >>> found.log_z["method"], bool(found.reconstruction < found.spread)
    ('exact', True)
    """
    some = rows[:: max(len(rows) // _MOST_JUDGED, 1)]
    again = estimator.reconstruct(some)
    found = Findings(
        estimator,
        source,
        rows,
        held_out,
        shape,
        reconstruction=float(np.sqrt(np.mean((again - some) ** 2))),
        spread=float(np.sqrt(np.mean(np.var(some, axis=0)))),
        free_energy=float(np.mean(estimator.free_energy(some))),
        free_energy_held_out=None
        if held_out is None
        else float(np.mean(estimator.free_energy(held_out))),
    )
    if log_z is not None:
        found.log_z = _measured_log_z(estimator, log_z, some)
        found.log_likelihood = estimator.score(some)
        found.log_likelihood_held_out = None if held_out is None else estimator.score(held_out)
    return found


def _measured_log_z(estimator: MachineEstimator, method: str, rows: Array) -> dict[str, Any]:
    if method == "exact":
        return {"method": "exact", "estimate": estimator.log_z("exact")}
    if method != "ais":
        raise MethodError(f"log Z is found by 'exact' or 'ais', not {method!r}")
    estimator.log_z("ais", data=rows)
    answer = estimator.log_z_answer_
    return {
        "method": "ais",
        "estimate": float(answer.estimate),
        "lower": float(answer.lower),
        "upper": float(answer.upper),
        "confidence": answer.confidence,
        "warnings": list(answer.warnings),
    }


def _stopped(word: str) -> str:
    words = {
        "epochs": "all epochs done",
        "converged": "converged",
        "seconds": "the time budget ended",
        "interrupted": "interrupted",
        "diverged": "diverged; the last good state is kept",
    }
    return words.get(word, word)


# ---------------------------------------------------------------------- the page


def train_report(found: Findings, path: str | PathLike[str], *, command: str | None = None) -> None:
    """Write one self-contained page: figures, trace, filters, reconstructions and samples."""
    drawn = [
        html.picture(figure, caption, 1 + k) for k, (figure, caption) in enumerate(_pictures(found))
    ]
    e = found.estimator
    html.write_page(
        path,
        html.document(
            f"{type(e).__name__} on {found.source}",
            "A Boltzmann machine trained on rows of data",
            html.section("Answer", html.warning_box(found.warnings), html.tiles(_tiles(found))),
            html.section("Machine", html.definition_table([*found.pairs(), *_options(e)])),
            html.section("Pictures", *drawn),
            html.section("Versions", html.definition_table(parts.version_pairs())),
            parts.rerun(command, _python(found)),
        ),
    )


def _tiles(found: Findings) -> list[tuple[str, str, str]]:
    good = found.estimator.stopped_ in ("epochs", "converged")
    entries = [
        ("training", _stopped(found.estimator.stopped_), "good" if good else "bad"),
        ("epochs", text.whole(found.estimator.n_iter_), ""),
        ("time", text.seconds(found.seconds), ""),
        ("reconstruction error, rms", f"{found.reconstruction:.4g}", ""),
    ]
    if found.log_likelihood is not None:
        entries.append(("log-likelihood per row", f"{found.log_likelihood:.5g}", ""))
    if found.log_likelihood_held_out is not None:
        entries.append(("on rows held out", f"{found.log_likelihood_held_out:.5g}", ""))
    return entries


def _options(estimator: MachineEstimator) -> list[tuple[str, str]]:
    plain = estimator.plain_options()
    return [("options", ", ".join(f"{name}={value}" for name, value in plain.items()))]


def _pictures(found: Findings) -> list[tuple[Figure, str]]:
    e, machine, shape = found.estimator, found.estimator.machine_, found.shape
    drawn = []
    if any(np.isfinite(e.trace_.objective)):
        caption = f"The {e.trace_.objective_name}, epoch by epoch."
        drawn.append((convergence({e.learner: e.trace_}), caption))
    if shape is None:
        return drawn
    some = found.rows[:: max(len(found.rows) // _SHOWN, 1)][:_SHOWN]
    groups = {
        "data": some,
        "reconstruction": e.reconstruct(some),
        "samples": e.sample(_SHOWN, _SAMPLE_STEPS, random_state=0),
    }
    drawn.append(
        (
            image_rows(groups, shape, "Data and machine"),
            "Rows of data, what the machine rebuilds of each from its hidden means, and "
            f"states of Gibbs chains of {_SAMPLE_STEPS} steps from random starts.",
        )
    )
    strongest = np.argsort(-np.square(machine.weights).sum(axis=0))[:_MOST_FILTERS]
    drawn.append(
        (
            tiles(machine.weights.T[strongest], shape, "Weights of hidden units", signed=True),
            f"Weights to the visible units of {len(strongest)} hidden units, strongest first.",
        )
    )
    if machine.visible_weights is not None:
        places = np.linspace(0, machine.n_visible - 1, min(machine.n_visible, _MOST_FILTERS))
        drawn.append(
            (
                tiles(
                    machine.visible_weights[places.astype(int)],
                    shape,
                    "Weights between visible units",
                    signed=True,
                ),
                "Each image holds the weights of one visible unit to all others.",
            )
        )
    return drawn


def _python(found: Findings) -> str:
    name = type(found.estimator).__name__
    return f"from kikuchi.boltzmann import {name}\nrows = ...  # the data\n" + (
        f"machine = {found.estimator!r}.fit(rows)"
    )
