"""Bijections by name: `coupling:layers=8`, `spline`, `autoregressive`, `affine`, `image`.

Every flow maps rows to latent values, z = f(x), and is the identity before it is learnt, so that a
model begins as the Gaussian mixture that it is built on.

Reference: LIU-M12.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from kikuchi.core.errors import MethodError, MissingExtraError
from kikuchi.core.extras import install
from kikuchi.core.options import Configured, Registry, option
from kikuchi.training.model import named_leaves

try:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import paramax
    from flowjax import bijections as fj
except ImportError:
    raise MissingExtraError(f"flows need flowjax, equinox and jax; {install('learn')}") from None

_LEAST_SCALE = 0.05  # of one affine layer: eight of them cannot make a spike out of one row
_LAST = re.compile(r"(?:conditioner|masked_autoregressive_mlp)\.layers\.(\d+)\.")


@dataclass(frozen=True)
class Flow(Configured, kind="flow"):
    """Base of the flows: `bijection` builds one for rows of some columns."""

    needs_image: ClassVar[bool] = False

    @abstractmethod
    def bijection(self, columns: int, shape: tuple[int, int, int] | None, seed: int) -> Any:
        """A bijection of flowjax from rows to latent values; None for the identity.

        `shape` is height, width and channels where rows are images.
        """


class AffineFlow(Flow):
    """A triangular matrix and a shift of each component: Gaussians with full covariances."""

    name: ClassVar[str] = "affine"

    def bijection(self, columns: int, shape: tuple[int, int, int] | None, seed: int) -> Any:
        """Nothing beyond the affine map that every component has."""
        return None


@dataclass(frozen=True)
class _LayeredFlow(Flow):
    """Layers of one kind with permutations of the columns between them."""

    layers: int = option(8, "number of layers", low=1)
    width: int = option(64, "units of each hidden layer of the conditioner networks", low=1)
    depth: int = option(1, "hidden layers of the conditioner networks", low=1)

    def _transformer(self) -> Any:
        """Return the transformer of each layer, with parameters from the conditioner."""
        return _affine_transformer()

    @abstractmethod
    def _layer(self, key: Any, columns: int, transformer: Any) -> Any:
        """One layer."""

    def bijection(self, columns: int, shape: tuple[int, int, int] | None, seed: int) -> Any:
        """Layers in one scan; the last permutation undoes the others."""
        if columns == 1:
            return self._single()
        transformer = self._transformer()
        orders, undo = _orders(self.layers, columns, np.random.default_rng(seed))

        def layer(key: Any, order: Any) -> Any:
            made = self._layer(key, columns, transformer)
            return fj.Chain([made, fj.Permute(order)])

        keys = jax.random.split(jax.random.key(seed), self.layers)
        stacked = eqx.filter_vmap(layer)(keys, jnp.asarray(orders))
        return fj.Chain([fj.Scan(stacked), fj.Permute(jnp.asarray(undo))])

    def _single(self) -> Any:
        """One column has no other to be conditioned on: the identity, or a spline of its own."""
        return None


class CouplingFlow(_LayeredFlow):
    """Affine couplings: half of the columns scale and shift the other half."""

    name: ClassVar[str] = "coupling"

    def _layer(self, key: Any, columns: int, transformer: Any) -> Any:
        return fj.Coupling(
            key,
            transformer=transformer,
            untransformed_dim=columns // 2,
            dim=columns,
            nn_width=self.width,
            nn_depth=self.depth,
            nn_activation=jnp.tanh,
        )


@dataclass(frozen=True)
class SplineFlow(CouplingFlow):
    """Couplings by monotone rational quadratic splines, linear outside an interval."""

    name: ClassVar[str] = "spline"

    layers: int = option(4, "number of layers", low=1)
    knots: int = option(8, "inner knots of a spline", low=2)
    interval: float = option(4.0, "splines act between minus and plus this number", above=0)

    def _transformer(self) -> Any:
        return fj.RationalQuadraticSpline(knots=self.knots, interval=self.interval)

    def _single(self) -> Any:
        spline = eqx.filter_vmap(lambda _: self._transformer())(jnp.zeros(1))
        return fj.Vmap(spline, in_axes=eqx.if_array(0))


@dataclass(frozen=True)
class AutoregressiveFlow(_LayeredFlow):
    """Masked autoregressive layers: every column is moved given all before it."""

    name: ClassVar[str] = "autoregressive"

    layers: int = option(4, "number of layers", low=1)
    transformer: Literal["affine", "spline"] = option(
        "affine", "what a layer does to a number: affine or spline"
    )
    knots: int = option(8, "inner knots of a spline", low=2)
    interval: float = option(4.0, "splines act between minus and plus this number", above=0)

    def _transformer(self) -> Any:
        if self.transformer == "affine":
            return _affine_transformer()
        return fj.RationalQuadraticSpline(knots=self.knots, interval=self.interval)

    def _layer(self, key: Any, columns: int, transformer: Any) -> Any:
        return fj.MaskedAutoregressive(
            key,
            transformer=transformer,
            dim=columns,
            nn_width=max(self.width, columns),
            nn_depth=self.depth,
            nn_activation=jnp.tanh,
        )


@dataclass(frozen=True)
class ImageFlow(Flow):
    """Squeezed images through invertible 1x1 convolutions and convolutional couplings."""

    name: ClassVar[str] = "image"
    needs_image: ClassVar[bool] = True

    blocks: int = option(2, "squeezes to half the height and width", low=1)
    layers: int = option(4, "normalisation, 1x1 convolution and coupling, per block", low=1)
    width: int = option(32, "channels of the hidden layers of the couplings", low=1)

    def bijection(self, columns: int, shape: tuple[int, int, int] | None, seed: int) -> Any:
        """The blocks, on rows that are images of this shape."""
        from kikuchi.flows.images import image_bijection

        if shape is None:
            raise MethodError("flow image is for images: give image_shape=(height, width)")
        return image_bijection(shape, self.blocks, self.layers, self.width, seed)


FLOWS: Registry[Flow] = Registry(
    "kikuchi.flows",
    "flow",
    {f.name: f for f in (CouplingFlow, SplineFlow, AutoregressiveFlow, AffineFlow, ImageFlow)},
)


def _affine_transformer() -> Any:
    """y = scale x + shift with a scale that cannot fall below its least value."""

    def positive(raw: Any) -> Any:
        return jax.nn.softplus(raw) + _LEAST_SCALE

    start = jnp.log(jnp.expm1(jnp.asarray(1.0 - _LEAST_SCALE)))
    scale: Any = paramax.Parameterize(positive, start)
    return eqx.tree_at(lambda map: map.scale, fj.Affine(), scale)


def _orders(layers: int, columns: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """A permutation after each layer, and the one that undoes them all.

    Every other one reverses the columns, so that what one coupling has left the next one moves.
    """
    backwards = np.arange(columns)[::-1]
    orders = [backwards if k % 2 == 0 else rng.permutation(columns) for k in range(layers)]
    total = np.arange(columns)
    for order in orders:
        total = total[order]
    return np.array(orders, dtype=np.int32), np.argsort(total).astype(np.int32)


def split_bijection(bijection: Any) -> tuple[dict[str, Any], Any, Any]:
    """Parameters by name, the tree that holds them, and everything else of a bijection.

    The last layers of conditioners are zero, which makes every layer the identity.
    """
    tree, static = eqx.partition(bijection, eqx.is_inexact_array)
    leaves = {name.replace("/", "."): leaf for name, leaf in named_leaves(tree).items()}
    found = [(n, int(m.group(1))) for n in leaves if (m := _LAST.search(n))]
    last = max((depth for _, depth in found), default=-1)
    for name, depth in found:
        if depth == last:
            leaves[name] = jnp.zeros_like(leaves[name])
    return leaves, tree, static


def joined_bijection(leaves: dict[str, Any], tree: Any, static: Any) -> Any:
    """The bijection with these parameters, ready for use."""
    names = [name.replace("/", ".") for name in named_leaves(tree)]
    filled = jax.tree.unflatten(jax.tree.structure(tree), [leaves[name] for name in names])
    return paramax.unwrap(eqx.combine(filled, static))
