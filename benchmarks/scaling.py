"""Learning by scaling: UPS-JT against effective IPF on the networks of TEH-E11."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import kikuchi as kk
from benchmarks.common import Row, cpu_seconds
from kikuchi.learning.scaling.loopy_scaling import LoopyScalingML
from kikuchi.learning.structure.graphs import grow_cliques
from kikuchi_experiments.teh2003.learning import SMOOTHING, augmented_tree, eights

SHARES = (0.15, 0.2)  # of near pairs: the junction trees then have cliques of 7 to 11, as Teh's
SEEDS = (1, 2, 3)


def rows() -> Iterator[Row]:
    images = eights()
    ups = kk.learning.UnifiedScalingML(smoothing=SMOOTHING, order="min-degree")
    ipf = kk.learning.ProportionalFitting(smoothing=SMOOTHING, form="tree", order="min-degree")
    networks = [augmented_tree(images, share, seed) for share in SHARES for seed in SEEDS]
    fast = [ups.fit(g, images, score=False) for g in networks]
    slow = [ipf.fit(g, images, score=False) for g in networks]
    gap = max(abs(a.objective - b.objective) for a, b in zip(fast, slow, strict=True))
    hops = [sum(fit.diagnostics["propagations"] for fit in fits) for fits in (fast, slow)]
    yield Row(
        f"UPS-JT, {len(networks)} networks of eights, cliques of 7 to 11: propagations",
        hops[0],
        "",
        hops[1],
        "effective IPF",
        "5 x fewer, same optimum to 1e-8",
        5 * hops[0] <= hops[1] and gap <= 1e-8,
        f"log-likelihoods differ by {gap:.0e}",
    )
    seconds = np.array(
        [
            [cpu_seconds(lambda m=m, g=g: m.fit(g, images, score=False)) for m in (ups, ipf)]
            for g in networks
        ]
    )
    total = seconds.sum(axis=0)
    least, most = np.sort(seconds[:, 1] / seconds[:, 0])[[0, -1]]
    yield Row(
        "  its CPU time, set-up included",
        float(total[0]),
        "s",
        float(total[1]),
        "effective IPF",
        "3 x less",
        bool(3 * total[0] <= total[1]),
        f"{least:.1f} to {most:.1f} x less by network; both on the same compiled loops",
    )
    yield loopy(augmented_tree(images, 0.2, 1), images)


def loopy(network, images) -> Row:
    cliques = dict(grow_cliques(network, images))[6]
    learner = LoopyScalingML(cliques=cliques, smoothing=SMOOTHING, tol=1e-7)
    fit = learner.fit(network, images, score=False)
    seconds = cpu_seconds(lambda: learner.fit(network, images, score=False), 3)
    note = f"{fit.iterations} sweeps, {'converged' if fit.converged else 'not converged'}"
    return Row("loopy scaling of one of them, cliques of 6", seconds, "s", note=note)
