"""A fit tells how far it is, and its time limit covers all that it does."""

from __future__ import annotations

import time

import numpy as np
import pytest

from kikuchi.ica import MeanFieldICA


def mixtures(samples: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    sources = rng.laplace(size=(samples, 3))
    return sources @ rng.normal(size=(3, 3)) + 0.1 * rng.standard_normal((samples, 3))


@pytest.mark.parametrize(("restarts", "processes"), [(1, 1), (3, 1), (3, 2)])
@pytest.mark.filterwarnings("ignore:MeanFieldICA")
def test_iterations_and_restarts_are_told(restarts: int, processes: int, monkeypatch) -> None:
    monkeypatch.setattr("kikuchi.core.run._PROGRESS_EVERY", 0.0)
    told: list[tuple[int, int]] = []

    def progress(done: int, total: int, *, residual, objective) -> None:
        told.append((done, total))

    MeanFieldICA(
        3, n_init=restarts, processes=processes, max_iter=30, random_state=0, progress=progress
    ).fit(mixtures(500))
    iterations = [t for t in told if t[1] == 30]
    assert iterations[0] == (1, 30)
    if processes == 1:
        assert sum(done == 1 for done, _ in iterations) == restarts
    else:
        assert [t for t in told if t[1] == 2] == [(1, 2), (2, 2)]


def test_the_time_limit_covers_start_and_restarts() -> None:
    data = mixtures(20_000)
    options = {"posterior": "adatap", "tol": 0.0, "random_state": 0}
    with pytest.warns(UserWarning, match="not converged"):
        MeanFieldICA(3, max_iter=1, **options).fit(data)  # loads what is compiled
    begin = time.monotonic()
    limited = MeanFieldICA(3, n_init=20, seconds=0.5, max_iter=10**6, **options)
    with pytest.warns(UserWarning, match="seconds"), pytest.warns(UserWarning, match="left out"):
        limited.fit(data)
    assert time.monotonic() - begin < 10
