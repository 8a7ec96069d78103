"""Restarts of EM side by side, and which of them is kept. Reference: HOJ-L6."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import DataError, ModelError
from kikuchi.core.parallel import in_this_process
from kikuchi.core.parallel import map as parallel_map
from kikuchi.core.progress import Progress, silent
from kikuchi.core.run import Run, Step
from kikuchi.core.trace import Trace
from kikuchi.engines.loops.iterate import iterate
from kikuchi.ica.channels import channels_differ, with_channel_variances
from kikuchi.ica.em import (
    GRADIENTS,
    WEAK,
    EMIteration,
    Rules,
    expectation,
    posterior_within_em,
)
from kikuchi.ica.evidence import Evidence, evidence
from kikuchi.ica.initialisation import factor_noise, has_factors, initial_model
from kikuchi.ica.measures import column_angles
from kikuchi.ica.model import Model, Observations, deviations, weakest
from kikuchi.ica.noise import AUTO, KINDS
from kikuchi.ica.posteriors.importance import ImportancePosterior
from kikuchi.ica.posteriors.posterior import Moments, Posterior
from kikuchi.ica.priors.prior import SourcePrior
from kikuchi.ica.restarts import (
    CUT_SHORT,
    OBJECTIVE,
    RestartFile,
    RestartFit,
    RestartState,
    collapsed_sources,
    open_noise,
)
from kikuchi.ica.scoring import Precision, evaluate, has_information, point_of
from kikuchi.training.checkpoint import Checkpoint

_MANY = 8000  # samples from which on L-BFGS begins with a part of them
_PART = 4000
_WARM_UP = 20_000  # of 100 000 and more, for EM
_PART_ITERATIONS = 60, 15  # and of scoring
_PART_OF_ERROR = 0.3, 0.8  # how near to its end, in standard errors, a fit to a part must come
_SEEN = 5000  # samples that scoring seeks its start in
_FEW = 1250  # that it begins with,
_EACH = 10  # or so many for each parameter
_PSEUDO = 4.0  # samples without noise that keep a fit to few samples from such a solution
_NEXT = 4  # times as many are the next
_STRONG = 1.0  # deviation of sources in units of noise that lets few samples do
_MORE = 2500  # samples to begin with where it is less
_OTHERS = 2500  # that fits to these are compared on
_TESTED = 8000  # that tell whether channels differ, where fewer leave it open
_LOW_NOISE = 8.0  # weakest sources in units of noise, above which priors pass for unequal noise
_EQUAL = 50  # iterations after which channels are compared, unless the fit converged before
_PRECISE, _PRECISE_DRAWS = 1000, 512  # samples and draws that tell how precise a fit is
_SOON = 8  # steps in which a good start comes near
_PART_TIMES = 2  # as many draws as usual, at most
_ROUGH = 15  # rotations that bring another start near enough
_AGAIN = 4  # more starts where weak sources make several optima
_NOISE_FRACTIONS = (1.8, 1.0, 0.4, 0.1, 0.02, 1e-3)
_START_SAMPLES = 200
_STARTS = 3  # where sources are more than channels
_SAME = 5.0  # degrees between columns of fits that found the same
_LEAST_SIGNAL = 0.05  # of the variance of a direction that sources must explain at the start


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
    solver: str
    batch_size: int | None
    tol: float
    max_iter: int
    seconds: float | None
    number: int = 0
    columns: Array | None = None  # that start "ica" begins with, in the order of the priors

    def __repr__(self) -> str:
        name = self.start if isinstance(self.start, str) else "a given model"
        return f"start {name} with seed {self.seed}"


def fit_once(
    task: RestartTask, progress: Progress = silent, store: RestartState | None = None
) -> RestartFit:
    """Run one restart to its end, from its state in `store` if there is one."""
    clock = Budget(seconds=task.seconds).start()
    trace = Trace(objective_name=OBJECTIVE)
    settled, rate = True, 1.0
    model = None if store is None else store.model(task.data.channels, len(task.priors))
    if model is None:
        model, stopped, settled, rate = _first_model(task, clock)
        if stopped in CUT_SHORT:  # no state is kept: the search begins anew
            return RestartFit(model, trace, False, stopped, math.nan, collapsed_sources(model))
    learning = EMIteration(model, task.data, task.posterior, task.rules)
    learning.settled = settled
    learning.ascent.now.rate = rate
    run = Run(clock, progress, trace)
    step = _stepping(learning, task)
    ended = iterate(step, learning, run, tol=task.tol, limit=task.max_iter, store=store)
    converged = ended.converged
    cut_short = run.stopped in CUT_SHORT
    learning.conclude(converged, cut_short)
    if len(trace):
        trace.objective[-1] = learning.objective
    _check_model(learning.model)
    lost, stopped, precision = collapsed_sources(learning.model), run.stopped, None
    if stopped == "diverged" and task.solver == "scoring":
        stopped = "stalled"
    measured = task.solver == "lbfgs" and has_information(len(task.priors), task.data)
    if measured and not cut_short:
        learning.evaluation = evaluate(
            learning.model,
            task.data,
            learning.posterior,
            learning.moments.value,
            task.rules.mixing_prior,
        )
    if learning.evaluation is not None:
        precision = _precision(learning)
    open_sources = precision is not None and precision.open_sources
    if converged and (open_sources or open_noise(learning.model, precision)):
        stopped = "unresolved"
    if converged and not learning.settled:
        stopped = "ambiguous"
    converged = converged and stopped == "converged"
    how = converged, stopped, learning.objective
    return RestartFit(learning.model, trace, *how, lost, precision)


def _stepping(learning: EMIteration, task: RestartTask) -> Callable[[EMIteration], Step | None]:
    """The step of the solver. Noise "auto" begins with one variance for all channels; where BIC
    prefers a variance for each, the steps go on with those. Scoring has made that choice in its
    search for a start, unless the start was given.
    """
    open_kind = task.solver != "scoring" or isinstance(task.start, Model)
    choose = isinstance(task.noise, str) and task.noise == AUTO and open_kind
    choose = choose and task.data.channels > 1
    early = min(_EQUAL, max(1, task.max_iter // 2))
    learning.begin(task.solver, task.batch_size, task.seed)

    def step(learning: EMIteration) -> Step | None:
        report = learning.step()
        equal = choose and learning.model.noise.kind == KINDS[0]
        while (
            report is not None
            and equal
            and (report.iterations == early or report.residual <= task.tol)
            and _channels_of_fit_differ(learning, task)
        ):
            learning.begin_again(with_channel_variances(learning.model))
            learning.begin(task.solver, task.batch_size, task.seed)
            equal, report = False, learning.step()
        return report

    return step


def _channels_of_fit_differ(learning: EMIteration, task: RestartTask) -> bool:
    some, more = (learning.data.spread(count) for count in (_OTHERS, _TESTED))
    return _differ(learning.model, some, task, more)


def _differ(
    model: Model, data: Observations, task: RestartTask, more: Observations | None = None
) -> bool:
    if model.sources == model.channels and weakest(model) > _LOW_NOISE:
        return False
    posterior = posterior_within_em(task.posterior)
    return channels_differ(model, data, posterior, task.rules, more)


def _precision(learning: EMIteration) -> Precision:
    """What the samples leave open. Errors of the noise of each channel come from more draws than
    steps need, if these are larger: the variance of few draws passes for information.
    """
    assert learning.evaluation is not None
    known, posterior = learning.evaluation.precision(), learning.posterior
    if known.noise_error.size <= 1 or not isinstance(posterior, ImportancePosterior):
        return known
    posterior = replace(posterior, draws=max(posterior.draws, _PRECISE_DRAWS))
    model, data = learning.model, learning.data
    size = max(_PRECISE, _EACH * point_of(model).size)
    some = data if data.count <= size else data.take(slice(0, size))
    found = evaluate(model, some, posterior, None)
    errors = replace(found, count=data.count).precision().noise_error
    return replace(known, noise_error=np.maximum(known.noise_error, errors))


def _first_model(task: RestartTask, clock: Clock) -> tuple[Model, str, bool, float]:
    """The model that the fit to all samples begins with, why the search for it stopped, whether
    several starts, where one says little, led to the same model, and the rate at which steps of
    scoring become shorter (1 if not known).

    What follows gradients first fits a part of many samples, which costs less for most of the
    improvement.
    """
    rng = np.random.default_rng(task.seed)
    if isinstance(task.start, Model):
        return task.start, "converged", True, 1.0
    if task.solver == "scoring":
        return _scored_model(task, clock, rng)
    model = _best_start(task, rng)
    gradients = task.solver in GRADIENTS
    part, many = (_PART, _MANY) if gradients else (_WARM_UP, 100_000)
    if task.batch_size is not None or task.data.count < many:
        return model, "converged", True, 1.0
    few = task.data.take(np.sort(rng.choice(task.data.count, part, replace=False)))
    fit, stopped = _fit_to_part(model, few, task, clock)
    return fit.model, stopped, True, 1.0


def _scored_model(
    task: RestartTask, clock: Clock, rng: np.random.Generator
) -> tuple[Model, str, bool, float]:
    """Scoring on more and more samples, each time until the step is shorter than the standard
    errors that these samples leave; the fewest also choose the kind of noise and among starts.
    """
    several = task.start == "directions"
    order = rng.permutation(task.data.count)
    seen = replace(task, data=task.data.take(np.sort(order[:_SEEN])))
    tall = len(task.priors) < task.data.channels
    learned = task.noise if isinstance(task.noise, str) else ""
    own = learned == KINDS[1] and not tall and task.data.channels > 1
    if own:  # one variance for all channels first, as those of each mislead the first steps
        seen = replace(seen, noise=KINDS[0])
    models = [_best_start(seen, rng) for _ in range(_STARTS if several else 1)]
    size = max(_FEW, _EACH * task.data.channels * (len(task.priors) + 1))
    if not tall or weakest(models[0]) < _STRONG:
        size = max(size, _MORE)
    few = task.data.take(np.sort(order[:size]))
    others = task.data.take(np.sort(order[size : size + _OTHERS] if size < order.size else order))
    choose = learned == AUTO and task.data.channels > 1
    if choose and tall and _differ(models[0], few, task):
        models, choose = _own_starts(models[0], seen, rng), False
    fits = [_fit_to_part(models[0], few, task, clock)]
    for model in models[1:]:
        if fits[-1][1] not in CUT_SHORT:
            fits.append(_fit_to_part(model, few, task, clock))
    best, stopped = fits[-1] if len(fits) == 1 else _likeliest(fits, others, task)
    mixings = [fit.model.mixing for fit, _ in fits]
    apart = [float(column_angles(m, best.model.mixing).max()) for m in mixings]
    settled = not several or sum(angle < _SAME for angle in apart) > 1
    choose = choose and not tall and stopped not in CUT_SHORT
    more = order[size : size + _TESTED] if size < order.size else order
    if own or (choose and _differ(best.model, others, task, task.data.take(np.sort(more)))):
        start = with_channel_variances(best.model)
        best, stopped = _fit_to_part(start, few, task, clock, best.moments.value)
    if task.start == "ica" and few.observed is None and weakest(best.model) < WEAK:
        best, stopped = _turned_again((best, stopped), few, others, task, clock, rng)
    if stopped in CUT_SHORT:
        return best.model, stopped, False, 1.0
    size = _NEXT * few.count
    while _NEXT * size <= task.data.count:
        few = task.data.take(np.sort(order[:size]))
        best, stopped = _fit_to_part(best.model, few, task, clock)
        if stopped in CUT_SHORT:
            return best.model, stopped, False, 1.0
        size *= _NEXT
    rate = best.ascent.now.rate if stopped == "converged" else 1.0
    return best.model, stopped, settled, rate


def _turned_again(
    first: tuple[EMIteration, str],
    few: Observations,
    others: Observations,
    task: RestartTask,
    clock: Clock,
    rng: np.random.Generator,
) -> tuple[EMIteration, str]:
    """The likeliest of a fit and of fits from other rotations, and why the last one stopped. The
    search ends with the first that is worse by more than chance, or the second that is worse.
    """
    best, stopped = first
    start, value, worse = best.model, _likelihoods(best.model, others, task), 0
    for _ in range(_AGAIN):
        if stopped in CUT_SHORT or worse > 1:
            break
        fit, stopped = _fit_to_part(_turned(start, few, task, rng), few, task, clock, limit=_SOON)
        new = _likelihoods(fit.model, others, task)
        gains = new - value
        if float(gains.sum()) > 0.0:
            best, value = fit, new
        else:
            clearly = float(gains.sum()) < -float(gains.std()) * math.sqrt(gains.size)
            worse += 2 if clearly else 1
    return best, stopped


def _likeliest(
    fits: Sequence[tuple[EMIteration, str]], others: Observations, task: RestartTask
) -> tuple[EMIteration, str]:
    """The fit that makes samples most likely that it has not seen, and why the last one stopped."""
    values = [float(_likelihoods(fit.model, others, task).sum()) for fit, _ in fits]
    return fits[int(np.argmax(values))][0], fits[-1][1]


def _likelihoods(model: Model, data: Observations, task: RestartTask) -> Array:
    """log p(x) of every sample."""
    moments = posterior_within_em(task.posterior).solve(model.problem(data))
    assert moments.log_z is not None  # scoring has it
    return np.asarray(moments.log_z + model.log_base(data))


def _own_starts(model: Model, task: RestartTask, rng: np.random.Generator) -> list[Model]:
    """Starts with a variance for each channel: independent components in units of the noise of a
    factor analysis, as large noise of one channel hides sources from principal components. Where
    the covariance does not determine that noise, the one with equal variances remains another.
    """
    same = with_channel_variances(model)
    if task.start != "ica" or task.data.observed is not None:
        return [same]
    unit = np.sqrt(factor_noise(task.data.outer / task.data.count, model.sources))
    scaled = replace(task.data, x=task.data.x / unit[:, None])
    columns = None if task.columns is None else task.columns / unit[:, None]
    start = _best_start(replace(task, data=scaled, noise=KINDS[0], columns=columns), rng)
    variances = start.noise.channel_variances(model.channels) * unit**2
    own = with_channel_variances(replace(model, mixing=unit[:, None] * start.mixing), variances)
    return [own] if has_factors(model.channels, model.sources) else [own, same]


def _turned(model: Model, data: Observations, task: RestartTask, rng: np.random.Generator) -> Model:
    """Another start with the noise of a model: independent components in units of it, as another
    rotation that the search for them begins with finds them.
    """
    unit = np.sqrt(model.noise.channel_variances(model.channels))[:, None]
    scaled = replace(data, x=data.x / unit)
    kinds = task.priors, np.asarray(1.0), task.rules.mixing
    start = initial_model("ica", scaled, *kinds, rng, _ROUGH)
    return replace(model, mixing=unit * _without_noise(start, scaled))


def _best_start(task: RestartTask, rng: np.random.Generator) -> Model:
    """The start that makes some samples most likely.

    Independent components begin with the noise of each of several levels, their columns without
    it: with as many sources as channels only the likelihood tells how much of the data is noise.
    """
    arguments = task.data, task.priors, task.noise, task.rules.mixing, rng
    model = initial_model(str(task.start), *arguments, columns=task.columns)
    wanted = task.start in ("ica", "directions") and task.solver in GRADIENTS
    if not wanted or not model.noise.learned:
        return model
    few = task.data.take(slice(0, _START_SAMPLES))
    posterior = posterior_within_em(task.posterior)
    tall = model.sources < model.channels
    best, value = model, -math.inf
    for fraction in (1.0,) if tall else _NOISE_FRACTIONS:
        trial = replace(model, noise=model.noise.scaled(fraction))
        if task.start == "ica" and task.data.observed is None:
            trial = replace(trial, mixing=_without_noise(trial, task.data))
        likelihood = expectation(trial, few, posterior, "none")[0].log_likelihood
        if likelihood > value:
            best, value = trial, likelihood
    return best


def _without_noise(model: Model, data: Observations) -> Array:
    """Columns that with the noise make the covariance of the data, as near to those of the model
    as an orthogonal matrix can bring them.
    """
    sizes = deviations(model.priors)
    noise = np.diag(model.noise.channel_variances(model.channels))
    whole = data.outer / data.count
    values, vectors = np.linalg.eigh(whole - noise)
    values, vectors = values[-model.sources :], vectors[:, -model.sources :]
    least = _LEAST_SIGNAL * np.einsum("di,di->i", vectors, whole @ vectors)
    root = vectors * np.sqrt(np.maximum(values, least))
    left, _, right = np.linalg.svd(root.T @ (model.mixing * sizes))
    return np.asarray(root @ (left @ right) / sizes)


def _fit_to_part(
    model: Model,
    few: Observations,
    task: RestartTask,
    clock: Clock,
    moments: Moments | None = None,
    limit: int | None = None,
) -> tuple[EMIteration, str]:
    """A fit to some of the samples, only as near to its end as these are worth, and why it
    stopped.
    """
    learning = EMIteration(model, few, task.posterior, task.rules, moments)
    run = Run(clock, silent, Trace())
    scoring = task.solver == "scoring"
    learning.pseudo, learning.most_times = _PSEUDO, _PART_TIMES
    error = _PART_OF_ERROR[scoring] / math.sqrt(few.count)
    limit = min(task.max_iter, limit or _PART_ITERATIONS[scoring])
    learning.begin(task.solver, None, task.seed)
    iterate(EMIteration.step, learning, run, tol=max(task.tol, error), limit=limit)
    return learning, run.stopped


def fit_all(
    tasks: Sequence[RestartTask],
    processes: int,
    seconds: float | None,
    progress: Progress = silent,
    checkpoint: Checkpoint | None = None,
) -> tuple[list[RestartFit], bool]:
    """All restarts, in processes of their own if more than one is allowed, and whether Ctrl-C cut
    those after the first short. Those that the time does not allow are left out; the first is
    always made.

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
        store = None if file is None else RestartState(file, task.number)
        return fit_once(limited(task.number), progress, store)

    def keep(number: int, fit: RestartFit) -> None:
        fits[number] = fit
        if file is not None:
            file.keep(number, fit)

    if 0 not in fits:
        keep(0, here(tasks[0]))
    interrupted = False
    rest = [number for number in range(len(tasks)) if number not in fits]
    if rest and fits[0].complete:
        items = [limited(number) for number in rest]
        alone = in_this_process(processes)
        done = parallel_map(
            here if alone else fit_once,
            items,
            processes=processes,
            budget=Budget(seconds=items[0].seconds),
            progress=silent if alone else progress,
            finished=lambda k, fit: keep(rest[k], fit),
        )
        interrupted = done.stopped == "interrupted"
    return [fits[number] for number in sorted(fits)], interrupted


