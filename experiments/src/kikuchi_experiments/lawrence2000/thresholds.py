"""Lawrence's thesis, section 3.8: networks of threshold units (LAW-E8, LAW-E9, LAW-E10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from kikuchi.core.seeds import generator
from kikuchi.plots import style
from kikuchi_experiments.aggregate import Claims, holds
from kikuchi_experiments.data.classification import crabs, pima
from kikuchi_experiments.data.regression import SplitTable
from kikuchi_experiments.experiment import Case, Experiment, Finished, Judgement, Result, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CLAIMS = Claims.of(__name__, "LAW-E8", "LAW-E9", "LAW-E10")
_THESIS = {"LAW-E8": 73.97, "LAW-E9": 6.08}
_LOGISTIC: dict[str, Any] = {"C": 100.0, "max_iter": 5000}
_SMALL = 10  # hidden units of the networks in cross-validation
_VALIDATION = 314  # rows of 2200
Scaling = Literal["range", "standard"]
_SCALINGS: tuple[Scaling, ...] = ("range", "standard")


def peers(table: SplitTable, seed: int) -> dict[str, int]:
    """Errors on the test rows of other classifiers, trained on the same rows."""
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    width = float(np.sqrt(table.x.shape[1]))
    known: dict[str, Any] = {
        "logistic regression": LogisticRegression(**_LOGISTIC),
        "support vectors (RBF)": SVC(C=10.0),
        "neural network": MLPClassifier((10,), alpha=0.1, max_iter=3000, random_state=seed),
    }
    if len(table.x) <= 500:
        kernel = ConstantKernel(1.0) * RBF(width)
        known["Gaussian process"] = GaussianProcessClassifier(kernel, random_state=seed)
    errors = {}
    for name, model in known.items():
        fitted = make_pipeline(StandardScaler(), model).fit(table.x, table.y)
        errors[name] = int(np.sum(fitted.predict(table.x_test) != table.y_test))
    return errors


_TABLES: dict[str, Callable[[int], SplitTable]] = {"LAW-E8": lambda _: pima(), "LAW-E9": crabs}


@lru_cache(maxsize=64)
def validation_errors(
    experiment: str, split: int, scaling: Scaling, price: float, folds: int
) -> int:
    """Errors of small networks in cross-validation on the training rows of a split."""
    from sklearn.model_selection import StratifiedKFold

    from kikuchi.beliefnets.threshold import ThresholdNetworkClassifier

    table = _TABLES[experiment](split)
    parts = StratifiedKFold(folds, shuffle=True, random_state=split).split(table.x, table.y)
    wrong = 0
    for learn, judge in parts:
        clf = ThresholdNetworkClassifier(_SMALL, C=price, scaling=scaling, random_state=split).fit(
            table.x[learn], table.y[learn]
        )
        wrong += int(np.sum(clf.predict(table.x[judge]) != table.y[judge]))
    return wrong


class _ThresholdTable(Experiment):
    """Networks of several sizes and prices, each from several starts."""

    case_axes: ClassVar[Any] = {"hidden": "hidden", "C": "prices"}
    own_splits: ClassVar[bool] = False  # whether each network has a split of its own

    def _chosen(self, case: Case) -> dict[str, Any]:
        """The scale of inputs, and the price where there are candidates, that have fewest errors in
        cross-validation on the training rows; of equals those of the case.
        """
        own: tuple[Scaling, float] = ("range", case["C"])
        prices = case.get("candidates", [case["C"]])
        tried = [own, *((s, p) for s in _SCALINGS for p in prices if (s, p) != own)]
        split = self._split(case)
        wrong = [validation_errors(self.id, split, s, p, case["folds"]) for s, p in tried]
        scaling, price = tried[int(np.argmin(wrong))]
        return {"scaling": scaling, "C": price}

    def _split(self, case: Case) -> int:
        if not self.own_splits:
            return 0
        return int(1000 * case["seed"] + 10 * case["hidden"] + round(np.log10(case["C"])))

    def run_case(self, case: Case) -> Result:
        """One network; errors on the test rows, by both updates of the hidden units, and with what
        cross-validation on the training rows chooses.
        """
        from kikuchi.beliefnets.threshold import ThresholdNetworkClassifier

        split = self._split(case)
        table = _TABLES[self.id](split)
        chosen = self._chosen(case)
        ways: dict[str, dict[str, Any]] = {
            "exact": {"C": case["C"]},
            "as-printed": {"C": case["C"], "inference": "as-printed"},
        }
        if chosen != {"scaling": "range", "C": case["C"]}:
            ways["chosen"] = chosen
        result: Result = {}
        for name, options in ways.items():
            clf = ThresholdNetworkClassifier(
                case["hidden"], random_state=case["seed"], **options
            ).fit(table.x, table.y)
            wrong = int(np.sum(clf.predict(table.x_test) != table.y_test))
            result[name] = {"test": wrong, "training": float(clf.training_errors_[0])}
        result.setdefault("chosen", result["exact"])
        result["scaling"], result["price"] = chosen["scaling"], chosen["C"]
        if case["hidden"] == _SMALL and case["C"] == 1:  # once for each start
            result["peers"] = peers(table, case["seed"])
        return result

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Average and best of the networks, and the others on the same rows."""
        wrong = np.array([one.result["exact"]["test"] for one in finished])
        printed = np.array([one.result["as-printed"]["test"] for one in finished])
        chosen = np.array([one.result["chosen"]["test"] for one in finished])
        standard = int(sum(one.result["scaling"] == "standard" for one in finished))
        price = float(np.exp(np.mean(np.log([one.result["price"] for one in finished]))))
        thesis = _THESIS[self.id]
        count = len(wrong)
        average, blind = float(wrong.mean()), float(chosen.mean())
        error = float(chosen.std() / np.sqrt(count))
        rows = [
            _CLAIMS.row(f"{self.id}-average", average, _at_most(average, thesis), count=count),
            _CLAIMS.row(
                f"{self.id}-chosen",
                blind,
                _at_most(blind, thesis),
                count=count,
                standard=standard,
                price=f"{price:.2g}",
                error=f"{error:.2f}",
            ),
            _CLAIMS.row(f"{self.id}-printed", float(printed.mean()), count=count),
            _CLAIMS.row(f"{self.id}-best", int(wrong.min()), count=count),
        ]
        told = [one.result["peers"] for one in finished if "peers" in one.result]
        for name in told[0] if told else ():
            rows.append(
                _CLAIMS.row(
                    f"{self.id}-peer", float(np.mean([t[name] for t in told])), name=name,
                    published=_PEERS[self.id].get(name),
                )
            )  # fmt: skip
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Test errors of every network by price, one panel per number of hidden units."""
        sizes = sorted({int(one.case["hidden"]) for one in finished})
        with style.styled():
            figure, axes = style.new_figure(2.4 * len(sizes) + 0.6, 2.8, len(sizes), 1)
            for panel, size in zip(axes, sizes, strict=True):
                own = [one for one in finished if one.case["hidden"] == size]
                price = np.log10([one.case["C"] for one in own])
                wrong = np.array([one.result["exact"]["test"] for one in own])
                panel.plot(price, wrong, ".", color="0.6")
                for p in np.unique(price):
                    here = wrong[price == p]
                    panel.errorbar(p, here.mean(), here.std(), marker="o", color="C0")
                panel.set_title(f"{size} hidden units")
                panel.set_xlabel("log10 C")
            axes[0].set_ylabel("test errors")
        return figure


def _at_most(value: float, thesis: float) -> Judgement:
    return holds(value <= thesis + 0.05, f"at most {thesis:g}")


_PEERS: dict[str, dict[str, int]] = {
    "LAW-E8": {"logistic regression": 66, "neural network": 75, "Gaussian process": 68},
    "LAW-E9": {"logistic regression": 4, "neural network": 3, "Gaussian process": 3},
}


class PimaThresholds(_ThresholdTable):
    """Diabetes among Pima women (figure 3.6, table 3.1)."""

    id: ClassVar[str] = "LAW-E8"


class CrabThresholds(_ThresholdTable):
    """Sex of rock crabs (figure 3.7, table 3.1).

    Each network has a split of its own, since that of the source is not known and errors differ
    more between splits than between starts.
    """

    id: ClassVar[str] = "LAW-E9"
    own_splits: ClassVar[bool] = True


def stand_in(seed: int, train: int, test: int, features: int) -> SplitTable:
    """A noisy problem of two classes of the size of FISH, made by scikit-learn."""
    from sklearn.datasets import make_classification

    x, y = make_classification(
        n_samples=train + test, n_features=features, n_informative=features // 2, n_redundant=2,
        n_clusters_per_class=3, flip_y=0.15, class_sep=1.2, random_state=seed,
    )  # fmt: skip
    return SplitTable(x[:train], y[:train], x[train:], y[train:])


class CommitteeOfThresholds(Experiment):
    """Choice by validation and committees, on a stand-in for FISH (figure 3.8, table 3.2)."""

    id: ClassVar[str] = "LAW-E10"
    case_axes: ClassVar[Any] = {"hidden": "hidden", "C": "prices", "start": "starts"}

    def run_case(self, case: Case) -> Result:
        """One network: its votes on the test rows and errors on the rows held out; other methods
        beside the first network of a set of data.
        """
        from kikuchi.beliefnets.threshold import ThresholdNetworkClassifier

        table = stand_in(case["seed"], case["train"], case["test"], case["features"])
        order = generator(case["seed"]).permutation(case["train"])
        held = round(case["train"] * _VALIDATION / 2200)
        judge, learn = order[:held], order[held:]
        clf = ThresholdNetworkClassifier(
            case["hidden"], C=case["C"], max_iter=case["rounds"], random_state=case["start"]
        ).fit(table.x[learn], table.y[learn])
        votes = clf.predict(table.x_test)
        result: Result = {
            "votes": "".join(str(int(v)) for v in votes),
            "test": float(np.mean(votes != table.y_test)),
            "validation": float(np.mean(clf.predict(table.x[judge]) != table.y[judge])),
        }
        if (case["hidden"], case["C"], case["start"]) == (_SMALL, 1, 0):
            result["peers"] = {n: e / len(votes) for n, e in peers(table, case["seed"]).items()}
        return result

    def _rates(self, finished: Sequence[Finished]) -> dict[str, float]:
        """Error rates in per cent by name, means over the sets of data; other methods last, where
        the networks beside them are finished.
        """
        found: list[dict[str, float]] = []
        for seed in sorted({one.case["seed"] for one in finished}):
            own = [one.result for one in finished if one.case["seed"] == seed]
            others: dict[str, float] = next((r["peers"] for r in own if "peers" in r), {})
            best = sorted(own, key=lambda result: result["validation"])[:5]
            votes = np.array([[v == "1" for v in result["votes"]] for result in best])
            case = finished[0].case
            labels = stand_in(seed, case["train"], case["test"], case["features"]).y_test
            found.append(
                {
                    "average": float(np.mean([result["test"] for result in own])),
                    "best": min(result["test"] for result in own),
                    "validated": best[0]["test"],
                    "committee": float(np.mean((votes.mean(axis=0) > 0.5) != labels)),
                    **others,
                }
            )
        names = dict.fromkeys(name for rates in found for name in rates)
        return {n: 100.0 * float(np.mean([f[n] for f in found if n in f])) for n in names}

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Error rates in per cent; only their order can be held against the thesis."""
        rates = self._rates(finished)
        thesis = {"average": 14.6, "best": 12.9, "validated": 13.9, "committee": 13.2}
        rows = [_CLAIMS.row("rate", rates[n], name=n, known=k) for n, k in thesis.items()]
        order = rates["committee"] <= rates["validated"] <= rates["average"]
        rows.append(
            _CLAIMS.row(
                "committee-order", "yes" if order else "no",
                holds(order, "committee <= chosen <= average"),
            )
        )  # fmt: skip
        return rows + [
            _CLAIMS.row("other", rate, name=name)
            for name, rate in rates.items()
            if name not in thesis
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Error rates by method."""
        rates = self._rates(finished)
        with style.styled():
            figure, (axes, *_) = style.new_figure(5.4, 3.0)
            axes.barh(np.arange(len(rates)), list(rates.values()))
            axes.set_yticks(np.arange(len(rates)), list(rates))
            axes.invert_yaxis()
            axes.set_xlabel("test errors, per cent")
        return figure
