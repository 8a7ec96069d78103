"""Energy models: held-out log-density of rows, log Z by the bracket's estimate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.defaults.densities import (
    Table,
    for_choosing,
    of_sklearn,
    one_gaussian,
    reported,
    two_dimensional,
    validated_mixture,
)
from benchmarks.defaults.frame import Contender, Task


def _energy(table: Table, seed: int) -> float:
    from kikuchi.energy import EnergyModel

    model = EnergyModel(random_state=seed).fit(table.train)
    reported(model)
    return float(model.score(table.test))


def _ten_gaussians(table: Table, seed: int) -> float:
    from benchmarks.defaults.densities import mixture

    return mixture(table.train, table.test, 10, seed)


def tasks() -> Sequence[Task]:
    sklearn: dict[str, Callable[[], Table]] = {
        name: partial(of_sklearn, name) for name in ("wine", "diabetes")
    }
    return [
        Task(
            "Energy models: densities",
            "held-out nats per row",
            higher_is_better=True,
            tolerance=0.02,
            choosing=for_choosing(),
            reporting=two_dimensional(2000) | sklearn,
            contenders=[
                Contender("EnergyModel()", "ours", _energy),
                Contender("GaussianMixture(10)", "peer", _ten_gaussians),
                Contender("GaussianMixture(K), K validated", "peer", validated_mixture),
                Contender("one Gaussian", "baseline", one_gaussian),
            ],
        )
    ]
