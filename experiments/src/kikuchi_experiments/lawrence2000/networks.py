"""Lawrence's thesis, chapters 5 and 6: Bayesian networks on a sine, sunspots and spectra of meat.

Reference: LAW-E15, LAW-E17, LAW-E18, LAW-E21, LAW-E22, LAW-E23.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.seeds import generator
from kikuchi.plots import style
from kikuchi_experiments.aggregate import (
    Claims,
    above,
    below,
    between,
    holds,
    levels,
    median,
    results_of,
    within,
)
from kikuchi_experiments.data.regression import SplitTable, Sunspots, meat_spectra, sunspots
from kikuchi_experiments.experiment import Case, Experiment, Finished, Result, Row
from kikuchi_experiments.lawrence2000.densities import noisy_sine

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LIKE = 0.05  # how near a published error of another run must be
_DRAWS = 10_000  # of years, for intervals of differences


def fitted(method: str, prior: Any, case: Case, x: Array, y: Array, **more: Any) -> Any:
    """A network by the method of a case."""
    from kikuchi import bayesnn

    options = {"random_state": case["seed"], **more}
    if method == "evidence":
        return bayesnn.LaplaceMLPRegressor(
            case["hidden"], prior=prior, n_init=case["restarts"], **options
        ).fit(x, y)
    if method == "nuts":
        return bayesnn.SampledMLPRegressor(
            case["hidden"], prior=prior, warmup=case["warmup"], samples=case["samples"], **options
        ).fit(x, y)
    return bayesnn.BayesianMLPRegressor(
        case["hidden"], method, prior, n_init=case["restarts"], **options
    ).fit(x, y)


def linear_errors(x: Array, y: Array, new: Array, truth: Array) -> Array:
    """Errors of linear regression on new rows."""
    ones = [np.column_stack([a, np.ones(len(a))]) for a in (x, new)]
    return np.asarray(ones[1] @ np.linalg.lstsq(ones[0], y, rcond=None)[0] - truth)


def judged(net: Any, table: SplitTable) -> Result:
    """Mean squared error, coverage of 95 % intervals, the bound, and what is left of the net."""
    error = float(np.mean((net.predict(table.x_test) - table.y_test) ** 2))
    low, high = net.predict_interval(table.x_test)
    inside = (low <= table.y_test) & (table.y_test <= high)
    return {
        "error": error,
        "coverage": float(inside.mean()),
        "bound": float(net.bound_) if hasattr(net, "bound_") else None,
        "r_hat": float(net.r_hat_) if hasattr(net, "r_hat_") else None,
        "hidden": int(np.sum(net.hidden_kept_)),
        "inputs": np.flatnonzero(net.inputs_kept_).tolist(),
        "relevance": net.relevance_.tolist(),
    }


# ---------------------------------------------------------------------- sunspots


_CHOSEN = " chosen"  # the end of names whose scale and skip connections the bound chooses


def rooted(table: SplitTable) -> SplitTable:
    """Inputs as 2 sqrt(x + 3/8), the scale of counts; targets as they are."""
    return table._replace(x=2 * np.sqrt(table.x + 0.375), x_test=2 * np.sqrt(table.x_test + 0.375))


@lru_cache(maxsize=8)
def structure_bounds(hidden: int, restarts: int, seed: int) -> dict[tuple[bool, bool], float]:
    """Bounds of networks of counts or of their roots (first), without or with skip connections
    (second), diagonal posterior and grouped prior, on the training years.

    The bound is on the density of the counts themselves, so that scales can be compared. It is
    taken under the grouped prior for all others as well: each vague precision costs a bound about 8
    nats, however useful, and under relevance of inputs skip connections have twelve more of them.
    """
    table, case = sunspots().table, {"hidden": hidden, "restarts": restarts, "seed": seed}
    found = {}
    for roots, skip in product((False, True), repeat=2):
        rows, more = _structure(table, roots, skip)
        found[roots, skip] = float(
            fitted("diagonal", "grouped", case, rows.x, rows.y, **more).bound_
        )
    return found


def _structure(table: SplitTable, roots: bool, skip: bool) -> tuple[SplitTable, dict[str, Any]]:
    """Data and options of a scale, with skip connections or without."""
    scale = "root" if roots else "plain"
    return rooted(table) if roots else table, {"scale": scale, "skip": skip}


def _linear_of_roots(table: SplitTable) -> Array:
    """Errors of linear regression of roots on roots, with the mean of a square of a Gaussian."""
    rows = rooted(table)
    y = 2 * np.sqrt(table.y + 0.375)
    left = linear_errors(rows.x, y, rows.x, y).var()
    mean = linear_errors(rows.x, y, rows.x_test, np.zeros(len(table.y_test)))
    return np.asarray((mean**2 + left) / 4 - 0.375 - table.y_test)


def _sunspot_result(case: Case, method: str, prior: str, prune: bool = False) -> Result:
    data = sunspots()
    table = data.table
    if method.startswith("linear"):
        errors = linear_errors(*table[:2], *table[2:])
        errors = _linear_of_roots(table) if "roots" in method else errors
        error = float(np.mean(errors**2))
        return {"error": error, "squares": (errors**2).tolist(), **_units(data, error)}
    more: dict[str, Any] = {}
    choice = None
    if method.endswith(_CHOSEN):
        bounds = structure_bounds(case["hidden"], case["restarts"], case["seed"])
        roots, skip = max(bounds, key=lambda key: bounds[key])
        table, more = _structure(table, roots, skip)
        choice = f"{'roots' if roots else 'counts'} with{'' if skip else 'out'} skip connections"
    net = fitted(method.removesuffix(_CHOSEN), prior, case, table.x, table.y, **more)
    if prune:
        net.prune()
    found = judged(net, table)
    squares = (np.asarray(net.predict(table.x_test)) - table.y_test) ** 2
    units = _units(data, found["error"])
    return {**found, **units, "choice": choice, "squares": squares.tolist()}


def _units(data: Sunspots, error: float) -> dict[str, float]:
    return {
        "whole": error / data.whole_variance,
        "training": error / data.training_variance,
        "test": error / float(data.table.y_test.var()),
    }


def _cover(results: list[Result]) -> str:
    """Share of targets in their intervals, in words; empty where there are none."""
    if "coverage" not in results[0]:
        return ""
    return f"{median(results, 'coverage'):.0%} in 95 % intervals"


def _less(results: list[Result], others: list[Result]) -> Array:
    """How much larger a mean squared error is than another, with the ends of its 95 % interval:
    years are drawn again, the same for both, and of each the mean of its runs is taken.
    """
    gaps = np.mean([r["squares"] for r in results], axis=0) - others[0]["squares"]
    again = generator(0).choice(gaps, size=(_DRAWS, len(gaps))).mean(axis=1)
    return np.append(gaps.mean(), np.quantile(again, [0.025, 0.975]))


def _sunspot_row(claims: Claims, name: str, results: list[Result], known: float | None) -> Row:
    ours, whole, training = (median(results, unit) for unit in ("test", "whole", "training"))
    cover = ", ".join(["", *filter(None, [_cover(results)])])
    judgement = None if known is None else within(ours, known, _LIKE)
    return claims.row(
        "error", round(ours, 3), judgement, name=name, known=known,
        whole=whole, training=training, cover=cover,
    )  # fmt: skip


def _error_bars(
    names: Sequence[str], ours: Sequence[float], known: Sequence[Any], label: str
) -> Figure:
    place = np.arange(len(names))
    with style.styled():
        figure, axes = style.new_figure(8.4, 1.2 + 0.34 * len(names))
        axes[0].barh(place + 0.18, ours, 0.34, color=style.BLUE, label="ours")
        there = [(k, v) for k, v in enumerate(known) if v is not None]
        axes[0].barh(
            [k - 0.18 for k, _ in there], [v for _, v in there], 0.34, color=style.AMBER,
            label="published",
        )  # fmt: skip
        axes[0].set_yticks(place, names)
        axes[0].invert_yaxis()
        axes[0].set(xlabel=label)
        axes[0].grid(visible=False, axis="y")
        axes[0].legend()
    return figure


class SunspotMethods(Experiment):
    """Yearly sunspots by networks with different posteriors (LAW-E17)."""

    id: ClassVar[str] = "LAW-E17"
    case_axes: ClassVar = {"method": "methods"}

    def run_case(self, case: Case) -> Result:
        """Errors in three units."""
        return _sunspot_result(case, case["method"], "grouped")

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """One row per method, and those of the scale that the bound chooses beside linear ones."""
        names = levels(finished, "method")
        by_name = {name: results_of(finished, method=name) for name in names}
        rows = [_SPOTS.row_of(name, results) for name, results in by_name.items()]
        for name in names:
            if name.endswith(_CHOSEN) and "linear" in names:
                rows += _SPOTS.better(name, by_name)
                cover = median(by_name[name], "coverage")
                inside = between(cover, 0.90, 0.99)
                rows.append(_SPOTS.claims.row("cover", round(cover, 3), inside, name=name))
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Errors beside the published ones."""
        names = levels(finished, "method")
        ours = [median(results_of(finished, method=n), "test") for n in names]
        known = [_SPOTS_KNOWN.get(n) for n in names]
        return _error_bars(names, ours, known, "NMSE, in units of the variance of the test years")


