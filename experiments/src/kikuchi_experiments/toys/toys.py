"""Toys that teach: the two directions of KL, and evidence that is explained away.

The double well (HOJ-M15, I12, E0) and the narrow Gaussian (LAW-E2) are fitted by simpler densities
in both directions of the Kullback-Leibler divergence: KL(q||p) settles in one mode and is too
narrow, KL(p||q) covers all modes. The juror network (LAW-M2, E1) shows how a second cause takes
the blame from the first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import KikuchiError
from kikuchi.core.seeds import generator
from kikuchi.data.examples import example
from kikuchi.graphs.directed import bayesian_network
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.registry import infer
from kikuchi_experiments.experiment import Case, CaseAxes, Experiment, Finished, Result, Row
from kikuchi_experiments.toys import figures, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LogDensity = Callable[[Array], Array]

_NODES = 60  # of Gauss-Hermite quadrature: exact for polynomials up to order 119
_MOST_STEPS = 5_000
_LEAST_STEP = 0.02
_FLATTEST = 1e-9  # of the first precision: the fit is running away


class NormalDensity(NamedTuple):
    """A density by its mean and precision."""

    mean: float
    precision: float

    def log_density(self, x: Array) -> Array:
        """log of the normalised density."""
        gap = x - self.mean
        return np.asarray(
            0.5 * np.log(self.precision / (2 * np.pi)) - 0.5 * self.precision * gap**2
        )


# ---------------------------------------------------------------------- projections (HOJ-I12)


def project_exclusive(
    log_p: LogDensity, start: NormalDensity, *, tol: float = 1e-11
) -> NormalDensity:
    r"""The Gaussian q of locally least KL(q||p): log p is regressed on (x, x²) under q (HOJ-I12).

    With q ∝ exp(-theta'f): theta <- -Cov_q(f)^(-1) Cov_q(f, log p), by a step that shrinks
    whenever it overshoots. Which minimum is found depends on the start.

    >>> fit = project_exclusive(lambda x: -2.0 * (x - 1.0) ** 2, NormalDensity(0.0, 1.0))
    >>> round(fit.mean, 9), round(fit.precision, 9)
    (1.0, 4.0)
    """
    theta = np.array([-start.mean * start.precision, 0.5 * start.precision])
    step, before = 0.5, np.zeros(2)
    for _ in range(_MOST_STEPS):
        points, weights = _quadrature(NormalDensity(-theta[0] / (2 * theta[1]), 2 * theta[1]))
        features = np.stack([points, points**2])
        centred = features - (features @ weights)[:, None]
        moments = (centred * weights) @ centred.T
        target = -np.linalg.solve(moments, (centred * weights) @ log_p(points))
        if theta[1] < _FLATTEST * start.precision:
            break
        if target[1] <= 0.0:
            target = np.array([theta[0], 0.5 * theta[1]])  # no density: widen instead
        change = target - theta
        if np.abs(change).max() <= tol * np.abs(theta).max():
            return NormalDensity(float(-theta[0] / (2 * theta[1])), float(2 * theta[1]))
        turned = change @ before < -0.25 * (before @ before)
        step = max(0.7 * step, _LEAST_STEP) if turned else step
        before = change
        theta = theta + step * change
    raise KikuchiError("the projection did not settle; start elsewhere")


def project_inclusive(
    log_p: LogDensity, low: float, high: float, points: int = 20_001
) -> NormalDensity:
    """The Gaussian q of least KL(p||q): mean and variance of p, by quadrature on [low, high].

    >>> fit = project_inclusive(lambda x: -2.0 * (x - 1.0) ** 2, -9.0, 11.0)
    >>> round(fit.mean, 9), round(fit.precision, 9)
    (1.0, 4.0)
    """
    x = np.linspace(low, high, points)
    logs = log_p(x)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = float(weights @ x)
    return NormalDensity(mean, float(1.0 / (weights @ (x - mean) ** 2)))


def importance_variance(variance_p: float, variance_q: float) -> float:
    """Var_q(p / q) of two centred Gaussians: how bad q is for importance sampling (HOJ-I12).

    Infinite when q has at most half the variance of p.

    >>> importance_variance(1.0, 1.0), importance_variance(1.0, 0.5)
    (0.0, inf)
    """
    if 2 * variance_q <= variance_p:
        return float("inf")
    return float(variance_q / np.sqrt(variance_p * (2 * variance_q - variance_p)) - 1.0)


@functools.cache
def _nodes() -> tuple[Array, Array]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    return nodes, weights / weights.sum()


def _quadrature(q: NormalDensity) -> tuple[Array, Array]:
    nodes, weights = _nodes()
    return q.mean + nodes / np.sqrt(q.precision), weights


# ---------------------------------------------------------------------- the double well


class DoubleWell(NamedTuple):
    """p(x) ∝ exp(-kappa (x² - alpha²)² / 2): minima at ±alpha (HOJ-M15)."""

    kappa: float
    alpha: float

    def log_weight(self, x: Array) -> Array:
        """log of the density without its normaliser."""
        return np.asarray(-0.5 * self.kappa * (x**2 - self.alpha**2) ** 2)

    @property
    def reach(self) -> float:
        """Beyond this the density is below exp(-60) of its top."""
        return float(np.sqrt(self.alpha**2 + np.sqrt(120.0 / self.kappa)))

    def log_normaliser(self) -> float:
        """log of the integral of the weight."""
        x = np.linspace(-self.reach, self.reach, 20_001)
        return float(np.log(np.exp(self.log_weight(x)).sum() * (x[1] - x[0])))

    def symmetric_fit(self) -> NormalDensity:
        """The stationary point of KL(q||p) in the middle, a local minimum for every alpha."""
        k, a = self.kappa, self.alpha
        return NormalDensity(0.0, float(-k * a**2 + np.sqrt(k * (k * a**4 + 6.0))))

    def broken_fit(self) -> NormalDensity | None:
        """The minimum of KL(q||p) in one well; None below alpha = (3 / kappa)^(1/4)."""
        k, a = self.kappa, self.alpha
        inside = k * a**4 - 3.0
        if inside < -1e-12:
            return None
        precision = 2.0 * (k * a**2 + np.sqrt(k * max(inside, 0.0)))
        return NormalDensity(float(np.sqrt(a**2 - 3.0 / precision)), float(precision))

    def divergence_from(self, q: NormalDensity) -> float:
        """KL(q||p), exactly: the energy is a polynomial."""
        points, weights = _quadrature(q)
        entropy = 0.5 * (1.0 + np.log(2 * np.pi / q.precision))
        return float(-weights @ self.log_weight(points) - entropy + self.log_normaliser())

    def covering_fit(self) -> NormalDensity:
        """The minimum of KL(p||q): mean 0 and the variance of p."""
        return project_inclusive(self.log_weight, -self.reach, self.reach)


def hybrid_monte_carlo(
    well: DoubleWell,
    *,
    chains: int,
    samples: int,
    discard: int,
    seed: int,
    steps: int = 10,
    step_size: float = 0.1,
) -> tuple[Array, Array, float]:
    """Mean and precision that each chain estimates, and the share of accepted moves (HOJ-E0).

    Leapfrog moves with momenta of unit variance from a standard normal start, all chains at once.

    >>> mean, precision, accepted = hybrid_monte_carlo(
    ...     DoubleWell(3.0, 0.5), chains=20, samples=600, discard=100, seed=0
    ... )
    >>> bool(abs(mean.mean()) < 0.1), accepted > 0.9
    (True, True)
    """
    from kikuchi_experiments.toys.kernels.double_well import hybrid_chains

    rng = generator(seed)
    x = rng.standard_normal(chains)
    momenta = rng.standard_normal((samples, chains))
    log_uniforms = np.log1p(-rng.random((samples, chains)))
    total, squares = np.zeros(chains), np.zeros(chains)
    moves = hybrid_chains(
        well.kappa, well.alpha, momenta, log_uniforms, x, steps, step_size, discard, total, squares
    )
    mean = total / (samples - discard)
    precision = 1.0 / (squares / (samples - discard) - mean**2)
    return mean, precision, int(moves) / (samples * chains)


class SymmetryBreaking(Experiment):
    """Both projections of the double well, and hybrid Monte Carlo (HOJ-E0, M15, I12)."""

    id: ClassVar[str] = "HOJ-E0"
    case_axes: ClassVar[CaseAxes] = {"alpha": "alphas"}

    def run_case(self, case: Case) -> Result:
        """Closed forms, the same by iteration, moment matching, and the sampler."""
        well = DoubleWell(case["kappa"], case["alpha"])
        symmetric, broken = well.symmetric_fit(), well.broken_fit()
        apart = broken is not None and broken.mean > 0.75 * well.alpha  # clear of the bifurcation
        error = _projection_error(well, symmetric)
        if broken is not None and apart:
            error = max(error, _projection_error(well, broken))
        mean, precision, accepted = hybrid_monte_carlo(
            well,
            chains=case["chains"],
            samples=case["samples"],
            discard=case["samples"] // 10,
            seed=case["seed"],
        )
        return {
            "symmetric": [*symmetric, well.divergence_from(symmetric)],
            "broken": None if broken is None else [*broken, well.divergence_from(broken)],
            "covering": list(well.covering_fit()),
            "iteration_error": error,
            "sampled": [float(np.abs(mean).mean()), float(precision.mean()), accepted],
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """The place of the transition, the closed forms, and the sampler."""
        return tables.double_well_rows({one.case["alpha"]: one.result for one in finished})

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Branches above, densities below."""
        results = {one.case["alpha"]: one.result for one in finished}
        kappa = finished[0].case["kappa"]
        shown = [a for a in (0.99, 1.01, 2.0) if a in results]
        return figures.double_well_panels(
            results, {a: _densities(DoubleWell(kappa, a)) for a in shown}, kappa
        )


def _projection_error(well: DoubleWell, exact: NormalDensity) -> float:
    """How far the iteration of HOJ-I12 ends from a closed form, begun a little beside it."""
    start = NormalDensity(exact.mean * 1.02, exact.precision * 1.1)
    fit = project_exclusive(well.log_weight, start)
    return max(abs(fit.mean - exact.mean), abs(fit.precision / exact.precision - 1.0))


def _densities(well: DoubleWell) -> dict[str, Any]:
    x = np.linspace(-well.reach, well.reach, 401)
    curves = {"p": np.exp(well.log_weight(x) - well.log_normaliser())}
    fits = {"symmetric": well.symmetric_fit(), "broken": well.broken_fit()}
    for name, fit in {**fits, "covering": well.covering_fit()}.items():
        if fit is not None:
            curves[name] = np.exp(fit.log_density(x))
    return {"x": x, **curves}


# ---------------------------------------------------------------------- the narrow Gaussian


def gaussian_divergence(one: Array, other: Array) -> float:
    """KL between centred Gaussians with these covariances.

    >>> gaussian_divergence(np.eye(2), np.eye(2))
    0.0
    """
    ratio = np.linalg.solve(other, one)
    return float(0.5 * (np.trace(ratio) - len(one) - np.linalg.slogdet(ratio)[1]))


class GaussianAsymmetry(Experiment):
    """A round Gaussian fitted to a narrow one in both directions (LAW-E2)."""

    id: ClassVar[str] = "LAW-E2"

    def run_case(self, case: Case) -> Result:
        """Closed forms, and minima found by search over the variance."""
        from scipy.optimize import minimize_scalar

        p = correlated(case["variances"], case["degrees"])
        round_one = np.eye(2)
        covers = minimize_scalar(
            lambda t: gaussian_divergence(p, np.exp(t) * round_one), bounds=(-9, 3)
        )
        inside = minimize_scalar(
            lambda t: gaussian_divergence(np.exp(t) * round_one, p), bounds=(-9, 3)
        )
        return {
            "covers": float(np.trace(p) / 2),
            "inside": float(2 / np.trace(np.linalg.inv(p))),
            "covers_found": float(np.exp(covers.x)),
            "inside_found": float(np.exp(inside.x)),
            "covers_kl": float(covers.fun),
            "inside_kl": float(inside.fun),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Variances of the round Gaussian."""
        return tables.gaussian_rows(finished[0].result)

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Contours and divergences."""
        case, result = finished[0].case, finished[0].result
        p = correlated(case["variances"], case["degrees"])
        variances = np.geomspace(0.005, 2.0, 120)
        curves = {
            "KL(p||q)": [gaussian_divergence(p, v * np.eye(2)) for v in variances],
            "KL(q||p)": [gaussian_divergence(v * np.eye(2), p) for v in variances],
        }
        return figures.gaussian_panels(p, result, variances, curves)


def correlated(variances: Sequence[float], degrees: float) -> Array:
    """The covariance with these variances along axes turned by an angle.

    >>> correlated([1.0, 0.01], 45.0).round(3).tolist()
    [[0.505, 0.495], [0.495, 0.505]]
    """
    angle = np.deg2rad(degrees)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.asarray(turn @ np.diag(variances) @ turn.T)


# ---------------------------------------------------------------------- the jurors


class Jurors(Experiment):
    """Fingerprints, guilt and a legitimate visit (LAW-E1, M2)."""

    id: ClassVar[str] = "LAW-E1"
    case_axes: ClassVar[CaseAxes] = {"method": ("jt", "enumerate", "bp")}

    def run_case(self, case: Case) -> Result:
        """The probabilities that the document computes."""
        method = case["method"]
        net = example("juror")
        found = {"fingerprints": "yes"}
        known = {"fingerprints": "yes", "visited": "yes"}
        result: Result = {
            f"alone {chance:g}": _yes(two_nodes(case["prior"], chance), "guilty", found, method)
            for chance in (1e-6, 1e-5)
        }
        for name, evidence in (("prior", {}), ("found", found), ("known", known)):
            for variable in ("guilty", "visited"):
                result[f"{variable} {name}"] = _yes(net, variable, evidence, method)
        return result

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Posterior probabilities beside the published ones."""
        return tables.juror_rows({one.case["method"]: one.result for one in finished})

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Bars for each state of knowledge."""
        return figures.juror_bars(finished[0].result)


def two_nodes(prior: float, chance: float) -> FactorGraph:
    """Guilt and fingerprints only; `chance` is the probability of fingerprints without guilt.

    >>> two_nodes(0.01, 1e-6)
    FactorGraph(directed, 2 variables, 2 factors, 6 table entries)
    """
    found = np.array([chance, 0.05])
    return bayesian_network(
        {name: ["no", "yes"] for name in ("guilty", "fingerprints")},
        {
            "guilty": ([], [1 - prior, prior]),
            "fingerprints": (["guilty"], np.stack([1 - found, found], axis=-1)),
        },
    )


def _yes(net: FactorGraph, variable: str, evidence: Mapping[str, str], method: str) -> float:
    return float(infer(net, method, evidence=evidence)[variable][1])
