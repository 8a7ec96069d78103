"""`network`: a Bayesian network from a string of arrows, with tables by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kikuchi.core.errors import ModelError, suggestion
from kikuchi.graphs.directed import bayesian_network, check_acyclic
from kikuchi.graphs.factor_graph import FactorGraph

DEFAULT_STATES = ("no", "yes")

_SEPARATORS = re.compile(r"[;,\n]+(?![^{]*\})")
_ARROW = re.compile(r"\s*(->|<-)\s*")
_NODE = re.compile(r"(?P<name>[^\[\]{}|<>]+?)\s*(\[(?P<count>\d+)\]|\{(?P<states>[^{}]*)\})?")


def network(
    arrows: str | Iterable[tuple[str, str]],
    tables: Mapping[str, Any] | None = None,
    *,
    states: Mapping[str, int | Sequence[str]] | None = None,
) -> FactorGraph:
    """Build a Bayesian network from arrows.

    Parameters
    ----------
    arrows : str or Iterable[tuple[str, str]]
        Chains of arrows such as `"smoke -> lung -> xray <- tub"`, separated by semicolons, commas
        or line breaks, or pairs (parent, child). A variable has the states no and yes, unless its
        states follow its name, as in `weather{sun|rain|snow}`, or their number, as in `die[6]`, or
        `states` names them. The parents of a variable are ordered as they are first mentioned.
    tables : Mapping[str, Any], optional
        Conditional probability table of each variable by name: an array with one axis for each
        parent and the variable itself as the last axis; a pair (parents, array) for another order
        of the parents; or a mapping from parent states to probabilities, as in `{"smoke=no": 0.01,
        "smoke=yes": 0.1}`. Uniform tables if None, for networks whose tables are learned.
    states : Mapping[str, int or Sequence[str]], optional
        Names of the states, or their number, by variable.

    Returns
    -------
    FactorGraph
        The directed model. `graph.cpt(name)` reads a table back.

    See Also
    --------
    bayesian_network : build the same model from variables and tables, without arrows.

    Examples
    --------
    >>> import kikuchi as kk
    >>> net = kk.network(
    ...     "smoke -> lung -> xray <- tub",
    ...     {
    ...         "smoke": 0.5,
    ...         "tub": 0.01,
    ...         "lung": {"no": 0.01, "yes": 0.1},
    ...         "xray": {
    ...             "lung=no, tub=no": 0.05,
    ...             "lung=no, tub=yes": 0.98,
    ...             "lung=yes, tub=no": 0.98,
    ...             "lung=yes, tub=yes": 0.99,
    ...         },
    ...     },
    ... )
    >>> round(kk.query(net, "lung", evidence={"xray": "yes"})["lung"]["yes"], 4)
    0.4903
    """
    if tables is not None and not isinstance(tables, Mapping):
        raise ModelError(
            "tables must be a mapping from variables to tables, such as {'rain': [0.8, 0.2]}, got "
            f"{type(tables).__name__}"
        )
    order, parents, given_states = _parsed(arrows)
    check_acyclic(parents)
    given_states.update(_checked_states(states or {}, order))
    variables = {name: given_states.get(name, DEFAULT_STATES) for name in order}
    if tables is None:
        counts = {n: s if isinstance(s, int) else len(s) for n, s in variables.items()}
        uniform = {
            name: (
                parents[name],
                np.full([counts[u] for u in (*parents[name], name)], 1.0 / counts[name]),
            )
            for name in order
        }
        return bayesian_network(variables, uniform)
    unknown = [name for name in tables if name not in parents]
    if unknown:
        raise ModelError(
            f"tables: there is no variable {unknown[0]!r}; {suggestion(str(unknown[0]), order)}"
        )
    missing = [name for name in order if name not in tables]
    if missing:
        raise ModelError(
            f"tables: there is no table for {missing[0]!r}; give the table of every variable, or "
            "no tables for uniform ones"
        )
    return bayesian_network(
        variables, {name: _with_parents(name, parents[name], tables[name]) for name in order}
    )


def _with_parents(name: str, parents: list[str], table: Any) -> tuple[Sequence[str], Any]:
    """Return the table and the order of its parents, which a pair (parents, table) overrides."""
    if isinstance(table, tuple) and len(table) == 2 and not np.isscalar(table[0]):
        own = [table[0]] if isinstance(table[0], str) else list(table[0])
        if all(isinstance(u, str) for u in own) and (own or np.ndim(table[1])):
            if sorted(own) != sorted(parents):
                raise ModelError(
                    f"tables: {name!r} has the parents {parents} in the arrows and {own} in its "
                    "table; make them agree"
                )
            return own, table[1]
    return parents, table


def _parsed(
    arrows: str | Iterable[tuple[str, str]],
) -> tuple[list[str], dict[str, list[str]], dict[str, Any]]:
    """Parse the arrows: names in order of appearance, the parents of each, and states after
    names.
    """
    parents: dict[str, list[str]] = {}
    states: dict[str, Any] = {}
    if isinstance(arrows, str):
        for chain in filter(str.strip, _SEPARATORS.split(arrows)):
            _read_chain(chain.strip(), parents, states)
    else:
        for pair in _pairs(arrows):
            if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
                raise ModelError(f"arrows: {pair!r} is not a pair (parent, child)")
            parents.setdefault(str(pair[0]), [])
            _add(str(pair[0]), str(pair[1]), parents)
    if not parents:
        raise ModelError('arrows: there is no variable; write for example "rain -> wet"')
    return list(parents), parents, states


def _pairs(arrows: Any) -> Iterable[Any]:
    if isinstance(arrows, Iterable):
        return arrows
    raise ModelError(
        'arrows must be a string such as "rain -> wet", or pairs (parent, child), got '
        f"{type(arrows).__name__}"
    )


def _read_chain(chain: str, parents: dict[str, list[str]], states: dict[str, Any]) -> None:
    words = _ARROW.split(chain)
    names = [_read_node(word, chain, parents, states) for word in words[::2]]
    for left, arrow, right in zip(names, words[1::2], names[1:], strict=False):
        _add(*((left, right) if arrow == "->" else (right, left)), parents)


def _read_node(word: str, chain: str, parents: dict[str, list[str]], states: dict[str, Any]) -> str:
    found = _NODE.fullmatch(word.strip())
    if found is None or "--" in word:
        raise ModelError(
            f"arrows: {word.strip()!r} in {chain!r} is not a variable; write chains such as "
            '"a -> b <- c{low|high}"'
        )
    name = found["name"].strip()
    described: Any = None
    if found["count"] is not None:
        described = int(found["count"])
    elif found["states"] is not None:
        described = [state.strip() for state in re.split(r"[|,]", found["states"])]
    if described is not None:
        if states.get(name, described) != described:
            raise ModelError(f"arrows: the states of {name!r} are given twice, differently")
        states[name] = described
    parents.setdefault(name, [])
    return name


def _add(parent: str, child: str, parents: dict[str, list[str]]) -> None:
    if parent == child:
        raise ModelError(f"arrows: {parent!r} points to itself")
    parents.setdefault(child, [])
    if parent not in parents[child]:
        parents[child].append(parent)


def _checked_states(states: Mapping[str, Any], order: list[str]) -> dict[str, Any]:
    for name in states:
        if name not in order:
            raise ModelError(f"states: there is no variable {name!r}; {suggestion(name, order)}")
    return dict(states)
