"""Bundled models against published values and independent recursions."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import ModelError
from kikuchi.data import example, example_path, examples
from kikuchi.graphs.directed import ancestral_sample, check_directed, d_separated
from kikuchi.graphs.shapes import grid_shape
from oracle import enumerate_exact

FOLDER = example_path("asia").parent


def posterior(graph: kk.FactorGraph, variable: str, evidence: dict[str, str | int]) -> float:
    """p(variable = state 1 | evidence) by enumeration."""
    conditioned = graph.condition(evidence)
    _, marginals, _ = enumerate_exact(conditioned.graph)
    return float(marginals[conditioned.graph.index(variable)][1])


def probability(graph: kk.FactorGraph, evidence: dict[str, str | int]) -> float:
    return float(np.exp(enumerate_exact(graph.condition(evidence).graph)[0]))


@pytest.mark.parametrize("name", examples())
def test_every_example_is_the_same_each_time_and_has_a_possible_state(name: str) -> None:
    graph = example(name)
    assert graph == example(name)
    assert len(examples()[name]) > 20
    if graph.is_directed:
        check_directed(graph)
        state = ancestral_sample(graph, 1, seed=0)[0]
    elif name == "mixed5":
        state = np.array([0, 0, 2, 0, 0])
    else:
        state = np.zeros(graph.n_variables, dtype=int)
    assert np.isfinite(graph.log_score(state))


def test_unknown_examples_are_refused_with_a_hint() -> None:
    with pytest.raises(ModelError, match="no example 'asja'; did you mean 'asia'"):
        example("asja")
    with pytest.raises(ModelError, match="no example 'x'"):
        example_path("x")
    with pytest.raises(ModelError, match="'juror' has no file; these have one: sprinkler, asia"):
        example_path("juror")


def test_every_file_belongs_to_an_example_and_all_are_described() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name in examples():
        assert f"| {name} |" in readme
    for file in FOLDER.iterdir():
        if file.name != "README.md":
            assert example_path(file.stem) == file
            assert file.name in readme


@pytest.mark.parametrize("name", ["sprinkler", "asia"])
def test_files_are_what_the_example_gives(name: str) -> None:
    assert kk.read(example_path(name)) == example(name)


def test_the_grid_file_holds_the_generated_grid() -> None:
    read, made = kk.read(example_path("grid10")), example("grid10")
    assert np.array_equal(read.scopes, made.scopes)
    assert np.allclose(read.log_tables, made.log_tables, rtol=1e-14, atol=1e-14)
    assert grid_shape(made) == (10, 10)


def test_sprinkler_has_the_published_answers() -> None:
    """Murphy 2001: p(wet) = 0.6471, p(sprinkler | wet) = 0.4298, p(rain | wet) = 0.7079."""
    graph = example("sprinkler")
    assert graph.names == ("cloudy", "sprinkler", "rain", "wet_grass")
    assert probability(graph, {"wet_grass": "yes"}) == pytest.approx(0.6471, abs=1e-9)
    assert posterior(graph, "sprinkler", {"wet_grass": 1}) == pytest.approx(0.4298, abs=5e-5)
    assert posterior(graph, "rain", {"wet_grass": "yes"}) == pytest.approx(0.7079, abs=5e-5)
    explained = posterior(graph, "sprinkler", {"wet_grass": "yes", "rain": "yes"})
    assert explained == pytest.approx(0.1945, abs=5e-5)


def test_asia_has_the_published_answers() -> None:
    """Lauritzen and Spiegelhalter 1988: marginals without evidence, and the deterministic or."""
    graph = example("asia")
    _, marginals, _ = enumerate_exact(graph)
    published = {
        "asia": 0.01,
        "tub": 0.0104,
        "smoke": 0.5,
        "lung": 0.055,
        "bronc": 0.45,
        "either": 0.0648,
        "xray": 0.1103,
        "dysp": 0.4360,
    }
    for name, value in published.items():
        assert marginals[graph.index(name)][1] == pytest.approx(value, abs=5e-5)
    either = graph.table(graph.index("either"))
    for lung, tub in itertools.product([0, 1], repeat=2):
        assert either[lung, tub, int(lung or tub)] == 1.0
    assert not d_separated(graph, "xray", "dysp", given=["lung", "tub"])
    assert d_separated(graph, "xray", "dysp", given=["lung", "tub"], deterministic=True)


def test_juror_explains_the_fingerprints_away() -> None:
    """LAW-E1, exact values."""
    # LAW-M2, LAW-T23
    graph = example("juror")
    found: dict[str, str | int] = {"fingerprints": "yes"}
    assert posterior(graph, "guilty", found) == pytest.approx(0.069165, abs=5e-7)
    assert posterior(graph, "visited", found) == pytest.approx(0.933390, abs=5e-7)
    assert posterior(graph, "guilty", {**found, "visited": "yes"}) == pytest.approx(
        0.0028777, abs=5e-8
    )


def test_cycle4_has_the_golden_values() -> None:
    """TEH-I8, exact."""
    log_z, marginals, _ = enumerate_exact(example("cycle4"))
    assert log_z == pytest.approx(4.8426189099, abs=1e-10)
    assert marginals[0][1] == pytest.approx(0.9575057988, abs=1e-10)


def codewords(checks: np.ndarray) -> np.ndarray:
    """All words that every check finds even: the null space over the field of two elements."""
    matrix, n = checks.copy() % 2, checks.shape[1]
    pivots: list[int] = []
    for column in range(n):
        rows = [r for r in range(len(pivots), len(matrix)) if matrix[r, column]]
        if not rows:
            continue
        top = len(pivots)
        matrix[[top, rows[0]]] = matrix[[rows[0], top]]
        others = [r for r in range(len(matrix)) if r != top and matrix[r, column]]
        matrix[others] ^= matrix[top]
        pivots.append(column)
    free = [c for c in range(n) if c not in pivots]
    choices = np.array(list(itertools.product([0, 1], repeat=len(free))))
    words = np.zeros((len(choices), n), dtype=int)
    words[:, free] = choices
    words[:, pivots] = choices @ matrix[: len(pivots), free].T % 2
    return words


def test_ldpc24_has_two_flipped_bits_and_its_best_word_is_the_one_sent() -> None:
    graph = example("ldpc24")
    assert graph.n_factors == 24 + 12
    received = np.array([int(np.argmax(graph.table(i))) for i in range(24)])
    assert received.sum() == 2
    checks = np.zeros((12, 24), dtype=int)
    for a in range(24, 36):
        assert len(graph.scope(a)) == 6
        checks[a - 24, list(graph.scope(a))] = 1
    code = codewords(checks)
    assert len(code) >= 2**12
    scores = graph.log_score(code)
    assert np.isfinite(scores).all()
    ranked = np.sort(scores)
    assert not code[np.argmax(scores)].any()
    assert ranked[-1] > ranked[-2] + 1
    posterior_of_ones = np.exp(scores) @ code / np.exp(scores).sum()
    assert posterior_of_ones.max() < 0.05
    exact = kk.infer(graph, "jt")
    assert np.allclose(exact.flat_marginals[1::2], posterior_of_ones, atol=1e-12)
    assert exact.log_z == pytest.approx(np.log(np.exp(scores).sum()), abs=1e-12)
    decoded = [int(np.argmax(m)) for m in kk.infer(graph, "bp").marginals]
    assert decoded == [0] * 24


def test_hmm30_agrees_with_the_forward_recursion() -> None:
    graph = example("hmm30")
    rolls = np.random.default_rng(0).integers(0, 6, size=30)
    evidence = {f"roll_{t + 1:02}": int(face) for t, face in enumerate(rolls)}
    change = np.array([[0.95, 0.05], [0.1, 0.9]])
    faces = np.array([[1 / 6] * 6, [0.1] * 5 + [0.5]])
    forward = np.full(2, 0.5) * faces[:, rolls[0]]
    for face in rolls[1:]:
        forward = (forward @ change) * faces[:, face]
    beliefs = kk.infer(graph, "bp:schedule=tree", evidence=evidence)
    assert beliefs.log_z == pytest.approx(np.log(forward.sum()), abs=1e-11)
    assert np.allclose(beliefs["die_30"], forward / forward.sum(), atol=1e-12)


def test_mixed5_has_loops_zeros_and_a_wide_factor() -> None:
    graph = example("mixed5")
    assert not graph.is_forest
    assert np.any(graph.log_tables == -np.inf)
    assert graph.shape(0) == (2, 3, 4)
    log_z, marginals, _ = enumerate_exact(graph)
    assert np.isfinite(log_z)
    assert all(np.all(m > 0) for m in marginals)


def test_files_ship_inside_the_package() -> None:
    package = Path(kk.__file__).parent
    assert package / "data" / "models" == FOLDER
