"""Welling and Hinton: digits by machines that learn contrastive free energies (WH-E1 to E3)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError
from kikuchi.data.digits import digits
from kikuchi.data.images import Images
from kikuchi_experiments.experiment import Case, Experiment, Finished, Result, Row
from kikuchi_experiments.welling2001 import figures
from kikuchi_experiments.welling2001.tables import (
    ARCHITECTURES,
    LEARNERS,
    PUBLISHED,
    ErrorTable,
    prefixed,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kikuchi.boltzmann.estimators.boltzmann_machine import BoltzmannMachine
    from kikuchi.boltzmann.estimators.classifier import FreeEnergyClassifier

Labels = Ints

SHARES = (8, 1, 1)
"""Training, validation and test digits of WH-E1. The paper has 6 : 2 : 3 of 1100 digits per class;
the stand-ins have 500 and 174, and machines with connected visible units need what they can get."""

_MNIST = (28, 28)
_EIGHT = 8
_SETS = {"sklearn": "scikit-learn's digits", "mnist": "MNIST at 8x8"}


# ---------------------------------------------------------------------- data


@lru_cache(maxsize=4)
def pictures(source: str, side: int, digest: str = "") -> Images:
    """Digits of `side` x `side` pixels that fill their frame, each scaled to [0, 1].

    MNIST leaves a margin and puts the centre of mass in the middle; here the square around each
    digit is averaged, as in the sets of the paper. `digest` tells changed files apart.

    >>> images = pictures("sklearn", 8)
    >>> images.shape, float(images.pixels.max(axis=1).min())
    ((8, 8), 1.0)
    """
    images = digits(source)
    labels = images.required_labels()
    if images.shape == _MNIST:
        images = framed(images, side)
    pixels = images.resized((side, side)).pixels
    top, low = pixels.max(axis=1, keepdims=True), pixels.min(axis=1, keepdims=True)
    if np.any(top <= low):
        row = int(np.argmin(top - low))
        raise DataError(f"{images.source}: picture {row} is all of one grey; remove it")
    return Images((pixels - low) / (top - low), (side, side), labels, images.source)


def framed(images: Images, side: int) -> Images:
    """The smallest square around what is not zero in each picture, averaged to `side` pixels.

    >>> dot = np.zeros((1, 4, 4))
    >>> dot[0, 2:, 2:] = 1.0
    >>> framed(Images.of(dot), 2).pixels.tolist()
    [[1.0, 1.0, 1.0, 1.0]]
    """
    out = np.zeros((len(images), side * side))
    for k, picture in enumerate(images.pixels.reshape(-1, *images.shape)):
        square = _square_around(picture, side)
        cut = Images(square.reshape(1, -1), (len(square), len(square)))
        out[k] = cut.resized((side, side)).pixels[0]
    return Images(out, (side, side), images.labels, images.source)


def _square_around(picture: Array, smallest: int) -> Array:
    rows, columns = np.flatnonzero(picture.any(axis=1)), np.flatnonzero(picture.any(axis=0))
    if not len(rows):
        return np.zeros((smallest, smallest))
    cut = picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    size = max(*cut.shape, smallest)
    top, left = (size - cut.shape[0]) // 2, (size - cut.shape[1]) // 2
    square = np.zeros((size, size))
    square[top : top + cut.shape[0], left : left + cut.shape[1]] = cut
    return square


@lru_cache(maxsize=2)
def binary_pictures(source: str, digest: str = "") -> Images:
    """8x8 digits in black and white: at half the range, lower where pixels are averages.

    Averages over areas are grey on both edges of a stroke; at half the range strokes would break.
    """
    averaged = digits(source).shape != (_EIGHT, _EIGHT)
    return pictures(source, _EIGHT, digest).thresholded(0.3 if averaged else 0.5)


class DigitSplit:
    """Training, validation and test pictures of every class in the shares of the paper."""

    def __init__(self, images: Images, shares: tuple[int, int, int], batch: int, seed: int) -> None:
        labels = images.required_labels()
        least = int(np.unique(labels, return_counts=True)[1].min())
        whole = sum(shares)
        trained = least * shares[0] // whole
        trained = max(trained - trained % batch, min(batch, trained))
        held, tested = least * shares[1] // whole, least * shares[2] // whole
        if min(trained, held, tested) < 1:
            raise DataError(
                f"{images.source}: a class has {least} pictures; at least "
                f"{-(-whole // min(shares))} are needed"
            )
        outer, inner = np.random.SeedSequence([seed, 0]), np.random.SeedSequence([seed, 1])
        known, self.test = images.split(trained + held, tested, seed=outer)
        self.train, self.validation = known.split(trained, held, seed=inner)

    @property
    def known(self) -> tuple[Array, Labels]:
        """Training and validation pictures together, with their classes."""
        labels = [self.train.required_labels(), self.validation.required_labels()]
        return np.vstack([self.train.pixels, self.validation.pixels]), np.concatenate(labels)


# ---------------------------------------------------------------------- learning and errors


def template(case: Case, rows: int) -> BoltzmannMachine:
    """The machine of a case before it learns from so many digits (WH-L4 to L8).

    The last pass over the data is always finished, so that there may be a few more updates than
    asked for.
    """
    from kikuchi.boltzmann.estimators.boltzmann_machine import BoltzmannMachine

    return BoltzmannMachine(
        case["hidden"],
        architecture=case["architecture"],
        learner=LEARNERS[case["method"]],
        learning_rate=case["rate"],
        momentum=case["momentum"],
        weight_decay=case["decay"],
        batch_size=case["batch"],
        max_iter=-(-case["updates"] // -(-rows // case["batch"])),
        dtype="float64",
        random_state=case["seed"],
    )


def learned_classifier(parts: DigitSplit, case: Case) -> FreeEnergyClassifier:
    """One machine for each class, and the regression on the free energies of all that is known.

    Machines learn from the training pictures, the regression also from the validation set
    (WH-L10).
    """
    from kikuchi.boltzmann.estimators.classifier import FreeEnergyClassifier

    labels = parts.train.required_labels()
    machine = template(case, len(labels) // len(np.unique(labels)))
    return FreeEnergyClassifier(machine, max_iter=5000).fit(
        parts.train.pixels,
        labels,
        X_more=parts.validation.pixels,
        y_more=parts.validation.required_labels(),
    )


def training_warnings(classifier: FreeEnergyClassifier) -> list[str]:
    """What the trainings of the machines have to say."""
    return [text for machine in classifier.machines_ for text in machine.warnings_]


def baseline_errors(known: Array, labels: Labels, test: Array, wanted: Labels) -> dict[str, float]:
    """Errors in percent of the two methods that need no machine."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    nearest = KNeighborsClassifier(n_neighbors=1).fit(known, labels)
    regression = LogisticRegression(max_iter=5000).fit(known, labels)
    return {
        "1-nearest neighbour": percent_wrong(nearest.predict(test), wanted),
        "logistic regression": percent_wrong(regression.predict(test), wanted),
    }


