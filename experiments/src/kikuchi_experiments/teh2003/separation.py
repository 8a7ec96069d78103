"""Teh's thesis, section 4.6: blind separation of sources by three learners (TEH-E3).

The thesis mixes sixteen pieces of music whose samples are put in random order, so that only the
densities of the sources matter. The stand-in is sixteen independent Laplace sources, or the columns
of a file. Several runs, each with its own sources, batches and chains, are one case and learn side
by side in one compiled loop: their matrices are so small that one alone hardly keeps a core busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.core.seeds import generator
from kikuchi.core.tables import read_table
from kikuchi_experiments import figures
from kikuchi_experiments.aggregate import Claims, all_of, below, grouped, of_total, within
from kikuchi_experiments.experiment import Case, CaseAxes, Experiment, Finished, Result, Row

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
        """Learn at one rate after the other; the distances of all runs after each."""
        from kikuchi.energy.estimator import EnergyParameters
        from kikuchi.training.optimiser import Sgd
        from kikuchi.training.trainer import train
        from kikuchi.training.updates import TrainerState

        runs = [
            _Mixture.of(case, generator(np.random.SeedSequence([case["seed"], k])))
            for k in range(case["runs"])
        ]
        first = np.stack([0.1 * run.rng.normal(size=run.mixing.shape) for run in runs])
        model = EnergyParameters({"filters": first.astype(np.float32)})
        state: TrainerState | None = None
        own, rule = _rules(case["learner"], len(runs))
        distances, warnings = [], []
        for rate in case["rates"]:
            count = case["updates"] * _BATCH
            rows = [run.white[run.rng.integers(0, len(run.white), count)] for run in runs]
            done = train(
                model, np.concatenate(rows, axis=1), rule, batch_size=_BATCH, epochs=1,
                optimiser=Sgd(learning_rate=rate, momentum=0.9), seed=runs[0].rng, state=state,
            )  # fmt: skip
            model, state = done.model, done.state
            warnings += done.warnings
            filters = np.asarray(model.parameters["filters"], np.float64)
            distances.append([run.distance(w) for run, w in zip(runs, filters, strict=True)])
        for k in range(len(runs)):
            kept = {} if state is None else state.rule
            memory = {name: a[k] for name, a in kept.items() if np.ndim(a)}
            warnings += own.warnings(memory)
        return {"distances": np.transpose(distances).tolist(), "warnings": warnings}

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


@dataclass
class _Mixture:
    """White mixtures of the sources of one run."""

    rng: np.random.Generator
    mixing: Array
    forward: Array
    white: NDArray[np.float32]

    @classmethod
    def of(cls, case: Case, rng: np.random.Generator) -> _Mixture:
        from kikuchi.energy.whitening import Whitening

        sources = _sources(case, rng)
        size = sources.shape[1]
        mixing = np.full((size, size), _ELSEWHERE) + (1.0 - _ELSEWHERE) * np.eye(size)
        whitening = Whitening.fit(sources @ mixing.T, "zca")
        white = whitening(sources @ mixing.T).astype(np.float32)
        return cls(rng, mixing, np.asarray(whitening.forward), white)

    def distance(self, filters: Array) -> float:
        from kikuchi.ica.measures import amari_distance

        size = len(filters)
        return 2 * size * (size - 1) * amari_distance(filters @ self.forward, self.mixing)


@dataclass(frozen=True)
class _SideBySide:
    """A loss of many models, whose rows stand side by side: the sum of their losses."""

    loss: Any
    runs: int

    def begin(self, parameters: Any, data: Any, key: Any) -> Any:
        import jax

        keys = jax.random.split(key, self.runs)
        each: Any = jax.vmap(lambda own, key: self.loss.begin(own, data, key))
        return each(parameters, keys)

    def __call__(self, parameters: Any, batch: Any, key: Any, *memory: Any) -> Any:
        import jax
        import jax.numpy as jnp

        rows = jnp.swapaxes(batch.reshape(len(batch), self.runs, -1), 0, 1)
        keys = jax.random.split(key, self.runs)
        found = jax.vmap(self.loss)(parameters, rows, keys, *memory)
        return (jnp.sum(found[0]), found[1]) if memory else jnp.sum(found)


def _rules(learner: str, runs: int) -> tuple[Any, Any]:
    """The rule of one run, and that of all."""
    from kikuchi.energy.energies import LinearExperts
    from kikuchi.energy.learners import LEARNERS as RULES
    from kikuchi.training.rule import LossRule

    own = RULES.parse(learner).rule(LinearExperts(expert="logistic"))
    loss = _SideBySide(own.loss, runs)
    return own, LossRule(loss, begin=None if own.begin is None else loss.begin)


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
        name: np.concatenate([one.result["distances"] for one in parts[name]])
        for name in LEARNERS
        if name in parts
    }


def _end_row(learner: str, ends: Array) -> Row:
    low, middle, high = np.percentile(ends, [25, 50, 75])
    key = learner.partition(":")[0]
    return _CLAIMS.row(key, f"{middle:.2f} ({low:.2f} to {high:.2f})", count=len(ends))
