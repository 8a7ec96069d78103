"""Report pages: self-contained, safe, small, and saying what the run said."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import KikuchiError
from kikuchi.data import example
from kikuchi.learning.networks import structure_score
from kikuchi.reports import compare, compare_report, describe, infer_report
from kikuchi.reports.comparison import marginal_errors
from kikuchi.reports.learn_page import learn_report

VOID = {"meta", "br", "img", "hr", "input", "link", "wbr", "source", "base", "col", "embed"}


class Page(HTMLParser):
    """Reads a page, checks that tags are closed in order, and collects what matters."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.references: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.styles: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action", "data", "srcset", "poster"):
                self.references.append(value or "")
            if name == "id":
                self.ids.append(value or "")
            if name == "style":
                self.styles.append(value or "")
            assert not name.startswith("on"), f"<{tag}> has a script in {name}"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.styles if self.open and self.open[-1] == "style" else self.words).append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def check_self_contained(path: Path) -> Page:
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    for reference in page.references:
        assert reference.startswith(("#", "data:image/png;base64,")), reference[:80]
    for forbidden in ("script", "link", "iframe", "object", "embed", "base"):
        assert forbidden not in page.tags
    for css in page.styles:
        assert "@import" not in css
        for target in re.findall(r"url\(([^)]*)\)", css):
            assert target.strip("'\"").startswith("#")
    assert "http:" not in text and "https:" not in text
    assert len(page.ids) == len(set(page.ids)), "ids of several figures must not clash"
    known = set(page.ids)
    for reference in [*page.references, *re.findall(r"url\((#[^)]*)\)", text)]:
        if reference.startswith("#"):
            assert reference[1:] in known, reference
    return page


@pytest.fixture(scope="module")
def grid() -> kk.FactorGraph:
    return kk.grid(4, 4, seed=1)


# ---------------------------------------------------------------------- one run


def test_a_page_of_a_grid(grid: kk.FactorGraph, tmp_path: Path) -> None:
    beliefs, exact = kk.infer(grid, "bp"), kk.infer(grid, "enumerate")
    path = tmp_path / "run.html"
    infer_report(beliefs, path, exact, model="grid.uai", command="kikuchi infer grid.uai")
    page = check_self_contained(path)
    assert page.tags.count("svg") == 3, "convergence, image of the grid, scatter"
    assert f"{beliefs.log_z:.9f}" in page.text and f"{exact.log_z:.9f}" in page.text
    largest, mean = marginal_errors(beliefs, exact)
    assert f"Largest error of a marginal {largest:.3g}" in page.text
    assert f"Mean error of the marginals {mean:.3g}" in page.text
    assert ("Warnings" in page.text) == bool(beliefs.warnings)
    assert "kikuchi infer grid.uai" in page.text
    assert f"x15 {beliefs[15][0]:.6f} {beliefs[15][1]:.6f}" in page.text


def test_a_page_of_a_named_directed_model(tmp_path: Path) -> None:
    graph = example("asia")
    beliefs = kk.infer(graph, "bp", evidence={"smoke": "yes"})
    path = tmp_path / "asia.html"
    infer_report(beliefs, path, model="example:asia", evidence={"smoke": "yes"})
    page = check_self_contained(path)
    assert "Evidence smoke=yes" in page.text
    assert "directed (conditional tables)" in page.text
    assert "P(yes)" in page.text
    assert "graph = kk.example('asia') evidence = {'smoke': 'yes'}" in page.text
    assert "bp on example:asia given smoke=yes" in page.text


def test_a_page_of_auto_says_what_it_chose_and_shows_the_bounds(
    grid: kk.FactorGraph, tmp_path: Path
) -> None:
    beliefs = kk.infer(grid, "auto:exact=false", budget=kk.Budget(seconds=2.0))
    target = tmp_path / "auto.html"
    infer_report(beliefs, target)
    words = " ".join(Page(target.read_text()).words)
    found = beliefs.diagnostics
    assert f"{found['chosen']}: {found['why']}" in words
    assert f"lower by {found['lower_method']}" in words
    assert "Certified bounds on log Z against time." in words


def test_a_page_without_bounds_has_no_picture_of_them(grid: kk.FactorGraph, tmp_path: Path) -> None:
    target = tmp_path / "bp.html"
    infer_report(kk.infer(grid, "bp"), target)
    words = " ".join(Page(target.read_text()).words)
    assert "Certified bounds on log Z against time." not in words
    assert "Chosen" not in words


def test_not_converged_is_prominent(grid: kk.FactorGraph, tmp_path: Path) -> None:
    beliefs = kk.infer(grid, "bp:max_iter=2")
    path = tmp_path / "run.html"
    infer_report(beliefs, path)
    page = check_self_contained(path)
    assert "Warnings" in page.text and "not converged" in page.text
    assert page.text.index("Warnings") < page.text.index("log Z (nats)")


