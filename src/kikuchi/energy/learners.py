"""Learners of energy models: how a batch becomes a gradient.

    cd               chains begin at the rows (contrastive divergence)
    pcd              chains go on where the update before left them
    equilibrium      exact samples of a square model
    exact            the likelihood of a square model
    score-matching   no samples: scores of model and data agree
    denoising        the same of rows with noise added
    nce              tells rows from noise, and learns log Z with it

Each answers a `LossRule`: a loss whose gradient is the update, run in compiled chunks. For those
with chains the value is the energy gap, mean E(rows) - mean E(samples), which vanishes when the
chains cannot be told from the rows; it is no measure of progress.

Reference: TEH-L8, TEH-L11, TEH-L11 to L13, TEH-L12.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from kikuchi.core.errors import MethodError
from kikuchi.core.options import Configured, Registry, option
from kikuchi.energy.energies import Energy, LinearExperts, contrast_energy, shapes_of
from kikuchi.energy.radial import RadialMap, length_spread
from kikuchi.energy.samplers import ChainMoves
from kikuchi.training.rule import LossRule, State
from kikuchi.training.updates import loss_of

LOG_Z = "log_z"
"""Name among the parameters: log Z as noise-contrastive estimation learns it."""


@dataclass(frozen=True)
class EnergyRule(LossRule):
    """A loss of an energy model, and what to say of its chains."""

    moves: ChainMoves | None = None
    held_out: Any = field(default=None, compare=False, repr=False)
    objective_name: ClassVar[str] = "energy gap per row"

    def measures(self, parameters: Any, state: State) -> dict[str, float]:
        """Acceptance and step size of the chains, the longest filter, and how well score matching
        judges the rows held out.
        """
        told = {}
        if "step" in state:
            told = {"acceptance": float(state["acceptance"]), "step size": float(state["step"])}
        if "filters" in parameters:
            told["longest filter"] = float(jnp.max(jnp.linalg.norm(parameters["filters"], axis=1)))
        if self.held_out is not None:
            loss: Any = self.loss
            told["held-out score matching"] = loss_of(
                ScoreLoss(loss.energy), parameters, self.held_out
            )
        return told

    def warnings(self, state: State) -> list[str]:
        """A step size that ran into its floor, or chains that hardly move."""
        if self.moves is None or "step" not in state:
            return []
        step, rate = float(state["step"]), float(state["acceptance"])
        if step <= self.moves.floor * 1.01:
            return [
                f"the step size of the chains fell to its floor {self.moves.floor:g} (acceptance "
                f"{rate:.2f}): the energy has grown too steep; lower learning_rate, raise "
                "weight_decay, or scale the data"
            ]
        if self.moves.sampler != "langevin" and rate < 0.5 * self.moves.desired:
            return [
                f"chains accept {rate:.2f} of their moves, {self.moves.desired:g} is desired: give "
                "a smaller first step, or more updates"
            ]
        return []


@dataclass(frozen=True)
class EnergyLearner(Configured, ABC, kind="learner"):
    """Base of the learners."""

    @abstractmethod
    def rule(self, energy: Energy) -> EnergyRule:
        """The loss of this energy."""


@dataclass(frozen=True)
class _SampledLearner(EnergyLearner):
    """Options of the learners with chains."""

    k: int = option(1, "moves of each chain", low=1)
    sampler: str = option("hmc", "hmc, mala or langevin")
    leapfrogs: int = option(20, "leapfrog steps of one move of hmc", low=1)
    acceptance: float = option(0.9, "acceptance rate that is desired", above=0, below=1)
    step: float = option(0.1, "first step size", above=0)
    rate: float = option(0.01, "how fast the step size follows the acceptance", low=0)
    floor: float = option(1e-4, "smallest step size", above=0)
    radial: bool = option(
        False, "move in coordinates in which short and long rows are alike; for white rows"
    )

    def rule(self, energy: Energy) -> EnergyRule:
        """The energy gap."""
        moves = ChainMoves(self.sampler, self.leapfrogs, self.acceptance, self.rate, self.floor)
        chains = getattr(self, "chains", 0)
        loss = _ChainLoss(energy, moves, self.k, self.step, chains, self.radial)
        return EnergyRule(loss, begin=loss.begin, moves=moves)


# ---------------------------------------------------------------------- chains


def _gap(energy: Energy, parameters: Any, rows: Any, samples: Any) -> Any:
    """Mean E(rows) - mean E(samples): its gradient is the update (4.33)."""
    return jnp.mean(energy(parameters, rows)) - jnp.mean(energy(parameters, samples))


@dataclass(frozen=True)
class _ChainLoss:
    """Energy gap between a batch and chains that begin at it, or at where they were."""

    energy: Energy
    moves: ChainMoves
    k: int
    step: float
    chains: int  # 0: chains begin at the rows
    radial: bool = False

    def begin(self, parameters: Any, data: Any, key: Any) -> dict[str, Any]:
        """Step size, acceptance, and chains at rows of the data."""
        memory = {
            "step": jnp.asarray(self.step, data.dtype),
            "acceptance": jnp.ones((), data.dtype),
        }
        if self.chains:
            rows = jax.random.randint(key, (self.chains,), 0, len(data))
            memory["chains"] = data[rows]
        if self.radial:
            centre, stretch = length_spread(np.asarray(data))
            memory["centre"] = jnp.asarray(centre, data.dtype)
            memory["stretch"] = jnp.asarray(stretch, data.dtype)
        return memory

    def __call__(self, parameters: Any, batch: Any, key: Any, memory: Any) -> Any:
        """The gap, and the memory after the moves."""
        fixed = jax.lax.stop_gradient(parameters)
        start = memory["chains"] if self.chains else batch
        samples, rate = self._moved(fixed, start, key, memory)
        samples = jax.lax.stop_gradient(samples)
        rate = jax.lax.stop_gradient(rate)
        later = {"step": self.moves.controlled(memory["step"], rate)}
        later["acceptance"] = 0.99 * memory["acceptance"] + 0.01 * rate
        if self.chains:
            later["chains"] = samples
        if self.radial:
            later |= {name: memory[name] for name in ("centre", "stretch")}
        return _gap(self.energy, parameters, batch, samples), later

    def _moved(self, parameters: Any, start: Any, key: Any, memory: Any) -> tuple[Any, Any]:
        """Rows after the moves of their chains, and the acceptance rate."""

        def energy(x: Any) -> Any:
            return self.energy(parameters, x)

        if not self.radial:
            return self.moves.run(energy, start, memory["step"], key, self.k)
        chart = RadialMap(0.0, None, memory["centre"], memory["stretch"])
        z, rate = self.moves.run(
            lambda z: energy(chart(z)) - chart.log_det(z),
            chart.back(start), memory["step"], key, self.k,
        )  # fmt: skip
        return chart(z), rate


class EnergyDivergence(_SampledLearner):
    """CD-k: chains of k moves that begin at the rows of the batch.

    >>> LEARNERS.parse("cd:k=1,sampler=hmc,leapfrogs=30").leapfrogs
    30
    """

    name: ClassVar[str] = "cd"
    summary: ClassVar[str] = "contrastive divergence: k moves from the rows"


@dataclass(frozen=True)
class PersistentChains(_SampledLearner):
    """Persistent chains, k moves for each update."""

    name: ClassVar[str] = "pcd"

    chains: int = option(100, "number of chains", low=1)


# ---------------------------------------------------------------------- square models


def _square(energy: Energy, learner: str) -> LinearExperts:
    if not isinstance(energy, LinearExperts):
        raise MethodError(
            f"learner {learner} needs linear experts, one for each column; use cd, pcd, "
            "score-matching, denoising or nce"
        )
    energy.need_exact()
    return energy


@dataclass(frozen=True)
class _LikelihoodLoss:
    """Minus the log-likelihood per row of a square model."""

    energy: LinearExperts

    def __call__(self, parameters: Any, batch: Any, key: Any) -> Any:
        return jnp.mean(self.energy(parameters, batch)) + self.energy.log_z(parameters)


@dataclass(frozen=True)
class _EquilibriumLoss:
    """Energy gap to exact samples, as many as rows."""

    energy: LinearExperts

    def __call__(self, parameters: Any, batch: Any, key: Any) -> Any:
        fixed = jax.lax.stop_gradient(parameters)
        return _gap(self.energy, parameters, batch, self.energy.draw(fixed, len(batch), key))


class SquareLikelihood(EnergyLearner):
    """Likelihood of a square model."""

    name: ClassVar[str] = "exact"

    def rule(self, energy: Energy) -> EnergyRule:
        """Minus the log-likelihood."""
        return SquareLikelihoodRule(_LikelihoodLoss(_square(energy, self.name)))


class SquareLikelihoodRule(EnergyRule):
    """The exact likelihood as a rule."""

    objective_name: ClassVar[str] = "minus log-likelihood per row"


class Equilibrium(EnergyLearner):
    """Exact samples of a square model."""

    name: ClassVar[str] = "equilibrium"

    def rule(self, energy: Energy) -> EnergyRule:
        """The energy gap."""
        return EnergyRule(_EquilibriumLoss(_square(energy, self.name)))


# ---------------------------------------------------------------------- without samples


@dataclass(frozen=True)
class ScoreLoss:
    """Mean of |grad E|² / 2 - laplacian of E: least where the scores of model and data agree.

    For linear experts the laplacian is a sum over features; otherwise one derivative per column.
    """

    energy: Energy

    def __call__(self, parameters: Any, batch: Any, key: Any) -> Any:
        """The mean over the batch."""
        slope = jax.grad(lambda x: jnp.sum(self.energy(parameters, x)))
        energy: Any = self.energy
        if isinstance(energy, LinearExperts):
            laplacian = _linear_laplacian(energy, parameters, batch)
        else:
            laplacian = jax.vmap(lambda x: jnp.trace(jax.jacfwd(lambda y: slope(y[None])[0])(x)))(
                batch
            )
        return jnp.mean(0.5 * jnp.sum(slope(batch) ** 2, axis=-1) - laplacian)


def _linear_laplacian(energy: LinearExperts, parameters: Any, x: Any) -> Any:
    """sum_i E_i''(u_i) |w_i|², and that of the energy of the length."""
    shapes = shapes_of(parameters)
    u = energy.features(parameters, x)
    ones = jnp.ones_like(u)

    def slope(at: Any) -> Any:
        return jax.grad(lambda v: jnp.sum(energy.experts.energy(v, shapes)))(at)

    curvature = jax.jvp(slope, (u,), (ones,))[1]
    total = curvature @ jnp.sum(parameters["filters"] ** 2, axis=1)
    if not energy.contrast:
        return total

    def rise(at: Any) -> Any:
        return jax.grad(lambda s: jnp.sum(contrast_energy(parameters, s)))(at)

    squares = jnp.sum(x * x, axis=-1)
    first, second = jax.jvp(rise, (squares,), (jnp.ones_like(squares),))
    return total + 2.0 * x.shape[-1] * first + 4.0 * squares * second


class ScoreLearner(EnergyLearner):
    """Base of the learners that match scores.

    They minimise the mean squared difference of the slopes of two log-densities, which says nothing
    of the density where that of the rows has a kink or falls to zero: Laplace's density at 0, for
    which a sharp peak with heavy tails scores better than the truth.
    """


class ScoreMatching(ScoreLearner):
    """Exact score matching, for rows whose density has no kink."""

    name: ClassVar[str] = "score-matching"
    summary: ClassVar[str] = "scores of model and data agree; no samples"

    def rule(self, energy: Energy) -> EnergyRule:
        """The loss of score matching."""
        return ScoreRule(ScoreLoss(energy))


class ScoreRule(EnergyRule):
    """A score-matching loss as a rule."""

    objective_name: ClassVar[str] = "score-matching loss per row"


@dataclass(frozen=True)
class _DenoisingLoss:
    """The score of the model at rows with noise points back to the rows."""

    energy: Energy
    noise: float

    def __call__(self, parameters: Any, batch: Any, key: Any) -> Any:
        noise = self.noise * jax.random.normal(key, batch.shape, batch.dtype)
        slope = jax.grad(lambda x: jnp.sum(self.energy(parameters, x)))(batch + noise)
        return 0.5 * jnp.mean(jnp.sum((slope - noise / self.noise**2) ** 2, axis=-1))


@dataclass(frozen=True)
class DenoisingScoreMatching(ScoreLearner):
    """Score matching of rows with Gaussian noise: learns the density of the noisy rows."""

    name: ClassVar[str] = "denoising"
    summary: ClassVar[str] = "score matching of rows with noise"

    noise: float = option(0.3, "standard deviation of the noise", above=0)

    def rule(self, energy: Energy) -> EnergyRule:
        """The denoising loss."""
        return ScoreRule(_DenoisingLoss(energy, self.noise))


@dataclass(frozen=True)
class _NoiseContrastiveLoss:
    """Cross-entropy of telling rows from standard Gaussian noise."""

    energy: Energy
    ratio: int
    scale: float

    def __call__(self, parameters: Any, batch: Any, key: Any) -> Any:
        size = (self.ratio * batch.shape[0], batch.shape[1])
        noise = self.scale * jax.random.normal(key, size, batch.dtype)

        def log_ratio(x: Any) -> Any:
            dimension = x.shape[-1] * jnp.log(jnp.sqrt(2 * jnp.pi) * self.scale)
            log_noise = -0.5 * jnp.sum(x * x, axis=-1) / self.scale**2 - dimension
            model = -self.energy(parameters, x) - parameters[LOG_Z]
            return model - log_noise - jnp.log(float(self.ratio))

        rows, others = log_ratio(batch), log_ratio(noise)
        told = jnp.mean(jax.nn.softplus(-rows))
        return told + self.ratio * jnp.mean(jax.nn.softplus(others))


@dataclass(frozen=True)
class NoiseContrastive(EnergyLearner):
    """Tells rows from Gaussian noise, and learns log Z with it."""

    name: ClassVar[str] = "nce"

    ratio: int = option(5, "noise rows for each row", low=1)
    scale: float = option(1.5, "standard deviation of the noise, for white rows", above=0)

    def rule(self, energy: Energy) -> EnergyRule:
        """The cross-entropy."""
        return CrossEntropyRule(_NoiseContrastiveLoss(energy, self.ratio, self.scale))


class CrossEntropyRule(EnergyRule):
    """Noise-contrastive estimation as a rule."""

    objective_name: ClassVar[str] = "cross-entropy per row"


LEARNERS: Registry[EnergyLearner] = Registry(
    "kikuchi.energy",
    "learner",
    {
        cls.name: cls
        for cls in (
            EnergyDivergence,
            PersistentChains,
            Equilibrium,
            SquareLikelihood,
            ScoreMatching,
            DenoisingScoreMatching,
            NoiseContrastive,
        )
    },
)