class _SunspotTable:
    """Rows of a table of sunspots."""

    def __init__(self, identifier: str, known: dict[str, float]) -> None:
        self.claims, self.known = Claims.of(__name__, identifier), known

    @property
    def unit(self) -> float:
        """The variance of the whole series."""
        return sunspots().whole_variance

    def row_of(self, name: str, results: list[Result]) -> Row:
        """The row of one method or prior."""
        return _sunspot_row(self.claims, name, results, self.known.get(name))

    def better(self, name: str, by_name: dict[str, list[Result]]) -> list[Row]:
        """Rows of a method with the scale that the bound chooses beside linear regressions."""
        ours, line = (median(by_name[n], "whole") for n in (name, "linear"))
        choice = " or ".join(sorted({r["choice"] for r in by_name[name]}))
        told = {"name": name, "linear": round(line, 3), "choice": choice}
        rows = [self.claims.row("better", round(ours, 3), below(ours, line), **told)]
        if "linear of roots" in by_name:
            gap, low, high = _less(by_name[name], by_name["linear of roots"]) / self.unit
            same = holds(low <= 0, "0 or less is in the interval")
            told = {"name": name, "low": f"{low:.3f}", "high": f"{high:.3f}"}
            rows.append(self.claims.row("same", round(float(gap), 3), same, **told))
        return rows


