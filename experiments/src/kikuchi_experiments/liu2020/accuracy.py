"""Liu's thesis, chapter 4: marginals and log Z on grids and complete graphs (LIU-E6 to LIU-E10).

Every column is computed again, each model by every method; beside them the Kikuchi free energy at
its minimum, over the regions of the thesis and over larger ones. The two networks are trained with
the published architecture, rate and steps and one penalty for all models, fixed before any error
was seen, and free tables under the same optimiser beside them: on the first `network_seeds` models
of at most `network_variables` variables, since they take a hundred times as long as the rest. Exact
answers come from a junction tree. Two published kinds of columns cannot be matched: `faults`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.generators import complete, grid
from kikuchi.methods.registry import parse_method
from kikuchi_experiments.aggregate import all_of, grouped, holds, results_of
from kikuchi_experiments.experiment import Case, CaseAxes, Experiment, Finished, Result, Row
from kikuchi_experiments.liu2020 import figures
from kikuchi_experiments.liu2020.tables import (
    NEURAL,
    Column,
    Errors,
    corrected,
    lines,
    published,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kikuchi.methods.beliefs import Beliefs


LARGEST = {
    "Kikuchi, star": 3,
    "Kikuchi, faces": 4,
    "Kikuchi, 3 hubs": 5,
    "Kikuchi, 6 hubs": 8,
    "Kikuchi, 3×3 blocks": 9,
    "Kikuchi, faces+outer": 16,
}
"""Variables of the largest region of each approximation of ours; none is exact."""

_ENERGY = "region energy"
_NEAR = "l1 and log Z error within three standard errors"
_REACHED = "l1 and log Z error at most three published standard errors above"


class _Accuracy(Experiment):
    """A table of chapter 4: columns are methods, rows are sizes or fields.

    `faults` says what is wrong with published columns (catalogue, section 0.3). `networks` are run
    on the first models of a setting (`network_seeds`), up to a size (`network_variables`).
    """

    methods: ClassVar[Mapping[str, str]]
    best: ClassVar[str]
    regions_same_as: ClassVar[str]
    axis: ClassVar[str]
    label: ClassVar[str]
    faults: ClassVar[Mapping[str, str]]
    networks: ClassVar[Mapping[str, str]] = {}
    case_axes: ClassVar[CaseAxes] = {"variables": "variables", "field": "fields"}

    def model(self, case: Case) -> FactorGraph:
        """The model of a case: couplings J ~ N(0, 1), fields h ~ N(0, field^2)."""
        return grid_of(case["variables"], case["field"], case["seed"])

    def run_case(self, case: Case) -> Result:
        """All methods on one model."""
        graph = self.model(case)
        exact = parse_method("jt").run(graph)
        methods = dict(self.methods)
        if case["variables"] <= case["network_variables"] and case["seed"] < case["network_seeds"]:
            methods |= self.networks
        return {
            name: measured(parse_method(text).run(graph), exact) for name, text in methods.items()
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """By size or field: each method, then the published neural ones, then how ours compares."""
        means = mean_errors(finished, self.axis)
        rows = [row for x in means for row in self._rows_at(x, means[x], finished)]
        return [*rows, *self._further(means), self._summary(means)]

    def _further(self, means: Mapping[float, Mapping[str, Errors]]) -> list[Row]:
        """By size or field: whether RENN is the best of the columns that were run, if it was."""
        return [self._lowest(x, ours) for x, ours in means.items()]

    def _lowest(self, x: float, ours: Mapping[str, Errors]) -> Row:
        title = f"{self.label} {x:g}, lowest l1 error"
        theirs = {name: column[x].l1 for name, column in published(self.id).items()}
        known = {n: ours[n].l1 for n in theirs if n in ours}
        if "RENN" not in known:
            first = min(theirs, key=theirs.__getitem__)
            return Row(title, None, first, None, "RENN was not run here")
        first, found = (min(known, key=errors.__getitem__) for errors in (theirs, known))
        note = f"of {', '.join(known)}"
        note += "; the published ones have faults" if self.faults else ""
        agree = holds((found == "RENN") == (first == "RENN"), "RENN in both or in none")
        return Row(title, found, first, None, note, agree)

    def _rows_at(
        self, x: float, ours: Mapping[str, Errors], finished: Sequence[Finished]
    ) -> list[Row]:
        where = f"{self.label} {x:g}"
        theirs = published(self.id)
        results = results_of(finished, **{self.axis: x})
        rows = [
            self._row(f"{where}, {name}", name, x, ours[name], results) for name in self.methods
        ]
        rows += [
            self._network_row(f"{where}, {name}", name, x, ours, results)
            for name in self.networks
            if name in ours
        ]
        neural = [
            Row(f"{where}, {name}", None, theirs[name][x].text, None, self._neural_note(name))
            for name in NEURAL
            if name in theirs and name not in ours
        ]
        return [*rows, *neural]

    def _network_row(
        self,
        title: str,
        name: str,
        x: float,
        ours: Mapping[str, Errors],
        results: Sequence[Result],
    ) -> Row:
        """A network trained here, judged by whether it reaches the published errors."""
        theirs = published(self.id).get(name, {}).get(x)
        count = sum(name in result for result in results)
        notes = [f"{self.networks[name]}; one penalty for all models, {count} of {len(results)}"]
        notes += [self.faults[name]] if name in self.faults else []
        judgement = None
        if theirs is not None and name not in self.faults:
            judgement = holds(reaches(ours[name], theirs, count), _REACHED)
        shown = None if theirs is None else theirs.text
        return Row(title, ours[name].text, shown, None, "; ".join(notes), judgement)

    def _row(self, title: str, name: str, x: float, ours: Errors, results: Sequence[Result]) -> Row:
        theirs = published(self.id).get(name, {}).get(x)
        reference = corrected(self.id).get(self._reference_name(name), {}).get(x)
        settled = share_converged(results, name)
        notes = [self.faults.get(name, ""), settled, self._size_note(name)]
        judgement = None
        if name == self.best:
            lowest = is_below(ours, [column[x] for column in published(self.id).values()])
            judgement = holds(lowest, "l1 and log Z error below every published column")
        elif theirs is not None and name not in self.faults:
            judgement = holds(is_near(ours, theirs, len(results)), _NEAR)
        note = "; ".join(part for part in notes if part)
        return Row(
            title,
            ours.text,
            None if theirs is None else theirs.text,
            None if reference is None else reference.text,
            note,
            judgement,
        )

    def _neural_note(self, name: str) -> str:
        fault = self.faults.get(name, "")
        return "neural: as published, not run here" + (f"; {fault}" if fault else "")

    def _reference_name(self, name: str) -> str:
        return _ENERGY if name == self.regions_same_as else name

    def _size_note(self, name: str) -> str:
        most = LARGEST.get(name)
        return f"{self.methods[name]}, regions of at most {most} variables" if most else ""

    def _summary(self, means: Mapping[float, Mapping[str, Errors]]) -> Row:
        """In how many rows the best approximation of ours is below all there is."""
        wins = sum(is_below(ours[self.best], self._rivals(x, ours)) for x, ours in means.items())
        return Row(
            f"rows in which {self.best} has the lowest l1 and log Z error",
            f"{wins} of {len(means)}",
            None,
            "all",
            "against every published, corrected and other column of ours; "
            f"published: {lines(self.id)}",
            all_of(wins, len(means)),
        )

    def _rivals(self, x: float, ours: Mapping[str, Errors]) -> list[Errors]:
        columns = [*published(self.id).values(), *corrected(self.id).values()]
        known = [column[x] for column in columns if x in column]
        return [*known, *(errors for name, errors in ours.items() if name != self.best)]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """l1 and log Z error by size or field, published ones dashed."""
        means = mean_errors(finished, self.axis)
        ours = {name: {x: row[name] for x, row in means.items()} for name in self.methods}
        theirs: dict[str, Column] = {
            name: {x: errors for x, errors in column.items() if x in means}
            for name, column in published(self.id).items()
        }
        return figures.error_curves(ours, theirs, self.best, self.label)


# ---------------------------------------------------------------------- the experiments


class WeakFields(_Accuracy):
    """Grids with weak fields (LIU-E6, table 4.1)."""

    id: ClassVar[str] = "LIU-E6"


class UnitFields(_Accuracy):
    """Grids with unit fields (LIU-E7, table 4.2)."""

    id: ClassVar[str] = "LIU-E7"


class OuterFace(_Accuracy):
    """The outer face as a further region (LIU-E8, table 4.3)."""

    id: ClassVar[str] = "LIU-E8"

    def _further(self, means: Mapping[float, Mapping[str, Errors]]) -> list[Row]:
        """Whether the outer face helps the region energy, as it does the network."""
        rows = []
        for x, ours in means.items():
            before = published("LIU-E6" if x < 1 else "LIU-E7")["RENN"][25].l1
            after = published(self.id)["RENN"][x].l1
            own = [ours[name].l1 for name in ("Kikuchi, faces", "Kikuchi, faces+outer")]
            gains, theirs = own[1] < 0.9 * own[0], after < 0.9 * before
            words = "less by a tenth with it" if theirs else "not less by a tenth with it"
            judgement = holds(gains == theirs, words)
            rows.append(
                Row(
                    f"{self.label} {x:g}, l1 error without and with the outer face",
                    f"{own[0]:.3g} to {own[1]:.3g}",
                    f"{before:.3f} to {after:.3f}",
                    None,
                    "Kikuchi for RENN: the same region energy, at its minimum",
                    judgement,
                )
            )
        return rows


class CompleteNine(_Accuracy):
    """The complete graph of 9 variables (LIU-E9, table 4.4)."""

    id: ClassVar[str] = "LIU-E9"

    def model(self, case: Case) -> FactorGraph:
        """A complete graph."""
        return complete(case["variables"], seed=case["seed"], field=case["field"])


class CompleteSixteen(CompleteNine):
    """The complete graph of 16 variables (LIU-E10, table 4.5)."""

    id: ClassVar[str] = "LIU-E10"


# ---------------------------------------------------------------------- measures


def grid_of(n: int, field: float, seed: int) -> FactorGraph:
    """A square Ising grid of n variables with unit couplings.

    >>> grid_of(25, 0.1, 0).n_factors
    65
    """
    side = round(n**0.5)
    return grid(side, side, seed=seed, field=field)


def positive_marginals(beliefs: Beliefs) -> Array:
    """p(x_i = 1) of all variables, then p(x_i = 1, x_j = 1) of all pairs: what l1 compares."""
    graph = beliefs.graph
    pairs = np.flatnonzero(np.diff(graph.scope_offsets) == 2)
    both = beliefs.flat_factors[graph.table_offsets[pairs + 1].astype(np.int64) - 1]
    return np.concatenate([beliefs.flat_marginals[1::2], both])


def measured(beliefs: Beliefs, exact: Beliefs) -> Result:
    """Errors of one run: mean absolute difference and correlation of marginals, log Z."""
    ours, truth = positive_marginals(beliefs), positive_marginals(exact)
    varies = np.ptp(ours) > 0.0 and np.ptp(truth) > 0.0
    log_z, exact_log_z = beliefs.log_z, exact.log_z
    assert log_z is not None and exact_log_z is not None  # every method of these tables has one
    return {
        "l1": float(np.abs(ours - truth).mean()),
        "rho": float(np.corrcoef(ours, truth)[0, 1]) if varies else None,
        "log_z": abs(log_z - exact_log_z),
        "converged": beliefs.converged,
    }


def mean_errors(finished: Sequence[Finished], axis: str) -> dict[float, dict[str, Errors]]:
    """Means and deviations over models, by size or field, then by method."""
    return {
        x: {name: _mean(runs) for name, runs in _by_method(part).items()}
        for x, part in sorted(grouped(finished, axis).items())
    }


def _by_method(finished: Sequence[Finished]) -> dict[str, list[Result]]:
    """The results of each method on the models that it was run on."""
    found: dict[str, list[Result]] = {}
    for one in finished:
        for name, result in one.result.items():
            found.setdefault(name, []).append(result)
    return found


def _mean(runs: Sequence[Result]) -> Errors:
    columns = [[run[key] for run in runs if run[key] is not None] for key in ("l1", "rho", "log_z")]
    means = [float(np.mean(values)) if values else None for values in columns]
    deviations = [float(np.std(values)) if values else None for values in columns]
    assert means[0] is not None  # every run has an l1 error
    return Errors(means[0], *means[1:], *deviations)


def is_below(ours: Errors, others: Sequence[Errors]) -> bool:
    """Whether both errors are below those of all others.

    >>> is_below(Errors(0.1, None, 0.2), [Errors(0.2, None, 0.3), Errors(0.3, None, 0.1)])
    False
    """
    l1 = all(ours.l1 < other.l1 for other in others)
    known = [other.log_z for other in others if other.log_z is not None]
    return l1 and ours.log_z is not None and all(ours.log_z < log_z for log_z in known)


def is_near(ours: Errors, theirs: Errors, count: int) -> bool:
    """Whether the l1 error and that of log Z, means over `count` models, are within three standard
    errors of published ones, means over 20. Of both deviations over models the larger one counts.

    >>> theirs = Errors(0.1, None, 1.0, 0.02, None, 0.2)
    >>> is_near(Errors(0.11, None, 1.1, 0.02, None, 0.2), theirs, 20)
    True
    >>> is_near(Errors(0.11, None, 1.3, 0.02, None, 0.2), theirs, 20)
    False
    """
    return all(abs(excess) <= 3.0 for excess in _excesses(ours, theirs, count))


def reaches(ours: Errors, theirs: Errors, count: int) -> bool:
    """Whether neither error is more than three standard errors above the published one.

    Networks are run on few models, so that the published deviation alone counts.

    >>> theirs = Errors(0.1, None, 1.0, 0.02, None, 0.2)
    >>> reaches(Errors(0.01, None, 1.1, 0.5, None, 0.2), theirs, 20)
    True
    >>> reaches(Errors(0.2, None, 1.1, 0.5, None, 0.2), theirs, 2)
    False
    """
    known = Errors(ours.l1, ours.rho, ours.log_z, 0.0, None, 0.0)
    return all(excess <= 3.0 for excess in _excesses(known, theirs, count))


def _excesses(ours: Errors, theirs: Errors, count: int) -> list[float]:
    """By how many standard errors of the difference ours are above theirs: l1, then log Z."""
    pairs = [
        (ours.l1, theirs.l1, ours.l1_std, theirs.l1_std),
        (ours.log_z, theirs.log_z, ours.log_z_std, theirs.log_z_std),
    ]
    wide = (1 / count + 1 / 20) ** 0.5
    return [
        (a - b) / (wide * max(s, t))
        for a, b, s, t in pairs
        if a is not None and b is not None and s is not None and t is not None
    ]


def share_converged(results: Sequence[Result], name: str) -> str:
    """How many runs of a method converged, if not all did."""
    done = sum(result[name]["converged"] for result in results)
    return "" if done == len(results) else f"{done} of {len(results)} runs converged"
