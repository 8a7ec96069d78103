"""`Machine`: what learning asks of the parameters of a machine with visible and hidden units.

Reference: LAW-M5, TEH-L7, TEH-L10, TEH-M4, TEH-M8, WH-I1, WH-M2, WH-M3, WH-T10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.boltzmann.conversion import to_factor_graph
from kikuchi.boltzmann.parameters import LATERAL, Array, MachineParameters, masked
from kikuchi.boltzmann.pseudo import check_pseudo, pseudo_gradient
from kikuchi.boltzmann.sampling import MachineSampler
from kikuchi.boltzmann.units import BinaryUnits, BinomialUnits
from kikuchi.core.errors import DataError, MethodError
from kikuchi.training.model import Parameters, set_parameters
from kikuchi.training.rows import check_values, is_sparse

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.training.rule import GradientEstimate, Rule


@dataclass
class Machine(MachineParameters):
    """A machine with visible and hidden units that can be trained.

    Parameters
    ----------
    weights : connections between visible and hidden units, (visible, hidden).
    visible_bias, hidden_bias : biases of the units of each layer.
    visible_weights, hidden_weights : symmetric connections within a layer; None for none.
    masks : for each array by name, which of its entries are connections.
    visible, hidden : kinds of units.

    >>> machine = Machine.random(4, 3, architecture="poe", random_state=0)
    >>> machine.architecture, machine.n_hidden
    ('poe', 3)
    """

    kind: ClassVar[str] = "machine"
    weight_limit: ClassVar[float] = 500.0  # units that such weights reach are never in doubt

    @property
    def batch_dtype(self) -> np.dtype[Any]:
        """Batches have the type of the parameters."""
        return self.dtype

    def check_data(self, data: Any) -> Any:
        """The `data` (rows, visible units) as the machine can be trained on them: as they are, or
        as CSR, or refused.

        >>> Machine.random(2, 1).check_data([[0, 1], [2, 0]])
        Traceback (most recent call last):
        ...
        kikuchi.core.errors.DataError: data: row 1, column 0 is 2, outside [0, 1] of binary ...
        """
        if self.dtype not in (np.float32, np.float64):
            raise MethodError(f"machines learn in float32 or float64, not {self.dtype}")
        rows = data.tocsr() if is_sparse(data) else np.asarray(data)
        if rows.ndim != 2 or not rows.shape[0]:
            raise DataError(f"data of shape {rows.shape}: give at least one row, one case in each")
        if rows.dtype.kind not in "biuf":
            raise DataError(f"data of type {rows.dtype}: give numbers")
        if rows.shape[1] != self.n_visible:
            raise DataError(
                f"data have {rows.shape[1]} columns; the machine has {self.n_visible} visible "
                "units, give one column for each"
            )
        advice = f"of {self.visible.name} units; scale the data, or use visible=gaussian"
        check_values(rows, self.visible.limits, advice)
        return rows

    def mean_biases(self, rows: Any) -> Array:
        """Visible biases of the machine without weights that has the means of `rows` (rows, visible
        units), a little smoothed.

        >>> Machine.random(1, 1).mean_biases(np.array([[1.0], [0.0]])).tolist()
        [0.0]
        """
        units, count = self.visible, rows.shape[0]
        sums = np.asarray(rows.sum(axis=0), dtype=np.float64).ravel()
        if not isinstance(units, BinaryUnits | BinomialUnits):
            return np.asarray(sums / count)
        replicas = units.replicas if isinstance(units, BinomialUnits) else 1
        rate = (sums / replicas + 1.0) / (count + 2.0)
        return np.asarray(np.log(rate / (1.0 - rate)))

    def rule(self, text: str) -> Rule[Any]:
        """The learning rule of a `text` such as pcd:k=1; see `kikuchi learners`."""
        from kikuchi.boltzmann.rules import parse_rule

        return parse_rule(text)

    def sampler(self, workspace: Parameters) -> MachineSampler:
        """The Gibbs chain of the machine, with `workspace` for its arrays; refuses connected units
        that are not binary.
        """
        return MachineSampler(self, workspace)

    def check_pseudo(self, data: Any) -> None:
        """Refuse machines and `data` (rows, visible units) without closed-form conditionals."""
        check_pseudo(self, data)

    def pseudo_gradient(self, batch: Array, rows: NDArray[np.int64]) -> GradientEstimate:
        """Pseudo-log-likelihood per row of the `batch` (rows, visible units), and its gradient; the
        numbers of its `rows` in the data are not needed.
        """
        return pseudo_gradient(self, batch)

    def check_pairwise(self) -> None:
        """Refuse machines with hidden units, without couplings, or of units that are not binary."""
        what = None
        if self.n_hidden:
            what = f"{self.n_hidden} hidden units"
        elif self.visible_weights is None:
            what = "no connections of visible units"
        elif not isinstance(self.visible, BinaryUnits):
            what = f"{self.visible.name} units"
        if what is not None:
            raise MethodError(
                f"learner one-shot is for connected binary machines without hidden units, and this "
                f"one has {what}; use learner pseudo or cd"
            )

    def bits(self, data: Array) -> tuple[Array, Array]:
        """The rows of `data` as float64, and their weights, which are 1."""
        return np.asarray(data, dtype=np.float64), np.ones(len(data))

    def couple(self, means: Array, couplings: Array) -> Parameters:
        """Parameters with these `couplings` (units, units) where the mask has them, and biases that
        suit the `means` (units,), in (0, 1).
        """
        weights = masked("visible_weights", couplings, self.masks.get("visible_weights"))
        bias = np.log(means) - np.log1p(-means) - weights @ means
        changed = {"visible_weights": weights, "visible_bias": bias}
        return {n: a.astype(self.dtype) for n, a in (self.parameters | changed).items()}

    def pairwise_graph(self, parameters: Parameters) -> FactorGraph:
        """The machine with these `parameters`, arrays by name, as a graph."""
        other = self.copy()
        set_parameters(other, parameters)
        return to_factor_graph(other)

    def label(self, variable: int) -> str:
        """The name of the visible unit number `variable` in messages."""
        return f"unit {variable}"

    def constrain(self, direction: Parameters) -> None:
        """Symmetric lateral weights with zero diagonals and no missing connections: changes
        `direction`, arrays by name, in place.
        """
        for name in LATERAL:
            if name in direction:
                array = direction[name]
                array += array.T.copy()
                array *= array.dtype.type(0.5)
                np.fill_diagonal(array, 0)
        for name, mask in self.masks.items():
            np.multiply(direction[name], mask, out=direction[name])
