"""Lawrence's thesis, chapters 1 and 5: fits of polynomials and of Gaussians (LAW-E3, E4, E16)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.seeds import generator
from kikuchi.plots import style
from kikuchi_experiments.aggregate import Claims, above, holds, within
from kikuchi_experiments.experiment import Case, Experiment, Finished, Result, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GRID = 201


def noisy_sine(x: Array, rng: np.random.Generator, noise: float) -> Array:
    """0.5 + 0.4 sin(2 pi x) with Gaussian noise."""
    return np.asarray(0.5 + 0.4 * np.sin(2 * np.pi * x) + noise * rng.standard_normal(len(x)))


class BiasVariance(Experiment):
    """A straight line and a polynomial of degree 20 on a noisy sine (LAW-E3)."""

    id: ClassVar[str] = "LAW-E3"

    def run_case(self, case: Case) -> Result:
        """Fits of one data set by both polynomials, on a grid."""
        rng = generator(case["seed"])
        x = np.linspace(0, 1, case["count"])
        y = noisy_sine(x, rng, case["noise"])
        grid = np.linspace(0, 1, _GRID)
        fits = {}
        for degree in (1, case["degree"]):
            basis = np.polynomial.chebyshev.chebvander(2 * x - 1, degree)
            weights = np.linalg.lstsq(basis, y, rcond=None)[0]
            fits[str(degree)] = (
                np.polynomial.chebyshev.chebvander(2 * grid - 1, degree) @ weights
            ).tolist()
        return {"fits": fits, "x": x.tolist(), "y": y.tolist()}

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Squared bias and variance of both."""
        truth = 0.5 + 0.4 * np.sin(2 * np.pi * np.linspace(0, 1, _GRID))
        rows = []
        for degree in finished[0].result["fits"]:
            fits = np.array([one.result["fits"][degree] for one in finished])
            bias = float(np.mean((fits.mean(axis=0) - truth) ** 2))
            spread = float(fits.var(axis=0).mean())
            told = f"{bias:.2g} and {spread:.2g}"
            line = degree == "1"
            ok = bias > 10 * spread if line else spread > 10 * bias
            words = "bias² above 10 variances" if line else "variance above 10 bias²"
            known = "bias" if line else "variance"
            rows.append(_SINE.row("fit", told, holds(ok, words), degree=degree, known=known))
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Some fits of each."""
        grid = np.linspace(0, 1, _GRID)
        with style.styled():
            figure, axes = style.new_figure(8.4, 3.2, 2)
            for panel, degree in zip(axes, finished[0].result["fits"], strict=True):
                for one in finished[:10]:
                    panel.plot(grid, one.result["fits"][degree], color=style.BLUE, lw=0.6)
                panel.plot(grid, 0.5 + 0.4 * np.sin(2 * np.pi * grid), color=style.INK)
                first = finished[0].result
                panel.scatter(first["x"], first["y"], s=8, color=style.VERMILLION)
                panel.set(title=f"degree {degree}", ylim=(-0.3, 1.3))
        return figure


_SINE = Claims.of(__name__, "LAW-E3")


# ---------------------------------------------------------------------- quartic densities


def variational_gaussian(energy: Sequence[float], start: float) -> tuple[float, float]:
    """Mean and variance of the Gaussian nearest in KL(q, p) to exp(-polynomial), whose coefficients
    are those of x^0, x^1, ...

    >>> [round(v, 4) for v in variational_gaussian([0, 0, 0.5], 1.0)]
    [0.0, 1.0]
    """
    from scipy.optimize import minimize

    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    weights = weights / weights.sum()

    def divergence(at: Array) -> float:
        x = at[0] + np.exp(at[1]) * nodes
        return float(weights @ np.polynomial.polynomial.polyval(x, energy) - at[1])

    found = minimize(divergence, [start, -0.5], method="Nelder-Mead", options={"xatol": 1e-10,
                     "fatol": 1e-14, "maxiter": 4000})  # fmt: skip
    return float(abs(found.x[0]) if abs(found.x[0]) < 1e-6 else found.x[0]), float(
        np.exp(2 * found.x[1])
    )


class QuarticDensities(Experiment):
    """Laplace's Gaussian and the variational one, of two densities (LAW-E4)."""

    id: ClassVar[str] = "LAW-E4"

    def run_case(self, case: Case) -> Result:
        """True moments by quadrature, the Laplace Gaussian, and the variational one."""
        return {name: self._fit(energy) for name, energy in case["energies"].items()}

    def _fit(self, energy: Sequence[float]) -> Result:
        from scipy.integrate import quad

        value: Callable[[Any], Any] = np.polynomial.Polynomial(energy)
        z, first, second = (
            quad(lambda x, k=k: x**k * np.exp(-value(x)), -8, 8, epsabs=1e-13, limit=400)[0]
            for k in range(3)
        )
        mean = first / z
        polynomial = np.polynomial.Polynomial(energy)
        roots = polynomial.deriv().roots()
        real = roots[np.abs(roots.imag) < 1e-9].real
        mode = float(real[np.argmin(polynomial(real))])
        fits = {
            "laplace": [mode, float(1.0 / polynomial.deriv(2)(mode))],
            "variational": list(variational_gaussian(energy, mean)),
        }
        nodes, weights = np.polynomial.hermite_e.hermegauss(40)
        divergence = {}
        for name, (centre, variance) in fits.items():
            average = weights @ polynomial(centre + np.sqrt(variance) * nodes) / weights.sum()
            size = 0.5 * (np.log(2 * np.pi * variance) + 1.0)
            divergence[name] = float(average + np.log(z) - size)
        return {"true": [mean, second / z - mean**2], **fits, "divergence": divergence}

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Mean and variance of each beside the catalogue's."""
        rows = []
        for name, found in finished[0].result.items():
            for what, known in _QUARTIC_KNOWN[name].items():
                mean, variance = found[what]
                ok = all(
                    abs(a - b) <= 0.5 * 10.0**-4
                    for a, b in zip((mean, variance), known, strict=True)
                )
                told = f"{mean + 0.0:.4f}, {variance:.4f}"
                words = f"{known[0]:.4f}, {known[1]:.4f} to all digits"
                rows.append(
                    _QUARTIC.row(
                        "moments", told, holds(ok, words), name=name, what=what,
                        known=f"{known[0]:g}, {known[1]:g}",
                    )
                )  # fmt: skip
            ours, theirs = (found["divergence"][k] for k in ("variational", "laplace"))
            better, told = holds(ours < theirs, "below"), "yes" if ours < theirs else "no"
            given = {"name": name, "variational": ours, "laplace": theirs}
            rows.append(_QUARTIC.row("nearer", told, better, **given))
        first = finished[0].result["a"]
        ratio = first["laplace"][1] / first["true"][1]
        return [*rows, _QUARTIC.row("wide", round(ratio, 1), above(ratio, 5))]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Densities with both Gaussians."""
        x = np.linspace(-2.5, 3.5, 400)
        with style.styled():
            figure, axes = style.new_figure(8.4, 3.2, 2)
            for panel, (name, found) in zip(axes, finished[0].result.items(), strict=True):
                energy = np.polynomial.Polynomial(finished[0].case["energies"][name])
                p = np.exp(-energy(x))
                panel.plot(x, p / (p.sum() * (x[1] - x[0])), color=style.INK, label="density")
                looks = {"laplace": style.VERMILLION, "variational": style.BLUE}
                for what, colour in looks.items():
                    mean, variance = found[what]
                    q = np.exp(-0.5 * (x - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)
                    panel.plot(x, q, color=colour, label=what)
                panel.set_title(f"({name})")
            axes[0].legend()
        return figure


_QUARTIC = Claims.of(__name__, "LAW-E4")
_QUARTIC_KNOWN: dict[str, dict[str, tuple[float, float]]] = {
    "a": {"true": (0.0, 0.3248), "laplace": (0.0, 5.0), "variational": (0.0, 0.2805)},
    "b": {"true": (1.0399, 0.5727), "laplace": (1.5614, 0.1509), "variational": (1.0828, 0.3274)},
}


# ---------------------------------------------------------------------- mixtures


def mixture_divergence(parameters: Array, count: int, precision: Array, log_size: float) -> float:
    """KL(q, p) of a mixture of `count` diagonal Gaussians from a Gaussian in the plane, by
    quadrature. Parameters: means, logarithms of standard deviations, logits.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
    mass = np.outer(weights, weights).ravel()
    means = parameters[: 2 * count].reshape(count, 2)
    sds = np.exp(parameters[2 * count : 4 * count].reshape(count, 2))
    logits = parameters[4 * count :] - np.logaddexp.reduce(parameters[4 * count :])
    total = 0.0
    for k in range(count):
        x = means[k] + sds[k] * grid
        each = -0.5 * (((x[:, None] - means) / sds) ** 2).sum(-1) - np.log(sds).sum(-1)
        log_q = np.logaddexp.reduce(logits + each, axis=1) - np.log(2 * np.pi)
        log_p = -0.5 * np.einsum("ni,ij,nj->n", x, precision, x) - 0.5 * log_size
        total += np.exp(logits[k]) * float(mass @ (log_q - log_p))
    return total


