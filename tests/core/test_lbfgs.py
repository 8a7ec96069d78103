"""L-BFGS with saved state: against SciPy, the optimality conditions of l1, and itself resumed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der

from kikuchi.core.lbfgs import Lbfgs


def rosenbrock(x: np.ndarray) -> tuple[float, np.ndarray]:
    return float(rosen(x)), rosen_der(x)


def quadratic(seed: int, n: int = 12):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n))
    matrix, shift = root @ root.T + 0.1 * np.eye(n), rng.normal(size=n) * 3

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        return float(0.5 * x @ matrix @ x - shift @ x), matrix @ x - shift

    return objective, matrix, shift


def run(descent: Lbfgs, tol: float = 1e-8, limit: int = 1000) -> Lbfgs:
    for _ in range(limit):
        if descent.residual <= tol or not descent.step():
            break
    return descent


def test_rosenbrock_as_scipy() -> None:
    start = np.full(8, -1.2)
    ours = run(Lbfgs(rosenbrock, start))
    theirs = minimize(rosen, start, jac=rosen_der, method="L-BFGS-B", tol=1e-12)
    assert ours.residual <= 1e-8
    assert ours.point == pytest.approx(theirs.x, abs=1e-4)
    assert ours.point == pytest.approx(np.ones(8), abs=1e-8)


def test_value_never_rises() -> None:
    descent = Lbfgs(rosenbrock, np.full(5, 3.0))
    values = [descent.value]
    while descent.residual > 1e-6 and descent.step():
        values.append(descent.value)
    assert np.all(np.diff(values) < 0)


@pytest.mark.parametrize("seed", range(4))
def test_quadratic_solves_the_linear_system(seed: int) -> None:
    objective, matrix, shift = quadratic(seed)
    assert run(Lbfgs(objective, np.zeros(12))).point == pytest.approx(
        np.linalg.solve(matrix, shift), abs=1e-6
    )


@pytest.mark.parametrize("seed", range(4))
def test_l1_meets_the_optimality_conditions_with_exact_zeros(seed: int) -> None:
    objective, matrix, shift = quadratic(seed)
    l1 = np.full(12, 2.0)
    l1[0] = 0.0  # not penalised
    descent = run(Lbfgs(objective, np.ones(12), l1=l1))
    x, g = descent.point, matrix @ descent.point - shift
    zero = x == 0
    assert zero.any() and not zero[0]
    assert np.all(np.abs(g[zero]) <= 2.0 + 1e-6)
    assert g[~zero] == pytest.approx(-l1[~zero] * np.sign(x[~zero]), abs=1e-6)


def test_l1_of_a_separable_objective_is_soft_thresholding() -> None:
    target = np.array([3.0, -0.5, 0.9, -4.0])
    found = run(
        Lbfgs(lambda x: (float(0.5 * (x - target) @ (x - target)), x - target), np.zeros(4), l1=1.0)
    )
    assert found.point.tolist() == pytest.approx([2.0, 0.0, 0.0, -3.0])


@pytest.mark.parametrize("l1", [0.0, 0.3])
def test_resumed_state_gives_the_same_bits(l1: float) -> None:
    whole = Lbfgs(rosenbrock, np.full(6, -1.0), l1=l1, memory=4)
    for _ in range(25):
        whole.step()
    first = Lbfgs(rosenbrock, np.full(6, -1.0), l1=l1, memory=4)
    for _ in range(11):
        first.step()
    kept = {name: np.array(value) for name, value in first.state.items()}
    second = Lbfgs(rosenbrock, np.zeros(6), l1=l1, memory=4, state=kept)
    for _ in range(14):
        second.step()
    assert np.array_equal(second.point, whole.point)
    assert second.value == whole.value and second.evaluations == whole.evaluations


def test_precision_beyond_what_values_show() -> None:
    """Gradients of 1e-12 where values differ by 1e-24, far below rounding."""
    objective, _, _ = quadratic(0)
    lifted = lambda x: (objective(x)[0] + 1e3, objective(x)[1])  # noqa: E731
    descent = run(Lbfgs(lifted, np.zeros(12)), tol=1e-11)
    assert descent.residual <= 1e-11


def test_walls_of_infinity_are_not_crossed() -> None:
    def barrier(x: np.ndarray) -> tuple[float, np.ndarray]:
        if np.any(x <= 0):
            return np.inf, np.full_like(x, np.nan)
        return float(x.sum() - np.log(x).sum()), 1 - 1 / x

    assert run(Lbfgs(barrier, np.array([5.0, 0.01]))).point == pytest.approx(np.ones(2), abs=1e-6)


def test_a_gradient_that_lies_ends_the_search() -> None:
    descent = Lbfgs(lambda x: (float(x @ x), -2 * x), np.ones(3))
    assert not descent.step()
    assert descent.point.tolist() == [1.0, 1.0, 1.0]
