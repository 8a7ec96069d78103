"""`RBM` as an estimator: conventions, answers against enumeration, files, bad input."""

from __future__ import annotations

import itertools
import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neural_network import BernoulliRBM
from sklearn.utils.estimator_checks import check_estimator

from kikuchi.boltzmann import RBM, BoltzmannMachine, Machine
from kikuchi.boltzmann.exact import clamped, log_likelihood
from kikuchi.core.errors import DataError, KikuchiError, MethodError
from kikuchi.engines.sampling.annealing import LogZ

PATTERNS = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 1, 0, 1, 0]])
ROWS = PATTERNS[np.random.default_rng(0).integers(0, 3, 300)]


def fitted(**options) -> RBM:
    """Trained on all rows for all epochs, unless the options say otherwise."""
    fixed = {"max_iter": 30, "learning_rate": 0.2, "batch_size": 20, "validation_fraction": 0}
    options = fixed | {"random_state": 0} | options
    return RBM(4, **options).fit(ROWS)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "made",
    [
        pytest.param(RBM(), marks=pytest.mark.slow),
        RBM(3, max_iter=2, random_state=0),
        RBM(3, learning_rate=0.005, max_iter=2, random_state=0, visible="gaussian"),
    ],
)
def test_scikit_learn_accepts_the_estimator(made: RBM) -> None:
    """Also as it is made by default; the checks have data outside [0, 1], which are scaled."""
    check_estimator(made)


def test_values_that_are_no_states_are_scaled_with_a_warning_or_refused() -> None:
    with pytest.warns(UserWarning, match="values from 0 to 255 were scaled to the states 0 to 1"):
        scaled = RBM(4, max_iter=2, random_state=0).fit(255 * ROWS)
    assert scaled.limits_ == (0, 255)
    plain = RBM(4, max_iter=2, random_state=0).fit(ROWS)
    assert plain.limits_ is None
    assert np.allclose(scaled.transform(255 * ROWS), plain.transform(ROWS), atol=1e-5)
    with pytest.raises(DataError, match=r"is 255, outside \[0, 1\] of binary units"):
        RBM(4, limits="strict").fit(255 * ROWS)
    with pytest.raises(DataError, match=r"outside \[0, 1\] of binary units"):
        plain.transform(255 * ROWS)  # what was no state in `transform` alone is an error


