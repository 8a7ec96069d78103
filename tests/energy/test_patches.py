"""Patches: what is rejected and counted, steps that can be undone, files, and bad input."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.feature_extraction.image import extract_patches_2d

from kikuchi.core.errors import DataError, KikuchiError, MethodError
from kikuchi.energy import ExpertICA, Patches, patches


@pytest.fixture(scope="module")
def picture():
    rng = np.random.default_rng(0)
    grey = rng.random((40, 60))
    grey[:, :20] = 0.5
    return grey


def test_every_place_gives_the_patches_of_scikit_learn(picture):
    found = patches([picture], 5, whiten="none", remove_mean=False)
    expected = extract_patches_2d(picture, (5, 5)).reshape(-1, 25)
    assert np.array_equal(found.rows, expected.astype(np.float32))


def test_flat_patches_are_rejected_and_counted(picture):
    every = extract_patches_2d(np.log(np.maximum(picture, 1 / 255)), (5, 5)).reshape(-1, 25)
    flat = int((every.std(axis=1) < 0.06).sum())
    found = patches([picture], 5, log=True, reject_flat=0.06)
    assert (found.preparation.flat, found.preparation.drawn) == (flat, len(every))
    few = patches([picture], 5, 500, log=True, reject_flat=0.06, seed=1)
    told = few.preparation
    assert len(few) == 500 == told.drawn - told.flat
    assert told.flat / told.drawn == pytest.approx(flat / len(every), abs=0.06)
    assert len(np.unique(few.rows, axis=0)) == 500  # each from another place


def test_many_places_are_drawn_without_repetition():
    rng = np.random.default_rng(0)
    found = patches([rng.normal(size=(400, 400))], 2, 100, whiten="none", seed=3)
    assert len(np.unique(found.rows, axis=0)) == 100
    again = patches([rng.normal(size=(400, 400))], 2, 100, whiten="none", seed=3)
    assert not np.array_equal(found.rows, again.rows)  # another picture


@pytest.mark.parametrize("kind", ["zca", "pca"])
def test_whitening_is_undone_and_matches_scikit_learn(picture, kind):
    raw = patches([picture], 4, 800, log=True, reject_flat=0.06, whiten="none")
    white = patches([picture], 4, 800, log=True, reject_flat=0.06, whiten=kind)
    assert np.allclose(raw.rows.mean(axis=1), 0, atol=1e-6)
    assert white.undone() == pytest.approx(raw.rows, abs=1e-4)
    peer = PCA(15, whiten=True).fit_transform(raw.rows.astype(float))
    gram = white.rows @ white.rows.T  # the same whichever way white rows are turned
    assert gram == pytest.approx(peer @ peer.T * 800 / 799, abs=0.05)


def test_contrast_is_normalised(picture):
    found = patches([picture], 5, reject_flat=0.01, normalise=True, whiten="none")
    assert found.rows.std(axis=1) == pytest.approx(1.0, abs=1e-5)


def test_filters_and_directions_in_the_space_of_the_pieces(picture):
    found = patches([picture], 4, 500, log=True, reject_flat=0.06)
    told, white = found.preparation, np.random.default_rng(0).normal(size=(3, 16))
    centred = found.undone() - told.whitening.mean
    assert centred @ told.filters(white).T == pytest.approx(found.rows @ white.T, abs=1e-3)
    assert told.directions(found.rows[:3]) == pytest.approx(centred[:3], abs=1e-5)


def test_other_pictures_in_the_same_way(picture):
    first = patches([picture], 4, 500, log=True, reject_flat=0.06)
    other = patches([picture[:, 30:]], 4, 200, like=first.preparation)
    assert np.array_equal(other.preparation.whitening.forward, first.preparation.whitening.forward)
    assert other.preparation.reject_flat == 0.06 and len(other) == 200


def test_windows_of_sounds():
    sound = np.sin(np.arange(500.0))
    found = patches([sound], 10, remove_mean=False, whiten="none", rate=8000.0)
    assert found.shape == (491, 10) and found.preparation.shape == (10,)
    assert found.rows[7] == pytest.approx(sound[7:17], abs=1e-6)


def test_steps_go_into_files_and_models(picture, tmp_path):
    found = patches([picture], 4, 500, log=True, reject_flat=0.06, names=["noise"])
    found.save(tmp_path / "p.npz")
    again = Patches.load(tmp_path / "p.npz")
    assert np.array_equal(again.rows, found.rows)
    assert again.preparation.to_dict() == found.preparation.to_dict()
    model = ExpertICA(n_components=20, max_iter=1, random_state=0).fit(again)
    assert model.whitening_.kind == "pca" and model.filters_.shape == (20, 16)
    model.save(tmp_path / "m.safetensors")
    kept = ExpertICA.load(tmp_path / "m.safetensors").preparation_
    assert kept.to_dict() == found.preparation.to_dict()
    assert np.array_equal(kept.whitening.backward, found.preparation.whitening.backward)
    others = patches([picture], 4, 300, log=True, reject_flat=0.06, seed=1)
    with pytest.raises(DataError, match="prepared in another way"):
        model.transform(others)
    like = patches([picture], 4, 300, like=found.preparation, seed=1)
    assert model.transform(like).shape == (300, 20)
    assert model.fit(np.asarray(found.rows[:, :8])).preparation_ is None


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([], {}, "no pictures or sounds"),
        ([np.zeros((3, 3))], {}, "no source is as large"),
        ([np.full((9, 9), np.nan)], {}, "not finite"),
        ([-np.ones((9, 9))], {"log": True}, "no logarithm"),
        ([np.ones((9, 9)), np.ones(9)], {}, "two axes, or sounds of one"),
        ([np.ones((9, 9))], {"reject_flat": 0.1}, "not flat"),
        ([np.eye(9)], {"count": 1000}, "36 of them not flat, and 1000 are needed"),
        ([np.eye(9)], {"count": 10}, "cannot be whitened to 15"),
    ],
)
def test_bad_input_is_one_line(arguments, options, message):
    with pytest.raises(DataError, match=message) as caught:
        patches(arguments, 4, **options)
    assert "\n" not in str(caught.value)


def test_bad_options_are_refused(picture):
    with pytest.raises(MethodError, match="components"):
        patches([picture], 4, whiten="none", components=3)
    with pytest.raises(MethodError, match="whiten is"):
        patches([picture], 4, whiten="white")


def test_files_of_something_else_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", data=np.ones((3, 4)))
    with pytest.raises(DataError, match="holds no patches"):
        Patches.load(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", data=np.ones((3, 4)), preparation=np.array("{}"))
    with pytest.raises(DataError, match="cannot be read as patches"):
        Patches.load(tmp_path / "b.npz")


def test_pieces_held_out_share_no_pixel_with_those_learnt_from(tmp_path):
    rng = np.random.default_rng(0)
    pictures = [rng.normal(size=(60, 40)), rng.normal(size=(5, 200)), rng.normal(size=(80, 9))]
    found = patches(pictures, 4, 2000, seed=0)
    found.save(tmp_path / "p.npz")
    learnt, held = Patches.load(tmp_path / "p.npz").split(0.2, seed=1)
    assert 0.1 < len(held) / len(found) < 0.3 and len(learnt) > 0.6 * len(found)
    for source in range(3):
        lines = [part.places[part.places[:, 0] == source, 1] for part in (learnt, held)]
        if len(lines[0]) and len(lines[1]):
            assert np.abs(lines[0][:, None] - lines[1]).min() >= 4
    again = patches(pictures, 4, 2000, seed=0)
    line = [pictures[s][r : r + 4] for s, r in again.places[:50]]
    rows = again.undone()[:50] + 0.0
    for piece, strip in zip(rows, line, strict=True):
        views = np.lib.stride_tricks.sliding_window_view(strip, (4, 4))[0].reshape(-1, 16)
        views = views - views.mean(axis=1, keepdims=True)
        assert np.abs(views - piece).max(axis=1).min() < 1e-4


def test_whole_pictures_are_held_out_whole():
    digits = list(np.random.default_rng(0).normal(size=(300, 4, 4)))
    learnt, held = patches(digits, 4, whiten="none").split(0.2)
    assert len(learnt) + len(held) == 300 and 30 < len(held) < 90
    assert not set(learnt.places[:, 0]) & set(held.places[:, 0])
    with pytest.raises(DataError, match="cannot be held out"):
        patches(digits[:1], 4, whiten="none").split(0.2)


def test_descriptions_that_are_nested_too_deeply(tmp_path):
    found = patches([np.random.default_rng(0).normal(size=(20, 20))], size=3, count=30, seed=0)
    found.save(tmp_path / "a.npz")
    arrays = dict(np.load(tmp_path / "a.npz"))
    for told in ("[" * 3000, "9" * 400, "{}"):
        np.savez(tmp_path / "b.npz", **{**arrays, "preparation": np.array(told)})
        with pytest.raises(KikuchiError, match=r"b\.npz"):
            Patches.load(tmp_path / "b.npz")
