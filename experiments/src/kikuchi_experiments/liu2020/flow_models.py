"""Liu's papers beside the thesis: classification by mixtures of flows, speech by chains of flows
(LIU-X6, X7).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import KikuchiError
from kikuchi_experiments.aggregate import counted, holds
from kikuchi_experiments.experiment import (
    Case,
    CaseAxes,
    Experiment,
    Finished,
    Judgement,
    Result,
    Row,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACCURACY = {
    ("letter", 1): 0.9459, ("letter", 2): 0.9513, ("letter", 3): 0.9578, ("letter", 4): 0.9581,
    ("letter", 10): 0.9657, ("letter", 20): 0.9674,
    ("satimage", 1): 0.8900, ("satimage", 2): 0.8975, ("satimage", 3): 0.9045,
    ("satimage", 4): 0.9085, ("satimage", 10): 0.9105, ("satimage", 20): 0.9160,
}  # fmt: skip
"""Published test accuracies by table and flows per class."""

TIMIT = {"GMM-HMM": (62.3, 68.0, 68.7), "GenHMM": (76.7, 77.7, 77.7)}
"""Published percentages of phonemes for 1, 3 and 5 components, other data than ours."""

_LETTERS_LEARNT = 16000
_SATIMAGES_LEARNT = 4435
_FEWEST_EPOCHS = 20  # K flows per class have a K-th of the epochs of one, but no fewer
_SLACK = 0.005


@lru_cache(maxsize=4)
def _classes(name: str) -> tuple[Array, Ints, int]:
    """Rows, classes, and the number of rows that the source learns from."""
    from kikuchi_experiments.data.tables import keel_table

    table = keel_table(name)
    return table.x, table.y, _LETTERS_LEARNT if name == "letter" else _SATIMAGES_LEARNT


class ClassesByFlows(Experiment):
    """Maximum-likelihood classification by one mixture of flows per class (LIU-X6)."""

    id: ClassVar[str] = "LIU-X6"
    case_axes: ClassVar[CaseAxes] = {"table": "tables", "components": "components"}

    def run_case(self, case: Case) -> Result:
        """Accuracies of flows, of the Gaussian mixtures they begin from, and of a support vector
        machine.
        """
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVC

        from kikuchi.flows import FlowClassifier

        x, y, count = _classes(case["table"])
        order = np.random.default_rng(case["seed"]).permutation(len(x))
        x, y = x[order], y[order]
        test = x[count:], y[count:]
        count = min(count, case["rows"] or count)
        learn = x[:count], y[:count]
        fewest = min(_FEWEST_EPOCHS, case["epochs"])
        epochs = max(case["epochs"] // case["components"], fewest)
        options: dict[str, Any] = {"density": "mixture", "schedule": "constant", "patience": 15}
        options |= {"max_iter": epochs, "random_state": case["seed"]}
        flows = FlowClassifier(case["components"], **options).fit(*learn)
        start = FlowClassifier(
            case["components"], flow="affine", **{**options, "max_iter": 1, "learning_rate": 1e-9}
        ).fit(*learn)
        result: Result = {
            "flows": float(flows.score(*test)),
            "gaussians": float(start.score(*test)),
            "epochs": int(flows.n_iter_),
            "stopped": flows.stopped_,
            "learnt": count,
        }
        if case["components"] == 1:
            machine = make_pipeline(StandardScaler(), SVC(C=10.0)).fit(*learn)
            result["machine"] = float(machine.score(*test))
        return result

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Accuracies beside the published ones."""
        found: dict[tuple[str, int], list[Result]] = {}
        for one in finished:
            key = one.case["table"], one.case["components"]
            found.setdefault(key, []).append(one.result)
        rows = []
        for (table, k), results in found.items():
            ours = float(np.mean([r["flows"] for r in results]))
            gaussians = float(np.mean([r["gaussians"] for r in results]))
            published = ACCURACY[table, k]
            judged: Judgement | None = holds(
                ours >= published - _SLACK, f">= {published - _SLACK:.4f}"
            )
            note = f"Gaussian mixtures per class {gaussians:.4f}"
            if "machine" in results[0]:
                note += f", support vector machine {np.mean([r['machine'] for r in results]):.4f}"
            if results[0]["learnt"] < _classes(table)[2]:
                note += f"; trained on {results[0]['learnt']} rows only, so not comparable"
                judged = None
            name = f"accuracy, {table}, {k} flow{'s' if k > 1 else ''} per class"
            rows.append(Row(name, ours, published, note=note, judgement=judged))
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Accuracy by flows per class."""
        from kikuchi.plots import style

        with style.styled():
            figure, [axes] = style.new_figure(6.4, 3.8)
            pairs = zip(("letter", "satimage"), (style.BLUE, style.VERMILLION), strict=True)
            for table, colour in pairs:
                own = [f for f in finished if f.case["table"] == table]
                ks = sorted({f.case["components"] for f in own})
                means = [
                    np.mean([f.result["flows"] for f in own if f.case["components"] == k])
                    for k in ks
                ]
                axes.plot(ks, means, color=colour, marker="o", ms=4, label=f"{table}, ours")
                shown = sorted(k for t, k in ACCURACY if t == table)
                published = [ACCURACY[table, k] for k in shown]
                axes.plot(shown, published, color=colour, ls=":", label=f"{table}, published")
            axes.set(xlabel="flows per class", ylabel="test accuracy")
            axes.legend(frameon=False)
        return figure


# ---------------------------------------------------------------------- speech


class SpeechByFlows(Experiment):
    """Spoken digits by one chain of flows per digit, a speaker held out (LIU-X7, M15)."""

    id: ClassVar[str] = "LIU-X7"
    takes_data: ClassVar[str] = "a folder of recordings named DIGIT_SPEAKER_NUMBER.wav"
    needs_data: ClassVar[bool] = True
    case_axes: ClassVar[CaseAxes] = {"speaker": "speakers", "components": "components"}

    def source(self) -> Case:
        """The folder, and the names and sizes of its recordings in short."""
        if self.data is None:
            return {"data": None}
        told = [f"{p.name} {p.stat().st_size}" for p in sorted(Path(self.data).glob("*.wav"))]
        digest = hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
        return {"data": self.data, "digest": digest}

    def run_case(self, case: Case) -> Result:
        """Digits of a speaker that nobody has heard, by chains of flows and of Gaussians.

        The covariances of the Gaussians, then the number of rounds of flows are those that two of
        the other speakers, held out for this, like best in the mean over digits; 0 rounds are the
        Gaussians. The chains that are tested learn from all the others.
        """
        if case["data"] is None:
            raise KikuchiError(
                "LIU-X7 needs recordings of spoken digits: give their folder as --data"
            )
        learnt, test = _speech(
            case["data"], case["speaker"], case["coefficients"], case["recordings"]
        )
        by_digit = [[r for r in learnt if r.digit == digit] for digit in range(10)]
        start = max("diag", "full", key=lambda c: float(_heard(case, by_digit, c, 0)[0]))
        heard = _heard(case, by_digit, start, case["rounds"])
        rounds = int(np.argmax(heard))
        makers: dict[str, Callable[[list[Any]], Any]] = {
            "flows": lambda own: _flows(case, own, start, rounds),
            "gaussians": lambda own: _gaussians(case, own, "diag"),
            "full": lambda own: _gaussians(case, own, "full"),
        }
        truth = np.array([r.digit for r in test])
        right = {}
        for name, make in makers.items():
            chains = [make(own) for own in by_digit]
            logs = [[chain.score_samples(r.frames).sum() for chain in chains] for r in test]
            right[name] = np.argmax(logs, axis=1) == truth
        result: Result = {name: float(found.mean()) for name, found in right.items()}
        for name in ("gaussians", "full"):
            gain = right["flows"].astype(float) - right[name]
            result[f"error over {name}"] = float(gain.std() / np.sqrt(len(test)))
        chosen = {"start": start, "rounds": rounds, "heard": heard.tolist()}
        return {**result, **chosen, "count": len(test)}

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Accuracies, their difference with its error by speaker and in the mean, and the published
        ones of other data.
        """
        return [
            row
            for k in sorted({f.case["components"] for f in finished})
            for row in _speech_rows(k, [f for f in finished if f.case["components"] == k])
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Accuracies by speaker."""
        from kikuchi.plots import style

        with style.styled():
            figure, [axes] = style.new_figure(6.4, 3.6)
            place = np.arange(len(finished))
            for offset, (name, colour) in zip(
                (-0.2, 0.2), (("flows", style.BLUE), ("gaussians", style.VERMILLION)), strict=True
            ):
                heights = [f.result[name] for f in finished]
                axes.bar(place + offset, heights, 0.38, color=colour, label=name)
            names = [f"{f.case['speaker']}, {f.case['components']}" for f in finished]
            axes.set_xticks(place, names)
            axes.set(ylabel="accuracy", ylim=(0, 1))
            axes.legend(frameon=False, loc="lower right")
        return figure


@lru_cache(maxsize=2)
def _recordings(folder: str, coefficients: int) -> list[Any]:
    from kikuchi_experiments.data.spoken import spoken_digits

    return spoken_digits(folder, coefficients=coefficients)


def _speech(folder: str, speaker: str, coefficients: int, most: int) -> tuple[list[Any], list[Any]]:
    """Recordings of the other speakers (numbers below `most`), and all of this one's below it."""
    every = [r for r in _recordings(folder, coefficients) if r.number < most]
    test = [r for r in every if r.speaker == speaker]
    if not test:
        known = ", ".join(sorted({r.speaker for r in every}))
        raise KikuchiError(f"{folder}: nobody called {speaker}; there are {known}")
    learnt = [r for r in every if r.speaker != speaker]
    if len({r.speaker for r in learnt}) < 2:
        raise KikuchiError(f"{folder}: recordings of at least 3 speakers are needed")
    return learnt, test


def _heard(case: Case, by_digit: list[list[Any]], covariance: Any, rounds: int) -> Array:
    """Log-density of held-out speakers per frame after each round, in the mean over digits."""
    chains = [_flows(case, own, covariance, rounds, held_out=True) for own in by_digit]
    scores = [np.array(chain.validation_scores_) for chain in chains]
    # a chain that cannot be improved stays where it is
    whole = [np.pad(s, (0, rounds + 1 - len(s)), mode="edge") for s in scores]
    return np.asarray(np.mean(whole, axis=0))


def _flows(
    case: Case, own: list[Any], covariance: Any, rounds: int, *, held_out: bool = False
) -> Any:
    """A chain of flows after so many rounds on all recordings, or on those of all but two speakers
    who have judged each round.
    """
    return _chain(
        case,
        covariance_type=covariance,
        noise=case["noise"],
        learning_rate=case["learning_rate"],
        tol=0.0,
        max_iter=rounds + 1,  # the first iteration is the expectation of what it begins from
        patience=rounds + 1,
        validation_fraction=0.4 if held_out else 0.0,
    ).fit([r.frames for r in own], groups=[r.speaker for r in own])


def _gaussians(case: Case, own: list[Any], covariance: Any) -> Any:
    """The chain of Gaussian mixtures that chains of flows begin from, on all recordings."""
    chain = _chain(
        case, flow="affine", covariance_type=covariance, max_iter=1, validation_fraction=0.0
    )
    return chain.fit([r.frames for r in own])


def _chain(case: Case, **options: Any) -> Any:
    from kikuchi.flows import FlowHMM

    shared = {"n_mix": case["components"], "random_state": case["seed"], "floor": 0.1}
    return FlowHMM(case["states"], topology="left-right", **shared, **options)


def _speech_rows(k: int, own: Sequence[Finished]) -> list[Row]:
    """Rows of one number of components."""
    results = [f.result for f in own]
    flows, gaussians, full = (
        float(np.mean([r[n] for r in results])) for n in ("flows", "gaussians", "full")
    )
    text = f"{counted(len(own), 'speaker')} held out, {counted(k, 'component')}"
    at = {1: 0, 3: 1, 5: 2}.get(k)
    told = f"{int(np.sum([r['count'] for r in results]))} recordings"
    if at is not None:
        told += (
            f"; published on TIMIT phonemes: {TIMIT['GenHMM'][at]} % against "
            f"{TIMIT['GMM-HMM'][at]} %"
        )
    rows = [
        Row(
            f"flows minus Gaussians, {f.case['speaker']}, {counted(k, 'component')}",
            round(f.result["flows"] - f.result["gaussians"], 4),
            note=f"± {f.result['error over gaussians']:.4f}; {f.result['flows']:.3f} against "
            f"{f.result['gaussians']:.3f}, full covariances {f.result['full']:.3f}; begun from "
            f"{f.result['start']} ones, {counted(f.result['rounds'], 'round')}",
        )
        for f in own
    ]
    rows.append(Row(f"accuracy of chains of flows, {text}", flows, note=told))
    rows.append(Row(f"accuracy of chains of Gaussians, {text}", gaussians))
    rows.append(Row(f"accuracy of Gaussians with full covariances, {text}", full))
    for name, words in (("gaussians", "Gaussians"), ("full", "Gaussians with full covariances")):
        gains = np.array([r["flows"] - r[name] for r in results])
        errors = np.array([r[f"error over {name}"] for r in results])
        gain, error = float(gains.mean()), float(np.sqrt(np.sum(errors**2)) / len(own))
        note = f"± {error:.4f}; {'more' if abs(gain) > 2 * error else 'less'} than two of these"
        if len(own) > 1:
            note += f"; between speakers ± {gains.std(ddof=1) / np.sqrt(len(own)):.4f}"
        judged = Judgement(gain > 0, "> 0, as published for phonemes")
        rows.append(Row(f"flows minus {words}, {text}", gain, "> 0", None, note, judged))
    return rows
