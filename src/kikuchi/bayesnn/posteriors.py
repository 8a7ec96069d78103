"""Families of Gaussian posteriors of the weights: diagonal, layered, full, and mixtures.

A family has its parameters as one flat vector. Means are in units of given standard deviations,
and factors of covariances relative to them, so that all parameters are of about the same size; the
vector is then a good one for L-BFGS. Weights that were removed (`kept` is 0) are exactly 0.

Reference: LAW-I18, LAW-I19.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kikuchi.bayesnn.moments import (
    UnitMoments,
    activation,
    crossed,
    product_mean,
    product_slopes,
    quadratic_forms,
    square_mean,
    unit_moments,
)
from kikuchi.bayesnn.network import Network
from kikuchi.core.errors import MethodError, suggestion

_LOG_2PI = math.log(2.0 * math.pi)


class Weights(NamedTuple):
    """Interpretation of the parameters of a posterior: units of the weights, and which are retained
    (1 or 0).
    """

    scale: Any
    kept: Any


class OutputMoments(NamedTuple):
    """Mean and variance of the network's output for each row."""

    mean: Any
    variance: Any


@dataclass(frozen=True)
class WeightPosterior(ABC):
    """A family of distributions of the weights of a network."""

    network: Network

    @property
    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters, in their order in the flat vector."""

    @abstractmethod
    def initial(self, mean: Any, sd: Any, scale: Any) -> Any:
        """Parameters of independent weights with these means and standard deviations."""

    @property
    def n_networks(self) -> int:
        """Number of networks that the weights belong to."""
        return 1

    @property
    def n_weights(self) -> int:
        """All weights, of all networks."""
        return self.n_networks * self.network.n_weights

    @property
    def n_apart(self) -> int:
        """Number of component positions that a start needs; 0 for one component."""
        return 0

    def initial_apart(self, mean: Any, sd: Any, scale: Any, places: Any) -> Any:
        """`initial`, with components at `places` (components, weights) if there are several."""
        del places
        return self.initial(mean, sd, scale)

    @property
    def held(self) -> Any:
        """Which parameters are held at first, until the others have settled (True or False)."""
        return np.zeros(self.size, dtype=bool)

    @abstractmethod
    def output(self, q: Any, x: Any) -> OutputMoments:
        """Moments of f at rows that end with a 1, in closed form."""

    @abstractmethod
    def marginals(self, q: Any) -> tuple[Any, Any]:
        """Mean and variance of each weight."""

    @abstractmethod
    def entropy(self, q: Any, weights: Weights) -> Any:
        """Entropy, or a lower bound on it."""

    @abstractmethod
    def read(self, flat: Any, weights: Weights) -> Any:
        """The distribution that a flat vector of parameters stands for."""

    @abstractmethod
    def sample(self, q: Any, key: Any, count: int) -> Any:
        """Independent vectors of weights."""

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def unpack(self, flat: Any) -> dict[str, Any]:
        """The parameters by name."""
        arrays, start = {}, 0
        for name, shape in self.shapes.items():
            end = start + math.prod(shape)
            arrays[name] = flat[start:end].reshape(shape)
            start = end
        return arrays

    def _pack(self, **given: Any) -> Any:
        zeros = {name: np.zeros(shape) for name, shape in self.shapes.items()}
        return np.concatenate([np.ravel(a) for a in (zeros | given).values()])


# ---------------------------------------------------------------------- independent weights


class Independent(NamedTuple):
    """Means and standard deviations of independent weights."""

    mean: Any
    sd: Any


@dataclass(frozen=True)
class DiagonalPosterior(WeightPosterior):
    """All weights independent.

    >>> DiagonalPosterior(Network(2, 3)).size
    26
    """

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Means and logarithms of standard deviations."""
        k = self.network.n_weights
        return {"mean": (k,), "log_sd": (k,)}

    def initial(self, mean: Any, sd: Any, scale: Any) -> Any:
        """Exactly these."""
        return self._pack(mean=mean / scale, log_sd=np.log(sd / scale))

    def read(self, flat: Any, weights: Weights) -> Independent:
        """Means and standard deviations."""
        p, unit = self.unpack(flat), weights.kept * weights.scale
        return Independent(unit * p["mean"], unit * jnp.exp(p["log_sd"]))

    def entropy(self, q: Independent, weights: Weights) -> Any:
        """Exact."""
        return _entropy_of_diagonal(q.sd, weights)

    def marginals(self, q: Independent) -> tuple[Any, Any]:
        """Mean and variance of each weight."""
        return q.mean, q.sd**2

    def output(self, q: Independent, x: Any) -> OutputMoments:
        """Mean and variance of f."""
        return _independent_output(self.network, q, x)

    def sample(self, q: Independent, key: Any, count: int) -> Any:
        """Independent vectors of weights."""
        return q.mean + q.sd * jax.random.normal(key, (count, self.network.n_weights))


