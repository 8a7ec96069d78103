"""Belief propagation for positive binary pairwise models, in ratio form.

Any positive 2x2 table is a coupling, two fields and a constant, so a message is one
number, r = m(1) / m(0). With k = exp(2 J), `a` the product of everything that comes into a node and
r the message that came back along the edge, the outgoing message costs one division and no
transcendental function:

    r' = (k a + r) / (k r + a).

Messages lie by receiving node: those into node i are `r[start[i]:start[i + 1]]`, and `reverse[e]`
is the position of the message that goes the other way along the same edge. Indices are unsigned,
which spares the compiled loops the wrap-around of negative ones.

Reference: LIU-M6, TEH-I8.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.compiled import njit
from kikuchi.core.copying import copy_into
from kikuchi.graphs.kernels.heap import sift

LINEAR = 0
GEOMETRIC = 1

_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U2 = np.uint64(2)
_U3 = np.uint64(3)
_U4 = np.uint64(4)


class RatioEdges(NamedTuple):
    """The model in ratio form: edges by receiving node, their k, and the fields of the nodes."""

    start: NDArray[Any]
    reverse: NDArray[Any]
    node: NDArray[Any]
    k: NDArray[Any]
    field: NDArray[Any]


@njit(cache=True, error_model="numpy", inline="always")
def _damped(old, new, damping, kind):
    """The message between `old` and `new`, with weight `damping` on the old one."""
    if kind == GEOMETRIC:
        return new * (old / new) ** damping
    one = (1.0 - damping) * new / (1.0 + new) + damping * old / (1.0 + old)
    zero = (1.0 - damping) / (1.0 + new) + damping / (1.0 + old)
    return one / zero


@njit(cache=True, error_model="numpy")
def _parallel_plain(model, r, out):
    """One undamped sweep; nodes of degree four, the inside of a grid, are unrolled."""
    start, reverse, _, k, field = model
    for i in range(np.uint64(field.size)):
        lo = np.uint64(start[i])
        hi = np.uint64(start[i + _U1])
        a = field[i]
        if hi - lo == _U4:
            e1, e2, e3 = lo + _U1, lo + _U2, lo + _U3
            r0, r1, r2, r3 = r[lo], r[e1], r[e2], r[e3]
            k0, k1, k2, k3 = k[lo], k[e1], k[e2], k[e3]
            a *= (r0 * r1) * (r2 * r3)
            out[reverse[lo]] = (k0 * a + r0) / (k0 * r0 + a)
            out[reverse[e1]] = (k1 * a + r1) / (k1 * r1 + a)
            out[reverse[e2]] = (k2 * a + r2) / (k2 * r2 + a)
            out[reverse[e3]] = (k3 * a + r3) / (k3 * r3 + a)
        else:
            for e in range(lo, hi):
                a *= r[e]
            for e in range(lo, hi):
                out[reverse[e]] = (k[e] * a + r[e]) / (k[e] * r[e] + a)


@njit(cache=True, error_model="numpy", inline="always")
def _odds(i, start, field, r):
    """The slots of the edges of node `i`, from and to, and the odds of its belief."""
    lo, hi = np.uint64(start[i]), np.uint64(start[i + _U1])
    a = field[i]
    for e in range(lo, hi):
        a *= r[e]
    return lo, hi, a


@njit(cache=True, error_model="numpy")
def _measured(model, r, out, order, damping, kind):
    """One sweep over the nodes in `order` from the messages `r` into `out`, which may be `r`.

    Returns the largest change of a message probability before damping.
    """
    start, reverse, _, k, field = model
    residual = 0.0
    for position in range(np.uint64(order.size)):
        i = np.uint64(order[position])
        lo, hi, a = _odds(i, start, field, r)
        for e in range(lo, hi):
            new = (k[e] * a + r[e]) / (k[e] * r[e] + a)
            old = r[reverse[e]]
            change = abs(new - old) / ((1.0 + new) * (1.0 + old))
            residual = max(residual, change)
            out[reverse[e]] = new if damping == 0.0 else _damped(old, new, damping, kind)
    return residual


@njit(cache=True, error_model="numpy")
def parallel(model, r, spare, order, sweeps, damping, kind):
    """`sweeps` parallel sweeps; the messages end in `r` (`spare` is a second buffer)."""
    source, target = r, spare
    residual = 0.0
    for sweep in range(sweeps):
        if damping == 0.0 and sweep < sweeps - 1:
            _parallel_plain(model, source, target)
        else:
            residual = _measured(model, source, target, order, damping, kind)
        source, target = target, source
    if sweeps % 2 == 1:
        copy_into(r, 0, spare, 0, len(r))
    return residual


@njit(cache=True, error_model="numpy")
def sequential(model, r, order, damping, kind):
    """One sweep over the nodes in `order`; what one sends is used by the next."""
    return _measured(model, r, r, order, damping, kind)


# ---------------------------------------------------------------------- residual schedule


@njit(cache=True, error_model="numpy")
def _propose_from(i, skip, model, r, new, queue):
    """What node `i` would now send, except along the edge of slot `skip`; re-sort these."""
    start, reverse, _, k, field = model
    key, heap, place = queue
    lo, hi, a = _odds(i, start, field, r)
    for e in range(lo, hi):
        if e != skip:
            g = np.uint64(reverse[e])
            value = (k[e] * a + r[e]) / (k[e] * r[e] + a)
            new[g] = value
            key[g] = abs(value - r[g]) / ((1.0 + value) * (1.0 + r[g]))
            sift(heap, place, key, np.uint64(place[g]))


@njit(cache=True, error_model="numpy")
def residual_start(model, r, new, queue):
    """Proposals of all messages and the heap over their distances."""
    key, heap, place = queue
    for e in range(np.uint64(r.size)):
        heap[e] = np.uint32(e)
        place[e] = np.uint32(e)
        key[e] = 0.0
    none = np.uint64(r.size)
    for i in range(np.uint64(model.field.size)):
        _propose_from(i, none, model, r, new, queue)


@njit(cache=True, error_model="numpy")
def residual_updates(model, r, new, damping, kind, queue, limits):
    """Updates of the message that would change most, within `limits` (an `UpdateLimits`).

    Returns the largest distance left and the number of updates done.
    """
    start, _, node, _, _ = model
    key, heap, place = queue
    count, most, tol = limits
    done = 0
    proposed = _U0
    while done < count and proposed <= np.uint64(most) and key[heap[_U0]] > tol:
        e = np.uint64(heap[_U0])
        r[e] = new[e] if damping == 0.0 else _damped(r[e], new[e], damping, kind)
        key[e] = abs(new[e] - r[e]) / ((1.0 + new[e]) * (1.0 + r[e]))
        sift(heap, place, key, _U0)
        i = np.uint64(node[e])
        _propose_from(i, e, model, r, new, queue)
        proposed += np.uint64(start[i + _U1]) - np.uint64(start[i])
        done += 1
    return key[heap[_U0]], done


# ---------------------------------------------------------------------- reading the answer


@njit(cache=True, error_model="numpy")
def beliefs(model, r, product, out):
    """Products of all that comes into each node, and the beliefs (1, a) / (1 + a)."""
    start, _, _, _, field = model
    for i in range(np.uint64(field.size)):
        a = field[i]
        for e in range(np.uint64(start[i]), np.uint64(start[i + _U1])):
            a *= r[e]
        product[i] = a
        out[_U2 * i] = 1.0 / (1.0 + a)
        out[_U2 * i + _U1] = a / (1.0 + a)


@njit(cache=True, error_model="numpy")
def bethe(model, r, product):
    """Bethe free energy of the model exp(J s s') prod_i (1, f_i) at the present messages.

    With c = a / r the cavity ratios at both ends of an edge, its belief is proportional to
    (k, c', c, k c c') / sqrt(k), with sum Z; a pair adds b(x=1) log c + b(y=1) log c' - log Z, and
    a node of degree d adds (d - 1) times its entropy and -b(1) log f.
    """
    start, reverse, node, k, field = model
    energy = 0.0
    for i in range(np.uint64(field.size)):
        lo = np.uint64(start[i])
        hi = np.uint64(start[i + _U1])
        a = product[i]
        one = a / (1.0 + a)
        entropy = np.log1p(a) / (1.0 + a) - one * np.log(one)
        energy -= (1.0 - float(hi - lo)) * entropy + one * np.log(field[i])
        log_a = np.log(a)
        for e in range(lo, hi):
            back = np.uint64(reverse[e])
            c = a / r[e]
            d = product[node[back]] / r[back]
            total = k[e] + c + d + k[e] * c * d
            energy += (c + k[e] * c * d) / total * (log_a - np.log(r[e]))
            if e < back:
                energy -= np.log(total) - 0.5 * np.log(k[e])
    return energy
