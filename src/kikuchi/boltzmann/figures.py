"""The figures of the report page of a trained Boltzmann machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from kikuchi.core.page import Item, Picture, Tile
from kikuchi.plots.images import image_rows, tiles
from kikuchi.training.answer import training_picture

_SHOWN = 12  # images in a row
_MOST_FILTERS = 60
_SAMPLE_STEPS = 500


def score_tiles(evaluation: Any) -> list[Tile]:
    """Reconstructions, free energies and likelihoods."""
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


def pictures(evaluation: Any) -> list[Item]:
    """The trace; of images also reconstructions, samples and filters."""
    e, machine, shape = evaluation.estimator, evaluation.estimator.model_, evaluation.shape
    found: list[Item] = [training_picture(e)]
    if shape is None:
        return found
    some = evaluation.rows[:: max(len(evaluation.rows) // _SHOWN, 1)][:_SHOWN]
    groups = {
        "data": some,
        "reconstruction": e.reconstruct(some),
        "samples": e.sample(_SHOWN, steps=_SAMPLE_STEPS, random_state=0),
    }
    found.append(
        Picture(
            image_rows(groups, shape, "Data and machine"),
            "Rows of data, what the machine rebuilds of each from its hidden means, and "
            f"states of {_SAMPLE_STEPS} steps of Gibbs chains from {e.sampling_.start}.",
        )
    )
    strongest = np.argsort(-np.square(machine.weights).sum(axis=0))[:_MOST_FILTERS]
    found.append(
        Picture(
            tiles(machine.weights.T[strongest], shape, "Weights of hidden units", signed=True),
            f"Weights to the visible units of {len(strongest)} hidden units, strongest first.",
        )
    )
    if machine.visible_weights is not None:
        units = np.linspace(0, machine.n_visible - 1, min(machine.n_visible, _MOST_FILTERS))
        found.append(
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
    return found