def _independent_output(network: Network, q: Independent, x: Any) -> OutputMoments:
    (u, o), (du, do) = network.split(q.mean), network.split(q.sd**2)
    mean, variance = x @ u.T, (x * x) @ du.T
    g = activation(mean / jnp.sqrt(1.0 + variance))
    z, split = network.linear_features(x), network.n_linear
    v, dv = o[split:], do[split:]
    hidden = square_mean(mean, variance) @ (v * v + dv) - (g * g) @ (v * v)
    return OutputMoments(z @ o[:split] + g @ v, (z * z) @ do[:split] + hidden)


# ---------------------------------------------------------------------- correlated weights


class LayeredFactor(NamedTuple):
    """Means, and the factor of the covariance: within each unit, output on units, within output."""

    mean: Any
    units: Any
    cross: Any
    output: Any


@dataclass(frozen=True)
class LayeredPosterior(WeightPosterior):
    """Weights correlated within each hidden unit, among output weights, and between output weights
    and all others; not between the weights into different units.
    """

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Means, logarithms of the diagonal of the factor, and what is below it."""
        n, inputs = self.network, self.network.n_inputs + 1
        return {
            "mean": (n.n_weights,),
            "log_diagonal": (n.n_weights,),
            "units": (n.n_hidden, inputs * (inputs - 1) // 2),
            "cross": (n.n_output, n.n_hidden, inputs),
            "output": (n.n_output * (n.n_output - 1) // 2,),
        }

    def initial(self, mean: Any, sd: Any, scale: Any) -> Any:
        """Exactly these, without correlations."""
        return self._pack(mean=mean / scale, log_diagonal=np.log(sd / scale))

    def read(self, flat: Any, weights: Weights) -> LayeredFactor:
        """Means and factor."""
        n, p = self.network, self.unpack(flat)
        unit = weights.kept * weights.scale
        (du, do), (su, so) = n.split(jnp.exp(p["log_diagonal"])), n.split(unit)
        ku, ko = n.split(weights.kept)
        inputs = jax.vmap(_lower)(du, p["units"])
        return LayeredFactor(
            unit * p["mean"],
            su[:, :, None] * ku[:, None, :] * inputs,
            so[:, None, None] * ku * p["cross"],
            so[:, None] * ko * _lower(do, p["output"]),
        )

    def entropy(self, q: LayeredFactor, weights: Weights) -> Any:
        """Exact."""
        du = jnp.diagonal(q.units, axis1=1, axis2=2).reshape(-1)
        return _entropy_of_diagonal(jnp.concatenate([du, jnp.diagonal(q.output)]), weights)

    def marginals(self, q: LayeredFactor) -> tuple[Any, Any]:
        """Mean and variance of each weight."""
        into = jnp.sum(q.units**2, axis=2).reshape(-1)
        out = jnp.sum(q.cross**2, axis=(1, 2)) + jnp.sum(q.output**2, axis=1)
        return q.mean, jnp.concatenate([into, out])

    def output(self, q: LayeredFactor, x: Any) -> OutputMoments:
        """Mean and variance of f."""
        n = self.network
        u, o = n.split(q.mean)
        v = o[n.n_linear :]
        m = unit_moments(x @ u.T, quadratic_forms(q.units, x))
        g = jnp.concatenate([n.linear_features(x), m.mean], axis=1)
        # covariances of outgoing weights and incoming ones
        pairs = jnp.einsum("hij,ohj->ohi", q.units, q.cross)
        own = x @ jnp.diagonal(pairs[n.n_linear :])
        dv = (jnp.sum(q.cross**2, axis=(1, 2)) + jnp.sum(q.output**2, axis=1))[n.n_linear :]
        mean, pull, square = _own_terms(m, v, dv, own)
        flat = q.cross.reshape(n.n_output, -1)
        spread = jnp.sum((g @ (q.output @ q.output.T + flat @ flat.T)) * g, axis=1)
        others = crossed(pairs, g, m.slope, pull, x)
        inner = square - mean**2 - dv * m.mean**2
        return OutputMoments(
            g[:, : n.n_linear] @ o[: n.n_linear] + jnp.sum(mean, axis=1),
            spread + others + jnp.sum(inner, axis=1),
        )

    def sample(self, q: LayeredFactor, key: Any, count: int) -> Any:
        """Independent vectors of weights."""
        n = self.network
        into, out = n.split(jax.random.normal(key, (count, n.n_weights)))
        u = jnp.einsum("hij,chj->chi", q.units, into).reshape(count, -1)
        o = out @ q.output.T + jnp.einsum("ohj,chj->co", q.cross, into)
        return q.mean + jnp.concatenate([u, o], axis=1)


class FullFactor(NamedTuple):
    """Means, and the lower triangular factor of the covariance."""

    mean: Any
    factor: Any


@dataclass(frozen=True)
class FullPosterior(WeightPosterior):
    """All weights correlated."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Means, logarithms of the diagonal of the factor, and what is below it."""
        k = self.network.n_weights
        return {"mean": (k,), "log_diagonal": (k,), "below": (k * (k - 1) // 2,)}

    def initial(self, mean: Any, sd: Any, scale: Any) -> Any:
        """Exactly these, without correlations."""
        return self._pack(mean=mean / scale, log_diagonal=np.log(sd / scale))

    def read(self, flat: Any, weights: Weights) -> FullFactor:
        """Means and factor."""
        p, unit = self.unpack(flat), weights.kept * weights.scale
        factor = unit[:, None] * weights.kept * _lower(jnp.exp(p["log_diagonal"]), p["below"])
        return FullFactor(unit * p["mean"], factor)

    def entropy(self, q: FullFactor, weights: Weights) -> Any:
        """Exact."""
        return _entropy_of_diagonal(jnp.diagonal(q.factor), weights)

    def marginals(self, q: FullFactor) -> tuple[Any, Any]:
        """Mean and variance of each weight."""
        return q.mean, jnp.sum(q.factor**2, axis=1)

    def output(self, q: FullFactor, x: Any) -> OutputMoments:
        """Mean and variance of f."""
        n = self.network
        u, o = n.split(q.mean)
        into, out = q.factor[: n.n_into_hidden], q.factor[n.n_into_hidden :]
        r = jnp.einsum("ni,hik->nhk", x, into.reshape(n.n_hidden, -1, n.n_weights))
        z, v = n.linear_features(x), o[n.n_linear :]
        line = z @ out[: n.n_linear]  # the linear part of the output, as rows of the factor
        out_v = out[n.n_linear :]
        c = jnp.einsum("ok,nhk->noh", out_v, r)
        own = jnp.diagonal(c, axis1=1, axis2=2)
        dv = jnp.sum(out_v**2, axis=1)
        wide = 1.0 + jnp.sum(r * r, axis=2)
        a = x @ u.T
        m = unit_moments(a, wide - 1.0)
        mean, pull, square = _own_terms(m, v, dv, own)
        variance = jnp.sum(line * line, axis=1) + jnp.sum(square - mean**2, axis=1)
        variance += 2.0 * jnp.sum((line @ out_v.T) * m.mean, axis=1)
        variance += 2.0 * jnp.sum(jnp.einsum("nk,nhk->nh", line, r) * pull, axis=1)
        i, j = np.triu_indices(n.n_hidden, 1)
        pairs = _pair_terms(
            (v[i], v[j], (out_v @ out_v.T)[i, j]),
            (a[:, i], a[:, j]),
            (wide[:, i], wide[:, j], jnp.einsum("nhk,nlk->nhl", r, r)[:, i, j]),
            (own[:, i], c[:, i, j], c[:, j, i], own[:, j]),
        )
        variance += 2.0 * jnp.sum(pairs - mean[:, i] * mean[:, j], axis=1)
        return OutputMoments(z @ o[: n.n_linear] + jnp.sum(mean, axis=1), variance)

    def sample(self, q: FullFactor, key: Any, count: int) -> Any:
        """Independent vectors of weights."""
        return q.mean + jax.random.normal(key, (count, self.network.n_weights)) @ q.factor.T


def _lower(diagonal: Any, below: Any) -> Any:
    """Lower triangular matrix with this diagonal, and `below` row by row."""
    i, j = np.tril_indices(diagonal.shape[0], -1)
    return jnp.diag(diagonal).at[i, j].set(below)


def _entropy_of_diagonal(diagonal: Any, weights: Weights) -> Any:
    """Entropy of a Gaussian whose covariance has a factor with this diagonal."""
    safe = jnp.where(weights.kept > 0, diagonal, 1.0)
    return jnp.sum(weights.kept * (jnp.log(safe) + 0.5 * (1.0 + _LOG_2PI)), axis=-1)


def _own_terms(m: UnitMoments, v: Any, dv: Any, own: Any) -> tuple[Any, Any, Any]:
    """<v g>, <v g'> and <v² g²> of each unit; `own` is the covariance of v and the activation.

    By Stein's lemma, a factor v is its mean, plus its covariance times a derivative by the mean.
    """
    mean = v * m.mean + own * m.slope
    pull = v * m.slope + own * m.curvature
    square = (v * v + dv) * m.square + 2.0 * v * own * m.square_slope
    return mean, pull, square + own * own * m.square_curvature


def _pair_terms(weights: Any, means: Any, spreads: Any, across: Any) -> Any:
    """<v_i v_j g_i g_j> of pairs of units.

    `weights` are the means of v_i and v_j and their covariance, `means` those of the activations,
    `spreads` the widened variances of these and their covariance, `across` the covariances c_ii,
    c_ij, c_ji and c_jj of v_i and activation j.
    """
    (vi, vj, vij), (ai, aj), (wi, wj, sij), (cii, cij, cji, cjj) = weights, means, spreads, across
    ri, rj = jnp.sqrt(wi), jnp.sqrt(wj)
    h, k, rho = ai / ri, aj / rj, sij / (ri * rj)
    by_h, by_k, by_rho = product_slopes(h, k, rho)
    di, dj, dij = by_h / ri, by_k / rj, by_rho / (ri * rj)
    dii = -(h * by_h + rho * by_rho) / wi
    djj = -(k * by_k + rho * by_rho) / wj
    total = (vi * vj + vij) * product_mean(h, k, rho)
    total += vi * (cji * di + cjj * dj) + vj * (cii * di + cij * dj)
    return total + cii * cji * dii + cij * cjj * djj + (cii * cjj + cij * cji) * dij


# ---------------------------------------------------------------------- mixtures


class WeightMixture(NamedTuple):
    """Log probabilities of components, components, and their Gaussian smoothing functions."""

    log_weights: Any
    components: Independent
    smoothing: Independent


@dataclass(frozen=True)
class MixturePosterior(WeightPosterior):
    """A mixture of components with independent weights.

    Its entropy is the mean of those of the components plus the mutual information between weights
    and component, which is bounded below by Lawrence's bound with Gaussian smoothing functions.

    Reference: LAW-I19.
    """

    n_components: int = 5

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Logits, then means and log standard deviations of components and smoothing functions."""
        m, k = self.n_components, self.network.n_weights
        names = ("mean", "log_sd", "smoothing_mean", "smoothing_log_sd")
        return {"logits": (m,), **dict.fromkeys(names, (m, k))}

    def initial(self, mean: Any, sd: Any, scale: Any) -> Any:
        """Components apart by a part of these standard deviations, each for itself."""
        rng = np.random.default_rng(0)
        noise = rng.standard_normal((self.n_components, self.network.n_weights))
        return self.initial_apart(mean, sd, scale, mean + _APART * sd * noise)

    @property
    def n_apart(self) -> int:
        """One for each component."""
        return self.n_components

    def initial_apart(self, mean: Any, sd: Any, scale: Any, places: Any) -> Any:
        """Components at these places, of equal probability, with smoothing functions twice as
        wide; without places as `initial`.
        """
        if places is None:
            return self.initial(mean, sd, scale)
        log_sd = np.broadcast_to(np.log(sd / scale), places.shape)
        return self._pack(
            mean=places / scale,
            log_sd=log_sd,
            smoothing_mean=places / scale,
            smoothing_log_sd=log_sd + math.log(_WIDE),
        )

    @property
    def held(self) -> Any:
        """The probabilities: else components that begin badly are given up at once."""
        return np.arange(self.size) < self.n_components

    def read(self, flat: Any, weights: Weights) -> WeightMixture:
        """Probabilities, components and smoothing functions."""
        p, unit = self.unpack(flat), weights.kept * weights.scale
        return WeightMixture(
            jax.nn.log_softmax(p["logits"]),
            Independent(unit * p["mean"], unit * jnp.exp(p["log_sd"])),
            Independent(unit * p["smoothing_mean"], unit * jnp.exp(p["smoothing_log_sd"])),
        )

    def entropy(self, q: WeightMixture, weights: Weights) -> Any:
        """A lower bound."""
        within = _entropy_of_diagonal(q.components.sd, weights)
        return jnp.exp(q.log_weights) @ within + information_bound(q, weights.kept)

    def marginals(self, q: WeightMixture) -> tuple[Any, Any]:
        """Mean and variance of each weight."""
        share = jnp.exp(q.log_weights)
        mean = share @ q.components.mean
        return mean, share @ (q.components.sd**2 + q.components.mean**2) - mean**2

    def output(self, q: WeightMixture, x: Any) -> OutputMoments:
        """Mean and variance of f."""
        parts = jax.vmap(lambda part: _independent_output(self.network, part, x))(q.components)
        share = jnp.exp(q.log_weights)
        mean = share @ parts.mean
        return OutputMoments(mean, share @ (parts.variance + (parts.mean - mean) ** 2))

    def sample(self, q: WeightMixture, key: Any, count: int) -> Any:
        """Independent vectors of weights."""
        first, second = jax.random.split(key)
        chosen = jax.random.categorical(first, q.log_weights, shape=(count,))
        noise = jax.random.normal(second, (count, self.network.n_weights))
        return q.components.mean[chosen] + q.components.sd[chosen] * noise


_APART = 1.5  # standard deviations of the first means of components around those given
_WIDE = 2.0  # standard deviations of the first smoothing functions, in those of components


def information_bound(q: WeightMixture, kept: Any) -> Any:
    """Lower bound on the mutual information of weights and component, at most log(components).

    With smoothing functions r_m and the best lambda_m = Q(m) / sum_k Q(k) <r_m>_k put in,

        I >= sum_m Q(m) (<ln r_m>_m - ln sum_k Q(k) <r_m>_k).

    Reference: LAW-I19.
    """
    (means, sds), (centres, widths) = q.components, q.smoothing
    widths = jnp.where(kept > 0, widths, 1.0)
    own = -0.5 * jnp.sum(kept * (sds**2 + (means - centres) ** 2) / widths**2, axis=1)
    total = sds[:, None] ** 2 + widths**2  # (component, smoothing function, weight)
    gap = (means[:, None] - centres) ** 2 / total + jnp.log(total / widths**2)
    log_overlap = -0.5 * jnp.sum(kept * gap, axis=2)
    smoothed = jax.nn.logsumexp(q.log_weights[:, None] + log_overlap, axis=0)
    return jnp.exp(q.log_weights) @ (own - smoothed)


# ---------------------------------------------------------------------- by name


POSTERIORS: dict[str, Callable[[Network], WeightPosterior]] = {
    "diagonal": DiagonalPosterior,
    "layered": LayeredPosterior,
    "full": FullPosterior,
}


def weight_posterior(text: str, network: Network) -> WeightPosterior:
    """The family that a text names: diagonal, layered, full, or mixture:M with M components.

    >>> weight_posterior("mixture:3", Network(2, 3)).n_components
    3
    """
    if text in POSTERIORS:
        return POSTERIORS[text](network)
    name, _, count = text.partition(":")
    if name == "mixture" and count.isdecimal() and int(count) >= 2:
        return MixturePosterior(network, int(count))
    if name == "mixture":
        raise MethodError(f"posterior '{text}': write mixture:M with at least 2 components")
    known = [*POSTERIORS, "mixture:M with M components"]
    raise MethodError(f"there is no posterior '{text}'; {suggestion(text, known)}")