def test_a_machine_that_has_learnt_nothing_says_so() -> None:
    with pytest.warns(ConvergenceWarning, match="reconstructed no better"):
        RBM(2, max_iter=1, learning_rate=1e-9, random_state=0).fit(ROWS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not any("no better" in text for text in fitted().warnings_)


@pytest.mark.parametrize("sparse", [False, True])
def test_limits_scale_data_to_states_and_back(sparse: bool, tmp_path: Path) -> None:
    plain, grey = fitted(), 255 * ROWS
    data = scipy.sparse.csr_array(grey) if sparse else grey
    for limits in ((0, 255), "data"):
        scaled = RBM(**plain.get_params() | {"limits": limits}).fit(data)
        assert scaled.limits_ == (0, 255)
        assert np.allclose(scaled.model_.weights, plain.model_.weights, atol=1e-6)
        assert np.allclose(scaled.reconstruct(data), 255 * plain.reconstruct(ROWS), atol=1e-2)
        assert np.allclose(scaled.score_samples(data), plain.score_samples(ROWS), atol=1e-4)
        assert set(np.unique(scaled.sample(20, steps=5))) == {0.0, 255.0}
        scaled.save(tmp_path / "m.safetensors")
        assert np.array_equal(
            RBM.load(tmp_path / "m.safetensors").transform(data), scaled.transform(data)
        )


def test_limits_that_cannot_be() -> None:
    with pytest.raises(
        DataError, match=r"row 3, column 1 is 300, outside \[0, 255\] of the limits"
    ):
        bad = 255 * ROWS
        bad[3, 1] = 300
        RBM(2, limits=(0, 255)).fit(bad)
    with pytest.raises(DataError, match="0 would not stay 0"):
        RBM(2, limits=(-1, 1)).fit(scipy.sparse.csr_array(ROWS))
    with pytest.raises(MethodError, match="standardise"):
        RBM(2, visible="gaussian", limits="data").fit(ROWS)
    for limits in ((1, 0), "all", 3, (0, 1, 2), (0, np.nan)):
        with pytest.raises(MethodError, match="limits must be"):
            RBM(2, limits=limits).fit(ROWS)
    beyond = RBM(2, limits="data", random_state=0).fit(ROWS)
    assert np.array_equal(beyond.transform(5 * ROWS), beyond.transform(ROWS))  # clipped


@pytest.mark.parametrize("learner", ["pcd", "cd:k=2", "brief-gibbs", "pseudo", "exact", "cf"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_learners_raise_the_exact_likelihood(learner: str, dtype: str) -> None:
    machine = fitted(learner=learner, dtype=dtype, learning_rate=0.05, max_iter=80, momentum=0.5)
    before = RBM(4, random_state=0, max_iter=1, learning_rate=1e-9, start="zero").fit(ROWS)
    assert machine.score(ROWS) > before.score(ROWS) + 0.7
    assert machine.model_.dtype == dtype
    assert machine.transform(ROWS).dtype == dtype
    assert machine.n_iter_ == 80 and machine.stopped_ == "epochs"
    assert not machine.converged_  # running out of epochs is not convergence


@pytest.mark.parametrize("visible", ["binary", "gaussian", "binomial:replicas=3"])
def test_log_likelihoods_are_exact(visible: str) -> None:
    """TEH-M8."""
    rows = ROWS * 3 if visible.startswith("binomial") else ROWS
    rbm = RBM(3, visible=visible, dtype="float64", random_state=1, learning_rate=0.01).fit(rows)
    found = rbm.row_likelihoods(rows, "exact")
    truth = log_likelihood(rbm.model_, rows)
    assert np.allclose(found.estimate, truth) and found.mean() == pytest.approx(truth.mean())
    assert np.array_equal(found.lower, found.upper) and found.confidence == 1.0
    assert rbm.score_bounds(rows) == (found.mean(), found.mean())
    if visible != "gaussian":
        assert rbm.score_kind_ == "log-likelihood"
        assert np.allclose(rbm.score_samples(rows), truth)
    rbm.partial_fit(rows)
    assert not hasattr(rbm, "log_z_")  # it was that of another machine


def enumerated_pseudo(log_weight: Any, rows: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Sum of log p(v_i | others) by changing one column at a time."""
    total = np.zeros(len(rows))
    for unit in range(rows.shape[1]):
        logs = []
        for state in states:
            changed = rows.astype(float)
            changed[:, unit] = state
            logs.append(log_weight(changed))
        total += log_weight(rows.astype(float)) - np.logaddexp.reduce(logs, axis=0)
    return total


@pytest.mark.parametrize("visible", ["binary", "binary, means", "gaussian", "binomial:replicas=3"])
def test_scores_of_many_columns_are_pseudo_log_likelihoods(visible: str) -> None:
    """Against enumeration of the states of one column, or a fine grid of its values."""
    rng = np.random.default_rng(3)
    rows, states, step = np.tile(ROWS, 3)[:40], np.arange(2.0), 1.0
    if visible == "binary, means":
        rows, visible = rng.random((40, 18)), "binary"
    if visible == "gaussian":
        rows, step = rng.normal(size=(40, 18)), 0.1
        states = np.arange(-12.0, 12.0, step)
    if visible.startswith("binomial"):
        rows, states = rows * 3, np.arange(4.0)
    rbm = RBM(3, visible=visible, dtype="float64", random_state=1, learning_rate=0.02).fit(rows)
    rbm.model_.weights[...] = rng.normal(0, 0.7, (18, 3))
    expected = enumerated_pseudo(lambda v: clamped(rbm.model_, v).log_weights, rows, states)
    assert rbm.score_kind_ == "pseudo-log-likelihood"
    before = rbm.score_samples(rows)
    assert before == pytest.approx(expected - 18 * np.log(step), abs=1e-6)
    assert visible == "gaussian" or np.all(before < 0)
    rbm.log_z("exact")
    assert np.array_equal(rbm.score_samples(rows), before)  # it is what it was
    assert rbm.score(rows) == pytest.approx(before.mean())


def test_grid_search_chooses_as_the_exact_likelihood_does() -> None:
    """Numbers of hidden units by cross-validation, against the exact likelihood of rows held out;
    free energies would choose the most hidden units whatever was learnt.
    """
    rng = np.random.default_rng(0)
    causes = rng.random((40, 1)) < 0.5
    rows = (rng.random((40, 6)) < np.where(causes, 0.7, 0.3)).astype(float)
    sizes = [0, 1, 20]
    options: dict[str, Any] = {"max_iter": 300, "learning_rate": 0.3, "random_state": 0}
    folds = KFold(2)
    search = GridSearchCV(RBM(**options), {"n_components": sizes}, cv=folds, refit=False).fit(rows)
    truth = [
        np.mean(
            [
                log_likelihood(RBM(k, **options).fit(rows[a]).model_, rows[b]).mean()
                for a, b in folds.split(rows)
            ]
        )
        for k in sizes
    ]
    assert search.cv_results_["mean_test_score"] == pytest.approx(truth, abs=1e-4)
    assert search.best_params_["n_components"] == sizes[int(np.argmax(truth))] < 20


def poorly_annealed(rows: np.ndarray) -> tuple[RBM, Any]:
    """A machine with strong weights, and its log Z by a few long steps."""
    rbm = RBM(18, max_iter=2, dtype="float64", random_state=0).fit(rows)
    rng = np.random.default_rng(1)
    patterns = rows[rng.integers(0, len(rows), 18)]
    rbm.model_.weights[...] = 4.0 * (2.0 * patterns.T - 1.0)
    rbm.model_.hidden_bias[...] = -4.0 * patterns.sum(axis=1) + 6.0
    return rbm, {"betas": 15, "chains": 20, "batches": 1, "burn_in": 5}


def test_log_likelihoods_of_binary_rows_are_never_positive_and_doubts_are_warnings() -> None:
    rows = np.random.default_rng(0).integers(0, 2, (60, 25)).astype(float)
    rbm, options = poorly_annealed(rows)
    with pytest.warns(ConvergenceWarning, match="log Z is not reliable"):
        found = rbm.row_likelihoods(rows, "ais", **options)
    assert any(text.startswith("log Z: ") for text in rbm.warnings_)
    assert not rbm.log_z_.reliable
    assert np.all(found.estimate <= 0) and np.all(found.upper <= 0)
    assert np.all(found.lower <= found.estimate)
    with pytest.warns(ConvergenceWarning, match="not reliable"):
        rbm.log_z("ais", **options)
    assert len([text for text in rbm.warnings_ if "carry weight" in text]) <= 2  # not repeated
    rbm.log_z("exact")
    assert not any(text.startswith("log Z: ") for text in rbm.warnings_)
    truth = rbm.row_likelihoods(rows).mean()
    low, high = float(found.lower.mean()), float(found.upper.mean())
    assert low <= truth <= high


def test_rows_that_refute_log_z_raise_it_with_a_warning() -> None:
    rows = np.random.default_rng(0).integers(0, 2, (60, 25)).astype(float)
    rbm, _ = poorly_annealed(rows)
    rbm.log_z_ = replace(LogZ.exact(0.0), stopped="batches")  # far too low
    with pytest.warns(ConvergenceWarning, match="log Z is at least"):
        found = rbm.row_likelihoods(rows)
    assert np.all(found.estimate <= 0) and np.all(np.isneginf(found.lower))


def test_log_z_of_an_earlier_fit_is_forgotten() -> None:
    rows = np.random.default_rng(0).integers(0, 2, size=(20, 4))
    model = RBM(2, max_iter=1, random_state=0).fit(rows)
    assert model.log_z("exact") is model.log_z_
    model.fit(rows)
    assert not hasattr(model, "log_z_")


def test_annealed_log_z_is_near_the_exact_one() -> None:
    rbm = fitted()
    found = rbm.log_z("ais")
    assert found.reliable and found.width < 0.4
    assert found.estimate == pytest.approx(rbm.log_z().estimate, abs=0.2)
    assert rbm.log_z_.stopped == "exact"


def test_rows_for_log_z_are_in_the_values_of_the_data() -> None:
    scaled = RBM(**fitted().get_params() | {"limits": (0, 255)}).fit(255 * ROWS)
    plain = fitted()
    assert scaled.log_z("ais", data=255 * ROWS).estimate == pytest.approx(
        plain.log_z("ais", data=ROWS).estimate, abs=0.05
    )
    assert scaled.row_likelihoods(255 * ROWS).mean() == pytest.approx(plain.score(ROWS), abs=0.1)


def test_sample_begins_at_rows_and_warns_of_chains_that_drift(recwarn) -> None:
    """Two far modes, of which the data show one; a machine without weights is at equilibrium after
    one step.
    """
    rows = np.ones((60, 30))
    rows[:, :10] = np.random.default_rng(0).random((60, 10)) < 0.5
    rbm = RBM(4, learner="cd", max_iter=1, random_state=0, dtype="float64").fit(rows)
    machine = rbm.model_
    machine.weights[...], machine.hidden_bias[...] = 0.8, -12.0  # all on or all off
    machine.visible_bias[...] = -1.6
    assert rbm.sample(200, steps=1, random_state=0).mean() > 0.7  # where the rows are
    machine.visible_bias[...] = -2.2  # now the other mode is the better one, and chains leave
    recwarn.clear()
    with pytest.warns(ConvergenceWarning, match="have not reached equilibrium.*raise steps"):
        rbm.sample(200, steps=30, random_state=0)
    machine.weights[...] = 0.0
    recwarn.clear()
    for seed in range(20):
        rbm.sample(100, steps=4, random_state=seed)
    assert not [w for w in recwarn if "equilibrium" in str(w.message)]


def test_samples_have_the_marginals_of_the_model() -> None:
    rbm = fitted(max_iter=5, dtype="float64")
    states = np.array(list(itertools.product((0.0, 1.0), repeat=6)))
    p = np.exp(rbm.score_samples(states))
    assert p.sum() == pytest.approx(1.0)
    drawn = rbm.sample(4000, steps=100, random_state=1)
    assert drawn.shape == (4000, 6) and set(np.unique(drawn)) == {0.0, 1.0}
    truth = p @ states
    assert np.all(np.abs(drawn.mean(axis=0) - truth) < 4.5 * np.sqrt(truth * (1 - truth) / 4000))
    assert np.array_equal(drawn, rbm.sample(4000, steps=100, random_state=1))


def test_a_machine_that_was_not_fitted_has_no_components() -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        RBM().components_  # noqa: B018


def test_transform_and_back() -> None:
    rbm = fitted(learner="cd", max_iter=100)
    weights = rbm.components_
    hidden = 1 / (1 + np.exp(-(ROWS @ weights.T + rbm.model_.hidden_bias)))
    assert np.allclose(rbm.transform(ROWS), hidden, atol=1e-6)
    assert np.abs(rbm.reconstruct(PATTERNS) - PATTERNS).max() < 0.25
    assert list(rbm.get_feature_names_out()) == ["rbm0", "rbm1", "rbm2", "rbm3"]


def test_dense_sparse_boolean_rows_and_seeds_agree() -> None:
    first = RBM(4, max_iter=30, learning_rate=0.2, random_state=0, batch_size=20).fit(ROWS)
    for rows in (ROWS.astype(bool), scipy.sparse.csr_matrix(ROWS), ROWS.astype(np.float32)):
        rbm = RBM(4, max_iter=30, learning_rate=0.2, random_state=0, batch_size=20).fit(rows)
        assert np.array_equal(rbm.model_.weights, first.model_.weights)
        assert np.array_equal(rbm.transform(rows), rbm.transform(ROWS))
    state = np.random.RandomState(3)
    assert RBM(2, random_state=state, max_iter=1).fit(ROWS).n_iter_ == 1


def test_partial_fit_goes_on_with_the_same_chains() -> None:
    rbm = RBM(4, random_state=0, batch_size=20, momentum=0.5)
    for count in range(1, 4):
        rbm.partial_fit(ROWS)
        assert rbm.n_iter_ == count
    assert rbm._state.rule["hidden"].shape == (100, 4)
    assert np.abs(rbm._state.optimiser["weights"]).max() > 0
    with pytest.raises(ValueError, match="features"):
        rbm.partial_fit(ROWS[:, :4])
    falling = RBM(4, schedule="cosine", random_state=0).partial_fit(ROWS).model_
    constant = RBM(4, schedule="constant", random_state=0).partial_fit(ROWS).model_
    assert np.array_equal(falling.weights, constant.weights)  # there is no last epoch


def test_files_hold_the_estimator(tmp_path: Path) -> None:
    rbm = fitted(visible="binary", weight_decay=0.001)
    rbm.log_z("exact")
    rbm.save(tmp_path / "rbm.safetensors")
    back = RBM.load(tmp_path / "rbm.safetensors")
    assert back.get_params() == rbm.get_params()
    assert np.array_equal(back.score_samples(ROWS), rbm.score_samples(ROWS))
    assert np.array_equal(back.transform(ROWS), rbm.transform(ROWS))
    assert back.n_iter_ == 30
    back.partial_fit(ROWS)
    with pytest.raises(DataError, match="contains RBM, not BoltzmannMachine"):
        BoltzmannMachine.load(tmp_path / "rbm.safetensors")
    again = pickle.loads(pickle.dumps(rbm))
    assert np.array_equal(again.transform(ROWS), rbm.transform(ROWS))


def test_checkpoint_of_an_estimator(tmp_path: Path) -> None:
    file = tmp_path / "c.safetensors"
    whole = fitted(max_iter=6, schedule="constant")
    fitted(max_iter=3, schedule="constant", checkpoint=file)
    assert np.array_equal(
        fitted(max_iter=6, schedule="constant", checkpoint=file).model_.weights,
        whole.model_.weights,
    )
    with pytest.raises(DataError, match="another training: its random_state"):
        fitted(max_iter=6, schedule="constant", checkpoint=file, random_state=1)


def test_divergence_is_a_warning_and_leaves_numbers() -> None:
    rows = 5.0 * np.random.default_rng(0).normal(size=(300, 6))
    with np.errstate(all="ignore"), pytest.warns(ConvergenceWarning, match="lower learning_rate"):
        rbm = RBM(4, visible="gaussian", learning_rate=5.0, random_state=0).fit(rows)
    assert rbm.stopped_ == "diverged" and not rbm.converged_
    assert np.isfinite(rbm.transform(rows)).all()


def test_time_limit_progress_and_plot(capsys) -> None:
    seen = []

    def progress(done, total, *, residual, objective) -> None:
        seen.append((done, total, objective))

    rbm = RBM(4, max_iter=10**6, seconds=0.5, random_state=0, progress=progress).fit(ROWS)
    assert rbm.stopped_ == "seconds" and not rbm.converged_ and rbm.warnings_
    assert seen and seen[-1][1] == 10**6 and np.isfinite(seen[-1][2])
    RBM(4, max_iter=10**6, seconds=0.4, random_state=0, verbose=1).fit(ROWS)
    assert "[RBM] epoch" in capsys.readouterr().out
    figure = rbm.trace_.plot()
    assert figure.axes[0].get_xlabel() == "epochs"


def test_other_optimisers_work_by_name() -> None:
    rbm = fitted(solver="adam:b1=0.8", learning_rate=0.02, schedule="cosine")
    assert rbm.score(ROWS) > -3.0
    with pytest.raises(MethodError, match="momentum belongs to solver sgd"):
        fitted(solver="adam", momentum=0.5)


@pytest.mark.parametrize(
    "options, rows, message",
    [
        ({"limits": "strict"}, ROWS * 1.5, r"outside \[0, 1\]"),
        ({}, np.where(ROWS, np.nan, ROWS), "NaN"),
        ({}, ROWS[:0], "minimum of 1"),
        ({"dtype": "float16"}, ROWS, "dtype must be"),
        ({"learner": "pcd:kk=1"}, ROWS, "no option 'kk'"),
        ({"visible": "ternary"}, ROWS, "no kind of units"),
        ({"visible": "binomial:replicas=2", "limits": "strict"}, ROWS * 3, r"outside \[0, 2\]"),
        ({"random_state": -1}, ROWS, "the seed must be a non-negative integer"),
        ({"max_iter": 0}, ROWS, "max_iter"),
        ({"learning_rate": 0.0}, ROWS, "learning_rate"),
    ],
)
def test_bad_input_is_refused(options: dict, rows: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RBM(3, **options).fit(rows)


def test_bad_questions_are_refused() -> None:
    rbm = fitted(max_iter=1)
    with pytest.raises(ValueError, match="features"):
        rbm.transform(ROWS[:, :3])
    with pytest.raises(DataError, match="hidden units"):
        rbm.inverse_transform(ROWS)
    with pytest.raises(MethodError, match="exact"):
        rbm.log_z("guess")
    with pytest.raises(MethodError, match="n_samples"):
        rbm.sample(0)
    with pytest.raises(KikuchiError, match="cannot write"):
        rbm.save("/no/such/folder/rbm.safetensors")
    assert clone(rbm).get_params() == rbm.get_params()


def test_the_start_has_the_means_of_the_data() -> None:
    still = {"max_iter": 1, "learning_rate": 1e-12, "scale": 1e-9, "random_state": 0}
    rbm = RBM(3, **still).fit(ROWS)
    means = (ROWS.sum(axis=0) + 1) / (len(ROWS) + 2)
    assert np.allclose(1 / (1 + np.exp(-rbm.model_.visible_bias)), means, atol=1e-5)
    assert np.abs(RBM(3, start="zero", **still).fit(ROWS).model_.visible_bias).max() < 1e-9
    with pytest.raises(MethodError, match="start must be"):
        RBM(3, start="ones").fit(ROWS)


@pytest.mark.slow
def test_defaults_give_features_as_good_as_those_of_scikit_learn() -> None:
    """Classes of digits by logistic regression on the hidden units, both with default settings."""
    digits = load_digits()
    rows, labels = digits.data / 16.0, digits.target
    train, test = slice(0, 1200), slice(1200, None)
    scores = []
    for machine in (RBM(random_state=0), BernoulliRBM(random_state=0)):
        hidden = machine.fit(rows[train]).transform(rows)
        classifier = LogisticRegression(max_iter=500).fit(hidden[train], labels[train])
        scores.append(classifier.score(hidden[test], labels[test]))
    assert scores[0] >= scores[1] - 0.01  # half a standard error of the difference


def test_log_z_follows_the_seed_of_the_estimator() -> None:
    rows = np.random.default_rng(0).integers(0, 2, (40, 5)).astype(float)
    rbm = RBM(2, max_iter=1, random_state=0).fit(rows)
    options: dict[str, Any] = {"betas": 20, "chains": 5, "batches": 1}
    first = rbm.log_z("ais", **options).estimate
    assert first == rbm.log_z("ais", **options).estimate
    assert first != rbm.log_z("ais", random_state=1, **options).estimate


@pytest.mark.parametrize("method", ["ais", "exact"])
def test_the_whole_answer_about_log_z_is_in_the_file(method: Any, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 2, (40, 5)).astype(float)
    rbm = RBM(2, max_iter=1, random_state=0).fit(rows)
    rbm.log_z(method, betas=20) if method == "ais" else rbm.log_z(method)
    rbm.save(tmp_path / "m.safetensors")
    again = RBM.load(tmp_path / "m.safetensors")
    ours, theirs = vars(rbm.log_z_), vars(again.log_z_)
    assert ours.keys() == theirs.keys()
    assert np.array_equal(
        again.sample(3, steps=5, random_state=0), rbm.sample(3, steps=5, random_state=0)
    )
    for name, value in ours.items():
        np.testing.assert_equal(theirs[name], value)


def far_modes() -> tuple[np.ndarray, np.ndarray]:
    """Rows near four far prototypes with unequal shares, and the prototypes."""
    rng = np.random.default_rng(5)
    prototypes = rng.random((4, 30)) < 0.5
    which = rng.choice(4, size=1500, p=(0.55, 0.3, 0.1, 0.05))
    return (prototypes[which] ^ (rng.random((1500, 30)) < 0.04)).astype(float), prototypes


def shares(rows: np.ndarray, prototypes: np.ndarray) -> np.ndarray:
    nearest = np.argmin(np.abs(rows[:, None] - prototypes).sum(axis=2), axis=1)
    return np.bincount(nearest, minlength=len(prototypes)) / len(rows)


def test_samples_have_the_shares_of_modes_of_the_data_and_say_that_chains_stay(
    tmp_path: Path,
) -> None:
    rows, prototypes = far_modes()
    rbm = RBM(64, random_state=0).fit(rows)
    drawn = rbm.sample(400, random_state=0)
    wrong = 0.5 * np.abs(shares(drawn, prototypes) - shares(rows, prototypes)).sum()
    assert wrong < 0.1
    assert rbm.sampling_.start == "persistent chains" and rbm.sampling_.chains == 400
    assert rbm.sampling_.mixed is False and rbm.sampling_.r_hat > 1.5  # far modes
    rbm.save(tmp_path / "rbm.safetensors")
    again = RBM.load(tmp_path / "rbm.safetensors")
    assert np.array_equal(again.sample(400, random_state=0), drawn)
    assert again.sampling_ == rbm.sampling_
    rbm.model_.weights[...] = 0.0  # independent bits mix in one step
    rbm.sample(100, steps=400, random_state=0)
    assert rbm.sampling_.mixed is True
    rbm.sample(1, steps=3, random_state=0)
    assert rbm.sampling_.mixed is None


def test_rules_without_persistent_chains_sample_from_rows() -> None:
    rbm = fitted(learner="cd", max_iter=2)
    rbm.sample(5, random_state=0)
    assert rbm.sampling_.start == "training rows" and rbm.sampling_.steps == 1000
    rows_chains = fitted(learner="brief-gibbs", max_iter=2)
    rows_chains.sample(5, steps=10, random_state=0)
    assert rows_chains.sampling_.start == "training rows"


def test_held_out_rows_choose_the_epoch() -> None:
    """Random bits: everything that a machine learns of them is wrong."""
    rng = np.random.default_rng(0)
    rows, others = (rng.integers(0, 2, (150, 8)).astype(float) for _ in range(2))
    options: dict[str, Any] = {"max_iter": 200, "learning_rate": 0.3, "random_state": 0}
    guarded = RBM(32, **options).fit(rows)
    assert guarded.stopped_ == "validation" and guarded.converged_ and guarded.n_iter_ < 200
    free = RBM(32, validation_fraction=0, **options).fit(rows)
    assert free.stopped_ == "epochs"
    assert guarded.score(others) > free.score(others) + 0.05
    assert RBM(2, max_iter=3, random_state=0).fit(rows[:40]).stopped_ == "epochs"  # too few to hold


def test_the_number_of_epochs_follows_the_number_of_updates() -> None:
    assert [RBM()._epochs(np.zeros((n, 1))) for n in (50, 1000, 60_000)] == [300, 112, 30]
    assert RBM(max_iter=7)._epochs(ROWS) == 7


def test_rows_below_independent_bits_are_a_warning() -> None:
    """Bars learnt with a single chain and a high rate, against a fit that learns them."""
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.integers(0, 2, (200, 3)), 3, axis=1).astype(float)
    wild: dict[str, Any] = {"learner": "pcd:chains=1", "learning_rate": 5.0, "max_iter": 5}
    wild["schedule"] = "constant"
    with pytest.warns(ConvergenceWarning, match=r"training rows .* below -6\.\d+ of independent"):
        bad = RBM(64, **wild, validation_fraction=0, random_state=0).fit(rows)
    assert any("independent bits" in text for text in bad.warnings_)
    assert bad.score(rows) < -6.3  # exact
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        good = RBM(8, max_iter=30, random_state=0).fit(rows)
    assert not any("independent bits" in text for text in good.warnings_)


GREY = np.repeat([[0.2, 0.2], [0.8, 0.8]], 100, axis=0)  # bits drawn from them covary by .09


def covariance(machine: Machine) -> float:
    """Of the two visible units, from the sum over all states."""
    states = np.array(list(itertools.product([0.0, 1.0], repeat=2)))
    shares = np.exp(clamped(machine, states).log_weights)
    shares /= shares.sum()
    first, second = shares @ states
    return float(shares[-1] - first * second)


@pytest.mark.parametrize("sparse", [False, True])
def test_bits_drawn_from_grey_levels_keep_what_columns_share(sparse: bool) -> None:
    """Grey levels used as they are vary less than bits, which pulls the weights towards 0."""
    data = scipy.sparse.csr_array(GREY) if sparse else GREY
    options: dict[str, Any] = {"scale": 0.5, "learning_rate": 0.5, "max_iter": 100}
    drawn = RBM(4, **options, random_state=0).fit(data)
    assert set(np.unique(drawn._held_out)) == {0.0, 1.0} and len(drawn._held_out) >= 200
    assert covariance(drawn.model_) == pytest.approx(0.09, abs=0.04)
    with pytest.warns(ConvergenceWarning, match="reconstructed no better"):
        means = RBM(4, **options, grey="means", random_state=0).fit(data)
    assert abs(covariance(means.model_)) < 0.01


def test_bits_and_other_units_are_learnt_as_they_are() -> None:
    """Nothing is drawn from rows of bits: the option changes no number of theirs."""
    plain, means = (RBM(2, max_iter=3, grey=g, random_state=0).fit(ROWS) for g in ("bits", "means"))
    assert np.array_equal(plain.components_, means.components_)
    counts = RBM(2, visible="binomial:replicas=4", max_iter=3, random_state=0)
    assert not counts._has_grey(4 * GREY)
