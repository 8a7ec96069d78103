"""`Beliefs`: the result of inference.

Reference: HOJ-I5, HOJ-I11, TEH-I7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kikuchi.core.answer import attributes
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import KikuchiError, ModelError
from kikuchi.core.labelled import Marginal, dataset, html_states, long_frame
from kikuchi.core.text import html_text
from kikuchi.core.trace import Trace
from kikuchi.engines.run import Covariance, FactorTables, Joint
from kikuchi.engines.start import Start
from kikuchi.graphs.checks import part_of_factor
from kikuchi.graphs.factor_graph import FactorGraph, Variable
from kikuchi.methods.names import METHODS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_AXES = 64  # of an array of NumPy
_SHOWN_IN_HTML = 40  # variables


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Marginals of every variable and factor, log Z, and the quality of these results.

    `log_z` is the method's estimate (minus its free energy), or None; `log_z_lower` and
    `log_z_upper` are certified bounds, None if the method has none. `converged` is True only if the
    method's own criterion was met; `stopped` is the reason for stopping: "converged", "iterations",
    "seconds", "interrupted" or "diverged". `state` is the best joint state found by the method
    (max-product and sampling methods), with its log-weight in `score`.

    A run with mode=max (`max_product` is True) has max-marginals instead of marginals; accessing
    the marginals then raises an error. `flat_beliefs` and `variable_beliefs` contain whichever is
    available.

    `graph` is the model, `evidence` the observed states by variable number, `method` the
    specification string of the method, `iterations` and `seconds` the effort, `trace` the recorded
    steps, `warnings` the warnings for the user, and `diagnostics` further results of the method by
    name.

    >>> import kikuchi as kk
    >>> beliefs = kk.infer(kk.FactorGraph([2], [((0,), [1, 3])]), "jt")
    >>> beliefs[0].round(6).tolist(), round(beliefs.log_z, 6)
    ([0.25, 0.75], 1.386294)
    """

    graph: FactorGraph
    method: str
    flat_beliefs: Array
    log_z: float | None
    converged: bool
    iterations: int
    seconds: float
    stopped: str
    log_z_lower: float | None = None
    log_z_upper: float | None = None
    trace: Trace = field(default_factory=Trace)
    warnings: tuple[str, ...] = ()
    diagnostics: dict[str, Any] = field(default_factory=dict)
    state: Ints | None = None
    score: float | None = None
    max_product: bool = False
    evidence: dict[int, int] = field(default_factory=dict)
    _factor_tables: FactorTables | None = None
    _covariance: Covariance | None = None
    _start: Start | None = None
    _joint: Joint | None = None

    def __getitem__(self, variable: Variable) -> Marginal:
        """Return the marginal of one variable, given by number or name; index it by state number or
        name.
        """
        v = self.graph.index(variable)
        offsets = self.graph.state_offsets
        values = self.flat_marginals[offsets[v] : offsets[v + 1]]
        states = None if self.graph.states is None else self.graph.states[v]
        return Marginal.named(values, self.graph.label(v), states)

    @property
    def flat_marginals(self) -> Array:
        """Marginals of all variables, one after the other."""
        if self.max_product:
            raise KikuchiError(
                f"{self.method} gives max-marginals, which are not probabilities of states: use "
                "`max_marginals`, or infer with mode=sum for marginals"
            )
        return self.flat_beliefs

    @property
    def marginals(self) -> list[Array]:
        """Marginal of each variable, in order."""
        return np.split(self.flat_marginals, self.graph.state_offsets[1:-1])

    @property
    def max_marginals(self) -> list[Array]:
        """For each state of each variable, the largest weight of a joint state that contains it,
        scaled to sum to 1.

        >>> import kikuchi as kk
        >>> pair = kk.FactorGraph([2, 2], [((0, 1), [[3, 3], [4, 0]])])
        >>> kk.infer(pair, "jt:mode=max").max_marginals[0].round(6).tolist()
        [0.428571, 0.571429]
        >>> kk.infer(pair, "jt").marginals[0].round(6).tolist()
        [0.6, 0.4]
        """
        if not self.max_product:
            raise KikuchiError(
                f"{self.method} gives marginals, not max-marginals; infer with jt:mode=max or "
                "bp:mode=max"
            )
        return self.variable_beliefs

    @property
    def variable_beliefs(self) -> list[Array]:
        """Marginals, or max-marginals if `max_product` is True, of each variable, in order."""
        if not self.graph.n_variables:
            return []
        return np.split(self.flat_beliefs, self.graph.state_offsets[1:-1])

    def factor(self, factor: int) -> Array:
        """Return the belief of factor number `factor`: a normalised table over its scope."""
        entries = self.flat_factors[part_of_factor(self.graph.table_offsets, factor)]
        return entries.reshape(self.graph.shape(factor))

    @cached_property
    def flat_factors(self) -> Array:
        """Beliefs of all factors, in the layout of `graph.log_tables`; computed on first access."""
        if self._factor_tables is None:
            raise KikuchiError(f"{self.method} gives no factor beliefs; use another method")
        return self._factor_tables()

    def joint(self, variables: Sequence[Variable]) -> Array:
        """Return the joint distribution of `variables`, given by number or name, with an axis for
        each.

        Exact methods return that of any variables, at the cost of another run; others only if a
        factor of the model or a region of the method contains all variables whose state is not
        certain.

        >>> import kikuchi as kk
        >>> pairs = [((0, 1), [[1, 2], [3, 4]]), ((1, 2), [[1, 0], [1, 1]])]
        >>> chain = kk.FactorGraph([2] * 3, pairs)
        >>> kk.infer(chain, "jt").joint([2, 0]).round(6).tolist()
        [[0.1875, 0.4375], [0.125, 0.25]]
        """
        asked = [variables] if isinstance(variables, int | str | np.integer) else list(variables)
        chosen = [self.graph.index(v) for v in asked]
        if len(set(chosen)) != len(chosen):
            raise ModelError(f"joint: a variable is repeated in {asked}")
        if len(chosen) > MOST_AXES:
            raise ModelError(
                f"joint: {len(chosen)} variables, but a table has at most {MOST_AXES} axes; "
                "request fewer"
            )
        if self.max_product:
            raise KikuchiError(f"{self.method} gives max-marginals, and no joint distributions")
        table = self.held_joint(chosen)
        if table is None:
            names = ", ".join(self.graph.label(v) for v in chosen)
            raise KikuchiError(
                f"{self.method} gives the joint of variables that share a factor or a region, and "
                f"none contains {names}; use jt, or gbp with regions that contain them"
            )
        return table

    def held_joint(self, variables: list[int]) -> Array | None:
        """Return `joint` of `variables` by number; None if no factor or region contains them."""
        certain = {v: int(self[v].argmax()) for v in variables if self[v].max() == 1.0}
        free = [v for v in variables if v not in certain]
        inner = self[free[0]] if len(free) == 1 else self._factor_joint(free)
        if inner is None and self._joint is not None:
            inner = self._joint(free)
        if inner is None or not certain:
            return inner
        table = np.zeros([int(self.graph.cardinalities[v]) for v in variables])
        table[tuple(certain.get(v, slice(None)) for v in variables)] = inner
        return table

    def _factor_joint(self, variables: list[int]) -> Array | None:
        """Return the joint of variables of a common factor from its belief."""
        if not variables:
            return np.ones(())
        for factor in self.graph.neighbours(variables[0]) if self._has_factors else ():
            scope = self.graph.scope(factor)
            if set(variables) <= set(scope):
                others = tuple(k for k, v in enumerate(scope) if v not in variables)
                left = [v for v in scope if v in variables]
                table = self.factor(factor).sum(axis=others)
                return np.transpose(table, [left.index(v) for v in variables])
        return None

    @property
    def _has_factors(self) -> bool:
        return self._factor_tables is not None or "flat_factors" in self.__dict__

    def covariance(self, variables: Sequence[Variable] | None = None) -> Array:
        """Return the matrix of Cov(1[x_i = k], 1[x_j = l]).

        Rows and columns are laid out as `flat_marginals`: all states of the first variable, then
        of the next. `variables` selects some of them, in that order, which is cheap for a few.
        Observed variables have rows and columns of zeros. The matrix is exact for exact methods;
        for others it is the linear response of the converged marginals to a small change of the
        log-weight of a state, or a matrix specific to the method (`adatap`). The result is not
        cached.

        >>> import kikuchi as kk
        >>> pair = kk.FactorGraph([2, 2], [((0, 1), [[3, 1], [1, 3]])])
        >>> kk.infer(pair, "jt").covariance().round(6).tolist()[0]
        [0.25, -0.25, 0.125, -0.125]
        """
        if self._covariance is None:
            able = [name for name, cls in METHODS.items() if cls.gives_covariance]
            raise KikuchiError(f"{self.method} gives no covariances; use one of {', '.join(able)}")
        if variables is None:
            variables = range(self.graph.n_variables)
        asked = [variables] if isinstance(variables, int | str | np.integer) else list(variables)
        chosen = [self.graph.index(v) for v in asked]
        if len(set(chosen)) != len(chosen):
            raise ModelError(f"covariance: a variable is repeated in {asked}")
        return self._covariance(np.array(chosen, dtype=np.int64))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; the names are a stable interface for other programs."""
        return {
            **attributes(self, "method log_z log_z_lower log_z_upper"),
            **attributes(self, "converged stopped iterations seconds"),
            "variables": None if self.graph.names is None else list(self.graph.names),
            "state_names": None
            if self.graph.states is None
            else [list(names) for names in self.graph.states],
            "max_marginals" if self.max_product else "marginals": [
                belief.tolist() for belief in self.variable_beliefs
            ],
            "state": None if self.state is None else self.state.tolist(),
            "score": self.score,
            "warnings": list(self.warnings),
            "diagnostics": {k: _plain(v) for k, v in self.diagnostics.items()},
        }

    def to_pandas(self) -> Any:
        """Return a DataFrame with one row for each state of each variable.

        Its columns are variable, state and probability (max_marginal after max-product).

        >>> import kikuchi as kk
        >>> kk.infer(kk.FactorGraph([2], [((0,), [1, 3])]), "jt").to_pandas()
          variable state  probability
        0        0     0         0.25
        1        0     1         0.75
        """
        return long_frame(self._labelled(), "max_marginal" if self.max_product else "probability")

    def to_xarray(self) -> Any:
        """Return an xarray Dataset with one array for each variable, over a dimension of its
        name.
        """
        word = "max_marginal" if self.max_product else "p"
        return dataset(self._labelled(), word, method=self.method)

    def _labelled(self, most: int | None = None) -> list[tuple[str, Sequence[str], Array]]:
        """Names of the variables and their states, with the beliefs."""
        graph, numbers = self.graph, self.variable_beliefs
        return [
            (
                graph.label(v),
                tuple(map(str, range(len(numbers[v]))))
                if graph.states is None
                else graph.states[v],
                numbers[v],
            )
            for v in range(graph.n_variables if most is None else min(most, graph.n_variables))
        ]

    def _repr_html_(self) -> str:
        word = "max-marginal" if self.max_product else "probability"
        more = self.graph.n_variables - _SHOWN_IN_HTML
        note = repr(self) + (f"; {more} more variables not shown" if more > 0 else "")
        table = html_states(self._labelled(_SHOWN_IN_HTML), word)
        return f"{table}<p><small>{html_text(note)}</small></p>"

    def __getstate__(self) -> dict[str, Any]:
        """Return data only: factor beliefs are computed; covariances, and the state for starting
        another run, are omitted.
        """
        state = dict(self.__dict__)
        if self._factor_tables is not None:
            state["flat_factors"] = self.flat_factors
        return {**state, "_factor_tables": None, "_covariance": None, "_start": None}

    def plot(self) -> Figure:
        """Return the beliefs as a figure.

        A Bayesian network of up to 100 variables is drawn as by `kk.show`: a box with bars for each
        variable, in another colour if it is observed. For other models the figure shows the
        convergence and the marginals as bars, as the image of a grid, or as a histogram.

        >>> import kikuchi as kk
        >>> figure = kk.infer(kk.example("asia"), "jt", evidence={"xray": "yes"}).plot()
        >>> figure.savefig("asia.png")  # doctest: +SKIP
        """
        from kikuchi.graphs.picture import is_drawable, network_picture
        from kikuchi.graphs.shapes import grid_shape
        from kikuchi.plots.beliefs import overview

        if is_drawable(self.graph) and not self.max_product:
            return network_picture(
                self.graph, dict(enumerate(self.marginals)), observed=self.evidence
            )

        return overview(
            self.variable_beliefs,
            self.trace,
            title=self.method,
            names=self.graph.names,
            states=self.graph.states,
            grid=grid_shape(self.graph),
            max_product=self.max_product,
        )

    def __repr__(self) -> str:
        z = "unknown" if self.log_z is None else f"{self.log_z:.6f}"
        how = "converged" if self.converged else f"not converged ({self.stopped})"
        count = "1 iteration" if self.iterations == 1 else f"{self.iterations} iterations"
        return f"Beliefs({self.method}: log Z {z}, {how}, {count})"


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
