"""The network of region-energy methods: embeddings, one attention layer, blocks and a head by size.

One embedding per variable, one single-head self-attention layer over all of them, and for each
root region the concatenated outputs of its variables through two residual blocks to the logits of
its table. Regions of one number of variables share their blocks, those of one table size their
head. The network does not see the tables: it is trained anew for each model, a smooth way to write
down the beliefs. Numbers of variables and of regions are padded, so that models of like size share
one compilation.

Reference: LIU-M10.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.errors import MissingExtraError
from kikuchi.core.extras import install
from kikuchi.core.named_arrays import Arrays

_LEAST = 16  # variables or regions of the smallest bucket
_LEAST_TABLE = 4
_EXACT_ORDER = 4  # regions of up to so many variables are not padded to larger ones


class RootGroup(NamedTuple):
    """Root regions of about one number of variables, padded.

    `members` has a row per root, filled up with the number of an embedding that is always zero;
    `heads` is the index of the head that writes its table, and `places` contains the position of
    each entry of the padded table among the flat entries of all roots (entries of padding: at the
    end of them).
    """

    members: Any  # 32 bits
    heads: Any  # 32 bits
    places: Ints
    n_heads: int


class Padded(NamedTuple):
    """All root regions: which embeddings are variables, the groups of roots, and their entries."""

    present: Mask
    groups: tuple[RootGroup, ...]
    size: int


def padded_roots(n_variables: int, scopes: list[tuple[int, ...]], sizes: Ints) -> Padded:
    """Roots with these variables and table sizes, padded.

    >>> padded = padded_roots(3, [(0, 1), (1, 2)], np.array([4, 4]))
    >>> [(group.members.shape, group.places.shape) for group in padded.groups]
    [((16, 2), (16, 4))]
    """
    count = bucket(n_variables)
    starts = np.cumsum(sizes) - sizes
    orders = np.array([_order(len(scope)) for scope in scopes])
    groups = []
    for order in np.unique(orders).tolist():
        chosen = np.flatnonzero(orders == order)
        members = np.full((bucket(len(chosen)), order), count, dtype=np.int32)
        for row, root in enumerate(chosen.tolist()):
            members[row, : len(scopes[root])] = scopes[root]
        kinds, head = np.unique(sizes[chosen], return_inverse=True)
        heads = np.zeros(len(members), dtype=np.int32)
        heads[: len(chosen)] = head
        within = np.arange(max(_power(int(kinds[-1])), _LEAST_TABLE))
        places = np.full((len(members), len(within)), int(sizes.sum()), dtype=np.int64)
        inside = within < sizes[chosen, None]
        places[: len(chosen)][inside] = (starts[chosen, None] + within)[inside]
        groups.append(RootGroup(members, heads, places, _power(len(kinds))))
    return Padded(np.arange(count) < n_variables, tuple(groups), int(sizes.sum()))


def bucket(size: int) -> int:
    """The next of 16, 20, 24, 28, 32, 40, ...: at most a quarter is padding.

    >>> [bucket(size) for size in (1, 17, 81, 361)]
    [16, 20, 96, 384]
    """
    step = max(_power(size) // 8, _LEAST // 4)
    return max(-(-size // step) * step, _LEAST)


def _order(size: int) -> int:
    return size if size <= _EXACT_ORDER else _power(size)


def _power(size: int) -> int:
    return 1 << max(size - 1, 0).bit_length()


def network_bytes(padded: Padded, embedding: int) -> int:
    """Memory of one step: attention between variables, the features of roots with their
    derivatives, and the weights four times (themselves, gradient, two moments of Adam).

    >>> network_bytes(padded_roots(3, [(0, 1), (1, 2)], np.array([4, 4])), 32)
    396288
    """
    total = 24 * len(padded.present) ** 2 + 16 * embedding * (len(padded.present) + 4 * embedding)
    for group in padded.groups:
        roots, order = group.members.shape
        wide, table = order * embedding, group.places.shape[1]
        weights = 4 * wide**2 + group.n_heads * wide * table
        gathered = 8 * roots * wide * table if group.n_heads > 1 else 0
        total += 16 * weights + roots * (48 * wide + 16 * table) + gathered
    return int(total)


def saved_leaves(tree: Any) -> Arrays:
    """The arrays of a pytree by number."""
    import jax

    return {f"leaf{k}": np.array(leaf) for k, leaf in enumerate(jax.tree.leaves(tree))}


def with_leaves(tree: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The pytree with the arrays that `saved_leaves` answered."""
    import jax

    leaves = [arrays[f"leaf{k}"] for k in range(len(arrays))]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


