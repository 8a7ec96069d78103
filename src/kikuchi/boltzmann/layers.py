"""One layer of a machine given the other: means, draws and the sums that free energies need.

Binary layers without connections among their units take one fused pass (kernels/sampling.py);
connected ones are swept unit by unit; other kinds of units go through `Units`.

Reference: WH-I1.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kikuchi.boltzmann.parameters import MachineParameters
from kikuchi.boltzmann.products import layer_product
from kikuchi.boltzmann.units import BinaryUnits, Units
from kikuchi.core.errors import ModelError

Array = NDArray[Any]
Workspace = MutableMapping[str, Array]


@dataclass
class Layer:
    """What one layer does, a row for each row of the other: means, a draw of each unit, and the
    logarithm of the sum over the states of the layer (None where its units are connected).

    Connected units have as mean that of their last conditional.
    """

    mean: Array
    drawn: Array
    log_sums: Array | None


class Layers:
    """Draws the layers of one machine; arrays are kept in `arrays` and overwritten.

    >>> machine = MachineParameters.random(6, 4, random_state=0)
    >>> layers = Layers(machine)
    >>> hidden = layers.hidden(np.ones((2, 6)), np.random.default_rng(0))
    >>> hidden.mean.shape, sorted(set(hidden.drawn.ravel().tolist()) | {0.0, 1.0})
    ((2, 4), [0.0, 1.0])
    """

    def __init__(self, machine: MachineParameters, arrays: Workspace | None = None) -> None:
        self.machine = machine
        self.arrays: Workspace = {} if arrays is None else arrays
        _check_layers(machine)

    def hidden(
        self,
        visible: Array,
        rng: np.random.Generator | None,
        *,
        start: Array | None = None,
        sweeps: int = 1,
        name: str = "hidden",
    ) -> Layer:
        """Hidden units given visible ones; without `rng` nothing is drawn.

        Connected hidden units are swept `sweeps` times from the states `start` (drawn at random if
        there are none), which are written over.
        """
        m = self.machine
        field = self._workspace(f"{name}_mean", (len(visible), m.n_hidden))
        layer_product(visible, m.weights, field)
        return self._layer(
            m.hidden, field, m.hidden_bias, m.hidden_weights, rng, start, sweeps, name
        )

    def visible(
        self,
        hidden: Array,
        rng: np.random.Generator | None,
        *,
        start: Array | None = None,
        sweeps: int = 1,
        name: str = "visible",
    ) -> Layer:
        """Visible units given hidden ones, as `hidden` does."""
        m = self.machine
        field = self._workspace(f"{name}_mean", (len(hidden), m.n_visible))
        layer_product(hidden, m.weights.T, field)
        return self._layer(
            m.visible, field, m.visible_bias, m.visible_weights, rng, start, sweeps, name
        )

    # ------------------------------------------------------------------ kinds of layers

    def _layer(
        self,
        units: Units,
        field: Array,
        bias: Array,
        lateral: Array | None,
        rng: np.random.Generator | None,
        start: Array | None,
        sweeps: int,
        name: str,
    ) -> Layer:
        drawn = field if rng is None else self._workspace(f"{name}_drawn", field.shape)
        if lateral is not None:
            return self._swept(field, bias, lateral, rng, start, sweeps, drawn, name)
        if isinstance(units, BinaryUnits):
            return self._logistic(field, bias, rng, drawn)
        field += bias
        sums = np.asarray(np.sum(units.log_partition(field), axis=1, dtype=np.float64))
        if rng is not None:
            drawn[...] = units.draw(field, rng)
        field[...] = units.mean(field)
        return Layer(field, drawn, sums)

    def _logistic(
        self, field: Array, bias: Array, rng: np.random.Generator | None, drawn: Array
    ) -> Layer:
        from kikuchi.boltzmann.kernels.sampling import draw_logistic, logistic

        sums = np.empty(len(field))
        if rng is None:
            logistic(field, bias, sums)
        else:
            draw_logistic(field, bias, sums, drawn, _word(rng))
        return Layer(field, drawn, sums)

    def _swept(
        self,
        field: Array,
        bias: Array,
        lateral: Array,
        rng: np.random.Generator | None,
        start: Array | None,
        sweeps: int,
        drawn: Array,
        name: str,
    ) -> Layer:
        from kikuchi.boltzmann.kernels.sampling import fill_uniform, sweep_connected

        if rng is None:
            raise ModelError("connected units have no means in closed form: give a generator")
        uniform = self._workspace("uniform", field.shape)
        field += bias
        if start is None:
            fill_uniform(uniform.reshape(-1), _word(rng))
            drawn[...] = uniform < 0.5
        elif start is not drawn:
            drawn[...] = start
        totals = self._workspace(f"{name}_totals", field.shape)
        layer_product(drawn, lateral, totals)
        totals += field
        for _ in range(sweeps):
            fill_uniform(uniform.reshape(-1), _word(rng))
            sweep_connected(totals, lateral, drawn, uniform, field)
        return Layer(field, drawn, None)

    def _workspace(self, name: str, shape: tuple[int, ...]) -> Array:
        """An array to work in, the same one as long as its shape suits."""
        return workspace(self.arrays, name, shape, self.machine.dtype)


def workspace(arrays: Workspace, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array to write in, kept in `arrays`; made anew when shape or dtype have changed."""
    array = arrays.get(f"_{name}")
    if array is None or array.shape != shape or array.dtype != dtype:
        array = np.empty(shape, dtype)
        arrays[f"_{name}"] = array
    return array


def _word(rng: np.random.Generator) -> np.uint64:
    """The word that seeds one pass."""
    return np.uint64(rng.bit_generator.random_raw())


def _check_layers(machine: MachineParameters) -> None:
    layers: tuple[tuple[Literal["visible", "hidden"], Array | None, Units], ...] = (
        ("visible", machine.visible_weights, machine.visible),
        ("hidden", machine.hidden_weights, machine.hidden),
    )
    for name, weights, units in layers:
        if weights is not None and not isinstance(units, BinaryUnits):
            raise ModelError(
                f"machine: {name} units of kind {units.name} cannot be drawn while they are "
                "connected among themselves; leave out those connections or use binary units"
            )
