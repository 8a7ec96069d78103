"""The network of region-energy methods: embeddings, one attention layer, a head per table size.

One embedding per variable, one single-head self-attention layer over all of them, and for each
root region the concatenated outputs of its variables through two residual blocks to the logits of
its table. The network does not see the tables: it is trained anew for each model, a
smooth way to write down the beliefs. Shapes are padded to powers of two, so that models of like
size share one compilation.

Reference: LIU-M10.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.errors import MissingExtraError

_LEAST = {"variables": 16, "roots": 16, "order": 4, "table": 16, "heads": 4}


class Padded(NamedTuple):
    """Root regions in padded arrays: which variables, which head, and where their entries stand.

    `members` has a row per root, filled up with the number of an embedding that is always zero.
    `rows`, `columns` lead from the flat entries of all roots to the padded tables.
    """

    present: Mask
    members: Ints
    heads: Ints
    rows: Ints
    columns: Ints
    n_heads: int
    table: int


def padded_roots(n_variables: int, scopes: list[tuple[int, ...]], sizes: Ints) -> Padded:
    """Roots with these variables and table sizes, padded.

    >>> padded = padded_roots(3, [(0, 1), (1, 2)], np.array([4, 4]))
    >>> padded.members.shape, padded.n_heads, padded.table
    ((16, 4), 4, 16)
    """
    count = _bucket(n_variables, "variables")
    order = _bucket(max(map(len, scopes)), "order")
    members = np.full((_bucket(len(scopes), "roots"), order), count, dtype=np.int64)
    for row, scope in enumerate(scopes):
        members[row, : len(scope)] = scope
    kinds, head = np.unique(sizes, return_inverse=True)
    heads = np.zeros(len(members), dtype=np.int64)
    heads[: len(scopes)] = head
    ends = np.cumsum(sizes)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    columns = np.arange(int(ends[-1])) - np.repeat(ends - sizes, sizes)
    table = _bucket(int(sizes.max()), "table")
    present = np.arange(count) < n_variables
    return Padded(present, members, heads, rows, columns, _bucket(len(kinds), "heads"), table)


def _bucket(size: int, what: str) -> int:
    return max(_LEAST[what], 1 << max(size - 1, 0).bit_length())


def network_bytes(padded: Padded, embedding: int) -> int:
    """Memory of one step: attention between variables, the features of roots, and the head of each
    root, all with their derivatives.

    >>> network_bytes(padded_roots(3, [(0, 1), (1, 2)], np.array([4, 4])), 32)
    366592
    """
    roots, order = padded.members.shape
    wide = order * embedding
    return int(24 * len(padded.present) ** 2 + roots * wide * (48 + 8 * padded.table))


class NetworkDescent:
    """Adam on the weights of the network: cotangents of the logits in, the next logits out.

    Parameters
    ----------
    padded : the root regions.
    embedding : width of an embedding.
    rate : step size of Adam.
    seed : of the first weights.
    """

    def __init__(self, padded: Padded, embedding: int, rate: float, seed: int) -> None:
        functions = _functions()
        self.padded = padded
        self._arrays = (padded.present, padded.members, padded.heads)
        sizes = (len(padded.present), padded.members.shape[1], padded.n_heads, padded.table)
        self.weights = functions.start(seed, embedding, *sizes)
        self.moments = functions.moments(self.weights)
        self.rate = rate
        self._functions = functions

    def logits(self) -> Array:
        """Logits of all entries of the roots, one after the other."""
        return self._flat(self._functions.forward(self.weights, *self._arrays))

    def step(self, gradient: Array) -> Array:
        """One step against the gradient of the energy in the logits; answers the next logits."""
        cotangent = np.zeros((len(self.padded.members), self.padded.table), dtype=np.float32)
        cotangent[self.padded.rows, self.padded.columns] = gradient
        self.weights, self.moments, logits = self._functions.step(
            self.weights, self.moments, cotangent, np.float32(self.rate), *self._arrays
        )
        return self._flat(logits)

    def _flat(self, logits: Any) -> Array:
        whole = np.asarray(logits, dtype=np.float64)
        return np.asarray(whole[self.padded.rows, self.padded.columns])


class _Functions(NamedTuple):
    start: Any
    moments: Any
    forward: Any
    step: Any


_made: list[_Functions] = []


def _functions() -> _Functions:
    """The compiled functions, made once; compilations are shared by all models of like shape."""
    if _made:
        return _made[0]
    try:
        import equinox as eqx
        import jax
        import jax.numpy as jnp
        import optax  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtraError(
            "region-energy networks need JAX, equinox and optax; pip install 'kikuchi[learn]'"
        ) from None

    class RegionNetwork(eqx.Module):
        embeddings: Any
        attention: Any
        norm: Any
        blocks: Any
        heads: Any

        def __call__(self, present: Any, members: Any, heads: Any) -> Any:
            x = self.embeddings
            query, key, value, out = self.attention
            scores = jnp.where(present[None, :], (x @ query) @ (x @ key).T, -jnp.inf)
            h = jax.nn.softmax(scores, axis=1) @ (x @ value) @ out + x
            centred = h - h.mean(axis=1, keepdims=True)
            h = centred / jnp.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
            h = h * self.norm[0] + self.norm[1]
            h = jnp.concatenate([h, jnp.zeros((1, h.shape[1]))])
            features = h[members].reshape(len(members), -1)
            for (w1, b1), (w2, b2) in self.blocks:
                features += jax.nn.relu(jax.nn.relu(features @ w1 + b1) @ w2 + b2)
            w, b = self.heads
            return jnp.einsum("rd,rds->rs", features, w[heads]) + b[heads]

    def start(seed: int, d: int, n: int, order: int, n_heads: int, table: int) -> Any:
        keys = iter(jax.random.split(jax.random.key(seed), 16))

        def linear(*shape: int) -> Any:
            bound = shape[-2] ** -0.5
            return jax.random.uniform(next(keys), shape, minval=-bound, maxval=bound)

        wide = order * d

        def block() -> Any:
            return linear(wide, wide), jnp.zeros(wide)

        network: Any = RegionNetwork
        return network(
            jax.random.normal(next(keys), (n, d)),
            tuple(linear(d, d) for _ in range(4)),
            (jnp.ones(d), jnp.zeros(d)),
            tuple((block(), block()) for _ in range(2)),
            (linear(n_heads, wide, table), jnp.zeros((n_heads, table))),
        )

    adam = optax.scale_by_adam()

    @jax.jit
    def step(network: Any, moments: Any, cotangent: Any, rate: Any, *where: Any) -> Any:
        _, pull = jax.vjp(lambda net: net(*where), network)
        updates, moments = adam.update(pull(cotangent)[0], moments)
        network = jax.tree.map(lambda w, u: w - rate * u, network, updates)
        return network, moments, network(*where)

    forward = jax.jit(lambda network, *where: network(*where))
    _made.append(_Functions(start, adam.init, forward, step))
    return _made[0]
