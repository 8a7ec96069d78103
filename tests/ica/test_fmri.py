"""Brain scans: NIfTI, masks, trends, orientations (HOJ-M11), stimuli."""

from __future__ import annotations

import gzip
import sys

import numpy as np
import pytest

from kikuchi.core.errors import DataError, KikuchiError, MethodError, MissingExtraError
from kikuchi.ica.fmri import (
    brain_mask,
    components_of,
    detrended,
    expected_course,
    haemodynamic_response,
    read_nifti,
    samples_of,
    stimulus_correlation,
    trends,
    write_maps,
)
from kikuchi.ica.infomax.infomax_ica import InfomaxICA
from kikuchi.ica.recording import Recording
from kikuchi.ica.recordings import read_recording
from kikuchi_experiments.data.brain import brain_file, simulate_brain

nibabel = pytest.importorskip("nibabel")


@pytest.fixture(scope="module")
def brain():
    return simulate_brain((24, 24, 10), 60, seed=3)


@pytest.fixture(scope="module")
def scan_file(brain, tmp_path_factory):
    image = nibabel.Nifti1Image(brain.scans, brain.affine)
    image.header.set_zooms((3.0, 3.0, 3.0, brain.interval))
    image.header.set_xyzt_units("mm", "sec")
    place = tmp_path_factory.mktemp("scans") / "bold.nii.gz"
    nibabel.save(image, place)
    return place


# ---------------------------------------------------------------------- files


def test_scans_come_in_and_maps_go_out(brain, scan_file, tmp_path):
    recording = read_recording(scan_file)
    assert recording.rate == pytest.approx(1 / brain.interval)
    assert recording.shape == (24, 24, 10)
    assert np.array_equal(recording.affine, brain.affine)
    inside = recording.mask
    assert np.array_equal(recording.data, brain.scans[inside].T)
    maps = np.random.default_rng(0).standard_normal((2, recording.n_sensors))
    for name in ("maps.nii.gz", "maps.nii"):
        write_maps(tmp_path / name, maps, recording)
        back = nibabel.load(tmp_path / name)
        assert back.shape == (24, 24, 10, 2)
        assert np.array_equal(back.affine, brain.affine)
        values = back.get_fdata()
        assert np.abs(values[inside].T - maps).max() < 1e-6
        assert not values[~inside].any()
    write_maps(tmp_path / "one.nii", maps[0], recording)
    assert nibabel.load(tmp_path / "one.nii").shape == (24, 24, 10)


def test_masks_of_every_kind(brain, scan_file, tmp_path):
    everything = read_nifti(scan_file, mask=None)
    assert everything.n_sensors == 24 * 24 * 10
    given = read_nifti(scan_file, mask=brain.mask)
    assert given.n_sensors == brain.mask.sum()
    place = tmp_path / "mask.nii"
    nibabel.save(nibabel.Nifti1Image(brain.mask.astype(np.uint8), brain.affine), place)
    assert np.array_equal(read_nifti(scan_file, mask=str(place)).mask, given.mask)
    hollow = np.where(brain.mask, 1.0, np.nan)
    assert np.array_equal(read_nifti(scan_file, mask=hollow).mask, given.mask)
    with pytest.raises(DataError, match="the mask has shape"):
        read_nifti(scan_file, mask=np.ones((2, 2, 2)))
    with pytest.raises(DataError, match="no voxel inside"):
        read_nifti(scan_file, mask=np.zeros((24, 24, 10)))


def test_the_automatic_mask_finds_the_brain(brain):
    found = brain_mask(brain.scans)
    assert (found & brain.mask).sum() / (found | brain.mask).sum() > 0.99
    with pytest.raises(DataError, match="alike"):
        brain_mask(np.ones((5, 5, 5)))
    with pytest.raises(DataError, match="finite volumes"):
        brain_mask(np.ones((5, 5)))


def test_a_volume_without_background_is_reported():
    rng = np.random.default_rng(0)
    for level in (100.0, 0.0):
        scans = level + rng.normal(size=(10, 10, 6, 20))
        scans[3:6, 3:6, 2:4] += 8.0
        with pytest.warns(UserWarning, match="kept 18 of 600 voxels.*mask=None"):
            brain_mask(scans)


@pytest.mark.filterwarnings("error")
def test_a_volume_with_background_is_not_reported(brain):
    brain_mask(brain.scans)


