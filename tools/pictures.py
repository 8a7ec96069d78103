"""Draw pictures of the README and the site from real runs: python tools/pictures.py [NAME ...]."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import kikuchi as kk
from kikuchi.plots.beliefs import grid_beliefs
from kikuchi.plots.comparison import comparison
from kikuchi.plots.ica import mixture_scatter
from kikuchi.plots.images import image_rows, tiles
from kikuchi.plots.style import to_png_bytes

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
TEXTS = ["bp", "kikuchi:regions=faces", "mf", "gibbs"]


def main(names: list[str]) -> None:
    """Draw and write the pictures named, or all."""
    FOLDER.mkdir(exist_ok=True)
    for name in names or PICTURES:
        (FOLDER / f"{name}.png").write_bytes(to_png_bytes(PICTURES[name](), dpi=110))


def network() -> Figure:
    """A network with the probabilities of each state after an observation."""
    return kk.show(kk.example("asia"), {"xray": "yes"})


def compared_methods() -> Figure:
    """Estimates of log Z and errors of marginals by four methods."""
    graph = kk.example("grid10")
    exact = kk.infer(graph, "jt")
    answers = {text: kk.infer(graph, text) for text in TEXTS}
    errors = [np.abs(b.flat_marginals - exact.flat_marginals)[1::2] for b in answers.values()]
    return comparison(
        list(answers),
        log_z=[b.log_z for b in answers.values()],
        lower=[b.log_z_lower for b in answers.values()],
        upper=[b.log_z_upper for b in answers.values()],
        largest=[e.max() for e in errors],
        mean=[e.mean() for e in errors],
        exact_log_z=exact.log_z,
    )


def large_grid() -> Figure:
    """Beliefs of 24,000 spins."""
    large = kk.infer(kk.grid(120, 200, seed=3, coupling=0.9, field=0.35), "bp:damping=0.5")
    return grid_beliefs(large.flat_marginals[1::2], 120, 200)


def trained_machine() -> Figure:
    """Digits, their reconstructions by a restricted machine, and samples of it."""
    from kikuchi.boltzmann import RBM
    from kikuchi.data.digits import digits

    rows = digits("sklearn").thresholded().pixels
    rbm = RBM(80, learner="pcd:k=5", learning_rate=0.05, max_iter=300, random_state=0).fit(rows)
    groups = {  # dark strokes on white
        "data": 1 - rows[:10],
        "reconstructions": 1 - rbm.reconstruct(rows[:10]),
        "samples": 1 - rbm.sample(10, 2000, random_state=1),
    }
    return image_rows(groups, (8, 8), "Digits and a restricted Boltzmann machine")


def separated_sources() -> Figure:
    """Three sources in two sensors: true directions, and those of mean field ICA."""
    from kikuchi.ica import MeanFieldICA

    rng = np.random.default_rng(4)
    sources = rng.laplace(size=(3000, 3)) * (rng.random((3000, 3)) < 0.4)
    mixing = np.array([[1.0, 0.3, -0.7], [0.1, 1.0, 0.8]])
    samples = sources @ mixing.T + 0.1 * rng.standard_normal((3000, 2))
    ica = MeanFieldICA(3, n_init=5, random_state=0).fit(samples)
    return mixture_scatter(
        samples, {"found": ica.mixing_}, true=mixing, title="Three sources in two sensors"
    )


def learnt_filters() -> Figure:
    """More features of patches of photographs than dimensions, each on a scale of its own."""
    from kikuchi.data.photographs import photographs
    from kikuchi.energy import ExpertICA, patches
    from kikuchi.energy.evaluation import evaluate

    grey = [photograph.grey for photograph in photographs("sklearn", "matplotlib")]
    found = patches(
        grey, 12, 30_000, log=True, reject_flat=0.06, whiten="pca", components=100, seed=0
    )
    model = ExpertICA(
        n_components=240, learner="cd:leapfrogs=10,radial=true", solver="adam", momentum=0.0,
        learning_rate=0.003, schedule="cosine", max_iter=10, random_state=0,
    ).fit(found)  # fmt: skip
    filters = evaluate(model, found.rows, shape=(12, 12)).filters
    scaled = filters / np.abs(filters).max(axis=1, keepdims=True)
    return tiles(scaled, (12, 12), "Features of photographs", columns=20, signed=True)


PICTURES = {
    "asia": network,
    "compare": compared_methods,
    "grid": large_grid,
    "machine": trained_machine,
    "sources": separated_sources,
    "filters": learnt_filters,
}


if __name__ == "__main__":
    main(sys.argv[1:])