class DiagonalMixtures(Experiment):
    """One to three diagonal Gaussians for a correlated one (LAW-E16)."""

    id: ClassVar[str] = "LAW-E16"
    case_axes: ClassVar = {"components": "components"}

    def run_case(self, case: Case) -> Result:
        """The best mixture of several starts along the ridge."""
        from scipy.optimize import minimize

        from kikuchi_experiments.toys.toys import correlated

        covariance = correlated(case["variances"], case["degrees"])
        precision = np.linalg.inv(covariance)
        log_size = float(np.linalg.slogdet(2 * np.pi * covariance)[1])
        count, best = case["components"], None
        for apart in case["starts"]:
            line = apart * np.linspace(-1, 1, count)[:, None] if count > 1 else np.zeros((1, 1))
            means = np.repeat(line, 2, axis=1).ravel()
            start = np.concatenate([means, np.full(2 * count, -2.0), np.zeros(count)])
            found = minimize(mixture_divergence, start, (count, precision, log_size), "BFGS",
                             options={"gtol": 1e-7})  # fmt: skip
            if best is None or found.fun < best.fun:
                best = found
        assert best is not None
        logits = best.x[4 * count :]
        return {
            "divergence": float(best.fun),
            "means": best.x[: 2 * count].reshape(count, 2).tolist(),
            "sds": np.exp(best.x[2 * count : 4 * count]).reshape(count, 2).tolist(),
            "shares": (np.exp(logits) / np.exp(logits).sum()).tolist(),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Divergences, places and widths beside the catalogue's."""
        rows = []
        for one in finished:
            count, found = one.case["components"], one.result
            divergence, place, width = _MIXTURE_KNOWN[count]
            far = float(np.abs(np.array(found["means"])).max())
            sd = float(np.mean(found["sds"]))
            digits = 3 if count == 3 else 4
            tolerance = 0.6 * 10.0**-digits
            ours = round(found["divergence"], digits)
            judged = within(found["divergence"], divergence, tolerance)
            rows.append(_MIXTURE.row("divergence", ours, judged, count=count, known=divergence))
            judged = within(far, place, 6e-4)
            rows.append(_MIXTURE.row("place", round(far, 3), judged, count=count, known=place))
            if width is not None:
                judged = within(sd, width, 6e-4)
                rows.append(_MIXTURE.row("width", round(sd, 3), judged, count=count, known=width))
        by_count = {one.case["components"]: one.result["divergence"] for one in finished}
        if {1, 2} <= set(by_count):
            gain = by_count[1] - by_count[2]
            apart = above(gain, 0.0)
            rows.append(_MIXTURE.row("gain", round(gain, 3), apart, limit=np.log(2.0)))
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """The target with the components of each mixture."""
        from matplotlib.patches import Ellipse

        with style.styled():
            figure, axes = style.new_figure(9.6, 3.3, len(finished))
            for panel, one in zip(axes, finished, strict=True):
                long, short = (2 * np.sqrt(v) for v in one.case["variances"])
                panel.add_patch(Ellipse((0, 0), 2 * long, 2 * short, angle=45, color=style.GRID))
                found = one.result
                for mean, sd in zip(found["means"], found["sds"], strict=True):
                    panel.add_patch(
                        Ellipse(mean, 4 * sd[0], 4 * sd[1], fill=False, ec=style.BLUE, lw=1.4)
                    )
                panel.set(title=f"{len(found['means'])} components", xlim=(-2, 2), ylim=(-2, 2))
                panel.set_aspect("equal")
        return figure


_MIXTURE = Claims.of(__name__, "LAW-E16")
_MIXTURE_KNOWN: dict[int, tuple[float, float, float | None]] = {
    1: (1.6194, 0.0, 0.141),
    2: (1.0035, 0.242, 0.137),
    3: (0.687, 0.429, None),
}
