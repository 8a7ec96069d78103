"""Flows: held-out log-density of rows, and accuracy of classes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.defaults.densities import (
    Table,
    for_choosing,
    one_gaussian,
    reported,
    two_dimensional,
    validated_mixture,
)
from benchmarks.defaults.frame import Contender, Task

_ROWS = 2000  # of a table of classes to learn from, and at most as many to test on


def _density(name: str, table: Table, seed: int) -> float:
    from kikuchi import flows

    model = getattr(flows, name)(random_state=seed).fit(table.train)
    reported(model)
    return float(model.score(table.test))


def _spline_flow(table: Table, seed: int) -> float:
    """flowjax's couplings by rational quadratic splines and its training, columns standardised."""
    import jax
    import jax.numpy as jnp
    from flowjax.bijections import RationalQuadraticSpline
    from flowjax.distributions import Normal
    from flowjax.flows import coupling_flow
    from flowjax.train import fit_to_data

    mean, scale = table.train.mean(axis=0), table.train.std(axis=0)
    columns = table.train.shape[1]
    first, second = jax.random.split(jax.random.key(seed))
    flow = coupling_flow(
        first, base_dist=Normal(jnp.zeros(columns)),
        transformer=RationalQuadraticSpline(knots=8, interval=4),
    )  # fmt: skip
    rows = jnp.asarray((table.train - mean) / scale, jnp.float32)
    fitted, _ = fit_to_data(second, flow, rows, show_progress=False)
    judged = jnp.asarray((table.test - mean) / scale, jnp.float32)
    return float(np.mean(np.asarray(fitted.log_prob(judged))) - np.log(scale).sum())


# ---------------------------------------------------------------------- classes


class Classes(tuple[Any, Any, Any, Any]):
    """Rows and labels to learn from, rows and labels to test on."""


def _keel(name: str) -> Classes:
    from kikuchi_experiments.data.tables import keel_table

    data = keel_table(name)
    order = np.random.default_rng(0).permutation(len(data.x))
    count = min(_ROWS, len(order) // 2)
    train, test = order[:count], order[count : count + _ROWS]
    return Classes((data.x[train], data.y[train], data.x[test], data.y[test]))


def _accuracy(make: Any, data: Classes, seed: int) -> float:
    x, y, test, labels = data
    model = make(seed).fit(x, y)
    if hasattr(model, "warnings_"):
        reported(model)
    return float(np.mean(model.predict(test) == labels))


def _classifier(seed: int) -> Any:
    from kikuchi.flows import FlowClassifier

    return FlowClassifier(random_state=seed)


def _forest(seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=seed)


def _gaussians(seed: int) -> Any:
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

    return QuadraticDiscriminantAnalysis(reg_param=1e-3)


def tasks() -> Sequence[Task]:
    names = ("LatentMixtureFlow", "FlowMixture")
    ours = [Contender(f"{name}()", "ours", partial(_density, name)) for name in names]
    return [
        Task(
            "Flows: densities",
            "held-out nats per row",
            higher_is_better=True,
            tolerance=0.02,
            choosing=for_choosing(),
            reporting=two_dimensional(2000) | two_dimensional(10_000),
            contenders=[
                *ours,
                Contender("GaussianMixture(K), K validated", "peer", validated_mixture),
                Contender("flowjax spline flow", "peer", _spline_flow),
                Contender("one Gaussian", "baseline", one_gaussian),
            ],
        ),
        Task(
            "Flows: classes",
            "accuracies on up to 2,000 rows held out, 2,000 learnt from",
            higher_is_better=True,
            tolerance=0.01,
            choosing={n: partial(_keel, n) for n in ("texture", "optdigits", "banana", "vehicle")},
            reporting={n: partial(_keel, n) for n in ("penbased", "letter", "phoneme", "satimage")},
            contenders=[
                Contender("FlowClassifier()", "ours", partial(_accuracy, _classifier)),
                Contender("RandomForestClassifier()", "peer", partial(_accuracy, _forest)),
                Contender("one Gaussian per class", "baseline", partial(_accuracy, _gaussians)),
            ],
        ),
    ]
