"""A small fit of every estimator: the table that the common tests and the attacks are made from.

All data of one kind have one shape, so that programs are compiled once.
"""

from __future__ import annotations

import dataclasses
import inspect
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np

from kikuchi.core.errors import MethodError
from kikuchi.training import checkpoint as files

_RNG = np.random.default_rng(0)


def _float32(rows: Any) -> Any:
    """Rows that single precision holds exactly: they may be given in either."""
    return rows.astype(np.float32).astype(np.float64)


_BITS = (_RNG.random((60, 5)) < 0.5).astype(np.float64)
_RATES = _RNG.integers(0, 5, (60, 5)) / 4
_ROWS = _float32(_RNG.normal(size=(120, 3)))
_MIXED = _float32(_RNG.laplace(size=(120, 3)) @ _RNG.normal(size=(3, 3)))
_WALK = _float32(0.1 * np.cumsum(_RNG.normal(size=(80, 2)), axis=0))
_CLASSES = (_ROWS[:, 0] > 0).astype(np.int64)
_TARGETS = _ROWS[:, 0] + 0.1 * _RNG.normal(size=120)


@dataclass(frozen=True)
class Family:
    """An estimator, small data for it, and the option that bounds how long it takes.

    `ways` are options with which a fit has many steps: it is cut and resumed with each of them.
    """

    place: str
    data: tuple[Any, ...]
    limit: str = ""
    size: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    ways: tuple[dict[str, Any], ...] = ({},)

    @property
    def kind(self) -> Any:
        """The class of the estimator."""
        module, _, name = self.place.rpartition(".")
        return getattr(import_module(f"kikuchi.{module}"), name)

    @property
    def names(self) -> set[str]:
        """Names of the options."""
        return set(inspect.signature(self.kind).parameters)

    @property
    def resumable(self) -> bool:
        """Whether a fit leaves checkpoints."""
        return "checkpoint" in self.names and bool(self.limit)

    def make(self, **options: Any) -> Any:
        """The estimator before its fit."""
        usual = {"random_state": 0, **({self.limit: self.size} if self.limit else {})}
        return self.kind(**{**usual, **self.options, **options})

    def fit(self, *data: Any, **options: Any) -> Any:
        """A fit to these data, or to its own."""
        return self.make(**options).fit(*(data or self.data))


_BATCH = {"batch_size": 20}
_TWO = {"n_components": 2, "tol": 1e-9}
# Those that take the least time to compile come first: short attacks see no others.
FAMILIES = {
    "HMM": Family(
        "temporal.HMM", (_WALK,), "max_iter", 6, {"n_init": 2},
        ways=({"tol": 0.0}, {"tol": 0.0, "learner": "gradient"}),
    ),
    "thresholds": Family(
        "beliefnets.ThresholdNetworkClassifier", (_ROWS, _CLASSES), "max_iter", 10
    ),
    "state space": Family(
        "temporal.LinearGaussianSSM", (_WALK,), "max_iter", 15, ways=({"max_iter": 60, "tol": 0},)
    ),
    "infomax": Family(
        "ica.InfomaxICA", (_MIXED,), "max_iter", 20,
        ways=(
            {}, {"solver": "natural", "max_iter": 30}, {"prior": "auto", "tol": 1e-8},
            {"n_components": 4}, {"n_components": 4, "view": "causal"},
        ),
    ),
    "noisy ICA": Family(
        "ica.MeanFieldICA", (_MIXED,), "max_iter", 15,
        ways=(
            _TWO, {**_TWO, "posterior": "adatap", "noise": "diagonal"},
            {**_TWO, "solver": "over-relaxed", "prior": "mixture", "noise": "full"},
            {
                **_TWO, "solver": "over-relaxed", "posterior": "naive",
                "prior": ["laplace", "binary01"],
            },
            {**_TWO, "batch_size": 70}, {**_TWO, "n_init": 3, "start": "random"},
            {**_TWO, "prior": "cosh", "learn_prior": "all", "max_iter": 8},
            {**_TWO, "posterior": "naive", "solver": "lbfgs", "max_iter": 60, "tol": 0.0},
        ),
    ),
    "Bayesian ICA": Family(
        "ica.BayesianICA", (_MIXED,), "max_iter", 10,
        ways=(
            {"n_components": 3, "n_init": 2},
            {"n_components": 3, "adapt": True, "pruning": "relevance"},
            {"n_components": 4, "prior": "bimodal", "inner_max_iter": 3, "max_iter": 6},
        ),
    ),
    "factorial": Family(
        "temporal.FactorialHMM", (_WALK,), "max_iter", 15,
        ways=({"max_iter": 8, "tol": 0.0}, {"max_iter": 8, "tol": 0.0, "learner": "gradient"}),
    ),
    "hopping": Family(
        "temporal.FrameHoppingHMM", (_WALK,), "max_iter", 10, ways=({"tol": 0.0},),
    ),
    "blood": Family("temporal.HaemodynamicHMM", (_WALK,), "max_iter", 5),
    "walks": Family("temporal.TemporalICA", (_WALK,), "max_iter", 5),
    "RBM": Family(
        "boltzmann.RBM", (_BITS,), "max_iter", 30, {"n_components": 3, **_BATCH},
        ways=({}, {"learner": "pcd", "momentum": 0.5}),
    ),
    "rates": Family(
        "boltzmann.RateCodedRBM", (_RATES,), "max_iter", 20, {"n_components": 3, **_BATCH}
    ),
    "machine": Family("boltzmann.BoltzmannMachine", (_BITS,), "max_iter", 5, {"n_components": 3}),
    "energy": Family("energy.EnergyModel", (_MIXED,), "max_iter", 10, _BATCH),
    "experts": Family(
        "energy.ExpertICA", (_MIXED,), "max_iter", 30,
        {"n_components": 6, "learner": "cd:leapfrogs=3", **_BATCH},
    ),
    "chains": Family(
        "energy.ExpertICA", (_MIXED,), "max_iter", 30,
        {"n_components": 6, "learner": "pcd:leapfrogs=3", "average": 0.5, **_BATCH},
    ),
    "beliefs": Family(
        "beliefnets.SigmoidBeliefNetwork", (_BITS,), "max_iter", 10, _BATCH
    ),
    "noisy or": Family("beliefnets.NoisyOrNetwork", (_BITS,), "max_iter", 10, _BATCH),
    "regression": Family("bayesnn.BayesianMLPRegressor", (_ROWS, _TARGETS), "max_iter", 15),
    "classes": Family("bayesnn.BayesianMLPClassifier", (_ROWS, _CLASSES), "max_iter", 15),
    "flow mixture": Family(
        "flows.FlowMixture", (_MIXED,), "max_iter", 6, _BATCH
    ),
    "latent mixture": Family(
        "flows.LatentMixtureFlow", (_MIXED,), "max_iter", 6, _BATCH
    ),
    "transport": Family("flows.TransportGenerator", (_MIXED,), "max_iter", 6, _BATCH),
    "flow chain": Family("flows.FlowHMM", (_WALK,), "max_iter", 4, {"n_states": 2}),
    "flow classes": Family("flows.FlowClassifier", (_ROWS, _CLASSES), "max_iter", 4, _BATCH),
    "labels": Family("temporal.ProbitFilter", (_ROWS, _CLASSES)),
}  # fmt: skip


