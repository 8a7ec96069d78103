"""Likelihoods and samples of mixtures of flows on images of digits (LIU-X5)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi_experiments.aggregate import average, grouped, holds
from kikuchi_experiments.experiment import Case, CaseAxes, Experiment, Finished, Result, Row
from kikuchi_experiments.liu2020.tables import curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FLOWS = (1, 3, 5, 7)  # of the published columns
_LEVELS = 256
_MEASURES = {
    "nll": "minus log-likelihood per pixel, images learnt from",
    "held_out": "minus log-likelihood per pixel, images held out",
    "mmd": "squared maximum mean discrepancy of samples and images held out",
    "neighbour": "share of nearest neighbours of the same kind, samples and images held out",
}


@lru_cache(maxsize=2)
def _images(side: int) -> Array:
    """Digits as rows of whole numbers from 0 to 255."""
    from kikuchi.data.digits import digits

    return np.asarray(np.floor(digits("mnist", side).pixels * (_LEVELS - 1) + 0.5))


class LikelihoodsOfMixtures(Experiment):
    """Nats per pixel and two-sample measures by number of flows (LIU-X5, LIU-M13)."""

    id: ClassVar[str] = "LIU-X5"
    case_axes: ClassVar[CaseAxes] = {"components": "components"}

    def run_case(self, case: Case) -> Result:
        """One mixture of flows: its likelihoods, those of its start, and measures of samples."""
        from kikuchi.flows import FlowMixture, mmd_test, nearest_neighbour_test

        pixels = _images(case["side"])
        order = np.random.default_rng(case["seed"]).permutation(len(pixels))
        count = case["images"]
        learnt, test = pixels[order[:count]], pixels[order[count : count + case["held_out"]]]
        model = FlowMixture(
            case["components"],
            flow=case["flow"],
            image_shape=(case["side"], case["side"]) if "image" in case["flow"] else None,
            dequantise="uniform",
            schedule="constant",
            patience=15,
            max_iter=case["epochs"],
            random_state=case["seed"],
        ).fit(learnt)
        drawn = model.sample(len(test), random_state=case["seed"])
        columns = pixels.shape[1]
        return {
            "nll": -model.score(learnt) / columns,
            "held_out": -model.score(test) / columns,
            "start": -model.gaussian_score_ / columns,
            "validation": -max(model.validation_scores_) / columns,
            "mmd": mmd_test(test, drawn).statistic,
            "neighbour": nearest_neighbour_test(test, drawn).statistic,
            "epochs": int(model.n_iter_),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Measures by number of flows, and whether each falls from the fewest to the most."""
        groups = {
            k: [f.result for f in part] for k, part in grouped(finished, "components").items()
        }
        fewest, most = min(groups), max(groups)
        published = dict(zip(_FLOWS, curves(self.id)["MNIST"], strict=True))
        rows: list[Row] = []
        for key, words in _MEASURES.items():
            for k, results in groups.items():
                note = self._note(results, published.get(k)) if key == "nll" else ""
                rows.append(
                    Row(f"{words}, {_flows(k)}", round(average(results, key), 4), note=note)
                )
            if most > fewest:
                one, other = average(groups[fewest], key), average(groups[most], key)
                told = "falls" if key != "held_out" else None
                judged = holds(other < one, f"lower with {most} than with {fewest}")
                found = f"{one:.4g} to {other:.4g}"
                rows.append(Row(f"{words}, {fewest} to {most} flows", found, told, None, "",
                                judged if told else None))  # fmt: skip
        theirs = " to ".join(
            f"{v:.4f}" for v in np.array(curves(self.id)["Fashion-MNIST"])[[0, -1]]
        )
        rows.append(Row("minus log-likelihood per pixel, clothes, 1 to 7 flows", None, theirs,
                        note="these images are in no package of the registry"))  # fmt: skip
        return rows

    @staticmethod
    def _note(results: Sequence[Result], told: float | None) -> str:
        start, end = average(results, "start"), average(results, "validation")
        note = f"validation images: {start:.4f} as Gaussian mixture, {end:.4f} as flows"
        published = "" if told is None else f"; published {told}, other images and another scale"
        return note + published

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Nats per pixel by number of flows."""
        from kikuchi.plots import style

        groups: dict[Any, list[Finished]] = grouped(finished, "components")
        with style.styled():
            figure, [axes] = style.new_figure(6.0, 3.6)
            names = {"nll": "learnt from", "held_out": "held out"}
            for (key, name), colour in zip(names.items(), style.COLOURS, strict=False):
                values = [average([f.result for f in part], key) for part in groups.values()]
                axes.plot(list(groups), values, color=colour, marker="o", ms=4, label=name)
            axes.set(xlabel="flows", ylabel="nats per pixel")
            axes.legend(frameon=False)
        return figure


def _flows(k: int) -> str:
    return f"{k} flow{'s' if k > 1 else ''}"
