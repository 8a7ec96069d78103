"""`RBM`: restricted Boltzmann machines as scikit-learn estimators (TEH-M6, M8, I11, L9)."""

from __future__ import annotations

from os import PathLike
from typing import Literal

import numpy as np

from kikuchi.boltzmann.estimator import Array, Limits, MachineEstimator, RandomState
from kikuchi.boltzmann.layers import Layers
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import Binary, Units, parse_units
from kikuchi.core.progress import Progress


class RBM(MachineEstimator):
    """Restricted Boltzmann machine: a product of one expert for each hidden unit (TEH-M6, M8).

    Given the visible units, the hidden ones are independent, so that inference is one product and
    one logistic function (TEH-I11).

    Parameters
    ----------
    n_hidden: number of hidden units.
    learner: rule of learning, such as "pcd:k=1", "cd:k=10", "pseudo" or "exact"; see `RULES`.
    learning_rate, momentum, weight_decay, schedule: of the optimiser; the schedule is "constant",
        "linear", "cosine", "exponential:factor=0.95" or "warmup-cosine".
    optimiser: "sgd", or one of optax such as "adam" or "adam:b1=0.8" (then momentum must be 0).
    batch_size, epochs: of the training; one epoch sees all rows once, in an order of its own.
    visible: "binary" (data in [0, 1]), "gaussian" (standardised reals) or "binomial:replicas=10".
    start: "means" (visible biases that fit the means of the data) or "zero".
    limits: values of the data that stand for the smallest and the largest state of a visible unit,
        such as (0, 255); "data": the smallest and the largest that `fit` saw; None: data are
        states. Rows and samples come back in the values of the data.
    scale: spread of the first weights.
    dtype: "float32" or "float64". threads: of matrix products. seconds: time limit of `fit`.
    checkpoint: file of the training so far; a fit that was killed goes on from there.
    random_state: seed. verbose: print progress. progress: told how far the training is.

    Attributes: `machine_`, `components_` (weights, one row for each hidden unit), `trace_` (with
    `plot()`), `n_iter_`, `stopped_`, `converged_` (False when cut short or diverged), `warnings_`,
    `log_z_` (None until `log_z` is called).

    >>> rows = np.repeat([[1, 1, 0, 0], [0, 0, 1, 1]], 50, axis=0)
    >>> rbm = RBM(2, learner="cd", learning_rate=0.5, epochs=300, random_state=0).fit(rows)
    >>> bool(np.abs(rbm.reconstruct(rows) - rows).max() < 0.2)
    True
    >>> _ = rbm.log_z("exact")
    >>> bool(rbm.score(rows) > -1.5)  # the best is -log 2
    True
    """

    def __init__(
        self,
        n_hidden: int = 100,
        *,
        learner: str = "pcd:k=1",
        learning_rate: float = 0.05,
        optimiser: str = "sgd",
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        schedule: str = "constant",
        batch_size: int = 100,
        epochs: int = 10,
        visible: str = "binary",
        start: str = "means",
        limits: Limits | Literal["data"] | None = None,
        scale: float = 0.01,
        dtype: str = "float32",
        threads: int | None = 1,
        seconds: float | None = None,
        checkpoint: str | PathLike[str] | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
        progress: Progress | None = None,
    ) -> None:
        self.n_hidden = n_hidden
        self.learner = learner
        self.learning_rate = learning_rate
        self.optimiser = optimiser
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.batch_size = batch_size
        self.epochs = epochs
        self.visible = visible
        self.start = start
        self.limits = limits
        self.scale = scale
        self.dtype = dtype
        self.threads = threads
        self.seconds = seconds
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose
        self.progress = progress

    @property
    def components_(self) -> Array:
        """Weights, one row for each hidden unit."""
        return self.machine_.weights.T

    def _units(self) -> Units:
        return parse_units(self.visible)

    def _start(self, n_visible: int, rng: np.random.Generator) -> Machine:
        return Machine.random(
            n_visible,
            self.n_hidden,
            scale=self.scale,
            visible=self._units(),
            dtype=np.dtype(self.dtype),
            random_state=rng,
        )

    def _hidden_means(self, rows: Array) -> Array:
        return Layers(self.machine_).hidden(rows, None).mean

    def _visible_means(self, hidden: Array) -> Array:
        return Layers(self.machine_).visible(hidden, None).mean

    def _free_energies(self, rows: Array) -> Array:
        m = self.machine_
        sums = np.asarray(Layers(m).hidden(rows, None).log_sums)
        wide = np.float64  # the answer of a row must not depend on the rows beside it
        energies: Array = -(rows.astype(wide) @ m.visible_bias.astype(wide)) - sums
        if not isinstance(m.visible, Binary):
            energies -= np.sum(m.visible.log_base(rows), axis=1, dtype=np.float64)
        return energies