def test_not_converged_is_said_even_if_the_method_does_not_warn(
    grid: kk.FactorGraph, tmp_path: Path
) -> None:
    silent = dataclasses.replace(kk.infer(grid, "bp:max_iter=2"), warnings=())
    path = tmp_path / "run.html"
    infer_report(silent, path)
    text = check_self_contained(path).text
    assert "The method did not converge (the limit of iterations was reached" in text


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    evil = '<script>alert("1")</script>'
    graph = kk.FactorGraph(
        [2, 3],
        [((0, 1), np.ones(6))],
        names=[evil, "a & b $x^"],
        states=[["</td>", '"'], ["<b>", "&amp;", "$"]],
    )
    path = tmp_path / "run.html"
    infer_report(kk.infer(graph, "bp"), path, model=evil, command=evil)
    page = check_self_contained(path)
    assert evil in page.text
    assert "script" not in page.tags and "b" not in page.tags


def test_names_cannot_steer_the_page(tmp_path: Path) -> None:
    bell, turned, hebrew = "bell\x07", "a\u202eb", "\u05d0\u05d1"
    graph = kk.FactorGraph(
        [2, 2, 2],
        [((0, 1, 2), np.ones(8))],
        names=[bell, turned, hebrew],
        states=[["x\x00", "y"]] * 3,
    )
    beliefs = kk.infer(graph, "bp")
    path = tmp_path / "run.html"
    infer_report(beliefs, path, model=bell, command=turned)
    page = check_self_contained(path)
    answer = kk.query(graph)
    texts = [path.read_text(), beliefs._repr_html_(), answer._repr_html_()]
    texts += [kk.query(graph, joint=[bell, turned])._repr_html_()]
    texts += [kk.most_probable(graph, best=2)._repr_html_()]
    for text in texts:
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)
        assert r"bell\x07" in text and r"a\u202eb" in text
    for text in texts[:3]:
        assert f"<bdi>{hebrew}</bdi>" in text
    assert "bdi" in page.tags


def test_a_large_grid_stays_below_a_megabyte(tmp_path: Path) -> None:
    graph = kk.grid(300, 300, seed=0, coupling=0.3, field=0.3)
    beliefs = kk.infer(graph, "bp:max_iter=8")
    path = tmp_path / "big.html"
    infer_report(beliefs, path, beliefs)
    page = check_self_contained(path)
    assert path.stat().st_size < 1_000_000
    assert "details" in page.tags and "The first 1,000 of 90,000 variables" in page.text


@pytest.mark.parametrize(("count", "folded"), [(200, False), (201, True)])
def test_more_than_200_variables_are_folded_away(count: int, folded: bool, tmp_path: Path) -> None:
    beliefs = kk.infer(kk.generate.random_tree(count, seed=1), "bp")
    path = tmp_path / "tree.html"
    infer_report(beliefs, path)
    page = check_self_contained(path)
    assert ("details" in page.tags) is folded
    assert f"x{count - 1} {beliefs[count - 1][0]:.6f}" in page.text