_SPOTS_KNOWN = {"diagonal": 0.178, "mixture:5": 0.172, "evidence": 0.171, "nuts": 0.131}
_SPOTS = _SunspotTable("LAW-E17", _SPOTS_KNOWN)


class SunspotPriors(Experiment):
    """Sunspots by networks with different priors (LAW-E22)."""

    id: ClassVar[str] = "LAW-E22"
    case_axes: ClassVar = {"prior": "priors"}

    def run_case(self, case: Case) -> Result:
        """Errors in three units, after removal of nodes under node relevance."""
        prior = case["prior"]
        if prior.startswith("linear"):
            return _sunspot_result(case, prior, "")
        name = prior.removesuffix(_CHOSEN)
        method = "diagonal" + prior[len(name) :]
        return _sunspot_result(case, method, name, prune=name == "nrd")

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """One row per prior, the structure, and those of the scale that the bound chooses."""
        names = levels(finished, "prior")
        by_name = {name: results_of(finished, prior=name) for name in names}
        rows = [_PRIORS.row_of(name, results) for name, results in by_name.items()]
        rows += _structure_rows(_PRIORS.claims, results_of(finished, prior="nrd"))
        if "linear" in names:
            chosen = [n for n in names if n.endswith(_CHOSEN)]
            rows += [row for n in chosen for row in _PRIORS.better(n, by_name)]
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Errors beside the published ones."""
        names = levels(finished, "prior")
        ours = [median(results_of(finished, prior=n), "test") for n in names]
        known = [_PRIORS.known.get(n) for n in names]
        return _error_bars(names, ours, known, "NMSE, in units of the variance of the test years")


_PRIORS = _SunspotTable("LAW-E22", {"single": 0.190, "grouped": 0.194, "ard": 0.153, "nrd": 0.163})


def _structure_rows(claims: Claims, results: list[Result]) -> list[Row]:
    """Hidden units and inputs that removal left, of the run with the best bound."""
    if not results:
        return []
    best = max(results, key=lambda r: r["bound"])
    inputs = ", ".join(str(k + 1) for k in best["inputs"])
    return [
        claims.row("hidden", best["hidden"], between(best["hidden"], 2, 4)),
        claims.row("inputs", len(best["inputs"]), which=inputs),
    ]


# ---------------------------------------------------------------------- spectra of meat


class MeatMethods(Experiment):
    """Fat of meat by networks with different posteriors (LAW-E18)."""

    id: ClassVar[str] = "LAW-E18"
    case_axes: ClassVar = {"method": "methods"}

    def run_case(self, case: Case) -> Result:
        """Root mean square errors."""
        table, method = meat_spectra(), case["method"]
        if method in ("linear", "quadratic"):
            x, new = table.x, table.x_test
            if method == "quadratic":
                i, j = np.triu_indices(x.shape[1])
                x, new = (np.column_stack([a, a[:, i] * a[:, j]]) for a in (x, new))
            errors = linear_errors(x, table.y, new, table.y_test)
            return {"rmse": float(np.sqrt(np.mean(errors**2)))}
        found = judged(fitted(method, "grouped", case, table.x, table.y), table)
        return {**found, "rmse": float(np.sqrt(found["error"]))}

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """One row per method."""
        names = levels(finished, "method")
        return [_meat_row(_MEAT, n, results_of(finished, method=n), _MEAT_KNOWN) for n in names]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Errors of networks beside the published ones."""
        names = [n for n in levels(finished, "method") if n != "linear"]
        ours = [median(results_of(finished, method=n), "rmse") for n in names]
        return _error_bars(names, ours, [_MEAT_KNOWN.get(n) for n in names], "RMSE, % of fat")


