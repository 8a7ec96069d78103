"""`SigmoidNetwork`: a directed acyclic network of sigmoid units, layered or of any other form.

Units are 0 or 1 and P(s_i = 1 | parents) = sigmoid(z_i), z_i = b_i + sum_j w_ij s_j, so that

    log P(s) = sum_i (s_i z_i - log(1 + e^{z_i})),

which is normalised: Z = 1. Units of -1 and 1 are the same network with other weights.
"""

from __future__ import annotations

import graphlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.special import expit

from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.errors import DataError, EvidenceError, MethodError, ModelError
from kikuchi.core.seeds import Seed, generator
from kikuchi.graphs.directed import bayesian_network
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.training.checkpoint import Arrays
from kikuchi.training.model import Parameters

Units = Literal["bits", "spins"]
Evidence = Mapping[int, float] | ArrayLike

LARGEST = 300.0  # of a weight: beyond it e^w is out of range, and a unit is a hard threshold
_MOST_PARENTS = 20  # of a unit whose table is written out


class Edges(NamedTuple):
    """A network as the compiled loops read it; edges are sorted by parent, then by child."""

    bias: Array
    weights: Array
    first: U4  # edges that leave unit k: first[k] to first[k + 1]
    heads: U4  # child of each edge
    into_first: U4  # edges that enter unit i: into[into_first[i]] to into[into_first[i + 1]]
    into: U4
    tails: U4  # parent of each edge


