"""Flows: held-out log-density of rows, and accuracy of classes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
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


def _zuko_flow(table: Table, seed: int) -> float:
    """zuko's neural spline flow with its defaults. zuko has no training loop, so that this one
    has flowjax's settings: Adam at 5e-4, batches of 100, a tenth held out, patience 5, at most
    100 epochs; columns are standardised.
    """
    import torch
    import zuko

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    mean, scale = table.train.mean(axis=0), table.train.std(axis=0)
    rows = torch.tensor((table.train - mean) / scale, dtype=torch.float32)
    rows = rows[torch.randperm(len(rows))]
    count = len(rows) // 10
    held, rest = rows[:count], rows[count:]
    flow = zuko.flows.NSF(rows.shape[1])
    optimiser = torch.optim.Adam(flow.parameters(), lr=5e-4)
    best, state, waited = np.inf, flow.state_dict(), 0
    for _ in range(100):
        for batch in rest[torch.randperm(len(rest))].split(100):
            optimiser.zero_grad()
            (-flow().log_prob(batch).mean()).backward()
            optimiser.step()
        with torch.no_grad():
            loss = float(-flow().log_prob(held).mean())
        waited += 1
        if loss < best:
            best, waited = loss, 0
            state = {name: value.clone() for name, value in flow.state_dict().items()}
        if waited > 5:
            break
    flow.load_state_dict(state)
    judged = torch.tensor((table.test - mean) / scale, dtype=torch.float32)
    with torch.no_grad():
        return float(flow().log_prob(judged).mean()) - float(np.log(scale).sum())


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
    peers = [
        Contender("GaussianMixture(K), K validated", "peer", validated_mixture),
        Contender("flowjax spline flow", "peer", _spline_flow),
    ]
    if find_spec("zuko"):
        peers.append(Contender("zuko NSF", "peer", _zuko_flow))
    else:
        print("zuko is not installed (pip install zuko): its rows are left out", flush=True)
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
                *peers,
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
