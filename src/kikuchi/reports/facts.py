"""Facts about a model, and the cost of exact inference in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kikuchi.core import text
from kikuchi.core.budget import DEFAULT_BYTES, format_bytes
from kikuchi.graphs.factor_graph import Evidence, FactorGraph
from kikuchi.graphs.shapes import grid_shape
from kikuchi.methods.method import Method
from kikuchi.methods.registry import METHODS


@dataclass(frozen=True)
class ModelFacts:
    """Facts of a model; from `components` on, of what evidence leaves of it.

    `log10_states` is the logarithm of the number of joint states; `width`, `largest_clique` (in
    states), `exact_bytes` and `exact_operations` describe the junction tree that `kikuchi.plan`
    proposes, or bound it from below if the search for one was given up.
    """

    variables: int
    factors: int
    edges: int
    table_entries: int
    zeros: int
    bytes: int
    cardinalities: dict[int, int]
    orders: dict[int, int]
    directed: bool
    named: bool
    grid: tuple[int, int] | None
    observed: int
    observed_marginals: int
    components: int
    forest: bool
    log10_states: float
    width: int
    largest_clique: int
    exact_bytes: int
    exact_operations: int
    exact_is_lower_bound: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; histograms become lists of pairs."""
        data = asdict(self)
        for name in ("cardinalities", "orders"):
            data[name] = [list(pair) for pair in data[name].items()]
        data["grid"] = None if self.grid is None else list(self.grid)
        return data

    def lines(self) -> list[tuple[str, str]]:
        """Label and text of each fact, for a table."""
        fraction = f" ({self.zeros / self.table_entries:.1%})" if self.zeros else ""
        kind = "directed (conditional tables)" if self.directed else "undirected"
        least = "at least " if self.exact_is_lower_bound else ""
        after = " left by the evidence" if self.observed else ""
        rows = [
            ("kind", kind + (f", grid of {self.grid[0]} by {self.grid[1]}" if self.grid else "")),
            ("variables", text.whole(self.variables)),
            ("states of a variable", text.tally(self.cardinalities)),
            ("factors", text.whole(self.factors)),
            ("variables in a factor", text.tally(self.orders) or "no factors"),
            ("edges", text.whole(self.edges)),
            (
                "table entries",
                f"{text.whole(self.table_entries)} in {format_bytes(self.bytes)}, "
                f"{text.whole(self.zeros)} of them zero{fraction}",
            ),
        ]
        if self.observed:
            rows.append(("observed variables", text.whole(self.observed)))
        if self.observed_marginals:
            rows.append(("observed marginals", text.whole(self.observed_marginals)))
        return [
            *rows,
            (f"components{after}", text.whole(self.components)),
            (f"cycles{after}", "none: a forest" if self.forest else "yes"),
            (f"joint states{after}", text.power_of_ten(self.log10_states)),
            (
                "elimination width",
                f"{least}{self.width} (largest clique {text.whole(self.largest_clique)} states)",
            ),
            (
                "exact inference",
                f"{least}{format_bytes(self.exact_bytes)}, "
                f"{text.whole(self.exact_operations)} operations",
            ),
        ]

    def fitting_methods(self, bytes_allowed: int | None = DEFAULT_BYTES) -> list[MethodFit]:
        """Which methods suit the model within a memory budget, and why."""
        return [self._fit(cls, bytes_allowed) for cls in METHODS.values()]

    def _fit(self, cls: type[Method], allowed: int | None) -> MethodFit:
        unmet = [*self._unmet_needs(cls), *self._excessive_costs(cls, allowed)]
        if unmet:
            return MethodFit(cls.name, False, "; ".join(unmet))
        exact = cls.exactness == "always" or (cls.exactness == "forests" and self.forest)
        remarks = [
            "exact here: there are no cycles" if exact and cls.exactness == "forests" else "",
            self._tree_cost(allowed) if cls.needs_junction_tree else "",
            self._states if cls.most_joint_states else "",
            cls.caveat_with_zeros if self.zeros else "",
        ]
        return MethodFit(cls.name, True, "; ".join(filter(None, [cls.summary, *remarks])))

    def _unmet_needs(self, cls: type[Method]) -> Iterator[str]:
        """Return the requirements of a method that the model or its evidence does not meet."""
        if self.observed_marginals and not cls.takes_observed_marginals:
            yield "takes observed states, not observed marginals"
        if cls.only_for_observed_marginals and not self.observed_marginals:
            yield "for observed marginals"
        if cls.needs_forest and not self.forest:
            yield "for models without cycles"
        faults = []
        if cls.needs_binary_pairwise and set(self.cardinalities) - {1, 2}:
            faults.append("has variables of more than two states")
        if cls.needs_binary_pairwise and max(self.orders, default=0) > 2:
            faults.append("has factors of more than two variables")
        if cls.needs_positive_tables and self.zeros:
            faults.append("has zeros")
        if faults:
            pairwise = "binary pairwise " if cls.needs_binary_pairwise else ""
            positive = "positive " if cls.needs_positive_tables else ""
            yield f"for {pairwise}{positive}models; this one {' and '.join(faults)}"

    def _excessive_costs(self, cls: type[Method], allowed: int | None) -> Iterator[str]:
        """Return the requirements of a method that the budget does not allow."""
        most = cls.most_joint_states
        if most is not None and self.log10_states > np.log10(most):
            yield f"{self._states}, more than its limit of {most:,}"
        if cls.needs_junction_tree and allowed is not None and self.exact_bytes > allowed:
            yield f"{self._tree_cost(None)}, more than {format_bytes(allowed)}"

    @property
    def _states(self) -> str:
        return f"{text.power_of_ten(self.log10_states)} joint states"

    def _tree_cost(self, allowed: int | None) -> str:
        least = "at least " if self.exact_is_lower_bound else ""
        limit = "" if allowed is None else f" of {format_bytes(allowed)}"
        return f"needs {least}{format_bytes(self.exact_bytes)}{limit}"


