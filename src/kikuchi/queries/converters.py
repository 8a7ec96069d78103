"""Models of other libraries: `as_model` takes them, `to_pgmpy`, `to_pyagrum`, `to_networkx` give
them. Names of variables and states survive both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from os import PathLike
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MissingExtraError, ModelError
from kikuchi.core.extras import install
from kikuchi.graphs.directed import check_directed
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.formats import read
from kikuchi.graphs.formats.directed import ROW_TOLERANCE
from kikuchi.queries.question import state_labels

_TAKEN = (
    "a FactorGraph, a path of a model file, a pgmpy BayesianNetwork, MarkovNetwork or FactorGraph, "
    "a pyAgrum BayesNet or MarkovRandomField, or a networkx graph with tables"
)


def as_model(model: Any) -> FactorGraph:
    """A `FactorGraph` from a model of another library, a path, or a `FactorGraph` itself.

    Taken are pgmpy's Bayesian networks, Markov networks and factor graphs, pyAgrum's BayesNet and
    MarkovRandomField, and graphs of networkx: in a DiGraph each node has the attributes `states`
    (their number or names) and `table` (an axis for each parent, in the order of the attribute
    `parents` or of the predecessors, then one for the node); in a Graph nodes and edges may have
    a `table`, that of an edge over its attribute `variables`; `to_networkx` writes both.

    `model` is any of these.

    >>> import networkx as nx
    >>> net = nx.DiGraph([("rain", "wet")])
    >>> net.nodes["rain"].update(states=["no", "yes"], table=[0.8, 0.2])
    >>> net.nodes["wet"].update(states=["no", "yes"], table=[[0.9, 0.1], [0.2, 0.8]])
    >>> as_model(net).names
    ('rain', 'wet')
    """
    if isinstance(model, FactorGraph):
        return model
    if isinstance(model, str | PathLike):
        return read(model)
    convert = _converter(model)
    if convert is None:
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        raise ModelError(f"a model of kind {kind} is not taken; give {_TAKEN}")
    graph = convert(model)
    if not graph.n_variables:
        raise ModelError(f"this {type(model).__name__} has no variables; add some, with tables")
    return graph


def _converter(model: Any) -> Callable[[Any], FactorGraph] | None:
    homes = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    if "pgmpy" in homes:
        if hasattr(model, "get_slice_nodes"):
            raise ModelError(
                "pgmpy's networks of two time slices are not taken; write the tables into a "
                "kk.queries.TwoSliceNetwork(variables, initial, transition), whose unroll() gives "
                "a model"
            )
        if hasattr(model, "get_cpds"):
            return _from_pgmpy_directed
        return _from_pgmpy_factors if hasattr(model, "get_factors") else None
    if homes & {"pyagrum", "pyAgrum"}:
        if hasattr(model, "decisionNodeSize"):  # an influence diagram has tables, and choices
            return None
        if hasattr(model, "cpt"):
            return _from_pyagrum_directed
        return _from_pyagrum_factors if hasattr(model, "factors") else None
    if "networkx" in homes:
        return _from_networkx
    return None


def _peer(module: str, what: str) -> Any:
    """Return a module of another library, or raise an error with the command that installs it."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtraError(
            f"{what} needs {module.partition('.')[0]}; {install('peers')}"
        ) from None


class _Variables:
    """Names and states that are met one by one; each variable must always have the same ones."""

    def __init__(self) -> None:
        self.states: dict[str, list[str]] = {}

    def add(self, name: Any, states: Sequence[Any]) -> str:
        key, labels = str(name), [str(state) for state in states]
        known = self.states.setdefault(key, labels)
        if known != labels:
            raise ModelError(f"variable {key} has states {known} in one table, {labels} in another")
        return key

    def graph(
        self, factors: list[tuple[list[str], Array]], children: list[str] | None
    ) -> FactorGraph:
        names = list(self.states)
        graph = FactorGraph(
            [len(self.states[name]) for name in names],
            factors,
            names=names,
            states=list(self.states.values()),
            children=children,
        )
        if children is not None:
            check_directed(graph, tolerance=ROW_TOLERANCE)
        return graph


# ---------------------------------------------------------------------- pgmpy


