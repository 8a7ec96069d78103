"""Bayesian networks of weights: cost of a gradient, errors and intervals, bounds and the evidence.

python -m benchmarks bayesnn                       all of it
python -m benchmarks.bayesnn sunspots meat         some of gradient, meat, sunspots, coverage
                                                   and evidence
python -m benchmarks.bayesnn evidence FILE         goes on from the networks in the file
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Row, cpu_seconds
from kikuchi_experiments.data.regression import SplitTable, meat_spectra, sunspots

NETWORKS = 50


def rows() -> Iterator[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in PARTS.values():
            yield from part()


# ---------------------------------------------------------------------- cost


def gradient(count: int = 2000, inputs: int = 20, hidden: int = 20) -> Iterator[Row]:
    """One gradient of the layered bound, and x' S_h x of all rows and units with moments of units,
    forwards and backwards, alone.
    """
    import jax
    import jax.numpy as jnp

    from kikuchi.bayesnn.bound import GammaDensity, Hyper, RegressionData, descent
    from kikuchi.bayesnn.moments import quadratic_forms, unit_moments
    from kikuchi.bayesnn.network import Network
    from kikuchi.bayesnn.posteriors import Weights, weight_posterior

    rng = np.random.default_rng(0)
    network = Network(inputs, hidden)
    family = weight_posterior("layered", network)
    with jax.enable_x64(True):
        x = jnp.asarray(np.column_stack([rng.normal(size=(count, inputs)), np.ones(count)]))
        data = RegressionData(x, jnp.asarray(rng.normal(size=count)))
        flat = jnp.asarray(0.1 * rng.normal(size=family.size))
        units = Weights(jnp.ones(network.n_weights), jnp.ones(network.n_weights))
        hyper = Hyper(GammaDensity(3e-4, 1e-3), GammaDensity(0.02, 1e-4))
        factors = jnp.asarray(np.tril(rng.normal(size=(hidden, inputs + 1, inputs + 1))))
        means = jnp.asarray(rng.normal(size=(hidden, inputs + 1)))

        @jax.jit
        def parts(factors: Any, means: Any, x: Any) -> Any:
            def total(factors: Any, means: Any) -> Any:
                found = unit_moments(x @ means.T, quadratic_forms(factors, x))
                return sum(jnp.sum(part) for part in found)

            return jax.value_and_grad(total, (0, 1))(factors, means)

        ready: Any = jax.block_until_ready
        works: list[Callable[[], Any]] = [
            lambda: ready(descent(family, "grouped", flat, units, data, hyper)),
            lambda: ready(parts(factors, means, x)),
        ]
        for work in works:
            work()
        # in turn, so that what else runs here disturbs both alike
        taken = np.array([[cpu_seconds(work, 5) for work in works] for _ in range(10)])
    whole, alone = taken.min(axis=0).tolist()
    yield Row(
        f"one gradient, layered, N = {count}, {inputs} inputs, {hidden} hidden", 1e3 * whole, "ms",
        1e3 * alone, "its quadratic forms and special functions", "<= 2 x", whole <= 2 * alone,
    )  # fmt: skip


# ---------------------------------------------------------------------- spectra and sunspots


def network(*given: Any, **more: Any) -> Any:
    from kikuchi.bayesnn import BayesianMLPRegressor

    return BayesianMLPRegressor(*given, random_state=0, **more)


def inside(net: Any, x: Any, y: Any) -> float:
    low, high = net.predict_interval(x)
    return float(np.mean((low <= y) & (y <= high)))


def covered(name: str, share: float) -> Row:
    met = 0.90 <= share <= 0.99
    return Row(f"share in 95 % intervals, {name}", share, "", target="0.90 to 0.99", met=met)


def meat() -> Iterator[Row]:
    """Spectra of meat: posteriors and priors; the first fit compiles."""
    table = meat_spectra()
    for posterior, prior, most in (
        ("diagonal", "grouped", 0.55), ("layered", "grouped", 0.50), ("mixture:5", "grouped", 0.52),
        ("diagonal", "nrd", 0.55),
    ):  # fmt: skip
        start = time.process_time()
        net = network(8, posterior, prior).fit(table.x, table.y)
        cpu = time.process_time() - start
        if prior == "nrd":
            net.prune()
        error = float(np.sqrt(np.mean((net.predict(table.x_test) - table.y_test) ** 2)))
        words = f"{net.hidden_kept_.sum()} units kept, {cpu:.1f} CPU s"
        yield Row(
            f"spectra of meat, {posterior} {prior}: RMSE", error, "", target=f"<= {most}",
            met=error <= most, note=words,
        )  # fmt: skip
        if posterior == "layered":
            yield covered("meat", inside(net, table.x_test, table.y_test))
    taken = cpu_seconds(lambda: network(8, "diagonal", "grouped").fit(table.x, table.y), 2)
    yield Row(
        "spectra of meat, diagonal, five restarts", taken, "s", target="<= 5 s", met=taken <= 5
    )


def _root(values: Any) -> Any:
    return 2 * np.sqrt(values + 0.375)


def peers(table: SplitTable, roots: bool) -> dict[str, Any]:
    """Means of the test years by linear regression and peers, on counts or on their roots."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.linear_model import BayesianRidge, LinearRegression
    from sklearn.neural_network import MLPRegressor

    x, y, new = (_root(a) if roots else a for a in table[:3])
    white, white_new = ((a - x.mean(axis=0)) / x.std(axis=0) for a in (x, new))
    target = (y - y.mean()) / y.std()

    def back(mean: Any, sd: Any) -> Any:
        mean, sd = y.mean() + y.std() * mean, y.std() * sd
        return (mean**2 + sd**2) / 4 - 0.375 if roots else mean

    line = LinearRegression().fit(white, target)
    left = (line.predict(white) - target).std()
    kernel = ConstantKernel() * RBF(3 * np.ones(x.shape[1]), (0.1, 1e4)) + WhiteKernel()
    process = GaussianProcessRegressor(kernel, random_state=0).fit(white, target)
    ridge = BayesianRidge().fit(white, target)
    each = [
        MLPRegressor(hidden_layer_sizes=(8,), activation="tanh", alpha=0.1, solver="lbfgs",
                     max_iter=2000, random_state=seed).fit(white, target).predict(white_new)
        for seed in range(10)
    ]  # fmt: skip
    return {
        "linear": back(line.predict(white_new), left),
        "Bayesian ridge": back(*ridge.predict(white_new, return_std=True)),
        "Gaussian process": back(*process.predict(white_new, return_std=True)),
        "ten networks": back(np.mean(each, axis=0), left),
    }


