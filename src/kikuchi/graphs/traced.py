"""Graphs with other tables over the same scopes: numbers, or values traced by JAX."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.errors import ModelError
from kikuchi.graphs.checks import check_size, check_tables
from kikuchi.graphs.factor_graph import FactorGraph


class TracedGraph(FactorGraph):
    """A graph whose `log_tables` are traced by JAX and have no concrete values.

    `FactorGraph.with_log_tables` returns one inside `jax.grad`, `jax.jit` or `jax.vmap`. The
    functions of `kikuchi.neural` accept it; functions that need concrete values raise an error.
    """

    def _sliced(self, observed: dict[int, int]) -> NoReturn:
        raise ModelError(
            "the tables of this graph are traced by JAX, but this call needs their values; call "
            "kikuchi.neural.log_z, marginals or factor_beliefs instead"
        )


def with_tables(graph: FactorGraph, log_tables: ArrayLike) -> FactorGraph:
    """The variables and scopes of `graph` with other tables; see `FactorGraph.with_log_tables`."""
    traced = is_traced(log_tables)
    tables: Any = log_tables
    if traced:
        if tables.shape != graph.log_tables.shape:
            raise ModelError(
                f"log_tables must have shape {graph.log_tables.shape}, one number per table entry, "
                f"got {tables.shape}"
            )
    else:
        tables = np.ascontiguousarray(log_tables, dtype=np.float64)
        check_size(tables, graph.table_offsets)
        check_tables(tables, graph.table_offsets)
        tables.flags.writeable = False
    kind: type[FactorGraph] = TracedGraph if traced else FactorGraph
    made = kind.__new__(kind)  # the scopes, and all that they imply, are checked
    made.__dict__.update(graph.__dict__ | {"log_tables": tables, "log_constant": 0.0})
    return made


def is_traced(values: object) -> bool:
    """Return whether an array is traced by JAX, without importing JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(values, jax.core.Tracer)
