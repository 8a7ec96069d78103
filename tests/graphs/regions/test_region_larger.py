"""Regions that grow with a number: blocks, mini-buckets, hubs; idle regions (LIU-I10 to I12)."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp

from kikuchi import FactorGraph, grid, infer
from kikuchi.core.errors import KikuchiError, MethodError, ModelError
from kikuchi.generate import complete, random_graph
from kikuchi.graphs.regions.builders import region_graph
from kikuchi.graphs.regions.cycles import grid_windows
from kikuchi.graphs.regions.hubs import coupling_strength, hub_roots, strong_hubs
from kikuchi.graphs.regions.junction import mini_buckets
from kikuchi.graphs.regions.pruning import without_idle_regions
from kikuchi.graphs.regions.region_graph import RegionGraph
from oracle import enumerate_exact, random_model
from region_checks import assert_one_balanced, counted, pairwise

# ---------------------------------------------------------------------- blocks


def test_two_by_two_blocks_are_faces() -> None:
    assert counted(region_graph(grid(4, 5), "blocks:2x2")) == counted(
        region_graph(grid(4, 5), "faces")
    )


@pytest.mark.parametrize(
    ("rows", "cols", "high", "wide"), [(5, 6, 3, 3), (6, 5, 2, 4), (4, 7, 3, 2)]
)
def test_counting_numbers_of_blocks(rows: int, cols: int, high: int, wide: int) -> None:
    """Windows count +1, overlaps of two neighbours -1, of four neighbours +1, nothing else."""
    regions = region_graph(grid(rows, cols), f"blocks:{high}x{wide}")
    down, across = rows - high + 1, cols - wide + 1
    merged: Counter[tuple[int, int]] = Counter()
    merged[high * wide, 1] += down * across
    merged[(high - 1) * wide, -1] += (down - 1) * across
    merged[high * (wide - 1), -1] += down * (across - 1)
    merged[(high - 1) * (wide - 1), 1] += (down - 1) * (across - 1)
    assert {(size, c): count for size, c, count in regions.groups()} == merged
    assert_one_balanced(regions)


def test_windows_by_hand() -> None:
    assert grid_windows(3, 3, 2, 3) == [(0, 1, 2, 3, 4, 5), (3, 4, 5, 6, 7, 8)]
    wrapped = grid_windows(3, 3, 1, 2, periodic=True)
    assert len(wrapped) == 9 and (0, 2) in wrapped
    assert len(grid_windows(3, 4, 3, 2, periodic=True)) == 4  # three rows are all rows


@pytest.mark.parametrize("text", ["blocks:2x2", "blocks:3x2", "blocks:3x3", "blocks:2x5"])
@pytest.mark.parametrize("periodic", [False, True])
def test_blocks_with_evidence_and_borders_are_one_balanced(text: str, periodic: bool) -> None:
    whole = grid(5, 5, seed=3, periodic=periodic)
    assert_one_balanced(region_graph(whole, text))
    reduced = whole.condition({6: 0, 7: 1, 18: 0})
    assert_one_balanced(region_graph(reduced.graph, text, reduced=reduced))


def test_blocks_across_the_whole_grid_are_exact() -> None:
    model = grid(3, 6, seed=5, coupling=1.5)
    assert region_graph(model, "blocks:3x2").is_exact
    exact, found = infer(model, "jt"), infer(model, "kikuchi:regions=blocks:3x2")
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-7)
    assert found.flat_marginals == pytest.approx(exact.flat_marginals, abs=1e-6)


def test_blocks_of_an_observed_grid_are_windows_of_the_whole() -> None:
    model = grid(4, 4, seed=2)
    exact = infer(model, "jt", evidence={5: 1, 10: 0})
    found = infer(model, "kikuchi:regions=blocks:3x3", evidence={5: 1, 10: 0})
    assert found.flat_marginals == pytest.approx(exact.flat_marginals, abs=1e-3)


def test_larger_blocks_are_better() -> None:
    """Mean error over strongly coupled grids falls from BP to faces to 2x3 to 3x3."""
    texts = ["bethe", "faces", "blocks:2x3", "blocks:3x3"]
    errors = np.zeros(len(texts))
    for seed in range(5):
        model = grid(6, 6, seed=seed, field=0.1)
        exact = infer(model, "jt").flat_marginals
        for k, text in enumerate(texts):
            found = infer(model, f"kikuchi:regions={text},tol=1e-7").flat_marginals
            errors[k] += np.abs(found - exact).mean() / 5
    assert all(errors[1:] < 0.6 * errors[:-1])
    assert errors[-1] < 1e-3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("blocks", "write blocks:RxC"),
        ("blocks:3", "rows x columns"),
        ("blocks:ax3", "rows x columns"),
        ("blocks:0x3", "4 by 5"),
        ("blocks:5x3", "4 by 5"),
    ],
)
def test_bad_blocks(text: str, words: str) -> None:
    with pytest.raises(MethodError, match=words):
        region_graph(grid(4, 5), text)


def test_blocks_need_a_grid() -> None:
    with pytest.raises(ModelError, match="not a grid"):
        region_graph(complete(5), "blocks:2x2")


# ---------------------------------------------------------------------- idle regions


def test_idle_regions_change_nothing(tmp_path: Path) -> None:
    """The closure with all its zero-counted regions has the same minimum."""
    model = grid(5, 5, seed=1, field=0.2)
    windows = grid_windows(5, 5, 3, 3)
    closed = RegionGraph.closure(model, windows)
    pruned = without_idle_regions(closed)
    assert len(pruned.regions) < len(closed.regions)
    assert {r: c for r, c in counted(closed).items() if c} == counted(pruned)
    path = tmp_path / "roots.json"
    path.write_text(json.dumps(windows))
    whole = infer(model, f"kikuchi:regions=file:{path}")
    assert infer(model, "kikuchi:regions=blocks:3x3").log_z == pytest.approx(whole.log_z, abs=1e-7)


def test_an_idle_region_that_joins_others_stays() -> None:
    """Triangles around 0 make a ring, which counts 0 at {0}; {0, 4} hangs on it by {0} alone."""
    model = pairwise(5, [(0, 1), (0, 2), (0, 3), (1, 2), (2, 3), (1, 3), (0, 4)])
    closed = RegionGraph.closure(model, [(0, 1, 2), (0, 2, 3), (0, 1, 3), (0, 4)])
    assert counted(closed)[0,] == 0
    assert without_idle_regions(closed) is closed


# ---------------------------------------------------------------------- mini-buckets


@pytest.mark.parametrize("seed", range(20))
def test_mini_buckets_are_valid_and_exact_when_nothing_is_split(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = random_model(rng, 7, 9, max_order=3, max_card=3, zeros=0.1 * (seed % 2), scale=1.0)
    log_z, singles, _ = enumerate_exact(model)
    for text, method in (("buckets", "kikuchi:"), ("ijgp", "gbp:damping=0,")):
        for most in (2, 3, 4):
            regions = region_graph(model, f"{text}:{most}")
            assert_one_balanced(regions)
            assert max(map(len, regions.roots)) <= max(most, 3)
        assert region_graph(model, f"{text}:20").is_exact
        found = infer(model, f"{method}regions={text}:20")
        assert found.converged and found.log_z == pytest.approx(log_z, abs=1e-7)
        for v, exact in enumerate(singles):
            assert found[v] == pytest.approx(exact, abs=1e-6)


def test_two_levels_of_mini_buckets_and_all_intersections() -> None:
    model = random_graph(10, 0.5, seed=1)
    flat, closed = region_graph(model, "ijgp:4"), region_graph(model, "buckets:4")
    assert sorted(flat.roots) == sorted(closed.roots)
    assert set(flat.counting.tolist()) == {1.0, -1.0}
    assert set(closed.counting.tolist()) > {1.0, -1.0}


def test_mini_buckets_split_only_what_is_too_large() -> None:
    assert "0 of 16 buckets split" in mini_buckets(grid(4, 4), 5)[2]
    cliques, separators, _ = mini_buckets(grid(4, 4), 3)
    assert max(map(len, cliques)) == 3
    for one, other, shared in separators:
        assert set(shared) <= set(cliques[one]) & set(cliques[other])


def test_larger_mini_buckets_are_better_on_average() -> None:
    errors = dict.fromkeys((2, 5, 8), 0.0)
    for seed in range(6):
        model = random_graph(14, 0.4, seed=seed, coupling=0.7, field=0.3)
        exact = infer(model, "jt").flat_marginals
        for most in errors:
            found = infer(model, f"kikuchi:regions=buckets:{most},tol=1e-7")
            errors[most] += float(np.abs(found.flat_marginals - exact).mean()) / 6
    assert errors[8] < errors[5] < errors[2]


def test_variables_without_factors_are_in_a_bucket() -> None:
    model = FactorGraph([2, 3, 2], [((0, 2), np.ones(4))])
    assert_one_balanced(region_graph(model, "buckets:2"))
    assert_one_balanced(region_graph(model, "ijgp:2"))


# ---------------------------------------------------------------------- hubs


def test_coupling_strength() -> None:
    j, h = 0.7, 0.3
    ising = np.exp([[j + h, -j + h], [-j - h, j - h]])
    model = FactorGraph(
        [2, 2, 3], [((0, 1), ising), ((0, 2), np.outer([1, 2], [3, 4, 5])), ((0,), [1, 9])]
    )
    assert coupling_strength(model, 0) == pytest.approx(j)
    assert coupling_strength(model, 1) == pytest.approx(0.0, abs=1e-12)
    assert coupling_strength(model, 2) == 0.0
    hard = FactorGraph([2, 2], [((0, 1), np.eye(2))])
    assert 1.0 < coupling_strength(hard, 0) < 100.0


def test_strong_variables_first_and_each_once() -> None:
    model = complete(8, seed=1)
    hubs = strong_hubs(model, 20)
    assert sorted(hubs) == list(range(8))
    total = np.zeros(8)
    for a in range(model.n_factors):
        for v in model.scope(a):
            total[v] += coupling_strength(model, a)
    assert hubs[0] == int(np.argmax(total))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_hubs_are_clamping(count: int) -> None:
    """The minimum is log sum_h exp(Bethe log Z with the hubs clamped to h)."""
    model = random_graph(9, 0.5, seed=count, coupling=0.4, field=0.5)
    hubs = strong_hubs(model, count)
    clamped = [
        infer(model, "bp", evidence=dict(zip(hubs, states, strict=True)))
        for states in itertools.product(range(2), repeat=count)
    ]
    assert all(beliefs.converged for beliefs in clamped)
    found = infer(model, f"kikuchi:regions=hubs:{count}")
    logs = np.array([beliefs.log_z for beliefs in clamped])
    assert found.log_z == pytest.approx(float(logsumexp(logs)), abs=1e-6)
    weights = np.exp(logs - logsumexp(logs))
    mixed = sum(w * beliefs.flat_marginals for w, beliefs in zip(weights, clamped, strict=True))
    assert found.flat_marginals == pytest.approx(mixed, abs=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_hubs_on_any_model(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = random_model(rng, 6, 8, max_order=3, max_card=3, zeros=0.1 * (seed % 2), scale=1.0)
    for count in (1, 3):
        assert_one_balanced(region_graph(model, f"hubs:{count}"))
    assert hub_roots(model, list(range(6))) == [tuple(range(6))]
    exact = infer(model, "enumerate")
    found = infer(model, "kikuchi:regions=hubs:6")
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-8)


@pytest.mark.parametrize("text", ["hubs", "hubs:0", "hubs:x", "buckets", "buckets:1", "ijgp:1"])
def test_bad_numbers(text: str) -> None:
    with pytest.raises(KikuchiError, match=r"hubs|buckets|ijgp"):
        region_graph(grid(3, 3), text)
