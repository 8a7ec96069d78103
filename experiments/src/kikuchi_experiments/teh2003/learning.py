"""Teh's thesis, section 6.6: learning pairwise networks by loopy iterative scaling (TEH-E11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.data.digits import digits
from kikuchi.graphs.elimination import eliminate
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.scaling.loopy_scaling import LoopyScalingML
from kikuchi.learning.scaling.scaling import ProportionalFitting
from kikuchi.learning.scaling.targets import Targets
from kikuchi.learning.scaling.ups_jt import UnifiedScalingML
from kikuchi.learning.structure.graphs import chow_liu, grow_cliques, random_augmentation
from kikuchi.methods.registry import parse_method
from kikuchi_experiments.aggregate import (
    Claims,
    all_of,
    average,
    below,
    grouped,
    holds,
    of_total,
    significant,
    span,
)
from kikuchi_experiments.experiment import Case, CaseAxes, Experiment, Finished, Result, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SMOOTHING = 0.004  # rows spread over all states: one thousandth of a row in each cell of a pair
_TOL = 1e-7
_SIDE = 8
_DIGIT = 8
_SAME = 1e-6


class LearnedDigits(Experiment):
    """Log-likelihood and edge errors of loopy iterative scaling by clique size (figure 6.6).

    With `data` the rows of a file (64 binary columns, or grey values; see `data.digits`) take the
    place of scikit-learn's digits: `reproduce(LearnedDigits("eights.csv"))`.
    """

    id: ClassVar[str] = "TEH-E11"
    case_axes: ClassVar[CaseAxes] = {"share": "shares"}

    def run_case(self, case: Case) -> Result:
        """Learn one network exactly, in two ways, and on every junction graph."""
        images = eights(case["data"])
        network = augmented_tree(images, case["share"], case["seed"])
        exact = UnifiedScalingML(smoothing=SMOOTHING, order="min-degree").fit(
            network, images, score=False
        )
        slow = ProportionalFitting(smoothing=SMOOTHING, form="tree", order="min-degree").fit(
            network, images, score=False
        )
        targets = Targets.of(network, images, smoothing=SMOOTHING)
        closed = measured(network.with_log_tables(edge_solution(targets)), targets, images)
        return {
            "images": images.n_rows,
            "edges": int(np.sum(np.diff(network.scope_offsets) == 2)),
            "tree_clique": eliminate(network, "min-degree").width + 1,
            "exact": measured(exact.graph, targets, images),
            "optimum_gap": abs((exact.objective or 0.0) - (slow.objective or 0.0)),
            "propagations": exact.diagnostics["propagations"],
            "propagations_ipf": slow.diagnostics["propagations"],
            "closed_form": closed,
            "graphs": list(_learned_graphs(network, images, targets)),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Sizes, convergence, accuracy at both ends, trend, oracles, and the cost of both ways."""
        results = [one.result for one in finished]
        graphs = [graph for result in results for graph in result["graphs"]]
        good = sum(graph["converged"] for graph in graphs)
        damping = max(graph["damping"] for graph in graphs)
        tree = max(abs(_loss(result, -1)) for result in results)
        closed = max(
            abs(r["closed_form"]["log_likelihood"] - r["graphs"][0]["log_likelihood"])
            for r in results
        )
        optimum = max(result["optimum_gap"] for result in results)
        ratios = [r["propagations_ipf"] / r["propagations"] for r in results]
        half_edges = span(r["edges"] // 2 for r in results)
        total, several = of_total(good, len(graphs)), holds(min(ratios) >= 5, "5 or more")
        return [
            _CLAIMS.row("sizes", _sizes(finished)),
            _CLAIMS.row("converged", total, all_of(good, len(graphs)), tol=_TOL, damping=damping),
            *_accuracy_rows(results),
            _trend_row(results),
            _CLAIMS.row("tree", significant(tree, 2), below(tree, _SAME)),
            _CLAIMS.row("closed", significant(closed, 2), below(closed, 1e-4)),
            _CLAIMS.row("optimum", significant(optimum, 2), below(optimum, 1e-8)),
            _CLAIMS.row("cost", span(ratios, ".0f"), several, published=half_edges),
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Both measures by clique size, as figure 6.6."""
        from kikuchi.plots import style

        results = [one.result for one in finished]
        with style.styled():
            figure, (left, right) = style.new_figure(9.6, 4.0, 2)
            _draw_curves(left, results, "log_likelihood")
            _draw_curves(right, results, "l1")
            left.set_ylabel("log-likelihood of an image (nats)")
            right.set_ylabel("mean L1 distance of edge marginals")
            left.set_title("(a) Training log-likelihood")
            right.set_title("(b) Edge marginals")
            handles, labels = left.get_legend_handles_labels()
            figure.legend(
                handles,
                labels,
                loc="outside lower center",
                ncols=min(len(labels), 5),
                title="largest clique of the junction tree (models)",
            )
        return figure


# ---------------------------------------------------------------------- data and models


def eights(path: str | None = None) -> Data:
    """Binary images of eights: scikit-learn's 174, or those of a file of 8x8 (or larger) images.

    Rows of a file without classes are all eights.
    """
    images = digits(path or "sklearn", side=_SIDE)
    chosen = images if images.labels is None else images.of_class(_DIGIT)
    bits = chosen.thresholded().pixels.astype(np.int32)
    return Data.of(bits, FactorGraph([2] * _SIDE**2, []))


def augmented_tree(images: Data, share: float, seed: int) -> FactorGraph:
    """The maximum-likelihood tree with random edges between near pixels (TEH-L19).

    Pixels that never change get a table of their own.
    """
    tree = chow_liu(images, graph=FactorGraph(images.cardinalities, []))
    scopes = [tree.scope(a) for a in range(tree.n_factors)]
    joined = {v for scope in scopes if len(scope) == 2 for v in scope}
    kept = [s for s in scopes if len(s) == 2 or s[0] not in joined]
    plain = FactorGraph(images.cardinalities, [(s, np.ones(2 ** len(s))) for s in kept])
    return random_augmentation(plain, share=share, distance=6, seed=seed)


def edge_solution(targets: Targets) -> Array:
    """log-tables of prod p_a / prod p_i^(n_i - 1): what edges as cliques give (TEH-L17).

    Each factor takes an equal share of the powers of its variables.
    """
    graph = targets.graph
    holders = np.bincount(graph.scopes, minlength=graph.n_variables)
    parts = []
    for a in range(graph.n_factors):
        table = targets.table(a)
        logs = np.log(table)
        for k, v in enumerate(graph.scope(a)):
            rest = tuple(j for j in range(table.ndim) if j != k)
            single = np.log(table.sum(axis=rest, keepdims=True))
            logs = logs - (1.0 - 1.0 / holders[v]) * single
        parts.append(logs.ravel())
    return np.concatenate(parts)


def measured(model: FactorGraph, targets: Targets, images: Data) -> dict[str, float]:
    """Exact mean log-likelihood of the images, and mean L1 distance of the edges' marginals."""
    beliefs = parse_method("jt").run(model)
    assert beliefs.log_z is not None  # the method is exact
    scores = np.asarray(model.log_score(images.states))
    off = np.abs(beliefs.flat_factors - targets.tables)
    by_factor = np.add.reduceat(off, model.table_offsets[:-1])
    edges = np.diff(model.scope_offsets) == 2
    return {
        "log_likelihood": float(images.weights @ scores / images.total - beliefs.log_z),
        "l1": float(by_factor[edges].mean()),
    }


def _learned_graphs(network: FactorGraph, images: Data, targets: Targets) -> Iterator[Result]:
    for size, cliques in grow_cliques(network, images):
        learner = LoopyScalingML(cliques=cliques, smoothing=SMOOTHING, tol=_TOL)
        fit = learner.fit(network, images, score=False)
        yield {
            "clique": size,
            "cliques": len(cliques),
            "converged": fit.converged,
            "sweeps": fit.iterations,
            "damping": fit.diagnostics["damping"],
            **measured(fit.graph, targets, images),
        }


# ---------------------------------------------------------------------- table


_CLAIMS = Claims.of(__name__, "TEH-E11")


def _sizes(finished: Sequence[Finished]) -> str:
    """Largest cliques of the junction trees by share of added edges."""
    sizes = {
        share: span(one.result["tree_clique"] for one in part)
        for share, part in sorted(grouped(finished, "share").items())
    }
    return "; ".join(f"{text} ({share:.0%} of near pairs)" for share, text in sizes.items())


def _accuracy_rows(results: Sequence[Result]) -> Iterator[Row]:
    """Distance from maximum likelihood with edges as cliques, and one step before the tree."""
    chosen = [r for r in results if len(r["graphs"]) > 2]
    for name, place in (("edges as cliques", 0), ("cliques one smaller than the tree's", -2)):
        losses = [_loss(r, place) for r in chosen]
        errors = [r["graphs"][place]["l1"] for r in chosen]
        if chosen:
            ours = f"{np.mean(losses):.3f} / {np.mean(errors):.4f}"
            worst = {"loss": max(losses), "error": max(errors)}
            yield _CLAIMS.row("accuracy", ours, cliques=name, count=len(chosen), **worst)


def _loss(result: Result, place: int) -> float:
    return float(result["exact"]["log_likelihood"] - result["graphs"][place]["log_likelihood"])


def _trend_row(results: Sequence[Result]) -> Row:
    """Steps of the clique size that lower the error, and the error at both ends."""
    steps = [
        later["l1"] < earlier["l1"]
        for result in results
        for earlier, later in pairwise(result["graphs"])
    ]
    first = average(results, "graphs", 0, "l1")
    middle = float(np.mean([r["graphs"][len(r["graphs"]) // 2]["l1"] for r in results]))
    falls = first > middle and sum(steps) > 0.6 * len(steps)
    judgement = holds(falls, "in 60 % of the steps, and less half way than with edges")
    ours = f"{of_total(sum(steps), len(steps))} times"
    return _CLAIMS.row("trend", ours, judgement, first=first, middle=middle)


# ---------------------------------------------------------------------- figure


def _draw_curves(axes: Axes, results: Sequence[Result], key: str) -> None:
    """Mean over the networks of each junction-tree size, by clique size of the junction graph."""
    from kikuchi.plots import style

    sizes = sorted({result["tree_clique"] for result in results})
    counts = {size: sum(r["tree_clique"] == size for r in results) for size in sizes}
    usual = max(sizes, key=lambda size: (counts[size], size))
    for k, size in enumerate(sizes):
        own = [r for r in results if r["tree_clique"] == size]
        at = [graph["clique"] for graph in own[0]["graphs"]]
        values = np.array([[graph[key] for graph in r["graphs"]] for r in own])
        colour = style.COLOURS[k % len(style.COLOURS)]
        line = style.LINE_STYLES[(k // len(style.COLOURS)) % len(style.LINE_STYLES)]
        mean = values.mean(axis=0)
        axes.plot(at, mean, line, marker=".", color=colour, label=f"{size} ({counts[size]})")
        if size == usual and len(own) > 1:
            axes.errorbar(
                at, mean, yerr=values.std(axis=0), fmt="none", ecolor=colour, capsize=2.5, lw=1.0
            )
        best = float(np.mean([r["exact"][key] for r in own]))
        axes.plot([at[-1]], [best], "o", mfc="none", mec=colour, ms=8, mew=1.4)
    axes.set_xlabel("largest clique of the junction graph")
    style.few_ticks(axes.xaxis, 10, whole=True)
