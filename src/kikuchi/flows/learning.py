"""Training of flows: the gradient of the likelihood, and EM with exact responsibilities.

EM takes responsibilities of all rows under the present parameters, sets the weights (and everything
else that has a closed form) to their maximum, and ascends the expected log-likelihood Q along
gradients in the rest. A step that lowers Q on all rows is shortened until it does not, so that the
likelihood of the rows never falls at temperature 1.

Reference: LIU-L9, LIU-L10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp, softmax

from kikuchi.core.arrays import Array
from kikuchi.core.run import Step, StepAborted
from kikuchi.engines.loops.em import ExpectationMaximisation, Model
from kikuchi.engines.loops.state import Held, State
from kikuchi.flows.densities import (
    BaseFloor,
    FlowDensity,
    FlowSpec,
    evaluate_joint,
    in_parts,
    latent_rows,
    log_joint,
    log_joint_of_groups,
    pack_base,
)
from kikuchi.flows.preparation import padded
from kikuchi.flows.start import gaussian_maximum
from kikuchi.training.model import named_leaves, with_leaves
from kikuchi.training.optimiser import Optimiser, precision
from kikuchi.training.rule import LossRule
from kikuchi.training.trainer import train

_HALVINGS = 8  # of a step that lowers the expected log-likelihood


@dataclass(frozen=True)
class FlowRule(LossRule):
    """A loss of flows as a rule."""

    objective_name: ClassVar[str] = "minus log-likelihood per row"


def _noisy(rows: Any, noise: float, key: Any) -> Any:
    if not noise:
        return rows
    return rows + noise * jax.random.normal(key, rows.shape, rows.dtype)


@dataclass(frozen=True)
class LikelihoodLoss:
    """Minus the mean log-likelihood of weighted rows with Gaussian noise.

    With `grouped`, batches are (rows, groups, columns) with weights (rows, groups).
    """

    spec: FlowSpec
    noise: float = 0.0
    grouped: bool = False

    def __call__(self, parameters: Any, batch: Any, key: Any) -> Any:
        """The mean over the batch, summed over groups that have rows of their own."""
        rows, weights = batch
        joint_of = log_joint_of_groups if self.grouped else log_joint
        joint = joint_of(self.spec, parameters, _noisy(rows, self.noise, key))
        logs = jax.scipy.special.logsumexp(joint, axis=-1)
        return -jnp.mean(jnp.sum(weights.reshape(logs.shape) * logs, axis=1))


@dataclass(frozen=True)
class ExpectedLoss:
    """Minus the expected log-likelihood Q of rows with given responsibilities."""

    spec: FlowSpec
    noise: float = 0.0

    def __call__(self, parameters: Any, batch: Any, key: Any) -> Any:
        """The mean over the batch."""
        rows, share, weights = batch
        joint = log_joint(self.spec, parameters, _noisy(rows, self.noise, key))
        return -jnp.mean(weights * jnp.sum(share.reshape(joint.shape) * joint, axis=(1, 2)))


@dataclass(frozen=True)
class MeanLogLikelihood:
    """Score of validation rows: their mean log-likelihood."""

    def __call__(self, model: FlowDensity, rows: Any) -> float:
        """Larger is better."""
        joint = evaluate_joint(model.spec, model.parameters, rows[0])
        return float(np.mean(logsumexp(joint, axis=(1, 2))))


def responsibilities(joint: Array, temperature: float = 1.0) -> Array:
    """Probabilities of components given rows; exact at temperature 1.

    >>> responsibilities(np.log([[[0.2, 0.6]]])).round(2).tolist()
    [[[0.25, 0.75]]]
    """
    return np.asarray(softmax(joint / temperature, axis=-1))


# ---------------------------------------------------------------------- EM


@dataclass
class MaximisationStep:
    """Ascends Q for given responsibilities: closed forms, then gradients, then a look back."""

    floor: float
    optimiser: Optimiser
    epochs: int
    batch: int
    noise: float
    rng: np.random.Generator
    threads: int | None = 1
    improved: bool = field(default=True, init=False)

    def __call__(self, model: FlowDensity, rows: Array, share: Array) -> FlowDensity:
        """Return a model whose Q does not decrease, given (rows, groups, components)
        responsibilities.
        """
        before = expected(model, rows, share)
        best, value = model, before
        closed = self._closed(model, rows, share)
        found = expected(closed, rows, share)
        if found >= value:
            best, value = closed, found
        if model.parameters["flow"]:
            best, value = self._along_gradient(best, value, rows, share)
        self.improved = value > before
        return best

    def _closed(self, model: FlowDensity, rows: Array, share: Array) -> FlowDensity:
        """The weights, and the Gaussians where no flow stands between them and the rows."""
        spec = model.spec
        counts = share.sum(axis=0)
        totals = counts.sum(axis=1, keepdims=True)
        base = dict(model.parameters["base"])
        with np.errstate(divide="ignore"):
            logits = np.maximum(np.log(counts / np.maximum(totals, 1e-300)), -50.0)
        before = np.asarray(base["logits"]).reshape(counts.shape)
        logits = np.where(totals > 0, logits, before)  # a group without rows stays as it is
        base["logits"] = logits.astype(spec.dtype).ravel()
        if spec.form == "latent" and spec.groups == 1:
            z = in_parts(spec, latent_rows, model.parameters, rows.astype(spec.dtype))[:, 0]
            base = self._gaussians(spec, z.astype(np.float64), share)
        elif not model.parameters["flow"]:
            base = self._gaussians(spec, rows, share)
        return FlowDensity({"base": base, "flow": model.parameters["flow"]}, spec.facts())

    def _gaussians(self, spec: FlowSpec, rows: Array, share: Array) -> dict[str, Array]:
        each = [gaussian_maximum(rows, share[:, g], self.floor) for g in range(spec.groups)]
        return pack_base(spec, *(np.stack(parts) for parts in zip(*each, strict=True)))

    def _along_gradient(
        self, model: FlowDensity, before: float, rows: Array, share: Array
    ) -> tuple[FlowDensity, float]:
        spec = model.spec
        flat = share.reshape(len(share), -1)
        data = padded(self.batch, rows, flat)
        rule = FlowRule(ExpectedLoss(spec, self.noise), project=BaseFloor(spec, self.floor))
        done = train(
            model,
            data,
            rule,
            optimiser=self.optimiser,
            epochs=self.epochs,
            batch_size=self.batch,
            seed=self.rng,
            threads=self.threads,
        )
        if done.stopped == "interrupted":
            raise KeyboardInterrupt  # half a step is none: the round before is the last
        moved = done.model
        for _ in range(_HALVINGS):
            found = expected(moved, rows, share)
            if found >= before:
                return moved, found
            moved = _between(model, moved)
        return model, before


def _between(one: FlowDensity, other: FlowDensity) -> FlowDensity:
    """The model half-way."""
    with precision(one.parameters):
        pairs = one.parameters, other.parameters
        mean = jax.tree.map(lambda a, b: 0.5 * (jnp.asarray(a) + jnp.asarray(b)), *pairs)
    return FlowDensity(mean, one.spec.facts())


def expected(model: FlowDensity, rows: Array, share: Array) -> float:
    """Q per row."""
    joint = evaluate_joint(model.spec, model.parameters, rows)
    return float(np.sum(np.where(share > 0, share * joint, 0.0)) / len(rows))


@dataclass(eq=False, init=False)
class HeldOutScores(State, Generic[Model]):
    """The scores of all models so far on held-out rows, and the best of them: without a `score` the
    last one.

    It is saved beside a model whose expectation judges it: a fit that goes on judges the last one
    again.
    """

    varying: ClassVar[tuple[str, ...]] = ("scores", "best/")

    scores: list[float]
    best: Held[Model]
    generator: np.random.Generator

    def __init__(
        self,
        best: Held[Model],
        generator: np.random.Generator,
        score: Callable[[Model], float] | None,
        patience: int,
    ) -> None:
        self.scores, self.best, self.generator = [], best, generator
        self.score, self.patience = score, patience

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take the values that `to_arrays` described, but for the last score."""
        super().load(arrays)
        del self.scores[-1:]

    def judge(self, model: Model) -> None:
        """Score a model."""
        if self.score is None:
            self.best.value = model
            return
        score = self.score(model)
        if not self.scores or score > max(self.scores):
            self.best.value = model
        self.scores.append(score)

    @property
    def exhausted(self) -> bool:
        """Whether the last models were no better for longer than the patience."""
        return bool(self.scores) and len(self.scores) - int(np.argmax(self.scores)) > self.patience