def spots() -> Iterator[Row]:
    """Yearly sunspots, with the scale and skip connections that the bound of the training years
    chooses, beside peers on counts and on roots.
    """
    from kikuchi.bayesnn import SampledMLPRegressor
    from kikuchi_experiments.lawrence2000.networks import rooted, structure_bounds

    data = sunspots()
    table = data.table

    def error(mean: Any) -> float:
        return float(np.mean((mean - table.y_test) ** 2) / data.whole_variance)

    known = {k: error(v) for k, v in peers(table, roots=False).items()}
    sampled = SampledMLPRegressor(8, prior="grouped", random_state=0).fit(table.x, table.y)
    known["NUTS"] = error(sampled.predict(table.x_test))
    words = ", ".join(f"{name} {value:.3f}" for name, value in known.items())
    others = ", ".join(f"{k} {error(v):.3f}" for k, v in peers(table, roots=True).items())
    bounds = structure_bounds(8, 5, 0)
    roots, skip = max(bounds, key=lambda key: bounds[key])
    rows_ = rooted(table) if roots else table
    for prior in ("grouped", "ard"):
        scale = "root" if roots else "plain"
        net = network(8, "diagonal", prior, skip=skip, scale=scale).fit(rows_.x, rows_.y)
        ours = error(net.predict(rows_.x_test))
        yield Row(
            f"sunspots, {prior}, by the bound {scale}, skip connections {skip}: NMSE", ours, "",
            min(known.values()), "the best peer on counts", "below all peers",
            ours < min(known.values()), f"{words}; on roots {others}",
        )  # fmt: skip
        yield covered(f"sunspots, {prior}", inside(net, rows_.x_test, table.y_test))