# ---------------------------------------------------------------------- what a fit answers

QUESTIONS = (
    "predict", "predict_proba", "transform", "score_samples", "score", "filter", "smooth",
)  # fmt: skip


def questions(family: Family, fitted: Any) -> Iterator[tuple[str, Any]]:
    """Each question that an estimator takes about its own data, and the numbers of its answer, or
    the words in which its options refuse it.
    """
    for name in QUESTIONS:
        if hasattr(fitted, name):
            try:
                yield name, numbers(getattr(fitted, name)(*_asked(family, name)))
            except MethodError as error:
                yield name, [np.asarray(str(error))]
    if hasattr(fitted, "forecast"):
        yield "forecast", numbers(fitted.forecast(family.data[0], 3))
    if hasattr(fitted, "sample"):
        yield "sample", numbers(fitted.sample(7, random_state=1))


def _asked(family: Family, name: str) -> tuple[Any, ...]:
    return family.data if name == "score" else family.data[:1]


def numbers(answer: Any) -> list[Any]:
    """All arrays and numbers in an answer, in order."""
    if answer is None:
        return []
    if isinstance(answer, str | bool | int | float | np.generic | np.ndarray):
        return [np.asarray(answer)]
    if hasattr(answer, "to_numpy"):
        return [answer.to_numpy()]
    if isinstance(answer, dict):
        return [a for value in answer.values() for a in numbers(value)]
    if isinstance(answer, list | tuple):
        return [a for value in answer for a in numbers(value)]
    if dataclasses.is_dataclass(answer):
        fields = dataclasses.fields(answer)
        return [a for f in fields for a in numbers(getattr(answer, f.name))]
    raise TypeError(f"an answer of type {type(answer).__name__}")


def learnt(fitted: Any) -> dict[str, Any]:
    """What was learnt, as arrays; the seconds of a trace differ between any two runs."""
    arrays = fitted._fitted_state()[0] | {"iterations": fitted.n_iter_}
    return {n: np.asarray(a) for n, a in arrays.items() if not n.endswith("trace/seconds")}


def same(one: Any, two: Any) -> list[str]:
    """Names of what differs between two mappings of arrays, to the last bit."""
    names = one.keys() | two.keys()
    return sorted(n for n in names if n not in one or n not in two or not _equal(one[n], two[n]))


def _equal(one: Any, two: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(two) and all(map(_equal, one, two))
    return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()


# ---------------------------------------------------------------------- how a fit is ended


class Killed(BaseException):
    """The end of a process, as far as its files can tell; nothing catches it."""


@dataclass
class Saves:
    """Counts checkpoints. After number `last` the process is killed, or gets Ctrl-C."""

    last: int = 0
    how: str = ""
    count: int = 0

    def saved(self) -> None:
        """A checkpoint was written."""
        self.count += 1
        if self.count == self.last:
            if self.how == "killed":
                raise Killed
            signal.raise_signal(signal.SIGINT)


@contextmanager
def ctrl_c_works() -> Iterator[None]:
    """Restore what a process that was started in the background lacks."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def saving(last: int = 0, how: str = "") -> Iterator[Saves]:
    """Checkpoints are written after every step; the process ends after number `last` of them."""
    saves, save = Saves(last, how), files.Checkpoint.save

    def counted(self: Any, *values: Any, **more: Any) -> None:
        save(self, *values, **more)
        saves.saved()

    with (
        ctrl_c_works(),
        mock.patch.object(files.Checkpoint, "due", property(lambda self: True)),
        mock.patch.object(files.Checkpoint, "save", counted),
    ):
        yield saves


@contextmanager
def quietly() -> Iterator[None]:
    """Small fits warn of much; that is tested elsewhere."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
