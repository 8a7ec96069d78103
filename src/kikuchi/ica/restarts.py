"""How one restart of EM ended, and the checkpoint file of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.core.run import State
from kikuchi.core.trace import Trace
from kikuchi.ica.model import Model, Observations, is_clear
from kikuchi.ica.noise import KINDS, IndependentNoise
from kikuchi.ica.scoring import Precision
from kikuchi.training.checkpoint import (
    Checkpoint,
    check_finite,
    check_sizes,
    part,
    prefixed,
    restoring,
)
from kikuchi.training.resuming import from_json_array, json_array

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
    def path(self) -> Path:
        """The file of all restarts."""
        return self.file.checkpoint.path

    @property
    def due(self) -> bool:
        """Whether enough time has passed since the file was written."""
        return self.file.checkpoint.due

    def load(self) -> State | None:
        """The state of this restart, if it is the one that was cut short."""
        same = self.file.running and self.file.number == self.number
        return self.file.running if same else None

    def save(self, state: State) -> None:
        """Write the file with this state."""
        self.file.write(self.number, state)


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
    check_sizes(state, {"model/mixing": "channels sources"}, channels=data.channels)
    sizes = {"channels": data.channels, "sources": state["model/mixing"].shape[1]}
    for name in {name.partition("/")[0] for name in state}:
        own = part(state, name)
        if name == "moments":
            check_sizes(own, _FIELDS, samples=data.count, **sizes)
        elif name == "total" or name.startswith("batch"):
            wide = own["second"].ndim == 3
            second = {"second": "channels " * wide + "sources sources"}
            check_sizes(own, _SUMS | second, **sizes)
            if name != "total":
                check_sizes(part(own, "moments"), _FIELDS, **sizes)
        elif name == "fallback":
            check_sizes(own, {"mixing": "channels sources"}, **sizes)
    if state["ascent/points"].shape != state["ascent/steps"].shape:
        raise DataError("its points and steps are not equally many")
