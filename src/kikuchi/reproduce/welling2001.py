"""Welling and Hinton: digits by machines that learn contrastive free energies (WH-E1 to E3)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import DataError
from kikuchi.data.digits import digits
from kikuchi.data.images import Images
from kikuchi.reproduce import welling2001_figures as figures
from kikuchi.reproduce.experiment import Case, Experiment, Finished, Result, Row, Setting, Status

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kikuchi.boltzmann.boltzmann_machine import BoltzmannMachine
    from kikuchi.boltzmann.classifier import FreeEnergyClassifier

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

DOCUMENT = "Welling & Hinton 2001"

ARCHITECTURES = ("brf", "hrf", "poe", "fcrf")
LEARNERS = {
    "MF_*": "mf-star:tol=1e-4",
    "MF_inf": "cf:k=0,tol=1e-3",
    "MF_1": "cf:k=1,tol=1e-4",
    "TAP": "cf:energy=tap,k=1,tol=1e-4",
    "Bethe": "cf:energy=bethe,k=1,tol=1e-4",
}
"""The five methods of table 1 as learners of this library."""

PUBLISHED: dict[tuple[str, str], tuple[float, float]] = {
    ("brf", "MF_*"): (8.7, 0.4),
    ("brf", "MF_inf"): (5.5, 0.3),
    ("brf", "MF_1"): (5.0, 0.3),
    ("hrf", "MF_*"): (9.6, 0.5),
    ("hrf", "MF_inf"): (6.2, 0.2),
    ("hrf", "MF_1"): (5.1, 0.2),
    ("hrf", "TAP"): (5.1, 0.3),
    ("hrf", "Bethe"): (5.2, 0.3),
    ("poe", "MF_*"): (6.1, 0.5),
    ("poe", "MF_inf"): (4.5, 0.2),
    ("poe", "MF_1"): (4.5, 0.2),
    ("poe", "TAP"): (4.4, 0.2),
    ("poe", "Bethe"): (4.5, 0.2),
    ("fcrf", "MF_*"): (5.9, 0.3),
    ("fcrf", "MF_inf"): (4.5, 0.3),
    ("fcrf", "MF_1"): (4.4, 0.1),
    ("fcrf", "TAP"): (4.4, 0.2),
    ("fcrf", "Bethe"): (4.5, 0.2),
}
"""Table 1: error and deviation over runs in percent; on BRF, TAP and Bethe are MF_1."""

BASELINES = {"1-nearest neighbour": (6.3, 5.5), "logistic regression": (9.2, 6.4)}
"""Errors of the baselines in percent: on binary 8x8 digits, and on grey 16x16 ones."""

SHARES = (8, 1, 1)
"""Training, validation and test digits of WH-E1. The paper has 6 : 2 : 3 of 1100 digits a class;
the stand-ins have 500 and 174, and machines with connected visible units need what they can get."""

_MNIST = (28, 28)
_EIGHT = 8
_CLASSES = 10
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


class Parts:
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
    from kikuchi.boltzmann.boltzmann_machine import BoltzmannMachine

    return BoltzmannMachine(
        case["hidden"],
        architecture=case["architecture"],
        learner=LEARNERS[case["method"]],
        learning_rate=case["rate"],
        momentum=case["momentum"],
        weight_decay=case["decay"],
        batch_size=case["batch"],
        epochs=-(-case["updates"] // -(-rows // case["batch"])),
        dtype="float64",
        random_state=case["seed"],
    )


def learned_classifier(parts: Parts, case: Case) -> FreeEnergyClassifier:
    """One machine for each class, and the regression on the free energies of all that is known.

    Machines learn from the training pictures, the regression also from the validation set
    (WH-L10).
    """
    from kikuchi.boltzmann.classifier import FreeEnergyClassifier

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


def percent_wrong(found: Labels, wanted: Labels) -> float:
    """Share of wrong answers in percent."""
    return 100.0 * float(np.mean(found != wanted))


# ---------------------------------------------------------------------- WH-E1


class BinaryDigits(Experiment):
    """Test errors of 4 architectures by 5 methods (WH-E1, table 1)."""

    id: ClassVar[str] = "WH-E1"
    document: ClassVar[str] = DOCUMENT
    title: ClassVar[str] = "Binary 8x8 digits by contrastive free energies"
    claim: ClassVar[str] = (
        "One machine of 25 hidden units a class, 1500 updates of 10 digits, logistic regression on "
        "the free energies. One step of settling from the data (MF_1) is no worse than settling to "
        "convergence (MF_inf); both are well below one mean field for all data (MF_*). TAP and "
        "Bethe do not help further. Connections among visible units (PoE, FCRF) help most; their "
        "error is below those of 1-nearest neighbour and logistic regression."
    )
    caption: ClassVar[str] = (
        "Test error by method, one panel a set of digits: mean over the seeds with its standard "
        "deviation; hollow marks: the paper, on another set. Lines: the baselines on this set. The "
        "paper does not state rate, momentum and decay; here 0.01, 0.9 and 0.02, best for PoE and "
        "FCRF among nine pairs by validation errors of MF_1 on a split that is not reported. The "
        "digits are split 8 : 1 : 1 (6 : 2 : 3 in the paper, which has more), so tests are few."
    )
    status: ClassVar[Status] = "agrees in part"
    quick: ClassVar[Setting] = Setting(
        1,
        {
            "sources": ["sklearn"],
            "architectures": ["brf", "poe"],
            "methods": ["MF_*", "MF_1"],
            "hidden": 25,
            "updates": 270,
            "batch": 10,
            "rate": 0.01,
            "momentum": 0.9,
            "decay": 0.02,
        },
        "8 s",
    )
    full: ClassVar[Setting] = Setting(
        3,
        {
            "sources": ["sklearn", "mnist"],
            "architectures": list(ARCHITECTURES),
            "methods": list(LEARNERS),
            "hidden": 25,
            "updates": 1500,
            "batch": 10,
            "rate": 0.01,
            "momentum": 0.9,
            "decay": 0.02,
        },
        "70 min",
    )
    takes_data: ClassVar[str] = (
        "digits of 8x8 pixels or more with their classes, 0..1, 0..16 or 0..255: a row of pixels "
        "and the class, or arrays images and labels"
    )

    def cases(self, parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Case]:
        """One case for each set, architecture, method and seed; and the baselines of each seed."""
        shared = {k: v for k, v in parameters.items() if not isinstance(v, list)}
        sources = parameters["sources"] if self.data is None else [self.data]
        out: list[Case] = []
        for seed in seeds:
            for source in sources:
                base = {"set": source, "seed": seed, "batch": parameters["batch"], **self.source()}
                out.append({**base, "architecture": None, "method": "baselines"})
                out += [
                    {**base, "architecture": architecture, "method": method, **shared}
                    for architecture in parameters["architectures"]
                    for method in parameters["methods"]
                    if (architecture, method) in PUBLISHED
                ]
        return out

    def run_case(self, case: Case) -> Result:
        """Errors of the baselines, or of ten machines and the regression on top."""
        images = binary_pictures(case["set"], case.get("digest", ""))
        parts = Parts(images, SHARES, case["batch"], case["seed"])
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
        rows: list[Row] = []
        sets = list(dict.fromkeys(one.case["set"] for one in finished))
        for name in sets:
            table = ErrorTable([one for one in finished if one.case["set"] == name])
            before = f"{_SETS.get(name, 'file')}: " if len(sets) > 1 or self.data else ""
            rows += _prefixed(before, table.rows())
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Errors beside those of the paper."""
        panels = {}
        for name in dict.fromkeys(one.case["set"] for one in finished):
            table = ErrorTable([one for one in finished if one.case["set"] == name])
            lines = {name: list(errors.values()) for name, errors in table.baselines.items()}
            panels[_SETS.get(name, name)] = (table.errors, lines)
        return figures.draw_errors(panels, PUBLISHED, list(LEARNERS), list(ARCHITECTURES))


