"""`MachineParameters`: weights, biases, masks and kinds of units of a machine, as plain arrays.

    -E(v, h) = 1/2 v'V v + v'J h + 1/2 h'W h + b'v + c'h

V and W are symmetric with zero diagonal; either may be missing, which gives the four architectures
of the source. Where a mask says so, single weights are missing too and stay zero.

Reference: LAW-M5, TEH-L7, TEH-L10, TEH-M4, TEH-M8, WH-I1, WH-M2, WH-M3, WH-T10.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kikuchi.boltzmann.units import BinaryUnits, Units, parse_units
from kikuchi.core.answer import attributes
from kikuchi.core.errors import ModelError
from kikuchi.training.checkpoint import Arrays, part, prefixed
from kikuchi.training.model import Parameters

Array = NDArray[Any]
LATERAL = ("visible_weights", "hidden_weights")
Architecture = Literal["brf", "hrf", "poe", "fcrf"]
ARCHITECTURES: dict[str, tuple[bool, bool]] = {
    "brf": (False, False),
    "hrf": (False, True),
    "poe": (True, False),
    "fcrf": (True, True),
}
"""Of each architecture: whether visible units are connected, whether hidden ones are."""


@dataclass
class MachineParameters:
    """Weights, biases, masks and kinds of units of one machine.

    `parameters` are the arrays by name: weights, visible_bias, hidden_bias and, where there are
    such connections, visible_weights and hidden_weights.

    `weights` (visible, hidden) join the layers, `visible_weights` and `hidden_weights` units of one
    layer (None: none), `visible_bias` and `hidden_bias` are the biases; `masks` say by name which
    entries are connections, `visible` and `hidden` which kind of units there are.

    >>> machine = MachineParameters.random(4, 3, architecture="poe", random_state=0)
    >>> machine.n_visible, machine.n_hidden, sorted(machine.parameters)
    (4, 3, ['hidden_bias', 'visible_bias', 'visible_weights', 'weights'])
    >>> bool(np.all(np.diag(machine.visible_weights) == 0))
    True
    """

    weights: Array
    visible_bias: Array
    hidden_bias: Array
    visible_weights: Array | None = None
    hidden_weights: Array | None = None
    masks: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    visible: Units = field(default_factory=BinaryUnits)
    hidden: Units = field(default_factory=BinaryUnits)

    def __post_init__(self) -> None:
        d, k = self.weights.shape
        shapes = {
            "visible_bias": (d,),
            "hidden_bias": (k,),
            "visible_weights": (d, d),
            "hidden_weights": (k, k),
        }
        for name, shape in shapes.items():
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise ModelError(
                    f"machine: {name} has shape {array.shape}; weights of shape {(d, k)} "
                    f"need {shape}"
                )
        for name, array in self.parameters.items():
            if not np.all(np.isfinite(array)):
                raise ModelError(f"machine: {name} holds values that are not finite numbers")
        for name in LATERAL:
            array = getattr(self, name)
            if array is not None and (np.any(array != array.T) or np.any(np.diag(array) != 0)):
                raise ModelError(f"machine: {name} must be symmetric with zeros on the diagonal")

    # ------------------------------------------------------------------ making

    @classmethod
    def random(
        cls,
        n_visible: int,
        n_hidden: int,
        *,
        architecture: str = "brf",
        scale: float = 0.01,
        masks: Mapping[str, ArrayLike] | None = None,
        visible: Units | None = None,
        hidden: Units | None = None,
        dtype: DTypeLike = np.float64,
        random_state: int | np.random.Generator | None = None,
    ) -> Self:
        """A machine of `n_visible` and `n_hidden` units with zero biases and normal weights of
        standard deviation `scale`. `visible` and `hidden` are the kinds of units (binary if None),
        `dtype` the type of the arrays, `random_state` the seed.

        `masks` names connections one by one and replaces `architecture`: boolean arrays
        `weights`, `visible_weights`, `hidden_weights`; a missing one means all for `weights` and
        none for the others.
        """
        rng = np.random.default_rng(random_state)
        kept = _read_masks(n_visible, n_hidden, architecture, masks)
        sizes = {
            "weights": (n_visible, n_hidden),
            "visible_weights": (n_visible, n_visible),
            "hidden_weights": (n_hidden, n_hidden),
        }
        arrays: dict[str, Array] = {}
        for name, shape in sizes.items():
            if name in kept:
                drawn = (scale * rng.standard_normal(shape)).astype(dtype)
                arrays[name] = masked(name, drawn, kept[name])
        return cls(
            visible_bias=np.zeros(n_visible, dtype),
            hidden_bias=np.zeros(n_hidden, dtype),
            masks={name: mask for name, mask in kept.items() if not _is_full(name, mask)},
            visible=visible or BinaryUnits(),
            hidden=hidden or BinaryUnits(),
            **arrays,
        )

    def copy(self, dtype: DTypeLike | None = None) -> Self:
        """The same machine with arrays of its own, contiguous and of the type `dtype` (as it is if
        None).
        """
        dtype = dtype or self.dtype
        arrays = {name: np.array(a, dtype, order="C") for name, a in self.parameters.items()}
        return type(self)(**arrays, masks=self.masks, visible=self.visible, hidden=self.hidden)

    # ------------------------------------------------------------------ files

    def describe(self) -> dict[str, Any]:
        """What the machine is, apart from its numbers."""
        digest = hashlib.sha256()
        for name in sorted(self.masks):
            digest.update(name.encode() + np.packbits(self.masks[name]).tobytes())
        return {
            "units": [self.n_visible, self.n_hidden],
            "architecture": self.architecture,
            "visible": self.visible.text,
            "hidden": self.hidden.text,
            "dtype": str(self.dtype),
            "masks": digest.hexdigest()[:16] if self.masks else "none",
        }

    def to_arrays(self) -> Arrays:
        """Parameters and masks by the names they have in files."""
        return prefixed(self.parameters, "parameters") | prefixed(self.masks, "masks")

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> Self:
        """The machine of a file: `arrays` by name, and the `facts` of `describe`."""
        parameters, masks = part(arrays, "parameters"), part(arrays, "masks")
        types = sorted({str(array.dtype) for array in parameters.values()})
        if types not in (["float32"], ["float64"]):
            raise ModelError(f"machine: arrays of {' and '.join(types)}, not of one floating type")
        for name, mask in masks.items():
            if mask.dtype != np.bool_ or mask.shape != parameters[name].shape:
                raise ModelError(f"machine: the mask of {name} does not fit its weights")
        return cls(
            **parameters,
            masks=masks,
            visible=parse_units(facts["visible"]),
            hidden=parse_units(facts["hidden"]),
        )

    # ------------------------------------------------------------------ reading

    @property
    def n_visible(self) -> int:
        """Number of visible units."""
        return int(self.weights.shape[0])

    @property
    def n_hidden(self) -> int:
        """Number of hidden units."""
        return int(self.weights.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return self.weights.dtype

    @property
    def parameters(self) -> Parameters:
        """The arrays themselves, by name: what learning changes."""
        named = attributes(self, "weights visible_bias hidden_bias visible_weights hidden_weights")
        return {name: array for name, array in named.items() if array is not None}

    @property
    def architecture(self) -> str:
        """Its name; masks may leave out single connections."""
        has = (self.visible_weights is not None, self.hidden_weights is not None)
        return next(name for name, blocks in ARCHITECTURES.items() if blocks == has)

    @property
    def restricted(self) -> bool:
        """True when neither visible nor hidden units are connected among themselves."""
        return self.visible_weights is None and self.hidden_weights is None

    def hidden_field(self, visible: Array, hidden: Array | None = None) -> Array:
        """Field on each hidden unit, one row for each row of `visible`; states `hidden` add lateral
        connections.
        """
        total: Array = visible @ self.weights + self.hidden_bias
        if self.hidden_weights is not None and hidden is not None:
            total += hidden @ self.hidden_weights
        return total

    def visible_field(self, hidden: Array, visible: Array | None = None) -> Array:
        """Field on each visible unit, one row for each row of `hidden`; states `visible` add
        lateral connections.
        """
        total: Array = hidden @ self.weights.T + self.visible_bias
        if self.visible_weights is not None and visible is not None:
            total += visible @ self.visible_weights
        return total

    def energy(self, visible: ArrayLike, hidden: ArrayLike) -> Array:
        """E(v, h) of each row of `visible` (rows, visible units) and `hidden` (rows, hidden units),
        without the base measure of units that are not binary.
        """
        v, h = np.atleast_2d(np.asarray(visible)), np.atleast_2d(np.asarray(hidden))
        on_visible, on_hidden = self.visible_bias + h @ self.weights.T, self.hidden_bias
        if self.visible_weights is not None:
            on_visible = on_visible + 0.5 * v @ self.visible_weights
        if self.hidden_weights is not None:
            on_hidden = on_hidden + 0.5 * h @ self.hidden_weights
        total: Array = np.sum(v * on_visible, axis=1) + np.sum(h * on_hidden, axis=1)
        return -total


def masked(name: str, array: Array, mask: NDArray[np.bool_] | None = None) -> Array:
    """The array with missing connections at zero; lateral ones symmetric with zero diagonal."""
    if name in LATERAL:
        upper = np.triu(array, 1)
        array = upper + upper.T
    return array if mask is None else np.where(mask, array, array.dtype.type(0))


def _read_masks(
    d: int, k: int, architecture: str, given: Mapping[str, ArrayLike] | None
) -> dict[str, NDArray[np.bool_]]:
    if d < 1 or k < 0:
        raise ModelError(f"machine: {d} visible and {k} hidden units; give at least one visible")
    if architecture not in ARCHITECTURES:
        raise ModelError(
            f"architecture must be one of {', '.join(ARCHITECTURES)}, got {architecture!r}"
        )
    blocks = ARCHITECTURES[architecture]
    shapes = {"weights": (d, k), "visible_weights": (d, d), "hidden_weights": (k, k)}
    if given is None:
        wanted = {"weights": True, "visible_weights": blocks[0], "hidden_weights": blocks[1]}
        kept = {n: np.ones(shapes[n], dtype=np.bool_) for n, wish in wanted.items() if wish}
    else:
        unknown = set(given) - set(shapes)
        if unknown:
            raise ModelError(f"masks: no connections '{min(unknown)}'; known: {', '.join(shapes)}")
        kept = {n: np.array(mask, dtype=np.bool_) for n, mask in given.items()}
        kept.setdefault("weights", np.ones((d, k), dtype=np.bool_))
        for n, mask in kept.items():
            if mask.shape != shapes[n]:
                raise ModelError(f"mask of {n} has shape {mask.shape}; it must be {shapes[n]}")
            if n != "weights" and np.any(mask != mask.T):
                raise ModelError(f"mask of {n} must be symmetric")
    for n in LATERAL:
        if n in kept:
            np.fill_diagonal(kept[n], False)
    return kept


def _is_full(name: str, mask: NDArray[np.bool_]) -> bool:
    missing = mask.size - int(mask.sum())
    return missing == (0 if name == "weights" else mask.shape[0])
