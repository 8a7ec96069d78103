"""Filtering, smoothing, forecasting and sampling of a `StateSpace`.

Three forms of the same recursions: `covariance` (fast, steady state detected), `information` (flat
priors) and `square-root` (accurate for any noise: tiny, singular or none). `auto` takes the
covariance form where noise is regular and not tiny beside the signal, `information` for flat
priors, and roots otherwise or where the covariance form turns out to lose its digits.

Reference: HOJ-I6, HOJ-I7.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from kikuchi.core.arrays import U4, Array, Ints, Mask
from kikuchi.core.errors import DataError, MethodError, ModelError
from kikuchi.core.seeds import Seed, generator
from kikuchi.temporal.gaussian import is_positive, symmetric_inverse
from kikuchi.temporal.kernels import covariance as cov_kernels
from kikuchi.temporal.kernels import information as info_kernels
from kikuchi.temporal.kernels import square_root as root_kernels
from kikuchi.temporal.kernels.covariance import FilteredSteps, StepsGivenAll
from kikuchi.temporal.kernels.information import CanonicalChain, CanonicalSteps
from kikuchi.temporal.kernels.square_root import RootChain, RootSteps, UnsureDeviations
from kikuchi.temporal.sequences import check_steps
from kikuchi.temporal.state_space.blocks import (
    WhiteChain,
    filter_blocks,
    smooth_blocks,
    untracked,
)
from kikuchi.temporal.state_space.parameters import StateSpace
from kikuchi.temporal.state_space.results import (
    EqualSteps,
    FilteredStates,
    Forecast,
    SmoothedStates,
    StateMoments,
    check_variances,
)
from kikuchi.temporal.state_space.roots import covariance_roots, unsure_deviations

_Moments = TypeVar("_Moments", bound=StateMoments)
Arithmetic = Literal["auto", "covariance", "information", "square-root"]

_LOG_2PI = math.log(2.0 * math.pi)
_STEADY = 1e-14  # relative change of a covariance that counts as none
_ROOM = 1024  # steps within which covariances of a long sequence are expected to become steady
_LONG = 16 * _ROOM  # steps from which on the others get no room at first
_EPSILON = float(np.finfo(np.float64).eps)
_DIGITS = 1e-5  # largest relative error of moments in information form
_NATS = 1e-2, 1e-5  # largest error of a log-likelihood in that form: absolute, relative
_LOUD = 1e10  # variance of outputs over that of their noise from which on roots are used,
_LOUDEST = 4e15  # and from which on the covariance form has no digits left
_GROWTH = 1e3  # of a state within a forecast that is no forecast any more


# ---------------------------------------------------------------------- filter and smoother


def filter_states(
    model: StateSpace, y: Array, inputs: Array | None = None, *, arithmetic: Arithmetic = "auto",
    steady: bool = True, threads: int = 1,
) -> FilteredStates:  # fmt: skip
    """States given the outputs up to each step.

    Parameters
    ----------
    model : the parameters
    y : outputs (T, m); NaN is missing
    inputs : known inputs (T, k), if the model has any
    arithmetic : covariance, information, square-root, or auto
    steady : compute only means once the covariance stays the same (covariance form)
    threads : cores that work on blocks of time side by side (covariance form); one is used where
        the covariance becomes steady, as there is little left to do

    >>> walk = StateSpace([[1.0]], [[1.0]], [[0.0]], [[1.0]], initial_covariance=[[1e6]])
    >>> filter_states(walk, np.array([[1.0], [3.0]])).mean.round(3).ravel().tolist()
    [1.0, 2.0]
    """
    kind, work = _prepared(model, y, inputs, arithmetic, threads)
    return _or_roots(_filter, model, work, kind, arithmetic, steady, threads)


def _filter(
    model: StateSpace, work: _Prepared, kind: str, steady: bool, threads: int
) -> FilteredStates:
    steps = len(work.y)
    if kind == "information":
        log_z, kept = _information(model, work, False)
        means, covs, proper = _filtered_moments(model, kept)
        return FilteredStates(means, log_z, kind, EqualSteps(covs), steps, proper)
    every = np.ones(steps, dtype=bool)
    if kind == "square-root":
        log_z, found = _square_root(model, work, False)
        covs = found.roots @ np.swapaxes(found.roots, 1, 2)
        return FilteredStates(found.means, log_z, kind, EqualSteps(covs), steps, every)
    f = _covariance(model, work, steady, threads, keep=False)
    check_variances(f.covs[: f.first])
    matrices = EqualSteps(f.covs[: f.first], f.first, steps, f.covs[f.first - 1])
    return FilteredStates(f.means, f.log_z, kind, matrices, f.first, every)


def smooth_states(
    model: StateSpace, y: Array, inputs: Array | None = None, *, arithmetic: Arithmetic = "auto",
    steady: bool = True, threads: int = 1,
) -> SmoothedStates:  # fmt: skip
    """States given all outputs; parameters as of `filter_states`.

    These are the `model`, the outputs `y`, known `inputs`, the `arithmetic` of the filter, whether
    it may use its `steady` state, and `threads`.

    >>> walk = StateSpace([[1.0]], [[1.0]], [[1.0]], [[1.0]])
    >>> smooth_states(walk, np.array([[0.0], [np.nan], [2.0]])).mean.round(3).ravel().tolist()
    [0.5, 1.0, 1.5]
    """
    kind, work = _prepared(model, y, inputs, arithmetic, threads)
    return _or_roots(_smooth, model, work, kind, arithmetic, steady, threads)


def _smooth(
    model: StateSpace, work: _Prepared, kind: str, steady: bool, threads: int
) -> SmoothedStates:
    if kind == "covariance":
        f = _covariance(model, work, steady, threads, keep=True)
        if f.blocks is None:
            return _smooth_covariance(work, f, steady)
    n, steps = model.n_states, len(work.y)
    out, covs = np.empty((steps, n)), np.empty((steps, n, n))
    pairs = np.empty((steps - 1, n, n))
    if kind == "information":
        log_z, kept = _information(model, work, True)
        info_kernels.information_backward(kept, out, covs, pairs)
    elif kind == "square-root":
        log_z, roots = _square_root(model, work, True)
        root_kernels.root_backward(roots, out, covs, pairs)
    else:
        assert f.blocks is not None
        log_z = f.log_z
        smooth_blocks(f.blocks, (f.means, f.covs, f.predicted), out, covs, pairs, threads)
        check_variances(covs)
    return SmoothedStates(out, log_z, kind, EqualSteps(covs), EqualSteps(pairs))


def _or_roots(
    infer: Callable[..., _Moments], model: StateSpace, work: _Prepared, kind: str,
    arithmetic: Arithmetic, steady: bool, threads: int,
) -> _Moments:  # fmt: skip
    """What `infer` answers in the form `kind`; where `auto` took the covariance form and rounding
    spoils its covariances, in square-root form.
    """
    if kind == "covariance" and arithmetic == "auto" and threads == 1:
        try:
            return infer(model, work, kind, steady, threads)
        except ModelError:
            kind = "square-root"
    return infer(model, work, kind, steady, threads)


def _filtered_moments(model: StateSpace, kept: CanonicalSteps) -> tuple[Array, Array, Mask]:
    """Means, covariances and whether they exist, of canonical parameters of each step.

    Where they do not, the mean is that of the known directions (pseudo-inverse), and variances of
    coordinates with an unknown part are infinite.
    """
    gammas, lambdas = kept.gammas, kept.lambdas
    steps, n = gammas.shape
    means, covs, lost = np.empty((steps, n)), np.empty((steps, n, n)), np.empty(steps)
    info_kernels.moments(gammas, lambdas, means, covs, lost)
    proper = np.isfinite(lost)
    if not model.is_flat or proper[-1]:  # a flat prior may leave the first steps open
        _check_digits(model, _EPSILON * float(lost[-1] if model.is_flat else lost.max()), _DIGITS)
    for t in np.flatnonzero(~proper):
        values, vectors = np.linalg.eigh(lambdas[t])
        known = values > 1e-12 * max(values[-1], 1e-300)
        inverse = (vectors[:, known] / values[known]) @ vectors[:, known].T
        means[t], covs[t] = inverse @ gammas[t], inverse
        unknown = (vectors[:, ~known] ** 2).sum(axis=1) > 1e-12
        covs[t][np.diag_indices(n)] = np.where(unknown, np.inf, np.diagonal(inverse))
    return means, covs, proper


def _check_digits(model: StateSpace, error: float, limit: float) -> None:
    """Refuse answers of the information form that rounding has spoilt."""
    if not error <= limit:
        out = "give an initial_covariance" if model.is_flat else "use arithmetic='square-root'"
        raise ModelError(
            "the information form loses too many digits with noise this small (estimated error "
            f"{error:.1g}, limit {limit:.1g}); {out}"
        )


# ---------------------------------------------------------------------- preparation


class _Prepared(NamedTuple):
    """Arrays as the compiled loops read them: constant parameters have a leading axis of 1."""

    a: Array
    drift: Array
    y: Array  # centred outputs, 0 where missing
    seen: Mask  # which are observed, as patterns
    which: U4  # pattern of each step
    c: Array  # rows of each pattern, observed first
    r: Array  # noise of each pattern
    counts: Ints
    order: Ints  # columns of each pattern, observed first


def _prepared(
    model: StateSpace, y: Array, inputs: Array | None, arithmetic: Arithmetic, threads: int = 1
) -> tuple[str, _Prepared]:  # fmt: skip
    steps = len(y)
    if threads < 1:
        raise MethodError(f"threads must be at least 1, got {threads}")
    for name in model.varying:
        if len(getattr(model, name)) < steps:
            raise DataError(
                f"{name} is given for {len(getattr(model, name))} steps, the sequence has {steps}"
            )
    if y.shape[1] != model.n_outputs:
        raise DataError(f"{y.shape[1]} columns for a model of {model.n_outputs} outputs")
    kind = _chosen(model, arithmetic, threads)
    if threads > 1 and kind != "covariance":
        why = " (a flat prior has no other)" if model.is_flat else ""
        raise MethodError(f"threads > 1 need the covariance form, not {kind}{why}; use threads=1")
    return kind, _work(model, y, inputs)


def _chosen(model: StateSpace, arithmetic: Arithmetic, threads: int) -> str:
    """The form to use, or why it cannot be used."""
    q_regular, r_regular = _regular(model.state_noise), _regular(model.output_noise)
    if arithmetic == "auto":
        if model.is_flat:
            arithmetic = "information"
        else:
            digits = threads > 1 or _loudness(model) < _LOUD if r_regular else False
            arithmetic = "covariance" if q_regular and digits else "square-root"
    if arithmetic == "information" and not (q_regular and r_regular):
        raise ModelError(
            "singular noise has no information form"
            + (", and a flat prior has no other; give initial_covariance" if model.is_flat else "")
        )
    if arithmetic in ("covariance", "square-root") and model.is_flat:
        raise MethodError(f"a flat prior has no {arithmetic} form; use arithmetic='information'")
    if arithmetic == "covariance" and not r_regular:
        raise MethodError("outputs without noise need arithmetic='square-root'")
    if arithmetic == "covariance" and _loudness(model) > _LOUDEST:
        out = (
            "threads=1 and arithmetic='square-root'" if threads > 1 else "arithmetic='square-root'"
        )
        raise ModelError(
            f"the covariance form has no digits left with output noise this small; use {out}"
        )
    if arithmetic not in ("covariance", "information", "square-root"):
        raise MethodError(
            f"arithmetic is auto, covariance, information or square-root, got {arithmetic!r}"
        )
    return arithmetic


def _regular(noise: Array) -> bool:
    return all(is_positive(part) for part in noise.reshape(-1, *noise.shape[-2:]))


def _loudness(model: StateSpace) -> float:
    """Variance that the first state and a step of the noise give an output, over that of its own
    noise: the covariance form subtracts numbers that agree up to this factor.
    """
    states = model.initial_covariance + leading(model.state_noise, 2)[0]
    c, r = leading(model.output, 2), leading(model.output_noise, 2)
    signal = np.einsum("tmi,ij,tmj->tm", c, states, c)
    return float((signal / np.diagonal(r, axis1=1, axis2=2)).max())


def _work(model: StateSpace, y: Array, inputs: Array | None) -> _Prepared:
    steps, m = y.shape
    drift, centred = state_drift(model, inputs, steps), y - output_means(model, inputs, steps)
    observed = ~np.isnan(y)
    if observed.all():
        seen, which = np.ones((1, m), dtype=bool), np.zeros(steps, dtype=np.uint32)
    else:
        seen, inverse = np.unique(observed, axis=0, return_inverse=True)
        which = inverse.reshape(-1).astype(np.uint32)
    c, r = leading(model.output, 2), leading(model.output_noise, 2)
    if len(c) > 1 or len(r) > 1:
        seen, which = seen[which], np.arange(steps, dtype=np.uint32)
    order = np.argsort(~seen, axis=1, kind="stable").astype(np.int64)
    count = seen.sum(axis=1).astype(np.int64)
    rows = np.arange(len(seen))[:, None]
    c = c[rows % len(c) if len(c) == 1 else rows, order]
    r = r[(rows % len(r) if len(r) == 1 else rows)[:, :, None], order[:, :, None], order[:, None]]
    if len(seen) > 1 or not seen.all():
        centred = np.take_along_axis(np.nan_to_num(centred), order[which], axis=1)
    return _Prepared(
        leading(model.transition, 2), drift, centred, seen, which,
        np.ascontiguousarray(c), r, count, order,
    )  # fmt: skip


def state_drift(model: StateSpace, inputs: Array | None, steps: int) -> Array:
    """What is added to each state: (1, n) if always the same."""
    offset = leading(model.state_offset, 1)
    if inputs is None or not model.n_inputs:
        return offset.copy()  # writable, as with inputs: loops are compiled once for both
    return np.ascontiguousarray(inputs[:steps] @ model.state_input.T + offset)


def output_means(model: StateSpace, inputs: Array | None, steps: int) -> Array:
    """What is added to each output: (1, m) if always the same."""
    offset = leading(model.output_offset, 1)[:steps]
    if inputs is None or not model.n_inputs:
        return offset
    return np.asarray(inputs[:steps] @ model.output_input.T + offset)


def leading(value: Any, axes: int) -> Array:
    """A parameter with an axis of steps before its own axes."""
    return np.ascontiguousarray(value if np.ndim(value) > axes else np.asarray(value)[None])


def _whitened(work: _Prepared) -> tuple[Array, Array, float]:
    """Rows and outputs in units of the noise, each pattern by its own factor; and the sum of the
    log-determinants of the factors.
    """
    c, y, log_det = np.zeros_like(work.c), np.zeros(work.y.shape), 0.0
    one = len(work.counts) == 1
    for k, o in enumerate(work.counts.tolist()):
        if o:
            factor = np.linalg.cholesky(work.r[k, :o, :o])
            c[k, :o] = np.linalg.solve(factor, work.c[k, :o])
            here: Any = slice(None) if one else work.which == k
            count = len(work.which) if one else 1 if len(c) == len(y) else int(np.sum(here))
            inverse = np.linalg.inv(factor)
            if len(c) == len(y) and not one:
                y[k, :o] = inverse @ work.y[k, :o]
            else:
                y[here, :o] = work.y[here, :o] @ inverse.T
            log_det += count * float(np.log(np.diagonal(factor)).sum())
    return c, y, log_det


# ---------------------------------------------------------------------- the three forms


class _Filter(NamedTuple):
    """Answers of the filter in covariance form; those of steps from `first` on are as at
    first - 1, and need not have room. `blocks` is the chain if it was worked on in blocks.
    """

    means: Array
    covs: Array
    predicted: Array
    log_z: float
    first: int
    blocks: WhiteChain | None


def _covariance(
    model: StateSpace, work: _Prepared, steady: bool, threads: int, *, keep: bool
) -> _Filter:
    """The filter; with `keep` also the predicted covariances."""
    c, y, log_det = _whitened(work)
    chain = WhiteChain(
        work.a, leading(model.state_noise, 2), work.drift, c, work.which, work.counts, y,
        np.array(model.initial_mean), np.array(model.initial_covariance),
    )  # fmt: skip
    steps, n = len(y), model.n_states
    means = np.empty((steps, n))
    settles = steady and max(len(chain.a), len(chain.q), len(c)) == 1
    if threads > 1 and not settles:
        covs, predicted = np.empty((steps, n, n)), np.empty((steps if keep else 0, n, n))
        log_z = filter_blocks(chain, means, covs, predicted, threads)
        return _Filter(means, covs, predicted, log_z - log_det, steps, chain)
    log_z, first, failed = 0.0, 0, -1
    for room in (_ROOM, steps) if settles and steps >= _LONG else (steps,):
        covs, predicted = np.empty((room, n, n)), np.empty((room if keep else 0, n, n))
        log_z, first, failed = cov_kernels.filter_forward(
            chain, _STEADY if steady else 0.0, FilteredSteps(means, covs, predicted), *untracked(n)
        )
        if first:
            break
    if failed >= 0 or not math.isfinite(log_z):
        raise ModelError(
            f"the covariance is no longer positive (step {failed if failed >= 0 else 'unknown'}); "
            "use arithmetic='square-root', or check the scale of the noise"
        )
    return _Filter(means, covs, predicted, log_z - log_det, first, None)


def _smooth_covariance(work: _Prepared, f: _Filter, steady: bool) -> SmoothedStates:
    """The smoother after a filter that was not worked on in blocks."""
    steps, n = f.means.shape
    out, reached = np.empty((steps, n)), False
    low, high, failed = 0, 0, -1
    short = len(f.covs) < steps
    for room in (f.first + _ROOM, steps) if short else (steps,):
        covs, pairs = np.empty((room, n, n)), np.empty((room - 1, n, n))
        low, high, reached, failed = cov_kernels.smooth_backward(
            work.a, work.drift, FilteredSteps(f.means, f.covs, f.predicted), f.first,
            _STEADY if steady else 0.0, StepsGivenAll(out, covs, pairs),
        )  # fmt: skip
        if reached:
            break
    if failed >= 0:
        raise ModelError(
            f"the predicted covariance of step {failed + 1} is singular; use "
            "arithmetic='square-root'"
        )
    gap = steps - len(covs)
    matrices = _equal(covs, low, high, gap)
    check_variances(matrices.rows)
    return SmoothedStates(out, f.log_z, "covariance", matrices, _equal(pairs, low, high, gap))


def _equal(rows: Array, low: int, high: int, gap: int) -> EqualSteps:
    """Matrices of steps low <= t < high are that of step `high`; `gap` of them have no row."""
    if low == high:
        return EqualSteps(rows)
    others = np.concatenate([rows[:low], rows[high - gap :]])
    return EqualSteps(others, low, high, rows[high - gap])


def _information(model: StateSpace, work: _Prepared, keep: bool) -> tuple[float, CanonicalSteps]:
    c, y, log_det = _whitened(work)
    n, steps = model.n_states, len(work.which)
    evidence = np.ascontiguousarray(np.swapaxes(c, 1, 2) @ c)
    shifts = y @ c[0] if len(c) == 1 else np.einsum("tm,tmn->tn", y, c[work.which])
    constant = -0.5 * (float((y * y).sum()) + float(work.counts[work.which].sum()) * _LOG_2PI)
    noise = leading(model.state_noise, 2)
    if model.initial_covariance is None:
        gamma0, lambda0 = np.zeros(n), np.zeros((n, n))
    else:
        if not is_positive(model.initial_covariance):
            raise ModelError("a singular initial_covariance has no information form")
        lambda0 = symmetric_inverse(model.initial_covariance)
        gamma0 = lambda0 @ model.initial_mean
        constant -= 0.5 * float(gamma0 @ model.initial_mean)
        constant -= 0.5 * float(np.linalg.slogdet(2 * np.pi * model.initial_covariance)[1])
    constant -= noise_constant(noise, steps) + log_det
    chain = CanonicalChain(
        work.a, symmetric_inverse(noise), work.drift, evidence, work.which, shifts, gamma0, lambda0
    )
    log_z, size, kept = canonical_chain(chain, keep=keep)
    log_z += constant
    _check_digits(model, 4 * _EPSILON * (size + abs(constant)), _NATS[0] + _NATS[1] * abs(log_z))
    return log_z, kept


def noise_constant(noise: Array, steps: int) -> float:
    """Sum over transitions of the logarithm of the normaliser of the state noise."""
    log_dets = np.linalg.slogdet(2 * np.pi * noise)[1]
    total = log_dets[1:steps].sum() if len(noise) > 1 else (steps - 1) * log_dets[0]
    return 0.5 * float(total)


def canonical_chain(chain: CanonicalChain, *, keep: bool) -> tuple[float, float, CanonicalSteps]:
    """The information filter over any Gaussian evidence: log of the integral over all states
    without constants, the size of its terms, and canonical parameters of each step.
    """
    steps, n = chain.shifts.shape
    room = steps - 1 if keep else 0
    a = chain.a.view()
    a.setflags(write=False)  # the types of a `StateSpace`: loops are compiled once for all callers
    chain = chain._replace(
        a=a,
        noise_precision=np.ascontiguousarray(chain.noise_precision),
        drift=np.require(chain.drift, requirements="W"),
        shifts=np.ascontiguousarray(chain.shifts),
    )
    kept = CanonicalSteps(
        np.empty((steps, n)), np.empty((steps, n, n)), np.empty((room, n, n)),
        np.empty((room, n, n)), np.empty((room, n)),
    )  # fmt: skip
    log_z, size, failed = info_kernels.information_forward(chain, kept)
    if failed >= 0 or not math.isfinite(log_z):
        raise ModelError(
            "the outputs do not determine the state "
            + (f"of step {failed}" if failed < steps - 1 else "of the last step")
            + "; give a proper initial_covariance"
        )
    return log_z, size, kept


def _square_root(model: StateSpace, work: _Prepared, keep: bool) -> tuple[float, RootSteps]:
    steps, n = len(work.y), model.n_states
    room = steps - 1 if keep else 0
    kept = RootSteps(
        np.empty((steps, n)), np.empty((steps, n, n)), np.empty((room, n, n)),
        np.empty((room, n, n)), np.empty((room, n)),
    )  # fmt: skip
    q, first = leading(model.state_noise, 2), leading(model.initial_covariance, 2)
    r_roots, r_unsure = _noise_roots(work)
    chain = RootChain(
        work.a, covariance_roots(q), work.drift, work.c, r_roots, work.which, work.counts, work.y,
        np.array(model.initial_mean), np.ascontiguousarray(covariance_roots(first)[0]),
    )  # fmt: skip
    unsure = UnsureDeviations(unsure_deviations(first)[0], unsure_deviations(q), r_unsure)
    log_z, failed = root_kernels.root_forward(chain, unsure, kept)
    if failed >= 0 or not math.isfinite(log_z):
        raise ModelError(
            f"the covariance of the outputs of step {failed} is singular up to rounding: some of "
            "them are determined by the others or by earlier ones, and have no density; increase "
            "output_noise"
        )
    return log_z, kept


def _noise_roots(work: _Prepared) -> tuple[Array, Array]:
    """Roots of the covariances of output noise, and deviations that are not known."""
    out, unsure = np.zeros(work.r.shape), np.zeros(work.r.shape[:2])
    for k, o in enumerate(work.counts.tolist()):
        if o:
            noise = work.r[k : k + 1, :o, :o]
            out[k, :o, :o], unsure[k, :o] = covariance_roots(noise)[0], unsure_deviations(noise)[0]
    return out, unsure


# ---------------------------------------------------------------------- forecasts and samples


def forecast_states(
    model: StateSpace, mean: Array, covariance: Array, steps: int, inputs: Array | None = None
) -> Forecast:
    """Moments of the `steps` steps after a state of this mean and covariance; inputs are theirs."""
    check_steps(steps, "forecast")
    if model.varying:
        raise ModelError(f"{model.varying[0]} varies in time: the future one is not known")
    if model.radius > 1.0 and steps * math.log(model.radius) > math.log(_GROWTH):
        raise ModelError(
            f"unstable dynamics: with an eigenvalue of modulus {model.radius:.4g} a state grows "
            f"more than {_GROWTH:g} times in {steps} steps; forecast fewer steps"
        )
    n, m = model.n_states, model.n_outputs
    drift, offsets = state_drift(model, inputs, steps), output_means(model, inputs, steps)
    means, covs = np.empty((steps, n)), np.empty((steps, n, n))
    a = model.transition
    for t in range(steps):
        mean = a @ mean + drift[t if len(drift) > 1 else 0]
        covariance = a @ covariance @ a.T + model.state_noise
        means[t], covs[t] = mean, covariance
    c = model.output
    outputs = c @ covs @ c.T + model.output_noise
    return Forecast(means @ c.T + offsets, outputs.reshape(steps, m, m), means, covs)


def sample_states(
    model: StateSpace, steps: int, seed: Seed = None, inputs: Array | None = None
) -> tuple[Array, Array]:
    """States (T, n) and outputs (T, m) drawn from the model.

    >>> walk = StateSpace([[1.0]], [[1.0]], [[1.0]], [[1.0]], initial_covariance=[[1.0]])
    >>> [part.shape for part in sample_states(walk, 3, 0)]
    [(3, 1), (3, 1)]
    """
    check_steps(steps, "sample")
    if model.initial_covariance is None:
        raise ModelError("a flat prior cannot be sampled; give initial_covariance")
    for name in model.varying:
        if len(getattr(model, name)) < steps:
            raise DataError(f"{name} is given for fewer than {steps} steps")
    rng = generator(seed)
    n, m = model.n_states, model.n_outputs
    q, r = (covariance_roots(leading(p, 2)) for p in (model.state_noise, model.output_noise))
    a, c = leading(model.transition, 2), leading(model.output, 2)
    drift = np.broadcast_to(state_drift(model, inputs, steps), (max(steps, 1), n))
    states = np.einsum("tij,tj->ti", np.broadcast_to(q[:steps], (steps, n, n)),
                       rng.normal(size=(steps, n)))  # fmt: skip
    noise = np.einsum("tij,tj->ti", np.broadcast_to(r[:steps], (steps, m, m)),
                      rng.normal(size=(steps, m)))  # fmt: skip
    root0 = covariance_roots(model.initial_covariance[None])[0]
    states[0] = model.initial_mean + root0 @ rng.normal(size=n)
    for t in range(1, steps):
        states[t] += a[t if len(a) > 1 else 0] @ states[t - 1] + drift[t]
    outputs = np.einsum("tij,tj->ti", np.broadcast_to(c[:steps], (steps, m, n)), states)
    return states, outputs + output_means(model, inputs, steps) + noise
