"""Layered layout of a graph with boxes: parents above children, few crossings, short edges.

The four steps of Sugiyama, Tagawa and Toda (1981): assign layers of bounded width, put a waypoint
on every layer that an edge passes, order each layer to reduce crossings, and choose coordinates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kikuchi.core.arrays import Array

Edge = tuple[int, int]

_SWEEPS = 12  # of the crossing reduction, down and up
_PASSES = 30  # of the coordinate assignment
_STRAIGHTNESS = (
    1.0,
    2.0,
    8.0,
)  # weight of a link between two boxes, a box and a waypoint, two waypoints
_PULL = 0.02  # weight of the centre of the figure, so that disconnected parts stay together
_WAY_GAP = 0.15  # space next to a waypoint


@dataclass(frozen=True, eq=False)
class LayeredLayout:
    """Centres of the boxes, and the waypoints of each edge from the top to the bottom.

    `x` and `top` contain the horizontal centre and the upper end of each box, `layer` its layer,
    and `routes` the horizontal centres and layers of the waypoints of each edge.
    """

    x: Array
    top: Array
    layer: list[int]
    layer_top: Array
    layer_height: Array
    routes: list[list[tuple[int, float]]]

    @property
    def width(self) -> float:
        """The right end of the centres of boxes and waypoints."""
        ways = [x for route in self.routes for _, x in route]
        return float(max([*self.x.tolist(), *ways], default=0.0))


def layered(
    n: int,
    edges: Sequence[Edge],
    widths: Sequence[float],
    heights: Sequence[float],
    *,
    gap: float = 0.3,
    layer_gap: float = 0.5,
) -> LayeredLayout:
    """Lay out `n` boxes of the given sizes so that every edge points downwards.

    Parameters
    ----------
    n : int
        Number of boxes.
    edges : Sequence[Edge]
        Pairs (upper, lower); they must not form a cycle.
    widths, heights : Sequence[float]
        Size of each box.
    gap : float, default 0.3
        Horizontal space between two boxes.
    layer_gap : float, default 0.5
        Vertical space between two layers.

    >>> layout = layered(3, [(0, 1), (0, 2)], [1.0] * 3, [1.0] * 3, gap=0.5, layer_gap=1.0)
    >>> layout.layer, layout.top.tolist(), layout.x.round(6).tolist()
    ([0, 1, 1], [0.0, 2.0, 2.0], [1.25, 0.5, 2.0])
    """
    layer = _layers(n, edges, widths, gap)
    depth = max(layer, default=-1) + 1
    node_layer, chains = _waypoints(n, edges, layer)
    size = [*widths, *[0.0] * (len(node_layer) - n)]
    links = [link for chain in chains for link in itertools.pairwise(chain)]
    rows = _ordered(node_layer, links, depth)
    x = _coordinates(rows, links, size, gap, n)
    layer_height = np.zeros(depth)
    for v in range(n):
        layer_height[layer[v]] = max(layer_height[layer[v]], heights[v])
    layer_top = np.concatenate([[0.0], np.cumsum(layer_height + layer_gap)])[:depth]
    routes = [[(node_layer[w], float(x[w])) for w in chain[1:-1]] for chain in chains]
    top = np.array([layer_top[layer[v]] for v in range(n)])
    return LayeredLayout(x[:n], top, layer, layer_top, layer_height, routes)


def rectangular(
    rows: int, columns: int, edges: Sequence[Edge], width: float, height: float, gap: float = 0.3
) -> LayeredLayout:
    """Lay out boxes of one size as a grid with `rows` and `columns`, numbered row by row.

    >>> layout = rectangular(2, 2, [(0, 1)], 1.0, 0.5, gap=0.5)
    >>> layout.x.tolist(), layout.top.tolist()
    ([0.5, 2.0, 0.5, 2.0], [0.0, 0.0, 1.0, 1.0])
    """
    layer = [v // columns for v in range(rows * columns)]
    x = width / 2 + (width + gap) * np.tile(np.arange(columns, dtype=np.float64), rows)
    layer_top = (height + gap) * np.arange(rows, dtype=np.float64)
    heights = np.full(rows, height)
    return LayeredLayout(
        np.asarray(x, dtype=np.float64),
        layer_top[layer],
        layer,
        layer_top,
        heights,
        [[] for _ in edges],
    )


def _layers(n: int, edges: Sequence[Edge], widths: Sequence[float], gap: float) -> list[int]:
    """Return the layer of each box: below its parents, where there is still space."""
    parents: list[list[int]] = [[] for _ in range(n)]
    children: list[list[int]] = [[] for _ in range(n)]
    for u, v in edges:
        parents[v].append(u)
        children[u].append(v)
    total = sum(widths) + gap * n
    widest = max(max(widths, default=1.0), 1.6 * math.sqrt(total))
    used: list[float] = []
    layer = [0] * n
    for v in _topological(n, parents, children):
        place = max((layer[u] + 1 for u in parents[v]), default=0)
        while place < len(used) and used[place] + widths[v] > widest:
            place += 1
        used.extend([0.0] * (place + 1 - len(used)))
        used[place] += widths[v] + gap
        layer[v] = place
    for v in reversed(_topological(n, parents, children)):  # roots move down to their children
        lowest = min((layer[w] for w in children[v]), default=layer[v] + 1) - 1
        while not parents[v] and lowest > layer[v] and used[lowest] + widths[v] > widest:
            lowest -= 1
        if not parents[v] and lowest > layer[v]:
            used[layer[v]] -= widths[v] + gap
            used[lowest] += widths[v] + gap
            layer[v] = lowest
    kept = sorted(set(layer))
    return [kept.index(place) for place in layer]


def _topological(n: int, parents: list[list[int]], children: list[list[int]]) -> list[int]:
    """Return an order with parents first and families together."""
    waiting = [len(p) for p in parents]
    ready = [v for v in range(n) if not waiting[v]]
    order: list[int] = []
    while ready:
        v = ready.pop(0)
        order.append(v)
        for w in children[v]:
            waiting[w] -= 1
            if not waiting[w]:
                ready.append(w)
    return order


def _waypoints(
    n: int, edges: Sequence[Edge], layer: list[int]
) -> tuple[list[int], list[list[int]]]:
    """Layers of boxes and waypoints, and each edge as a chain from layer to layer."""
    node_layer = list(layer)
    chains = []
    for u, v in edges:
        between = range(layer[u] + 1, layer[v])
        chains.append([u, *range(len(node_layer), len(node_layer) + len(between)), v])
        node_layer.extend(between)
    return node_layer, chains


# ---------------------------------------------------------------------- order within layers


def _ordered(node_layer: list[int], links: Sequence[Edge], depth: int) -> list[list[int]]:
    """The nodes of each layer from left to right, with few crossings."""
    rows: list[list[int]] = [[] for _ in range(depth)]
    for v, place in enumerate(node_layer):
        rows[place].append(v)
    above: dict[int, list[int]] = {v: [] for v in range(len(node_layer))}
    below: dict[int, list[int]] = {v: [] for v in range(len(node_layer))}
    for u, v in links:
        below[u].append(v)
        above[v].append(u)
    best, fewest = [list(row) for row in rows], _crossings(rows, below)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for place in range(1, depth) if down else range(depth - 2, -1, -1):
            fixed = rows[place - 1 if down else place + 1]
            _sort_by_mean(rows[place], fixed, above if down else below)
        _exchange(rows, above, below)
        count = _crossings(rows, below)
        if count < fewest:
            best, fewest = [list(row) for row in rows], count
    return best


def _sort_by_mean(row: list[int], fixed: list[int], near: dict[int, list[int]]) -> None:
    """Sort a layer by the mean position of the neighbours in the adjacent layer."""
    place = {v: k for k, v in enumerate(fixed)}
    key = {
        v: float(np.mean([place[u] for u in near[v]])) if near[v] else float(k)
        for k, v in enumerate(row)
    }
    row.sort(key=lambda v: key[v])


def _exchange(
    rows: list[list[int]], above: dict[int, list[int]], below: dict[int, list[int]]
) -> None:
    """Exchange neighbours of a layer while that removes crossings."""
    for k, row in enumerate(rows):
        sides = [(rows[k - 1], above)] if k else []
        sides += [(rows[k + 1], below)] if k + 1 < len(rows) else []
        places = [({v: i for i, v in enumerate(other)}, near) for other, near in sides]
        improved = True
        while improved:
            improved = False
            for i in range(len(row) - 1):
                gain = sum(_pair_gain(row[i], row[i + 1], place, near) for place, near in places)
                if gain > 0:
                    row[i], row[i + 1] = row[i + 1], row[i]
                    improved = True


def _pair_gain(left: int, right: int, place: dict[int, int], near: dict[int, list[int]]) -> int:
    """Crossings between the edges of two neighbours that an exchange would remove."""
    pairs = [(place[a], place[b]) for a in near[left] for b in near[right]]
    return sum(a > b for a, b in pairs) - sum(a < b for a, b in pairs)


def _crossings(rows: list[list[int]], below: dict[int, list[int]]) -> int:
    total = 0
    for upper, lower in itertools.pairwise(rows):
        place = {v: k for k, v in enumerate(lower)}
        ends = [k for v in upper for k in sorted(place[w] for w in below[v])]
        total += sum(a > b for i, a in enumerate(ends) for b in ends[i + 1 :])
    return total


# ---------------------------------------------------------------------- coordinates


def _coordinates(
    rows: list[list[int]], links: Sequence[Edge], size: Sequence[float], gap: float, n_boxes: int
) -> Array:
    """Horizontal centres: each node near the mean of its neighbours, none closer than `gap`."""
    x = np.zeros(len(size))
    near: list[list[int]] = [[] for _ in size]
    pull: list[list[float]] = [[] for _ in size]
    for u, v in links:
        weight = _STRAIGHTNESS[(u >= n_boxes) + (v >= n_boxes)]
        for here, there in ((u, v), (v, u)):
            near[here].append(there)
            pull[here].append(weight)
    distance = []
    for row in rows:
        steps = [
            (size[a] + size[b]) / 2 + (gap if max(a, b) < n_boxes else _WAY_GAP)
            for a, b in itertools.pairwise(row)
        ]
        distance.append(np.concatenate([[0.0], np.cumsum(steps)]))
        x[row] = distance[-1] - distance[-1][-1] / 2
    weight_of = np.array([sum(weights) + _PULL for weights in pull])
    for sweep in range(_PASSES):
        down = sweep % 2 == 0
        for k in range(len(rows)) if down else range(len(rows) - 1, -1, -1):
            row = rows[k]
            wish = [
                x[near[v][0 if down else 1]]  # a waypoint is placed below the previous one
                if v >= n_boxes
                else float(np.dot(pull[v], x[near[v]])) / weight_of[v]
                for v in row
            ]
            x[row] = _isotonic(np.array(wish) - distance[k], weight_of[row]) + distance[k]
    left = min((x[v] - size[v] / 2 for v in range(len(size))), default=0.0)
    return np.asarray(x - left)


def _isotonic(wish: Array, weight: Array) -> Array:
    """Return the weighted isotonic regression of `wish` (pool adjacent violators)."""
    blocks: list[list[float]] = []  # mean, weight, count
    for value, w in zip(wish.tolist(), weight.tolist(), strict=True):
        blocks.append([value, w, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, mass, count = blocks.pop()
            last = blocks[-1]
            last[0] = (last[0] * last[1] + mean * mass) / (last[1] + mass)
            last[1] += mass
            last[2] += count
    return np.concatenate([np.full(int(count), mean) for mean, _, count in blocks])
