"""Draw the pictures of the README from real runs: python tools/pictures.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import kikuchi as kk
from kikuchi.plots.beliefs import grid_beliefs
from kikuchi.plots.comparison import comparison, scatter
from kikuchi.plots.convergence import convergence
from kikuchi.plots.style import to_png_bytes

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
TEXTS = ["bp", "kikuchi:regions=faces", "mf", "gibbs"]


def main() -> None:
    """Draw and write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    graph = kk.example("grid10")
    exact = kk.infer(graph, "jt")
    answers = {text: kk.infer(graph, text) for text in TEXTS}
    errors = [np.abs(b.flat_marginals - exact.flat_marginals)[1::2] for b in answers.values()]
    save(
        "compare",
        comparison(
            list(answers),
            log_z=[b.log_z for b in answers.values()],
            lower=[b.log_z_lower for b in answers.values()],
            upper=[b.log_z_upper for b in answers.values()],
            largest=[e.max() for e in errors],
            mean=[e.mean() for e in errors],
            exact_log_z=exact.log_z,
        ),
    )
    large = kk.infer(kk.grid(120, 200, seed=3, coupling=0.9, field=0.35), "bp:damping=0.5")
    save("grid", grid_beliefs(large.flat_marginals[1::2], 120, 200))
    hard = kk.grid(30, 30, seed=2)
    texts = ["bp:schedule=parallel", "bp:damping=0.5", "bp:schedule=residual"]
    save("convergence", convergence({t: kk.infer(hard, t).trace for t in texts}))
    bp = answers["bp"].flat_marginals[1::2]
    save("scatter", scatter(exact.flat_marginals[1::2], bp, "bp"))


def save(name: str, figure: Figure) -> None:
    """Write one picture."""
    (FOLDER / f"{name}.png").write_bytes(to_png_bytes(figure, dpi=110))


if __name__ == "__main__":
    main()