class FlowEM(ExpectationMaximisation[FlowDensity]):
    """Expectation and maximisation in turn on all rows, until the held-out rows are exhausted."""

    def __init__(
        self,
        model: FlowDensity,
        rows: Array,
        held_out: Array | None,
        step: MaximisationStep,
        temperature: float,
        patience: int,
    ) -> None:
        facts, tree = model.spec.facts(), model.parameters

        def held() -> Held[FlowDensity]:
            return Held(
                model,
                lambda arrays: FlowDensity(with_leaves(tree, arrays), facts),
                lambda density: named_leaves(density.parameters),
            )

        def expectation(model: FlowDensity) -> tuple[float, Array]:
            joint = evaluate_joint(model.spec, model.parameters, rows)
            objective = float(np.mean(logsumexp(joint, axis=(1, 2))))
            if not np.isfinite(objective):
                raise StepAborted("diverged")
            self.judged.judge(model)
            return objective, joint

        def maximisation(model: FlowDensity, joint: Array) -> FlowDensity:
            return step(model, rows, responsibilities(joint, temperature))

        score = MeanLogLikelihood()
        self.judged = HeldOutScores(
            held(),
            step.rng,
            None if held_out is None else lambda model: score(model, (held_out,)),
            patience,
        )
        super().__init__(held(), expectation, maximisation, beside=self.judged)

    def step(self) -> Step | None:
        """Take one iteration; the objective is minus the log-likelihood per row, the residual its
        fall.
        """
        before = self.objective
        if self.judged.exhausted:
            return None
        self.advance()
        gain = self.objective - before
        residual = max(gain, 0.0) if np.isfinite(gain) else np.inf
        return Step(self.done, 0.0 if self.judged.exhausted else residual, -self.objective)
