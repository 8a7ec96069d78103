"""Layered pictures of networks: what a reader must be able to rely on."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import ModelError
from kikuchi.plots.layered import layered
from kikuchi.plots.network import MOST_NODES, draw_network
from kikuchi.plots.style import to_png_bytes, to_svg


def _random_dag(rng, n, degree):
    edges = set()
    for v in range(1, n):
        for u in rng.choice(v, size=min(v, rng.integers(0, degree + 1)), replace=False):
            edges.add((int(u), v))
    return sorted(edges)


@pytest.mark.parametrize("seed", range(12))
def test_boxes_do_not_overlap_and_edges_point_down(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    edges = _random_dag(rng, n, 3)
    widths, heights = rng.uniform(0.5, 2.0, n), rng.uniform(0.2, 1.5, n)
    layout = layered(n, edges, widths, heights, gap=0.3, layer_gap=0.4)
    for u, v in edges:
        assert layout.top[u] + heights[u] < layout.top[v]
    for u, v in itertools.combinations(range(n), 2):
        if layout.layer[u] == layout.layer[v]:
            assert abs(layout.x[u] - layout.x[v]) >= (widths[u] + widths[v]) / 2 + 0.3 - 1e-9
        else:
            upper, lower = (u, v) if layout.layer[u] < layout.layer[v] else (v, u)
            assert layout.top[upper] + heights[upper] <= layout.top[lower]


@pytest.mark.parametrize("seed", range(8))
def test_no_edge_passes_through_a_box(seed):
    rng = np.random.default_rng(100 + seed)
    n = 25
    edges = _random_dag(rng, n, 3)
    widths = rng.uniform(0.5, 2.0, n)
    layout = layered(n, edges, widths, np.ones(n))
    for route in layout.routes:
        for place, x in route:
            for v in range(n):
                if layout.layer[v] == place:
                    assert abs(layout.x[v] - x) > widths[v] / 2


def _crossings(layout, edges):
    """Pairs of edges between the same two layers that cross, from the coordinates alone."""
    parts = []
    for e, (u, v) in enumerate(edges):
        points = [
            (layout.layer[u], layout.x[u]),
            *layout.routes[e],
            (layout.layer[v], layout.x[v]),
        ]
        parts += [(a[0], a[1], b[1]) for a, b in itertools.pairwise(points)]
    return sum(
        p[0] == q[0] and (p[1] - q[1]) * (p[2] - q[2]) < -1e-12
        for p, q in itertools.combinations(parts, 2)
    )


def test_trees_and_the_asia_network_have_no_crossings():
    tree = [((v - 1) // 2, v) for v in range(1, 15)]
    asia = [(0, 1), (2, 3), (2, 4), (1, 5), (3, 5), (5, 6), (5, 7), (4, 7)]
    for n, edges in ((15, tree), (8, asia)):
        assert _crossings(layered(n, edges, [1.0] * n, [1.0] * n), edges) == 0


def test_few_more_crossings_than_the_best_order_of_two_layers():
    rng = np.random.default_rng(5)
    for _ in range(10):
        edges = sorted({(int(rng.integers(5)), 5 + int(rng.integers(5))) for _ in range(9)})
        layout = layered(10, edges, [1.0] * 10, [1.0] * 10)
        if set(layout.layer) - {0, 1} or any(layout.layer[u] for u, _ in edges):
            continue  # a bounded width made more than two layers
        best = min(
            sum(
                (a - c) * (order.index(b) - order.index(d)) < 0
                for (a, b), (c, d) in itertools.combinations(
                    [(top.index(u), v) for u, v in edges], 2
                )
            )
            for top in itertools.permutations(range(5))
            for order in [_median_order(top, edges)]
        )
        assert _crossings(layout, edges) <= best + 1


def _median_order(top, edges):
    place = {v: k for k, v in enumerate(top)}
    mean = {v: np.mean([place[u] for u, w in edges if w == v] or [0]) for v in range(5, 10)}
    return sorted(range(5, 10), key=lambda v: mean[v])


def test_evidence_has_another_colour_and_numbers_stand_in_the_boxes():
    values = [[0.25, 0.75], [0.0, 1.0]]
    figure = draw_network(["a", "b"], [(0, 1)], [["no", "yes"]] * 2, values, observed={1: 1})
    plain = draw_network(["a", "b"], [(0, 1)], [["no", "yes"]] * 2, values)
    texts = [t.get_text() for t in figure.axes[0].texts]
    assert {"25.0%", "75.0%", "0%", "100%", "no", "yes", "a", "b"} <= set(texts)
    assert to_svg(figure) != to_svg(plain)
    assert to_png_bytes(figure).startswith(b"\x89PNG")
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_many_states_are_summed_up_and_the_observed_one_is_shown():
    values = [np.arange(20) / 190.0]
    names = [f"s{k}" for k in range(20)]
    figure = draw_network(["v"], [], [names], values, observed={0: 3})
    texts = [t.get_text() for t in figure.axes[0].texts]
    assert "s3" in texts and "s19" in texts and "15 more" in texts
    shown = [float(t[:-1]) for t in texts if t.endswith("%") and t[0] not in "<>"]
    assert sum(shown) == pytest.approx(100.0, abs=0.4)


def test_control_characters_and_dollars_in_names_are_shown_plainly():
    figure = draw_network(["bell\x07", "$a$"], [(0, 1)], [["0", "1"]] * 2, [[0.5, 0.5]] * 2)
    text = to_svg(figure)
    assert "\x07" not in text and "\\x07" in text


def test_too_many_variables_are_refused_with_the_way_out():
    n = MOST_NODES + 1
    with pytest.raises(ModelError, match="variables="):
        draw_network([str(v) for v in range(n)], [], [["0", "1"]] * n)


def test_a_network_without_variables_or_edges_is_drawn():
    assert draw_network([], [], []).axes
    assert draw_network(["only"], [], [["a"]], [[1.0]], title="one").axes


# ---------------------------------------------------------------------- from models and answers


def _texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def _outside(figure):
    """Texts that do not lie within a box of the picture, by what the renderer measures."""
    figure.canvas.draw()
    axes = figure.axes[0]
    boxes = [p.get_window_extent() for p in axes.patches if p.get_zorder() == 6]
    inside = [
        any(
            box.x0 <= t.x0 and t.x1 <= box.x1 and box.y0 <= t.y0 and t.y1 <= box.y1 for box in boxes
        )
        for t in (text.get_window_extent() for text in axes.texts)
    ]
    return [text.get_text() for text, ok in zip(axes.texts, inside, strict=True) if not ok]


def test_wide_letters_and_long_names_stay_in_their_boxes():
    names = ["W" * 20, "iiii", "A name that is far too long for any box", "a$b$"]
    states = [["M" * 13, "x"], ["no", "yes"], ["low", "high"], [str(k) for k in range(9)]]
    values = [[0.5, 0.5], [1e-9, 1 - 1e-9], [1.0, 0.0], np.full(9, 1 / 9)]
    figure = draw_network(names, [(0, 1), (2, 1), (2, 3)], states, values)
    assert _outside(figure) == []


def test_an_answer_to_a_query_is_drawn_with_the_whole_network():
    asia = kk.example("asia")
    answer = kk.query(asia, ["lung", "dysp"], evidence={"xray": "yes"})
    texts = _texts(answer.plot(title="given xray"))
    assert set(asia.names) <= set(texts) and "given xray" in texts
    assert f"{100 * answer['lung']['yes']:.1f}%" in texts and "100%" in texts
    assert sum(text.endswith("%") for text in texts) == 6  # two variables and the evidence


def test_beliefs_are_drawn_as_show_draws_them():
    asia, evidence = kk.example("asia"), {"xray": "yes"}
    shown = _texts(kk.show(asia, evidence))
    assert sorted(_texts(kk.infer(asia, "jt", evidence=evidence).plot())) == sorted(shown)


def test_answers_about_large_models_draw_what_was_asked():
    chain = kk.network(" -> ".join(f"v{k}" for k in range(150)))
    answer = kk.query(chain, ["v3", "v4"], evidence={"v5": "yes"})
    texts = _texts(answer.plot())
    assert {"v3", "v4", "v5"} <= set(texts) and "v6" not in texts
    with pytest.raises(ModelError, match="150 variables is not legible"):
        kk.show(chain)


def test_grids_are_drawn_as_grids_and_others_in_layers():
    figure = kk.show(kk.grid(3, 4, seed=0))
    places = {t.get_text(): t.get_position() for t in figure.axes[0].texts}
    for row in range(3):
        heights = {round(places[f"x{4 * row + column}"][1], 6) for column in range(4)}
        assert len(heights) == 1
    across = [places[f"x{k}"][0] for k in range(4)]
    assert across == sorted(across) and len(set(across)) == 4
    assert len(figure.axes[0].lines) == 9  # edges within the rows
    assert _outside(figure) == []
    wrapped = kk.show(kk.grid(3, 4, seed=0, periodic=True))
    assert not wrapped.axes[0].lines


def test_numbers_with_an_x_name_variables_without_names():
    grid = kk.grid(2, 2, seed=0)
    answer = kk.query(grid, ["x3", 1], evidence={"x0": 1})
    assert answer["x3"]["1"] == answer[3]["1"] == answer["3"]["1"]
    assert kk.infer(grid, "jt", evidence={0: 1})["x3"][1] == pytest.approx(answer["x3"]["1"])
    assert kk.query(grid, joint=("x3", 1))["x1"]["0"] == kk.query(grid, joint=(3, 1))[1]["0"]


def test_certain_states_need_no_percentages() -> None:
    given = (["a", "b", "c"], [], [["no", "yes"]] * 3, [[1.0, 0.0]] * 3)
    texts = [t.get_text() for t in draw_network(*given, percentages=False).axes[0].texts]
    assert texts == ["a", "no", "yes", "b", "no", "yes", "c", "no", "yes"]
    narrow, usual = draw_network(*given, percentages=False), draw_network(*given)
    assert narrow.get_figwidth() < usual.get_figwidth()
