"""Verdicts on rows and on experiments, and the runs that they are read from."""

from __future__ import annotations

import json
import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kikuchi.core.errors import KikuchiError
from kikuchi_experiments import find_experiment, reproduce, stored
from kikuchi_experiments.aggregate import above, all_of, below, between, within
from kikuchi_experiments.catalogue import all_experiments
from kikuchi_experiments.experiment import Finished, Judgement, Row, verdict_of
from kikuchi_experiments.lawrence2000.ica import BayesianImages
from kikuchi_experiments.runner import Outcome
from kikuchi_experiments.stored import StoredRun, status_and_date, store, stored_run
from kikuchi_experiments.teh2003.counter_example import CounterExample

ROOT = Path(__file__).resolve().parents[2]
YES, NO = Judgement(True, "asked"), Judgement(False, "asked")


def said(judgement: Judgement | None, ours: float | None = 1.0) -> Row:
    """A row about which the document says something."""
    return Row("x", ours, 1.0, None, "", judgement)


# ---------------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([said(YES)], "agrees"),
        ([said(YES), said(None)], "agrees"),  # other data
        ([said(YES), said(None, ours=None)], "agrees in part"),  # quoted, not run
        ([said(YES), said(YES), said(NO)], "agrees in part"),
        ([said(YES), said(NO)], "disagrees"),
        ([said(NO)], "disagrees"),
        ([said(None)], "not comparable"),
        ([said(None, ours=None), Row("x", 1.0, None, 1.0, "", YES)], "not comparable"),
        ([said(YES), Row("x", 1.0, None, 2.0, "", NO)], "agrees in part"),  # off its reference
        ([], "not comparable"),
    ],
)
def test_the_verdict_on_a_table(rows: list[Row], verdict: str) -> None:
    assert verdict_of(rows) == verdict


def test_a_row_that_was_not_run_has_no_judgement() -> None:
    assert said(None, ours=None).verdict == "not run"
    assert said(None).verdict == "not comparable"
    with pytest.raises(ValueError, match="not run cannot be judged"):
        said(NO, ours=None)


def test_criteria_hold_on_one_side_only() -> None:
    assert within(1.0, 1.2, 0.3).agrees and not within(1.0, 1.4, 0.3).agrees
    assert above(2.0, 1.0).agrees and not above(1.0, 1.0).agrees
    assert below(0.5, 1.0).agrees and not below(1.0, 1.0).agrees
    assert between(1.0, 1.0, 2.0).agrees and not between(2.1, 1.0, 2.0).agrees
    assert all_of(3, 3).agrees and not all_of(2, 3).agrees


