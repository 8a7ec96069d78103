"""What Liu's papers and code show of region-energy networks beside the thesis (LIU-X1 to X4).

Uniform couplings, no penalty, other sizes of the network, and seconds. Published means have no
deviations: those of our models stand for both, and the published means are taken as those of 20
models.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.graphs.binary import spin_graph
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.generators import complete
from kikuchi.graphs.shapes import complete_edges, grid_edges
from kikuchi.methods.registry import parse_method
from kikuchi_experiments.aggregate import grouped, holds, results_of, significant
from kikuchi_experiments.experiment import (
    Case,
    CaseAxes,
    Experiment,
    Finished,
    Judgement,
    Result,
    Row,
)
from kikuchi_experiments.liu2020 import figures
from kikuchi_experiments.liu2020.accuracy import grid_of, mean_errors, measured, share_converged
from kikuchi_experiments.liu2020.tables import COLUMNS, Column, Errors, curves, published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MODELS = 20  # behind a published mean
_NEAR = "l1 and log Z error within three standard errors"


def near(results: Sequence[Result], theirs: Errors) -> Judgement | None:
    """Whether mean errors are as near to published ones as two samples of models allow; None for
    a single model, which has no deviation.

    >>> runs = [{"l1": x, "log_z": x} for x in (0.1, 0.2, 0.3)]
    >>> near(runs, Errors(0.25, None, 0.3)).agrees, near(runs, Errors(0.25, None, 0.9)).agrees
    (True, False)
    >>> near(runs[:1], Errors(0.25, None, 0.3)) is None
    True
    """
    if len(results) < 2:
        return None
    wide = 3.0 * (1 / len(results) + 1 / _MODELS) ** 0.5
    agrees = True
    for key, value in (("l1", theirs.l1), ("log_z", theirs.log_z)):
        own = np.array([r[key] for r in results])
        if value is not None:
            agrees &= bool(abs(own.mean() - value) <= wide * own.std(ddof=1))
    return holds(agrees, _NEAR)


def uniform_model(kind: str, n: int, spread: float, seed: int) -> FactorGraph:
    """A grid or a complete graph with couplings in (-spread, spread) and fields in (-1, 1).

    >>> uniform_model("grid", 9, 2.0, 0).n_factors, uniform_model("complete", 4, 2.0, 0).n_factors
    (21, 10)
    """
    rng = np.random.default_rng(seed)
    side = round(n**0.5)
    edges = grid_edges(side, side) if kind == "grid" else complete_edges(n)
    couplings = rng.uniform(-spread, spread, len(edges))
    return spin_graph(n, edges, couplings, rng.uniform(-1.0, 1.0, n))


class _Errors(Experiment):
    """Models of some kind, several methods on each, errors against the junction tree."""

    methods: ClassVar[Mapping[str, str]]

    def model(self, case: Case) -> FactorGraph:
        """The model of a case."""
        raise NotImplementedError

    def texts(self, case: Case) -> Mapping[str, str]:
        """Methods by name."""
        return self.methods

    def run_case(self, case: Case) -> Result:
        """All methods on one model."""
        graph = self.model(case)
        exact = parse_method("jt").run(graph)
        return {
            name: measured(parse_method(text).run(graph), exact)
            for name, text in self.texts(case).items()
        }


class UniformCouplings(_Errors):
    """Errors on grids of 100 variables by the spread of uniform couplings (LIU-X1)."""

    id: ClassVar[str] = "LIU-X1"
    faults: ClassVar[Mapping[str, str]]
    case_axes: ClassVar[CaseAxes] = {"spread": "spreads"}

    def model(self, case: Case) -> FactorGraph:
        """A grid."""
        return uniform_model("grid", case["variables"], case["spread"], case["seed"])

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """By spread: each method, then which column has the lowest l1 error."""
        means = mean_errors(finished, "spread")
        theirs = published(self.id)
        rows = []
        for u, ours in means.items():
            results = results_of(finished, spread=u)
            for name, errors in ours.items():
                own = [r[name] for r in results]
                told = theirs.get(name, {}).get(u)
                fair = told is not None and name not in self.faults
                notes = [self.faults.get(name, ""), share_converged(results, name)]
                rows.append(
                    Row(
                        f"u = {u:g}, {name}",
                        errors.text,
                        None if told is None else told.text,
                        note="; ".join(filter(None, notes)),
                        judgement=near(own, told) if told is not None and fair else None,
                    )
                )
            rows.append(self._lowest(u, ours))
        return rows

    def _lowest(self, u: float, ours: Mapping[str, Errors]) -> Row:
        """Whether the network is the best of the columns in both tables or in none."""
        names = [name for name in COLUMNS if name not in self.faults]
        theirs = {name: published(self.id)[name][u].l1 for name in names}
        own = {name: ours[name].l1 for name in names}
        first, found = (min(table, key=table.__getitem__) for table in (theirs, own))
        agree = holds((first == "RENN") == (found == "RENN"), "RENN in both or in none")
        return Row(
            f"u = {u:g}, lowest l1 error of {', '.join(names)}", found, first, None, "", agree
        )

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Errors by spread, published ones dashed."""
        means = mean_errors(finished, "spread")
        ours: dict[str, Column] = {
            name: {u: row[name] for u, row in means.items()} for name in self.methods
        }
        theirs: dict[str, Column] = {
            name: {u: e for u, e in column.items() if u in means}
            for name, column in published(self.id).items()
        }
        return figures.error_curves(ours, theirs, "Kikuchi, faces", "u =")


