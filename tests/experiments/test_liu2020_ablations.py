"""Experiments of Liu's papers beside the thesis (LIU-X0 to X5), and LIU-C24."""

from __future__ import annotations

import numpy as np
import pytest

from kikuchi.engines.certificates import certify
from kikuchi.plots import to_svg
from kikuchi_experiments import find_experiment, reproduce
from kikuchi_experiments.applications.detection import channel_uses, detect, symbol_errors
from kikuchi_experiments.experiment import Finished, verdict_of
from kikuchi_experiments.liu2020 import likelihoods
from kikuchi_experiments.liu2020.ablations import uniform_model
from kikuchi_experiments.liu2020.alpha import random_ising
from kikuchi_experiments.liu2020.annealing import AnnealedAlpha, annealed_odds
from kikuchi_experiments.liu2020.mimo import exact_ratio
from kikuchi_experiments.liu2020.published import CURVES, RATIOS, SIGMA_MAX, SPREADS
from kikuchi_experiments.liu2020.tables import curves, published

# ---------------------------------------------------------------------- C24


@pytest.mark.slow
def test_singular_values_are_those_of_the_figure() -> None:
    """LIU-C24, LIU-E1: within 0.1 where 60 graphs know the mean to 0.02 (weak couplings)."""
    rng = np.random.default_rng(24)
    weak = [s for s in SPREADS if s <= 0.11]
    for curve in CURVES:
        for spread in weak:
            sigma = [
                certify(random_ising(spread, curve[1], rng), alpha=curve[0])[
                    "largest singular value"
                ].value
                for _ in range(60)
            ]
            error = np.std(sigma) / np.sqrt(60)
            assert abs(np.mean(sigma) - SIGMA_MAX[curve][SPREADS.index(spread)]) < 0.1 + 2 * error


def test_symbol_errors_are_those_of_the_figure() -> None:
    """LIU-C24, LIU-E3: alpha 0.5 within 15 % from ratio 9.67 on, beyond the sampling error of the
    published 5000 uses.
    """
    for ratio, told in zip(RATIOS, curves("LIU-E3")["alpha:0.5"], strict=True):
        if ratio < 9.67:
            continue
        assert told is not None
        uses = channel_uses(8, exact_ratio(ratio), 10_000, seed=24)
        found = detect(uses.channels, uses.received, uses.noise, "alpha:0.5").symbols
        errors = symbol_errors(uses.sent, found)
        spread = 2 * errors.std() * np.sqrt(1 / 10_000 + 1 / 5000)
        assert abs(errors.mean() - told) < 0.15 * told + spread


# ---------------------------------------------------------------------- X0


def test_annealing_with_one_alpha_is_alpha_bp() -> None:
    uses = channel_uses(8, 10.0, 200, seed=3)
    plain = detect(uses.channels, uses.received, uses.noise, "alpha:0.7", max_iter=7, tol=0.0)
    gram = np.matmul(uses.channels.transpose(0, 2, 1), uses.channels)
    couplings = -gram / uses.noise * (1.0 - np.eye(8))
    fields = np.einsum("kmi,km->ki", uses.channels, uses.received) / uses.noise
    odds = annealed_odds(couplings, fields, np.full(7, 0.7))
    assert np.allclose(odds, plain.log_odds, atol=1e-8)
    # strong couplings neither overflow nor lose the sign
    assert np.all(np.isfinite(annealed_odds(1e3 * couplings, 1e3 * fields, np.full(5, 0.5))))


def test_annealed_detection_agrees_with_the_published_curves() -> None:
    outcome = reproduce("LIU-X0", quick=True, seeds=1, processes=1)
    assert len(outcome.rows()) == 12 and outcome.verdict == "agrees"
    rows = {row.quantity: row.ours for row in outcome.rows()}
    falling, rising, fixed = (
        float(rows[f"symbol error of α = {a}, ratio 40"]) for a in ("1 to 0.5", "0.5 to 1", "0.5")
    )
    assert fixed <= falling + 0.01 and rising > 3 * falling
    assert set(AnnealedAlpha.published) == {"alpha:1 to 0.5", "alpha:0.5 to 1", "alpha:0.5"}
    assert to_svg(outcome.figure()).startswith("<?xml")


# ---------------------------------------------------------------------- X1 to X4


def _errors(l1: float, log_z: float) -> dict:
    return {"l1": l1, "rho": 0.9, "log_z": log_z, "converged": True}


def test_uniform_models() -> None:
    graph = uniform_model("grid", 100, 5.0, 0)
    pairs = np.abs(graph.log_tables[200:]).reshape(-1, 4)[:, 0]
    assert graph.n_variables == 100 and 4.5 < pairs.max() <= 5.0
    assert np.abs(graph.log_tables[:200]).max() <= 1.0
    assert abs(pairs.mean() - 2.5) < 0.35