def percent_wrong(predicted: Labels, wanted: Labels) -> float:
    """Share of wrong answers in percent."""
    return 100.0 * float(np.mean(predicted != wanted))


# ---------------------------------------------------------------------- WH-E1


class BinaryDigits(Experiment):
    """Test errors of 4 architectures by 5 methods (WH-E1, table 1)."""

    id: ClassVar[str] = "WH-E1"

    def cases(self, parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Case]:
        """One case for each set, architecture, method and seed; and the baselines of each seed."""
        shared = {k: v for k, v in parameters.items() if not isinstance(v, list | dict)}
        faster = parameters.get("faster", {"sources": []})
        numbers = {k: v for k, v in faster.items() if not isinstance(v, list)}
        out: list[Case] = []
        for seed in seeds:
            for source in parameters["sources"] if self.data is None else [self.data]:
                base = {"set": source, "seed": seed, "batch": parameters["batch"], **self.source()}
                out.append({**base, "architecture": None, "method": "baselines"})
                out += [
                    {**base, **cell, **shared} for cell in _cells(parameters, parameters["methods"])
                ]
                if source in faster["sources"]:
                    cells = _cells(parameters, faster["methods"])
                    out += [{**base, **cell, **shared, **numbers} for cell in cells]
        return out

    def run_case(self, case: Case) -> Result:
        """Errors of the baselines, or of ten machines and the regression on top."""
        images = binary_pictures(case["set"], case.get("digest", ""))
        parts = DigitSplit(images, SHARES, case["batch"], case["seed"])
        known, labels = parts.known
        test, wanted = parts.test.pixels, parts.test.required_labels()
        sizes = {"train": len(parts.train), "known": len(known), "test": len(test)}
        if case["method"] == "baselines":
            return {**sizes, **baseline_errors(known, labels, test, wanted)}
        begin = time.process_time()
        classifier = learned_classifier(parts, case)
        cpu = time.process_time() - begin
        error = percent_wrong(classifier.predict(test), wanted)
        return {**sizes, "error": error, "cpu": cpu, "warnings": training_warnings(classifier)}

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Table 1, and whether its ordering is found."""
        panels = self._panels(finished)
        alone = len(panels) == 1 and self.data is None
        return [
            row
            for name, part in panels.items()
            for row in prefixed("" if alone else f"{name}: ", ErrorTable(part).rows())
        ]

    def _panels(self, finished: Sequence[Finished]) -> dict[str, list[Finished]]:
        """Cases by set of digits; those with another rate than the usual one apart."""
        panels: dict[str, list[Finished]] = {}
        usual = self.full.parameters["rate"]
        for one in finished:
            name = str(_SETS.get(one.case["set"], one.case["set"]))
            if one.case.get("rate", usual) != usual:
                name += f", rate {one.case['rate']:g}"
            panels.setdefault(name, []).append(one)
        return panels

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Errors beside those of the paper."""
        panels = {}
        for name, part in self._panels(finished).items():
            table = ErrorTable(part)
            lines = {name: list(errors.values()) for name, errors in table.baselines.items()}
            panels[name] = (table.errors, lines)
        return figures.draw_errors(panels, PUBLISHED, list(LEARNERS), list(ARCHITECTURES))


def _cells(parameters: Mapping[str, Any], methods: Sequence[str]) -> list[Case]:
    """Architectures and methods of table 1."""
    return [
        {"architecture": architecture, "method": method}
        for architecture in parameters["architectures"]
        for method in methods
        if (architecture, method) in PUBLISHED
    ]
