"""Figures of ICA: what is drawn is what was given."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from kikuchi.core.errors import DataError
from kikuchi.plots import ica, style


def drawn(figure) -> bytes:
    content = style.to_png_bytes(figure, 60)
    assert content[:4] == b"\x89PNG"
    return content


def test_directions_are_where_they_should_be():
    rng = np.random.default_rng(0)
    columns = np.array([[3.0, 0.0], [4.0, 2.0]])
    samples = rng.standard_normal((50, 2)) @ columns.T
    figure = ica.mixture_scatter(samples, {"found": columns}, true=columns, names=["a$", "b"])
    drawn(figure)
    lines = figure.axes[0].get_lines()
    assert len(lines) == 4
    x, y = lines[2].get_data()
    assert y[1] / x[1] == pytest.approx(4 / 3)
    assert x[0] == -x[1]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["true", "found"]


def test_three_sensors_make_three_panels_and_dead_columns_none():
    columns = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    figure = ica.mixture_scatter(np.random.default_rng(0).normal(size=(5000, 3)), {"f": columns})
    drawn(figure)
    assert len(figure.axes) == 3
    assert [len(panel.get_lines()) for panel in figure.axes] == [1, 1, 1]
    shown = figure.axes[0].collections[0].get_offsets()
    assert len(shown) == 3000  # thinned
    with pytest.raises(DataError, match="2 or more sensors"):
        ica.mixture_scatter(np.zeros((4, 1)), {})


def test_maps_show_the_strongest_voxels_only():
    rng = np.random.default_rng(0)
    maps = np.zeros((2, 12, 14, 6))
    maps[:, 1:-1, 1:-1] = rng.standard_normal((2, 10, 12, 6))
    stimulus = np.repeat([0, 1, 0, 1, 0], 8)
    figure = ica.brain_components(
        maps,
        rng.standard_normal((2, 40)),
        anatomy=(maps[0] != 0) * 90.0,
        remarks=["one", "two"],
        reference=stimulus,
        stimulus=stimulus,
        interval=2.0,
        n_slices=6,
        fraction=0.1,
    )
    drawn(figure)
    coloured = sum(
        int((~np.ma.getmaskarray(panel.images[1].get_array())).sum()) for panel in figure.axes[:6]
    )
    cropped = figure.axes[0].images[1].get_array().shape
    assert cropped == (12, 10)  # margins cut, rows are y
    slices = {panel.get_title("center") for panel in figure.axes[:6]}
    assert len(slices) == 6
    assert coloured == pytest.approx(0.1 * 720, abs=2)
    course = figure.axes[6]
    assert len(course.patches) == 2  # two blocks
    assert course.get_xlim()[1] == 78.0


def test_maps_without_values_are_refused():
    with pytest.raises(DataError, match="nothing to draw"):
        ica.brain_components(np.zeros((1, 4, 4, 4)), np.zeros((1, 9)))
    with pytest.raises(DataError, match="one course each"):
        ica.brain_components(np.ones((2, 4, 4, 4)), np.zeros((1, 9)))
    with pytest.raises(DataError, match="anatomy"):
        ica.brain_components(np.ones((1, 4, 4, 4)), np.zeros((1, 9)), anatomy=np.ones((3, 3, 3)))


def test_one_component_that_is_zero_draws_no_colour():
    maps = np.zeros((2, 6, 6, 4))
    maps[0, 1:5, 1:5] = 1.0
    drawn(ica.brain_components(maps, np.ones((2, 12)), n_slices=2))


def test_long_courses_keep_their_peaks():
    signal = np.zeros((2, 50_000))
    signal[0, 31_234] = 7.0
    figure = ica.time_courses(signal, interval=1e-3, names=["a", "b"], remarks=["loud", "still"])
    drawn(figure)
    path = figure.axes[0].collections[0].get_paths()[0].vertices
    assert path[:, 1].max() == 7.0
    assert len(path) < 5000


def test_agreement_is_written_in_the_cells():
    figure = Figure()
    axes = figure.add_subplot()
    ica.draw_agreement(axes, np.array([[-0.96, 0.1]]), ["voice"])
    drawn(figure)
    assert [text.get_text() for text in axes.texts] == ["0.96", "0.10"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["voice"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["found 1", "found 2"]
