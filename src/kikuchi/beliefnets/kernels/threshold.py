"""Networks of linear threshold units at zero temperature: inference of hidden units, perceptrons.

Units are -1 and 1; inputs of the network are real. With a the input of a unit, the objective of a
pattern is sum (a s - |a|) / 2 = -sum max(-a s, 0) over hidden and output units: 0 if every unit
agrees with its input. Outputs may be asked for a margin: -max(margin - a s, 0).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kikuchi.beliefnets.kernels.states import softplus, uniform
from kikuchi.core.arrays import U8, Array, Ints
from kikuchi.core.compiled import njit
from kikuchi.core.copying import copy_into


class ThresholdLayers(NamedTuple):
    """Weights of layer l to l + 1 begin at offsets[l], bias row last; its units at starts[l]."""

    weights: Array
    offsets: Ints
    sizes: Ints
    starts: Ints


@njit(cache=True, error_model="numpy")
def set_activations(net: ThresholdLayers, state: Array, inputs: Array, settle: bool) -> None:
    """Input of every unit.

    With `settle` every unit becomes the sign of its input; that of 0 is 1.
    """
    weights, offsets, sizes, starts = net
    for layer in range(1, len(sizes)):
        n_above, n_here = sizes[layer - 1], sizes[layer]
        base = offsets[layer - 1]
        for k in range(n_here):
            inputs[starts[layer] + k] = weights[base + n_above * n_here + k]
        for j in range(n_above):
            s = state[starts[layer - 1] + j]
            for k in range(n_here):
                inputs[starts[layer] + k] += weights[base + j * n_here + k] * s
        if settle:
            for unit in range(starts[layer], starts[layer + 1]):
                state[unit] = 1.0 if inputs[unit] >= 0.0 else -1.0


@njit(cache=True, error_model="numpy")
def _loss(value: float, temperature: float) -> float:
    """max(value, 0), or its smooth form at a temperature."""
    if temperature == 0.0:
        return float(max(value, 0.0))
    return float(temperature * softplus(value / temperature))


@njit(cache=True, error_model="numpy")
def _content(state: float, value: float, margin: float, temperature: float) -> float:
    """Minus the expected loss max(margin - s a, 0) of a unit with mean `state` at input a."""
    on = _loss(margin - value, temperature)
    off = _loss(margin + value, temperature)
    return float(-0.5 * ((1.0 + state) * on + (1.0 - state) * off))


@njit(cache=True, error_model="numpy")
def objective(sizes: Ints, starts: Ints, state: Array, inputs: Array, margin: float) -> float:
    """Minus the losses of hidden units (without margin) and of outputs (with it)."""
    last = starts[len(sizes) - 1]
    total = 0.0
    for unit in range(starts[1], starts[len(sizes)]):
        total += _content(state[unit], inputs[unit], margin if unit >= last else 0.0, 0.0)
    return total


@njit(cache=True, error_model="numpy")
def _update(
    net: ThresholdLayers, layer: int, k: int, state: Array, inputs: Array, temperature: float,
    margin: float, printed: bool,
) -> float:  # fmt: skip
    """The exact optimum of one hidden unit, or what the thesis prints; returns its change."""
    weights, offsets, sizes, starts = net
    unit = starts[layer] + k
    n_below = sizes[layer + 1]
    base = offsets[layer] + k * n_below
    old = state[unit]
    field = inputs[unit]
    wanted = margin if layer == len(sizes) - 2 else 0.0
    for i in range(n_below):
        child = starts[layer + 1] + i
        w = weights[base + i]
        outside = inputs[child] - w * old
        if printed:
            scale = max(2.0 * temperature, 1e-12)
            term = np.tanh((outside + w) / scale) - np.tanh((outside - w) / scale)
            field += 0.5 * w * (state[child] - 0.5 * term)
        else:
            field += _content(state[child], outside + w, wanted, temperature)
            field -= _content(state[child], outside - w, wanted, temperature)
    if temperature > 0.0:
        new = np.tanh(0.5 * field / temperature)
    elif field == 0.0:
        new = old if abs(old) == 1.0 else 1.0
    else:
        new = np.sign(field)
    if new != old:
        state[unit] = new
        for i in range(n_below):
            inputs[starts[layer + 1] + i] += weights[base + i] * (new - old)
    return float(abs(new - old))


@njit(cache=True, error_model="numpy")
def infer_hidden(
    net: ThresholdLayers, states: Array, temperatures: Array, margin: float, printed: bool,
    words: U8, objectives: Array, trace: Array,
) -> None:  # fmt: skip
    """Hidden units of each pattern, inputs and outputs clamped, from a forward pass on.

    One sweep in random order for each temperature, then sweeps at zero until nothing changes.
    `trace` gets the objective of the first pattern after each sweep at zero, and has as many
    entries as there may be such sweeps.
    """
    _, _, sizes, starts = net
    n_layers = len(sizes)
    n_hidden = starts[n_layers - 1] - starts[1]
    order = np.arange(n_hidden)
    layer_of, place = np.empty(n_hidden, dtype=np.int64), np.empty(n_hidden, dtype=np.int64)
    at = 0
    for layer in range(1, n_layers - 1):
        for k in range(sizes[layer]):
            layer_of[at], place[at] = layer, k
            at += 1
    inputs = np.zeros(states.shape[1])
    for r in range(len(states)):
        state = states[r]
        targets = state[starts[n_layers - 1] :].copy()
        set_activations(net, state, inputs, True)
        copy_into(state, starts[n_layers - 1], targets, 0, len(targets))
        for sweep in range(len(temperatures) + len(trace)):
            cold = sweep >= len(temperatures)
            temperature = 0.0 if cold else temperatures[sweep]
            for f in range(n_hidden - 1, 0, -1):
                g = int(uniform(words, 0) * (f + 1))
                order[f], order[g] = order[g], order[f]
            change = 0.0
            for f in range(n_hidden):
                h = order[f]
                moved = _update(
                    net, layer_of[h], place[h], state, inputs, temperature, margin, printed
                )
                change = max(change, moved)
            if cold:
                if r == 0:
                    trace[sweep - len(temperatures)] = objective(
                        sizes, starts, state, inputs, margin
                    )
                if change == 0.0:
                    break
        set_activations(net, state, inputs, False)
        objectives[r] = objective(sizes, starts, state, inputs, margin)


@njit(cache=True, error_model="numpy")
def perceptron_passes(
    net: ThresholdLayers, states: Array, rate: float, passes: int, words: U8
) -> None:
    """The perceptron rule at every hidden and output unit, pattern by pattern."""
    weights, offsets, sizes, starts = net
    order = np.arange(len(states))
    inputs = np.zeros(states.shape[1])
    for _ in range(passes):
        for f in range(len(order) - 1, 0, -1):
            g = int(uniform(words, 0) * (f + 1))
            order[f], order[g] = order[g], order[f]
        wrong = 0
        for r in order:
            state = states[r]
            set_activations(net, state, inputs, False)
            for layer in range(1, len(sizes)):
                n_above, n_here = sizes[layer - 1], sizes[layer]
                base = offsets[layer - 1]
                for k in range(n_here):
                    unit = starts[layer] + k
                    if inputs[unit] * state[unit] <= 0.0:
                        wrong += 1
                        step = rate * state[unit]
                        for j in range(n_above):
                            weights[base + j * n_here + k] += step * state[starts[layer - 1] + j]
                        weights[base + n_above * n_here + k] += step
        if wrong == 0:
            break