def _from_pgmpy_directed(model: Any) -> FactorGraph:
    variables = _Variables()
    tables = model.get_cpds()
    missing = {str(v) for v in model.nodes()} - {str(cpd.variable) for cpd in tables}
    if missing:
        raise ModelError(f"variable {min(missing)} has no table (TabularCPD); add one")
    for cpd in sorted(tables, key=lambda cpd: list(model.nodes()).index(cpd.variable)):
        variables.add(cpd.variable, cpd.state_names[cpd.variable])
    factors, children = [], []
    for cpd in tables:
        scope = [variables.add(v, cpd.state_names[v]) for v in cpd.variables]
        factors.append(([*scope[1:], scope[0]], np.moveaxis(np.asarray(cpd.values), 0, -1)))
        children.append(scope[0])
    return variables.graph(factors, children)


def _from_pgmpy_factors(model: Any) -> FactorGraph:
    variables = _Variables()
    factors = []
    for factor in model.get_factors():
        scope = [variables.add(v, factor.state_names[v]) for v in factor.variables]
        factors.append((scope, np.asarray(factor.values, dtype=np.float64)))
    if not factors:
        raise ModelError("the model has no factors; add some")
    return variables.graph(factors, None)


def to_pgmpy(model: Any) -> Any:
    """A `DiscreteBayesianNetwork` of pgmpy from a directed model, a `DiscreteMarkovNetwork` from
    another one.

    `model` is whatever `as_model` takes.

    >>> import kikuchi as kk
    >>> net = to_pgmpy(kk.example("asia"))  # doctest: +SKIP
    """
    graph = as_model(model)
    factors = _peer("pgmpy.factors.discrete", "to_pgmpy")
    models = _peer("pgmpy.models", "to_pgmpy")
    states = {graph.label(v): list(state_labels(graph, v)) for v in range(graph.n_variables)}
    if graph.children is None:
        net = models.DiscreteMarkovNetwork()
        net.add_nodes_from(states)
        net.add_edges_from([(graph.label(i), graph.label(j)) for i, j in graph.pairs().tolist()])
        for a in range(graph.n_factors):
            scope = [graph.label(v) for v in graph.scope(a)]
            named = {name: states[name] for name in scope}
            table = graph.table(a) * (np.exp(graph.log_constant) if a == 0 else 1.0)
            net.add_factors(factors.DiscreteFactor(scope, graph.shape(a), table, state_names=named))
        return net
    net = models.DiscreteBayesianNetwork()
    net.add_nodes_from(states)
    for a, child in enumerate(graph.children.tolist()):
        scope = [graph.label(v) for v in graph.scope(a) if v != child]
        name = graph.label(child)
        net.add_edges_from([(parent, name) for parent in scope])
        axis = graph.scope(a).index(child)
        values = np.moveaxis(graph.table(a), axis, 0).reshape(len(states[name]), -1)
        net.add_cpds(
            factors.TabularCPD(
                name,
                len(states[name]),
                values,
                scope or None,
                [len(states[parent]) for parent in scope] or None,
                state_names={v: states[v] for v in [name, *scope]},
            )
        )
    return net


# ---------------------------------------------------------------------- pyAgrum


def _from_pyagrum_directed(model: Any) -> FactorGraph:
    variables = _Variables()
    for node in sorted(model.nodes()):
        variables.add(model.variable(node).name(), model.variable(node).labels())
    factors, children = [], []
    for node in sorted(model.nodes()):
        table = model.cpt(node)
        scope = [str(name) for name in reversed(table.names)]
        child = str(model.variable(node).name())
        factors.append((scope, np.array(table.toarray(), dtype=np.float64)))
        children.append(child)
    return variables.graph(factors, children)


def _from_pyagrum_factors(model: Any) -> FactorGraph:
    variables = _Variables()
    for node in sorted(model.nodes()):
        variables.add(model.variable(node).name(), model.variable(node).labels())
    factors = []
    for scope in model.factors():
        table = model.factor(scope)
        names = [str(name) for name in reversed(table.names)]
        factors.append((names, np.array(table.toarray(), dtype=np.float64)))
    return variables.graph(factors, None)


