"""Manners in Python: limits and progress as keywords, one line for bad types, records, pickles,
notebooks, and names that type checkers see.
"""

from __future__ import annotations

import inspect
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kikuchi as kk
from kikuchi.reports.comparison import compare

ASIA = kk.example("asia")
ROWS = [[0, 1], [1, 0], [1, 1], [0, 0]] * 5
COIN = kk.FactorGraph([2], [((0,), [1, 1])])
PUBLIC = (kk, kk.brackets, kk.generate, kk.graphs, kk.learning, kk.methods, kk.queries, kk.regions)


# ---------------------------------------------------------------------- limits


def functions_with_a_budget() -> dict[str, Any]:
    found = {name: getattr(room, name) for room in PUBLIC for name in room.__all__}
    taken = {n: f for n, f in found.items() if inspect.isfunction(f) and "budget" in _names(f)}
    methods = {
        "Method.run": kk.methods.JunctionTree.run,
        "Learner.fit": kk.learning.EM.fit,
        "compare": compare,
    }
    return {**taken, **methods}


def _names(function: Any) -> set[str]:
    """Names of the arguments, as `help` shows them."""
    return set(inspect.signature(function).parameters)


def test_whatever_takes_a_budget_takes_seconds_and_memory() -> None:
    only_memory = {"to_pairwise", "region_graph"}  # no loop that time could end
    for name, function in functions_with_a_budget().items():
        assert "memory" in _names(function), name
        assert "seconds" in _names(function) or name in only_memory, name


@pytest.mark.parametrize(
    "ask",
    [
        lambda **limits: kk.infer(ASIA, "bp", **limits),
        lambda **limits: kk.methods.BeliefPropagation().run(ASIA, **limits),
        lambda **limits: kk.query(ASIA, "lung", **limits),
        lambda **limits: kk.predict_proba(ASIA, {"xray": ["yes"]}, ["lung"], **limits),
        lambda **limits: kk.most_probable(ASIA, **limits),
        lambda **limits: kk.marginal_map(ASIA, ["lung"], **limits),
        lambda **limits: kk.sensitivity(ASIA, "lung", "yes", **limits),
        lambda **limits: kk.information_gain(ASIA, "lung", **limits),
        lambda **limits: kk.learn(COIN, [[1], [0]], "pseudo", **limits),
        lambda **limits: kk.evaluate(COIN, [[1], [0]], **limits),
        lambda **limits: kk.learning.draw_samples(ASIA, 2, **limits),
        lambda **limits: kk.brackets.certify(ASIA, **limits),
        lambda **limits: kk.learning.hill_climb(ROWS, **limits),
        lambda **limits: kk.learning.pc(ROWS, **limits),
        lambda **limits: kk.learning.clamped_log_z(COIN, [[1]], **limits),
    ],
)
def test_limits_as_keywords_and_what_they_refuse(ask: Any) -> None:
    ask(seconds=60, memory="1GB")
    ask(seconds=60.0, memory=10**9)
    for bad, says in (
        ({"seconds": "5"}, "seconds must be a number, got '5'"),
        ({"seconds": -1}, "seconds must be positive"),
        ({"memory": "5XB"}, "is not a size"),
        ({"memory": 1.5}, "memory must be a number of bytes or a string"),
        ({"budget": 5}, "budget must be a Budget"),
        ({"budget": kk.Budget(), "seconds": 1}, "not both"),
    ):
        with pytest.raises(kk.KikuchiError, match=says) as caught:
            ask(**bad)
        assert "\n" not in str(caught.value)


def test_memory_that_does_not_suffice_is_said_with_its_figure() -> None:
    with pytest.raises(kk.KikuchiError, match=r"needs .* but the budget is 1 kB"):
        kk.infer(kk.grid(8, 8, seed=0), "jt", memory="1kB")


# ---------------------------------------------------------------------- progress


