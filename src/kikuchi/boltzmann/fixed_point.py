"""Fixed-point iteration of means that lower a free energy, clamped to data or free.

All rows of data at once, each unit in turn, each row until its means no longer change. A side
without connections inside is solved in one step.

Reference: LAW-I14, WH-I2, WH-I2 to I4, WH-I6, WH-L7, WH-L9, WH-L10, WH-M1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.boltzmann.conversion import joint_weights
from kikuchi.boltzmann.exact import as_inputs, as_rows, clamped
from kikuchi.boltzmann.free_energies import MEAN_FIELD, FreeEnergy, free_energy_named
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import BinaryUnits, Units
from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.errors import DataError, ModelError
from kikuchi.core.log import warn_caller

TOLERANCE = 1e-6
MOST_SWEEPS = 2000

_SMALL = 512  # units up to which sweeps over all of them beat products of matrices


class Iteration(TypedDict, total=False):
    """Options of a fixed-point iteration; see `fixed_point_means`."""

    energy: str | FreeEnergy
    tol: float
    max_iter: int
    damping: float


class FixedPointMeans(NamedTuple):
    """Means of one side or of all units, one row per row of data, and how the iteration ended.

    `residual` is the largest change of any mean in the last sweep, `saturated` counts means that
    are exactly 0 or 1 in the end. Nothing is clipped.
    """

    means: Array
    sweeps: Ints
    residual: float
    converged: bool
    saturated: int


class Reconstruction(NamedTuple):
    """Means of both sides after rounds of descent from the data."""

    visible: Array
    hidden: Array
    rounds: int
    converged: bool


class Joint(NamedTuple):
    """Means of both sides, iterated together."""

    visible: Array
    hidden: Array
    sweeps: int
    converged: bool


def fixed_point_means(
    weights: ArrayLike,
    fields: ArrayLike,
    start: ArrayLike | None = None,
    *,
    energy: str | FreeEnergy = "mf",
    tol: float = TOLERANCE,
    max_iter: int = MOST_SWEEPS,
    damping: float = 0.0,
) -> FixedPointMeans:
    """Means of binary units with these weights among them and these rows of external fields.

    Sequential sweeps; the free energy of a row never rises. With `tol=0` exactly
    `max_iter` are done.

    >>> point = fixed_point_means([[0, 2], [2, 0]], [[-1.0, -1.0], [3.0, 3.0]])
    >>> point.means.round(3).tolist(), point.converged
    ([[0.5, 0.5], [0.993, 0.993]], True)
    """
    kind = free_energy_named(energy) if isinstance(energy, str) else energy
    w = np.ascontiguousarray(weights, dtype=np.float64)
    f = np.ascontiguousarray(np.atleast_2d(np.asarray(fields, dtype=np.float64)))
    means = np.full(f.shape, 0.5) if start is None else np.array(start, dtype=np.float64, order="C")
    if w.shape != (f.shape[1],) * 2 or means.shape != f.shape:
        raise DataError(
            f"means: weights of shape {w.shape}, fields {f.shape} and start {means.shape} "
            "do not fit together"
        )
    kind.check_weights(w)
    sweeps, changes = np.zeros(len(f), dtype=np.int64), np.zeros(len(f))
    if f.size:
        kind.sweeps()(w, f, means, (1.0 - damping, tol, max_iter), sweeps, changes)
    residual = float(changes.max(initial=0.0))
    saturated = int(np.count_nonzero((means == 0.0) | (means == 1.0)))
    return FixedPointMeans(means, sweeps, residual, residual <= tol, saturated)


def hidden_means(
    machine: Machine,
    visible: ArrayLike,
    start: ArrayLike | None = None,
    **options: Unpack[Iteration],
) -> FixedPointMeans:
    """Means of the hidden units with the visible ones clamped: the positive phase (9)."""
    fields = np.asarray(visible, dtype=np.float64) @ machine.weights + machine.hidden_bias
    return _side_means(machine.hidden, machine.hidden_weights, fields, start, options)


def visible_means(
    machine: Machine,
    hidden: ArrayLike,
    start: ArrayLike | None = None,
    **options: Unpack[Iteration],
) -> FixedPointMeans:
    """Means of the visible units with the hidden ones clamped (10)."""
    fields = np.asarray(hidden, dtype=np.float64) @ machine.weights.T + machine.visible_bias
    return _side_means(machine.visible, machine.visible_weights, fields, start, options)


def _side_means(
    units: Units, lateral: Array | None, fields: Array, start: ArrayLike | None, options: Iteration
) -> FixedPointMeans:
    if lateral is None:
        means = np.asarray(units.mean(fields))
        binary = isinstance(units, BinaryUnits)
        saturated = int(np.count_nonzero((means == 0.0) | (means == 1.0))) if binary else 0
        return FixedPointMeans(means, np.ones(len(fields), dtype=np.int64), 0.0, True, saturated)
    check_connected(units)
    return fixed_point_means(lateral, fields, start, **options)


def check_connected(units: Units) -> None:
    """Refuse other than binary units, which alone may be connected inside their side."""
    if not isinstance(units, BinaryUnits):
        raise ModelError(
            f"units of kind {units.text} cannot be connected among themselves; use binary units "
            "or an architecture without these connections"
        )


# ---------------------------------------------------------------------- both sides


def reconstruct_means(
    machine: Machine,
    visible: ArrayLike,
    hidden: Array,
    *,
    rounds: int = 1,
    energy: str | FreeEnergy = "mf",
    inner: int = 3,
    damping: float = 0.0,
    tol: float = TOLERANCE,
    max_rounds: int = MOST_SWEEPS,
    draw: np.random.Generator | None = None,
) -> Reconstruction:
    """Rounds of descent from (data, `hidden`): visible means, then hidden ones.

    `inner` sweeps over each side per round. `rounds=0` goes on until no mean of a row moves by more
    than `tol` in a round (MF_infinity); mean field of a machine that is not large does so
    in rounds of one sweep, which is faster. With `draw`, means become samples before they act on
    the other side; the hidden ones of the last round stay means.
    """
    kind = free_energy_named(energy) if isinstance(energy, str) else energy
    if rounds == 0 and draw is None and _small_mean_field(machine, kind):
        joint = joint_means(
            machine, visible, hidden, tol=tol, max_iter=inner * max_rounds, damping=damping
        )
        return Reconstruction(joint.visible, joint.hidden, joint.sweeps, joint.converged)
    r = np.array(visible, dtype=np.float64)
    q = np.array(hidden, dtype=np.float64)
    active = np.arange(len(r))
    limit = rounds or max_rounds
    done = 0
    while done < limit and len(active):
        done += 1
        if draw is not None:
            q = sample_means(machine.hidden, q, draw)
        old_r, old_q = r[active], q[active]
        new_r = visible_means(
            machine, old_q, old_r, energy=kind, tol=0.0, max_iter=inner, damping=damping
        ).means
        if draw is not None:
            new_r = sample_means(machine.visible, new_r, draw)
        new_q = hidden_means(
            machine, new_r, old_q, energy=kind, tol=0.0, max_iter=inner, damping=damping
        ).means
        r[active], q[active] = new_r, new_q
        if rounds == 0:
            moved = np.abs(new_r - old_r).max(axis=1, initial=0.0)
            moved = np.maximum(moved, np.abs(new_q - old_q).max(axis=1, initial=0.0))
            active = active[moved > tol * (1.0 - damping)]
    return Reconstruction(r, q, done, len(active) == 0 or rounds > 0)


def _small_mean_field(machine: Machine, kind: FreeEnergy) -> bool:
    binary = isinstance(machine.visible, BinaryUnits) and isinstance(machine.hidden, BinaryUnits)
    small = machine.n_visible + machine.n_hidden <= _SMALL
    return kind is MEAN_FIELD and binary and small


def sample_means(units: Units, means: Array, rng: np.random.Generator) -> Array:
    """Binary states drawn from a product distribution with these means."""
    if not isinstance(units, BinaryUnits):
        raise ModelError(f"units of kind {units.text} are not drawn from means alone")
    return (rng.random(means.shape) < means).astype(np.float64)


def joint_means(
    machine: Machine,
    visible: ArrayLike,
    hidden: ArrayLike,
    *,
    inputs: Mask | None = None,
    temperatures: Sequence[float] = (),
    tol: float = TOLERANCE,
    max_iter: int = MOST_SWEEPS,
    damping: float = 0.0,
) -> Joint:
    """Mean field of all units that are not `inputs`, from the given means (4.11).

    One sweep at each of the `temperatures`, then sweeps at 1 until nothing moves.
    """
    check_connected(machine.visible)
    check_connected(machine.hidden)
    weights, biases = joint_weights(machine)
    means = np.hstack([np.atleast_2d(visible), np.atleast_2d(hidden)]).astype(np.float64)
    fixed = np.zeros(len(biases), dtype=np.bool_)
    if inputs is not None:
        fixed[: machine.n_visible] = as_inputs(machine, inputs)
    free = ~fixed
    fields = means[:, fixed] @ weights[np.ix_(fixed, free)] + biases[free]
    inside, start = weights[np.ix_(free, free)], means[:, free]
    for temperature in temperatures:
        start = fixed_point_means(
            inside / temperature, fields / temperature, start,
            tol=0.0, max_iter=1, damping=damping,
        ).means  # fmt: skip
    point = fixed_point_means(inside, fields, start, tol=tol, max_iter=max_iter, damping=damping)
    means[:, free] = point.means
    d = machine.n_visible
    most = int(point.sweeps.max(initial=0))
    return Joint(means[:, :d], means[:, d:], most, point.converged)


def free_energy(
    machine: Machine, visible: ArrayLike, energy: str = "mf", *, tol: float = TOLERANCE
) -> Array:
    """F_0 of each row: the hidden means converged with the row clamped.

    `energy` is mf, tap or bethe, or exact (-log sum_h exp(-E), by enumeration where hidden units
    are connected). mf is never below exact; on a side without connections all are the same.

    >>> machine = Machine.random(3, 2, architecture="poe", scale=1.0, random_state=0)
    >>> gap = free_energy(machine, [[1, 0, 1]], "mf") - free_energy(machine, [[1, 0, 1]], "exact")
    >>> bool(np.all(np.abs(gap) < 1e-12))
    True
    """
    rows = as_rows(machine, visible)
    if energy == "exact":
        return -clamped(machine, rows).log_weights
    kind = free_energy_named(energy)
    point = hidden_means(machine, rows, energy=kind, tol=tol)
    if not point.converged:
        warn_caller(
            f"the means still change by {point.residual:.2g} after {MOST_SWEEPS} sweeps; "
            "these free energies are too high",
        )
    return kind.value(machine, rows, point.means, clamped=True)


def mean_field_bound(machine: Machine, visible: Array, hidden: Array) -> Array:
    """The lower bound on log Z of each row of joint means."""
    return -MEAN_FIELD.value(machine, visible, hidden)
