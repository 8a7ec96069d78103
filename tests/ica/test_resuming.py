"""A fit that was killed, interrupted or ran out of time goes on and ends with the same numbers."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kikuchi.core.errors import DataError, MethodError
from kikuchi.ica import InfomaxICA, MeanFieldICA
from kikuchi.ica.priors.numerical import LogDensityPrior
from kikuchi.training.checkpoint import Checkpoint


class Crash(Exception):
    """The end of a process, as far as its files can tell."""


class CrashAfter:
    """Progress that ends the fit after so many steps, by `error`."""

    def __init__(self, steps: int, error: type[BaseException] = Crash) -> None:
        self.left, self.error = steps, error

    def __call__(self, done: int, total: int, *, residual: Any, objective: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error


@pytest.fixture(autouse=True)
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is told and written."""
    monkeypatch.setattr("kikuchi.core.run._PROGRESS_EVERY", 0.0)
    monkeypatch.setattr(Checkpoint, "due", property(lambda self: True))


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(3, 2))
    sources = rng.laplace(size=(300, 2)) + 0.3 * rng.choice([-1.0, 1.0], size=(300, 2))
    return sources @ mixing.T + 0.2 * rng.normal(size=(300, 3))


def fitted(cls: Any, rows: np.ndarray, *args: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cls(*args, **options).fit(rows)


def assert_same(one: Any, two: Any) -> None:
    for name in ("mixing_", "components_", "mean_"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
    for name in ("n_iter_", "stopped_", "converged_"):
        assert getattr(one, name) == getattr(two, name), name
    assert one.trace_.iterations == two.trace_.iterations
    assert np.array_equal(one.trace_.objective, two.trace_.objective, equal_nan=True)
    assert np.array_equal(one.trace_.residual, two.trace_.residual, equal_nan=True)


def crash_and_resume(
    cls: Any, rows: np.ndarray, path: Path, steps: list[int], **options: Any
) -> Any:
    """The fit that goes on after crashing at each of these numbers of steps."""
    for count in steps:
        with pytest.raises(Crash):
            fitted(cls, rows, checkpoint=path, progress=CrashAfter(count), **options)
        assert path.exists()
    return fitted(cls, rows, checkpoint=path, **options)


SHARED = {"n_components": 2, "max_iter": 12, "tol": 1e-9, "random_state": 3}


@pytest.mark.parametrize(
    "options",
    [{"posterior": "lr"}, {"posterior": "adatap"}, {"posterior": "lr", "batch_size": 70}],
)
def test_fits_that_change_the_kind_of_noise_go_on_after_a_crash(
    options: dict[str, Any], rows: np.ndarray, tmp_path: Path
) -> None:
    """Crashes before and after the step at which channels are found to differ."""
    own = rows + np.random.default_rng(1).normal(size=rows.shape) * [0.1, 0.5, 1.5]
    options = {**SHARED, "n_components": 1, **options}
    whole = fitted(MeanFieldICA, own, **options)
    again = crash_and_resume(MeanFieldICA, own, tmp_path / "fit", [3, 6], **options)
    assert whole.noise_.shape == (3,)
    assert_same(whole, again)
    assert np.array_equal(whole.noise_, again.noise_)


def test_seeds_that_nobody_gave_are_in_the_file(rows: np.ndarray, tmp_path: Path) -> None:
    options = {**SHARED, "random_state": None, "n_init": 2, "start": "random"}
    first = fitted(MeanFieldICA, rows, checkpoint=tmp_path / "fit", **options)
    again = fitted(MeanFieldICA, rows, checkpoint=tmp_path / "fit", **options)  # complete already
    assert_same(first, again)


SCRIPT = """
    import os, signal, sys
    import numpy as np
    import kikuchi.core.run
    from kikuchi.ica import MeanFieldICA
    from kikuchi.training.checkpoint import Checkpoint

    kikuchi.core.run._PROGRESS_EVERY = 0.0
    Checkpoint.due = property(lambda self: True)
    left = 5

    def killing(done, total, *, residual, objective):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    rows = np.load(sys.argv[1])
    options = dict(n_components=2, max_iter=12, tol=1e-9, random_state=3)
    MeanFieldICA(checkpoint=sys.argv[2], progress=killing, **options).fit(rows)
"""


def test_a_killed_process_goes_on(rows: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", rows)
    script = textwrap.dedent(SCRIPT)
    words = [sys.executable, "-c", script, str(tmp_path / "rows.npy"), str(tmp_path / "fit")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    again = fitted(MeanFieldICA, rows, checkpoint=tmp_path / "fit", **SHARED)
    assert_same(fitted(MeanFieldICA, rows, **SHARED), again)


def test_a_checkpoint_belongs_to_one_fit(rows: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "fit"
    fitted(MeanFieldICA, rows, checkpoint=path, **SHARED)
    for other, word in (
        ({"random_state": 4}, "random_state"),
        ({"prior": "binary"}, "options"),
        ({"noise": np.full(3, 0.04)}, "options"),
    ):
        with pytest.raises(DataError, match=f"another training: its {word}"):
            fitted(MeanFieldICA, rows, checkpoint=path, **{**SHARED, **other})
    with pytest.raises(DataError, match="its data"):
        fitted(MeanFieldICA, rows + 1.0, checkpoint=path, **SHARED)
    with pytest.raises(DataError, match="its estimator"):
        fitted(InfomaxICA, rows, checkpoint=path)


def test_what_no_file_can_hold_is_refused(rows: np.ndarray, tmp_path: Path) -> None:
    quartic = LogDensityPrior(lambda s: -(s**4) / 4, lambda s: -(s**3))
    with pytest.raises(MethodError, match="source 0 has prior log-density, whose functions no"):
        fitted(MeanFieldICA, rows, 1, prior=quartic, max_iter=2, checkpoint=tmp_path / "fit")
    with pytest.raises(MethodError, match="several fits"):
        MeanFieldICA(checkpoint=tmp_path / "fit").choose_sources(rows, [1, 2])


def test_a_state_within_scoring_is_like_one_before_it() -> None:
    from kikuchi.ica.scoring import AndersonScoring
    from kikuchi.training.checkpoint import check_like

    before, within = AndersonScoring(), AndersonScoring()
    within.points, within.steps = [np.zeros(4)] * 2, [np.ones(4)] * 2
    check_like(within.state(), before.state(), varying=("points", "steps"))
    again = AndersonScoring.from_state(within.state())
    assert np.array_equal(again.points, within.points) and len(again.steps) == 2
    assert AndersonScoring.from_state(before.state()).points == []


def test_scoring_that_was_killed_after_its_last_state_finds_its_errors_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    rows = rng.laplace(size=(300, 2)) @ rng.normal(size=(2, 3)) + 0.1 * rng.normal(size=(300, 3))
    whole = MeanFieldICA(2, solver="scoring", random_state=0).fit(rows)

    def killed(*_: Any) -> None:
        raise Crash

    options: dict[str, Any] = {"solver": "scoring", "random_state": 0}
    with monkeypatch.context() as patched, pytest.raises(Crash):
        patched.setattr("kikuchi.ica.restarts.RestartFile.keep", killed)
        MeanFieldICA(2, checkpoint=tmp_path / "fit", **options).fit(rows)
    again = MeanFieldICA(2, checkpoint=tmp_path / "fit", **options).fit(rows)
    assert np.array_equal(again.noise_error_, whole.noise_error_)
    assert again.trace_.objective == whole.trace_.objective