def test_progress_is_shown_told_or_refused(capsys: pytest.CaptureFixture[str]) -> None:
    hard = kk.generate.complete(120, seed=0, coupling=1.0)
    told: list[int] = []

    def tell(done: int, total: int, *, residual: Any, objective: Any) -> None:
        told.append(done)

    kk.infer(hard, "bp:tol=0,max_iter=100000", seconds=0.4, progress=tell)
    assert told
    kk.infer(hard, "bp:tol=0,max_iter=100000", seconds=0.4, progress=True)
    assert "bp:tol=0,max_iter=100000: " in capsys.readouterr().err  # lines without a terminal
    kk.infer(hard, "bp:tol=0,max_iter=100000", seconds=0.4, progress=False)
    assert capsys.readouterr().err == ""
    with pytest.raises(kk.KikuchiError, match="progress must be True, False or a callback"):
        kk.infer(ASIA, progress="yes")


# ---------------------------------------------------------------------- wrong types


@pytest.mark.parametrize(
    "ask, says",
    [
        (lambda: kk.infer("asia.bif"), "infer takes a FactorGraph, got str"),
        (lambda: kk.bounds("asia.bif"), "bounds takes a FactorGraph, got str"),
        (lambda: kk.brackets.certify("asia.bif"), "certify takes a FactorGraph, got str"),
        (lambda: kk.plan("asia.bif"), "plan takes a FactorGraph, got str"),
        (lambda: kk.learn([[0]], ASIA), "learn takes a FactorGraph, got list"),
        (lambda: kk.learn(ASIA, "rows.csv"), "got 'rows.csv'; kk.read_data reads a file"),
        (lambda: kk.evaluate("asia.bif", [[0]]), "evaluate takes a FactorGraph, got str"),
        (
            lambda: kk.learning.draw_samples("asia.bif", 3),
            "draw_samples takes a FactorGraph, got str",
        ),
        (lambda: kk.learning.draw_samples(ASIA, 2.5), "integer of at least 0, got 2.5"),
        (
            lambda: kk.regions.region_graph("asia.bif", "cvm"),
            "region_graph takes a FactorGraph, got str",
        ),
        (lambda: kk.bounds(ASIA, ibound="x"), "ibound must be an integer or None, got 'x'"),
        (lambda: kk.infer(ASIA).factor(8), "there is no factor 8; the model has factors 0..7"),
        (lambda: ASIA.scope(-1), "there is no factor -1; the model has factors 0..7"),
        (
            lambda: ASIA.table("lung"),
            r"there is no factor 'lung'.*graph.cpt\('lung'\) is the table",
        ),
        (
            lambda: kk.query("example:asia", "lung"),
            r"not a file; kk.example\('asia'\) is the bundled",
        ),
        (lambda: kk.read("asia"), "asia: the name has no extension; use one of .uai"),
        (
            lambda: kk.infer(ASIA, 3),
            "method: a string such as 'auto' or an object is required, got 3",
        ),
        (
            lambda: kk.infer(ASIA, kk.methods.MeanField),
            r"got the class itself; write MeanField\(\)",
        ),
        (lambda: kk.infer(ASIA, evidence="dysp=yes"), "evidence must be a mapping"),
        (lambda: kk.query(ASIA, "lung", evidence=["dysp"]), "evidence must be a mapping"),
        (lambda: kk.query(ASIA, "lung", likelihood=3), "likelihood must be a mapping"),
        (lambda: kk.query(ASIA, "lung", observed_marginals=3), "observed_marginals must be a"),
        (
            lambda: kk.predict_proba(ASIA, {"xray": ["yes"]}, impossible="skip"),
            "impossible must be 'error' or 'missing', got 'skip'",
        ),
    ],
)
def test_wrong_types_get_one_line(ask: Any, says: str) -> None:
    with pytest.raises(kk.KikuchiError, match=says) as caught:
        ask()
    assert "\n" not in str(caught.value)


