"""Bayesian networks: cost of a gradient, fits of spectra and sunspots, bounds against the evidence.

    python benchmarks/bayesnn.py gradient    one gradient of the bound beside its own parts
    python benchmarks/bayesnn.py meat        errors and CPU seconds of fits of spectra of meat
    python benchmarks/bayesnn.py sunspots    errors beside linear regression and peers, three units
    python benchmarks/bayesnn.py coverage    95 % intervals on held-out rows of seven tables
    python benchmarks/bayesnn.py evidence    bounds of 50 random networks beside their evidence

CPU seconds are those of this process (`time.process_time`).
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kikuchi.bayesnn import BayesianMLPRegressor, Network, log_evidence
from kikuchi.bayesnn.bound import GammaDensity, Hyper, RegressionData, descent
from kikuchi.bayesnn.moments import quadratic_forms, unit_moments
from kikuchi.bayesnn.posteriors import Weights, weight_posterior
from kikuchi.data.regression import SplitTable, meat_spectra, sunspots


def seconds(work: Callable[[], Any], repeats: int = 15) -> float:
    """The least CPU time of one call, after one to compile."""
    ready: Any = jax.block_until_ready
    ready(work())
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        ready(work())
        taken.append(time.process_time() - start)
    return min(taken)


def gradient(rows: int = 2000, inputs: int = 20, hidden: int = 20) -> None:
    """One gradient of the layered bound, and x' S_h x of all rows and units with moments of units,
    forwards and backwards, alone.
    """
    rng = np.random.default_rng(0)
    network = Network(inputs, hidden)
    family = weight_posterior("layered", network)
    with jax.enable_x64(True):
        x = jnp.asarray(np.column_stack([rng.normal(size=(rows, inputs)), np.ones(rows)]))
        data = RegressionData(x, jnp.asarray(rng.normal(size=rows)))
        flat = jnp.asarray(0.1 * rng.normal(size=family.size))
        ones = jnp.ones(network.n_weights)
        hyper = Hyper(GammaDensity(3e-4, 1e-3), GammaDensity(0.02, 1e-4))
        factors = jnp.asarray(np.tril(rng.normal(size=(hidden, inputs + 1, inputs + 1))))
        means = jnp.asarray(rng.normal(size=(hidden, inputs + 1)))

        @jax.jit
        def parts(factors: Any, means: Any, x: Any) -> Any:
            def total(factors: Any, means: Any) -> Any:
                found = unit_moments(x @ means.T, quadratic_forms(factors, x))
                return sum(jnp.sum(part) for part in found)

            return jax.value_and_grad(total, (0, 1))(factors, means)

        whole = seconds(lambda: descent(family, "grouped", flat, Weights(ones, ones), data, hyper))
        alone = seconds(lambda: parts(factors, means, x))
    print(f"gradient {1e3 * whole:.1f} ms, its forms and functions {1e3 * alone:.1f} ms: "
          f"{whole / alone:.2f} x")  # fmt: skip


def _report(name: str, net: Any, table: SplitTable, cpu: float) -> None:
    error = np.mean((net.predict(table.x_test) - table.y_test) ** 2)
    low, high = net.predict_interval(table.x_test)
    inside = np.mean((low <= table.y_test) & (table.y_test <= high))
    print(f"{name:24} RMSE {np.sqrt(error):.3f}, {inside:.0%} inside, bound {net.bound_:.1f}, "
          f"{cpu:.1f} CPU s, {net.hidden_kept_.sum()} units")  # fmt: skip


def meat() -> None:
    """Spectra of meat: posteriors and priors; the first fit with its compilation."""
    table = meat_spectra()
    wanted = [("diagonal", "grouped")] * 2 + [
        ("layered", "grouped"), ("mixture:5", "grouped"), ("diagonal", "ard"), ("layered", "ard"),
        ("diagonal", "nrd"),
    ]  # fmt: skip
    for posterior, prior in wanted:
        for seed in (0,):
            start = time.process_time()
            net = BayesianMLPRegressor(8, posterior, prior, random_state=seed)
            net.fit(table.x, table.y)
            cpu = time.process_time() - start
            if prior == "nrd":
                net.prune()
            _report(f"{posterior} {prior}", net, table, cpu)


def _root(values: Any) -> Any:
    return 2 * np.sqrt(values + 0.375)


def spots() -> None:
    """Yearly sunspots: as they are and as roots, with peers of scikit-learn on the same inputs."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.linear_model import LinearRegression
    from sklearn.neural_network import MLPRegressor

    data = sunspots()
    table = data.table

    def told(name: str, mean: Any, more: str = "") -> None:
        error = np.mean((mean - table.y_test) ** 2)
        units = (data.whole_variance, data.training_variance, table.y_test.var())
        print(f"{name:34} NMSE {' '.join(f'{error / u:.3f}' for u in units)} {more}")

    print("units: variance of the whole series, of the training years, of the test years")
    for roots in (False, True):
        x, new = (_root(a) if roots else a for a in (table.x, table.x_test))
        y = _root(table.y) if roots else table.y
        centre, spread, shift, unit = x.mean(axis=0), x.std(axis=0), y.mean(), y.std()
        white, white_new = (x - centre) / spread, (new - centre) / spread
        label = "roots" if roots else "counts"

        def back(mean: Any, sd: Any, roots: bool = roots) -> Any:
            return (mean**2 + sd**2) / 4 - 0.375 if roots else mean

        line = LinearRegression().fit(x, y)
        left = (line.predict(x) - y).std()
        told(f"linear, {label}", back(line.predict(new), left))
        kernel = ConstantKernel() * RBF(3 * np.ones(x.shape[1]), (0.1, 1e4)) + WhiteKernel()
        process = GaussianProcessRegressor(kernel, random_state=0).fit(white, (y - shift) / unit)
        mean, sd = process.predict(white_new, return_std=True)
        told(f"Gaussian process, {label}", back(shift + unit * mean, unit * sd))
        each = [
            MLPRegressor(hidden_layer_sizes=(8,), activation="tanh", alpha=0.1, solver="lbfgs",
                         max_iter=2000, random_state=seed)
            .fit(white, (y - shift) / unit).predict(white_new)
            for seed in range(10)
        ]  # fmt: skip
        told(f"ensemble of networks, {label}", back(shift + unit * np.mean(each, axis=0), left))
        for skip in (False, True):
            for prior in ("grouped", "ard"):
                for posterior in ("diagonal", "layered"):
                    scale: Any = "root" if roots else "plain"
                    net = BayesianMLPRegressor(
                        8, posterior, prior, skip=skip, scale=scale, random_state=0
                    ).fit(x, table.y)
                    low, high = net.predict_interval(new)
                    inside = np.mean((low <= table.y_test) & (table.y_test <= high))
                    words = f"bound {net.bound_:.1f}, {inside:.0%} inside"
                    name = f"{posterior} {prior}{' skip' if skip else ''}, {label}"
                    told(name, net.predict(new), words)