def perturbed(finished: Sequence[Finished], factor: float) -> list[Finished]:
    """The cases with every number of their results multiplied."""

    def scaled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: scaled(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [scaled(entry) for entry in value]
        return value * factor if isinstance(value, float) else value

    return [replace(one, result=scaled(one.result)) for one in finished]


def test_wrong_numbers_disagree() -> None:
    outcome = reproduce("LAW-E2", quick=True, processes=1)
    assert outcome.verdict == "agrees"
    wrong = outcome.experiment.rows(perturbed(outcome.finished, 1.01))
    assert [row.verdict for row in wrong] == ["disagrees"] * 2
    assert verdict_of(wrong) == "disagrees"


def test_the_document_counts_also_where_the_reference_differs() -> None:
    def row(source: str, converged: bool, bias: float) -> Row:
        result = {"converged": converged, "period": None, "biases": [bias, bias], "cycle": []}
        return CounterExample().rows([Finished({"source": source}, result, 0.0)])[0]

    assert row("bp", True, -2.9594661).verdict == "agrees"
    assert row("bp", True, -2.9).verdict == row("bp", False, -2.9594661).verdict == "disagrees"
    damped = row("tap-damped", True, -3.3973)  # as the reference has it; the thesis denies it
    assert damped.verdict == "disagrees" and damped.published == "does not converge"


def test_a_source_that_goes_away_contradicts_the_images_of_lawrence() -> None:
    def recovered(relevance: float, ghost: float) -> dict[str, Any]:
        return {"relevance": [0, 0, relevance], "matched": [0.9, 0.9], "ghost": ghost, "bound": 0.0}

    def table(relevance: float, ghost: float) -> list[Row]:
        names = ("two", "three", "learned")
        found = {name: recovered(relevance, ghost if name == "three" else 0.1) for name in names}
        result = {"kurtosis": [-1, -1], **found, "pruned": {"kept": 2}}
        return BayesianImages().rows([Finished({}, result, 0.0)])

    assert verdict_of(table(0.5, 0.4)) == "agrees"
    assert verdict_of(table(5.0, 0.4)) == "agrees in part"
    assert verdict_of(table(5.0, 0.0)) == "disagrees"


# ---------------------------------------------------------------------- stored runs


@pytest.fixture
def outcome() -> Outcome:
    return reproduce("LAW-E2", processes=1)


def test_a_stored_run_is_read_as_it_was(outcome: Outcome, tmp_path: Path) -> None:
    path = store(outcome, tmp_path)
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["setting"] == "full" and data["seeds"] == 0 and "results" not in data
    run = stored_run(outcome.experiment)
    assert run is not None and list(run.rows) == outcome.rows()
    assert run.verdict == outcome.verdict == "agrees" and not run.is_stale(outcome.experiment)


def test_the_verdict_is_read_from_the_rows_that_are_kept(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stored_run(outcome.experiment)
    assert run is not None

    def status(changed: StoredRun | None) -> str:
        monkeypatch.setattr(stored, "stored_run", lambda _: changed)
        return status_and_date(outcome.experiment)[0]

    wrong = tuple(replace(row, judgement=NO) for row in run.rows)
    assert status(run) == "agrees" and status(None) == "not run"
    assert status(replace(run, rows=wrong)) == "disagrees"
    assert status(replace(run, version="0.0.0")) == "agrees (stale)"
    assert status(replace(run, fingerprint="")) == "agrees (stale)"
    quick = stored.fingerprint(outcome.experiment, True)
    assert (
        status(replace(run, setting="quick", fingerprint=quick)) == "agrees (of the quick setting)"
    )


def test_settings_and_published_figures_belong_to_the_fingerprint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = find_experiment("TEH-E8")
    before = stored.fingerprint(experiment, False)
    entry = dict(stored._entry(experiment))
    claims = dict(entry["claims"])

    def with_claim(claim: list[Any]) -> str:
        changed = {**entry, "claims": {**claims, "bp": claim}}
        monkeypatch.setattr(stored, "_entry", lambda _: changed)
        return stored.fingerprint(experiment, False)

    same = list(claims["bp"])
    assert with_claim(same) == with_claim([*same[:3], "another note"]) == before
    assert with_claim([same[0], "does not converge", *same[2:]]) != before
    assert stored.fingerprint(experiment, True) != before


def test_only_whole_runs_are_kept(outcome: Outcome, tmp_path: Path) -> None:
    for wrong in (replace(outcome, total=2), replace(outcome, seeds=(3,))):
        with pytest.raises(KikuchiError, match="only a whole run of a setting"):
            store(wrong, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_runs_on_own_data_are_kept_where_there_are_no_others(
    outcome: Outcome, tmp_path: Path
) -> None:
    (tmp_path / "0_anna_0.wav").write_bytes(b"12")
    speech = find_experiment("LIU-X7", str(tmp_path))
    digits = find_experiment("WH-E1", str(tmp_path / "0_anna_0.wav"))
    kept = tmp_path / "kept"

    def run(experiment: Any) -> Outcome:
        return replace(outcome, experiment=experiment, seeds=tuple(range(experiment.full.seeds)))

    with pytest.raises(KikuchiError, match="only a whole run of a setting"):
        store(run(digits), kept)
    whole = run(speech)
    speech.rows = lambda _: []  # type: ignore[method-assign]
    data = json.loads(store(whole, kept).read_text(encoding="utf-8"))
    assert data["data"] == speech.source()["digest"] and str(tmp_path) not in json.dumps(data)
    assert data["fingerprint"] == stored.fingerprint(find_experiment("LIU-X7"), False)


def test_every_judged_row_that_is_kept_states_its_criterion() -> None:
    for experiment in all_experiments():
        run = stored_run(experiment)
        for row in () if run is None else run.rows:
            assert bool(row.criterion) == (row.agrees is not None)


def test_the_list_of_the_documentation_is_that_of_the_kept_runs() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "verdicts.py"))
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    assert tool["written"](page) == page
