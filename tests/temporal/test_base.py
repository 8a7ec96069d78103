"""The shell of models of sequences: what all of them say and refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from kikuchi.core.errors import DataError
from kikuchi.temporal import (
    HMM,
    FactorialHMM,
    LinearGaussianSSM,
)

ROWS = np.random.default_rng(0).normal(size=(12, 2))


@pytest.mark.parametrize("family", [HMM, LinearGaussianSSM])
def test_columns_of_data_frames_keep_their_names(family: Any, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=["left", "right"])
    model = family(max_iter=1, random_state=0).fit(frame)
    model.save(tmp_path / "model")
    for fitted in (model, family.load(tmp_path / "model")):
        assert fitted.feature_names_in_.tolist() == ["left", "right"]
        assert fitted.score(frame) == fitted.score(ROWS) == fitted.score([ROWS])
        with pytest.raises(DataError, match=r"^X has columns right, left, but .* left, right;"):
            fitted.score(frame[["right", "left"]])
    assert not hasattr(model.fit(ROWS), "feature_names_in_")
    assert np.isfinite(model.score(frame))
    with pytest.raises(DataError, match="sequence 1 of X are not named as those before"):
        model.fit([frame, frame[["right", "left"]]])


BY_DESIGN = {
    "check_fit1d": "one column may be given as a vector",
    "check_methods_sample_order_invariance": "rows follow each other in time",
    "check_methods_subset_invariance": "rows follow each other in time",
}


@pytest.mark.parametrize("family", [HMM, FactorialHMM, LinearGaussianSSM])
@pytest.mark.filterwarnings("ignore")
def test_conventions_of_scikit_learn(family: Any) -> None:
    found = check_estimator(family(max_iter=2), on_skip=None, expected_failed_checks=BY_DESIGN)
    assert len(found) > 30


def test_entries_that_are_no_numbers_are_refused() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    bad = {
        r"X is sparse.*use X.toarray\(\)": sparse.csr_array(ROWS),
        "X is not a table of numbers": [[{"a": 1}, 2.0], [1.0, 2.0]],
        r"X is empty: 0 feature\(s\)": ROWS[:, :0],
        r"X is empty: 0 sample\(s\)": ROWS[:0],
    }
    for message, rows in bad.items():
        with pytest.raises(DataError, match=message):
            HMM(2).fit(rows)
    model = HMM(2, max_iter=1).fit(ROWS)
    with pytest.raises(DataError, match=r"1 features.*expecting 2.*Reshape your data to \(time, 2"):
        model.predict(ROWS[:, 0])