_MEAT_NOTES = {
    "quadratic": "all squares and products; which terms the source took is not known",
    "evidence": "the published error is that of 3 hidden units with skip connections",
}
_MEAT = Claims.of(__name__, "LAW-E18")
_MEAT_KNOWN = {
    "linear": 2.78, "quadratic": 0.80, "evidence": 0.55, "diagonal": 0.526, "mixture:5": 0.519,
    "nuts": 0.481,
}  # fmt: skip


def _meat_row(claims: Claims, name: str, results: list[Result], known: dict[str, float]) -> Row:
    ours, theirs = median(results, "rmse"), known.get(name)
    judgement = None
    if name in ("linear", "quadratic"):
        judgement = within(ours, known[name], 0.005 if name == "linear" else 0.1)
    elif theirs is not None:
        judgement = below(ours, theirs + _LIKE)
    note = "; ".join(filter(None, [_cover(results), _MEAT_NOTES.get(name)]))
    return claims.row("error", round(ours, 3), judgement, name=name, known=theirs, cover=note)


class MeatPriors(Experiment):
    """Fat of meat by networks with different priors (LAW-E23)."""

    id: ClassVar[str] = "LAW-E23"
    case_axes: ClassVar = {"prior": "priors"}

    def run_case(self, case: Case) -> Result:
        """Root mean square errors, after removal of nodes under node relevance."""
        table = meat_spectra()
        net = fitted("diagonal", case["prior"], case, table.x, table.y)
        if case["prior"] == "nrd":
            net.prune()
        found = judged(net, table)
        return {**found, "rmse": float(np.sqrt(found["error"]))}

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """One row per prior, and the structure."""
        names = levels(finished, "prior")
        known = _MEAT_PRIORS_KNOWN
        rows = [_meat_row(_MEAT_PRIORS, n, results_of(finished, prior=n), known) for n in names]
        return rows + _structure_rows(_MEAT_PRIORS, results_of(finished, prior="nrd"))

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Errors beside the published ones."""
        names = levels(finished, "prior")
        ours = [median(results_of(finished, prior=n), "rmse") for n in names]
        return _error_bars(
            names, ours, [_MEAT_PRIORS_KNOWN.get(n) for n in names], "RMSE, % of fat"
        )


_MEAT_PRIORS = Claims.of(__name__, "LAW-E23")
_MEAT_PRIORS_KNOWN = {"single": 0.549, "grouped": 0.540, "ard": 0.539, "nrd": 0.532}


# ---------------------------------------------------------------------- sines


class SinePosteriors(Experiment):
    """Four posteriors of a network on thirty points of a noisy sine (LAW-E15)."""

    id: ClassVar[str] = "LAW-E15"

    def run_case(self, case: Case) -> Result:
        """Means and deviations of the function by each, and the information of the mixture."""
        import jax
        import jax.numpy as jnp

        from kikuchi.bayesnn.posteriors import Weights, information_bound

        rng = generator(case["seed"])
        centres = np.repeat([0.125, 0.625], case["count"] // 2)
        x = (centres + 0.25 * rng.standard_normal(len(centres)))[:, None]
        y = noisy_sine(x[:, 0], rng, case["noise"])
        grid = np.linspace(x.min() - 0.3, x.max() + 0.3, 80)[:, None]
        curves: dict[str, Any] = {}
        information = 0.0
        for method in ("evidence", "diagonal", "mixture:5", "nuts"):
            net = fitted(method, "grouped", case, x, y)
            draws = net.sample_y(grid, 400, noise=False, random_state=0)
            mean = np.asarray(net.predict(grid))
            curves[method] = {
                "mean": mean.tolist(),
                "sd": draws.std(axis=1).tolist(),
                "average": draws.mean(axis=1).tolist(),
            }
            if method == "mixture:5":
                with jax.enable_x64(True):
                    weights = Weights(*map(jnp.asarray, net._weights))
                    q = net._family().read(jnp.asarray(net._flat[: net._family().size]), weights)
                    information = float(information_bound(q, weights.kept))
        return {
            "x": x[:, 0].tolist(), "y": y.tolist(), "grid": grid[:, 0].tolist(),
            "curves": curves, "information": information,
        }  # fmt: skip

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """What the thesis says of the four."""
        far, near, spreads, wider = [], [], [], []
        for one in finished:
            found = one.result
            grid = np.array(found["grid"])
            inside = (grid > np.min(found["x"])) & (grid < np.max(found["x"]))
            truth = 0.5 + 0.4 * np.sin(2 * np.pi * grid)
            laplace = found["curves"]["evidence"]
            far.append(float(np.sqrt(np.mean((np.array(laplace["average"]) - truth)[inside] ** 2))))
            near.append(float(np.sqrt(np.mean((np.array(laplace["mean"]) - truth)[inside] ** 2))))
            sds = {k: np.array(v["sd"])[~inside].mean() for k, v in found["curves"].items()}
            spreads.append(float(sds["diagonal"] / sds["nuts"]))
            wider.append(float(sds["mixture:5"] / sds["diagonal"]))
        information = median([one.result for one in finished], "information")
        ratio = float(np.median(np.array(far) / np.array(near)))
        narrow, wide = float(np.median(spreads)), float(np.median(wider))
        return [
            _NOISY.row("laplace", round(ratio, 1), above(ratio, 2)),
            _NOISY.row("narrow", round(narrow, 2), below(narrow, 1)),
            _NOISY.row("wider", round(wide, 2), above(wide, 1)),
            _NOISY.row("information", round(information, 3), within(information, 1.5229, 0.25)),
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """The function by each posterior, first data set."""
        found = finished[0].result
        grid = np.array(found["grid"])
        with style.styled():
            figure, axes = style.new_figure(9.6, 5.4, 2, 2)
            for panel, (name, curve) in zip(axes, found["curves"].items(), strict=True):
                mean, sd = np.array(curve["mean"]), np.array(curve["sd"])
                panel.fill_between(grid, mean - 2 * sd, mean + 2 * sd, color="#b8d4e6", lw=0)
                panel.plot(grid, mean, color=style.BLUE)
                panel.plot(grid, 0.5 + 0.4 * np.sin(2 * np.pi * grid), color=style.SOFT, lw=1)
                panel.scatter(found["x"], found["y"], s=9, color=style.VERMILLION)
                panel.set(title=name, ylim=(-0.8, 1.8))
        return figure


_NOISY = Claims.of(__name__, "LAW-E15")


class RelevantUnits(Experiment):
    """How many hidden units node relevance keeps, by the number of data (LAW-E21)."""

    id: ClassVar[str] = "LAW-E21"
    case_axes: ClassVar = {"count": "counts"}

    def run_case(self, case: Case) -> Result:
        """Hidden units left after removal."""
        rng = generator(1000 * case["seed"] + case["count"])
        x = rng.random((case["count"], 1))
        y = 0.4 * np.sin(2 * np.pi * x[:, 0]) + np.sqrt(0.0025) * rng.standard_normal(len(x))
        net = fitted("diagonal", "nrd", case, x, y).prune()
        return {"hidden": int(net.hidden_kept_.sum()), "bound": float(net.bound_)}

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Mean number for each size, and whether it grows."""
        means = {}
        rows = []
        for count in levels(finished, "count"):
            kept = [r["hidden"] for r in results_of(finished, count=count)]
            means[count] = float(np.mean(kept))
            told = f"{np.mean(kept):.1f} ± {np.std(kept):.1f}"
            rows.append(_RELEVANT.row("kept", told, count=count, sets=len(kept)))
        sizes = list(means.values())
        grows = holds(sizes[-1] > sizes[0], "more with the most data than with the fewest")
        rows.append(_RELEVANT.row("grows", "yes" if sizes[-1] > sizes[0] else "no", grows))
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Mean and standard deviation against the number of data."""
        counts = levels(finished, "count")
        kept = [[r["hidden"] for r in results_of(finished, count=c)] for c in counts]
        with style.styled():
            figure, axes = style.new_figure(5.4, 3.2)
            means, sds = [np.mean(k) for k in kept], [np.std(k) for k in kept]
            axes[0].errorbar(counts, means, sds, fmt="o-", color=style.BLUE, capsize=3)
            axes[0].set(xscale="log", xlabel="data", ylabel="hidden units kept", ylim=(0, None))
        return figure


_RELEVANT = Claims.of(__name__, "LAW-E21")
