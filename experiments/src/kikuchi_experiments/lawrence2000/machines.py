"""Lawrence's thesis, section 4.5.1: mixtures on random Boltzmann machines (LAW-E11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.seeds import generator
from kikuchi.graphs.binary import ising
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.enumeration import Enumeration
from kikuchi.methods.mixture_mean_field import MixtureMeanField
from kikuchi.plots import style
from kikuchi_experiments.aggregate import Claims, counted, holds
from kikuchi_experiments.experiment import Case, Experiment, Finished, Result, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kikuchi.methods.beliefs import Beliefs

_CLAIMS = Claims.of(__name__, "LAW-E11")
_ROUNDING = 1e-9
_CATALOGUE = {
    1: (0.59, 0.112),
    2: (0.33, 0.052),
    3: (0.29, 0.049),
    5: (0.26, 0.047),
    8: (0.10, 0.006),
}


class RandomBoltzmannMachines(Experiment):
    """Moments of small machines by mixtures of mean field solutions (LAW-E11, figure 4.2)."""

    id: ClassVar[str] = "LAW-E11"

    def run_case(self, case: Case) -> Result:
        """Mixtures of every size on one network."""
        graph = machine(case["units"], case["span"], case["seed"])
        exact = Enumeration().run(graph)
        assert exact.log_z is not None  # enumeration always knows it
        moments = pair_moments(exact)
        out: Result = {}
        for m in case["components"]:
            beliefs = MixtureMeanField(
                components=m,
                start="random",
                anneal_from=60.0,
                anneal_sweeps=8,
                tries=case["tries"],
                seed=case["seed"],
            ).run(graph)
            assert beliefs.log_z is not None  # without zeros mean field always has a bound
            errors = pair_moments(beliefs) - moments
            out[str(m)] = {"gap": exact.log_z - beliefs.log_z, "errors": errors.tolist()}
        return out

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Bounds and errors by number of components, and whether they fall."""
        table = _MomentErrors(finished)
        rows: list[Row] = []
        for m in table.sizes:
            bound, square = _CATALOGUE.get(m, (None, None))
            gap, error = float(table.gaps(m).mean()), float(table.mean_squares(m).mean())
            note = "" if bound is None else "catalogue: its own four networks"
            size = counted(m, "component")
            sound = holds((table.gaps(m) >= -_ROUNDING).all(), "never below 0")
            rows.append(_CLAIMS.row("bound", gap, sound, m=size, known=bound, note=note))
            rows.append(_CLAIMS.row("error", error, m=size, known=square, note=note))
        if len(table.sizes) > 1:
            rows.append(_falling_row("bound", [table.gaps(m).mean() for m in table.sizes]))
            squares = [table.mean_squares(m).mean() for m in (table.sizes[0], table.sizes[-1])]
            rows.append(_falling_row("error of the moments, fewest to most", squares))
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Histograms and the curve, as figure 4.2."""
        table = _MomentErrors(finished)
        with style.styled():
            figure, axes = style.new_figure(7.4, 3.0, 2, 1)
            _draw_histograms(axes[0], table)
            _draw_curve(axes[1], table)
        return figure


class _MomentErrors:
    """Results of all networks by number of components."""

    def __init__(self, finished: Sequence[Finished]) -> None:
        self.results = [one.result for one in finished]
        self.sizes = sorted(int(m) for m in self.results[0])

    def gaps(self, m: int) -> Array:
        """log Z less the bound, one per network."""
        return np.array([result[str(m)]["gap"] for result in self.results])

    def errors(self, m: int) -> Array:
        """Errors of the moments, one row per network."""
        return np.array([result[str(m)]["errors"] for result in self.results])

    def mean_squares(self, m: int) -> Array:
        """Mean squared error of the moments, one per network."""
        return np.asarray((self.errors(m) ** 2).mean(axis=1))


def machine(units: int, span: float, seed: int) -> FactorGraph:
    """A fully connected machine of ±1 units with all parameters uniform on (-span, span).

    >>> machine(10, 1.0, 0)
    FactorGraph(10 variables, 55 factors, 200 table entries)
    """
    rng = generator(seed)
    weights = np.triu(rng.uniform(-span, span, size=(units, units)), 1)
    return ising(weights + weights.T, rng.uniform(-span, span, size=units))


def pair_moments(beliefs: Beliefs) -> Array:
    """<s_i s_j> of every pair that shares a factor, s = ±1."""
    graph = beliefs.graph
    signs = np.array([[1.0, -1.0], [-1.0, 1.0]])
    pairs = np.flatnonzero(np.diff(graph.scope_offsets) == 2)
    return np.array([float((signs * beliefs.factor(int(a))).sum()) for a in pairs])


def _falling_row(what: str, values: Sequence[float]) -> Row:
    falls = bool(np.all(np.diff(values) < 0))
    return _CLAIMS.row("falls", "yes" if falls else "no", holds(falls, "it falls"), what=what)


def _draw_histograms(axes: Axes, table: _MomentErrors) -> None:
    chosen = dict.fromkeys((table.sizes[0], table.sizes[-1]))
    edges = np.linspace(-2.0, 2.0, 41)
    for colour, m in zip((style.VERMILLION, style.BLUE), chosen, strict=False):
        errors = table.errors(m).ravel()
        weights = np.full(len(errors), 1.0 / len(errors))
        label = counted(m, "component")
        axes.hist(
            errors, edges.tolist(), weights=weights, histtype="step", color=colour, label=label
        )
    axes.set(xlabel="error of a moment", ylabel="share of the moments")
    axes.legend(loc="upper right")


def _draw_curve(axes: Axes, table: _MomentErrors) -> None:
    sums = [(table.errors(m) ** 2).sum(axis=1) for m in table.sizes]
    means = [float(s.mean()) for s in sums]
    spread = [float(s.std() / np.sqrt(len(s))) for s in sums]
    axes.errorbar(table.sizes, means, spread, fmt="o-", color=style.BLUE, ms=4, lw=1.3, capsize=2)
    axes.set(ylim=(0.0, None), xlabel="components", ylabel="sum of squared errors")
    style.few_ticks(axes.xaxis, 6, whole=True)
