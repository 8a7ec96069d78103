"""`ThresholdNetworkClassifier`: hard units, trained through inference at zero temperature.

Hidden units have no derivative to follow. Instead their states are inferred for every pattern, with
inputs and outputs clamped, as the zero-temperature limit of a sigmoid network; then every unit is a
linear classifier of its own, with the inferred states as targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin

from kikuchi.beliefnets import kinds
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.interrupts import safe_interrupts
from kikuchi.core.options import layer_sizes, option
from kikuchi.core.run import Step
from kikuchi.core.seeds import generator, kernel_seeds
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import State
from kikuchi.training.checkpoint import Arrays, check_sizes, read_labels
from kikuchi.training.estimator import Estimator, check_is_fitted, validate_data
from kikuchi.training.resuming import fit_store
from kikuchi.training.trainer import limited_threads

if TYPE_CHECKING:
    from kikuchi.beliefnets.kernels.threshold import ThresholdLayers

_HOTTEST, _FACTOR, _COLDEST = 1000.0, 0.8, 1e-3
_MOST_SWEEPS = 70
_TIGHTEST = 1e-4  # tolerance of the margin problems after four rounds
_LOOSE = 3  # rounds with loose tolerances
_PASSES = 20  # of the perceptron rule in each round
_MOST_STEPS = 100_000  # of libsvm
_FEW_ROWS, _MOST_PASSES = 1000, 1000  # liblinear from there on, and its passes


def temperatures() -> Array:
    """The temperatures of the annealing, before zero.

    >>> len(temperatures())
    62
    """
    count = int(np.floor(np.log(_COLDEST / _HOTTEST) / np.log(_FACTOR))) + 1
    return np.asarray(_HOTTEST * _FACTOR ** np.arange(count))


class HiddenStates(NamedTuple):
    """Inferred states of all units, the objective of each pattern, and that of the first pattern
    after each sweep at zero temperature.
    """

    states: Array
    objectives: Array
    trace: Array


class ThresholdNetwork:
    """Layers of units of -1 and 1; the input layer is real. Weights include a bias row, last.

    Reference: LAW-M4, LAW-I13.

    >>> net = ThresholdNetwork((1, 2, 1), np.array([1.0, -1.0, 0.5, 0.5, 1.0, 1.0, -1.0]))
    >>> net.forward(np.array([[-2.0], [0.0], [2.0]])).ravel().tolist()
    [-1.0, 1.0, -1.0]
    """

    def __init__(self, sizes: tuple[int, ...], weights: Array) -> None:
        self.sizes: Ints = np.asarray(sizes, dtype=np.int64)
        self.starts: Ints = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        counts = [(a + 1) * b for a, b in pairwise(sizes)]
        self.offsets: Ints = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.weights = np.asarray(weights, dtype=np.float64)
        if self.weights.shape != (self.offsets[-1],):
            raise DataError(f"{self.weights.size} weights; layers {sizes} have {self.offsets[-1]}")

    @classmethod
    def random(cls, sizes: tuple[int, ...], rng: np.random.Generator) -> Self:
        """Normal weights, of variance 1 / inputs of the unit, and no biases: inputs are centred."""
        parts = [
            np.vstack([rng.normal(size=(above, here)) / np.sqrt(above), np.zeros((1, here))])
            for above, here in pairwise(sizes)
        ]
        return cls(sizes, np.concatenate([part.ravel() for part in parts]))

    @property
    def arrays(self) -> ThresholdLayers:
        """What the compiled loops take, as views."""
        from kikuchi.beliefnets.kernels.threshold import ThresholdLayers

        return ThresholdLayers(self.weights, self.offsets, self.sizes, self.starts)

    def matrix(self, layer: int) -> Array:
        """Weights into a layer (inputs and a last row of biases, units), as a view."""
        first, last = self.offsets[layer - 1], self.offsets[layer]
        shape = (int(self.sizes[layer - 1]) + 1, int(self.sizes[layer]))
        return self.weights[first:last].reshape(shape)

    def activations(self, rows: Array) -> Array:
        """Inputs of the output units when hidden units follow their own."""
        states = rows
        for layer in range(1, len(self.sizes)):
            w = self.matrix(layer)
            inputs = states @ w[:-1] + w[-1]
            states = np.where(inputs >= 0.0, 1.0, -1.0)
        return np.asarray(inputs)

    def forward(self, rows: Array) -> Array:
        """Signs of the outputs."""
        return np.where(self.activations(rows) >= 0.0, 1.0, -1.0)

    def infer(
        self, rows: Array, targets: Array, rng: np.random.Generator, *, margin: float = 0.0,
        printed: bool = False, anneal: bool = True,
    ) -> HiddenStates:  # fmt: skip
        """States of all units (inputs first) with these targets clamped.

        From a forward pass: one sweep at each temperature, then sweeps at zero, each unit at the
        exact optimum of the objective. It is 0 for patterns that are stored (with the margin, if
        outputs are asked for one). `printed` takes the update that the thesis prints, which may
        lower the objective.
        """
        from kikuchi.beliefnets.kernels.threshold import infer_hidden

        states = np.zeros((len(rows), int(self.starts[-1])))
        states[:, : self.starts[1]] = rows
        states[:, self.starts[-2] :] = targets
        objectives, trace = np.empty(len(rows)), np.full(_MOST_SWEEPS, np.nan)
        infer_hidden(
            self.arrays, states, temperatures() if anneal else np.empty(0), margin, printed,
            kernel_seeds(rng, 1), objectives, trace,
        )  # fmt: skip
        return HiddenStates(states, objectives, trace[~np.isnan(trace)])

    def balance(self) -> None:
        """Give the weights into each hidden unit the length of those that leave it."""
        for layer in range(1, len(self.sizes) - 1):
            into, out = self.matrix(layer), self.matrix(layer + 1)
            inward, outward = np.linalg.norm(into, axis=0), np.linalg.norm(out[:-1], axis=1)
            usable = (inward > 0) & (outward > 0)
            into[:, usable] *= outward[usable] / inward[usable]


@dataclass(eq=False, repr=False)
class ThresholdNetworkClassifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """Classifier of hard threshold units, trained by margins or perceptrons at every unit.

    Each round infers the hidden units of all patterns and then trains every unit on its own: as a
    maximum-margin classifier, or by the perceptron rule. The network with the fewest training
    errors is kept. With `n_init` > 1 the `committee` with the fewest errors on rows held
    out votes.

    Attributes
    ----------
    classes_, model_ (those that vote), training_errors_, validation_errors_ (one per network
    that votes), trace_, converged_ (all patterns stored), stopped_, n_iter_, warnings_.

    Reference: LAW-M4, LAW-L4, LAW-L5.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(200, 2))
    >>> y = X[:, 0] * X[:, 1] > 0
    >>> clf = ThresholdNetworkClassifier(hidden_layer_sizes=15, C=10, random_state=1).fit(X, y)
    >>> bool(clf.score(X, y) > 0.85)
    True
    """

    kind = kinds.THRESHOLD
    file_kind: ClassVar[str] = "threshold-network"

    hidden_layer_sizes: int | tuple[int, ...] | list[int] | str = option(
        15, "Hidden units; several numbers: that many in each hidden layer, such as 20,10."
    )
    learner: Literal["margin", "perceptron"] = option(
        "margin", "What trains each unit: margin (a linear machine) or perceptron."
    )
    _: KW_ONLY
    C: float = option(10.0, "Price of points on the wrong side of a margin.", above=0)
    margin: float = option(
        1.0, "Margin that inference asks of the outputs when learner is margin.", low=0
    )
    inference: Literal["exact", "as-printed"] = option(
        "exact", "Update of hidden units: exact, or as-printed in the thesis (not an ascent)."
    )
    scaling: Literal["range", "standard"] = option(
        "range", "Scale of centred inputs: range (within -1 and 1) or standard (deviation 1)."
    )
    max_iter: int = option(7, "Rounds of inference and learning.", low=1)
    n_init: int = option(1, "Networks that are trained, each from a start of its own.", low=1)
    committee: int = option(1, "Networks that vote: those with fewest validation errors.", low=1)
    validation_fraction: float = option(
        0.15, "Rows held out to choose the committee.", above=0, below=1
    )

    # ------------------------------------------------------------------ fitting

    @property
    def hidden_layers(self) -> tuple[int, ...]:
        """`hidden_layer_sizes` as whole numbers, checked."""
        return layer_sizes(self.hidden_layer_sizes, "hidden_layer_sizes")

    @safe_interrupts()
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on rows `X` (rows, inputs) and labels `y` (rows,), or go on from the checkpoint."""
        self._check_options()
        sizes = self.hidden_layers
        if self.committee > self.n_init:
            raise MethodError(f"a committee of {self.committee} of {self.n_init} networks")
        rows, codes = self._checked(X, y)
        outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        targets = 2.0 * (codes[:, None] == np.arange(outputs)) - 1.0
        if outputs == 1:
            targets = 2.0 * codes[:, None] - 1.0
        work = _Rounds(self, (rows.shape[1], *sizes, outputs), rows, targets)
        run = self._run()
        run.trace.objective_name = "training errors"
        store = fit_store(self, np.column_stack([rows, codes]))
        limit = self.n_init * self.max_iter
        with limited_threads(1):
            ended = iterate(_Rounds.step, work, run, tol=0.0, limit=limit, store=store)
        if not len(work.kept):
            raise KeyboardInterrupt
        self._choose(work, rows, targets)
        stored = bool(np.all(self.training_errors_ == 0))
        whole = run.stopped in ("iterations", "diverged")
        stopped = "converged" if stored and whole else "epochs" if whole else run.stopped
        remarks = (
            [] if whole else [f"stopped early ({run.stopped}): the best result so far is used"]
        )
        if not stored:
            worst = int(self.training_errors_.max())
            remarks.append(f"not all training rows are stored: up to {worst} of {len(rows)} wrong")
        self._ended(ended.iterations, stopped, stored and whole, remarks, run.trace)
        return self

    def _checked(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, Ints]:
        from sklearn.utils.multiclass import check_classification_targets

        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError("all labels belong to one class; at least two are needed")
        self._middle = rows.mean(axis=0)
        far = np.abs(rows - self._middle).max(axis=0)
        scale = far if self.scaling == "range" else rows.std(axis=0)
        self._scale = np.where(scale > 0, scale, 1.0)
        return (rows - self._middle) / self._scale, codes

    def _choose(self, work: _Rounds, rows: Array, targets: Array) -> None:
        tried = [ThresholdNetwork(work.sizes, weights) for weights in work.kept]
        held = work.held_out
        wrong = [_errors(net, rows[held], targets[held]) for net in tried]
        chosen = np.argsort(wrong, kind="stable")[: self.committee]
        self.model_ = [tried[k] for k in chosen]
        self.validation_errors_ = np.array([wrong[k] for k in chosen])
        seen = work.learnt
        self.training_errors_ = np.array(
            [_errors(net, rows[seen], targets[seen]) for net in self.model_]
        )

    # ------------------------------------------------------------------ answers

    def decision_function(self, X: ArrayLike) -> Array:
        """Mean vote of the networks, for each row of `X` (rows, inputs), for the second class or
        for each of several classes.

        Outputs of a network that are equal are told apart by how far they are from their threshold.
        """
        check_is_fitted(self, "classes_")
        rows = np.asarray(validate_data(self, X, reset=False, dtype=np.float64))
        white = (rows - self._middle) / self._scale
        votes = np.mean([_votes(net.activations(white)) for net in self.model_], axis=0)
        return np.asarray(votes[:, 0] if len(self.classes_) == 2 else votes)

    def predict(self, X: ArrayLike) -> Any:
        """The class with most votes for each row of `X` (rows, inputs)."""
        votes = self.decision_function(X)
        codes = (votes >= 0).astype(int) if votes.ndim == 1 else votes.argmax(axis=1)
        return self.classes_[codes]

    # ------------------------------------------------------------------ files

    def plain_options(self) -> dict[str, Any]:
        """As of every estimator, with layers as a list."""
        options = super().plain_options()
        if isinstance(options["hidden_layer_sizes"], tuple):
            options["hidden_layer_sizes"] = list(options["hidden_layer_sizes"])
        return options

    file_layout: ClassVar[Mapping[str, str]] = {
        "middle": "columns",
        "scale": "columns",
        "weights": "networks connections",
        "training_errors": "networks",
        "validation_errors": "networks",
    }
    positive: ClassVar[tuple[str, ...]] = ("scale",)

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        arrays = {
            "weights": np.stack([net.weights for net in self.model_]),
            "middle": self._middle,
            "scale": self._scale,
            "training_errors": self.training_errors_,
            "validation_errors": self.validation_errors_,
        }
        about = {
            "classes": self.classes_.tolist(),
            "type": self.classes_.dtype.kind,
            "layers": [int(n) for n in self.model_[0].sizes],
        }
        return arrays, {}, about

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        self.classes_ = read_labels(about, "classes")
        sizes = tuple(int(n) for n in about["layers"])
        self.model_ = [ThresholdNetwork(sizes, weights) for weights in arrays["weights"]]
        self._middle, self._scale = arrays["middle"], arrays["scale"]
        self.training_errors_ = arrays["training_errors"]
        self.validation_errors_ = arrays["validation_errors"]
        self.trace_.objective_name = "training errors"