def test_rows_of_uniform_couplings() -> None:
    experiment = find_experiment("LIU-X1")
    theirs = published("LIU-X1")

    def finished(shift: float) -> list[Finished]:
        made = []
        for seed, move in enumerate((-0.01, 0.01)):
            result = {
                name: _errors(column[5.0].l1 + move + shift, column[5.0].log_z + 100 * move)
                for name, column in theirs.items()
            }
            case = {"spread": 5.0, "variables": 100, "seed": seed}
            made.append(Finished(case, result | {"Kikuchi, faces": _errors(0.01, 0.1)}, 0.0))
        return made

    rows = experiment.rows(finished(0.0))
    assert verdict_of(rows) == "agrees"
    assert next(r.verdict for r in rows if "GBP" in r.quantity) == "not comparable"
    assert rows[-1].ours == rows[-1].published == "RENN"
    assert verdict_of(experiment.rows(finished(0.2))) == "disagrees"
    assert len(experiment.figure(finished(0.0)).axes) == 2


def test_uniform_couplings_without_the_networks(monkeypatch) -> None:
    experiment = find_experiment("LIU-X1")
    quick = {n: t for n, t in experiment.methods.items() if n in ("loopy BP", "Kikuchi, faces")}
    monkeypatch.setattr(type(experiment), "methods", quick)
    [case, *_] = experiment.cases(experiment.quick.parameters, range(1))
    result = experiment.run_case(case)
    assert case["spread"] == 5.0 and 0.15 < result["loopy BP"]["l1"] < 0.3
    assert result["Kikuchi, faces"]["l1"] < 0.1 * result["loopy BP"]["l1"]


def test_rows_without_a_penalty() -> None:
    experiment = find_experiment("LIU-X2")
    finished = [
        Finished(
            {"variables": 25, "field": 0.1, "seed": seed},
            {"no penalty": _errors(0.075 + move, 0.6 + move), "penalty": _errors(0.02, 0.5)},
            0.0,
        )
        for seed, move in enumerate((-0.01, 0.01))
    ]
    rows = experiment.rows(finished)
    assert [row.agrees for row in rows] == [True, None, True]
    assert len(experiment.figure(finished).axes) == 2
    [single] = [r for r in experiment.rows(finished[:1]) if r.quantity.endswith("no penalty")]
    assert single.agrees is None  # one model has no deviation


def test_rows_of_sizes() -> None:
    experiment = find_experiment("LIU-X3")
    finished = [
        Finished(
            {"kind": "complete", "variables": 100, "seed": seed},
            {"RENN": _errors(0.185 + move, 2.0), "free tables": _errors(0.3 + move, 2.0)},
            0.0,
        )
        for seed, move in enumerate((-0.01, 0.01))
    ]
    rows = experiment.rows(finished)
    told = {row.quantity: row for row in rows}
    assert told["complete, 1 attention layers, 2 residual blocks"].agrees is True
    assert told["complete, 0 attention layers, 0 residual blocks"].agrees is False  # told 0.215
    assert sum(row.ours is None for row in rows) == 10
    assert rows[-1].agrees is True
    assert len(experiment.figure(finished).axes) == 2
    texts = experiment.texts({"kind": "grid"})
    assert all("regions=faces" in text for text in texts.values()) and len(texts) == 2


def test_seconds(monkeypatch) -> None:
    experiment = find_experiment("LIU-X4")
    quick = {n: t for n, t in experiment.methods.items() if "-net" not in t and "renn" not in t}
    monkeypatch.setattr(type(experiment), "methods", quick)
    case = {"model": "complete graph of 9, u = 15", "seed": 0}
    seconds = experiment.run_case(case)
    assert all(0 <= s < 5 for s in seconds.values()) and len(seconds) == 5
    assert experiment.model(case).n_variables == 9
    assert experiment.model({"model": "grid of 100, u = 15", "seed": 0}).n_factors == 280
    finished = [Finished(case, seconds | {"RENN": 2.0, "Inference Net": 3.0}, 0.0)]
    rows = {r.quantity: r for r in experiment.rows(finished)}
    assert rows["complete graph of 9, u = 15, RENN against Inference Net"].agrees is True
    assert rows["complete graph of 9, u = 15, RENN against loopy BP"].agrees is False
    assert len(experiment.figure(finished).axes) == 1


# ---------------------------------------------------------------------- X5


def test_likelihoods_on_small_images(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    bright = rng.integers(0, 2, (300, 1)) * 100
    small = np.floor(rng.uniform(0, 60, (300, 4)) + bright)
    monkeypatch.setattr(likelihoods, "_images", lambda side: small)
    experiment = find_experiment("LIU-X5")
    cases = experiment.cases(
        {**experiment.quick.parameters, "components": [1, 3], "side": 2, "images": 200,
         "held_out": 100, "epochs": 2, "flow": "coupling:layers=1,width=4"}, range(1),
    )  # fmt: skip
    finished = [Finished(c, experiment.run_case(c), 0.0) for c in cases]
    # two boxes of width 60 in each pixel, one choice for all four
    entropy = np.log(60) + np.log(2) / 4
    for one in finished:
        assert entropy - 0.05 < one.result["held_out"] < np.log(256)
    rows = {row.quantity: row for row in experiment.rows(finished)}
    fall = rows["minus log-likelihood per pixel, images learnt from, 1 to 3 flows"]
    assert fall.agrees is True and fall.published == "falls"
    quoted = rows["minus log-likelihood per pixel, clothes, 1 to 7 flows"]
    assert quoted.ours is None and quoted.published == "2.3571 to 2.3323"
    assert len(experiment.figure(finished).axes) == 1
