"""Liu's papers beside the thesis: classification by mixtures of flows, speech by chains of flows
(LIU-X6, X7).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import KikuchiError
from kikuchi.reproduce.experiment import (
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
_SLACK = 0.005


@lru_cache(maxsize=4)
def _classes(name: str) -> tuple[Array, Ints, int]:
    """Rows, classes, and the number of rows that the source learns from."""
    from kikuchi.data.tables import keel_table

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
        options = {"epochs": case["epochs"], "random_state": case["seed"]}
        flows = FlowClassifier(case["components"], **options).fit(*learn)
        start = FlowClassifier(
            case["components"], flow="affine", **{**options, "epochs": 1, "learning_rate": 1e-9}
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
            judged = Judgement(ours >= published - _SLACK, f">= {published - _SLACK:.4f}")
            note = f"Gaussian mixtures per class {gaussians:.4f}"
            if "machine" in results[0]:
                note += f", support vector machine {np.mean([r['machine'] for r in results]):.4f}"
            if results[0]["learnt"] < _classes(table)[2]:
                note += f"; learnt from {results[0]['learnt']} rows only"
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
    case_axes: ClassVar[CaseAxes] = {"speaker": "speakers", "components": "components"}

    def source(self) -> Case:
        """The folder, and the names and sizes of its recordings in short."""
        if self.data is None:
            return {"data": None}
        told = [f"{p.name} {p.stat().st_size}" for p in sorted(Path(self.data).glob("*.wav"))]
        digest = hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
        return {"data": self.data, "digest": digest}

    def run_case(self, case: Case) -> Result:
        """Digits of a speaker that nobody has heard, by chains of flows and of Gaussians."""
        if case["data"] is None:
            raise KikuchiError(
                "LIU-X7 needs recordings of spoken digits: give their folder as --data"
            )
        learnt, test = _speech(
            case["data"], case["speaker"], case["coefficients"], case["recordings"]
        )
        truth = np.array([r.digit for r in test])
        scores = {"flows": np.empty((len(test), 10)), "gaussians": np.empty((len(test), 10))}
        for digit in range(10):
            own = [r.frames for r in learnt if r.digit == digit]
            for name, model in _chains(case, own).items():
                logs = [model.log_likelihood(r.frames) for r in test]
                scores[name][:, digit] = logs
        right = {n: np.argmax(s, axis=1) == truth for n, s in scores.items()}
        gain = right["flows"].astype(float) - right["gaussians"]
        return {
            "flows": float(right["flows"].mean()),
            "gaussians": float(right["gaussians"].mean()),
            "error": float(right["flows"].std() / np.sqrt(len(test))),
            "gain_error": float(gain.std() / np.sqrt(len(test))),
            "count": len(test),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Accuracies, their difference with its error, and the published ones of other data."""
        rows = []
        for k in sorted({f.case["components"] for f in finished}):
            own = [f.result for f in finished if f.case["components"] == k]
            flows, gaussians = (np.mean([r[n] for r in own]) for n in ("flows", "gaussians"))
            error = float(np.sqrt(np.sum([r["gain_error"] ** 2 for r in own])) / len(own))
            gain = float(flows - gaussians)
            speakers = "speaker" if len(own) == 1 else "speakers"
            text = f"{len(own)} {speakers} held out, {k} component{'s' if k > 1 else ''}"
            at = {1: 0, 3: 1, 5: 2}.get(k)
            told = (
                ""
                if at is None
                else (
                    f"published on TIMIT phonemes: {TIMIT['GenHMM'][at]} % against "
                    f"{TIMIT['GMM-HMM'][at]} %"
                )
            )
            rows.append(Row(f"accuracy of chains of flows, {text}", float(flows), note=told))
            rows.append(Row(f"accuracy of chains of Gaussians, {text}", float(gaussians)))
            judged = Judgement(gain > 0, "> 0, as published for phonemes")
            note = f"± {error:.4f}; {'above' if gain > 2 * error else 'within'} two standard errors"
            rows.append(Row(f"flows minus Gaussians, {text}", gain, "> 0", None, note, judged))
        return rows

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
    from kikuchi.data.spoken import spoken_digits

    return spoken_digits(folder, coefficients=coefficients)


def _speech(folder: str, speaker: str, coefficients: int, most: int) -> tuple[list[Any], list[Any]]:
    """Recordings of the other speakers (numbers below `most`), and all of this one's below it."""
    every = [r for r in _recordings(folder, coefficients) if r.number < most]
    test = [r for r in every if r.speaker == speaker]
    if not test:
        known = ", ".join(sorted({r.speaker for r in every}))
        raise KikuchiError(f"{folder}: nobody called {speaker}; there are {known}")
    return [r for r in every if r.speaker != speaker], test


def _chains(case: Case, own: list[Array]) -> dict[str, Any]:
    """A chain of flows for these recordings, and the chain of Gaussians that it began from."""
    from kikuchi.flows import FlowHMM

    options: dict[str, Any] = {
        "states": case["states"],
        "components": case["components"],
        "topology": "left-right",
        "random_state": case["seed"],
    }
    flows = FlowHMM(max_iter=case["rounds"], floor=0.1, **options).fit(own)
    # without rounds of EM beyond the first expectation it is what both begin from
    gaussians = FlowHMM(
        flow="affine", max_iter=1, validation_fraction=0.0, floor=0.1, **options
    ).fit(own)
    return {"flows": flows, "gaussians": gaussians}