class ErrorTable:
    """Errors of one set of digits by architecture and method, a value a seed."""

    def __init__(self, finished: Sequence[Finished]) -> None:
        self.finished = finished
        self.errors: dict[tuple[str, str], dict[int, float]] = {}
        self.baselines: dict[str, dict[int, float]] = {}
        for one in finished:
            if one.case["method"] == "baselines":
                for name in BASELINES:
                    self.baselines.setdefault(name, {})[one.case["seed"]] = one.result[name]
            else:
                key = (one.case["architecture"], one.case["method"])
                self.errors.setdefault(key, {})[one.case["seed"]] = one.result["error"]

    def mean(self, architecture: str, method: str) -> float:
        """Mean error over the seeds."""
        return float(np.mean(list(self.errors[architecture, method].values())))

    def difference(self, one: tuple[str, str], other: tuple[str, str]) -> tuple[float, float]:
        """Mean over common seeds of the first error minus the second, and its standard error."""
        return paired_difference(self.errors[one], self.errors[other])

    @property
    def alone(self) -> bool:
        """Whether there is one seed only: a digit more or less decides nothing then."""
        return max(map(len, self.errors.values())) < 2

    def _points(self, gap: float, spread: float) -> str:
        return f"{gap:.1f} points, one seed" if self.alone else f"{gap:.1f} ± {spread:.1f} points"

    def _judged(self, right: bool) -> bool | None:
        return None if self.alone else right

    def rows(self) -> list[Row]:
        """Every cell, the baselines and the statements of the paper about them."""
        return [
            *self._cell_rows(),
            *self._baseline_rows(),
            *self._star_rows(),
            *self._settled_rows(),
            *self._lateral_rows(),
            *self._below_rows(),
        ]

    def _cell_rows(self) -> Iterator[Row]:
        for (architecture, method), errors in sorted(self.errors.items(), key=_table_order):
            own = [
                one
                for one in self.finished
                if (one.case["architecture"], one.case["method"]) == (architecture, method)
            ]
            said = [text for one in own for text in one.result["warnings"]]
            cpu = float(np.mean([one.result["cpu"] for one in own]))
            seeds = "one seed" if len(errors) == 1 else f"{len(errors)} seeds"
            note = f"{seeds}; {cpu:.1f} s of CPU for all classes"
            note += f"; {len(said)} warnings: {said[0]}" if said else ""
            published = "{:.1f} ± {:.1f} %".format(*PUBLISHED[architecture, method])
            yield Row(f"{architecture.upper()}, {method}", _with_spread(errors.values()), published,
                      None, note)  # fmt: skip

    def _baseline_rows(self) -> Iterator[Row]:
        sizes = self.finished[0].result
        note = (
            f"{sizes['train']} digits to learn from, {sizes['known']} with the validation set, "
            f"{sizes['test']} to test; split anew by each seed"
        )
        for name, errors in self.baselines.items():
            yield Row(name, _with_spread(errors.values()), f"{BASELINES[name][0]} %", None, note)

    def _star_rows(self) -> Iterator[Row]:
        """MF_* is well above what starts at the data."""
        pairs = [
            (architecture, method)
            for architecture in ARCHITECTURES
            for method in ("MF_1", "MF_inf")
            if {(architecture, method), (architecture, "MF_*")} <= set(self.errors)
        ]
        if pairs:
            gaps = [self.difference((a, "MF_*"), (a, method)) for a, method in pairs]
            gap, spread = min(gaps)
            yield Row(
                "MF_* above MF_1 and MF_inf: smallest gap of all architectures",
                self._points(gap, spread),
                "1.4 points",
                None,
                "with its standard error; agrees above two of them",
                self._judged(gap > 2.0 * spread),
            )

    def _settled_rows(self) -> Iterator[Row]:
        """MF_inf, TAP and Bethe give nothing over MF_1."""
        for method, published in (("MF_inf", "0.0 to 1.1"), ("TAP", "-0.1 to 0.0"),
                                  ("Bethe", "0.0 to 0.1")):  # fmt: skip
            gaps = [
                self.difference((a, method), (a, "MF_1"))
                for a in ARCHITECTURES
                if {(a, method), (a, "MF_1")} <= set(self.errors)
            ]
            if gaps:
                values = [gap for gap, _ in gaps]
                yield Row(
                    f"{method} minus MF_1",
                    f"{min(values):.1f} to {max(values):.1f} points",
                    f"{published} points",
                    None,
                    f"standard errors up to {max(s for _, s in gaps):.1f}; agrees if MF_1 is "
                    "nowhere worse by half a point or two standard errors, whichever is more",
                    self._judged(all(gap > -max(0.5, 2.0 * spread) for gap, spread in gaps)),
                )

    def _lateral_rows(self) -> Iterator[Row]:
        """Connections among visible units help."""
        for method in ("MF_1", "MF_inf", "MF_*"):
            have = {a for a, m in self.errors if m == method}
            pairs = [(b, p) for b in ("brf", "hrf") for p in ("poe", "fcrf") if {b, p} <= have]
            if pairs:
                gaps = [self.difference((b, method), (p, method)) for b, p in pairs]
                gap, spread = min(gaps)
                paper = min(PUBLISHED[b, method][0] - PUBLISHED[p, method][0] for b, p in pairs)
                yield Row(
                    f"PoE and FCRF below BRF and HRF, {method}: smallest gap",
                    self._points(gap, spread),
                    f"{paper:.1f} points",
                    None,
                    f"largest {max(gaps)[0]:.1f}; with its standard error; agrees above two",
                    self._judged(gap > 2.0 * spread),
                )

    def _below_rows(self) -> Iterator[Row]:
        if ("poe", "MF_1") in self.errors and self.baselines:
            best = min(self.baselines.values(), key=lambda e: np.mean(list(e.values())))
            gap, spread = paired_difference(best, self.errors["poe", "MF_1"])
            ours, theirs = self.mean("poe", "MF_1"), float(np.mean(list(best.values())))
            yield Row(
                "PoE by MF_1 below both baselines",
                f"{ours:.1f} against {theirs:.1f} %",
                "4.5 against 6.3 %",
                None,
                f"the better baseline; by {self._points(gap, spread)}, agrees above two standard "
                "errors",
                self._judged(gap > 2.0 * spread),
            )


def paired_difference(one: Mapping[int, float], other: Mapping[int, float]) -> tuple[float, float]:
    """Mean over common seeds of the first minus the second, and its standard error (0 for one).

    >>> paired_difference({0: 3.0, 1: 5.0, 2: 9.0}, {0: 2.0, 1: 2.0})
    (2.0, 1.0)
    """
    found = np.array([one[seed] - other[seed] for seed in one if seed in other])
    spread = float(found.std(ddof=1) / np.sqrt(len(found))) if len(found) > 1 else 0.0
    return float(found.mean()) if len(found) else 0.0, spread


def _table_order(item: tuple[tuple[str, str], Any]) -> tuple[int, int]:
    architecture, method = item[0]
    return ARCHITECTURES.index(architecture), list(LEARNERS).index(method)


def _with_spread(errors: Any) -> str:
    values = np.array(list(errors))
    if len(values) < 2:
        return f"{values[0]:.1f} %"
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f} %"


def _prefixed(before: str, rows: Sequence[Row]) -> list[Row]:
    return [
        Row(before + row.quantity, row.ours, row.published, row.corrected, row.note, row.agrees)
        for row in rows
    ]
