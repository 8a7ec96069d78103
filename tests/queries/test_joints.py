"""Joint distributions of beliefs: of any variables where the answer is exact, else where a factor
or a region holds them, against the joint of all states.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import kikuchi as kk

ASIA = kk.example("asia")
SEEN = {"dysp": "yes"}
SETS = [("lung", "bronc"), ("lung", "dysp"), ("bronc", "dysp", "smoke"), ("dysp",)]


def enumerated(names: tuple[str, ...]) -> np.ndarray:
    """The joint given `SEEN` from the product of all tables."""
    scores = np.zeros((2,) * 8)
    for a in range(ASIA.n_factors):
        axes = ASIA.scope(a)
        shape = [2 if v in axes else 1 for v in range(8)]
        scores = scores + ASIA.log_table(a).transpose(np.argsort(axes)).reshape(shape)
    weights = np.exp(scores)
    weights[(slice(None),) * ASIA.index("dysp") + (0,)] = 0.0
    asked = [ASIA.index(name) for name in names]
    table = weights.sum(axis=tuple(v for v in range(8) if v not in asked))
    return table.transpose(np.argsort(np.argsort(asked))) / table.sum()


@pytest.mark.parametrize("method", ["auto", "enumerate", "jt", "gbp:regions=junction-tree"])
def test_exact_answers_give_any_joint_also_from_a_pickle(method: str) -> None:
    beliefs = kk.infer(ASIA, method, evidence=SEEN)
    again = pickle.loads(pickle.dumps(beliefs))
    for names in SETS:
        np.testing.assert_allclose(beliefs.joint(names), enumerated(names), atol=1e-8)
        np.testing.assert_array_equal(again.joint(names), beliefs.joint(names))


def test_a_region_that_holds_the_variables_gives_their_joint() -> None:
    grid = kk.grid(4, 4, seed=0, coupling=0.3)
    faces, exact = kk.infer(grid, "gbp:regions=faces"), kk.infer(grid, "jt")
    np.testing.assert_allclose(faces.joint([5, 0]), exact.joint([5, 0]), atol=1e-6)
    np.testing.assert_allclose(faces.joint([4, 0, 5]), exact.joint([4, 0, 5]), atol=1e-6)
    held = kk.query(grid, joint=[0, 5], method="gbp:regions=faces")
    np.testing.assert_allclose(held.table, exact.joint([0, 5]), atol=1e-6)
    assert not held.exact
    with pytest.raises(kk.KikuchiError, match="none contains 0, 15; use jt"):
        faces.joint([0, 15])
    with pytest.raises(kk.KikuchiError, match="none contains 0, 5"):  # no factor holds a diagonal
        kk.infer(grid, "bp").joint([0, 5])


def test_observed_variables_need_no_factor() -> None:
    beliefs = kk.infer(ASIA, "bp", evidence=SEEN)
    np.testing.assert_allclose(beliefs.joint(["dysp", "lung"])[1], beliefs["lung"])
    assert beliefs.joint(["dysp", "lung"])[0].sum() == 0.0


@pytest.mark.parametrize("method", ["auto", "enumerate", "jt", "bp", "mf"])
def test_models_without_factors_give_products_of_marginals(method: str) -> None:
    empty = kk.infer(kk.FactorGraph([2, 3], []), method)
    np.testing.assert_allclose(empty.joint([1, 0]), np.full((3, 2), 1 / 6), rtol=1e-14)
    again = pickle.loads(pickle.dumps(empty))
    np.testing.assert_array_equal(again.joint([1, 0]), empty.joint([1, 0]))
    graph = kk.FactorGraph([2, 3, 2], [((0,), [1, 2])])  # none is left by the evidence
    table = kk.infer(graph, method, evidence={0: 1}).joint([2, 0, 1])
    assert not table[:, 0].any()
    np.testing.assert_allclose(table[:, 1], np.full((2, 3), 1 / 6), rtol=1e-14)


def test_joints_of_a_calibrated_tree_without_factors() -> None:
    tree = kk.plan(kk.FactorGraph([2, 3], [])).calibrate()
    np.testing.assert_allclose(tree.joint([1, 0]), np.full((3, 2), 1 / 6), rtol=1e-14)
    many = kk.infer(kk.FactorGraph([2] * 40, []), "jt", memory="1MB")
    with pytest.raises(kk.KikuchiError, match="the joint of 30 variables needs"):
        many.joint(range(30))
