"""Restarts of EM side by side, and which of them is kept (HOJ-L6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import DataError, MethodError, ModelError
from kikuchi.core.parallel import in_this_process
from kikuchi.core.parallel import map as parallel_map
from kikuchi.core.progress import Progress, silent
from kikuchi.core.run import Run, State
from kikuchi.core.trace import Trace
from kikuchi.ica.em import CONSISTENT, EMIteration, Rules, expectation, posterior_within_em
from kikuchi.ica.evidence import Evidence, evidence
from kikuchi.ica.initialisation import initial_model
from kikuchi.ica.model import Model, Observations
from kikuchi.ica.posteriors.posterior import Posterior
from kikuchi.ica.priors.prior import SourcePrior
from kikuchi.training.checkpoint import Checkpoint, part, prefixed, reading
from kikuchi.training.resuming import StateStore, from_json_array, iterate_resumable, json_array

_OBJECTIVE = "mean log-likelihood"
_MANY = 100_000  # samples from which on a fit warms up on a subset
_WARM_UP = 20_000
_NOISE_FRACTIONS = (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4)
_NOISE_SAMPLES = 1000
COLLAPSED = 0.05  # of the largest source: below it a column has been lost


@dataclass(frozen=True)
class RestartTask:
    """One restart: the data, what to fit and where to begin (`start` is a kind or a model)."""

    data: Observations
    priors: tuple[SourcePrior, ...]
    noise: str | Array
    posterior: Posterior
    rules: Rules
    start: str | Model
    seed: int
    optimiser: str
    batch_size: int | None
    tol: float
    max_iter: int
    seconds: float | None
    number: int = 0

    def __repr__(self) -> str:
        name = self.start if isinstance(self.start, str) else "a given model"
        return f"start {name} with seed {self.seed}"


@dataclass(frozen=True)
class RestartFit:
    """What one restart ended with."""

    model: Model
    trace: Trace
    converged: bool
    stopped: str
    objective: float
    collapsed: tuple[int, ...]

    @property
    def complete(self) -> bool:
        """Whether it ended by itself, not by the clock or by Ctrl-C."""
        return self.stopped not in ("seconds", "interrupted")

    def to_state(self) -> State:
        """The restart as arrays."""
        facts = {
            "model": self.model.describe(),
            "converged": self.converged,
            "stopped": self.stopped,
            "objective": self.objective,
        }
        trace = prefixed(self.trace.arrays(), "trace")
        return self.model.to_arrays() | trace | {"facts": json_array(facts)}

    @classmethod
    def from_state(cls, state: State) -> RestartFit:
        """The inverse of `to_state`."""
        facts = from_json_array(state["facts"])
        model = Model.from_arrays(state, facts["model"])
        trace = Trace(_OBJECTIVE)
        trace.restore(part(state, "trace"))
        how = facts["converged"], facts["stopped"], facts["objective"]
        return cls(model, trace, *how, collapsed_sources(model))


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
            with reading(checkpoint.path, "a state of this fit"):
                self.seeds, self.number = saved.progress["seeds"], saved.progress["running"]
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
class _RestartState:
    """The place of one restart in the file of all."""

    file: RestartFile
    number: int

    @property
    def due(self) -> bool:
        return self.file.checkpoint.due

    def load(self) -> State | None:
        same = self.file.running and self.file.number == self.number
        return self.file.running if same else None

    def save(self, state: State) -> None:
        self.file.write(self.number, state)


def fit_once(
    task: RestartTask, progress: Progress = silent, store: StateStore | None = None
) -> RestartFit:
    """Run one restart to its end, from its state in `store` if there is one."""
    clock = Budget(seconds=task.seconds).start()
    trace = Trace(objective_name=_OBJECTIVE)
    model: Model | None = None
    if store is not None and (state := store.load()) is not None:
        model = Model.from_arrays(part(state, "model"), from_json_array(state["facts"]))
    if model is None:
        model, stopped = _first_model(task, clock)
        if stopped == "interrupted":
            return RestartFit(model, trace, False, stopped, math.nan, collapsed_sources(model))
    learning = EMIteration(model, task.data, task.posterior, task.rules)
    run = Run(clock, progress, trace)
    steps = learning.steps(task.optimiser, task.batch_size, task.seed)
    _, converged = iterate_resumable(run, learning, steps, store, tol=task.tol, limit=task.max_iter)
    _check_model(learning.model)
    lost = collapsed_sources(learning.model)
    return RestartFit(learning.model, trace, converged, run.stopped, learning.objective, lost)


def _first_model(task: RestartTask, clock: Clock) -> tuple[Model, str]:
    """The model that EM begins with, and why the search for it stopped."""
    rng = np.random.default_rng(task.seed)
    if isinstance(task.start, Model):
        model = task.start
    else:
        arguments = task.data, task.priors, task.noise, task.rules.mixing, rng
        model = _with_less_noise(initial_model(task.start, *arguments), task)
    return _warmed_up(model, task, clock, rng)


def _with_less_noise(model: Model, task: RestartTask) -> Model:
    """The start with less noise, if that makes a few samples more likely.

    With as many sources as channels only the likelihood tells how much of the data is noise, and
    EM needs many steps from much noise to very little.
    """
    if task.start != "ica" or not model.noise.learned or model.sources < model.channels:
        return model
    few = task.data.take(slice(0, _NOISE_SAMPLES))
    posterior = posterior_within_em(task.posterior)
    best, value = model, -math.inf
    for fraction in _NOISE_FRACTIONS:
        trial = replace(model, noise=model.noise.scaled(fraction))
        likelihood = expectation(trial, few, posterior, "none")[0].log_likelihood
        if likelihood > value:
            best, value = trial, likelihood
    return best


def _warmed_up(
    model: Model, task: RestartTask, clock: Clock, rng: np.random.Generator
) -> tuple[Model, str]:
    """The model after EM on a subset where samples are many, which costs less for most of the
    improvement, and why that stopped.
    """
    if task.batch_size is not None or task.data.count < _MANY:
        return model, "converged"
    few = task.data.take(np.sort(rng.choice(task.data.count, _WARM_UP, replace=False)))
    learning = EMIteration(model, few, task.posterior, task.rules)
    run = Run(clock, silent, Trace())
    steps = learning.steps(task.optimiser, None, task.seed)
    run.iterate(steps, tol=10.0 * task.tol, limit=task.max_iter)
    return learning.model, run.stopped


def fit_all(
    tasks: Sequence[RestartTask],
    processes: int,
    seconds: float | None,
    progress: Progress = silent,
    checkpoint: Checkpoint | None = None,
) -> list[RestartFit]:
    """All restarts, in processes of their own if more than one is allowed. Those that the time
    does not allow are left out; the first is always made.

    `progress` is told of iterations, and of restarts while those run in other processes. With a
    checkpoint, restarts that it holds are not repeated, and the one that was cut short goes on
    (those in other processes begin again).
    """
    clock = Budget(seconds=seconds).start()
    file = None
    if checkpoint is not None:
        file = RestartFile(checkpoint, [task.seed for task in tasks])
        tasks = [replace(task, seed=seed) for task, seed in zip(tasks, file.seeds, strict=True)]
    fits = {} if file is None else dict(file.complete)

    def limited(number: int) -> RestartTask:
        left = None if seconds is None else max(1e-3, seconds - clock.seconds)
        return replace(tasks[number], seconds=left, number=number)

    def here(task: RestartTask) -> RestartFit:
        store = None if file is None else _RestartState(file, task.number)
        return fit_once(limited(task.number), progress, store)

    def keep(number: int, fit: RestartFit) -> None:
        fits[number] = fit
        if file is not None:
            file.keep(number, fit)

    if 0 not in fits:
        keep(0, here(tasks[0]))
    rest = [number for number in range(len(tasks)) if number not in fits]
    if rest and fits[0].complete:
        items = [limited(number) for number in rest]
        alone = in_this_process(processes)
        parallel_map(
            here if alone else fit_once,
            items,
            processes=processes,
            budget=Budget(seconds=items[0].seconds),
            progress=silent if alone else progress,
            finished=lambda k, fit: keep(rest[k], fit),
        )
    return [fits[number] for number in sorted(fits)]


def choose_fit(
    fits: Sequence[RestartFit], data: Observations, posterior: Posterior
) -> tuple[RestartFit, Evidence]:
    """The restart of greatest likelihood among those that lost the fewest sources.

    Never the one of greatest mean field energy, which prefers collapse (see `evidence`).
    """
    fewest = min(len(f.collapsed) for f in fits)
    kept = [f for f in fits if len(f.collapsed) == fewest]
    if len(kept) == 1:
        return kept[0], Evidence(kept[0].objective, "the only one")
    estimates = [evidence(f.model, data, posterior) for f in kept]
    values = [e.value if math.isfinite(e.value) else -math.inf for e in estimates]
    best = int(np.argmax(values))
    if values[best] == -math.inf:  # no likelihood at all: the least noise that is left
        best = int(np.argmin([float(np.mean(f.model.noise.value)) for f in kept]))
        return kept[best], Evidence(math.nan, "least noise")
    return kept[best], estimates[best]


def collapsed_sources(model: Model) -> tuple[int, ...]:
    """Sources whose column has shrunk to almost nothing beside the largest."""
    sizes = model.sizes()
    largest = float(sizes.max())
    if not largest > 0:
        return tuple(range(model.sources))
    return tuple(int(i) for i in np.flatnonzero(sizes < COLLAPSED * largest))


def check_optimiser(
    optimiser: str, posterior: Posterior, rules: Rules, priors: Sequence[SourcePrior]
) -> None:
    """L-BFGS needs an objective whose gradient the moments give, and no constraints."""
    if optimiser != "lbfgs":
        return
    unknown = sorted({prior.name for prior in priors if not prior.has_log_partition})
    if unknown:
        raise MethodError(
            f"optimiser lbfgs: prior {', '.join(unknown)} has no likelihood to maximise; use em"
        )
    if posterior.name not in CONSISTENT:
        raise MethodError(
            f"optimiser lbfgs: the energy of posterior {posterior.name} does not belong to its "
            f"moments; use over-relaxed, or one of {', '.join(CONSISTENT)}"
        )
    if rules.mixing != "free" or rules.mixing_prior.beta > 0:
        raise MethodError(
            "optimiser lbfgs takes free mixing with a flat or gaussian prior; "
            "use em or over-relaxed"
        )


def _check_model(model: Model) -> None:
    if not np.isfinite(model.mixing).all():
        raise ModelError(
            "the fit has diverged: the mixing matrix is not finite; use optimiser='em'"
        )
    if not float(np.abs(model.mixing).max()) > 0:
        raise DataError(
            "no source is left: every column of the mixing matrix has collapsed; "
            "the data may be noise, or posterior='lr' and more restarts may help"
        )
