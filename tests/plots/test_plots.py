"""Figures: what they show, that they come out as bytes, and that they leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.figure import Figure

from kikuchi import plots
from kikuchi.core.errors import ModelError
from kikuchi.core.trace import Trace
from kikuchi.plots import factor_graph, style


def falling_trace(steps: int = 12, objective: bool = True) -> Trace:
    trace = Trace(objective_name="Bethe log Z")
    for k in range(1, steps + 1):
        value = 3.0 - 0.5**k if objective else float("nan")
        trace.record(k, residual=0.3**k, objective=value, seconds=0.01 * k)
    return trace


def random_marginals(count: int, states: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return list(rng.dirichlet(np.ones(states), size=count))


SCOPES = [(0,), (0, 1), (1, 2), (3,)]

ALL = {
    "convergence": lambda: plots.convergence({"bp": falling_trace(), "mf": falling_trace(5)}),
    "grid": lambda: plots.grid_beliefs(np.linspace(0, 1, 12), 3, 4, title="a$b"),
    "scatter": lambda: plots.scatter([0.1, 0.9], [0.2, 0.8], "bp"),
    "draw_graph": lambda: plots.draw_graph(SCOPES, 4, belief=[0, 0.3, 0.6, 1]),
    "bars": lambda: plots.marginal_bars(random_marginals(5, 3)),
    "histogram": lambda: plots.histogram(random_marginals(90, 2)),
    "overview": lambda: plots.overview(random_marginals(5, 2), falling_trace(), "bp"),
    "error_bars": lambda: plots.error_bars(["bp", "mf"], [0.1, None], [0.01, None]),
    "comparison": lambda: plots.comparison(
        ["jt", "bp", "gibbs"],
        log_z=[1.0, 1.1, None],
        lower=[1.0, None, 0.2],
        upper=[1.0, None, None],
        largest=[0.0, 0.1, 0.02],
        mean=[0.0, 0.01, 0.002],
        exact_log_z=1.0,
    ),
}


@pytest.mark.parametrize("name", ALL)
def test_every_plot_is_a_figure_that_can_be_saved_and_leaves_no_state(name: str) -> None:
    before = dict(rcParams)
    figure = ALL[name]()
    assert isinstance(figure, Figure)
    png = plots.to_png_bytes(figure, dpi=40)
    assert png.startswith(b"\x89PNG") and len(png) > 500
    root = ET.fromstring(plots.to_svg(figure))
    assert root.tag.endswith("svg")
    for element in root.iter():
        for key, value in element.attrib.items():
            if key.endswith("href"):
                assert value.startswith(("#", "data:image/png;base64,")), value
    assert dict(rcParams) == before


def test_pyplot_is_never_imported() -> None:
    program = (
        "import sys, numpy as np\n"
        "import kikuchi.plots as plots\n"
        "assert 'matplotlib' not in sys.modules, 'plots must not import matplotlib by itself'\n"
        "plots.to_svg(plots.scatter([0.1], [0.2], 'bp'))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_same_figure_gives_the_same_bytes() -> None:
    assert plots.to_svg(ALL["draw_graph"]()) == plots.to_svg(ALL["draw_graph"]())


# ---------------------------------------------------------------------- convergence


def lines_of(figure: Figure, panel: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    lines = figure.axes[panel].get_lines()
    return {
        str(line.get_label()): (np.asarray(line.get_xdata()), np.asarray(line.get_ydata()))
        for line in lines
    }


def test_convergence_shows_the_numbers_of_the_trace() -> None:
    trace = falling_trace()
    figure = plots.convergence({"bp": trace})
    assert figure.axes[0].get_yscale() == "log"
    x, y = lines_of(figure, 0)["bp"]
    np.testing.assert_array_equal(x, trace.iterations)
    np.testing.assert_allclose(y, trace.residual)
    np.testing.assert_allclose(lines_of(figure, 1)["bp"][1], trace.objective)


def test_a_method_has_one_colour_in_all_panels_and_unlike_objectives_do_not_mix() -> None:
    other = falling_trace(40)
    other.objective_name = "lower bound"
    figure = plots.convergence({"jt": Trace(), "bp": falling_trace(), "mf": other})
    assert [axes.get_title("left") for axes in figure.axes] == [
        "Residual",
        "Bethe log Z",
        "Lower bound",
    ]
    colours = {line.get_label(): line.get_color() for line in figure.axes[0].get_lines()}
    assert colours["bp"] != colours["mf"]
    assert figure.axes[1].get_lines()[0].get_color() == colours["bp"]
    assert figure.axes[2].get_lines()[0].get_color() == colours["mf"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["bp", "mf"]


def test_convergence_leaves_out_what_is_unknown() -> None:
    assert len(plots.convergence({"bp": falling_trace(objective=False)}).axes) == 1
    empty = plots.convergence({"jt": Trace()})
    assert "No iterations" in empty.axes[0].texts[0].get_text()


def test_convergence_copes_with_zero_and_infinite_residuals() -> None:
    trace = Trace()
    for k, residual in enumerate([np.inf, 1.0, 0.0, np.nan], start=1):
        trace.record(k, residual=residual)
    x, y = lines_of(plots.convergence({"bp": trace}), 0)["bp"]
    assert x.tolist() == [2, 3] and (y > 0).all()


def test_a_long_trace_stays_small_and_keeps_its_ends() -> None:
    trace = falling_trace(1)
    for k in range(2, 100_001):
        trace.record(k, residual=1.0 / k, objective=float(k))
    figure = plots.convergence({"bp": trace})
    x, _ = lines_of(figure, 0)["bp"]
    assert x[0] == 1 and x[-1] == 100_000
    assert len(plots.to_svg(figure)) < 200_000


# ---------------------------------------------------------------------- beliefs


def test_grid_image_shows_the_probability_of_state_one_row_by_row() -> None:
    p = np.arange(6) / 10
    both = np.stack([1 - p, p], axis=1)
    for given in (p, both):
        image = plots.grid_beliefs(given, 2, 3).axes[0].images[0]
        np.testing.assert_allclose(image.get_array(), p.reshape(2, 3))
        assert image.get_clim() == (0.0, 1.0)


def test_grid_of_several_states_has_an_image_each() -> None:
    p = np.array(random_marginals(6, 3))
    figure = plots.grid_beliefs(p, 2, 3)
    images = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    np.testing.assert_allclose(images, [p[:, k].reshape(2, 3) for k in range(3)])


def test_grid_of_many_states_shows_the_most_probable() -> None:
    p = np.array(random_marginals(6, 9))
    figure = plots.grid_beliefs(p, 2, 3)
    best, top = (axes.images[0].get_array() for axes in figure.axes if axes.images)
    np.testing.assert_array_equal(np.ravel(best), p.argmax(axis=1))
    np.testing.assert_allclose(np.ravel(top), p.max(axis=1))


def test_a_huge_grid_is_averaged_not_cut() -> None:
    p = np.random.default_rng(0).random(900 * 810)
    figure = plots.grid_beliefs(p, 900, 810)
    image = np.asarray(figure.axes[0].images[0].get_array())
    assert image.shape == (300, 270)
    np.testing.assert_allclose(image[0, 0], p.reshape(900, 810)[:3, :3].mean())
    assert len(plots.to_svg(figure)) < 600_000


@pytest.mark.parametrize("shape", [(2, 4), (0, 6), (6,)])
def test_a_grid_of_the_wrong_size_is_refused(shape: tuple[int, ...]) -> None:
    rows, cols = (*shape, 2)[:2]
    with pytest.raises(ModelError, match="do not fill a grid"):
        plots.grid_beliefs(np.full(6, 0.5), rows, cols)


def test_bars_reach_from_zero_to_one_and_carry_names() -> None:
    marginals = random_marginals(3, 4)
    figure = plots.marginal_bars(marginals, ["a", "b", "c"], [list("wxyz")] * 3)
    axes = figure.axes[0]
    widths = np.array([bar.get_width() for bar in axes.patches]).reshape(3, 4)
    np.testing.assert_allclose(widths, marginals)
    assert [t.get_text() for t in axes.get_yticklabels()] == ["a", "b", "c"]


def test_too_many_bars_are_refused() -> None:
    with pytest.raises(ModelError, match="not be legible"):
        plots.marginal_bars(random_marginals(41, 2))


def test_overview_chooses_the_form_that_suits() -> None:
    trace = falling_trace()
    few = plots.overview(random_marginals(6, 2), trace, "bp")
    many = plots.overview(random_marginals(60, 2), trace, "bp")
    grid = plots.overview(random_marginals(60, 2), trace, "bp", grid=(6, 10))
    mixed = plots.overview(
        [*random_marginals(5, 2), *random_marginals(4, 3)], trace, "bp", grid=(3, 3)
    )
    assert [axes.get_title("left") for axes in (few.axes[1], many.axes[1], grid.axes[1])] == [
        "Marginals",
        "Marginals of 60 variables",
        "P(x = 1)",
    ]
    assert not mixed.axes[1].images


def test_names_that_look_like_formulas_are_shown_as_they_are() -> None:
    figure = plots.marginal_bars(random_marginals(1, 2), ["$x_{$"], [["$", "_"]])
    plots.to_png_bytes(figure, dpi=40)  # a formula that is broken would raise here


BELL = "bell\x07\x00\u202e\ufffe"
NAMED = {
    "grid": lambda: plots.grid_beliefs(np.linspace(0, 1, 12), 3, 4, title=BELL),
    "convergence": lambda: plots.convergence({BELL: falling_trace(), "mf": falling_trace(5)}),
    "scatter": lambda: plots.scatter([0.1, 0.9], [0.2, 0.8], BELL),
    "graph": lambda: plots.draw_graph(SCOPES, 4, names=[BELL, "b", "c", "d"]),
    "bars": lambda: plots.marginal_bars(random_marginals(1, 2), [BELL], [[BELL, "b"]]),
    "errors": lambda: plots.error_bars([BELL, "mf"], [0.1, None], [0.01, None]),
}


@pytest.mark.parametrize("name", NAMED)
def test_control_characters_in_names_leave_the_xml_well_formed(name: str) -> None:
    with style.styled():
        ET.fromstring(plots.to_svg(NAMED[name]()))


# ---------------------------------------------------------------------- comparison


def test_scatter_writes_the_errors() -> None:
    figure = plots.scatter([0.2, 0.8, 0.5], [0.3, 0.7, 0.5], "bp")
    assert figure.axes[0].texts[0].get_text() == "largest error 0.1\nmean error 0.067"
    offsets = figure.axes[0].collections[0].get_offsets()
    np.testing.assert_allclose(offsets, [[0.2, 0.3], [0.8, 0.7], [0.5, 0.5]])


def test_scatter_of_many_points_stays_small() -> None:
    x = np.random.default_rng(0).random(100_000)
    assert len(plots.to_svg(plots.scatter(x, x**1.1, "bp"))) < 200_000


def test_scatter_refuses_unequal_lengths() -> None:
    with pytest.raises(ModelError, match="2 exact and 1 approximate"):
        plots.scatter([0.2, 0.8], [0.3], "bp")


def test_exact_errors_stand_at_the_edge_of_the_logarithmic_axis() -> None:
    axes = plots.error_bars(["jt", "bp"], [0.0, 0.1], [0.0, 0.01]).axes[0]
    drawn = np.concatenate([np.asarray(line.get_xdata()) for line in axes.get_lines()])
    assert np.nanmin(drawn) == 0.01
    assert [text.get_text() for text in axes.texts] == ["0", "0.1", "0", "0.01"]


def test_error_bars_without_any_error() -> None:
    assert plots.error_bars(["jt"], [None], [None]).axes[0].get_xscale() == "log"


# ---------------------------------------------------------------------- drawings


def test_layout_is_deterministic_and_keeps_nodes_apart() -> None:
    rng = np.random.default_rng(1)
    scopes = [tuple(rng.choice(12, size=2, replace=False)) for _ in range(14)] + [(12,)]
    places = factor_graph.layout(scopes, 15)
    np.testing.assert_array_equal(places, factor_graph.layout(scopes, 15))
    gaps = np.linalg.norm(places[:, None] - places[None], axis=2)
    assert gaps[~np.eye(len(places), dtype=bool)].min() > 0.15


def test_a_drawing_has_a_square_for_each_factor_and_a_circle_for_each_variable() -> None:
    axes = plots.draw_graph(SCOPES, 4, belief=[0, 0.3, 0.6, 1]).axes[0]
    edges, squares, circles = axes.collections
    assert len(squares.get_offsets()) == 4 and len(circles.get_offsets()) == 4
    assert len(edges.get_paths()) == sum(len(scope) for scope in SCOPES)
    np.testing.assert_allclose(circles.get_array(), [0, 0.3, 0.6, 1])


def test_arrows_point_at_the_children() -> None:
    axes = plots.draw_graph([(0,), (0, 1)], 2, children=[0, 1]).axes[0]
    circles = axes.collections[2].get_offsets()
    arrows = [text.xy for text in axes.texts if text.arrow_patch is not None]
    np.testing.assert_allclose(arrows, circles)


def test_a_large_graph_is_refused() -> None:
    assert plots.drawable(30, 30) and not plots.drawable(31, 30)
    with pytest.raises(ModelError, match="not be legible; the limit is 60"):
        plots.draw_graph([(v,) for v in range(31)], 31)


def test_text_can_be_read_on_every_state_colour() -> None:
    def luminance(colour: object) -> float:
        from matplotlib.colors import to_rgb

        linear = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)
        ]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    for count in (2, 6, 7, 20):
        for fill in style.state_colours(count):
            a, b = sorted([luminance(fill), luminance(style.text_on(fill))])
            assert (b + 0.05) / (a + 0.05) > 3.0, (count, fill)


def test_the_axis_of_a_forecast_has_the_numbers_of_the_rows() -> None:
    from kikuchi.plots.temporal import bands

    back = np.zeros((100, 1))
    figure = bands(np.ones((5, 1)), np.ones((5, 1)), data=back, start=100, first=300)
    points, course = figure.axes[0].get_lines()
    np.testing.assert_array_equal(points.get_xdata(), np.arange(300, 400))
    np.testing.assert_array_equal(course.get_xdata(), np.arange(400, 405))


def test_the_axis_of_states_has_the_numbers_of_the_rows() -> None:
    from kikuchi.plots.temporal import coloured_series, probabilities

    data, states = np.zeros((4, 1)), np.array([0, 0, 1, 1])
    for figure in (
        coloured_series(data, states, first=1),
        probabilities([np.full((4, 2), 0.5)], first=1),
    ):
        assert figure.axes[0].get_xlim() == (1.0, 4.0)


def test_one_number_has_no_panel_of_its_own() -> None:
    trace = Trace(objective_name="log-likelihood")
    trace.record(1, objective=-3.0)
    trace.record(2, residual=0.1, objective=-2.0)
    assert [axes.get_title("left") for axes in plots.convergence({"hmm": trace}).axes] == [
        "Log-likelihood"
    ]


def test_states_that_are_numbers_are_not_read_with_their_probabilities() -> None:
    figure = plots.marginal_bars([np.array([0.25, 0.75])])
    assert [text.get_text() for text in figure.axes[0].texts] == ["0: 0.250", "1: 0.750"]