@dataclass(frozen=True)
class MethodFit:
    """A method, whether it fits a model, and why."""

    method: str
    fits: bool
    why: str


def describe(graph: FactorGraph, evidence: Evidence | None = None) -> ModelFacts:
    """Count everything about a model, and plan exact inference without doing it.

    >>> import kikuchi as kk
    >>> facts = describe(kk.FactorGraph([2, 2], [((0, 1), [[1, 0], [3, 4]])]))
    >>> facts.variables, facts.zeros, facts.forest, facts.cardinalities
    (2, 1, True, {2: 2})
    """
    from kikuchi.engines.trees.calibrated import plan

    observed, targets = graph.observations(evidence)  # a marginal leaves the structure as it is
    rest = graph.condition(observed).graph if observed else graph
    exact = plan(graph, evidence=observed)
    return ModelFacts(
        variables=graph.n_variables,
        factors=graph.n_factors,
        edges=graph.n_edges,
        table_entries=int(graph.log_tables.size),
        zeros=int(np.count_nonzero(np.isneginf(graph.log_tables))),
        bytes=graph.nbytes,
        cardinalities=_histogram(graph.cardinalities),
        orders=_histogram(np.diff(graph.scope_offsets)),
        directed=graph.is_directed,
        named=graph.names is not None,
        grid=grid_shape(graph),
        observed=len(observed),
        observed_marginals=len(targets),
        components=rest.n_components,
        forest=rest.is_forest,
        log10_states=float(np.log10(rest.cardinalities.astype(np.float64)).sum()),
        width=int(exact.width),
        largest_clique=int(exact.largest_clique),
        exact_bytes=int(exact.bytes),
        exact_operations=int(exact.operations),
        exact_is_lower_bound=not exact.complete,
    )


def _histogram(values: Any) -> dict[int, int]:
    distinct, counts = np.unique(np.asarray(values), return_counts=True)
    return {int(value): int(n) for value, n in zip(distinct, counts, strict=True)}
