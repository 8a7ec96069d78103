"""What a fitted ICA says about a recording: its sources, noise and likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core import text
from kikuchi.core.answer import TextTable
from kikuchi.core.arrays import Array, Mask
from kikuchi.core.errors import MethodError
from kikuchi.core.page import Sections, Tile
from kikuchi.training.answer import TrainingAnswer

if TYPE_CHECKING:
    from kikuchi.ica.fmri import BrainComponents
    from kikuchi.ica.order import Choice
    from kikuchi.ica.recording import Recording


@dataclass
class FoundSource:
    """One estimated source: its `share` of the variance of the data, and whether it was lost."""

    name: str
    share: float
    kurtosis: float
    prior: str
    strongest: str
    lost: bool
    stimulus: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class PreparedRecording:
    """A recording as it was read, and its `samples` as an estimator takes them.

    `orientation` is that of brain scans and None for other data; `stimulus` has one value per scan.
    `shape` is that of images whose pixels are the sensors, `pixels` which of them there are.
    """

    recording: Recording
    samples: Array
    orientation: str | None = None
    stimulus: Array | None = None
    shape: tuple[int, int] | None = None
    pixels: Mask | None = None


@dataclass
class SourceEvaluation(TrainingAnswer):
    """A fitted estimator, the recording, and the sources from the strongest to the weakest.

    `mixing` (sensors, sources) and `values` (samples, sources) are in the order of `sources`; for
    the other names see `PreparedRecording`.
    """

    subtitle: ClassVar[str] = "Independent components of a recording"

    estimator: Any
    method: str
    mixing: Array
    values: Array
    sources: list[FoundSource]
    components: BrainComponents | None
    choice: Choice | None
    recording: Recording
    samples: Array
    orientation: str | None
    stimulus: Array | None
    shape: tuple[int, int] | None
    pixels: Mask | None
    seconds: float = 0.0
    files: list[str] = field(default_factory=list)

    @property
    def interval(self) -> float | None:
        """Seconds between two samples, if known."""
        return None if self.recording.rate is None else 1.0 / self.recording.rate

    @property
    def mixing_rows(self) -> tuple[str, list[str]]:
        """What the rows of `mixing` are (sensors, scans or voxels), and the name of each."""
        if self.orientation is None:
            return "sensor", list(self.recording.names)
        count = range(len(self.mixing))
        kind = "scan" if self.orientation == "spatial" else "voxel"
        return kind, [_row_name(self.recording, k, self.orientation) for k in count]

    @property
    def lost(self) -> list[str]:
        """Names of sources whose column has collapsed."""
        return [source.name for source in self.sources if source.lost]

    @property
    def converged(self) -> bool:
        """Whether the fit met its stopping criterion and no source was lost."""
        return bool(self.estimator.converged_) and not self.lost

    @property
    def warnings(self) -> list[str]:
        """What a reader must know; a lost source goes by its name here."""
        kept = [w for w in self.estimator.warnings_ if not w.startswith("collapsed:")]
        if self.lost:
            kept.insert(
                0,
                f"{', '.join(self.lost)} collapsed: the column in the mixing matrix is gone, and "
                "what is left is no source; use --posterior lr or adatap, or raise n_init or "
                "lower n_components",
            )
        return kept

    @property
    def noise(self) -> Any:
        """Variance of the noise, or variances, or covariance; None in a model without noise."""
        noise = getattr(self.estimator, "noise_", getattr(self.estimator, "noise_variance_", None))
        return None if noise is None else np.asarray(noise).tolist()

    @cached_property
    def likelihood(self) -> tuple[str, float] | None:
        """What the fit maximised, and its value per sample; None without one."""
        if hasattr(self.estimator, "bound_"):
            return "bound on the log-evidence", float(self.estimator.bound_) / len(self.samples)
        try:
            return "log-likelihood", float(self.estimator.score(self.samples))
        except MethodError:  # a mean function without a density, or filters only
            return None

    @property
    def source(self) -> str:  # type: ignore[override]
        """The files of the recording."""
        return self.recording.source

    @property
    def title(self) -> str:
        """The number of sources, and where they were found."""
        return f"{text.count(len(self.sources), 'source')} in {self.recording.source}"

    def ending_tiles(self) -> list[Tile]:
        """The sources that were found, and how the fit ended."""
        from kikuchi.ica.figures import source_tiles

        return source_tiles(self)

    def figures(self) -> Sections:
        """The sources, their courses or maps, directions and the trace."""
        from kikuchi.ica.figures import source_figures

        return source_figures(self)

    def facts(self) -> list[tuple[str, str]]:
        """The data, the model, how the fit went, noise and likelihood."""
        e = self.estimator
        facts = [
            ("data", f"{self.recording.source}: {self._size()}"),
            ("model", f"{type(e).__name__}, {text.count(len(self.sources), 'source')}"),
        ]
        if self.choice is not None:
            facts.append(("number of sources", f"{self.choice.n_components}, chosen by BIC"))
        how = "converged" if e.converged_ else "not converged"
        work = f"{text.count(e.n_iter_, 'iteration')}, {text.seconds(self.seconds)}"
        facts.append(("fit", f"{how} ({work})"))
        if self.noise is not None:
            facts.append(("noise", _noise_text(self.noise)))
        value = self.likelihood
        if value is not None:
            facts.append((f"{value[0]} per sample", f"{value[1]:.6g}"))
        return facts

    def _size(self) -> str:
        samples, sensors = self.recording.n_samples, self.recording.n_sensors
        if self.shape is not None:
            all_of = math.prod(self.shape)
            changing = "" if sensors == all_of else f", {sensors} of which change"
            return f"{text.count(samples, 'image')} of {text.count(all_of, 'pixel')}{changing}"
        if self.orientation is None:
            return f"{text.count(samples, 'sample')} of {text.count(sensors, 'sensor')}"
        scans, voxels = text.count(samples, "scan"), text.count(sensors, "voxel")
        return f"{scans} of {voxels}, {self.orientation}"

    def table(self) -> TextTable:
        """The sources, from the strongest to the weakest."""
        head = ["source", "share of variance", "excess kurtosis", "strongest in", "prior"]
        rows = [
            [s.name, f"{s.share:.1%}", f"{s.kurtosis:.2f}", s.strongest, s.prior]
            for s in self.sources
        ]
        numeric = [1, 2]
        if self.stimulus is not None:
            numeric.append(len(head))
            head.append("stimulus")
            for row, source in zip(rows, self.sources, strict=True):
                row.append(f"{source.stimulus:+.2f}")
        if self.lost:
            head.append("")
            for row, source in zip(rows, self.sources, strict=True):
                row.append("LOST" if source.lost else "")
        return TextTable(head, rows, numeric)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the estimator as a file can hold them."""
        return dict(self.estimator.plain_options())

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what was done, and what was estimated."""
        value = self.likelihood
        return {
            "method": self.method,
            "options": self.options,
            "data": self.recording.source,
            "n_samples": self.recording.n_samples,
            "n_sensors": self.recording.n_sensors,
            "orientation": self.orientation,
            "n_components": len(self.sources),
            "sources": [source.to_dict() for source in self.sources],
            "noise": self.noise,
            "mean": np.asarray(self.estimator.mean_).tolist(),
            "converged": bool(self.estimator.converged_),
            "iterations": int(self.estimator.n_iter_),
            "seconds": self.seconds,
            "objective": None if value is None else {"name": value[0], "per_sample": value[1]},
            "criterion": None if self.choice is None else _choice_data(self.choice),
            "collapsed": self.lost,
            "warnings": self.warnings,
            "files": self.files,
        }


def _choice_data(choice: Choice) -> dict[str, Any]:
    return {
        "name": choice.criterion,
        "values": {str(k): v for k, v in choice.values.items()},
        "null_models": choice.null_models,
    }


def _noise_text(noise: Any) -> str:
    values = np.asarray(noise)
    if values.ndim == 0:
        return f"variance {float(values):.4g}"
    spread = np.diagonal(values) if values.ndim == 2 else values
    kind = "covariance with variances" if values.ndim == 2 else "variances"
    return f"{kind} from {spread.min():.4g} to {spread.max():.4g}"


# ---------------------------------------------------------------------- evaluating


def evaluate(
    estimator: Any,
    method: str,
    prepared: PreparedRecording,
    *,
    choice: Choice | None = None,
    seconds: float = 0.0,
) -> SourceEvaluation:
    """Measure a fitted estimator on its samples; the strongest source comes first.

    `choice` says how the number of sources was chosen, `seconds` is the time that the fit took.
    """
    from kikuchi.ica.fmri import components_of, stimulus_correlation

    recording, samples, where = prepared.recording, prepared.samples, prepared.orientation
    stimulus = prepared.stimulus
    values = estimator.transform(samples)
    power = np.sum(estimator.mixing_**2, axis=0) * values.var(axis=0)
    order = np.argsort(-power, kind="stable")
    mixing, values = estimator.mixing_[:, order], values[:, order]
    components = None
    if where is not None:
        side = "spatial" if where == "spatial" else "temporal"
        components = components_of(mixing, values, side)  # type: ignore[arg-type]
        if all(getattr(p, "symmetric", True) for p in getattr(estimator, "priors_", [])):
            upright = components.upright()
            sign = np.sign(np.sum(upright.maps * components.maps, axis=1))
            sign[sign == 0] = 1.0
            components, mixing, values = upright, mixing * sign, values * sign
    total = float(np.nanvar(samples, axis=0).sum())
    lost = set(getattr(estimator, "collapsed_", ()))
    priors = _prior_texts(estimator)
    followed = None
    if stimulus is not None and components is not None:
        interval = None if recording.rate is None else 1.0 / recording.rate
        followed = stimulus_correlation(components.courses, stimulus, interval=interval)
    sources = [
        FoundSource(
            name=f"source {k + 1}",
            share=float(power[i] / total),
            kurtosis=_kurtosis(values[:, k]),
            prior=priors[i],
            strongest=_strongest(recording, mixing[:, k], where),
            lost=int(i) in lost,
            stimulus=None if followed is None else float(followed[k]),
        )
        for k, i in enumerate(order)
    ]
    return SourceEvaluation(
        estimator,
        method,
        mixing,
        values,
        sources,
        components,
        choice,
        seconds=seconds,
        **vars(prepared),
    )


def _prior_texts(estimator: Any) -> list[str]:
    if hasattr(estimator, "priors_"):
        return [prior.text for prior in estimator.priors_]
    if hasattr(estimator, "densities_"):
        return list(estimator.densities_)
    return [str(estimator.prior)] * len(estimator.components_)


def _kurtosis(values: Array) -> float:
    centred = values - values.mean()
    variance = float((centred**2).mean())
    return float((centred**4).mean()) / variance**2 - 3.0 if variance > 0 else 0.0


def _strongest(recording: Recording, column: Array, where: str | None) -> str:
    largest = int(np.argmax(np.abs(column)))
    name = _row_name(recording, largest, where)
    return name if where is None else f"{'scan' if where == 'spatial' else 'voxel'} {name}"


def _row_name(recording: Recording, row: int, where: str | None) -> str:
    """The sensor, the number of the scan or the place of the voxel."""
    if where is None:
        return recording.names[row]
    if where == "spatial":
        return str(row + 1)
    assert recording.mask is not None
    return ", ".join(str(int(axis[row])) for axis in np.nonzero(recording.mask))
