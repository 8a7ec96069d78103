"""Posteriors of several networks alike, as classification with more than two classes needs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kikuchi.bayesnn.posteriors import OutputMoments, WeightPosterior, Weights


@dataclass(frozen=True)
class NetworksPosterior(WeightPosterior):
    """Independent posteriors of one family, of several networks alike; outputs (networks, rows)."""

    each: WeightPosterior
    count: int

    @property
    def n_networks(self) -> int:
        """The number of networks."""
        return self.count

    @property
    def n_apart(self) -> int:
        """Places for the components of each network."""
        return self.each.n_apart

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The parameters of one network after the other."""
        return {"networks": (self.count, self.each.size)}

    def _rows(self, *arrays: Any) -> list[Any]:
        return [a.reshape(self.count, self.network.n_weights) for a in arrays]

    def initial(self, mean: Any, sd: Any, scale: Any) -> Any:
        """Return those of each network."""
        return self.initial_apart(mean, sd, scale, None)

    def initial_apart(self, mean: Any, sd: Any, scale: Any, places: Any) -> Any:
        """Return those of each network, with components at their part of `places`."""
        means, sds, scales = self._rows(mean, sd, scale)
        parts = [None] * self.count if places is None else np.split(places, self.count, axis=1)
        given = zip(means, sds, scales, parts, strict=True)
        return np.concatenate([self.each.initial_apart(*own) for own in given])

    @property
    def held(self) -> Any:
        """Return those of each network."""
        return np.tile(self.each.held, self.count)

    def read(self, flat: Any, weights: Weights) -> Any:
        """A distribution whose arrays have a first axis of networks."""
        scale, kept = self._rows(*weights)
        parameters = flat.reshape(self.count, -1)
        return jax.vmap(lambda p, s, k: self.each.read(p, Weights(s, k)))(parameters, scale, kept)

    def output(self, q: Any, x: Any) -> OutputMoments:
        """Moments (networks, rows)."""
        return jax.vmap(lambda own: self.each.output(own, x))(q)

    def marginals(self, q: Any) -> tuple[Any, Any]:
        """Mean and variance of each weight, of one network after the other."""
        mean, variance = jax.vmap(self.each.marginals)(q)
        return mean.reshape(-1), variance.reshape(-1)

    def entropy(self, q: Any, weights: Weights) -> Any:
        """The sum."""
        scale, kept = self._rows(*weights)
        return jnp.sum(
            jax.vmap(lambda own, s, k: self.each.entropy(own, Weights(s, k)))(q, scale, kept)
        )

    def sample(self, q: Any, key: Any, count: int) -> Any:
        """Independent vectors of the weights of all networks."""
        keys = jax.random.split(key, self.count)
        draws = jax.vmap(lambda own, k: self.each.sample(own, k, count))(q, keys)
        return jnp.swapaxes(draws, 0, 1).reshape(count, -1)
