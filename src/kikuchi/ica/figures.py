"""The figures of the report page of an independent component analysis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kikuchi.core import text
from kikuchi.core.answer import TextTable
from kikuchi.core.page import Picture, Sections, Tile
from kikuchi.plots.convergence import convergence
from kikuchi.plots.ica import brain_components, mixture_scatter, time_courses
from kikuchi.plots.images import tiles

if TYPE_CHECKING:
    from kikuchi.ica.order import Choice

_MOST_COURSES = 12
_MOST_MAPS = 12
_MOST_IMAGES = 60


def source_figures(evaluation: Any) -> Sections:
    """Sources, how their number was chosen, and their courses, maps or directions."""
    return {
        "Sources": [evaluation.table()],
        "How many sources": [_order_table(evaluation.choice)],
        "Pictures": _pictures(evaluation),
    }


def source_tiles(evaluation: Any) -> list[Tile]:
    """The sources that were found, and how the fit ended."""
    kept = len(evaluation.sources) - len(evaluation.lost)
    sources = f"{kept} of {len(evaluation.sources)}"
    fit = ("converged", "not converged")
    entries = [
        Tile("sources found", sources, "bad" if evaluation.lost else "good"),
        Tile.judged("fit", bool(evaluation.estimator.converged_), fit),
        Tile("time", text.seconds(evaluation.seconds)),
    ]
    if evaluation.noise is not None and np.ndim(evaluation.noise) == 0:
        entries.append(Tile("noise variance", f"{evaluation.noise:.4g}"))
    if evaluation.stimulus is not None:
        best = max(evaluation.sources, key=lambda s: abs(s.stimulus or 0.0))
        entries.append(Tile("follows the stimulus best", f"{best.name} ({best.stimulus:+.2f})"))
    return entries


def _order_table(choice: Choice | None) -> TextTable | None:
    """The criterion for each number of sources that was tried."""
    if choice is None:
        return None
    best = max(choice.values.values())
    rows = [
        [str(k), f"{v:.1f}", f"{v - best:.1f}", "chosen" if k == choice.n_components else ""]
        for k, v in choice.values.items()
    ]
    return TextTable(["sources", "BIC", "below the best", ""], rows, [0, 1, 2])


def _pictures(evaluation: Any) -> list[Picture]:
    brains = evaluation.components is not None
    pictures = [_brains(evaluation)] if brains else _signals(evaluation)
    trace = evaluation.estimator.trace_
    if len(trace):
        traces = {type(evaluation.estimator).__name__: trace}
        pictures.append(
            Picture(
                convergence(traces),
                "How the fit went. The last value is that of the parameters kept.",
            )
        )
    return pictures


def _brains(evaluation: Any) -> Picture:
    assert evaluation.components is not None
    recording = evaluation.recording
    reference = None
    if evaluation.stimulus is not None and evaluation.interval is not None:
        from kikuchi.ica.fmri import expected_course

        reference = expected_course(evaluation.stimulus, evaluation.interval)
    shown = slice(0, _MOST_MAPS)
    figure = brain_components(
        recording.volume(evaluation.components.maps[shown]),
        evaluation.components.courses[shown],
        anatomy=recording.volume(recording.data.mean(axis=0)),
        names=[source.name for source in evaluation.sources[shown]],
        remarks=_remarks(evaluation.sources[shown]),
        reference=reference,
        stimulus=evaluation.stimulus,
        interval=evaluation.interval,
    )
    caption = "Maps on slices through the mean scan, and time courses"
    return Picture(figure, caption + _more(evaluation, shown))


def _signals(evaluation: Any) -> list[Picture]:
    shown = slice(0, _MOST_COURSES)
    names = [source.name for source in evaluation.sources]
    figure = time_courses(
        evaluation.values.T[shown],
        names=names[shown],
        remarks=_remarks(evaluation.sources[shown]),
        interval=evaluation.interval,
    )
    caption = "Posterior means of the sources, and their shares of the variance"
    pictures = [Picture(figure, caption + _more(evaluation, shown))]
    if evaluation.shape is None and evaluation.samples.shape[1] > 1:
        pictures.append(_scatter(evaluation))
    if evaluation.shape is not None:
        few = slice(0, _MOST_IMAGES)
        columns = evaluation.mixing[:, few]
        scaled = np.zeros((math.prod(evaluation.shape), columns.shape[1]))
        seen = slice(None) if evaluation.pixels is None else evaluation.pixels
        scaled[seen] = columns / np.maximum(np.abs(columns).max(axis=0), 1e-300)
        images = tiles(scaled.T, evaluation.shape, "Columns of the mixing matrix", signed=True)
        caption = "Columns of the mixing matrix as images, in the order of the sources, each on "
        caption += "a scale of its own" + _more(evaluation, few)
        pictures.append(Picture(images, caption))
    return pictures


def _scatter(evaluation: Any) -> Picture:
    """Samples and directions in up to three sensors, those that vary most."""
    spread = np.nanvar(evaluation.samples, axis=0)
    sensors = np.sort(np.argsort(-spread, kind="stable")[:3])
    samples = evaluation.samples[:, sensors]
    kept = [k for k, source in enumerate(evaluation.sources) if not source.lost]
    columns = evaluation.mixing[sensors][:, kept]
    names = [evaluation.recording.names[k] for k in sensors]
    whole = samples[~np.isnan(samples).any(axis=1)]
    which = "all" if len(spread) <= 3 else "the three strongest"
    caption = f"Samples of {which} sensors and the directions of the sources."
    return Picture(mixture_scatter(whole, {"found": columns}, names=names), caption)


def _remarks(sources: Sequence[Any]) -> list[str]:
    texts = []
    for source in sources:
        remark = "lost" if source.lost else f"{source.share:.0%}"
        if source.stimulus is not None:
            remark += f", stimulus {source.stimulus:+.2f}"
        texts.append(remark)
    return texts


def _more(evaluation: Any, shown: slice) -> str:
    hidden = len(evaluation.sources) - shown.stop
    return f"; {hidden} weaker ones are not shown." if hidden > 0 else "."
