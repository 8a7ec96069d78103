"""Losses in JAX: the answer, one compilation, resumption bit for bit, divergence."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.progress import silent
from kikuchi.core.run import Run
from kikuchi.core.trace import Trace
from kikuchi.training.model import PytreeModel, load_model
from kikuchi.training.optimiser import parse_optimiser
from kikuchi.training.rule import LossRule
from kikuchi.training.trainer import Validation, train

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(107, 3))
TRUE = np.array([[1.0], [-2.0], [0.5]])
TARGETS = INPUTS @ TRUE + 0.3
COMPILED = []


def squared_error(parameters, batch, key):
    """Linear regression; one entry in COMPILED for every time that JAX traces it."""
    COMPILED.append(None)
    x, y = batch
    return jnp.mean((x @ parameters["layer"]["weights"] + parameters["bias"] - y) ** 2)


def noisy(parameters, batch, key):
    noise = 0.1 * jax.random.normal(key, batch.shape, batch.dtype)
    return jnp.mean((batch + noise - parameters["mean"]) ** 2)


def exploding(parameters, batch, key):
    return -jnp.sum(jnp.exp(parameters["mean"]) * batch.mean())


def regression(dtype=np.float64) -> PytreeModel:
    return PytreeModel({"layer": {"weights": np.zeros((3, 1), dtype)}, "bias": np.zeros(1, dtype)})


def leaves(model: PytreeModel) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(model.parameters)]


def same(a: PytreeModel, b: PytreeModel) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))


def run_of(**budget) -> Run:
    return Run(Budget(**budget).start(), silent, Trace())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_regression_finds_the_weights_in_the_precision_of_its_parameters(dtype) -> None:
    data = (INPUTS.astype(dtype), TARGETS.astype(dtype))
    start = regression(dtype)
    done = train(
        start,
        data,
        LossRule(squared_error),
        optimiser="adam:learning_rate=0.05",
        epochs=200,
        batch_size=20,
        seed=0,
    )
    weights = np.asarray(done.model.parameters["layer"]["weights"])
    assert weights.dtype == dtype and not jax.config.jax_enable_x64
    assert np.allclose(weights, TRUE, atol=1e-3)
    assert np.all(start.parameters["layer"]["weights"] == 0)
    assert done.stopped == "epochs" and not done.converged
    assert done.trace.objective[-1] < 1e-4 < done.trace.objective[0]


def test_updates_are_those_of_optax_in_a_plain_loop() -> None:
    optimiser = "sgd:learning_rate=0.05,momentum=0.9,weight_decay=0.01,schedule=cosine"
    rows = INPUTS[:40]
    model = PytreeModel({"mean": np.zeros(3)})
    done = train(model, rows, LossRule(noisy), optimiser=optimiser, epochs=3, batch_size=10, seed=4)
    rng = np.random.default_rng(4)
    with jax.enable_x64(True):
        key = jax.random.key(int(rng.integers(2**31)))
        transform = parse_optimiser(optimiser).transform(4, 3)
        values = {"mean": jnp.zeros(3)}
        state = transform.init(values)
        for epoch in range(3):
            order = np.random.default_rng(int(rng.integers(2**63))).permutation(40)
            for k in range(4):
                batch = jnp.asarray(rows[order[10 * k : 10 * k + 10]])
                slopes = jax.grad(noisy)(values, batch, jax.random.fold_in(key, 4 * epoch + k))
                moves, state = transform.update(slopes, state, values)
                values = optax.apply_updates(values, moves)
    assert np.allclose(done.model.parameters["mean"], values["mean"], rtol=0, atol=1e-12)


def test_one_compilation_per_shape_of_batch_however_often_it_is_called() -> None:
    rule = LossRule(squared_error)
    options = {"optimiser": "sgd:learning_rate=0.011", "epochs": 30, "batch_size": 20}
    train(regression(), (INPUTS, TARGETS), rule, seed=0, **options)
    COMPILED.clear()
    train(regression(), (INPUTS + 1, TARGETS), rule, seed=1, **options)
    train(regression(), (INPUTS, TARGETS), rule, seed=1, **(options | {"epochs": 7}))
    assert len(COMPILED) == 0
    train(regression(), (INPUTS[:100], TARGETS[:100]), rule, seed=1, **options)
    assert 0 < len(COMPILED) <= 3  # another number of rows; no last, smaller batch


@pytest.mark.parametrize(
    "options", [{}, {"average": 0.5, "tol": 1e-9}, {"validation": Validation(INPUTS[:9])}]
)
def test_a_training_cut_in_two_ends_as_one(tmp_path: Path, options: dict) -> None:
    rule = LossRule(noisy)
    shared = {"optimiser": "adam:learning_rate=0.01,schedule=linear", "epochs": 8, "batch_size": 13}
    shared |= options
    whole = train(PytreeModel({"mean": np.zeros(3)}), INPUTS, rule, seed=5, **shared)
    file = tmp_path / "state.safetensors"
    for limit in (2, 6):
        part = train(
            PytreeModel({"mean": np.zeros(3)}),
            INPUTS,
            rule,
            seed=5,
            checkpoint=file,
            run=run_of(iterations=limit),
            **shared,
        )
        assert part.epochs == limit and not part.converged
    rest = train(
        PytreeModel({"mean": np.zeros(3)}), INPUTS, rule, seed=9, checkpoint=file, **shared
    )
    assert rest.epochs == 8 and same(rest.model, whole.model)
    assert rest.trace.objective == whole.trace.objective and rest.scores == whole.scores
    load_model(file, PytreeModel)
    with pytest.raises(DataError, match="its learner is"):
        train(PytreeModel({"mean": np.zeros(3)}), INPUTS, LossRule(exploding), checkpoint=file)


def test_time_ends_within_an_epoch_and_the_rest_goes_on(tmp_path: Path) -> None:
    rows = np.tile(INPUTS, (2000, 1))
    file = tmp_path / "state.safetensors"
    shared = {"optimiser": "sgd:learning_rate=0.001", "epochs": 1, "batch_size": 3, "seed": 2}
    model = PytreeModel({"mean": np.zeros(3, np.float32)})
    whole = train(model, rows, LossRule(noisy), **shared)
    cut = train(model, rows, LossRule(noisy), checkpoint=file, run=run_of(seconds=0.15), **shared)
    assert cut.stopped == "seconds" and cut.epochs == 0 and not same(cut.model, model)
    rest = train(model, rows, LossRule(noisy), checkpoint=file, **shared)
    assert same(rest.model, whole.model)


def test_divergence_keeps_the_last_good_state_and_says_so() -> None:
    with np.errstate(all="ignore"):
        done = train(
            PytreeModel({"mean": np.ones(3, np.float32)}),
            np.ones((50, 1), np.float32),
            LossRule(exploding),
            optimiser="sgd:learning_rate=0.5",
            epochs=100,
            batch_size=5,
        )
    assert done.stopped == "diverged" and not done.converged
    assert all(np.isfinite(leaf).all() for leaf in leaves(done.model))
    assert "lower learning_rate" in done.warnings[0]


def test_projection_holds_after_every_update() -> None:
    rule = LossRule(noisy, lambda p: jax.tree.map(lambda a: jnp.maximum(a, 0.0), p))
    done = train(PytreeModel({"mean": np.ones(3)}), INPUTS - 5.0, rule, epochs=3)
    assert np.all(np.asarray(done.model.parameters["mean"]) == 0.0)


def test_bad_data_and_texts_are_refused() -> None:
    model = PytreeModel({"mean": np.zeros(3)})
    bad = INPUTS.copy()
    bad[4, 1] = np.inf
    with pytest.raises(DataError, match="row 4, column 1"):
        train(model, bad, LossRule(noisy))
    with pytest.raises(DataError, match="equal numbers of rows"):
        train(regression(), (INPUTS, TARGETS[:5]), LossRule(squared_error))
    with pytest.raises(MethodError, match="no learner 'cd'"):
        train(model, INPUTS, "cd")
