"""The page of a trained Boltzmann machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from kikuchi.core import text
from kikuchi.plots.convergence import convergence
from kikuchi.plots.images import image_rows, tiles
from kikuchi.reports.page import Facts, Item, Picture, Report, Tile, settings_text, versions
from kikuchi.training.trainer import COMPLETE

if TYPE_CHECKING:
    from kikuchi.boltzmann.evaluation import MachineEvaluation
    from kikuchi.training.answer import MeasuredAnswer, TrainingAnswer

_SHOWN = 12  # images in a row
_MOST_FILTERS = 60
_SAMPLE_STEPS = 500

_SUBTITLES = {
    "SigmoidBeliefNetwork": "A sigmoid belief network trained on rows of data",
    "NoisyOrNetwork": "A noisy-or network of causes trained on rows of findings",
    "ThresholdNetworkClassifier": "Threshold units trained through inference at zero temperature",
    "FlowMixture": "A mixture of normalising flows, and the Gaussian mixture it began from",
    "LatentMixtureFlow": "A normalising flow to a Gaussian mixture, and the mixture it began from",
    "FlowClassifier": "Normalising flows of each class, and Bayes' rule",
}


def train_report(
    evaluation: MachineEvaluation, path: str | PathLike[str], *, command: str | None = None
) -> None:
    """Write one self-contained page: figures, trace, filters, reconstructions and samples."""
    trained_page(
        evaluation,
        evaluation.source,
        subtitle="A Boltzmann machine trained on rows of data",
        tiles=_tiles(evaluation),
        sections={"Pictures": _pictures(evaluation)},
        room="boltzmann",
    ).write(path, command)


def measured_report(
    evaluation: MeasuredAnswer,
    path: str | PathLike[str],
    *,
    sections: Mapping[str, Sequence[Item]],
    room: str,
    command: str | None = None,
) -> None:
    """Write the page of an estimator of `kikuchi.<room>` with measures."""
    trained_page(
        evaluation,
        evaluation.source,
        subtitle=_SUBTITLES[type(evaluation.estimator).__name__],
        tiles=[Tile(name, f"{value:.5g}") for name, value in evaluation.measures.items()],
        sections=sections,
        room=room,
    ).write(path, command)


def trained_page(
    evaluation: TrainingAnswer,
    source: str,
    *,
    subtitle: str,
    tiles: Sequence[Tile],
    sections: Mapping[str, Sequence[Item]],
    room: str,
) -> Report:
    """The page of an estimator of `kikuchi.<room>` that was trained on rows of `source`."""
    estimator = evaluation.estimator
    name = type(estimator).__name__
    good = estimator.stopped_ in COMPLETE
    return Report(
        title=f"{name} on {source}",
        subtitle=subtitle,
        warnings=evaluation.warnings,
        tiles=[
            Tile("training", evaluation.stopped, "good" if good else "bad"),
            Tile("epochs", text.whole(estimator.n_iter_)),
            Tile("time", text.seconds(evaluation.seconds)),
            *tiles,
        ],
        sections={
            "Model": [Facts([*evaluation.facts(), ("settings", settings_text(estimator))])],
            **sections,
            "Versions": [Facts(versions())],
        },
        python=(
            f"from kikuchi.{room} import {name}\nrows = ...  # the data\n"
            f"model = {estimator!r}.fit(rows)"
        ),
    )


def training_picture(evaluation: TrainingAnswer) -> Picture | None:
    """The objective by epochs, if the rule has one."""
    e = evaluation.estimator
    if not any(np.isfinite(e.trace_.objective)):
        return None
    caption = f"The {e.trace_.objective_name}, epoch by epoch."
    return Picture(convergence({e.learner: e.trace_}, unit="epochs"), caption)


def _tiles(evaluation: MachineEvaluation) -> list[Tile]:
    entries = [Tile("reconstruction error, rms", f"{evaluation.reconstruction:.4g}")]
    scores = {
        "log-likelihood per row": evaluation.log_likelihood,
        "on rows held out": evaluation.log_likelihood_held_out,
    }
    known = {label: value for label, value in scores.items() if value is not None}
    if evaluation.free_energy_held_out is not None:
        gap = evaluation.free_energy_held_out - evaluation.free_energy
        entries.append(Tile("free energy, held-out less training rows", f"{gap:+.4g}"))
    return [*entries, *(Tile(label, f"{value:.5g}") for label, value in known.items())]


def _pictures(evaluation: MachineEvaluation) -> list[Item]:
    e, machine, shape = evaluation.estimator, evaluation.estimator.model_, evaluation.shape
    pictures: list[Item] = [training_picture(evaluation)]
    if shape is None:
        return pictures
    some = evaluation.rows[:: max(len(evaluation.rows) // _SHOWN, 1)][:_SHOWN]
    groups = {
        "data": some,
        "reconstruction": e.reconstruct(some),
        "samples": e.sample(_SHOWN, steps=_SAMPLE_STEPS, random_state=0),
    }
    pictures.append(
        Picture(
            image_rows(groups, shape, "Data and machine"),
            "Rows of data, what the machine rebuilds of each from its hidden means, and "
            f"states of {_SAMPLE_STEPS} steps of Gibbs chains from {e.sampling_.start}.",
        )
    )
    strongest = np.argsort(-np.square(machine.weights).sum(axis=0))[:_MOST_FILTERS]
    pictures.append(
        Picture(
            tiles(machine.weights.T[strongest], shape, "Weights of hidden units", signed=True),
            f"Weights to the visible units of {len(strongest)} hidden units, strongest first.",
        )
    )
    if machine.visible_weights is not None:
        units = np.linspace(0, machine.n_visible - 1, min(machine.n_visible, _MOST_FILTERS))
        pictures.append(
            Picture(
                tiles(
                    machine.visible_weights[units.astype(int)],
                    shape,
                    "Weights between visible units",
                    signed=True,
                ),
                "Each image holds the weights of one visible unit to all others.",
            )
        )
    return pictures
