"""Bijections of images: squeezing, normalisation of channels, 1x1 convolutions and couplings.

Rows hold an image as height, width, channels. A squeeze makes four channels of every two by two
pixels; a step normalises the channels, mixes them by an invertible 1x1 convolution, and moves half
of them by a small convolutional network of the other half.

Reference: LIU-M12, LIU-L9.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax import bijections as fj

from kikuchi.core.errors import MethodError

_REACH = 2.0  # largest logarithm of a scale of one coupling


class Squeeze(fj.AbstractBijection):
    """Two by two pixels to four channels, or back: a permutation of the numbers of a row."""

    shape: tuple[int, ...]
    image: tuple[int, int, int] = eqx.field(static=True)
    cond_shape: ClassVar[None] = None  # type: ignore[misc]

    def __init__(self, image: tuple[int, int, int]) -> None:
        self.image = image
        self.shape = (int(np.prod(image)),)

    def transform_and_log_det(self, x: Any, condition: Any = None) -> Any:
        """To half the height and width."""
        h, w, c = self.image
        y = x.reshape(h // 2, 2, w // 2, 2, c).transpose(0, 2, 1, 3, 4)
        return y.reshape(-1), jnp.zeros((), x.dtype)

    def inverse_and_log_det(self, y: Any, condition: Any = None) -> Any:
        """Back to pixels."""
        h, w, c = self.image
        x = y.reshape(h // 2, w // 2, 2, 2, c).transpose(0, 2, 1, 3, 4)
        return x.reshape(-1), jnp.zeros((), y.dtype)


class ChannelMix(fj.AbstractBijection):
    """Scale and shift of each channel, then an invertible 1x1 convolution P L U.

    P is a fixed permutation; L and U are the identity and the scales one before learning, and the
    bijection ends with the inverse of P, so that it begins as the identity.
    """

    shape: tuple[int, ...]
    log_scale: jax.Array
    shift: jax.Array
    lower: jax.Array
    upper: jax.Array
    order: jax.Array
    image: tuple[int, int, int] = eqx.field(static=True)
    cond_shape: ClassVar[None] = None  # type: ignore[misc]

    def __init__(self, image: tuple[int, int, int], order: Any) -> None:
        channels = image[2]
        self.image, self.shape = image, (int(np.prod(image)),)
        self.log_scale, self.shift = jnp.zeros(channels), jnp.zeros(channels)
        self.lower = self.upper = jnp.zeros((channels, channels))
        self.order = jnp.asarray(order, dtype=jnp.int32)

    def _matrices(self) -> tuple[Any, Any]:
        eye = jnp.eye(self.image[2], dtype=self.lower.dtype)
        return jnp.tril(self.lower, -1) + eye, jnp.triu(self.upper, 1) + eye

    def transform_and_log_det(self, x: Any, condition: Any = None) -> Any:
        """Every pixel times the same matrix."""
        lower, upper = self._matrices()
        pixels = x.reshape(-1, self.image[2]) * jnp.exp(self.log_scale) + self.shift
        mixed = (pixels[:, self.order] @ upper.T) @ lower.T
        log_det = self.image[0] * self.image[1] * jnp.sum(self.log_scale)
        return mixed[:, jnp.argsort(self.order)].reshape(-1), log_det

    def inverse_and_log_det(self, y: Any, condition: Any = None) -> Any:
        """Two triangular solves."""
        lower, upper = self._matrices()
        solve = jax.scipy.linalg.solve_triangular
        pixels = y.reshape(-1, self.image[2])[:, self.order]
        pixels = solve(upper, solve(lower, pixels.T, lower=True), lower=False).T
        pixels = pixels[:, jnp.argsort(self.order)]
        x = (pixels - self.shift) * jnp.exp(-self.log_scale)
        return x.reshape(-1), -self.image[0] * self.image[1] * jnp.sum(self.log_scale)


class ImageCoupling(fj.AbstractBijection):
    """Half of the channels scale and shift the other half through three convolutions."""

    shape: tuple[int, ...]
    conditioner: Any
    image: tuple[int, int, int] = eqx.field(static=True)
    swapped: bool = eqx.field(static=True)
    cond_shape: ClassVar[None] = None  # type: ignore[misc]

    def __init__(self, key: Any, image: tuple[int, int, int], width: int, swapped: bool) -> None:
        self.image, self.shape, self.swapped = image, (int(np.prod(image)),), swapped
        kept, moved = self._sizes()
        keys = jax.random.split(key, 3)
        self.conditioner = ConvolutionStack(
            (
                eqx.nn.Conv2d(kept, width, 3, padding=1, key=keys[0]),
                eqx.nn.Conv2d(width, width, 1, key=keys[1]),
                eqx.nn.Conv2d(width, 2 * moved, 3, padding=1, key=keys[2]),
            )
        )

    def _sizes(self) -> tuple[int, int]:
        half = self.image[2] // 2
        rest = self.image[2] - half
        return (rest, half) if self.swapped else (half, rest)

    def _parts(self, row: Any) -> tuple[Any, Any]:
        """Channels that stay and channels that move."""
        image, half = row.reshape(self.image), self.image[2] // 2
        one, other = image[..., :half], image[..., half:]
        return (other, one) if self.swapped else (one, other)

    def _whole(self, kept: Any, moved: Any) -> Any:
        parts = (moved, kept) if self.swapped else (kept, moved)
        return jnp.concatenate(parts, axis=-1).reshape(-1)

    def _moves(self, kept: Any) -> tuple[Any, Any]:
        raw = self.conditioner(kept.transpose(2, 0, 1)).transpose(1, 2, 0)
        logs, shift = jnp.split(raw, 2, axis=-1)
        return _REACH * jnp.tanh(logs / _REACH), shift

    def transform_and_log_det(self, x: Any, condition: Any = None) -> Any:
        """Scale and shift."""
        kept, moved = self._parts(x)
        logs, shift = self._moves(kept)
        return self._whole(kept, moved * jnp.exp(logs) + shift), jnp.sum(logs)

    def inverse_and_log_det(self, y: Any, condition: Any = None) -> Any:
        """Shift and scale back."""
        kept, moved = self._parts(y)
        logs, shift = self._moves(kept)
        return self._whole(kept, (moved - shift) * jnp.exp(-logs)), -jnp.sum(logs)


class ConvolutionStack(eqx.Module):
    """Convolutions with rectified units between them."""

    layers: tuple[Any, ...]

    def __call__(self, x: Any) -> Any:
        """The last layer has no nonlinearity."""
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)


def image_bijection(
    shape: tuple[int, int, int], blocks: int, layers: int, width: int, seed: int
) -> Any:
    """Blocks of squeeze and steps, and the squeezes undone: rows of pixels to latent pixels."""
    h, w, c = shape
    if h % 2**blocks or w % 2**blocks:
        raise MethodError(
            f"images of {h} by {w} cannot be halved {blocks} times; give fewer blocks, or images "
            f"whose sides are multiples of {2**blocks}"
        )
    rng, key = np.random.default_rng(seed), jax.random.key(seed)
    parts: list[Any] = []
    squeezes = []
    for _ in range(blocks):
        squeezes.append(Squeeze((h, w, c)))
        parts.append(squeezes[-1])
        h, w, c = h // 2, w // 2, 4 * c
        for k in range(layers):
            key, now = jax.random.split(key)
            parts.append(ChannelMix((h, w, c), rng.permutation(c)))
            parts.append(ImageCoupling(now, (h, w, c), width, swapped=k % 2 == 1))
    parts += [fj.Invert(squeeze) for squeeze in reversed(squeezes)]
    return fj.Chain(parts)
