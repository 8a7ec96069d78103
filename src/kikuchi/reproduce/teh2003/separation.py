"""Teh's thesis, section 4.6: blind separation of sources by three learners (TEH-E3).

The thesis mixes sixteen pieces of music whose samples are put in random order, so that only the
densities of the sources matter. The stand-in is sixteen independent Laplace sources, or the columns
of a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.core.seeds import generator
from kikuchi.core.tables import read_table
from kikuchi.reproduce import figures
from kikuchi.reproduce.aggregate import Claims, all_of, below, grouped, of_total, within
from kikuchi.reproduce.experiment import Case, CaseAxes, Experiment, Finished, Result, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEARNERS = {
    "exact": "exact likelihood",
    "equilibrium": "samples of the model",
    "cd:k=1,leapfrogs=30": "contrastive divergence",
}
_ELSEWHERE = 1.0 / 9.0  # of a source in the channels of the others
_BATCH = 100


class SourceSeparation(Experiment):
    """Square logistic experts find sources: exact gradients, exact samples, and short chains.

    With `data` the columns of a file are the sources.
    """

    id: ClassVar[str] = "TEH-E3"
    case_axes: ClassVar[CaseAxes] = {"learner": tuple(LEARNERS)}

    def run_case(self, case: Case) -> Result:
        """Learn at one rate after the other; the distance after each."""
        from kikuchi.energy.energies import LinearExperts
        from kikuchi.energy.estimator import EnergyParameters
        from kikuchi.energy.learners import LEARNERS as RULES
        from kikuchi.energy.whitening import Whitening
        from kikuchi.ica.measures import amari_distance
        from kikuchi.training.optimiser import Sgd
        from kikuchi.training.trainer import train

        rng = generator(case["seed"])
        sources = _sources(case, rng)
        size = sources.shape[1]
        mixing = np.full((size, size), _ELSEWHERE) + (1.0 - _ELSEWHERE) * np.eye(size)
        whitening = Whitening.fit(sources @ mixing.T, "zca")
        white = whitening(sources @ mixing.T).astype(np.float32)
        first = (0.1 * rng.normal(size=(size, size))).astype(np.float32)
        model, state, warnings = EnergyParameters({"filters": first}), None, []
        rule = RULES.parse(case["learner"]).rule(LinearExperts(expert="logistic"))
        distances = []
        for rate in case["rates"]:
            batches = white[rng.integers(0, len(white), case["updates"] * _BATCH)]
            optimiser = Sgd(learning_rate=rate, momentum=0.9)
            done = train(model, batches, rule, optimiser=optimiser, epochs=1, seed=rng, state=state)
            model, state = done.model, done.state
            warnings += done.warnings
            unmixing = np.asarray(model.parameters["filters"], np.float64) @ whitening.forward
            distances.append(2 * size * (size - 1) * amari_distance(unmixing, mixing))
        return {"distances": distances, "warnings": warnings}

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Distances at the end, how the learners compare, and where the distance falls."""
        runs = _runs(finished)
        rows = [_end_row(name, table[:, -1]) for name, table in runs.items()]
        if len(runs) < len(LEARNERS):
            return rows
        middle = {name: np.median(table, axis=0) for name, table in runs.items()}
        exact, samples, chains = middle.values()
        best = exact[-1] / min(samples[-1], chains[-1])
        end, pace = chains[-1] / samples[-1], chains[0] / samples[0]
        falls = np.diff([exact, samples, chains]) < 0
        count = int(falls.sum())
        return [
            *rows,
            _CLAIMS.row("best", f"{best:.2f}", below(best, 1.0)),
            _CLAIMS.row("equal", f"{end:.2f}", within(end, 1.0, 0.1)),
            _CLAIMS.row("pace", f"{pace:.2f}", within(pace, 1.0, 0.2)),
            _CLAIMS.row("steps", of_total(count, falls.size), all_of(count, falls.size)),
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Distances of all runs at the end."""
        ends = {LEARNERS[n]: table[:, -1].tolist() for n, table in _runs(finished).items()}
        return figures.box_plots(ends, "Amari distance", "Sixteen sources, distance at the end")


def _sources(case: Case, rng: np.random.Generator) -> Array:
    """Independent columns of unit variance."""
    if case["data"] is None:
        return np.asarray(rng.laplace(size=(case["samples"], case["sources"])) / np.sqrt(2.0))
    return _recorded(case["data"], case["digest"])


@lru_cache(maxsize=1)
def _recorded(path: str, digest: str) -> Array:
    columns = read_table(path, what="a file of sources").values
    if columns.ndim != 2 or columns.shape[1] < 2 or not np.all(columns.std(axis=0) > 0):
        raise DataError(f"{path}: two or more columns are needed, none of them constant")
    return np.asarray((columns - columns.mean(axis=0)) / columns.std(axis=0))


_CLAIMS = Claims.of(__name__, "TEH-E3")


def _runs(finished: Sequence[Finished]) -> dict[str, Array]:
    """For each learner the distances after each rate, one row per run."""
    parts = grouped(finished, "learner")
    return {
        name: np.array([one.result["distances"] for one in parts[name]])
        for name in LEARNERS
        if name in parts
    }


def _end_row(learner: str, ends: Array) -> Row:
    low, middle, high = np.percentile(ends, [25, 50, 75])
    key = learner.partition(":")[0]
    return _CLAIMS.row(key, f"{middle:.2f} ({low:.2f} to {high:.2f})", count=len(ends))