def test_observed_marginals_by_names_of_states() -> None:
    by_name = kk.query(ASIA, "lung", observed_marginals={"smoke": {"yes": 0.9, "no": 0.1}})
    in_order = kk.query(ASIA, "lung", observed_marginals={"smoke": [0.1, 0.9]})
    assert by_name["lung"]["yes"] == in_order["lung"]["yes"] == pytest.approx(0.091)


def test_cases_without_columns_are_answered_by_the_prior() -> None:
    table = kk.predict_proba(ASIA, pd.DataFrame(index=["a", "b"]), ["lung"])
    assert table.index.tolist() == ["a", "b"]
    assert table["lung=yes"].tolist() == pytest.approx([0.055, 0.055])


# ---------------------------------------------------------------------- records


def test_records_of_the_standard_logging_module(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="kikuchi")
    kk.infer(kk.grid(6, 6, seed=0))
    kk.infer(kk.generate.complete(12, seed=0, coupling=3.0), "bp:max_iter=2")
    kk.learn(COIN, [[1], [0]], "pseudo")
    said = [(r.name, r.levelname, r.getMessage()) for r in caplog.records]
    assert any(n == "kikuchi.methods" and "auto chose jt" in text for n, _, text in said)
    assert any(n == "kikuchi.methods.plan" and "width 6" in text for n, _, text in said)
    warned = [text for n, level, text in said if level == "WARNING" and n == "kikuchi.methods"]
    assert any("not converged" in text for text in warned)
    assert any(n == "kikuchi.learning" and "pseudo" in text for n, _, text in said)