class SigmoidNetwork:
    """A sigmoid belief network: biases, weights on edges, and which units are visible.

    Make one by `layered`, `from_edges` or `random`. `parameters` holds `bias` by unit and `weights`
    by edge, sorted by parent and then by child, as `tails` and `heads` name them. `layers` are the
    sizes of the layers from the top if it is layered, else empty. With `units="spins"` rows of data
    hold -1 and 1; weights are always those of bits.

    `visible` are the numbers of the units that rows of data are about.

    Reference: LAW-M3, LAW-M1.

    >>> net = SigmoidNetwork.layered([np.array([[4.0, -4.0]])], [[0.0], [-2.0, 2.0]])
    >>> net.n_units, net.visible.tolist(), net.layers
    (3, [1, 2], (1, 2))
    >>> bool(np.isclose(np.exp(net.log_joint([[0, 0, 1]]))[0], 0.5 * 0.8808 * 0.8808, atol=1e-4))
    True
    """

    kind: ClassVar[str] = "sigmoid-network"
    weight_limit: ClassVar[float] = LARGEST

    def __init__(
        self,
        bias: ArrayLike,
        tails: ArrayLike,
        heads: ArrayLike,
        weights: ArrayLike,
        visible: ArrayLike,
        *,
        layers: Sequence[int] = (),
        units: Units = "bits",
    ) -> None:
        values = np.array(bias, dtype=np.float64)
        edge_weights = np.array(weights, dtype=np.float64)
        self.tails = np.asarray(tails, dtype=np.uint32).reshape(-1)
        self.heads = np.asarray(heads, dtype=np.uint32).reshape(-1)
        self.visible: Ints = np.asarray(visible, dtype=np.int64).reshape(-1)
        self.layers = tuple(int(size) for size in layers)
        self.units: Units = units
        self.parameters: Parameters = {"weights": edge_weights, "bias": values}
        self._check()
        n = len(values)
        self.hidden: Ints = np.setdiff1d(np.arange(n), self.visible)
        self.first = _offsets(self.tails, n)
        self.into = np.argsort(self.heads, kind="stable").astype(np.uint32)
        self.into_first = _offsets(self.heads[self.into], n)
        self.order = self._order()
        self._check_reach()

    # ------------------------------------------------------------------ other forms

    @classmethod
    def layered(
        cls,
        weights: Sequence[ArrayLike],
        biases: Sequence[ArrayLike],
        *,
        units: Units = "bits",
    ) -> Self:
        """A network of layers from the top; the last layer is visible.

        Parameters
        ----------
        weights : one matrix (units above, units below) for each two layers that follow each other.
        biases : one vector for each layer.
        units : "bits" (0, 1), or "spins" (-1, 1): these weights and biases are then those of spins.
        """
        matrices = [np.asarray(w, dtype=np.float64) for w in weights]
        vectors = [np.asarray(b, dtype=np.float64).reshape(-1) for b in biases]
        sizes = [len(b) for b in vectors]
        for at, matrix in enumerate(matrices):
            if matrix.shape != tuple(sizes[at : at + 2]):
                raise ModelError(
                    f"weights {at} have shape {matrix.shape}, and layers {at} and {at + 1} have "
                    f"{sizes[at : at + 2]} units; give one row per unit above"
                )
        if len(matrices) != len(vectors) - 1 or len(vectors) < 2:
            raise ModelError(
                f"{len(matrices)} matrices of weights for {len(vectors)} layers; give one less "
                "than there are layers, of which there are at least two"
            )
        tails, heads = layer_edges(sizes)
        flat = np.concatenate([matrix.ravel() for matrix in matrices])
        visible = np.arange(sum(sizes[:-1]), sum(sizes))
        bias = np.concatenate(vectors)
        if units == "spins":
            flat, bias = _from_spins(flat, bias, heads, tails)
        return cls(bias, tails, heads, flat, visible, layers=sizes, units=units)

    @classmethod
    def from_edges(
        cls,
        bias: ArrayLike,
        edges: Mapping[tuple[int, int], float],
        visible: ArrayLike,
        *,
        units: Units = "bits",
    ) -> Self:
        """A network of any acyclic form.

        Parameters
        ----------
        bias : one number per unit.
        edges : weight of each (parent, child).
        visible : the units of which rows of data hold the states, in that order.
        units : "bits" (0, 1), or "spins" (-1, 1): weights and biases are then those of spins.

        >>> net = SigmoidNetwork.from_edges([0, 0, 0], {(0, 1): 1.0, (0, 2): 2.0}, [1, 2])
        >>> net.hidden.tolist(), net.heads.tolist()
        ([0], [1, 2])
        """
        pairs = sorted((int(parent), int(child)) for parent, child in edges)
        tails = np.array([p for p, _ in pairs], dtype=np.int64)
        heads = np.array([c for _, c in pairs], dtype=np.int64)
        values = np.array(bias, dtype=np.float64)
        if len(pairs) and (min(tails.min(), heads.min()) < 0):
            raise ModelError("units of edges count from 0")
        weights = np.array([edges[pair] for pair in pairs], dtype=np.float64)
        if units == "spins" and len(pairs) and max(tails.max(), heads.max()) < len(values):
            weights, values = _from_spins(weights, values, heads, tails)
        return cls(values, tails, heads, weights, visible, units=units)

    @classmethod
    def random(
        cls,
        layers: Sequence[int],
        *,
        span: float = 1.0,
        random_state: Seed = None,
        units: Units = "bits",
    ) -> Self:
        """A network with `layers` of so many units, from the top down, whose weights and biases are
        uniform on (-`span`, `span`). `units` are bits (0, 1) or spins (-1, 1); `random_state` is
        the seed.

        >>> SigmoidNetwork.random((2, 4, 6), random_state=0).n_edges
        32
        """
        rng = generator(random_state)
        weights = [rng.uniform(-span, span, size=pair) for pair in pairwise(layers)]
        return cls.layered(weights, [rng.uniform(-span, span, size=n) for n in layers], units=units)

    def matrices(self) -> list[Array]:
        """Weights (units above, units below) between layers, as views of the parameters."""
        if not self.layers:
            raise ModelError("this network has no layers; read `tails`, `heads` and `parameters`")
        found, at = [], 0
        for above, below in zip(self.layers[:-1], self.layers[1:], strict=True):
            size = above * below
            found.append(self.parameters["weights"][at : at + size].reshape(above, below))
            at += size
        return found

    def layer_slices(self) -> list[slice]:
        """The units of each layer."""
        ends = np.cumsum((0, *self.layers))
        return [slice(int(a), int(b)) for a, b in pairwise(ends)]

    def spin_parameters(self) -> Parameters:
        """Weights and biases of the same network on units of -1 and 1."""
        weights = self.parameters["weights"] / 2.0
        moved = np.bincount(self.heads, weights, minlength=self.n_units)
        return {"weights": weights, "bias": self.parameters["bias"] + moved}

    def to_factor_graph(self) -> FactorGraph:
        """The network as conditional tables, for units with at most 20 parents.

        >>> import kikuchi as kk
        >>> graph = SigmoidNetwork.random((1, 2), random_state=0).to_factor_graph()
        >>> round(kk.infer(graph, "jt").log_z, 12) + 0.0
        0.0
        """
        tables: dict[Any, tuple[list[int], Array]] = {}
        for unit in range(self.n_units):
            edges = self.into[self.into_first[unit] : self.into_first[unit + 1]]
            if len(edges) > _MOST_PARENTS:
                raise ModelError(
                    f"unit {unit} has {len(edges)} parents, whose table is too large; at most "
                    f"{_MOST_PARENTS}"
                )
            z = np.full((2,) * len(edges), self.parameters["bias"][unit])
            for axis, edge in enumerate(edges):
                shape = [1] * len(edges)
                shape[axis] = 2
                z = z + np.reshape([0.0, self.parameters["weights"][edge]], shape)
            on = 1.0 / (1.0 + np.exp(-z))
            parents = [int(self.tails[edge]) for edge in edges]
            tables[unit] = (parents, np.stack([1.0 - on, on], axis=-1))
        return bayesian_network([2] * self.n_units, tables)

    # ------------------------------------------------------------------ what it is

    @property
    def n_units(self) -> int:
        """Number of units, hidden and visible."""
        return len(self.parameters["bias"])

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return len(self.tails)

    @property
    def edges(self) -> Edges:
        """The arrays of the compiled loops."""
        p = self.parameters
        return Edges(
            p["bias"], p["weights"], self.first, self.heads, self.into_first, self.into, self.tails
        )

    def __repr__(self) -> str:
        """Form and size."""
        form = "-".join(map(str, self.layers)) if self.layers else "acyclic"
        return f"SigmoidNetwork({form}, {self.n_units} units, {self.n_edges} edges)"

    # ------------------------------------------------------------------ probabilities

    def inputs(self, states: ArrayLike) -> Array:
        """z of every unit at rows of `states` (0, 1) of all units, (rows, units)."""
        rows = np.atleast_2d(np.asarray(states, dtype=np.float64))
        p = self.parameters
        if self.layers:
            z = np.tile(p["bias"], (len(rows), 1))
            slices = self.layer_slices()
            for above, below, w in zip(slices[:-1], slices[1:], self.matrices(), strict=True):
                z[:, below] += rows[:, above] @ w
            return z
        dense = np.zeros((self.n_units, self.n_units))
        dense[self.tails, self.heads] = p["weights"]
        return np.asarray(p["bias"] + rows @ dense)

    def log_joint(self, states: ArrayLike) -> Array:
        """log P of rows of `states` (0, 1) of all units, (rows, units)."""
        rows = np.atleast_2d(np.asarray(states, dtype=np.float64))
        z = self.inputs(rows)
        return np.asarray(np.sum(rows * z - np.logaddexp(0.0, z), axis=1))

    def sample_states(
        self, count: int, random_state: Seed = None, known: Array | None = None
    ) -> Array:
        """`count` rows of states (0, 1) of all units, drawn from parents to children with the seed
        `random_state`.

        `known` are states with NaN for unknown, one row per sample: these are kept, and what is
        below follows from them (what is above does not).
        """
        if count < 1:
            raise DataError(f"at least 1 sample is needed, got {count}")
        rng = generator(random_state)
        states = np.zeros((count, self.n_units))
        p = self.parameters
        if self.layers:
            slices = self.layer_slices()
            z = np.tile(p["bias"][slices[0]], (count, 1))
            for at, block in enumerate(slices):
                states[:, block] = rng.random(z.shape) < expit(z)
                if known is not None:
                    _keep_known(states[:, block], known[:, block])
                if at + 1 < len(slices):
                    z = states[:, block] @ self.matrices()[at] + p["bias"][slices[at + 1]]
            return states
        for unit in self.order:
            edges = self.into[self.into_first[unit] : self.into_first[unit + 1]]
            z = states[:, self.tails[edges]] @ p["weights"][edges] + p["bias"][unit]
            states[:, unit] = rng.random(count) < expit(z)
            if known is not None:
                _keep_known(states[:, unit], known[:, unit])
        return states

    # ------------------------------------------------------------------ data

    def to_bits(self, rows: ArrayLike) -> Array:
        """`rows` of data, in the values of the units, as 0 and 1; NaN (unknown) stays."""
        values = np.asarray(rows, dtype=np.float64)
        wanted = (-1.0, 1.0) if self.units == "spins" else (0.0, 1.0)
        off = ~(np.isnan(values) | (values == wanted[0]) | (values == wanted[1]))
        if np.any(off):
            where = tuple(int(i) for i in np.argwhere(off)[0])
            place = ", ".join(f"{w} {i}" for w, i in zip(("row", "column"), where, strict=False))
            pair = f"{wanted[0]:g} and {wanted[1]:g}"
            other = "spins" if self.units == "bits" else "bits"
            raise DataError(
                f"{values[where]:g} in {place}: units are {pair}; give such data, or "
                f"units={other!r}"
            )
        return (values + 1.0) / 2.0 if self.units == "spins" else values

    def from_bits(self, rows: Array) -> Array:
        """`rows` of 0 and 1 (or probabilities) in the values of the units."""
        return 2.0 * rows - 1.0 if self.units == "spins" else rows

    def clamped(self, rows: Array) -> Array:
        """States of all units with visible ones as `rows` (bits; rows, visible units) say and NaN
        elsewhere.
        """
        if rows.ndim != 2 or rows.shape[1] != len(self.visible):
            raise DataError(
                f"rows of shape {rows.shape} for {len(self.visible)} visible units; give one "
                "column per visible unit"
            )
        states = np.full((len(rows), self.n_units), np.nan)
        states[:, self.visible] = rows
        return states

    def evidence_row(self, evidence: Evidence) -> Array:
        """`evidence` on any units, {unit: value} or a vector with NaN for unknown, as states."""
        row = np.full(self.n_units, np.nan)
        if isinstance(evidence, Mapping):
            for unit, value in evidence.items():
                if not isinstance(unit, int | np.integer) or not 0 <= unit < self.n_units:
                    raise EvidenceError(
                        f"evidence about unit {unit!r}; units are 0 to {self.n_units - 1}"
                    )
                row[unit] = value
        else:
            given = np.asarray(evidence, dtype=np.float64).reshape(-1)
            if len(given) != self.n_units:
                raise EvidenceError(
                    f"evidence of {len(given)} values for {self.n_units} units; give one per unit, "
                    "NaN where unknown"
                )
            row[:] = given
        try:
            return self.to_bits(row)
        except DataError as error:
            raise EvidenceError(str(error).replace("in row", "at unit")) from None

    # ------------------------------------------------------------------ what the trainer asks

    @property
    def batch_dtype(self) -> DTypeLike | None:
        """Batches are float64."""
        return np.float64

    def copy(self) -> Self:
        """The same network with parameters of its own."""
        made = type(self)(
            self.parameters["bias"],
            self.tails,
            self.heads,
            self.parameters["weights"],
            self.visible,
            layers=self.layers,
            units=self.units,
        )
        return made._with_recognition(self.parameters)

    def _with_recognition(self, arrays: Mapping[str, Any]) -> Self:
        """With the recognition network among these arrays, if there is one."""
        sizes = {"up_weights": self.n_edges, "up_bias": len(self.hidden)}
        for name, size in sizes.items():
            if name in arrays:
                values = np.array(arrays[name], dtype=np.float64)
                if values.shape != (size,) or not np.all(np.abs(values) <= LARGEST):
                    raise ModelError(f"{name} must be {size} finite numbers")
                self.parameters[name] = values
        return self

    def check_data(self, data: Any) -> Any:
        """The `data` as rows of 0 and 1, one column per visible unit, or an error."""
        rows = np.asarray(data, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.visible):
            raise DataError(
                f"data of shape {rows.shape} for {len(self.visible)} visible units; give one "
                "column per visible unit"
            )
        if not np.all((rows == 0.0) | (rows == 1.0)):
            raise DataError("data other than 0 and 1; threshold them first")
        return rows

    def rule(self, text: str) -> Any:
        """Refuses every `text`: rules are made by the estimator."""
        raise MethodError(f"there is no rule '{text}'; give a BoundRule")

    def constrain(self, direction: Any) -> None:
        """Every `direction` is allowed: parameters are those of edges that are there."""

    def describe(self) -> dict[str, Any]:
        """Layers, visible units, sizes."""
        return {
            "layers": list(self.layers),
            "visible": self.visible.tolist() if not self.layers else [],
            "units": self.units,
            "n_units": self.n_units,
            "n_edges": self.n_edges,
        }

    def to_arrays(self) -> Arrays:
        """Parameters and edges."""
        arrays: Arrays = dict(self.parameters)
        if not self.layers:
            arrays = {**arrays, "tails": self.tails, "heads": self.heads}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> Self:
        """The network of a file: `arrays` by name, and the `facts` of `describe`."""
        layers = tuple(int(n) for n in facts["layers"])
        if layers:
            tails, heads = layer_edges(layers)
            visible: Any = np.arange(sum(layers[:-1]), sum(layers))
        else:
            tails, heads = arrays["tails"], arrays["heads"]
            visible = np.array(facts["visible"], dtype=np.int64)
        made = cls(
            arrays["bias"],
            tails,
            heads,
            arrays["weights"],
            visible,
            layers=layers,
            units=facts["units"],
        )
        return made._with_recognition(arrays)

    # ------------------------------------------------------------------ checks

    def _check(self) -> None:
        bias, weights = self.parameters["bias"], self.parameters["weights"]
        n = len(bias)
        if bias.ndim != 1 or not n:
            raise ModelError(f"biases of shape {bias.shape}; give one per unit")
        if not len(self.tails) == len(self.heads) == len(weights):
            raise ModelError("give one parent, one child and one weight per edge")
        if len(self.tails) and int(max(self.tails.max(), self.heads.max())) >= n:
            raise ModelError(f"an edge names unit {max(self.tails.max(), self.heads.max())} of {n}")
        for name, array in self.parameters.items():
            if not np.all(np.abs(array) <= LARGEST):  # NaN fails as well
                raise ModelError(
                    f"{name} must be finite and at most {LARGEST:g} in size; units that are that "
                    "hard are thresholds (ThresholdNetworkClassifier)"
                )
        if len(np.unique(self.visible)) != len(self.visible) or not len(self.visible):
            raise ModelError("visible units must be named, each once")
        if self.visible.min() < 0 or self.visible.max() >= n:
            raise ModelError(f"visible unit {self.visible.max()} of {n}; units count from 0")
        if self.units not in ("bits", "spins"):
            raise ModelError(f"units are bits or spins, got {self.units!r}")
        keys = self.tails.astype(np.int64) * n + self.heads
        if np.any(np.diff(keys) <= 0):
            raise ModelError("edges must be sorted by parent and child, each once")

    def _order(self) -> Ints:
        """Units with parents before children; refuses cycles."""
        sorter: graphlib.TopologicalSorter[int] = graphlib.TopologicalSorter(
            {unit: [] for unit in range(self.n_units)}
        )
        if self.layers:
            return np.arange(self.n_units)
        for parent, child in zip(self.tails.tolist(), self.heads.tolist(), strict=True):
            sorter.add(child, parent)
        try:
            return np.array(list(sorter.static_order()), dtype=np.int64)
        except graphlib.CycleError as error:
            cycle = " -> ".join(str(unit) for unit in reversed(error.args[1]))
            raise ModelError(f"the network has a cycle, {cycle}; remove an edge of it") from None

    def _check_reach(self) -> None:
        """Every hidden unit must have a visible descendant: others are no part of the model."""
        reaches = np.zeros(self.n_units, dtype=bool)
        reaches[self.visible] = True
        for unit in self.order[::-1]:
            if not reaches[unit]:
                children = self.heads[self.first[unit] : self.first[unit + 1]]
                reaches[unit] = bool(np.any(reaches[children]))
        if not np.all(reaches):
            unit = int(np.flatnonzero(~reaches)[0])
            raise ModelError(
                f"hidden unit {unit} has no visible descendant, so that data say nothing about it; "
                "make it visible, connect it or leave it out"
            )


def layer_edges(sizes: Sequence[int]) -> tuple[Ints, Ints]:
    """Parents and children of all edges between layers that follow each other.

    >>> [ends.tolist() for ends in layer_edges((1, 2))]
    [[0, 0], [1, 2]]
    """
    if any(size < 1 for size in sizes):
        raise ModelError(f"layers of {tuple(sizes)} units; every layer has at least one")
    starts = np.cumsum((0, *sizes))
    tails, heads = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for at in range(len(sizes) - 1):
        above = np.arange(starts[at], starts[at + 1])
        below = np.arange(starts[at + 1], starts[at + 2])
        tails.append(np.repeat(above, len(below)))
        heads.append(np.tile(below, len(above)))
    return np.concatenate(tails), np.concatenate(heads)


def _from_spins(weights: Array, bias: Array, heads: Any, tails: Any) -> tuple[Array, Array]:
    """Weights and biases of bits from those of spins: s = 2 x - 1."""
    return 2.0 * weights, bias - np.bincount(heads, weights, minlength=len(bias))


def _offsets(keys: Any, count: int) -> U4:
    return np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=count))]).astype(np.uint32)


def _keep_known(states: Array, known: Array) -> None:
    told = ~np.isnan(known)
    states[told] = known[told]
