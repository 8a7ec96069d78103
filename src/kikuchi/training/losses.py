"""Losses of rows, compiled once."""

from __future__ import annotations

from functools import cache
from typing import Any

from kikuchi.training.optimiser import precision


@cache
def _compiled_loss(loss: Any) -> Any:
    import jax

    return jax.jit(loss)


def loss_of(loss: Any, parameters: Any, rows: Any) -> float:
    """Return the loss of these rows, with a fixed key, in the precision of the parameters."""
    import jax

    with precision(parameters):
        rows = jax.tree.map(jax.numpy.asarray, rows)
        return float(_compiled_loss(loss)(parameters, rows, jax.random.key(0)))