def coverage() -> Iterator[Row]:
    """A fifth of the rows of five tables is held out, three times."""
    from sklearn import datasets

    iris, wine = datasets.load_iris().data, datasets.load_wine().data
    cells = datasets.load_breast_cancer().data[:, :10]
    tables: dict[str, tuple[Any, Any]] = {
        "diabetes": datasets.load_diabetes(return_X_y=True),
        "petal width of iris": (iris[:, :3], iris[:, 3]),
        "alcohol of wine": (wine[:, 1:], wine[:, 0]),
        "smoothness of cells": (np.delete(cells, 4, axis=1), cells[:, 4]),
        "friedman1": datasets.make_friedman1(300, noise=1.0, random_state=0),
    }
    for name, (x, y) in tables.items():
        shares = []
        for seed in range(3):
            order = np.random.default_rng(seed).permutation(len(y))
            test, rest = order[: len(y) // 5], order[len(y) // 5 :]
            net = network(4, "layered", "grouped", n_init=3).fit(x[rest], y[rest])
            shares.append(inside(net, x[test], y[test]))
        yield covered(name, float(np.mean(shares)))


# ---------------------------------------------------------------------- evidence


def random_table(seed: int) -> tuple[Any, Any]:
    """Fifteen rows of a random 1-3-1 network with noise."""
    import jax
    import jax.numpy as jnp

    from kikuchi.bayesnn import Network

    rng = np.random.default_rng(seed)
    x = rng.normal(size=(15, 1))
    with jax.enable_x64(True):
        inputs = jnp.asarray(np.column_stack([x, np.ones(15)]))
        y = np.asarray(Network(1, 3).output(rng.normal(size=10), inputs))
    return x, y + 0.3 * rng.normal(size=15)


def bounds_beside_evidence(seed: int) -> dict[str, float]:
    """Bounds of a diagonal posterior and a mixture, and an estimate of the evidence."""
    from kikuchi.bayesnn import BayesianMLPRegressor, log_evidence

    priors: Any = {"weight_shape": 2.0, "weight_rate": 2.0, "noise_shape": 2.0, "noise_rate": 0.2}
    x, y = random_table(seed)
    nets = [
        BayesianMLPRegressor(3, posterior, "grouped", n_init=2, tol=1e-3, random_state=seed,
                             **priors).fit(x, y)
        for posterior in ("diagonal", "mixture:5")
    ]  # fmt: skip
    found = log_evidence(nets[0], "smc", draws=500, random_state=seed)
    return {
        "seed": seed, "diagonal": nets[0].bound_, "mixture": nets[1].bound_,
        "evidence": found.log_evidence, "error": found.error,
    }  # fmt: skip


def evidence(file: Path | None = None) -> Iterator[Row]:
    """Random networks; those that the file holds are not run again."""
    lines = file.read_text().splitlines() if file and file.exists() else []
    found = {one["seed"]: one for one in map(json.loads, lines)}
    for seed in range(NETWORKS):
        if seed not in found:
            found[seed] = bounds_beside_evidence(seed)
            if file:
                with file.open("a") as out:
                    out.write(json.dumps(found[seed]) + "\n")
    diagonal, mixture, whole, error = (
        np.array([found[seed][key] for seed in range(NETWORKS)])
        for key in ("diagonal", "mixture", "evidence", "error")
    )
    below = int(np.sum(np.maximum(diagonal, mixture) < whole + 3 * error))
    yield Row(
        f"bounds of {NETWORKS} random 1-3-1 networks that are below the evidence", below, "",
        target=f"= {NETWORKS}", met=below == NETWORKS,
        note=f"above the diagonal one by {np.mean(whole - diagonal):.2f} nats on average, by at "
        f"least {np.min(whole - diagonal):.2f}",
    )  # fmt: skip
    gain = mixture - diagonal
    yield Row(
        "mixture of 5 above diagonal, the same networks", float(gain.mean()), "nats",
        target=">= 1", met=bool(gain.mean() >= 1), note=f"{gain.min():.2f} to {gain.max():.2f}",
    )  # fmt: skip


PARTS: dict[str, Callable[..., Iterator[Row]]] = {
    "gradient": gradient, "meat": meat, "sunspots": spots, "coverage": coverage,
    "evidence": evidence,
}  # fmt: skip

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    wanted = [name for name in sys.argv[1:] if name in PARTS]
    files = [Path(name) for name in sys.argv[1:] if name not in PARTS]
    for name in wanted:
        for row in PARTS[name](*files):
            print(row, flush=True)
