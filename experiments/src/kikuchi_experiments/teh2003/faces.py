"""Teh's thesis, sections 3.4 and 3.5: faces and their recognition by rate-coded machines
(TEH-E1, TEH-E2).

The FERET pictures of the thesis are given out on application only. The stand-in is ORL, 400 faces
of 40 people, or any file in that layout. Eyes are not marked there: faces are moved until they fit
their mean (`data.faces.align`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.errors import DataError
from kikuchi.core.seeds import generator
from kikuchi.data.faces import OVAL_PIXELS, faces, prepare, unmask
from kikuchi_experiments.aggregate import (
    Claims,
    above,
    all_of,
    average,
    below,
    counted,
    grouped,
    holds,
    of_total,
)
from kikuchi_experiments.applications.face_baselines import (
    Correlation,
    DeltaPPCA,
    Eigenfaces,
    FaceSimilarity,
    Fisherfaces,
)
from kikuchi_experiments.experiment import Case, CaseAxes, Experiment, Finished, Result, Row
from kikuchi_experiments.teh2003.faces_figures import face_model, packed, recognition, unpacked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kikuchi.boltzmann.estimators.rate_coded import RateCodedRBM

Rows = Ints

PUBLISHED_RATE = 2.5e-3  # of weights, with 1768 pixels
_IN_USE = 0.01  # spread of its rate over the faces from which a hidden unit says something
LOCAL = 0.7  # share of squared weight in a quarter of the area, from which a field is local
RANKS = (1, 2, 4, 8, 16)

MODELS = {"free": "free weights", "nonnegative": "non-negative", "fast": "rate of the thesis"}
CONDITIONS = {"one": "one picture", "two": "two pictures", "half": "half of the pictures"}
METHODS = (
    "correlation",
    "eigenfaces",
    "fisherfaces",
    "delta-ppca",
    "rate-coded RBM",
    "non-negative RBM",
)
_BEST = {
    "one": (("rate-coded RBM",), "other expressions, pairs of other people only"),
    "two": (
        ("fisherfaces", "eigenfaces"),
        "other days and glasses, or months; own pairs as well",
    ),
}
_MOST_PAIRS = 500
_FIRST_PARTITION = 100  # those before served to choose the settings
_SHOWN_FIELDS, _SHOWN_FACES = 20, 5


class FaceModel(Experiment):
    """Faces modelled by rate-coded machines with free and with non-negative weights.

    With `data` the faces of a file take the place of ORL: `reproduce(FaceModel("faces.npz"))`.
    """

    id: ClassVar[str] = "TEH-E1"
    case_axes: ClassVar[CaseAxes] = {"model": tuple(MODELS)}

    def run_case(self, case: Case) -> Result:
        """Learn nine faces in ten; measure errors and fields."""
        pixels, mask, _ = prepared(case["data"], case["side"])
        held = np.zeros(len(pixels), dtype=np.bool_)
        held[generator(case["seed"]).permutation(len(pixels))[: math.ceil(len(pixels) / 10)]] = True
        rbm = machine(case["model"], mask, int(np.sum(~held)), case)
        rbm.fit(pixels[~held])
        fields = rbm.model_.weights.T.astype(np.float64)
        used = np.std(rbm.transform(pixels), axis=0) > _IN_USE
        local = locality(fields[used], mask)
        again = rbm.reconstruct(pixels).astype(np.float64)
        result: Result = {
            "pixels": int(mask.sum()),
            "faces": int(np.sum(~held)),
            "variance": float(pixels[held].var(axis=0).mean()),
            "error": float(np.mean((again - pixels)[~held] ** 2)),
            "held_error": float(np.mean((again - pixels)[held] ** 2)),
            "components_error": _components_error(pixels[~held], pixels[held], len(fields)),
            "locality": [round(float(x), 4) for x in local],
            "largest": float(np.abs(fields).max()),
            "in_use": int(used.sum()),
            "on": float(rbm.transform(pixels).mean()),
            "warnings": rbm.warnings_,
        }
        if case["seed"] == 0:
            energy = np.where(used, np.sum(fields**2, axis=1), 0.0)
            strong = np.sort(np.argsort(-energy)[:_SHOWN_FIELDS])
            shown = fields[strong] / np.abs(fields[strong]).max(axis=1, keepdims=True)
            result["fields"] = packed(0.5 + 0.5 * shown)
            result["originals"] = packed(pixels[held][:_SHOWN_FACES])
            result["reconstructions"] = packed(again[held][:_SHOWN_FACES])
        return result

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Errors of both kinds of weights, locality of their fields, and the published rate."""
        by_model = _results_by(finished, "model")
        rows = [_error_row(model, results) for model, results in by_model.items()]
        rows += [_locality_row(m, by_model[m]) for m in ("free", "nonnegative") if m in by_model]
        if "free" in by_model:
            rows.append(_components_row(by_model["free"]))
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Fields, reconstructions and how local fields are."""
        by_model = _results_by(finished, "model")
        case = finished[0].case
        mask = prepared(case["data"], case["side"])[1]
        pictures = {
            model: {
                name: unmask(unpacked(results[0][name]), mask, outside)
                for name, outside in (
                    ("fields", 0.5),
                    ("originals", 1.0),
                    ("reconstructions", 1.0),
                )
            }
            for model, results in by_model.items()
            if "fields" in results[0]
        }
        shares = {m: np.concatenate([r["locality"] for r in rs]) for m, rs in by_model.items()}
        return face_model(pictures, shares, MODELS)


class FaceRecognition(Experiment):
    """Faces recognised by the machine of pairs and by four other ways (figure 3.9).

    Rates, starts, the number of updates and the alignment were chosen by test errors of partition
    0 and its neighbours; the partitions that are reported begin at 100 and played no part in that.
    Longer training recognises worse. Fisherfaces work on as many components as there are people:
    with as many as the scatter allows they fail on so few faces.

    With `data` the faces of a file take the place of ORL; they need the number of the person.
    """

    id: ClassVar[str] = "TEH-E2"
    case_axes: ClassVar[CaseAxes] = {"condition": tuple(CONDITIONS)}

    def cases(self, parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Case]:
        """One case for each condition and partition."""
        cases = super().cases(parameters, seeds)
        return [{**case, "partition": _FIRST_PARTITION + case["seed"]} for case in cases]

    def run_case(self, case: Case) -> Result:
        """Rank errors of all ways on one partition."""
        from kikuchi_experiments.applications.faces import (
            FacePairRBM,
            rank_errors,
            same_person_pairs,
        )

        pixels, mask, people = prepared(case["data"], case["side"])
        who = _required(people)
        train, gallery, test = partition(who, case["condition"], case["partition"])
        pairs = min(_MOST_PAIRS, len(same_person_pairs(who[train])) // 2)
        ways: dict[str, FaceSimilarity] = {
            "correlation": Correlation(),
            "eigenfaces": Eigenfaces(),
            "fisherfaces": Fisherfaces(inner=len(np.unique(who))),
            "delta-ppca": DeltaPPCA(),
        }
        for name, model in (("rate-coded RBM", "free"), ("non-negative RBM", "nonnegative")):
            template = machine(model, mask, 2 * pairs, case)
            ways[name] = FacePairRBM(template, pairs=pairs, random_state=case["seed"])
        errors: dict[str, list[float]] = {}
        for name, way in ways.items():
            way.fit(pixels[train], who[train])
            table = way.similarity(pixels[test], pixels[gallery])
            errors[name] = rank_errors(table, who[test], who[gallery], RANKS).tolist()
        pair = ways["rate-coded RBM"]
        assert isinstance(pair, FacePairRBM)
        weights = np.abs(pair.rbm_.model_.weights)
        return {
            "errors": errors,
            "training": len(train),
            "gallery": len(gallery),
            "tests": len(test),
            "pairs": 2 * pairs,
            "people": len(np.unique(who)),
            "largest": float(weights.max()),
            "small": float(np.mean(weights < 0.005)),
            "warnings": [w for way in ways.values() for w in getattr(way, "warnings_", [])],
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Errors by condition and way, the claims about both machines, and their weights."""
        by_condition = _results_by(finished, "condition")
        results = [one.result for one in finished]
        largest = max(result["largest"] for result in results)
        return [
            *(row for item in by_condition.items() for row in _recognition_rows(*item)),
            _competitive_row(by_condition),
            _nonnegative_row(by_condition),
            _PAIRS.row("weights", f"{largest:.4f} / {average(results, 'small'):.0%}"),
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Errors by rank, one panel for each condition."""
        panels = {}
        for condition, results in _results_by(finished, "condition").items():
            panels[CONDITIONS[condition]] = {
                name: np.array([r["errors"][name] for r in results]) for name in METHODS
            }
        return recognition(panels, RANKS)


# ---------------------------------------------------------------------- data and machines


@lru_cache(maxsize=2)
def prepared(data: str | None, side: int) -> tuple[Array, Mask, Ints | None]:
    """Faces as rows of pixels inside the oval, the oval, and the people, if they are known."""
    images = faces(data, side=None)
    pixels, mask = prepare(images, side)
    return pixels, mask, images.labels


def machine(model: str, mask: Mask, rows: int, case: Case) -> RateCodedRBM:
    """A machine to train on that many rows in batches of 100, with rates, updates and seed of the
    case (TEH-L9).

    Fewer pixels need larger weights, so the rate of free weights is for 1768 pixels and goes with
    their number. Non-negative weights begin as large as they need to be.
    """
    from kikuchi.boltzmann.estimators.rate_coded import RateCodedRBM

    nonnegative = model == "nonnegative"
    free_rate = PUBLISHED_RATE if model == "fast" else case["rate"]
    scaled = float(free_rate * OVAL_PIXELS / mask.sum())
    return RateCodedRBM(
        nonnegative=nonnegative,
        learning_rate=case["nonnegative_rate"] if nonnegative else scaled,
        max_iter=max(1, round(case["updates"] / math.ceil(rows / 100))),
        random_state=case["seed"],
    )


def partition(people: Rows, condition: str, seed: int) -> tuple[Rows, Rows, Rows]:
    """Row numbers of training faces, gallery and test faces.

    A quarter of the people are tested. Of these the training set has one picture each, so that
    pairs are of others only (as for new expressions in the thesis), or two (as for other days,
    months and glasses there: the own pair is learnt as well); of the others it has all pictures.
    The gallery has as many pictures of everybody. With `half`, everyone is tested, and half of the
    pictures are training set and gallery: the usual protocol of ORL, without counterpart.
    """
    rng = generator(seed)
    names = rng.permutation(np.unique(people))
    tested = max(1, len(names) // 4) if condition != "half" else len(names)
    train, gallery, test = [], [], []
    for k, name in enumerate(names):
        own = rng.permutation(np.flatnonzero(people == name))
        known = len(own) // 2 if condition == "half" else {"one": 1, "two": 2}[condition]
        if len(own) <= known or not known:
            raise DataError(f"person {name} has {len(own)} pictures, too few for this experiment")
        gallery.append(own[:known])
        train.append(own[:known] if k < tested else own)
        if k < tested:
            test.append(own[known:])
    first, second, third = (np.sort(np.concatenate(rows)) for rows in (train, gallery, test))
    return first, second, third


def locality(fields: Array, mask: Mask) -> Array:
    """Share of the squared weight of each field (row) in the best square window whose area is a
    quarter of the mask's; about 0.25 to 0.4 for global fields, more than 0.7 for local ones.

    >>> spot = np.zeros((2, 16))
    >>> spot[0, 5] = 1; spot[1] = 1
    >>> locality(spot, np.ones((4, 4), dtype=bool)).tolist()
    [1.0, 0.25]
    """
    square = unmask(fields**2, mask)
    side = max(1, round(math.sqrt(mask.sum() / 4)))
    sums = np.zeros((len(square), square.shape[1] + 1, square.shape[2] + 1))
    sums[:, 1:, 1:] = square.cumsum(axis=1).cumsum(axis=2)
    window = sums[:, side:, side:] - sums[:, :-side, side:]
    window += sums[:, :-side, :-side] - sums[:, side:, :-side]
    total = np.maximum(square.sum(axis=(1, 2)), np.finfo(np.float64).tiny)
    share: Array = window.max(axis=(1, 2)) / total
    return np.minimum(share, 1.0)


def _results_by(finished: Sequence[Finished], axis: str) -> dict[str, list[Result]]:
    """Results by one entry of their cases, in order."""
    return {key: [one.result for one in part] for key, part in grouped(finished, axis).items()}


def _required(people: Rows | None) -> Rows:
    if people is None:
        raise DataError(
            "TEH-E2 needs the number of the person of each face; give an array 'labels' in the "
            ".npz file or a last column"
        )
    return people


def _components_error(train: Array, test: Array, count: int) -> float:
    """Error of test faces when rebuilt from principal components of the training faces."""
    mean = train.mean(axis=0)
    axes = np.linalg.svd(train - mean, full_matrices=False)[2][:count]
    centred = test - mean
    return float(np.mean((centred - centred @ axes.T @ axes) ** 2))


# ---------------------------------------------------------------------- tables


_MODEL = Claims.of(__name__, "TEH-E1")
_PAIRS = Claims.of(__name__, "TEH-E2")


def _error_row(model: str, results: Sequence[Result]) -> Row:
    learnt, held = (
        float(np.mean([r[name] / r["variance"] for r in results]))
        for name in ("error", "held_error")
    )
    on = average(results, "on")
    notes = {
        "free": f"{results[0]['faces']} faces, a tenth of the published rate; of the replicas of "
        f"hidden units {on:.0%} are on",
        "nonnegative": "faces are sums of parts",
        "fast": f"{PUBLISHED_RATE:g}: {on:.1%} of the replicas of hidden units are on",
    }
    judged, said = None, None
    if model != "fast":
        judged, said = below(held, 0.5, "0.5, held out"), "generally good"
    ours, name = f"{learnt:.2f} / {held:.2f}", MODELS[model]
    return _MODEL.row("error", ours, judged, name=name, published=said, note=notes[model])


def _locality_row(model: str, results: Sequence[Result]) -> Row:
    shares = np.concatenate([r["locality"] for r in results])
    if not len(shares):
        in_use = holds(False, "some are in use")
        return _MODEL.row("collapsed", "none in use", in_use, name=MODELS[model])
    local, middle = float(np.mean(shares > LOCAL)), float(np.median(shares))
    judgement = below(local, 0.1, "10 %") if model == "free" else above(local, 0.8, "80 %")
    values = {"name": MODELS[model], "used": average(results, "in_use"), "local": LOCAL}
    return _MODEL.row(model, f"{local:.0%} / {middle:.2f}", judgement, **values)


def _components_row(results: Sequence[Result]) -> Row:
    ratio = float(np.mean([r["held_error"] / r["components_error"] for r in results]))
    return _MODEL.row("components", f"{ratio:.2f}")


def _recognition_rows(condition: str, results: Sequence[Result]) -> list[Row]:
    first = results[0]
    note = (
        f"{first['tests']} tests, gallery of {first['gallery']}, {first['pairs']} pairs; "
        f"{counted(len(results), 'partition')}"
    )
    means = _mean_errors({condition: results})[condition]
    ranks = ", ".join(map(str, RANKS))
    place = CONDITIONS[condition]
    rows = []
    for name, mean in means.items():
        ours = " ".join(f"{100 * value:.1f}" for value in mean)
        said = note if name == METHODS[0] else ""
        rows.append(_PAIRS.row("ranks", ours, condition=place, name=name, ranks=ranks, note=said))
    if condition in _BEST:
        least = min(float(mean[0]) for mean in means.values())
        best = [name for name in METHODS if means[name][0] <= least + 1e-12]
        published, kin = _BEST[condition]
        judgement = holds(not set(best).isdisjoint(published), "the best or one of them")
        values = {"condition": place, "published": " or ".join(published), "kin": kin}
        rows.append(_PAIRS.row("best", " and ".join(best), judgement, **values))
    return rows


def _mean_errors(by_condition: Mapping[str, Sequence[Result]]) -> dict[str, dict[str, Array]]:
    return {
        condition: {name: np.mean([r["errors"][name] for r in results], axis=0) for name in METHODS}
        for condition, results in by_condition.items()
    }


def _competitive_row(by_condition: Mapping[str, Sequence[Result]]) -> Row:
    """Ranks at which the machine is better than the worst of the four other ways."""
    within = total = best = 0
    for errors in _mean_errors(by_condition).values():
        others = np.array([errors[name] for name in METHODS[:4]])
        own = errors["rate-coded RBM"]
        within += int(np.sum(own <= others.max(axis=0)))
        best += int(np.sum(own <= others.min(axis=0)))
        total += len(own)
    judgement = holds(within >= 0.6 * total, "not the worst at 60 % of conditions and ranks")
    return _PAIRS.row("competitive", f"{within} / {best} of {total}", judgement)


def _nonnegative_row(by_condition: Mapping[str, Sequence[Result]]) -> Row:
    worst = total = 0
    for errors in _mean_errors(by_condition).values():
        others = np.array([errors[name] for name in METHODS[:5]])
        worst += int(np.sum(errors["non-negative RBM"] >= others.max(axis=0)))
        total += len(RANKS)
    return _PAIRS.row("nonnegative", of_total(worst, total), all_of(worst, total))
