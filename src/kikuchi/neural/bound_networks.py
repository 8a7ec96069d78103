r"""The mean-field-minus-TRW bound with both inner optimisations written down by networks.

    log p(v)  >=  E_q[log phi] + H(q)  -  U(theta, messages)

q is a product over the hidden cells of a row, the output of a network that reads the row: any q is
below the log-weight of the row. U is the dual of the tree-reweighted problem, which is above log Z
at *any* messages (`ReweightedMessages.log_z_upper` has the proof): the messages are the output of a
network that reads the log-tables. So the bound holds whatever the networks say, and training them
only tightens it. (The primal value at beliefs that a network writes would be below the bound, and
no bound.)

Reference: LIU-L8.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core.arrays import Array, Mask
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, KikuchiError, MethodError, MissingExtraError, ModelError
from kikuchi.core.extras import install
from kikuchi.core.named_arrays import Arrays
from kikuchi.core.numerics import entropy, xlogy
from kikuchi.engines.messages.reweighted import ReweightedMessages
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.table_shapes import factor_groups
from kikuchi.learning.data import Data
from kikuchi.learning.likelihood.surrogate import appearances
from kikuchi.neural.attention import saved_leaves, with_leaves

_ROOT_LEAST = 1e-12  # probability of being a root below which a variable has none


class BoundNetworks:
    """Networks that write the mean field of rows and the messages of the tree-reweighted bound.

    Parameters
    ----------
    graph : FactorGraph
        The structure, with positive tables.
    hidden : int, default 32
        Units in the hidden layer of each network.
    seed : int, default 0
        Seed of the first weights and of random forests of larger factors.
    budget : Budget, optional
        Limits of the search for forests and of memory.

    >>> import kikuchi as kk
    >>> rbm = kk.boltzmann_graph({(0, 2): 1.0, (1, 2): -1.0}, [0.1, 0.0, 0.2])
    >>> networks = BoundNetworks(rbm)
    >>> networks.train(rbm.log_tables, [[0, 1, -1], [1, 1, -1]], steps=50)
    >>> networks.upper(rbm.log_tables) >= kk.infer(rbm, "jt").log_z
    True
    """

    def __init__(
        self, graph: FactorGraph, hidden: int = 32, seed: int = 0, budget: Budget | None = None
    ) -> None:
        if not np.all(np.isfinite(graph.log_tables)) or graph.n_factors == 0:
            raise ModelError(
                "networks of the bound take a model with at least one factor and tables without "
                "zeros; use learner gradient or em for others"
            )
        self.graph = graph
        self.budget = budget or Budget()
        forests = appearances(graph, self.budget.start(), seed)
        self.weights, self.parents = forests.weights, forests.parents
        self.structure, self.functions = _compiled(graph, self.weights, self.parents)
        self.networks = _first_weights(graph, hidden, seed)
        self.moments = self.functions.moments(self.networks)

    def train(
        self, log_tables: ArrayLike, rows: Data | ArrayLike, *, steps: int, rate: float = 0.01
    ) -> None:
        """Tighten both bounds at some tables by `steps` of Adam on the weights.

        Parameters
        ----------
        log_tables : array-like
            At which tables the messages are to be good.
        rows : Data or array-like
            States, -1 where hidden.
        steps, rate
            Steps and rate of Adam.
        """
        import jax

        if steps != int(steps) or steps < 0 or not 0 < rate < np.inf:
            raise MethodError(
                f"steps must be a whole number and rate positive, got {steps!r} and {rate!r}"
            )
        tables = self._tables(log_tables)
        if not np.all(np.isfinite(tables)):
            raise ModelError("networks of the bound are trained at tables without zeros")
        data = self.rows(rows)
        with jax.enable_x64(True):
            start = self.networks, self.moments
            trained = self.functions.train(*start, tables, data, rate, int(steps))
        if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(trained)):
            raise KikuchiError(
                "the training of the bound's networks diverged, and they are as before it; give a "
                "smaller rate"
            )
        self.networks, self.moments = trained

    def _tables(self, log_tables: ArrayLike) -> Array:
        """The `log_tables`, refused where they are not those of a model of this structure."""
        return self.graph.with_log_tables(np.array(log_tables, dtype=np.float64)).log_tables

    def rows(self, rows: Data | ArrayLike) -> tuple[Array, Mask, Array]:
        """The `rows` as one-hot states (zeros where hidden), which states are open, and their
        weights.
        """
        data = Data.of(rows, self.graph).distinct()
        if data.total <= 0:
            raise DataError("data: all rows have weight 0; give at least one a positive weight")
        entries = sum(group.entries.size for group in self.structure.groups)
        self.budget.require_bytes(
            8 * data.n_rows * (4 * entries + 6 * int(self.graph.state_offsets[-1])),
            f"the mean field of {data.n_rows} distinct rows",
            "use fewer rows, or learner pcd",
        )
        owner = np.repeat(np.arange(self.graph.n_variables), self.graph.cardinalities)
        level = np.arange(len(owner)) - self.graph.state_offsets[owner]
        seen = data.states[:, owner]
        return (seen == level).astype(np.float64), seen < 0, data.weights / data.total

    def row_bounds(self, log_tables: ArrayLike, rows: Data | ArrayLike) -> Array:
        """For each distinct row of `rows` a lower bound on its log-weight at `log_tables`, flat as
        those of the graph, with hidden cells summed out.

        Counted in 64 bits from the network's q; rows need not be those of the training.
        """
        tables = self._tables(log_tables)
        filled, open_cells, _ = self.rows(rows)
        q = self._q(filled, open_cells)
        bound = np.array([float(entropy(row)) for row in q])
        for group in factor_groups(self.graph):
            weight = np.ones((len(q), *group.entries.shape))
            for k in range(len(group.shape)):
                weight = weight * q[:, group.states[:, group.onto[:, k]]]
            bound += xlogy(weight, tables[group.entries]).sum(axis=(1, 2))
        return bound

    def upper(self, log_tables: ArrayLike) -> float:
        """An upper bound on log Z at `log_tables`, from the network's messages, rounding included.

        The constant of the graph is left out.
        """
        tables = np.array(log_tables, dtype=np.float64)
        graph = self.graph.with_log_tables(tables)
        engine = ReweightedMessages(graph, self.weights, budget=self.budget)
        engine.set_messages(self.messages(tables))
        return engine.log_z_upper(self.parents)

    def lower(self, log_tables: ArrayLike, rows: Data | ArrayLike) -> float:
        """A certified lower bound on the mean log-likelihood of `rows` at `log_tables`."""
        weights = self.rows(rows)[2]
        return float(weights @ self.row_bounds(log_tables, rows)) - self.upper(log_tables)

    def messages(self, log_tables: Array) -> Array:
        """The network's messages at `log_tables`, laid out as `graph.message_offsets`."""
        import jax

        with jax.enable_x64(True):
            return np.array(self.functions.messages(self.networks, log_tables))

    def _q(self, filled: Array, open_cells: Mask) -> Array:
        import jax

        with jax.enable_x64(True):
            return np.array(self.functions.mean_field(self.networks, filled, open_cells))

    def __getstate__(self) -> dict[str, Any]:
        import jax

        # as arrays of NumPy: those of JAX would be read back in 32 bits
        held = jax.tree.map(np.asarray, (self.networks, self.moments))
        made = {"structure": None, "functions": None}
        return {**self.__dict__, **made, "networks": held[0], "moments": held[1]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.structure, self.functions = _compiled(self.graph, self.weights, self.parents)

    def to_arrays(self) -> Arrays:
        """Return weights and moments, leaf by leaf."""
        return saved_leaves((self.networks, self.moments))

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on with the weights and moments that `to_arrays` wrote in `arrays`."""
        self.networks, self.moments = with_leaves((self.networks, self.moments), arrays)


# ---------------------------------------------------------------------- structure


class _Group(NamedTuple):
    entries: Any
    states: Any
    onto: Any
    messages: Any
    weights: Any
    parents: Any


class _Structure(NamedTuple):
    """Factors of one shape at a time; variables as rows of padded states."""

    groups: tuple[_Group, ...]
    n_states: int
    sent: Any  # 1 for messages of factors over several variables; the others are fields, and 0
    padded: Any  # (variables, most states): positions of states, n_states where there is none
    roots: Any
    owner: Any


def _structure(graph: FactorGraph, weights: Array, parents: Array) -> _Structure:
    children = weights[graph.edge_factors] - parents
    orders = np.diff(graph.scope_offsets)
    children[orders[graph.edge_factors] == 1] = 0.0
    roots = np.maximum(1.0 - np.bincount(graph.scopes, children, graph.n_variables), 0.0)
    groups = []
    for group in factor_groups(graph):
        first = graph.scope_offsets[group.factors].astype(np.int64)
        width = group.states.shape[1]
        messages = graph.message_offsets[first].astype(np.int64)[:, None] + np.arange(width)
        edges = first[:, None] + np.arange(len(group.shape))
        groups.append(
            _Group(
                group.entries, group.states, group.onto, messages, weights[group.factors],
                np.repeat(parents[edges], group.shape, axis=1),
            )
        )  # fmt: skip
    n_states = int(graph.state_offsets[-1])
    most = int(graph.cardinalities.max())
    padded = graph.state_offsets[:-1, None] + np.arange(most)
    padded = np.where(np.arange(most) < graph.cardinalities[:, None], padded, n_states)
    owner = np.repeat(np.arange(graph.n_variables), graph.cardinalities)
    sizes = np.diff(graph.message_offsets)
    sent = np.repeat(orders[graph.edge_factors] > 1, sizes).astype(np.float64)
    roots = np.where(roots < _ROOT_LEAST, 0.0, roots)
    return _Structure(tuple(groups), n_states, sent, padded.astype(np.int64), roots, owner)


def _first_weights(graph: FactorGraph, hidden: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)

    def layers(inputs: int, outputs: int) -> dict[str, Array]:
        return {
            "in": rng.standard_normal((inputs, hidden)) / np.sqrt(inputs),
            "bias": np.zeros(hidden),
            "out": 0.1 * rng.standard_normal((hidden, outputs)) / np.sqrt(hidden),
            "end": np.zeros(outputs),
        }

    states = int(graph.state_offsets[-1])
    return {
        "rows": layers(states, states),
        "tables": layers(graph.log_tables.size, int(graph.message_offsets[-1])),
    }


# ---------------------------------------------------------------------- in JAX

_KEPT = 16  # structures whose compiled functions are kept

_made: OrderedDict[tuple[bytes, ...], tuple[_Structure, _BoundFunctions]] = OrderedDict()


def _compiled(
    graph: FactorGraph, weights: Array, parents: Array
) -> tuple[_Structure, _BoundFunctions]:
    """The functions of a structure, made once, so that a second fit compiles nothing."""
    arrays = (graph.cardinalities, graph.scopes, graph.scope_offsets, weights, parents)
    key = tuple(array.tobytes() for array in arrays)
    if key not in _made:
        structure = _structure(graph, weights, parents)
        _made[key] = structure, _functions(structure)
        while len(_made) > _KEPT:
            _made.popitem(last=False)
    _made.move_to_end(key)
    return _made[key]


class _BoundFunctions(NamedTuple):
    moments: Any
    train: Any
    model_slope: Any
    mean_field: Any
    messages: Any


def _functions(structure: _Structure) -> _BoundFunctions:
    """The bound and its steps, compiled once per structure and number of rows."""
    try:
        import jax
        import jax.numpy as jnp
        import optax  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtraError(
            f"networks of the bound need JAX and optax; {install('learn')}"
        ) from None
    adam = optax.scale_by_adam()

    def layers(weights: Any, inputs: Any) -> Any:
        return jnp.tanh(inputs @ weights["in"] + weights["bias"]) @ weights["out"] + weights["end"]

    def messages(networks: Any, tables: Any) -> Any:
        return structure.sent * layers(networks["tables"], jnp.tanh(tables))

    def mean_field(networks: Any, filled: Any, open_cells: Any) -> Any:
        log_q = _normalised(jnp, structure, layers(networks["rows"], filled))
        return jnp.where(open_cells, jnp.exp(log_q), filled)

    def bound(networks: Any, tables: Any, data: Any) -> Any:
        filled, open_cells, weights = data
        q = mean_field(networks, filled, open_cells)
        logs = jnp.log(jnp.where(q > 0, q, 1.0))
        rows = _energies(jnp, structure, q, tables) - (q * logs).sum(axis=1)
        return weights @ rows - _dual(jax, jnp, structure, messages(networks, tables), tables)

    @jax.jit
    def train(networks: Any, moments: Any, tables: Any, data: Any, rate: Any, steps: Any) -> Any:
        def step(_: Any, both: Any) -> Any:
            networks, moments = both
            slope = jax.grad(bound)(networks, tables, data)
            updates, moments = adam.update(slope, moments)
            return jax.tree.map(lambda w, u: w + rate * u, networks, updates), moments

        return jax.lax.fori_loop(0, steps, step, (networks, moments))

    def start(networks: Any) -> Any:
        with jax.enable_x64(True):
            return adam.init(jax.tree.map(jnp.asarray, networks))

    slopes = jax.jit(jax.value_and_grad(bound, argnums=(0, 1)))
    return _BoundFunctions(start, train, slopes, jax.jit(mean_field), jax.jit(messages))


def _normalised(jnp: Any, structure: _Structure, logs: Any) -> Any:
    """Logarithms less those of their sums, variable by variable, along the last axis."""
    return logs - _log_sums(jnp, structure, logs)[..., structure.owner]


def _log_sums(jnp: Any, structure: _Structure, logs: Any) -> Any:
    rows = _by_variable(jnp, structure, logs)
    top = rows.max(axis=-1, keepdims=True)
    return jnp.log(jnp.exp(rows - top).sum(axis=-1)) + top[..., 0]


def _by_variable(jnp: Any, structure: _Structure, values: Any) -> Any:
    """Values of states as (..., variables, most states), -inf where a variable has fewer."""
    none = jnp.full((*values.shape[:-1], 1), -jnp.inf)
    return jnp.concatenate([values, none], axis=-1)[..., structure.padded]


def _energies(jnp: Any, structure: _Structure, q: Any, tables: Any) -> Any:
    """E_q[sum_a log phi_a] of each row."""
    total = jnp.zeros(len(q))
    for group in structure.groups:
        weight = jnp.ones((len(q), *group.entries.shape))
        for k in range(group.onto.shape[1]):
            weight = weight * q[:, group.states[:, group.onto[:, k]]]
        total = total + (weight * tables[group.entries]).sum(axis=(1, 2))
    return total


def _dual(jax: Any, jnp: Any, structure: _Structure, messages: Any, tables: Any) -> Any:
    """The upper bound of `ReweightedMessages.log_z_upper`, for JAX to differentiate."""
    beliefs = jnp.zeros(structure.n_states)
    for group in structure.groups:
        added = tables[group.entries] if group.onto.shape[1] == 1 else messages[group.messages]
        beliefs = beliefs.at[group.states].add(added)
    norms = _log_sums(jnp, structure, beliefs)
    log_b = beliefs - norms[structure.owner]
    constant = norms.sum()
    leaning = structure.roots[structure.owner] * log_b
    for group in structure.groups:
        if group.onto.shape[1] == 1:
            continue
        mu = group.weights[:, None]
        node = log_b[group.states] - messages[group.messages] / mu
        logs = tables[group.entries] / mu
        for k in range(group.onto.shape[1]):
            logs = logs + node[:, group.onto[:, k]]
        factor = jax.nn.logsumexp(logs, axis=1)
        constant = constant + (group.weights * factor).sum()
        ratio = _log_marginals(jax, jnp, group, logs - factor[:, None]) - log_b[group.states]
        leaning = leaning.at[group.states].add(group.parents * ratio)
    return constant + _slack(jnp, structure, leaning)


def _log_marginals(jax: Any, jnp: Any, group: _Group, logs: Any) -> Any:
    """Logarithms of the marginals of normalised factor beliefs, laid out as `states`."""
    columns = []
    for state in range(group.states.shape[1]):
        inside = np.flatnonzero((group.onto == state).any(axis=1))
        columns.append(jax.nn.logsumexp(logs[:, inside], axis=1))
    return jnp.stack(columns, axis=1)


def _slack(jnp: Any, structure: _Structure, leaning: Any) -> Any:
    """sum_i roots_i log sum_x exp(leaning / roots_i), or the largest where no root is left."""
    rows = _by_variable(jnp, structure, leaning)
    top = rows.max(axis=1)
    rooted = structure.roots > 0
    kappa = np.where(rooted, structure.roots, 1.0)
    mass = jnp.exp((rows - top[:, None]) / kappa[:, None]).sum(axis=1)
    return (top + jnp.where(rooted, kappa * jnp.log(mass), 0.0)).sum()
