"""Restarts of EM side by side, and which of them is kept (HOJ-L6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import DataError, MethodError, ModelError
from kikuchi.core.parallel import map as parallel_map
from kikuchi.core.progress import Progress, silent
from kikuchi.core.run import Run
from kikuchi.core.trace import Trace
from kikuchi.ica.em import CONSISTENT, EMIteration, Rules, expectation, posterior_within_em
from kikuchi.ica.evidence import Evidence, evidence
from kikuchi.ica.initialisation import initial_model
from kikuchi.ica.model import Model, Observations
from kikuchi.ica.posteriors.posterior import Posterior
from kikuchi.ica.priors.prior import SourcePrior

Array = NDArray[np.float64]

_MANY = 100_000  # samples from which on a fit warms up on a part of them
_WARM_UP = 20_000
_NOISE_FRACTIONS = (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4)
_NOISE_SAMPLES = 1000
COLLAPSED = 0.05  # of the largest source: below it a column has been lost


@dataclass(frozen=True)
class RestartTask:
    """One fit: data, what to fit and where to begin (`start` is a kind or a model)."""

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


def fit_once(task: RestartTask, progress: Progress = silent) -> RestartFit:
    """Run one restart to its end."""
    clock = Budget(seconds=task.seconds).start()
    rng = np.random.default_rng(task.seed)
    if isinstance(task.start, Model):
        model = task.start
    else:
        arguments = task.data, task.priors, task.noise, task.rules.mixing, rng
        model = _with_less_noise(initial_model(task.start, *arguments), task)
    trace = Trace(objective_name="mean log-likelihood")
    model, stopped = _warmed_up(model, task, clock, rng)
    if stopped == "interrupted":
        return RestartFit(model, trace, False, stopped, math.nan, collapsed_sources(model))
    learning = EMIteration(model, task.data, task.posterior, task.rules)
    run = Run(clock, progress, trace)
    steps = learning.steps(task.optimiser, task.batch_size, task.seed)
    _, converged = run.iterate(steps, tol=task.tol, limit=task.max_iter)
    _check_model(learning.model)
    lost = collapsed_sources(learning.model)
    return RestartFit(learning.model, trace, converged, run.stopped, learning.objective, lost)


def _with_less_noise(model: Model, task: RestartTask) -> Model:
    """The start with less noise, if a few samples are then likelier.

    With as many sources as channels nothing but the likelihood tells how much of the data is noise,
    and EM takes long to get from much noise to very little.
    """
    if task.start != "ica" or not model.noise.learned or model.sources < model.channels:
        return model
    part = task.data.take(slice(0, _NOISE_SAMPLES))
    posterior = posterior_within_em(task.posterior)
    best, value = model, -math.inf
    for share in _NOISE_FRACTIONS:
        trial = replace(model, noise=model.noise.scaled(share))
        found = expectation(trial, part, posterior, "none")[0].log_likelihood
        if found > value:
            best, value = trial, found
    return best


def _warmed_up(
    model: Model, task: RestartTask, clock: Clock, rng: np.random.Generator
) -> tuple[Model, str]:
    """The model after EM on a part of many samples, and why that stopped: the way is long, and
    fewer samples show it.
    """
    if task.batch_size is not None or task.data.count < _MANY:
        return model, "converged"
    part = task.data.take(np.sort(rng.choice(task.data.count, _WARM_UP, replace=False)))
    learning = EMIteration(model, part, task.posterior, task.rules)
    run = Run(clock, silent, Trace())
    steps = learning.steps(task.optimiser, None, task.seed)
    run.iterate(steps, tol=10.0 * task.tol, limit=task.max_iter)
    return learning.model, run.stopped


def fit_all(
    tasks: Sequence[RestartTask], processes: int, seconds: float | None, progress: Progress = silent
) -> list[RestartFit]:
    """All restarts, in processes of their own if more than one is allowed. Those that the time
    does not allow are left out; the first is always made.

    `progress` is told of iterations, and of restarts while those run in other processes.
    """
    clock = Budget(seconds=seconds).start()
    first = fit_once(tasks[0], progress)
    if len(tasks) == 1 or first.stopped in ("interrupted", "seconds"):
        return [first]
    left = None if seconds is None else max(1e-3, seconds - clock.seconds)
    rest = [replace(task, seconds=left) for task in tasks[1:]]
    budget = Budget(seconds=left)
    if processes == 1:
        work = partial(fit_once, progress=progress)
        done = parallel_map(work, rest, processes=1, budget=budget)
    else:
        done = parallel_map(fit_once, rest, processes=processes, budget=budget, progress=progress)
    return [first, *done.values()]


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
    found = [evidence(f.model, data, posterior) for f in kept]
    values = [e.value if math.isfinite(e.value) else -math.inf for e in found]
    best = int(np.argmax(values))
    if values[best] == -math.inf:  # no likelihood at all: the least noise that is left
        best = int(np.argmin([float(np.mean(f.model.noise.value)) for f in kept]))
        return kept[best], Evidence(math.nan, "least noise")
    return kept[best], found[best]


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
    """L-BFGS needs an objective whose gradient the moments are, and no borders."""
    if optimiser != "lbfgs":
        return
    unknown = sorted({prior.name for prior in priors if not prior.has_log_partition})
    if unknown:
        raise MethodError(
            f"optimiser lbfgs: prior {', '.join(unknown)} has no likelihood to climb; use em"
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
