"""Welling and Hinton: grey 16x16 digits and pictures of what was learned (WH-E2, WH-E3)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kikuchi.boltzmann.machine import Machine
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError
from kikuchi.core.seeds import generator
from kikuchi.data.images import Images
from kikuchi_experiments.aggregate import (
    Claims,
    above,
    average,
    holds,
    paired_difference,
    significant,
)
from kikuchi_experiments.experiment import Case, CaseAxes, Experiment, Finished, Result, Row
from kikuchi_experiments.welling2001 import figures
from kikuchi_experiments.welling2001.digits import (
    DigitSplit,
    baseline_errors,
    learned_classifier,
    percent_wrong,
    pictures,
    template,
    training_warnings,
)
from kikuchi_experiments.welling2001.tables import BASELINES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_SIDE = 16
_MACHINES = "free energies of FCRF"
_PUBLISHED = {_MACHINES: 2.5, **{name: grey for name, (_, grey) in BASELINES.items()}}
_GREY_CLAIMS = Claims.of(__name__, "WH-E2")
_WEIGHT_CLAIMS = Claims.of(__name__, "WH-E3")
_NEAR = 2  # pixels in each direction that count as near


# ---------------------------------------------------------------------- WH-E2


class GreyDigits(Experiment):
    """Test errors on grey 16x16 digits in four rotations of validation and test (WH-E2)."""

    id: ClassVar[str] = "WH-E2"

    def run_case(self, case: Case) -> Result:
        """Errors in four rotations; 7/11 of the digits train machines, the rest is rotated."""
        found = few_of_each(pictures(case["data"] or "mnist", _SIDE, case.get("digest", "")), case)
        parts = DigitSplit(found, (7, 3, 1), case["batch"], case["seed"])
        begin = time.process_time()
        classifier = learned_classifier(parts, case)
        cpu = time.process_time() - begin
        rest = np.vstack([parts.validation.pixels, parts.test.pixels])
        labels = np.concatenate([parts.validation.required_labels(), parts.test.required_labels()])
        energies = {
            "train": classifier.free_energies(parts.train.pixels),
            "rest": classifier.free_energies(rest),
        }
        quarter = rotation(labels, generator(np.random.SeedSequence([case["seed"], 3])))
        errors: dict[str, list[float]] = {name: [] for name in _PUBLISHED}
        for k in range(4):
            test = quarter == k
            known_labels = np.concatenate([parts.train.required_labels(), labels[~test]])
            classifier.regression_.fit(
                np.vstack([energies["train"], energies["rest"][~test]]), known_labels
            )
            predicted = classifier.regression_.predict(energies["rest"][test])
            errors[_MACHINES].append(percent_wrong(predicted, labels[test]))
            known = np.vstack([parts.train.pixels, rest[~test]])
            for name, error in baseline_errors(
                known, known_labels, rest[test], labels[test]
            ).items():
                errors[name].append(error)
        return {
            "errors": errors,
            "train": len(parts.train),
            "rest": len(rest),
            "cpu": cpu,
            "warnings": training_warnings(classifier),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Errors, and whether the machines are below both baselines."""
        results = [one.result for one in finished]
        means = {
            name: {k: average(result["errors"][name]) for k, result in enumerate(results)}
            for name in _PUBLISHED
        }
        overall = {name: average(list(by_seed.values())) for name, by_seed in means.items()}
        sizes = {"train": results[0]["train"], "rest": results[0]["rest"], "seeds": len(finished)}
        said = [text for result in results for text in result["warnings"]]
        note = f"{len(said)} warnings" + (f": {said[0]}" if said else "")
        best = min(BASELINES, key=lambda name: overall[name])
        gap, spread, _ = paired_difference(means[best], means[_MACHINES])
        both = f"{overall[_MACHINES]:.1f} against {overall[best]:.1f} %"
        clear = None
        if len(finished) > 1:
            clear = holds(gap > 2.0 * spread, "above two standard errors over seeds")
        return [
            *(
                _GREY_CLAIMS.row("error", f"{mean:.1f} %", name=n, published=_PUBLISHED[n], **sizes)
                for n, mean in overall.items()
            ),
            _GREY_CLAIMS.row("cpu", significant(average(results, "cpu")), note=note),
            _GREY_CLAIMS.row("below", both, clear, gap=gap, spread=spread),
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """All errors."""
        errors = {
            name: [e for one in finished for e in one.result["errors"][name]] for name in _PUBLISHED
        }
        return figures.draw_rotations(errors, _PUBLISHED)


def few_of_each(images: Images, case: Case) -> Images:
    """The first digits of each class, as many as the case says; all of them if it says 0."""
    labels, each = images.required_labels(), case["each"]
    if not each:
        return images
    rows = [np.flatnonzero(labels == label)[:each] for label in np.unique(labels)]
    return images.at(np.sort(np.concatenate(rows)))


def rotation(labels: Ints, rng: np.random.Generator) -> Ints:
    """A number of 0 to 3 for each row, as evenly as can be inside each class.

    >>> np.bincount(rotation(np.zeros(8, dtype=np.int64), np.random.default_rng(0))).tolist()
    [2, 2, 2, 2]
    """
    out = np.zeros(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        out[rows] = np.arange(len(rows)) % 4
    return out


# ---------------------------------------------------------------------- WH-E3


class PicturesOfWeights(Experiment):
    """What the weights of the grey machines look like (WH-E3, figure 2)."""

    id: ClassVar[str] = "WH-E3"
    case_axes: ClassVar[CaseAxes] = {"class": "classes"}

    def run_case(self, case: Case) -> Result:
        """Train the machine of one class; keep some of its weights and measures of all."""
        found = few_of_each(pictures(case["data"] or "mnist", _SIDE, case.get("digest", "")), case)
        machine, said = class_machine(found.of_class(case["class"]).pixels, case)
        rng = generator(np.random.SeedSequence([case["seed"], 4, case["class"]]))
        chosen = rng.choice(machine.n_hidden, min(case["units"], machine.n_hidden), replace=False)
        lateral = machine.visible_weights
        if lateral is None:
            raise DataError("WH-E3 needs an architecture with connected visible units")
        every_second = np.arange(_SIDE**2).reshape(_SIDE, _SIDE)[1::2, 1::2].ravel()
        return {
            "near_share": near_share(lateral),
            "near_by_chance": near_share(np.ones_like(lateral)),
            "lateral_pixels": effective_pixels(lateral),
            "hidden_pixels": effective_pixels(machine.weights.T),
            "neighbours": neighbour_correlation(machine.weights.T),
            "patches": _rounded(lateral[every_second]) if case["class"] == 8 else [],
            "filters": _rounded(machine.weights.T[chosen]),
            "warnings": said,
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """How local both kinds of weights are."""
        results = [one.result for one in finished]
        share, chance = average(results, "near_share"), average(results, "near_by_chance")
        lateral, hidden = average(results, "lateral_pixels"), average(results, "hidden_pixels")
        neighbours = average(results, "neighbours")
        said = [text for result in results for text in result["warnings"]]
        row, local = _WEIGHT_CLAIMS.row, above(share, 2.0 * chance, "twice the reference")
        return [
            row("near", f"{share:.0%}", local, near=_NEAR, chance=chance),
            row("lateral", significant(lateral)),
            row("hidden", significant(hidden), above(hidden, lateral, "those of visible units")),
            row("edges", significant(neighbours, 2), above(neighbours, 0.3)),
            row("warnings", len(said), note=said[0] if said else ""),
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Patches of the 8, and hidden units of all classes."""
        patches = next((o.result["patches"] for o in finished if o.result["patches"]), None)
        filters = {str(one.case["class"]): one.result["filters"] for one in finished}
        return figures.draw_weights(patches, filters, (_SIDE, _SIDE))


def class_machine(rows: Array, case: Case) -> tuple[Machine, list[str]]:
    """The machine of one class, and what its training has to say."""
    estimator = template(case, len(rows)).fit(rows)
    return estimator.model_, list(estimator.warnings_)


def near_share(lateral: Array) -> float:
    """Share of the squared weights between pixels at most two rows and two columns apart."""
    row, column = np.divmod(np.arange(len(lateral)), _SIDE)
    apart = np.maximum(np.abs(row[:, None] - row), np.abs(column[:, None] - column))
    squares = np.where(apart > 0, lateral * lateral, 0.0)
    return float(squares[apart <= _NEAR].sum() / squares.sum())


def effective_pixels(weights: Array) -> float:
    """Mean over rows of (sum w^2)^2 / sum w^4: how many pixels carry the weights of a unit.

    >>> effective_pixels(np.array([[1.0, 0.0, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0]]))
    2.5
    """
    squares = weights * weights
    fourth = np.sum(squares * squares, axis=1)
    alive = fourth > 0
    return float(np.mean(squares[alive].sum(axis=1) ** 2 / fourth[alive]))


def neighbour_correlation(weights: Array) -> float:
    """Correlation of the weights of pixels side by side; near 0 for weights at random.

    >>> round(neighbour_correlation(np.repeat([[1.0, -1.0]], 128, axis=1)), 3)
    0.935
    """
    pictures_ = weights.reshape(-1, _SIDE, _SIDE)
    left = np.concatenate([pictures_[:, 1:].ravel(), pictures_[:, :, 1:].ravel()])
    right = np.concatenate([pictures_[:, :-1].ravel(), pictures_[:, :, :-1].ravel()])
    return float(np.corrcoef(left, right)[0, 1])


def _rounded(weights: Array) -> list[list[float]]:
    return [[round(float(w), 3) for w in row] for row in weights]