def test_times_in_milliseconds(brain, tmp_path):
    image = nibabel.Nifti1Image(brain.scans, brain.affine)
    image.header.set_zooms((3.0, 3.0, 3.0, 1500.0))
    image.header.set_xyzt_units("mm", "msec")
    nibabel.save(image, tmp_path / "ms.nii")
    assert read_nifti(tmp_path / "ms.nii").rate == pytest.approx(1 / 1.5)


def test_real_recordings_of_the_registry():
    recording = read_recording(brain_file("fmri1"))
    assert recording.n_samples == 40
    assert recording.rate == pytest.approx(1 / 1.35, rel=1e-6)
    assert 500 < recording.n_sensors <= 1800


def test_broken_files(brain, scan_file, tmp_path):
    good = gzip.decompress(scan_file.read_bytes())
    broken = {
        "empty.nii": b"",
        "text.nii": b"no brain here" * 50,
        "cut.nii": good[:5000],
        "cut.nii.gz": scan_file.read_bytes()[:5000],
        "head.nii": good[:100],
        "type.nii": good[:70] + b"\x77\x77" + good[72:],
        "size.nii": good[:40] + b"\xff\x7f" * 8 + good[56:],
        "magic.nii": good[:344] + b"XXXX" + good[348:],
        "table.nii.gz": gzip.compress(b"1,2,3\n"),
    }
    for name, content in broken.items():
        place = tmp_path / name
        place.write_bytes(content)
        with pytest.raises(DataError, match=name) as caught:
            read_recording(place)
        assert "\n" not in str(caught.value)
    flat = tmp_path / "flat.nii"
    nibabel.save(nibabel.Nifti1Image(brain.anatomy, brain.affine), flat)
    with pytest.raises(DataError, match="expected volumes over time"):
        read_recording(flat)
    scans = brain.scans.copy()
    scans[0, 0, 0, 0] = np.nan
    nibabel.save(nibabel.Nifti1Image(scans, brain.affine), flat)
    with pytest.raises(DataError, match="NaN"):
        read_recording(flat)


def test_bad_maps_are_not_written(scan_file, tmp_path):
    recording = read_recording(scan_file)
    with pytest.raises(DataError, match="values for"):
        write_maps(tmp_path / "x.nii", np.zeros((2, 3)), recording)
    with pytest.raises(DataError, match=r"\.nii"):
        write_maps(tmp_path / "x.img", np.zeros((1, recording.n_sensors)), recording)
    for value in (np.nan, 1e300):
        with pytest.raises(DataError, match="finite numbers"):
            write_maps(tmp_path / "x.nii", np.full(recording.n_sensors, value), recording)
    assert not list(tmp_path.iterdir())


def test_a_missing_extra_is_one_line(monkeypatch, scan_file):
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[fmri\]'"):
        read_recording(scan_file)


# ---------------------------------------------------------------------- preparing


def test_trends_are_taken_away_and_nothing_else():
    time = np.linspace(0, 1, 90)
    fast = np.sin(2 * np.pi * 21 * time)
    slow = 3 + 2 * time - 4 * time**2
    recording = Recording(np.stack([slow, slow + fast], axis=1), rate=0.5)
    clean = detrended(recording, "polynomial", order=2).data
    assert clean[:, 0] == pytest.approx(0, abs=1e-12)
    assert np.corrcoef(clean[:, 1], fast)[0, 1] > 0.999
    mean = detrended(recording, "constant").data
    assert mean == pytest.approx(recording.data - recording.data.mean(axis=0))


def test_cosines_have_long_periods_only():
    # 180 s; periods over 60 s are those of k half waves with 360 / k > 60, or 60 itself.
    basis = trends(90, "cosine", cutoff=60.0, rate=0.5)
    assert basis.shape == (90, 7)
    assert basis.T @ basis == pytest.approx(np.eye(7), abs=1e-12)
    t = 2.0 * (np.arange(90) + 0.5)
    for period, left in ((120.0, 0.0), (20.0, 1.0)):
        wave = np.cos(2 * np.pi * t / period)
        rest = wave - basis @ (basis.T @ wave)
        assert np.linalg.norm(rest) / np.linalg.norm(wave) == pytest.approx(left, abs=1e-6)


