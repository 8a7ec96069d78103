"""The guide to a new family: small enough, and its mathematics right."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from project_tools import ROOT, load_tool

examples = load_tool("examples")
PAGE = ROOT / "docs" / "how-to" / "new-family.md"


def files() -> list:
    """The fences that would be files of the project."""
    fences = examples.fences(PAGE.read_text(encoding="utf-8"))
    return [fence for fence in fences if fence.language == "python" and fence.title]


@pytest.fixture(scope="module")
def family() -> Iterator[ModuleType]:
    """The files of the guide in one module."""
    module = ModuleType("page_of_the_new_family")
    sys.modules[module.__name__] = module
    for fence in files():
        exec(compile(fence.text, fence.title, "exec"), module.__dict__)
    yield module
    del sys.modules[module.__name__]


def test_a_complete_family_takes_at_most_110_lines() -> None:
    lines = [line for fence in files() for line in fence.text.splitlines() if line.strip()]
    assert len(files()) == 4 and len(lines) <= 110


def test_score_matching_has_the_gradient_of_finite_differences(family: ModuleType) -> None:
    import jax

    rng = np.random.default_rng(0)
    rows, step = rng.normal(size=(7, 2)), 1e-6
    with jax.enable_x64(True):
        start = {"weights": rng.normal(size=(2, 3)), "bias": np.zeros(3), "log_scale": np.zeros(())}
        gradient = jax.grad(family.score_matching)(start, rows, None)
        for name, array in start.items():
            for cell in np.ndindex(array.shape):
                values = []
                for sign in (1, -1):
                    moved = array.copy()
                    moved[cell] += sign * step
                    values.append(family.score_matching(start | {name: moved}, rows, None))
                slope = (values[0] - values[1]) / (2 * step)
                assert float(gradient[name][cell]) == pytest.approx(float(slope), abs=1e-6)


def test_score_matching_agrees_with_its_definition(family: ModuleType) -> None:
    """Half the mean squared score and the divergence of the score, by finite differences of E."""
    rng = np.random.default_rng(1)
    model = family.PlanarModel.random(3, rng)
    parameters = {name: np.asarray(a, np.float64) for name, a in model.parameters.items()}
    rows, h, total = rng.normal(size=(5, 2)), 1e-4, 0.0
    import jax

    with jax.enable_x64(True):
        for x in rows:
            for axis in np.eye(2) * h:
                low, here, high = (
                    float(family.energy(parameters, y)) for y in (x - axis, x, x + axis)
                )
                total += 0.5 * ((high - low) / (2 * h)) ** 2 - (high - 2 * here + low) / h**2
        loss = float(family.score_matching(parameters, rows, None))
    assert loss == pytest.approx(total / len(rows), abs=1e-5)


def test_the_commands_take_it(family: ModuleType, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from kikuchi.cli.main import app
    from kikuchi.training import kinds

    kinds.register(family.PLANAR)
    try:
        np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(60, 2)))
        rows, out, answer, page = (
            str(tmp_path / name) for name in ("rows.npy", "m.safetensors", "a.json", "p.html")
        )
        words = ["fit", "planar", rows, "-o", out, "--max-iter", "3"]
        done = CliRunner().invoke(app, [*words, "--json", answer, "--report", page])
        assert done.exit_code == 0, done.output
        found = json.loads(Path(answer).read_text())
        assert found["kind"] == "planar" and found["log_density"] < 0
        text = Path(page).read_text()
        assert "log-density per row" in text and "--max-iter 3" in text
        loaded = family.PlanarEnergy.load(out)
        assert loaded.n_iter_ == 3 and loaded.get_params()["max_iter"] == 3
        done = CliRunner().invoke(app, ["evaluate", out, rows, "--json", answer])
        assert done.exit_code == 0, done.output
        assert json.loads(Path(answer).read_text())["mean"] == found["log_density"]
        assert "planar" in CliRunner().invoke(app, ["fit", "--help"]).output
        assert "Number of hidden units" in CliRunner().invoke(app, ["fit", "planar", "-h"]).output
        refused = CliRunner().invoke(app, ["sample", out, "-o", str(tmp_path / "s.csv")])
        assert refused.exit_code == 2 and "planar gives density" in refused.output
    finally:
        kinds.forget_registered()
