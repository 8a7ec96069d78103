"""Drawings of region graphs: which kind is chosen, and what stands in it (LIU-I10)."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.figure import Figure

from kikuchi import FactorGraph, grid
from kikuchi.core.errors import ModelError
from kikuchi.generate import complete
from kikuchi.graphs.regions.builders import region_graph
from kikuchi.plots import to_png_bytes, to_svg
from kikuchi.plots.regions import draw_regions, layer_positions


def drawn(
    graph: FactorGraph, text: str, shape: tuple[int, int] | None = None, periodic: bool = False
) -> Figure:
    found = region_graph(graph, text)
    return draw_regions(
        [r.variables for r in found.regions],
        found.counting,
        found.edges,
        names=graph.names,
        grid=shape,
        periodic=periodic,
        title="a$b",
    )


def words(figure: Figure, panel: int) -> list[str]:
    return [text.get_text() for text in figure.axes[panel].texts]


def test_regions_over_a_grid_carry_their_numbers() -> None:
    figure = drawn(grid(3, 3), "faces", (3, 3))
    assert len(figure.axes) == 2
    assert sorted(words(figure, 0)) == sorted(["+1"] * 5 + ["−1"] * 4)
    assert "0 1 3 4" in words(figure, 1) and len(words(figure, 1)) == 18
    assert len(figure.axes[1].lines) == 12


def test_large_grids_show_a_corner_and_bars() -> None:
    figure = drawn(grid(20, 15), "faces", (20, 15))
    assert "first 10 rows and 10 columns of 20 by 15" in figure.axes[0].get_title(loc="left")
    assert len(figure.axes[0].patches) == 81
    assert len(figure.axes[1].patches) == 3 and words(figure, 1)[0] == str(19 * 14)


def test_periodic_grids_leave_out_what_goes_round() -> None:
    figure = drawn(grid(4, 5, periodic=True), "faces", (4, 5), periodic=True)
    assert "left out" in figure.axes[0].get_title(loc="left")
    assert len(figure.axes[0].patches) == 12


def test_wide_regions_are_not_drawn_over_the_grid() -> None:
    assert len(drawn(grid(6, 6), "junction-tree", (6, 6)).axes) == 1


def test_diagram_of_regions_without_a_grid() -> None:
    figure = drawn(complete(5), "star")
    assert len(figure.axes) == 1 and "0 1 2" in words(figure, 0) and "−2" in words(figure, 0)
    assert to_png_bytes(figure, dpi=40).startswith(b"\x89PNG") and "<svg" in to_svg(figure)


def test_long_names_are_folded() -> None:
    names = ["a_rather_long_name", "b", "price$"]
    graph = FactorGraph([2] * 3, [(names, np.ones(8))], names=names)
    figure = drawn(graph, "cvm")
    assert words(figure, 0)[0] == "a_rather_long_…\nb price\\$"
    to_png_bytes(figure, dpi=40)


def test_control_characters_in_names_leave_the_xml_well_formed() -> None:
    names = ["bell\x07", "b"]
    figure = drawn(FactorGraph([2] * 2, [(names, np.ones(4))], names=names), "cvm")
    assert words(figure, 0)[0] == r"bell\x07 b"
    ET.fromstring(to_svg(figure))


def test_many_regions_become_bars() -> None:
    figure = drawn(complete(12), "star")
    labels = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert labels == ["3 variables, +1", "2 variables, −9", "1 variable, +45"]


def test_nothing_to_draw() -> None:
    assert len(draw_regions([(0,)], [1], []).axes) == 1
    with pytest.raises(ModelError, match="no regions"):
        draw_regions([], [], [])


def test_rows_by_size_without_overlap() -> None:
    positions = layer_positions([3, 3, 2, 2, 1], [(0, 2), (1, 3), (2, 4), (3, 4)])
    assert positions[:, 1].tolist() == [2, 2, 1, 1, 0]
    assert len(np.unique(positions, axis=0)) == 5
    # nothing crosses: the order of children is that of their parents
    assert (positions[0, 0] - positions[1, 0]) * (positions[2, 0] - positions[3, 0]) > 0
