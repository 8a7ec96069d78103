"""TEH-E3 to TEH-E7: experts of the thesis in small settings, and what their tables say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("sklearn")

from kikuchi.core.errors import DataError
from kikuchi.plots import to_svg
from kikuchi_experiments.catalogue import find_experiment
from kikuchi_experiments.experiment import Finished
from kikuchi_experiments.teh2003.features import BAND, GABOR, excess_kurtosis
from kikuchi_experiments.teh2003.separation import LEARNERS, SourceSeparation


def separated(tmp_path: Path, **changes: object) -> list[Finished]:
    """Four recorded sources, few updates."""
    rng = np.random.default_rng(0)
    file = tmp_path / "sources.npy"
    np.save(file, rng.laplace(size=(4000, 4)))
    experiment = SourceSeparation(str(file))
    parameters = {**experiment.setting(True).parameters, "updates": 200, **changes}
    cases = experiment.cases(parameters, [0])
    return [Finished(case, experiment.run_case(case), 0.0) for case in cases]


def test_all_learners_find_recorded_sources(tmp_path: Path) -> None:
    """TEH-T39 in small."""
    # TEH-E3
    finished = separated(tmp_path)
    ends = {one.case["learner"]: one.result["distances"] for one in finished}
    assert set(ends) == set(LEARNERS)
    assert all(np.shape(distances) == (3, 5) for distances in ends.values())
    assert all(np.all(np.array(distances)[:, -1] < 1.0) for distances in ends.values())
    rows = SourceSeparation().rows(finished)
    assert len(rows) == 7 and "as fast" in [row.published for row in rows]
    assert "contrastive" in to_svg(SourceSeparation().figure(finished))


@pytest.mark.slow
def test_a_run_learns_the_same_beside_others(tmp_path: Path) -> None:
    """Runs of a case share a compiled loop and nothing else; exact learning has no random keys."""
    few = separated(tmp_path, updates=20, runs=1)[0].result["distances"]
    more = separated(tmp_path, updates=20, runs=2)[0].result["distances"]
    np.testing.assert_allclose(few[0], more[0], rtol=1e-3)
    assert abs(more[1][-1] / more[0][-1] - 1) > 1e-3


def test_constant_sources_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "flat.npy"
    np.save(file, np.ones((50, 3)))
    experiment = SourceSeparation(str(file))
    case = experiment.cases(experiment.setting(True).parameters, [0])[0]
    with pytest.raises(DataError, match="none of them constant"):
        experiment.run_case(case)


SMALL = {
    "TEH-E4": {"seconds": 0.5, "rows": 800, "features": 110, "updates": 20},
    "TEH-E5": {"rows": 1500, "features": 64, "updates": 20},
    "TEH-E6": {"components": 30, "features": 36, "updates": 60},
    "TEH-E7": {"side": 14, "components": 20, "features": 25, "updates": 40},
}


@pytest.mark.parametrize("name", SMALL)
def test_features_are_learnt_and_tabled(name: str) -> None:
    """The whole way in a size that says nothing about the claims."""
    experiment = find_experiment(name)
    parameters = {**experiment.setting(True).parameters, **SMALL[name]}
    parameters["learner"] = "cd:leapfrogs=2,radial=true"
    cases = experiment.cases(parameters, [0])
    finished = [Finished(case, experiment.run_case(case), 0.0) for case in cases]
    rows = experiment.rows(finished)
    assert all(row.ours is not None for row in rows)
    assert sum(row.judgement is not None for row in rows) >= 1
    assert "svg" in to_svg(experiment.figure(finished))


def test_kurtosis_is_that_of_known_densities() -> None:
    rng = np.random.default_rng(0)
    assert excess_kurtosis(rng.normal(size=(200_000, 2))) == pytest.approx(0.0, abs=0.05)
    assert excess_kurtosis(rng.laplace(size=(200_000, 2))) == pytest.approx(3.0, abs=0.3)
    assert BAND[0] < 1500 < BAND[1] and GABOR == 0.8