def test_nothing_is_printed_unless_asked_for() -> None:
    script = (
        "import kikuchi as kk, logging\n"
        "kk.infer(kk.generate.complete(12, seed=0, coupling=3.0), 'bp:max_iter=2')\n"
        "handlers = logging.getLogger('kikuchi').handlers\n"
        "assert [type(h).__name__ for h in handlers] == ['NullHandler'], handlers\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == ""


# ---------------------------------------------------------------------- results


def test_results_pickle_show_themselves_and_are_short_in_a_terminal() -> None:
    results = [
        ASIA,
        kk.infer(ASIA, "bp"),
        kk.infer(ASIA),
        kk.query(ASIA, "lung"),
        kk.query(ASIA, joint=["lung", "bronc"]),
        kk.most_probable(ASIA, best=2),
        kk.marginal_map(ASIA, ["lung"]),
        kk.sensitivity(ASIA, "lung", "yes", tables=["lung"]),
        kk.bounds(ASIA, seconds=0.2),
        kk.brackets.certify(ASIA),
        kk.learn(COIN, [[1], [0]], "pseudo"),
        kk.learning.hill_climb(ROWS),
        kk.learning.pc(ROWS),
    ]
    for result in results:
        again = pickle.loads(pickle.dumps(result))
        assert repr(again) == repr(result) and len(repr(result)) < 600
        assert "<table" in result._repr_html_(), type(result)
    for short in (kk.plan(ASIA), kk.learning.draw_samples(ASIA, 100)):
        assert len(repr(short)) < 150 and repr(pickle.loads(pickle.dumps(short))) == repr(short)


# ---------------------------------------------------------------------- names and types


def test_help_says_every_argument() -> None:
    for name, function in functions_with_a_budget().items():
        said = inspect.getdoc(function) or ""
        if name in ("Method.run", "Learner.fit", "predict_file", "compare"):
            continue  # they point at another function, or tell it in sentences
        missing = [p for p in _names(function) if p not in said and p not in ("self", "options")]
        assert not missing, (name, missing)


@pytest.mark.slow
def test_type_checkers_see_the_public_names(tmp_path: Path) -> None:
    script = tmp_path / "user.py"
    script.write_text(
        "import kikuchi as kk\n"
        "model: kk.FactorGraph = kk.example('asia')\n"
        "beliefs: kk.Beliefs = kk.infer(model, 'bp', seconds=5, memory='1GB', progress=True)\n"
        "log_z: float | None = beliefs.log_z\n"
        "fit: kk.Fit = kk.learn(model, [[0] * 8], kk.learning.EM(), seconds=1.0)\n"
        "bounds: kk.brackets.LogZBounds = kk.bounds(model, evidence={'xray': 'yes'}, seconds=1)\n"
        "wrong: int = kk.infer(model).method\n"
        "kk.bounds(model, second=5)\n" + "".join(f"kk.{name}\n" for name in kk.__all__)
    )
    words = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(script)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    found = [line for line in done.stdout.splitlines() if "error:" in line]
    assert len(found) == 2, done.stdout
    assert "user.py:7" in found[0] and '"second"' in found[1]


# ---------------------------------------------------------------------- files and workers


@pytest.mark.parametrize("ending", ["bif", "xmlbif", "net", "xdsl", "dsl", "json", "uai", "fg"])
def test_names_survive_every_format(ending: str, tmp_path: Path) -> None:
    kk.write(ASIA, tmp_path / f"asia.{ending}")
    again = kk.read(tmp_path / f"asia.{ending}")
    assert again.names == ASIA.names and again.states == ASIA.states
    assert kk.query(again, "lung", evidence={"xray": "yes"})["lung"]["yes"] == pytest.approx(
        kk.query(ASIA, "lung", evidence={"xray": "yes"})["lung"]["yes"], abs=1e-12
    )
    plain = kk.FactorGraph([2], [((0,), [1, 3])])
    kk.write(plain, tmp_path / f"asia.{ending}") if ending in ("uai", "fg", "json") else None
    if ending in ("uai", "fg"):  # names of the model before are gone
        assert kk.read(tmp_path / f"asia.{ending}").names is None


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["threads", "own"])
def client(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of two Dask workers that listen on the loopback interface: threads or processes."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(os, "environ", dict(os.environ))  # workers in this process cap threads
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=request.param,
            protocol="tcp://",
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_a_dask_client_shares_the_rows(client: Any, tmp_path: Path) -> None:
    """The numbers are those of this process, and the scheduler has seen the work."""
    states = list(product(["yes", "no", None], repeat=4))
    cases = pd.DataFrame(states, columns=["xray", "smoke", "asia", "dysp"])
    here = kk.predict_proba(ASIA, cases, ["lung", "tub"])
    there = kk.predict_proba(ASIA, cases, ["lung", "tub"], processes=client)
    pd.testing.assert_frame_equal(here, there, rtol=1e-12, atol=1e-14)
    seen = client.cluster.scheduler.task_prefixes
    done = sum(prefix.state_counts["memory"] for prefix in seen.values())
    assert done >= 4  # 81 distinct rows for two workers
    bp = kk.predict_proba(ASIA, cases, ["lung"], method="bp", processes=client)
    alone = kk.predict_proba(ASIA, cases, ["lung"], method="bp")
    pd.testing.assert_frame_equal(alone, bp, rtol=1e-9, atol=1e-9)
    cases.to_csv(tmp_path / "cases.csv", index=False)
    kk.predict_file(ASIA, tmp_path / "cases.csv", tmp_path / "out.csv", ["lung"], processes=client)
    written = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_allclose(written["lung=yes"], here["lung=yes"], atol=1e-9)
    with pytest.raises(kk.KikuchiError, match=r"row 1: .* tub=yes, either=no together"):
        impossible = {"tub": ["no", "yes"], "either": ["no", "no"]}
        kk.predict_proba(ASIA, impossible, ["lung"], processes=client)


def test_processes_of_no_known_kind() -> None:
    with pytest.raises(kk.KikuchiError, match="an integer, None or a Dask client, got 'two'"):
        kk.predict_proba(ASIA, {"xray": ["yes"]}, ["lung"], processes="two")