def to_pyagrum(model: Any) -> Any:
    """A BayesNet of pyAgrum from a directed model, a MarkovRandomField from another one.

    `model` is whatever `as_model` takes.

    >>> import kikuchi as kk
    >>> net = to_pyagrum(kk.example("asia"))  # doctest: +SKIP
    """
    graph = as_model(model)
    pyagrum = _peer("pyagrum", "to_pyagrum")
    net = pyagrum.BayesNet() if graph.is_directed else pyagrum.MarkovRandomField()
    for v in range(graph.n_variables):
        net.add(pyagrum.LabelizedVariable(graph.label(v), "", list(state_labels(graph, v))))
    if graph.children is not None:
        for a, child in enumerate(graph.children.tolist()):
            for parent in (v for v in graph.scope(a) if v != child):
                net.addArc(graph.label(parent), graph.label(child))
    for a in range(graph.n_factors):
        scope = [graph.label(v) for v in graph.scope(a)]
        if graph.children is None:
            factor = net.addFactor(scope)
        else:
            factor = net.cpt(graph.label(int(graph.children[a])))
        order = [scope.index(name) for name in reversed(factor.names)]
        constant = np.exp(graph.log_constant) if a == 0 else 1.0
        factor[:] = np.ascontiguousarray(np.transpose(graph.table(a), order) * constant)
    return net


# ---------------------------------------------------------------------- networkx


def _from_networkx(model: Any) -> FactorGraph:
    if model.is_directed():
        return _from_digraph(model)
    variables = _Variables()
    factors: list[tuple[list[str], Array]] = []
    for node, data in model.nodes(data=True):
        if data.get("bipartite") != 1:
            variables.add(node, _states_of(node, data))
    for node, data in model.nodes(data=True):
        if "table" in data:
            scope = data.get("variables", [node])
            factors.append(([str(v) for v in scope], np.asarray(data["table"], dtype=np.float64)))
    for i, j, data in model.edges(data=True):
        if "table" in data:
            scope = data.get("variables", [i, j])
            factors.append(([str(v) for v in scope], np.asarray(data["table"], dtype=np.float64)))
    if not factors:
        raise ModelError("the networkx graph has no attribute `table` on any node or edge")
    return variables.graph(factors, None)


def _from_digraph(model: Any) -> FactorGraph:
    variables = _Variables()
    for node, data in model.nodes(data=True):
        variables.add(node, _states_of(node, data))
    factors, children = [], []
    for node, data in model.nodes(data=True):
        if "table" not in data:
            raise ModelError(f"node {node} of the networkx graph has no attribute `table`")
        parents = [str(v) for v in data.get("parents", list(model.predecessors(node)))]
        if set(parents) != {str(v) for v in model.predecessors(node)}:
            raise ModelError(f"node {node}: `parents` are not the predecessors of the node")
        factors.append(([*parents, str(node)], np.asarray(data["table"], dtype=np.float64)))
        children.append(str(node))
    return variables.graph(factors, children)


def _states_of(node: Any, data: Mapping[str, Any]) -> Sequence[Any]:
    states = data.get("states")
    if isinstance(states, int | np.integer) and states >= 1:
        return list(range(int(states)))
    if isinstance(states, Sequence) and not isinstance(states, str) and len(states):
        return list(states)
    raise ModelError(f"node {node} of the networkx graph needs `states`: their number or names")


def to_networkx(model: Any) -> Any:
    """A DiGraph with tables from a directed model; else a bipartite Graph of variables and factors.

    `model` is whatever `as_model` takes.

    >>> import kikuchi as kk
    >>> net = to_networkx(kk.example("asia"))
    >>> sorted(net.predecessors("either")), as_model(net).names == kk.example("asia").names
    (['lung', 'tub'], True)
    """
    import networkx as nx

    graph = as_model(model)
    net = nx.DiGraph() if graph.is_directed else nx.Graph()
    for v in range(graph.n_variables):
        net.add_node(graph.label(v), states=list(state_labels(graph, v)))
    if graph.children is not None:
        for a, child in enumerate(graph.children.tolist()):
            parents = [graph.label(v) for v in graph.scope(a) if v != child]
            table = np.moveaxis(graph.table(a), graph.scope(a).index(child), -1)
            net.nodes[graph.label(child)].update(table=table, parents=parents)
            net.add_edges_from((parent, graph.label(child)) for parent in parents)
        return net
    nx.set_node_attributes(net, 0, "bipartite")
    for a in range(graph.n_factors):
        scope = [graph.label(v) for v in graph.scope(a)]
        table = graph.table(a) * (np.exp(graph.log_constant) if a == 0 else 1.0)
        net.add_node(("factor", a), bipartite=1, variables=scope, table=table)
        net.add_edges_from((("factor", a), name) for name in scope)
    return net
