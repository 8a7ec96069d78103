"""`TransportGenerator`: samples learnt by entropic optimal transport to the rows, no density
needed.

For a batch of rows x and as many generated y = g(z), the plan P minimises <P, M> - epsilon H(P)
with both marginals given, M being squared distances per column. Sinkhorn's scaling finds it in the
log domain; by the envelope theorem the gradient of the generator is that of <P, M> with P held
fixed. Subtracting half the costs of the samples with themselves removes the bias towards the mean.

Against an adversary, distances are those of features f of the rows, M_ij = |f(x_i) - f(y_j)|, and f
learns to keep generated rows further from the rows than the rows are from each other: it descends
max(0, W(x, x') - W(x, y) + margin), with x and x' the halves of a batch, while the generator
descends W(x, y).

Reference: LIU-M16, LIU-L11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError
from kikuchi.core.options import option
from kikuchi.core.seeds import Seed, generator
from kikuchi.flows import kinds
from kikuchi.flows.options import PreparedEstimator
from kikuchi.flows.preparation import Dequantisation, padded
from kikuchi.flows.two_sample import TwoSampleTest, mmd_test, nearest_neighbour_test
from kikuchi.training.model import PytreeModel
from kikuchi.training.optimiser import precision
from kikuchi.training.rule import LossRule
from kikuchi.training.trainer import Validation
from kikuchi.training.updates import loss_of

_JUDGED = 256  # validation rows at most
_FEWEST, _COMPARED = 20, 400  # rows that generated ones are compared with, at least and at most
_LEVEL = 0.001  # p-value of the nearest-neighbour test below which samples differ from the rows
_DEVIATIONS = 5.0  # of the maximum mean discrepancy above which they do


class GeneratorNetwork(PytreeModel):
    """Layers of a network from noise to rows."""

    kind: ClassVar[str] = "transport-generator"
    weight_limit: ClassVar[float] = 1e4
    batch_dtype = np.float32

    @classmethod
    def random(
        cls, sizes: list[int], rng: np.random.Generator, features: list[int] | None = None
    ) -> GeneratorNetwork:
        """Layers of these sizes, and those of a feature map of rows."""
        layers = _random_layers("layer", sizes, rng) | _random_layers(
            "feature", features or [], rng
        )
        return cls(layers, {"sizes": sizes, "features": features or []})


def _random_layers(name: str, sizes: list[int], rng: np.random.Generator) -> dict[str, Any]:
    layers: dict[str, Any] = {}
    for k, (before, after) in enumerate(pairwise(sizes)):
        weights = rng.normal(size=(before, after)) * np.sqrt(2.0 / before)
        layers[f"{name}{k}"] = {
            "weights": weights.astype(np.float32),
            "bias": np.zeros(after, np.float32),
        }
    return layers


def generated(layers: Mapping[str, Any], noise: Any) -> Any:
    """Rows of the network at noise."""
    return _through(layers, "layer", noise)


def _through(layers: Mapping[str, Any], name: str, x: Any) -> Any:
    """Rows through the layers of this name; the last one is linear."""
    count = sum(key.startswith(name) for key in layers)
    for k in range(count):
        layer = layers[f"{name}{k}"]
        x = x @ layer["weights"] + layer["bias"]
        if k + 1 < count:
            x = jax.nn.silu(x)
    return x


def sinkhorn_plan(cost: Any, a: Any, b: Any, epsilon: float, iterations: int) -> Any:
    """The entropic plan between weights a and b, by scaling in the log domain.

    >>> cost = jnp.asarray([[0.0, 1.0], [1.0, 0.0]])
    >>> half = jnp.full(2, 0.5)
    >>> plan = sinkhorn_plan(cost, half, half, 0.1, 100)
    >>> np.asarray(plan.sum(axis=0)).round(4).tolist(), bool(plan[0, 0] > 0.49)
    ([0.5, 0.5], True)
    """
    kernel = -cost / epsilon
    log_a, log_b = jnp.log(a), jnp.log(b)

    def scale(_: Any, potentials: Any) -> Any:
        _, g = potentials
        f = log_a - jax.scipy.special.logsumexp(kernel + g[None], axis=1)
        g = log_b - jax.scipy.special.logsumexp(kernel + f[:, None], axis=0)
        return f, g

    f, g = jax.lax.fori_loop(0, iterations, scale, (jnp.zeros_like(a), jnp.zeros_like(b)))
    return jnp.exp(kernel + f[:, None] + g[None])


@dataclass(frozen=True)
class SinkhornLoss:
    """Base of the losses that transport rows by entropic plans."""

    epsilon: float
    iterations: int

    def transported(self, cost: Any, a: Any, b: Any) -> Any:
        """The price of the plan between weights a and b, whose slope is that of the cost."""
        fixed = jax.lax.stop_gradient(cost)
        return jnp.sum(sinkhorn_plan(fixed, a, b, self.epsilon, self.iterations) * cost)


@dataclass(frozen=True)
class TransportLoss(SinkhornLoss):
    """Sinkhorn divergence between a batch and as many generated rows."""

    debiased: bool

    def __call__(self, layers: Any, batch: Any, key: Any) -> Any:
        """Transport cost per column, less half the costs within each sample."""
        rows, weights = batch
        inputs = layers["layer0"]["weights"].shape[0]
        noise = jax.random.normal(key, (len(rows), inputs), rows.dtype)
        drawn = generated(layers, noise)
        a = weights / jnp.sum(weights)
        b = jnp.full(len(rows), 1.0 / len(rows), rows.dtype)
        value = self._cost(rows, drawn, a, b)
        if self.debiased:
            value -= 0.5 * self._cost(drawn, drawn, b, b) + 0.5 * self._cost(rows, rows, a, a)
        return value

    def _cost(self, x: Any, y: Any, a: Any, b: Any) -> Any:
        squares = jnp.sum(x * x, -1)[:, None] + jnp.sum(y * y, -1)[None] - 2.0 * x @ y.T
        return self.transported(jnp.maximum(squares, 0.0) / x.shape[1], a, b)


@dataclass(frozen=True)
class AdversarialLoss(SinkhornLoss):
    """The losses of generator and feature map in one: each is held fixed in that of the other."""

    margin: float

    def __call__(self, layers: Any, batch: Any, key: Any) -> Any:
        """W(x, y) for the generator, max(0, W(x, x') - W(x, y) + margin) for the features."""
        for_generator, for_features = self.parts(layers, batch, key)
        return for_generator + for_features

    def parts(self, layers: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        """Both losses."""
        rows, weights = batch
        half = len(rows) // 2
        x, other = rows[:half], rows[half : 2 * half]
        a, b = (w / jnp.sum(w) for w in (weights[:half], weights[half : 2 * half]))
        inputs = layers["layer0"]["weights"].shape[0]
        drawn = generated(layers, jax.random.normal(key, (half, inputs), rows.dtype))
        even = jnp.full(half, 1.0 / half, rows.dtype)
        fixed = jax.lax.stop_gradient(layers)
        for_generator = self._cost(fixed, x, drawn, a, even)
        apart = self._cost(layers, x, jax.lax.stop_gradient(drawn), a, even)
        together = self._cost(layers, x, other, a, b)
        return for_generator, jnp.maximum(together - apart + self.margin, 0.0)

    def _cost(self, layers: Any, x: Any, y: Any, a: Any, b: Any) -> Any:
        f, g = (_through(layers, "feature", rows) for rows in (x, y))
        squares = jnp.sum((f[:, None] - g[None]) ** 2, axis=-1)
        cost = jnp.sqrt(squares + 1e-12)  # a slope of 0 where two rows meet
        return self.transported(cost, a, b)


@dataclass(frozen=True)
class TransportScore:
    """Score of validation rows: minus their transport cost in the columns themselves."""

    loss: TransportLoss

    def __call__(self, model: GeneratorNetwork, batch: Any) -> float:
        """Larger is better."""
        typed = tuple(np.asarray(part, np.float32) for part in batch)
        return -loss_of(self.loss, model.parameters, typed)


@dataclass(frozen=True)
class TransportRule(LossRule):
    """The transport cost as a rule."""

    objective_name: ClassVar[str] = "transport cost per column"


@dataclass(eq=False, repr=False)
class TransportGenerator(PreparedEstimator):
    """A network from Gaussian noise to rows, learnt by entropic optimal transport.

    It has samples but no density; `measure` compares them with rows by two-sample tests. With
    `features` distances are those of a feature map that is learnt against the generator.

    Attributes
    ----------
    model_, preparation_, validation_scores_, trace_, converged_, stopped_, n_iter_, warnings_.

    >>> rows = np.random.default_rng(0).normal(size=(300, 2)) + [3.0, 0.0]
    >>> model = TransportGenerator(max_iter=3, width=16, random_state=0).fit(rows)
    >>> model.sample(4, random_state=0).shape
    (4, 2)

    Reference: LIU-M16.
    """

    kind = kinds.TRANSPORT
    model_class: ClassVar[Any] = GeneratorNetwork

    n_components: int | None = option(
        None, "Columns of the noise; none: as many as rows have.", low=1
    )
    _: KW_ONLY
    width: int = option(64, "Units of each hidden layer.", low=1)
    depth: int = option(2, "Hidden layers.", low=1)
    epsilon: float = option(0.05, "Strength of the entropy, for standardised columns.", above=0)
    inner_max_iter: int = option(30, "Scalings per plan.", low=1, high=2**31 - 1)
    debiased: bool = option(True, "Subtract half the costs within each sample.")
    features: int | None = option(
        None,
        "Outputs of a feature map that learns against the generator; none: distances of columns.",
        low=1,
    )
    margin: float = option(1.0, "By which features are to keep generated rows apart.", above=0)
    dequantise: Dequantisation = option(
        "auto", "Uniform noise for whole numbers: auto, uniform or none (refuses them)."
    )
    validation_fraction: float = option(0.1, "Fraction of the rows held out.", low=0, below=1)
    patience: int = option(20, "Epochs without a better held-out score before the end.", low=1)
    solver: str = option("adam", "Optimiser of optax, or sgd.")
    learning_rate: float = option(2e-3, "Initial learning rate.", above=0)
    weight_decay: float = option(1e-5, "Weight decay.", low=0)
    batch_size: int = option(128, "Number of rows per update.", low=2)
    max_iter: int = option(100, "Passes over the rows at most.", low=1)

    def _begin(self, rows: Array, rng: np.random.Generator) -> GeneratorNetwork:
        count = min(round(self.validation_fraction * len(rows)), _JUDGED)
        self._held = rng.permutation(len(rows))[:count] if count >= 2 else np.arange(0)
        inputs = self.n_components or rows.shape[1]
        sizes = [inputs, *[self.width] * self.depth, rows.shape[1]]
        features = [rows.shape[1], *[self.width] * self.depth, self.features or 1]
        return GeneratorNetwork.random(sizes, rng, features if self.features else None)

    def _loss(self) -> TransportLoss:
        return TransportLoss(self.epsilon, self.inner_max_iter, self.debiased)

    def _rule(self, model: Any) -> TransportRule:
        if self.features:
            against = AdversarialLoss(self.epsilon, self.inner_max_iter, self.margin)
            return TransportRule(against)
        return TransportRule(self._loss())

    def _train(self, model: Any, rows: Array, rng: np.random.Generator, *arguments: Any) -> None:
        held = self.__dict__.pop("_held", np.arange(0))
        validation = None
        if len(held):
            score = TransportScore(self._loss())
            validation = Validation(padded(len(held), rows[held]), self.patience, score=score)
        training = self._trained(
            model,
            padded(self.batch_size, np.delete(rows, held, axis=0)),
            self._rule(model),
            rng,
            *arguments,
            validation=validation,
        )
        self.validation_scores_ = list(training.scores)
        self._keep(training, rng)
        self.warnings_ += self.__dict__.pop("_said", [])
        if len(rows) >= _FEWEST:
            own = generator(0)  # the state of the run's generator is that of its updates
            compared = rows[own.permutation(len(rows))[:_COMPARED]]
            self.warnings_ += self._differences(compared, own)

    def _differences(self, rows: Array, rng: np.random.Generator) -> list[str]:
        """A warning if generated rows differ from these prepared ones by a two-sample test."""
        layers = self._model.parameters
        inputs = layers["layer0"]["weights"].shape[0]
        noise = jnp.asarray(rng.normal(size=(len(rows), inputs)).astype(np.float32))
        with precision(layers):
            drawn = np.asarray(generated(layers, noise), dtype=np.float64)
        if not np.isfinite(drawn).all():
            return ["generated rows are not finite; lower learning_rate"]
        share = nearest_neighbour_test(rows, drawn)
        mmd = mmd_test(rows, drawn, seed=rng)
        apart = (mmd.statistic - mmd.null_mean) / max(mmd.null_deviation, 1e-300)
        if share.p_value >= _LEVEL and apart <= _DEVIATIONS:
            return []
        return [
            f"generated rows differ from the data: of {len(rows)} rows and as many generated ones, "
            f"{share.statistic:.0%} have a nearest neighbour of their own kind (50 % if they were "
            f"alike, p = {share.p_value:.1g}), and the maximum mean discrepancy is {apart:.1f} "
            "standard deviations above that of equal laws; raise max_iter or the width, or "
            "use LatentMixtureFlow"
        ]

    def sample(self, n_samples: int = 1, *, random_state: Seed = None) -> Array:
        """`n_samples` generated rows, drawn with the seed `random_state`; whole numbers in columns
        that were dequantised.
        """
        if n_samples < 1:
            raise DataError(f"a sample of {n_samples} rows; give at least 1")
        layers = self._model.parameters
        inputs = layers["layer0"]["weights"].shape[0]
        noise = generator(random_state).normal(size=(n_samples, inputs)).astype(np.float32)
        with precision(layers):
            rows = np.asarray(generated(layers, jnp.asarray(noise)), dtype=np.float64)
        return self.preparation_.restored(rows)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Minus the transport cost per column between the rows of `X` and as many generated ones;
        `y` is ignored.
        """
        self._model  # noqa: B018  (refuses an estimator that was not fitted)
        rows = self._rows(X).astype(np.float32)
        what = f"a transport plan between {len(rows)} rows and as many"
        Budget().require_bytes(16 * len(rows) ** 2, what, "give a random part of the rows")
        batch = (rows, np.ones(len(rows), np.float32))
        return -loss_of(self._loss(), self._model.parameters, batch)

    def measure(self, X: ArrayLike, *, random_state: Seed = 0) -> dict[str, TwoSampleTest]:
        """Two-sample tests, `mmd` and `nearest-neighbour`, between the rows of `X` and as many that
        are generated with the seed `random_state`, columns standardised.
        """
        self._model  # noqa: B018  (refuses an estimator that was not fitted)
        told = self.preparation_
        rows = told.standardised(self._checked(X))
        drawn = told.standardised(self.sample(len(rows), random_state=random_state))
        return {
            "mmd": mmd_test(rows, drawn),
            "nearest-neighbour": nearest_neighbour_test(rows, drawn),
        }