@pytest.mark.parametrize(
    ("name", "method"), [("mixed5", "mf"), ("hmm30", "bp"), ("ldpc24", "gibbs:sweeps=100")]
)
def test_pages_of_all_kinds_of_models(name: str, method: str, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    infer_report(kk.infer(example(name), method), path, model=f"example:{name}")
    page = check_self_contained(path)
    assert "svg" in page.tags and "nan" not in page.text.lower().split()


def test_models_without_variables_or_factors(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    for graph in (kk.FactorGraph([], []), kk.FactorGraph([2, 3], []), kk.FactorGraph([1], [])):
        infer_report(kk.infer(graph, "bp"), path)
        check_self_contained(path)


def test_writing_is_atomic_and_errors_are_ours(grid: kk.FactorGraph, tmp_path: Path) -> None:
    beliefs = kk.infer(grid, "bp")
    with pytest.raises(KikuchiError, match="cannot write"):
        infer_report(beliefs, tmp_path / "no" / "run.html")
    path = tmp_path / "run.html"
    path.write_text("old")
    with pytest.raises(KikuchiError):
        infer_report(beliefs, path, evidence={0: 9})
    assert path.read_text() == "old"
    infer_report(beliefs, path)
    assert [p.name for p in tmp_path.iterdir()] == ["run.html"]


# ---------------------------------------------------------------------- comparisons


def test_a_page_of_a_comparison(grid: kk.FactorGraph, tmp_path: Path) -> None:
    methods = ["jt", "bp", "mf", "gibbs:sweeps=200", "bp:schedule=tree", "bp:max_iter=1"]
    result = compare(grid, methods)
    path = tmp_path / "compare.html"
    compare_report(result, path, model="grid.uai", command="kikuchi compare grid.uai")
    page = check_self_contained(path)
    for row in result.rows:
        assert row.method in page.text
    assert "bp:schedule=tree gave no answer" in page.text
    assert "bp:max_iter=1: not converged" in page.text
    assert page.tags.count("svg") >= 5


def test_a_comparison_without_exact_or_answers(grid: kk.FactorGraph, tmp_path: Path) -> None:
    path = tmp_path / "compare.html"
    tight = kk.Budget(bytes=100)
    compare_report(compare(grid, ["bp", "mf"], budget=tight), path)
    assert "not feasible" in check_self_contained(path).text
    compare_report(compare(grid, ["bp:schedule=tree"]), path)
    assert "gave no answer" in check_self_contained(path).text


def test_errors_are_per_variable_and_leave_out_observed_ones(grid: kk.FactorGraph) -> None:
    evidence = {0: 1, 5: 0}
    exact = kk.infer(grid, "enumerate", evidence=evidence)
    found = kk.infer(grid, "mf", evidence=evidence)
    gaps = [np.abs(found[v] - exact[v]).max() for v in range(grid.n_variables) if v not in evidence]
    assert marginal_errors(found, exact, evidence) == pytest.approx((max(gaps), np.mean(gaps)))


def test_comparison_announces_each_run(grid: kk.FactorGraph) -> None:
    heard: list[str] = []
    compare(grid, ["bp", "mf"], announce=heard.append)
    assert heard == ["jt", "bp", "mf"]


# ---------------------------------------------------------------------- facts


def test_facts_of_a_model_with_zeros_and_components() -> None:
    graph = kk.FactorGraph(
        [2, 3, 2, 4], [((0, 1), [1, 0, 2, 0, 0, 3]), ((2,), [1, 1]), ((0,), [1, 2])]
    )
    facts = describe(graph)
    assert (facts.variables, facts.factors, facts.edges, facts.zeros) == (4, 3, 4, 3)
    assert facts.cardinalities == {2: 2, 3: 1, 4: 1} and facts.orders == {1: 2, 2: 1}
    assert facts.components == 3 and facts.forest and not facts.directed
    assert facts.log10_states == pytest.approx(np.log10(48))
    observed = describe(graph, {0: 0})
    assert observed.observed == 1 and observed.log10_states == pytest.approx(np.log10(24))
    for label, value in facts.lines():
        assert label and value


def test_width_of_a_grid_is_at_most_its_side_and_exact_fits() -> None:
    facts = describe(kk.grid(6, 6, seed=0))
    assert facts.grid == (6, 6)
    assert 6 <= facts.width <= 8
    fits = {fit.method: fit.fits for fit in facts.fitting_methods()}
    assert fits["jt"] and not fits["enumerate"]


def test_a_page_of_a_learnt_network_begins_with_its_arrows_and_tables(tmp_path: Path) -> None:
    asia = example("asia")
    rows = kk.read_data(_sampled(asia, tmp_path), asia)
    fit = kk.learn(asia, rows, "em:prior=1")
    path = tmp_path / "fit.html"
    learn_report(fit, rows, path, source="rows.csv", graph="example:asia")
    text = check_self_contained(path).text
    arrows = [f"{u} → {v}" for u, v in asia.edges]
    assert len(arrows) == 8 and "smoke → lung" in arrows
    assert all(arrow in text[text.index("Arrows (8)") :] for arrow in arrows)
    words = ("Arrows (8)", asia.cpt("either").title, "Learner text")
    places = [text.index(word) for word in words]
    assert places == sorted(places)
    assert f"{fit.graph.cpt('lung')[{'smoke': 'yes'}]['yes']:.4g}" in text
    assert "Settings prior=1" in text and "max_iter" not in text
    assert f"BIC {structure_score(fit.graph, rows, 'bic'):.3f}" in text


def _sampled(graph: kk.FactorGraph, folder: Path) -> Path:
    rng = np.random.default_rng(0)
    joint = kk.query(graph, joint=graph.names).table
    drawn = rng.choice(joint.size, size=300, p=joint.ravel() / joint.sum())
    states = np.stack(np.unravel_index(drawn, joint.shape), axis=1)
    lines = [",".join(graph.names or ())]
    lines += [",".join(graph.states[v][k] for v, k in enumerate(row)) for row in states.tolist()]
    path = folder / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_bounds_have_the_digits_of_their_distance_and_are_rounded_outwards() -> None:
    from types import SimpleNamespace

    from kikuchi.reports import wording

    def words(low: float, high: float) -> str:
        return wording.bounds(SimpleNamespace(log_z_lower=low, log_z_upper=high))  # type: ignore[arg-type]

    assert words(1375.945305526, 2355.007047639) == "[1375.9, 2355.1]"
    assert words(166.0339054, 166.0339954) == "[166.0339054, 166.0339954]"
    assert words(166.03127, 166.04931) == "[166.0312, 166.0494]"
    assert words(2.0, 2.0) == "exact"
