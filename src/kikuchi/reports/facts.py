"""What a model is, and what exact inference in it would cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kikuchi.core import text
from kikuchi.core.budget import DEFAULT_BYTES, format_bytes
from kikuchi.graphs.factor_graph import Evidence, FactorGraph
from kikuchi.graphs.shapes import grid_shape
from kikuchi.inference.registry import METHODS


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
        share = f" ({self.zeros / self.table_entries:.1%})" if self.zeros else ""
        kind = "directed (conditional tables)" if self.directed else "undirected"
        least = "at least " if self.exact_is_lower_bound else ""
        after = " left by the evidence" if self.observed else ""
        found = [
            ("kind", kind + (f", grid of {self.grid[0]} by {self.grid[1]}" if self.grid else "")),
            ("variables", text.whole(self.variables)),
            ("states of a variable", text.tally(self.cardinalities)),
            ("factors", text.whole(self.factors)),
            ("variables in a factor", text.tally(self.orders) or "no factors"),
            ("edges", text.whole(self.edges)),
            (
                "table entries",
                f"{text.whole(self.table_entries)} in {format_bytes(self.bytes)}, "
                f"{text.whole(self.zeros)} of them zero{share}",
            ),
        ]
        if self.observed:
            found.append(("observed variables", text.whole(self.observed)))
        if self.observed_marginals:
            found.append(("observed marginals", text.whole(self.observed_marginals)))
        return [
            *found,
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

    def fitting_methods(self, bytes_allowed: int | None = DEFAULT_BYTES) -> list[Fit]:
        """Which methods suit the model within a memory budget, and why.

        Of methods that no rule here knows, `fits` is None and the reason is their own summary.
        """
        known = [*self._exact_fits(bytes_allowed), *self._approximate_fits()]
        named = {fit.method: fit for fit in known}
        return [named.get(name) or Fit(name, None, METHODS.find(name).summary) for name in METHODS]

    def _exact_fits(self, allowed: int | None) -> list[Fit]:
        from kikuchi.inference.trees.enumeration import Enumeration

        most = Enumeration().max_states
        few = self.log10_states <= np.log10(most)
        affordable = allowed is None or self.exact_bytes <= allowed
        least = "at least " if self.exact_is_lower_bound else ""
        need = f"needs {least}{format_bytes(self.exact_bytes)}"
        if allowed is not None:
            need += (
                f" of {format_bytes(allowed)}"
                if affordable
                else (f", more than {format_bytes(allowed)}")
            )
        states = f"{text.power_of_ten(self.log10_states)} joint states"
        limit = "" if few else f", more than its limit of {most:,}"
        return [
            Fit("jt", affordable, f"exact; {need}"),
            Fit("enumerate", bool(few), f"exact; {states}{limit}"),
        ]

    def _approximate_fits(self) -> list[Fit]:
        loops = (
            "exact here: there are no cycles" if self.forest else "approximate: there are cycles"
        )
        stuck = "; zeros may separate the states it can reach" if self.zeros else ""
        return [
            Fit("auto", True, "exact if the budget allows, else an estimate and bounds"),
            Fit("bp", True, loops),
            Fit("mf", True, "approximate; certifies a lower bound on log Z"),
            Fit("gibbs", True, f"sampling; no log Z{stuck}"),
            *(Fit(name, True, METHODS.find(name).summary) for name in _ANY_MODEL),
            Fit("ups-t", self.forest, METHODS.find("ups-t").summary),
            *self._binary_fits(),
            *self._observed_fits(),
        ]

    def _binary_fits(self) -> list[Fit]:
        """Methods for binary pairwise models; all but `bo` need positive tables."""
        missing = []
        if set(self.cardinalities) - {1, 2}:
            missing.append("has variables of more than two states")
        if max(self.orders, default=0) > 2:
            missing.append("has factors of more than two variables")
        if self.zeros:
            missing.append("has zeros")
        why = f"for binary pairwise positive models; this one {' and '.join(missing)}"
        return [
            Fit(name, not missing, why if missing else METHODS.find(name).summary)
            for name in _BINARY_PAIRWISE
        ]

    def _observed_fits(self) -> list[Fit]:
        wanted = self.observed_marginals > 0
        return [
            Fit(name, wanted, METHODS.find(name).summary if wanted else "for observed marginals")
            for name in _OBSERVED_MARGINALS
        ]


_ANY_MODEL = (
    "alpha",
    "clamp",
    "fractional",
    "gbp",
    "kikuchi",
    "mixture-mf",
    "tree-mf",
    "trw",
    "ups",
    "wmb",
)
_BINARY_PAIRWISE = ("adatap", "bo", "plefka", "saddle", "tap")
_OBSERVED_MARGINALS = ("gis", "gis-bp", "is", "is-bp", "loopy-is")


@dataclass(frozen=True)
class Fit:
    """A method, whether it fits a model (None: no rule knows), and why."""

    method: str
    fits: bool | None
    why: str


def describe(graph: FactorGraph, evidence: Evidence | None = None) -> ModelFacts:
    """Count everything about a model, and plan exact inference without doing it.

    >>> import kikuchi as kk
    >>> facts = describe(kk.FactorGraph([2, 2], [((0, 1), [[1, 0], [3, 4]])]))
    >>> facts.variables, facts.zeros, facts.forest, facts.cardinalities
    (2, 1, True, {2: 2})
    """
    from kikuchi.inference.trees.junction_tree import plan

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
    found, counts = np.unique(np.asarray(values), return_counts=True)
    return {int(value): int(n) for value, n in zip(found, counts, strict=True)}
