"""How one restart of EM ended, and the checkpoint file of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.core.named_arrays import from_json_array, json_array
from kikuchi.core.run import State
from kikuchi.core.trace import Trace
from kikuchi.engines.loops.state import Part
from kikuchi.ica.model import Model, Observations, is_clear
from kikuchi.ica.noise import KINDS, IndependentNoise
from kikuchi.ica.posteriors.posterior import Moments
from kikuchi.ica.scoring import Precision
from kikuchi.ica.statistics import Statistics
from kikuchi.training.checkpoint import (
    Checkpoint,
    check_finite,
    check_sizes,
    part,
    prefixed,
    restoring,
)
from kikuchi.training.resuming import load_checked

OBJECTIVE = "mean log-likelihood"
CUT_SHORT = ("seconds", "interrupted")
_MAY_BE_INFINITE = ("precision/noise_error",)
COLLAPSED = 0.05  # of the largest source: below it a column has been lost


@dataclass(frozen=True)
class RestartFit:
    """What one restart ended with."""

    model: Model
    trace: Trace
    converged: bool
    stopped: str
    objective: float
    collapsed: tuple[int, ...]
    precision: Precision | None = None  # known after scoring, and after L-BFGS of few parameters

    @property
    def open_noise(self) -> tuple[int, ...]:
        """Channels whose noise the samples do not determine."""
        return open_noise(self.model, self.precision)

    @property
    def complete(self) -> bool:
        """Whether it ended by itself, not by the clock or by Ctrl-C."""
        return self.stopped not in CUT_SHORT

    def to_state(self) -> State:
        """The restart as arrays."""
        facts = {
            "model": self.model.describe(),
            "converged": self.converged,
            "stopped": self.stopped,
            "objective": self.objective,
        }
        trace = prefixed(self.trace.arrays(), "trace")
        precise = {} if self.precision is None else prefixed(vars(self.precision), "precision")
        return self.model.to_arrays() | trace | precise | {"facts": json_array(facts)}

    @classmethod
    def from_state(cls, state: State) -> RestartFit:
        """The inverse of `to_state`."""
        facts = from_json_array(state["facts"])
        for name, array in state.items():
            if not name.startswith("trace/"):
                check_finite(name, array, np.array([np.inf]) if name in _MAY_BE_INFINITE else None)
        model = Model.from_arrays(state, facts["model"])
        trace = Trace(OBJECTIVE)
        trace.restore(part(state, "trace"))
        how = facts["converged"], facts["stopped"], facts["objective"]
        known = part(state, "precision")
        precision = read_precision(known, model) if known else None
        return cls(model, trace, *how, collapsed_sources(model), precision)


def read_precision(arrays: Mapping[str, Array], model: Model) -> Precision:
    """The precision of a fit from a file; refused if its sizes are not those of the model."""
    channels, sources = model.mixing.shape
    found = Precision(**arrays)
    errors = found.noise_error.shape
    if found.doubt.shape != (sources,) or errors not in ((0,), (1,), (channels,)):
        raise DataError(
            f"its precision has {found.doubt.shape} and {errors} numbers for {sources} sources and "
            f"{channels} channels"
        )
    return found


class RestartFile:
    """A checkpoint file with the restarts that are complete and the state of the one that runs.

    `seeds` are those of the restarts; a file that exists brings its own.
    """

    def __init__(self, checkpoint: Checkpoint, seeds: Sequence[int]) -> None:
        self.checkpoint = checkpoint
        self.seeds = list(seeds)
        self.complete: dict[int, RestartFit] = {}
        self.running: State = {}
        self.number = 0  # of the restart that runs
        saved = checkpoint.load()
        if saved is not None:
            with restoring(checkpoint.path):
                self.seeds, self.number = saved.progress["seeds"], saved.progress["running"]
                if [type(seed) for seed in self.seeds] != [int] * len(seeds):
                    raise DataError(f"it has seeds {self.seeds}, and {len(seeds)} are needed")
                self.running = part(saved.arrays, "running")
                for number in saved.progress["complete"]:
                    state = part(saved.arrays, f"restart{number}")
                    self.complete[number] = RestartFit.from_state(state)

    def keep(self, number: int, fit: RestartFit) -> None:
        """Note a restart, if it is complete."""
        if fit.complete:
            self.complete[number] = fit
            self.write(number, {})

    def write(self, number: int, state: State) -> None:
        """Write the file with this state of this restart."""
        self.number, self.running = number, state
        arrays = prefixed(state, "running")
        for k, fit in self.complete.items():
            arrays |= prefixed(fit.to_state(), f"restart{k}")
        progress = {"seeds": self.seeds, "running": number, "complete": list(self.complete)}
        self.checkpoint.save(arrays, progress)


@dataclass(frozen=True)
class RestartState:
    """The place of one restart in the file of all."""

    file: RestartFile
    number: int

    @property
    def due(self) -> bool:
        """Whether enough time has passed since the file was written."""
        return self.file.checkpoint.due

    @property
    def _saved(self) -> State:
        """The state of this restart, if it is the one that was cut short."""
        return self.file.running if self.file.number == self.number else {}

    def model(self, channels: int, sources: int) -> Model | None:
        """Return the model in the file, if this restart is the one that was cut short."""
        if not self._saved:
            return None
        with restoring(self.file.checkpoint.path):
            sizes = {"channels": channels, "sources": sources}
            check_sizes(self._saved, {"kept/mixing": "channels sources"}, **sizes)
            return read_model(part(self._saved, "kept"))

    def resume(self, state: Part, trace: Trace) -> bool:
        """Load the state of this restart."""
        if self._saved:
            load_checked(self._saved, state, trace, self.file.checkpoint.path)
        return bool(self._saved)

    def save(self, state: State) -> None:
        """Write the file with this state."""
        self.file.write(self.number, state)


def written_model(model: Model) -> dict[str, Any]:
    """Return a model as arrays."""
    return {**model.to_arrays(), "facts": json_array(model.describe())}


def read_model(arrays: Mapping[str, Any]) -> Model:
    """Return the model that `written_model` wrote."""
    own = {name: array for name, array in arrays.items() if name != "facts"}
    return Model.from_arrays(own, from_json_array(arrays["facts"]))


def written_best(best: tuple[float, Model]) -> dict[str, Any]:
    """Return an objective and its model as arrays."""
    return {**written_model(best[1]), "objective": np.array(best[0])}


def read_best(arrays: Mapping[str, Any]) -> tuple[float, Model]:
    """Return what `written_best` wrote."""
    own = {name: array for name, array in arrays.items() if name != "objective"}
    return float(arrays["objective"]), read_model(own)


def written_batches(batches: list[tuple[Statistics, Moments]]) -> dict[str, Any]:
    """Return sums and moments of batches as arrays."""
    arrays: dict[str, Any] = {}
    for k, (statistics, moments) in enumerate(batches):
        arrays |= prefixed(statistics.to_arrays(), f"{k}")
        arrays |= prefixed(moments.fields(), f"{k}/moments")
    return arrays


def read_batches(arrays: Mapping[str, Any]) -> list[tuple[Statistics, Moments]]:
    """Return the batches that `written_batches` wrote."""
    batches: list[tuple[Statistics, Moments]] = []
    while batch := part(arrays, f"{len(batches)}"):
        start = Moments.from_fields(part(batch, "moments"))
        batches.append((Statistics.from_arrays(batch), start))
    return batches


def collapsed_sources(model: Model) -> tuple[int, ...]:
    """Sources whose column has shrunk to almost nothing beside the largest."""
    sizes = model.sizes()
    largest = float(sizes.max())
    if not largest > 0:
        return tuple(range(model.sources))
    return tuple(int(i) for i in np.flatnonzero(sizes < COLLAPSED * largest))


def open_noise(model: Model, precision: Precision | None) -> tuple[int, ...]:
    """Channels whose noise matters and is not determined by the samples."""
    if precision is None:
        return channels_at_floor(model)
    return () if is_clear(model) else tuple(precision.open_noise)


def channels_at_floor(model: Model) -> tuple[int, ...]:
    """Channels with a variance of their own that fell as far as it may."""
    noise = model.noise
    if not (isinstance(noise, IndependentNoise) and noise.learned and noise.kind == KINDS[1]):
        return ()
    return tuple(int(k) for k in np.flatnonzero(noise.at_floor))


_FIELDS = dict.fromkeys(("mean", "gamma", "lam"), "sources samples")
_SUMS = {"cross": "channels sources", "squares": "channels", "counts": "channels"}


def check_state_sizes(state: State, data: Observations) -> None:
    """Refuse a saved state whose parts are not those of one model of these data."""
    check_sizes(state, {"kept/mixing": "channels sources"}, channels=data.channels)
    sizes = {"channels": data.channels, "sources": state["kept/mixing"].shape[1]}
    for name in ("fallback", "best"):
        if own := part(state, name):
            check_sizes(own, {"mixing": "channels sources"}, **sizes)
    if own := part(state, "moments"):
        check_sizes(own, _FIELDS, samples=data.count, **sizes)
    batches = part(state, "batches")
    each = [part(batches, k) for k in sorted({name.partition("/")[0] for name in batches})]
    for own in [part(state, "total"), *each]:
        if not own:
            continue
        wide = own["second"].ndim == 3
        second = {"second": "channels " * wide + "sources sources"}
        check_sizes(own, _SUMS | second, **sizes)
    for own in each:
        check_sizes(part(own, "moments"), _FIELDS, **sizes)
    if state["ascent/points"].shape != state["ascent/steps"].shape:
        raise DataError("its points and steps are not equally many")
