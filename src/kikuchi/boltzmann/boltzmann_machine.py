"""`BoltzmannMachine`: machines of any architecture as scikit-learn estimators (WH-M1 to M3)."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.boltzmann.estimator import Array, Limits, MachineEstimator, RandomState
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.settling import free_energy, settle_hidden, settle_visible
from kikuchi.core.progress import Progress


class BoltzmannMachine(MachineEstimator):
    """Binary machine with connections among visible and among hidden units as wished (WH-M2).

    Means of connected units are settled in the approximation `energy`, so that `free_energy` is
    exact where hidden units are independent (brf, poe) and an approximation otherwise.

    Parameters
    ----------
    n_hidden: number of hidden units; may be 0 where visible units are connected.
    architecture: "brf" (restricted), "hrf" (hidden units connected), "poe" (visible units
        connected) or "fcrf" (both).
    masks: instead, which connections there are: boolean arrays by the names "weights",
        "visible_weights" and "hidden_weights".
    learner: rule of learning, such as "cf:energy=mf,k=1", "cd:k=1" or "exact"; see `RULES`.
    energy: "mf", "tap", "bethe" or "exact", for `transform` and `free_energy`.

    The others are those of `RBM`, and so are the attributes, without `components_`.

    >>> rows = np.repeat([[1, 1, 0, 0], [0, 0, 1, 1]], 50, axis=0)
    >>> machine = BoltzmannMachine(2, architecture="poe", epochs=30, random_state=0).fit(rows)
    >>> machine.transform(rows[:3]).shape, machine.machine_.architecture
    ((3, 2), 'poe')
    """

    def __init__(
        self,
        n_hidden: int = 25,
        *,
        architecture: str = "fcrf",
        masks: Mapping[str, ArrayLike] | None = None,
        learner: str = "cf:energy=mf,k=1",
        energy: str = "mf",
        learning_rate: float = 0.05,
        optimiser: str = "sgd",
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        schedule: str = "constant",
        batch_size: int = 10,
        epochs: int = 10,
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
        self.architecture = architecture
        self.masks = masks
        self.learner = learner
        self.energy = energy
        self.learning_rate = learning_rate
        self.optimiser = optimiser
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.batch_size = batch_size
        self.epochs = epochs
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

    def _start(self, n_visible: int, rng: np.random.Generator) -> Machine:
        return Machine.random(
            n_visible,
            self.n_hidden,
            architecture=self.architecture,
            masks=self.masks,
            scale=self.scale,
            dtype=np.dtype(self.dtype),
            random_state=rng,
        )

    def _hidden_means(self, rows: Array) -> Array:
        if self.energy == "exact":
            from kikuchi.boltzmann.exact import clamped

            return clamped(self.machine_, rows).hidden.astype(self.dtype)
        return settle_hidden(self.machine_, rows, energy=self.energy).means.astype(self.dtype)

    def _visible_means(self, hidden: Array) -> Array:
        energy = "mf" if self.energy == "exact" else self.energy
        return settle_visible(self.machine_, hidden, energy=energy).means.astype(self.dtype)

    def _free_energies(self, rows: Array) -> Array:
        return free_energy(self.machine_, rows, self.energy)
