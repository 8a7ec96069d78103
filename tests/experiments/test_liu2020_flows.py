"""Classification and speech by flows (LIU-X6, LIU-X7)."""

import numpy as np
import pytest
from scipy.io import wavfile

from kikuchi.core.errors import KikuchiError
from kikuchi_experiments.catalogue import find_experiment
from kikuchi_experiments.experiment import Finished
from kikuchi_experiments.liu2020 import flow_models


def test_classes_on_few_rows(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 100)
    x = rng.normal(size=(300, 2)) + 2.5 * np.array([[0, 0], [1, 1], [2, 0]])[y]
    order = rng.permutation(300)
    monkeypatch.setattr(flow_models, "_classes", lambda name: (x[order], y[order], 200))
    experiment = find_experiment("LIU-X6")
    [case] = [c for c in experiment.cases(experiment.quick.parameters, range(1))
              if c["table"] == "satimage" and c["components"] == 1]  # fmt: skip
    result = experiment.run_case({**case, "rows": 150, "epochs": 2})
    assert 0.8 < result["gaussians"] < 1.0 and 0.8 < result["flows"] < 1.0
    assert result["machine"] > 0.8 and result["learnt"] == 150
    [row] = experiment.rows([Finished(case, result, 0.0)])
    assert row.published == 0.89 and "150 rows only" in row.note
    assert row.verdict == "not comparable"  # with fewer rows than the source has
    [row] = experiment.rows([Finished(case, {**result, "learnt": 200}, 0.0)])
    assert row.agrees == (result["flows"] >= 0.885)
    assert len(experiment.figure([Finished(case, result, 0.0)]).axes) == 1


def test_rows_of_speech():
    experiment = find_experiment("LIU-X7", "somewhere")
    case = {"speaker": "ann", "components": 1}
    result = {"flows": 0.9, "gaussians": 0.8, "full": 0.95, "error over gaussians": 0.03,
              "error over full": 0.04, "count": 100, "start": "full", "rounds": 2}  # fmt: skip
    finished = [Finished(case, result, 0.0), Finished({**case, "speaker": "bob"}, result, 0.0)]
    *speakers, flows, _, _, gain, over_full = experiment.rows(finished)
    assert gain.ours == pytest.approx(0.1) and gain.agrees
    assert over_full.ours == pytest.approx(-0.05) and not over_full.agrees
    assert "± 0.0212; more than two" in gain.note and "± 0.0283; less" in over_full.note
    assert "76.7 % against 62.3 %" in flows.note
    assert [row.quantity for row in speakers] == [
        f"flows minus Gaussians, {who}, 1 component" for who in ("ann", "bob")
    ]
    assert "± 0.0300; 0.900 against 0.800, full covariances 0.950" in speakers[0].note
    assert "begun from full ones, 2 rounds" in speakers[0].note
    with pytest.raises(KikuchiError, match="--data"):
        find_experiment("LIU-X7").run_case({**case, "data": None})


@pytest.mark.slow
def test_speech_of_tones(tmp_path):
    """Digits that are tones, followed by others, are told apart for a new speaker; steady tones
    would not be, as every recording is taken from its own mean.
    """
    rng = np.random.default_rng(0)
    time = np.arange(2400) / 8000
    for digit in range(10):
        for who in ("ann", "bob", "cat"):
            for number in range(4):
                pitch = np.where(time < 0.15, 250 + 330 * digit, 3550 - 330 * digit)
                tone = np.sin(2 * np.pi * pitch * time + rng.uniform(0, 6))
                sound = 3000 * (tone + 0.3 * rng.normal(size=len(time)))
                wavfile.write(
                    tmp_path / f"{digit}_{who}_{number}.wav", 8000, sound.astype(np.int16)
                )
    experiment = find_experiment("LIU-X7", str(tmp_path))
    case = {
        "data": str(tmp_path), "speaker": "cat", "components": 1, "coefficients": 5,
        "recordings": 4, "states": 2, "rounds": 1, "seed": 0, "noise": 0.3, "learning_rate": 5e-4,
    }  # fmt: skip
    result = experiment.run_case(case)
    assert result["flows"] > 0.7 and result["gaussians"] > 0.7 and result["count"] == 40
    assert len(result["heard"]) == 2 and result["rounds"] == np.argmax(result["heard"])
    assert result["start"] in ("diagonal", "full")
    with pytest.raises(KikuchiError, match="nobody called dan"):
        experiment.run_case({**case, "speaker": "dan"})
