"""Recordings in and out of files; what is broken is refused in one line."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import wavfile

from kikuchi.core.errors import DataError, KikuchiError, MethodError
from kikuchi.ica.recording import Recording
from kikuchi.ica.recordings import read_recording, write_recording, write_wav


def some(n_samples: int = 50, n_sensors: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n_samples, n_sensors))


# ---------------------------------------------------------------------- tables


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".npz"])
def test_tables_come_back_exactly(tmp_path, suffix):
    data = some()
    data[3, 1] = np.nan
    place = tmp_path / f"table{suffix}"
    rate = 250.0 if suffix == ".npz" else None
    assert write_recording(place, Recording(data, ("a", "b", "c"), rate)) == 1.0
    back = read_recording(place)
    assert np.array_equal(back.data, data, equal_nan=True)
    assert back.names == ("a", "b", "c")
    assert back.rate == rate
    assert list(tmp_path.iterdir()) == [place]


def test_tables_without_names_and_other_arrays(tmp_path):
    place = tmp_path / "plain.csv.gz"
    place.write_bytes(gzip.compress(b"1;2.5\n3;?\n\n5;-1e3\n"))
    found = read_recording(place, rate=10)
    assert found.data.shape == (3, 2)
    assert np.isnan(found.data[1, 1])
    assert (found.names, found.seconds) == (("sensor 1", "sensor 2"), 0.3)
    np.save(tmp_path / "a.npy", some())
    assert np.array_equal(read_recording(tmp_path / "a.npy").data, some())
    np.savez(tmp_path / "b.npz", signals=some())
    assert np.array_equal(read_recording([tmp_path / "b.npz"]).data, some())


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("", "empty"),
        ("a,b\n", "no rows"),
        ("a,b\n1,2\n3\n", "line 3 has 1 cells"),
        ("1,2\n3,x4\n", "line 2, column 2: 'x4' is not a number"),
    ],
)
def test_broken_tables(tmp_path, content, word):
    place = tmp_path / "broken.csv"
    place.write_text(content)
    with pytest.raises(DataError, match=word) as caught:
        read_recording(place)
    assert str(place) in str(caught.value)


def test_broken_arrays(tmp_path):
    place = tmp_path / "x.npz"
    place.write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(DataError, match="cannot be read"):
        read_recording(place)
    np.savez(place, one=some(), two=some())
    with pytest.raises(DataError, match="there must be an array 'data'"):
        read_recording(place)
    np.savez(place, data=np.array(["a", "b"]))
    with pytest.raises(DataError, match="must be numbers"):
        read_recording(place)
    np.savez(place, data=some(), rate=-1.0)
    with pytest.raises(DataError, match="rate"):
        read_recording(place)
    np.savez(place, data=np.array([{}], dtype=object))
    with pytest.raises(DataError, match="cannot be read"):  # would need to run code: refused
        read_recording(place)


def test_wrong_files(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_recording(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"not a recording.*did you mean '.wav'"):
        read_recording(tmp_path / "x.wave")
    with pytest.raises(DataError, match="no files"):
        read_recording([])
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("1,2\n3,4\n")
    with pytest.raises(DataError, match="only if all are"):
        read_recording([tmp_path / "a.csv", tmp_path / "b.csv"])
    with pytest.raises(MethodError, match="rate"):
        read_recording(tmp_path / "a.csv", rate=0)
    with pytest.raises(DataError, match="cannot write"):
        write_recording(tmp_path / "a.txt", Recording(some()))
    with pytest.raises(DataError, match="needs the rate"):
        write_recording(tmp_path / "a.wav", Recording(some()))


def test_recordings_check_themselves():
    with pytest.raises(DataError, match="samples and sensors"):
        Recording(np.zeros(3))
    with pytest.raises(DataError, match="2 names for 3"):
        Recording(some(), ("a", "b"))
    with pytest.raises(DataError, match="mask"):
        Recording(some(), mask=np.ones((2, 2, 2), dtype=bool))
    with pytest.raises(DataError, match="no mask"):
        Recording(some()).volume(np.zeros(3))


# ---------------------------------------------------------------------- sound


def test_sound_is_normalised_and_the_gain_told(tmp_path):
    signal = 40.0 * some(400, 2)
    place = tmp_path / "two.wav"
    gain = write_wav(place, signal, 8000, peak=0.5)
    back = read_recording(place)
    assert gain == pytest.approx(0.5 / np.abs(signal).max())
    assert back.data == pytest.approx(gain * signal, abs=1.1 / 32767)
    assert (back.rate, back.names) == (8000.0, ("two 1", "two 2"))
    assert write_wav(place, np.zeros(5), 8000) == 1.0
    assert write_recording(place, Recording(signal, rate=100.0)) == pytest.approx(1.8 * gain)


def test_several_waves_are_the_sensors_of_one(tmp_path):
    for name, column in zip("ab", some(300, 2).T, strict=True):
        write_wav(tmp_path / f"{name}.wav", column, 8000)
    found = read_recording([tmp_path / "a.wav", tmp_path / "b.wav"])
    assert found.data.shape == (300, 2)
    assert found.names == ("a", "b")
    write_wav(tmp_path / "b.wav", np.ones(300), 16000)
    with pytest.raises(DataError, match=r"16000 samples per second.*has 8000; bring all"):
        read_recording([tmp_path / "a.wav", tmp_path / "b.wav"])
    write_wav(tmp_path / "b.wav", np.ones(299), 8000)
    with pytest.raises(DataError, match=r"299 samples.*has 300; cut all"):
        read_recording([tmp_path / "a.wav", tmp_path / "b.wav"])


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int32, np.float32])
def test_every_width_of_samples(tmp_path, kind):
    signal = np.linspace(-0.9, 0.9, 64)
    place = tmp_path / "x.wav"
    if kind == np.uint8:
        stored = np.round(128 + 127 * signal).astype(kind)
    elif kind == np.float32:
        stored = signal.astype(kind)
    else:
        stored = np.round(signal * np.iinfo(kind).max).astype(kind)
    wavfile.write(place, 8000, stored)
    assert read_recording(place).data[:, 0] == pytest.approx(signal, abs=0.01)


def test_broken_waves(tmp_path):
    place = tmp_path / "x.wav"
    write_wav(place, some(400, 1), 8000)
    good = place.read_bytes()
    broken = {
        "nothing": b"",
        "text": b"this is not sound at all, not even a little",
        "head only": good[:30],
        "cut": good[: len(good) // 2],
        "no samples": good[:40] + struct.pack("<I", 0),
        "no format": good[:12] + b"junk" + good[16:],
        "zero rate": good[:24] + struct.pack("<I", 0) + good[28:],
    }
    for content in broken.values():
        place.write_bytes(content)
        with pytest.raises(DataError, match=r"x\.wav: ") as caught:
            read_recording(place)
        assert "\n" not in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 59), value=st.integers(0, 255), cut=st.integers(0, 60))
def test_any_damage_to_a_head_is_read_or_refused(tmp_path_factory, place, value, cut):
    folder = tmp_path_factory.mktemp("waves")
    path = folder / "x.wav"
    write_wav(path, np.linspace(-1, 1, 50), 8000)
    content = bytearray(path.read_bytes())
    content[place] = value
    path.write_bytes(bytes(content[: len(content) - cut]))
    try:
        assert np.isfinite(read_recording(path).data).all()
    except KikuchiError as error:
        assert "\n" not in str(error)


def test_bad_sound_is_not_written(tmp_path):
    place = tmp_path / "x.wav"
    for signal, rate, peak, word in (
        (np.array([np.nan, 1.0]), 8000, 0.9, "finite"),
        (np.zeros((2, 2, 2)), 8000, 0.9, "samples"),
        (np.ones(3), 0.5, 0.9, "whole rate"),
        (np.ones(3), 8000, 1.5, "peak"),
    ):
        with pytest.raises(KikuchiError, match=word):
            write_wav(place, signal, rate, peak=peak)
    assert not place.exists()