class NetworkDescent:
    """Adam on the weights of the network: cotangents of the logits in, the next logits out.

    Parameters
    ----------
    padded : Padded
        The root regions.
    embedding : int
        Width of an embedding.
    rate : float
        Step size of Adam.
    seed : int
        Seed of the first weights.
    """

    def __init__(self, padded: Padded, embedding: int, rate: float, seed: int) -> None:
        functions = _functions()
        self.padded = padded
        self._arrays = (padded.present, tuple((g.members, g.heads) for g in padded.groups))
        shapes = tuple((g.members.shape[1], g.n_heads, g.places.shape[1]) for g in padded.groups)
        self.weights = functions.start(seed, embedding, len(padded.present), shapes)
        self.moments = functions.moments(self.weights)
        self.rate = rate
        self._functions = functions
        self._outputs = functions.forward(self.weights, *self._arrays)

    def logits(self) -> Array:
        """Logits of all entries of the roots, one after the other."""
        flat = np.empty(self.padded.size + 1)
        for group, part in zip(self.padded.groups, self._outputs, strict=True):
            flat[group.places] = np.asarray(part)
        return flat[:-1]

    def step(self, gradient: Array) -> Array:
        """Make one step against the gradient of the energy in the logits; return the next
        logits.
        """
        whole = np.append(gradient, 0.0).astype(np.float32)
        cotangent = tuple(whole[group.places] for group in self.padded.groups)
        self.weights, self.moments, self._outputs = self._functions.step(
            self.weights, self.moments, cotangent, np.float32(self.rate), *self._arrays
        )
        return self.logits()

    def to_arrays(self) -> Arrays:
        """Return weights and moments, leaf by leaf."""
        return saved_leaves((self.weights, self.moments))

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on with saved weights and moments."""
        self.weights, self.moments = with_leaves((self.weights, self.moments), arrays)
        self._outputs = self._functions.forward(self.weights, *self._arrays)


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
        import jax
        import jax.numpy as jnp
        import optax  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtraError(
            f"region-energy networks need JAX and optax; {install('learn')}"
        ) from None

    def outputs(weights: Any, present: Any, groups: Any) -> Any:
        x = weights["embeddings"]
        query, key, value, out = weights["attention"]
        scores = jnp.where(present[None, :], (x @ query) @ (x @ key).T, -jnp.inf)
        h = jax.nn.softmax(scores, axis=1) @ (x @ value) @ out + x
        centred = h - h.mean(axis=1, keepdims=True)
        h = centred / jnp.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
        h = h * weights["norm"][0] + weights["norm"][1]
        h = jnp.concatenate([h, jnp.zeros((1, h.shape[1]))])
        return tuple(
            tables(parts, h[members].reshape(len(members), -1), heads)
            for parts, (members, heads) in zip(weights["groups"], groups, strict=True)
        )

    def tables(parts: Any, features: Any, heads: Any) -> Any:
        blocks, (w, b) = parts
        for (w1, b1), (w2, b2) in blocks:
            features += jax.nn.relu(jax.nn.relu(features @ w1 + b1) @ w2 + b2)
        if len(w) == 1:
            return features @ w[0] + b[0]
        return jnp.einsum("rd,rds->rs", features, w[heads]) + b[heads]

    adam = optax.scale_by_adam()

    @jax.jit
    def step(weights: Any, moments: Any, cotangent: Any, rate: Any, *where: Any) -> Any:
        _, pull = jax.vjp(lambda present: outputs(present, *where), weights)
        updates, moments = adam.update(pull(cotangent)[0], moments)
        weights = jax.tree.map(lambda w, u: w - rate * u, weights, updates)
        return weights, moments, outputs(weights, *where)

    _made.append(_Functions(_first_weights, adam.init, jax.jit(outputs), step))
    return _made[0]


def _first_weights(
    seed: int, d: int, n: int, shapes: tuple[tuple[int, int, int], ...]
) -> dict[str, Any]:
    """Embeddings from N(0, 1), matrices uniform within 1 / sqrt(inputs), offsets 0.

    `shapes` has the number of variables, of heads and of table entries of each group of roots.
    """
    rng = np.random.default_rng(seed)

    def linear(*shape: int) -> Array:
        bound = shape[-2] ** -0.5
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    def block(wide: int) -> tuple[Array, Array]:
        return linear(wide, wide), np.zeros(wide, np.float32)

    def group(order: int, heads: int, table: int) -> Any:
        wide = order * d
        blocks = tuple((block(wide), block(wide)) for _ in range(2))
        return blocks, (linear(heads, wide, table), np.zeros((heads, table), np.float32))

    return {
        "embeddings": rng.standard_normal((n, d)).astype(np.float32),
        "attention": tuple(linear(d, d) for _ in range(4)),
        "norm": (np.ones(d, np.float32), np.zeros(d, np.float32)),
        "groups": tuple(group(*shape) for shape in shapes),
    }
