"""Flows: updates per CPU second beside flowjax's own loop, held-out densities beside Gaussian
mixtures, and classification.

    python -m benchmarks.flows speed | table | quick-table | few-rows | classes NAME ...
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import Row

TABLES = (
    "digits", "letter", "satimage", "penbased", "texture", "optdigits", "moons", "rings",
)  # fmt: skip
GAUSSIANS = tuple(range(1, 41))
QUICK = (1, 2, 3, 5, 8, 10, 12, 15, 20, 30, 40)


def rows() -> Iterator[Row]:
    yield from speed()
    for name in ("moons", "rings", "digits"):
        yield density(name)


# ---------------------------------------------------------------------- speed


def speed() -> Iterator[Row]:
    """Updates per CPU second, batch 100 of two columns, 8 affine couplings of width 50."""
    theirs = _flowjax_steps()
    for components, target in ((1, 1.0), (3, 1.0 / 3.0)):
        ours = _our_steps(components)
        yield Row(
            f"updates of {components} flow{'s' if components > 1 else ''}, 8 couplings, batch 100",
            ours, "per CPU s", theirs, "flowjax's fit_to_data, one flow",
            f">= {target:.2g} x", ours >= target * theirs, "compilation subtracted",
        )  # fmt: skip


def _moons(seed: int, n: int = 2000) -> Any:
    from sklearn.datasets import make_moons

    return make_moons(n, noise=0.1, random_state=seed)[0]


def _per_update(run: Any, updates: tuple[int, int]) -> float:
    """Updates per CPU second between a short run and a long one."""
    taken = []
    for count in updates:
        began = time.process_time()
        run(count)
        taken.append(time.process_time() - began)
    return (updates[1] - updates[0]) / max(taken[1] - taken[0], 1e-9)


def _flowjax_steps() -> float:
    import equinox
    import jax
    import jax.numpy as jnp
    from flowjax.distributions import Normal
    from flowjax.flows import coupling_flow
    from flowjax.train import fit_to_data

    flow = coupling_flow(
        jax.random.key(0), base_dist=Normal(jnp.zeros(2)), flow_layers=8, nn_width=50,
        nn_activation=jnp.tanh,
    )  # fmt: skip
    data = jnp.asarray(_moons(0), jnp.float32)

    def run(updates: int) -> None:
        fitted, _ = fit_to_data(
            jax.random.key(1), flow, data, max_epochs=updates // 19, max_patience=10**6,
            batch_size=100, val_prop=0.05, show_progress=False,
        )  # fmt: skip
        jax.block_until_ready(equinox.filter(fitted, equinox.is_array))

    run(19)
    return _per_update(run, (19, 19 * 40))


def _our_steps(components: int) -> float:
    from kikuchi.flows import FlowMixture

    data = _moons(0)[:2000]

    def run(updates: int) -> None:
        FlowMixture(
            components, flow="coupling:layers=8,width=50", max_iter=updates // 20, batch_size=100,
            schedule="constant",
            validation_fraction=0.0, noise=0.0, weight_decay=0.0, random_state=0,
        ).fit(data)  # fmt: skip

    run(20)
    return _per_update(run, (20, 20 * 40))


# ---------------------------------------------------------------------- densities


def table(name: str) -> tuple[Any, Any]:
    """Rows to learn from and to test on, whole numbers dequantised once for everybody."""
    rng = np.random.default_rng(0)
    if name == "moons":
        return _moons(1), _moons(2)
    if name == "rings":
        angle, which = rng.uniform(0, 2 * np.pi, 4000), rng.integers(1, 4, 4000)
        radius = which + 0.1 * rng.normal(size=4000)
        x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        return x[:2000], x[2000:]
    if name == "digits":
        from sklearn.datasets import load_digits

        x = load_digits().data
    else:
        from kikuchi_experiments.data.tables import keel_table

        x = keel_table(name).x
    whole = np.all(x == np.floor(x), axis=0)
    x = (x + whole * rng.random(x.shape))[rng.permutation(len(x))]
    count = len(x) * 4 // 5
    return x[:count], x[count:]


class Mixtures(NamedTuple):
    """Log-densities of the test rows by the mixture that held-out rows chose and by the one that is
    best on the test rows themselves, with their numbers of components.
    """

    validated: Any
    best: Any
    k_validated: int
    k_best: int
    unconverged: int


def gaussian_mixtures(learnt: Any, test: Any, numbers: tuple[int, ...] = GAUSSIANS) -> Mixtures:
    """Gaussian mixtures with full covariances (scikit-learn's) of all these numbers of components.

    A tenth of the rows chooses the number for mixtures of the others; the mixtures that are judged
    are of all rows.
    """
    mean, scale = learnt.mean(axis=0), learnt.std(axis=0)
    rows, judged = (learnt - mean) / scale, (test - mean) / scale
    order = np.random.default_rng(1).permutation(len(rows))
    held, others = rows[order[: len(rows) // 10]], rows[order[len(rows) // 10 :]]
    validation, logs, unconverged = {}, {}, 0
    for k in numbers:
        validation[k] = _mixture(k, others).score(held)
        model = _mixture(k, rows)
        unconverged += not model.converged_
        logs[k] = model.score_samples(judged) - np.log(scale).sum()
    chosen = max(validation, key=validation.__getitem__)
    best = max(logs, key=lambda k: float(logs[k].mean()))
    return Mixtures(logs[chosen], logs[best], chosen, best, unconverged)


def _mixture(k: int, rows: Any) -> Any:
    from sklearn.mixture import GaussianMixture

    with warnings.catch_warnings(action="ignore"):
        return GaussianMixture(k, random_state=0, max_iter=300).fit(rows)


def density(name: str, numbers: tuple[int, ...] = GAUSSIANS, most: int | None = None) -> Row:
    """Held-out log-likelihood of the default estimator beside the best Gaussian mixture, with at
    most so many rows to learn from and to test on.

    Judged against the mixture that is best on the test rows, which no user could choose; the one
    that validation chooses stands in the note, with the gain of the flow over the mixture that it
    began from, on the rows that the estimator holds out. The mixtures beside may have as many
    components as that start.
    """
    from kikuchi.flows import LatentMixtureFlow

    learnt, test = (part[:most] for part in table(name))
    peer = gaussian_mixtures(learnt, test, numbers)
    began = time.process_time()
    model = LatentMixtureFlow(random_state=0).fit(learnt)
    taken = time.process_time() - began
    ours = model.score_samples(test)
    error = float(np.std(peer.best, ddof=1) / np.sqrt(len(test)))
    gain = float(np.mean(ours - peer.best))
    note = (
        f"{gain:+.3f}, standard error {error:.3f} (paired {_error(ours - peer.best):.3f}); "
        f"validated mixture of {peer.k_validated}: {np.mean(ours - peer.validated):+.3f} (paired "
        f"{_error(ours - peer.validated):.3f}), {peer.unconverged} of {len(numbers)} not "
        f"converged; latent mixture of {len(model.weights_)}, over which the flow gains "
        f"{max(model.validation_scores_) - model.gaussian_score_:+.3f} on held-out rows; "
        f"{model.n_iter_} epochs, {taken:.0f} CPU s"
    )
    return Row(
        f"held-out log-likelihood, {name}, {len(learnt)} rows learnt from",
        float(ours.mean()), "nats", float(peer.best.mean()),
        f"best Gaussian mixture of 1 to {max(numbers)} components ({peer.k_best}), chosen by the "
        "test rows",
        "no more than one standard error below", gain > -error, note,
    )  # fmt: skip


def _error(values: Any) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


# ---------------------------------------------------------------------- classes


def classes(name: str, components: int, epochs: int = 100) -> Row:
    """Accuracy of one mixture of flows per class (LIU-X6), a Gaussian mixture per class beside."""
    from sklearn.mixture import GaussianMixture

    from kikuchi.flows import FlowClassifier
    from kikuchi_experiments.data.tables import keel_table

    data = keel_table(name)
    order = np.random.default_rng(0).permutation(len(data.x))
    count = 4435 if name == "satimage" else len(order) * 4 // 5  # as many as in the source
    learn, test = order[:count], order[count:]
    began = time.process_time()
    model = FlowClassifier(
        components,
        density="mixture",
        schedule="constant",
        patience=15,
        max_iter=epochs,
        random_state=0,
    ).fit(data.x[learn], data.y[learn])
    taken = time.process_time() - began
    right = model.predict(data.x[test]) == data.y[test]
    logs = np.empty((len(test), len(data.names)))
    mean, scale = data.x[learn].mean(axis=0), data.x[learn].std(axis=0)
    for c in range(len(data.names)):
        own = data.x[learn][data.y[learn] == c]
        with warnings.catch_warnings(action="ignore"):
            peer = GaussianMixture(components, reg_covar=1e-3, random_state=0)
            peer.fit((own - mean) / scale)
        logs[:, c] = peer.score_samples((data.x[test] - mean) / scale) + np.log(len(own))
    theirs = np.argmax(logs, axis=1) == data.y[test]
    published = {
        ("letter", 1): 0.9459, ("letter", 10): 0.9657,
        ("satimage", 1): 0.8900, ("satimage", 10): 0.9105,
    }.get((name, components), np.nan)  # fmt: skip
    ours = float(right.mean())
    error = float(right.std() / np.sqrt(len(right)))
    return Row(
        f"accuracy on {name}, {components} flow(s) per class", ours, "", float(theirs.mean()),
        "Gaussian mixtures per class", f">= {published} - 0.005", ours >= published - 0.005,
        f"± {error:.4f}; {model.n_iter_} epochs ({model.stopped_}), {taken:.0f} CPU s",
    )  # fmt: skip


def main(words: list[str]) -> None:
    """Print some of the rows."""
    kind, *names = words
    if kind == "speed":
        found: Iterator[Row] = speed()
    elif kind == "table":
        found = (density(name) for name in names)
    elif kind == "quick-table":
        found = (density(name, QUICK) for name in names)
    elif kind == "few-rows":
        found = (density(name, QUICK, 2000) for name in names)
    else:
        found = (classes(name, k) for name in names for k in (1, 10))
    for row in found:
        print(row, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