@dataclass(eq=False, init=False)
class _Rounds(State):
    """Rounds of inference and learning over all networks.

    Attributes
    ----------
    current
        The weights of the network that learns.
    kept
        The best weights of each network so far.
    fewest
        Errors of the last of them.
    """

    varying: ClassVar[tuple[str, ...]] = ("kept",)

    current: Array
    kept: Array
    fewest: float
    done: int

    def __init__(
        self, options: ThresholdNetworkClassifier, sizes: tuple[int, ...], rows: Array,
        targets: Array,
    ) -> None:  # fmt: skip
        self.options, self.sizes, self.rows, self.targets = options, sizes, rows, targets
        rng = generator(options.random_state)
        self.seeds = rng.integers(2**31, size=options.n_init)
        held = round(options.validation_fraction * len(rows)) if options.n_init > 1 else 0
        order = rng.permutation(len(rows))
        self.held_out, self.learnt = np.sort(order[:held]), np.sort(order[held:])
        if not held:
            self.held_out = self.learnt
        size = ThresholdNetwork.random(sizes, rng).weights.size
        self.current = np.zeros(size)
        self.kept = np.zeros((0, size))
        self.fewest, self.done = np.inf, 0

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take the values that `to_arrays` described."""
        begun = -(-int(arrays["done"]) // self.options.max_iter)
        check_sizes(arrays, {"kept": "networks weights"}, networks=begun, weights=self.current.size)
        super().load(arrays)

    def step(self) -> Step | None:
        """Take one round of one network after the other."""
        rounds = self.options.max_iter
        if self.done == rounds * self.options.n_init:
            return None
        number, turn = divmod(self.done, rounds)
        rng = np.random.default_rng([int(self.seeds[number]), turn])
        if turn == 0:
            first = ThresholdNetwork.random(self.sizes, rng).weights
            self.current, self.fewest = first, np.inf
        if self.fewest > 0 or turn <= _LOOSE:  # else all is stored, with whole margins
            self._round(turn, rng, new=turn == 0)
        self.done += 1
        return Step(self.done, objective=float(self.fewest))

    def _round(self, turn: int, rng: np.random.Generator, new: bool) -> None:
        net = ThresholdNetwork(self.sizes, self.current.copy())
        rows, targets = self.rows[self.learnt], self.targets[self.learnt]
        options = self.options
        margin = options.margin if options.learner == "margin" else 0.0
        printed = options.inference == "as-printed"
        states = net.infer(rows, targets, rng, margin=margin, printed=printed).states
        if self.options.learner == "margin":
            tol = max(10.0**-turn, _TIGHTEST)
            self._margins(net, states, tol, int(rng.integers(2**31)))
            net.balance()
        else:
            self._perceptrons(net, states, rng)
        wrong = _errors(net, rows, targets)
        self.current = net.weights
        if new:
            self.kept = np.vstack([self.kept, net.weights])
            self.fewest = wrong
        elif wrong <= self.fewest:  # of two that are as good the later has wider margins
            self.kept[-1], self.fewest = net.weights, wrong

    def _margins(self, net: ThresholdNetwork, states: Array, tol: float, seed: int) -> None:
        """A linear support vector machine at every unit, by libsvm or for many rows liblinear."""
        import warnings

        for layer in range(1, len(self.sizes)):
            x = states[:, net.starts[layer - 1] : net.starts[layer]]
            y = states[:, net.starts[layer] : net.starts[layer + 1]]
            w = net.matrix(layer)
            for k in range(y.shape[1]):
                if np.all(y[:, k] == y[0, k]):
                    w[:, k] = 0.0
                    w[-1, k] = y[0, k]
                    continue
                machine = self._machine(len(x), tol, seed)
                with warnings.catch_warnings(action="ignore"):  # the best network is kept anyway
                    machine.fit(x, y[:, k])
                w[:-1, k], w[-1, k] = machine.coef_[0], machine.intercept_[0]

    def _machine(self, n_rows: int, tol: float, seed: int) -> Any:
        from sklearn.svm import SVC, LinearSVC

        price = self.options.C
        if n_rows <= _FEW_ROWS:
            return SVC(kernel="linear", C=price, tol=max(tol, 1e-3), max_iter=_MOST_STEPS)
        return LinearSVC(
            loss="hinge", C=price, tol=max(tol, 1e-3), max_iter=_MOST_PASSES,
            intercept_scaling=10.0, random_state=seed,
        )  # fmt: skip

    def _perceptrons(self, net: ThresholdNetwork, states: Array, rng: np.random.Generator) -> None:
        from kikuchi.beliefnets.kernels.threshold import perceptron_passes

        rate = float(np.abs(net.weights).mean())
        perceptron_passes(net.arrays, states, rate, _PASSES, kernel_seeds(rng, 1))


def _errors(net: ThresholdNetwork, rows: Array, targets: Array) -> float:
    """Patterns that the network classifies wrongly."""
    found = net.activations(rows)
    if targets.shape[1] == 1:
        return float(np.sum((found[:, 0] >= 0) != (targets[:, 0] > 0)))
    return float(np.sum(_votes(found).argmax(axis=1) != targets.argmax(axis=1)))


def _votes(activations: Array) -> Array:
    """Signs, with a little of how far from the threshold."""
    size = np.abs(activations)
    return np.where(activations >= 0, 1.0, -1.0) * (1.0 + 1e-3 * size / (1.0 + size))