def coverage() -> None:
    """Shares of held-out targets within 95 % intervals: a fifth of the rows of each table."""
    from sklearn import datasets

    iris, wine = datasets.load_iris().data, datasets.load_wine().data
    cells = datasets.load_breast_cancer().data[:, :10]
    tables: dict[str, tuple[Any, Any]] = {
        "diabetes": datasets.load_diabetes(return_X_y=True),
        "iris: petal width": (iris[:, :3], iris[:, 3]),
        "wine: alcohol": (wine[:, 1:], wine[:, 0]),
        "cells: smoothness": (np.delete(cells, 4, axis=1), cells[:, 4]),
        "friedman1": datasets.make_friedman1(300, noise=1.0, random_state=0),
    }
    for name, (x, y) in tables.items():
        inside, errors = [], []
        for seed in range(3):
            order = np.random.default_rng(seed).permutation(len(y))
            test, rest = order[: len(y) // 5], order[len(y) // 5 :]
            net = BayesianMLPRegressor(4, "layered", "grouped", restarts=3, random_state=seed)
            net.fit(x[rest], y[rest])
            low, high = net.predict_interval(x[test])
            inside.append(np.mean((low <= y[test]) & (y[test] <= high)))
            errors.append(np.mean((net.predict(x[test]) - y[test]) ** 2) / y[test].var())
        print(f"{name:20} {np.mean(inside):.1%} inside, NMSE {np.mean(errors):.3f}, "
              f"three splits")  # fmt: skip


def bounds(count: int = 50) -> None:
    """Bounds of random 1-3-1 networks beside their evidence by sequential Monte Carlo."""
    priors = {"weight_shape": 2.0, "weight_rate": 2.0, "noise_shape": 2.0, "noise_rate": 0.2}
    below, gains, gaps = 0, [], []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        network = Network(1, 3)
        x = rng.normal(size=(15, 1))
        rows = np.column_stack([x, np.ones(15)])
        with jax.enable_x64(True):
            y = np.asarray(network.output(rng.normal(size=10), jnp.asarray(rows)))
        y = y + 0.3 * rng.normal(size=15)
        nets = [
            BayesianMLPRegressor(3, posterior, "grouped", restarts=2, tol=1e-3, random_state=seed,
                                 **priors).fit(x, y)  # type: ignore[arg-type]
            for posterior in ("diagonal", "mixture:5")
        ]  # fmt: skip
        found = log_evidence(nets[0], "smc", draws=500, random_state=seed)
        margin = found.log_evidence + 3 * found.error
        below += all(net.bound_ < margin for net in nets)
        gains.append(nets[1].bound_ - nets[0].bound_)
        gaps.append(found.log_evidence - nets[0].bound_)
    print(f"{below} of {count} below the evidence; mixture above diagonal by {np.mean(gains):.2f} "
          f"nats ({min(gains):.2f} to {max(gains):.2f}); evidence above the diagonal bound by "
          f"{np.mean(gaps):.2f}, at least {min(gaps):.2f}")  # fmt: skip


PARTS: dict[str, Callable[[], None]] = {
    "gradient": gradient, "meat": meat, "sunspots": spots, "coverage": coverage, "evidence": bounds,
}  # fmt: skip

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