def test_bad_trends():
    recording = Recording(np.ones((9, 2)))
    for options, word in (
        ({"kind": "cosine"}, "rate"),
        ({"kind": "wavy"}, "wavy"),
        ({"order": 9}, "order"),
        ({"order": 1.5}, "whole number"),
    ):
        with pytest.raises(KikuchiError, match=word):
            detrended(recording, **options)
    with pytest.raises(DataError, match="missing"):
        detrended(Recording(np.array([[1.0, np.nan], [2.0, 3.0]])), "constant")
    with pytest.raises(MethodError, match="cutoff"):
        detrended(Recording(np.ones((9, 2)), rate=1.0), "cosine", cutoff=0.0)


# ---------------------------------------------------------------------- orientations


@pytest.mark.parametrize("orientation", ["temporal", "spatial"])
def test_products_of_maps_and_courses_make_the_data(orientation):
    """HOJ-M11."""
    rng = np.random.default_rng(0)
    maps, courses = rng.standard_normal((2, 30)), rng.standard_normal((2, 12))
    recording = Recording(courses.T @ maps)
    samples = samples_of(recording, orientation)
    assert samples.shape == ((12, 30) if orientation == "temporal" else (30, 12))
    sources, mixing = (courses, maps) if orientation == "temporal" else (maps, courses)
    assert samples == pytest.approx(sources.T @ mixing)
    found = components_of(mixing.T, sources.T, orientation)
    assert np.array_equal(found.maps, maps)
    assert np.array_equal(found.courses, courses)
    up = found.upright()
    assert up.courses.T @ up.maps == pytest.approx(recording.data)
    assert np.array_equal(found.ordered([1, 0]).maps, maps[::-1])
    with pytest.raises(MethodError, match="orientation"):
        samples_of(recording, "sideways")
    with pytest.raises(DataError, match="different components"):
        components_of(mixing.T[:, :1], sources.T, orientation)


def test_components_of_the_simulated_brain(brain, scan_file):
    """From file to maps: all five spatial components, the first of them follows the stimulus."""
    recording = detrended(read_nifti(scan_file, mask=brain.mask), "constant")
    samples = samples_of(recording, "spatial")
    ica = InfomaxICA(5, prior="auto", random_state=0).fit(samples)
    found = components_of(ica.mixing_, ica.transform(samples), "spatial").upright()
    agreement = np.abs(np.corrcoef(found.courses, brain.courses)[:5, 5:])
    assert agreement.max(axis=0).min() > 0.9
    correlation = stimulus_correlation(found.courses, brain.stimulus, interval=brain.interval)
    best = int(np.argmax(np.abs(correlation)))
    assert abs(correlation[best]) > 0.95
    own = np.abs(np.corrcoef(found.maps[best], brain.voxel_maps[0])[0, 1])
    assert own > 0.9


# ---------------------------------------------------------------------- stimulus


def test_the_blood_is_late_and_smooth():
    response = haemodynamic_response(0.1)
    assert response.sum() == pytest.approx(1.0)
    assert 0.1 * np.argmax(response) == pytest.approx(5.0, abs=0.2)
    assert response.min() < 0  # the undershoot
    stimulus = np.zeros(60)
    stimulus[10:] = 1.0
    course = expected_course(stimulus, 1.0)
    assert np.array_equal(course[:10], np.zeros(10))
    assert course[-1] == pytest.approx(1.0, abs=1e-6)


def test_correlations_with_a_stimulus():
    stimulus = np.tile([0, 0, 0, 1, 1, 1], 5)
    rows = np.stack([3 - 2.0 * stimulus, expected_course(stimulus, 1.0), np.full(30, 0.1)])
    assert stimulus_correlation(rows, stimulus)[0] == pytest.approx(-1.0)
    blurred = stimulus_correlation(rows, stimulus, interval=1.0)
    assert blurred[1] == pytest.approx(1.0)
    assert blurred[2] == 0.0
    with pytest.raises(DataError, match="30 scans"):
        stimulus_correlation(rows, stimulus[:5])
    with pytest.raises(DataError, match="never changes"):
        stimulus_correlation(rows, np.ones(30))
    with pytest.raises(DataError, match="finite"):
        stimulus_correlation(rows, np.full(30, np.nan))
    with pytest.raises(DataError, match="one value per scan"):
        expected_course(np.zeros((3, 3)), 1.0)
    with pytest.raises(DataError, match="components, scans"):
        stimulus_correlation(np.zeros((2, 2, 3)), np.arange(2))
    with pytest.raises(MethodError, match="interval"):
        haemodynamic_response(0.0)