def choose_fit(
    fits: Sequence[RestartFit], data: Observations, posterior: Posterior
) -> tuple[RestartFit, Evidence]:
    """The restart of greatest likelihood among those that lost the fewest sources; each variance of
    the noise costs what BIC asks for it, as some may have more of them.

    Never the one of greatest mean field energy, which prefers collapse (see `evidence`).
    """
    fewest = min(len(f.collapsed) for f in fits)
    kept = [f for f in fits if len(f.collapsed) == fewest]
    if len(kept) == 1:
        return kept[0], Evidence(kept[0].objective, "the only one")
    estimates = [evidence(f.model, data, posterior) for f in kept]
    values = [e.value if math.isfinite(e.value) else -math.inf for e in estimates]
    cost = 0.5 * math.log(data.count) / data.count
    sizes = [f.model.noise.n_parameters(data.channels) for f in kept]
    values = [value - cost * size for value, size in zip(values, sizes, strict=True)]
    best = int(np.argmax(values))
    if values[best] == -math.inf:  # no likelihood at all: the least noise that is left
        best = int(np.argmin([float(np.mean(f.model.noise.value)) for f in kept]))
        return kept[best], Evidence(math.nan, "least noise")
    return kept[best], estimates[best]


def _check_model(model: Model) -> None:
    if not np.isfinite(model.mixing).all():
        raise ModelError("the fit has diverged: the mixing matrix is not finite; use solver='em'")
    if not float(np.abs(model.mixing).max()) > 0:
        raise DataError(
            "no source is left: every column of the mixing matrix has collapsed; "
            "the data may be noise, or posterior='lr' and a larger n_init may help"
        )
