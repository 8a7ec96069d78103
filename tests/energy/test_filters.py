"""Gabor fits and time-frequency moments, against functions made and fitted in another way."""

import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.signal import windows

from kikuchi.core.errors import DataError
from kikuchi.energy.filters import fit_gabors, time_frequency

SIDE = 12


def complex_gabor(row, column, wave_y, wave_x, bell, phase):
    """Real part of a plane wave under a bell with this inverse covariance."""
    y, x = np.mgrid[:SIDE, :SIDE] - np.array([row, column])[:, None, None]
    exponent = -0.5 * (bell[0] * y * y + 2 * bell[1] * x * y + bell[2] * x * x)
    return np.real(np.exp(exponent + 1j * (2 * np.pi * (wave_y * y + wave_x * x) + phase))).ravel()


def random_gabors(count, seed):
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        angle, frequency = rng.uniform(0, np.pi), rng.uniform(0.1, 0.35)
        along, across = rng.uniform(1.2, 2.5), rng.uniform(1.2, 2.5)
        turn = np.array([[np.sin(angle), np.cos(angle)], [np.cos(angle), -np.sin(angle)]])
        inverse = turn.T @ np.diag([along**-2, across**-2]) @ turn
        centre, wave = rng.uniform(3.5, 7.5, 2), frequency * turn[0]
        pixels = complex_gabor(
            *centre, *wave, (inverse[0, 0], inverse[0, 1], inverse[1, 1]), rng.uniform(0, 6.28)
        )
        made.append((pixels / np.linalg.norm(pixels), centre, wave, (along, across)))
    return made


def test_parameters_are_recovered_under_noise():
    made = random_gabors(30, 0)
    rng = np.random.default_rng(1)
    noise = 0.1 * rng.normal(size=(30, SIDE * SIDE)) / SIDE
    fit = fit_gabors(np.array([pixels for pixels, *_ in made]) + noise, (SIDE, SIDE))
    assert fit.r_squared.min() > 0.97
    for k, (_, centre, wave, spreads) in enumerate(made):
        assert fit.centre[k] == pytest.approx(centre, abs=0.4)
        assert fit.frequency[k] == pytest.approx(np.hypot(*wave), abs=0.03)
        bars = np.degrees(np.arctan2(-wave[0], wave[1])) + 90  # rows go down
        assert abs((fit.orientation[k] - bars + 90) % 180 - 90) < 8
        assert fit.spread[k] == pytest.approx(spreads, rel=0.25)


def test_nothing_better_is_near_by_another_optimiser():
    """SciPy's least squares from the truth, in other coordinates, comes no nearer."""
    made = random_gabors(6, 2)
    rng = np.random.default_rng(3)
    noisy = [pixels + 0.2 * rng.normal(size=pixels.size) / SIDE for pixels, *_ in made]
    fit = fit_gabors(np.array(noisy), (SIDE, SIDE))
    for k, (target, (_, centre, wave, spreads)) in enumerate(zip(noisy, made, strict=True)):
        angle = np.arctan2(*wave)
        turn = np.array([[np.sin(angle), np.cos(angle)], [np.cos(angle), -np.sin(angle)]])

        def residual(p, target=target):
            wave = p[2:4]
            turn = np.array([wave, [wave[1], -wave[0]]]) / np.hypot(*wave)
            inverse = turn.T @ np.diag(p[4:6]) @ turn
            bell = (inverse[0, 0], inverse[0, 1], inverse[1, 1])
            parts = [complex_gabor(*p[:4], bell, phase) for phase in (0, -np.pi / 2)]
            return p[6] * parts[0] + p[7] * parts[1] - target

        start = np.array([*centre, *(np.hypot(*wave) * turn[0]), *np.power(spreads, -2.0), 0.5, 0])
        peer = least_squares(residual, start, x_scale=[1, 1, 0.1, 0.1, 0.1, 0.1, 1, 1])
        left = np.sum((fit.fitted[k] - target) ** 2)
        assert left <= 2 * peer.cost * 1.002
        assert fit.r_squared[k] == pytest.approx(1 - left / np.sum((target - target.mean()) ** 2))


def test_noise_is_not_taken_for_gabors():
    noise = np.random.default_rng(0).normal(size=(40, 256))
    fit = fit_gabors(noise, (16, 16))
    assert fit.r_squared.max() < 0.25
    assert fit.share(0.8) == 0.0


def test_scale_does_not_matter_and_zeros_have_no_fit():
    pixels = random_gabors(1, 4)[0][0]
    fit = fit_gabors(np.array([1e-6 * pixels, 1e6 * pixels, 0 * pixels]), (SIDE, SIDE))
    assert fit.r_squared == pytest.approx([1, 1, 0], abs=1e-4)
    assert fit.fitted[1] == pytest.approx(1e6 * pixels, abs=1e4)
    with pytest.raises(DataError, match="not finite"):
        fit_gabors(np.full((1, 144), np.nan), (SIDE, SIDE))


def test_bandwidth_is_where_the_spectrum_has_half_its_height():
    column = np.arange(64) - 32.0
    bars = np.exp(-0.5 * (column / 5) ** 2) * np.cos(2 * np.pi * 0.2 * column)
    bell = np.exp(-0.5 * (column / 4) ** 2)
    fit = fit_gabors((bell[:, None] * bars).reshape(1, -1), (64, 64))
    fine = np.abs(np.fft.rfft(bars, 4096))
    above = np.flatnonzero(fine > 0.5 * fine.max()) / 4096
    assert fit.bandwidth[0] == pytest.approx(np.log2(above[-1] / above[0]), abs=0.02)
    assert fit.to_dict()["bandwidth"] == [pytest.approx(fit.bandwidth[0])]


def test_moments_of_a_tone_under_a_gaussian_window():
    rate, n, deviation = 8000, 200, 12.0
    tone = windows.gaussian(n, deviation) * np.cos(2 * np.pi * 1500 * np.arange(n) / rate)
    found = time_frequency(tone[None], rate)
    assert found.time[0] == pytest.approx((n - 1) / 2 / rate, rel=1e-3)
    assert found.frequency[0] == pytest.approx(1500, rel=1e-3)
    assert found.time_spread[0] == pytest.approx(deviation / np.sqrt(2) / rate, rel=0.01)
    spread = rate / (2 * np.pi * deviation * np.sqrt(2))  # of the spectrum's square
    assert found.frequency_spread[0] == pytest.approx(spread, rel=0.02)
    covered = np.argwhere(found.coverage > 0)
    middle = covered.mean(axis=0)
    assert found.frequencies[round(middle[0])] == pytest.approx(1500, abs=40)
    assert middle[1] == pytest.approx((n - 1) / 2, abs=1)


def test_short_gaps_are_filled():
    two = np.zeros(60)
    two[10:13] = two[17:20] = 1.0  # four samples apart
    far = np.zeros(60)
    far[10:13] = far[30:33] = 1.0
    near, apart = (time_frequency(row[None], 60.0).envelope for row in (two, far))
    assert near.shape == apart.shape == (1, 60)
    from kikuchi.energy.filters import _above_half

    assert _above_half(two, 6)[10:20].all() and not _above_half(far, 6)[13:30].any()
