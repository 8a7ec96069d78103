"""What ICA found in a recording: figures for the screen, plain data, and a page with pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import MethodError
from kikuchi.plots.convergence import convergence
from kikuchi.plots.ica import brain_components, mixture_scatter, time_courses
from kikuchi.plots.images import tiles
from kikuchi.reports import html, parts, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kikuchi.ica.fmri import BrainComponents
    from kikuchi.ica.order import Choice
    from kikuchi.ica.recordings import Recording

Array = NDArray[np.float64]

_MOST_COURSES = 12
_MOST_MAPS = 12
_MOST_IMAGES = 60


@dataclass
class Source:
    """One source as it was found: `share` of the data's variance, and whether it was lost."""

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


@dataclass
class Findings:
    """A fitted estimator, the recording, and the sources from the strongest to the weakest.

    `recording` is as it was read, `samples` as the estimator saw them; `mixing` (sensors, sources)
    and `values` (samples, sources) are in the order of `sources`. `shape` is that of images whose
    pixels are the sensors, `pixels` which of them there are.
    """

    estimator: Any
    method: str
    recording: Recording
    samples: Array
    mixing: Array
    values: Array
    sources: list[Source]
    seconds: float
    orientation: str | None = None
    components: BrainComponents | None = None
    stimulus: Array | None = None
    choice: Choice | None = None
    shape: tuple[int, int] | None = None
    pixels: NDArray[np.bool_] | None = None
    files: list[str] = field(default_factory=list)

    @property
    def interval(self) -> float | None:
        """Seconds between two samples, if known."""
        return None if self.recording.rate is None else 1.0 / self.recording.rate

    @property
    def lost(self) -> list[str]:
        """Names of sources whose column has collapsed."""
        return [source.name for source in self.sources if source.lost]

    @property
    def warnings(self) -> list[str]:
        """What a reader must know; a lost source goes by its name here."""
        kept = [_in_flags(w) for w in self.estimator.warnings_ if not w.startswith("collapsed:")]
        if self.lost:
            kept.insert(
                0,
                f"{', '.join(self.lost)} collapsed: the column in the mixing matrix is gone, and "
                "what is left is no source; use --posterior lr or adatap, more --restarts, or "
                "fewer --sources",
            )
        return kept

    @property
    def noise(self) -> Any:
        """Variance of the noise, or variances, or covariance; None in a model without noise."""
        found = getattr(self.estimator, "noise_", getattr(self.estimator, "noise_variance_", None))
        return None if found is None else np.asarray(found).tolist()

    @cached_property
    def likelihood(self) -> tuple[str, float] | None:
        """What the fit made as large as it could, a sample, and its value; None without one."""
        if self.method == "bayesian":
            return "bound on the log-evidence", float(self.estimator.bound_) / len(self.samples)
        try:
            return "log-likelihood", float(self.estimator.score(self.samples))
        except MethodError:  # a mean function without a density, or filters only
            return None

    def pairs(self) -> list[tuple[str, str]]:
        """Labels with their values, for the screen and the page."""
        e = self.estimator
        found = [
            ("data", f"{self.recording.source}: {self._size()}"),
            ("model", f"{type(e).__name__}, {text.count(len(self.sources), 'source')}"),
        ]
        if self.choice is not None:
            found.append(("number of sources", f"{self.choice.n_sources}, chosen by BIC"))
        how = "converged" if e.converged_ else "not converged"
        work = f"{text.count(e.n_iter_, 'iteration')}, {text.seconds(self.seconds)}"
        found.append(("fit", f"{how} ({work})"))
        if self.noise is not None:
            found.append(("noise", _noise_text(self.noise)))
        value = self.likelihood
        if value is not None:
            found.append((f"{value[0]} per sample", f"{value[1]:.6g}"))
        return found

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

    def table(self) -> tuple[list[str], list[list[str]], list[int]]:
        """Head, rows and numeric columns of the table of sources."""
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
        return head, rows, numeric

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what was done, and what was found."""
        value = self.likelihood
        return {
            "method": self.method,
            "options": _plain_options(self.estimator),
            "data": self.recording.source,
            "n_samples": self.recording.n_samples,
            "n_sensors": self.recording.n_sensors,
            "orientation": self.orientation,
            "n_sources": len(self.sources),
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


def _in_flags(warning: str) -> str:
    """A warning of an estimator in the words of the command line, which has no tolerance."""
    said, found, _ = warning.partition("; raise max_iter")
    return f"{said}; give more --iterations" if found else warning


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


def _plain_options(estimator: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():
        if value is None or isinstance(value, bool | int | float | str):
            found[name] = value
        elif isinstance(value, list | tuple) and all(
            isinstance(v, int | float | str) for v in value
        ):
            found[name] = list(value)
        elif isinstance(value, np.ndarray):
            found[name] = value.tolist()
    return found


# ---------------------------------------------------------------------- finding


def find(
    estimator: Any,
    method: str,
    recording: Recording,
    samples: Array,
    where: str | None,
    stimulus: Array | None,
    seconds: float,
) -> Findings:
    """Everything that is shown and written, the strongest source first."""
    from kikuchi.ica.fmri import components_of, stimulus_correlation

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
    found = [
        Source(
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
    return Findings(
        estimator,
        method,
        recording,
        samples,
        mixing,
        values,
        found,
        seconds,
        where,
        components,
        stimulus,
    )


def _prior_texts(estimator: Any) -> list[str]:
    if hasattr(estimator, "priors_"):
        return [prior.text for prior in estimator.priors_]
    if hasattr(estimator, "densities_"):
        return list(estimator.densities_)
    return [str(estimator.sources)] * len(estimator.components_)


def _kurtosis(values: Array) -> float:
    centred = values - values.mean()
    variance = float((centred**2).mean())
    return float((centred**4).mean()) / variance**2 - 3.0 if variance > 0 else 0.0


def _strongest(recording: Recording, column: Array, where: str | None) -> str:
    place = int(np.argmax(np.abs(column)))
    if where is None:
        return recording.names[place]
    if where == "spatial":
        return f"scan {place + 1}"
    assert recording.mask is not None
    return "voxel " + ", ".join(str(int(axis[place])) for axis in np.nonzero(recording.mask))


# ---------------------------------------------------------------------- the page


def ica_report(found: Findings, path: str | PathLike[str], *, command: str | None = None) -> None:
    """Write one self-contained page: sources, their courses or maps, directions and the trace."""
    drawn = [
        html.picture(figure, caption, 1 + k) for k, (figure, caption) in enumerate(_pictures(found))
    ]
    title = f"{text.count(len(found.sources), 'source')} in {found.recording.source}"
    html.write_page(
        path,
        html.document(
            title,
            "Independent components of a recording",
            html.section("Answer", html.warning_box(found.warnings), html.tiles(_tiles(found))),
            html.section("Sources", html.table(*found.table())),
            html.section("How many sources", _order_table(found)),
            html.section("Pictures", *drawn),
            html.section("Model", html.definition_table([*found.pairs(), *_options(found)])),
            html.section("Versions", html.definition_table(parts.version_pairs())),
            parts.rerun(command, _python(found)),
        ),
    )


def _tiles(found: Findings) -> list[tuple[str, str, str]]:
    good = bool(found.estimator.converged_)
    kept = len(found.sources) - len(found.lost)
    entries = [
        ("sources found", f"{kept} of {len(found.sources)}", "bad" if found.lost else "good"),
        ("fit", "converged" if good else "not converged", "good" if good else "bad"),
        ("time", text.seconds(found.seconds), ""),
    ]
    if found.noise is not None and np.ndim(found.noise) == 0:
        entries.append(("noise variance", f"{found.noise:.4g}", ""))
    if found.stimulus is not None:
        best = max(found.sources, key=lambda s: abs(s.stimulus or 0.0))
        entries.append(("follows the stimulus best", f"{best.name} ({best.stimulus:+.2f})", ""))
    return entries


def _order_table(found: Findings) -> str:
    if found.choice is None:
        return ""
    values = found.choice.values
    best = max(values.values())
    rows = [
        [str(k), f"{v:.1f}", f"{v - best:.1f}", "chosen" if k == found.choice.n_sources else ""]
        for k, v in values.items()
    ]
    return html.table(["sources", "BIC", "below the best", ""], rows, [0, 1, 2])


def _options(found: Findings) -> list[tuple[str, str]]:
    options = _plain_options(found.estimator)
    return [("options", ", ".join(f"{name}={value}" for name, value in options.items()))]


def _pictures(found: Findings) -> list[tuple[Figure, str]]:
    drawn = [_brains(found)] if found.components is not None else _signals(found)
    trace = found.estimator.trace_
    if len(trace):
        drawn.append((convergence({type(found.estimator).__name__: trace}), "How the fit went."))
    return drawn


def _brains(found: Findings) -> tuple[Figure, str]:
    assert found.components is not None
    recording = found.recording
    reference = None
    if found.stimulus is not None and found.interval is not None:
        from kikuchi.ica.fmri import expected_course

        reference = expected_course(found.stimulus, found.interval)
    shown = slice(0, _MOST_MAPS)
    figure = brain_components(
        recording.volume(found.components.maps[shown]),
        found.components.courses[shown],
        anatomy=recording.volume(recording.data.mean(axis=0)),
        names=[source.name for source in found.sources[shown]],
        remarks=_remarks(found.sources[shown]),
        reference=reference,
        stimulus=found.stimulus,
        interval=found.interval,
    )
    return figure, "Maps on slices through the mean scan, and time courses" + _more(found, shown)


def _signals(found: Findings) -> list[tuple[Figure, str]]:
    shown = slice(0, _MOST_COURSES)
    names = [source.name for source in found.sources]
    figure = time_courses(
        found.values.T[shown],
        names=names[shown],
        remarks=_remarks(found.sources[shown]),
        interval=found.interval,
    )
    caption = "Posterior means of the sources, and their shares of the variance"
    drawn = [(figure, caption + _more(found, shown))]
    if found.shape is None and found.samples.shape[1] > 1:
        drawn.append(_scatter(found))
    if found.shape is not None:
        few = slice(0, _MOST_IMAGES)
        columns = found.mixing[:, few]
        scaled = np.zeros((math.prod(found.shape), columns.shape[1]))
        seen = slice(None) if found.pixels is None else found.pixels
        scaled[seen] = columns / np.maximum(np.abs(columns).max(axis=0), 1e-300)
        images = tiles(scaled.T, found.shape, "Columns of the mixing matrix", signed=True)
        caption = "Columns of the mixing matrix as images, in the order of the sources, each on "
        drawn.append((images, f"{caption}a scale of its own" + _more(found, few)))
    return drawn


def _scatter(found: Findings) -> tuple[Figure, str]:
    """Samples and directions in up to three sensors, those that vary most."""
    spread = np.nanvar(found.samples, axis=0)
    sensors = np.sort(np.argsort(-spread, kind="stable")[:3])
    samples = found.samples[:, sensors]
    kept = [k for k, source in enumerate(found.sources) if not source.lost]
    columns = found.mixing[sensors][:, kept]
    names = [found.recording.names[k] for k in sensors]
    whole = samples[~np.isnan(samples).any(axis=1)]
    which = "all" if len(spread) <= 3 else "the three strongest"
    caption = f"Samples of {which} sensors and the directions of the sources."
    return mixture_scatter(whole, {"found": columns}, names=names), caption


def _remarks(sources: Sequence[Source]) -> list[str]:
    texts = []
    for source in sources:
        remark = "lost" if source.lost else f"{source.share:.0%}"
        if source.stimulus is not None:
            remark += f", stimulus {source.stimulus:+.2f}"
        texts.append(remark)
    return texts


def _more(found: Findings, shown: slice) -> str:
    rest = len(found.sources) - shown.stop
    return f"; {rest} weaker ones are not shown." if rest > 0 else "."


def _python(found: Findings) -> str:
    name = type(found.estimator).__name__
    options = _plain_options(found.estimator)
    words = ", ".join(f"{key}={value!r}" for key, value in options.items() if value is not None)
    return (
        f"from kikuchi.ica import {name}\nrows = ...  # samples by sensors\n"
        f"ica = {name}({words}).fit(rows)\nsources = ica.transform(rows)"
    )
