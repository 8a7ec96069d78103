"""The commands of the README, and files of the kinds that they name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"`(kikuchi [a-z][^`]+)`", README)


def write_files(folder: Path) -> None:
    """Write the input of every command but `train energy`, which takes what `patches` writes."""
    import kikuchi as kk

    rng = np.random.default_rng(0)
    (folder / "CASES.csv").write_text("xray,smoke\nyes,no\n,yes\n")
    asia = kk.example("asia")
    states = kk.plan(asia).calibrate().sample(200, seed=0)
    lines = [",".join(n[s] for n, s in zip(asia.states, row, strict=True)) for row in states]
    (folder / "ROWS.csv").write_text("\n".join([",".join(asia.names), *lines]) + "\n")
    np.savez(folder / "ROWS.npz", data=(rng.random((60, 16)) < 0.4).astype(float))
    sources = rng.laplace(size=(300, 3))
    np.savetxt(folder / "RECORDING.csv", sources @ rng.normal(size=(3, 4)), delimiter=",")
    np.savetxt(folder / "SERIES.csv", np.cumsum(rng.normal(size=(200, 2)), axis=0), delimiter=",")
    table = np.column_stack([sources[:80], sources[:80, 0] + 0.1 * rng.normal(size=80)])
    np.savetxt(folder / "TABLE.csv", sources @ rng.normal(size=(3, 3)), delimiter=",")
    kinds = ["long" if x > 0 else "short" for x in sources[:, 0]]
    rows = [f"{a:.6g},{b:.6g},{kind}" for (a, b, _), kind in zip(sources, kinds, strict=True)]
    (folder / "CLASSES.csv").write_text("\n".join(["a,b,kind", *rows]) + "\n")
    np.savetxt(folder / "DATA.csv", table, delimiter=",", header="a,b,c,fat", comments="")