class NoPenalty(_Errors):
    """The network of regions without the penalty for disagreement (LIU-X2)."""

    id: ClassVar[str] = "LIU-X2"
    case_axes: ClassVar[CaseAxes] = {"variables": "variables", "field": "fields"}

    def model(self, case: Case) -> FactorGraph:
        """A grid with normal couplings."""
        return grid_of(case["variables"], case["field"], case["seed"])

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """By size and field: with and without, and which is better."""
        rows = []
        for (n, field), part in grouped(finished, "variables", "field").items():
            [[_, means]] = mean_errors(part, "variables").items()
            results = [one.result for one in part]
            where = f"n = {n}, γ = {field:g}"
            theirs = published(self.id)[f"γ = {field:g}"][n]
            bare, held = means["no penalty"], means["penalty"]
            own = [r["no penalty"] for r in results]
            rows.append(
                Row(f"{where}, no penalty", bare.text, theirs.text, judgement=near(own, theirs))
            )
            rows.append(Row(f"{where}, penalty", held.text, note=self.methods["penalty"]))
            worse = holds(bare.l1 > held.l1, "larger without the penalty")
            told = f"{bare.l1:.3g} without, {held.l1:.3g} with"
            rows.append(Row(f"{where}, l1 error", told, "larger without", None, "", worse))
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Errors by size, one field; the published ones of that field dashed."""
        field = finished[0].case["field"]
        means = mean_errors([f for f in finished if f.case["field"] == field], "variables")
        ours: dict[str, Column] = {
            name: {n: row[name] for n, row in means.items()} for name in self.methods
        }
        column = published(self.id)[f"γ = {field:g}"]
        theirs: dict[str, Column] = {"no penalty": {n: e for n, e in column.items() if n in means}}
        return figures.error_curves(ours, theirs, "penalty", "n =")


class SizeOfNetwork(_Errors):
    """The network of regions of the thesis, and free tables in its place (LIU-X3).

    The published table has 0 to 2 attention layers and 0 to 6 residual blocks. The network here has
    one layer and two blocks; free tables stand in for the cell without any, and the other cells are
    quoted.
    """

    id: ClassVar[str] = "LIU-X3"
    case_axes: ClassVar[CaseAxes] = {"kind": "kinds"}
    sizes: ClassVar[Mapping[str, tuple[int, int]]] = {"RENN": (1, 2), "free tables": (0, 0)}

    def model(self, case: Case) -> FactorGraph:
        """A grid of 100 variables or a complete graph of 16, weak fields."""
        if case["kind"] == "grid":
            return grid_of(case["variables"], 0.1, case["seed"])
        return complete(16, seed=case["seed"], field=0.1)

    def texts(self, case: Case) -> Mapping[str, str]:
        """Both methods on the regions of a kind of models."""
        regions = "faces" if case["kind"] == "grid" else "star"
        return {name: text.replace("REGIONS", regions) for name, text in self.methods.items()}

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Cell by cell, and whether a network is better than none, as published."""
        rows = []
        for kind, part in grouped(finished, "kind").items():
            [[_, means]] = mean_errors(part, "kind").items()
            known = {size: name for name, size in self.sizes.items()}
            cells = [(n, b) for n in (0, 1, 2) for b in (0, 2, 4, 6)]
            for layers, blocks in cells:
                theirs = published(self.id)[f"{kind}, {layers}"][blocks]
                at = f"{kind}, {layers} attention layers, {blocks} residual blocks"
                name = known.get((layers, blocks))
                if name is None:
                    rows.append(Row(at, None, theirs.text, note="only as published"))
                    continue
                judged = near([one.result[name] for one in part], theirs)
                note = "free tables under the same optimiser" if name == "free tables" else ""
                rows.append(Row(at, means[name].text, theirs.text, note=note, judgement=judged))
            one, none = means["RENN"].l1, means["free tables"].l1
            better = holds(one < none, "lower with the network")
            quantity = f"{kind}, l1 error with and without the network"
            rows.append(Row(quantity, f"{one:.3g}, {none:.3g}", "lower with it", None, "", better))
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Errors by residual blocks of the first kind of models."""
        kind = finished[0].case["kind"]
        [[_, means]] = mean_errors([f for f in finished if f.case["kind"] == kind], "kind").items()
        ours: dict[str, Column] = {
            name: {blocks: means[name]} for name, (_, blocks) in self.sizes.items()
        }
        theirs = {name: column for name, column in published(self.id).items() if kind in name}
        return figures.error_curves(ours, theirs, "RENN", "n =")


class SecondsOfInference(Experiment):
    """CPU seconds of one inference (LIU-X4)."""

    id: ClassVar[str] = "LIU-X4"
    methods: ClassVar[Mapping[str, str]]
    regions: ClassVar[Mapping[str, str]]
    case_axes: ClassVar[CaseAxes] = {"model": "models"}

    def model(self, case: Case) -> FactorGraph:
        """One of the four models."""
        name, seed = case["model"], case["seed"]
        kind = "grid" if name.startswith("grid") else "complete"
        n = int(name.partition(" of ")[2].partition(",")[0])
        if "u = 15" in name:
            return uniform_model(kind, n, 15.0, seed)
        return grid_of(n, 0.1, seed) if kind == "grid" else complete(n, seed=seed, field=1.0)

    def run_case(self, case: Case) -> Result:
        """CPU seconds by method, compilation left out: a run with one step comes first."""
        graph = self.model(case)
        kind = "grid" if case["model"].startswith("grid") else "complete"
        seconds = {}
        for name, text in self.methods.items():
            method: Any = parse_method(text.replace("REGIONS", self.regions[kind]))
            replace(method, max_iter=1).run(graph)
            begin = time.process_time()
            method.run(graph)
            seconds[name] = time.process_time() - begin
        return seconds

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Seconds beside published ones of another machine, and two orders."""
        rows = []
        for model, part in grouped(finished, "model").items():
            theirs = dict(zip(COLUMNS, curves(self.id)[model], strict=True))
            ours = {n: float(np.mean([f.result[n] for f in part])) for n in part[0].result}
            for name, value in ours.items():
                told = theirs.get(name)
                note = "" if told is None else f"published: {told:g} s, another machine"
                rows.append(Row(f"{model}, {name}, CPU seconds", significant(value), note=note))
            for other in ("loopy BP", "Inference Net"):
                rows.append(self._order(model, "RENN", other, ours, theirs))
        return rows

    @staticmethod
    def _order(
        model: str, a: str, b: str, ours: Mapping[str, float], theirs: Mapping[str, float | None]
    ) -> Row:
        known, other = theirs[a], theirs[b]
        assert known is not None and other is not None
        words = {True: "faster", False: "slower"}
        told, found = known < other, ours[a] < ours[b]
        quantity = f"{model}, {a} against {b}"
        agree = holds(found == told, words[told])
        note = f"{ours[a] / ours[b]:.3g} x, published {known / other:.3g} x"
        return Row(quantity, words[found], words[told], None, note, agree)

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Seconds by method, a group per model."""
        from kikuchi.plots import style

        with style.styled():
            figure, [axes] = style.new_figure(7.4, 3.8)
            groups = grouped(finished, "model")
            names = list(finished[0].result)
            for k, (model, part) in enumerate(groups.items()):
                heights = [np.mean([f.result[n] for f in part]) for n in names]
                place = np.arange(len(names)) + 0.8 * k / len(groups)
                axes.bar(place, heights, 0.7 / len(groups), label=model, color=style.COLOURS[k])
            axes.set_xticks(np.arange(len(names)) + 0.3, names, rotation=20)
            axes.set(yscale="log", ylabel="CPU seconds")
            axes.legend(frameon=False)
        return figure
