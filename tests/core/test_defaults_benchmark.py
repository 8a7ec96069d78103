"""The benchmark of defaults: medians, what fits reported, and verdicts that can be bad."""

from __future__ import annotations

import warnings

import pytest
from benchmarks.defaults import command
from benchmarks.defaults.frame import (
    Contender,
    Entry,
    Kept,
    Kind,
    Task,
    markdown,
    run,
    time_ratios,
    verdicts,
)


def _warns(data: float, seed: int) -> float:
    warnings.warn("learnt little\nsecond line", UserWarning, stacklevel=2)
    return data - 1


def _task(**changes: object) -> Task:
    words: dict[str, object] = {
        "name": "densities",
        "measure": "nats per row",
        "higher_is_better": True,
        "tolerance": 0.01,
        "choosing": {"a": lambda: 10.0},
        "reporting": {"b": lambda: 0.0, "c": lambda: 1.0},
        "contenders": [
            Contender("Ours()", "ours", lambda data, seed: data + 0.1 * seed),
            Contender("Silent()", "ours", lambda data, seed: float("nan")),
            Contender("Frank()", "ours", _warns),
            Contender("Peer()", "peer", lambda data, seed: 0.105),
            Contender("mean", "baseline", lambda data, seed: data),
        ],
        "seeds": (0, 1, 2),
    }
    return Task(**{**words, **changes})  # type: ignore[arg-type]


def test_verdicts_on_the_tables_that_are_reported():
    entries = list(run(_task()))
    assert {entry.table for entry in entries} == {"b", "c"}
    found = {(v.ours.table, v.ours.name): v for v in verdicts(_task(), entries)}
    assert found["b", "Ours()"].ours.score == pytest.approx(0.1)  # the middle seed
    assert found["b", "Ours()"].against_peer == "equal"
    assert found["c", "Ours()"].against_peer == "ahead"
    assert found["b", "Frank()"].against_baseline == "behind"
    assert found["b", "Frank()"].ours.said == ("UserWarning: learnt little",)
    assert [v.ours.name for v in found.values() if v.silent_failure] == ["Silent()"] * 2
    assert "on 2 of 6; below the baseline on 4 of 6, 2 of them without" in markdown(
        _task(), entries
    )


def test_lower_scores_may_be_the_better_ones():
    task = _task(higher_is_better=False)
    (first, *_) = verdicts(task, list(run(task)))
    assert first.against_baseline == "behind"


def test_no_table_is_both_chosen_on_and_reported():
    with pytest.raises(ValueError, match="both chosen on and reported"):
        _task(choosing={"b": lambda: 0.0})


@pytest.mark.parametrize("family", command.FAMILIES)
def test_every_family_has_both_kinds_of_tables(family):
    for task in command.tasks_of(family):
        assert task.reporting and bool(task.choosing) == (family != "fresh")
        assert {contender.kind for contender in task.contenders} >= {"ours", "baseline"}


def test_fresh_tables_are_in_no_other_family():
    others = {
        name
        for family in command.FAMILIES
        if family != "fresh"
        for task in command.tasks_of(family)
        for name in (*task.choosing, *task.reporting)
    }
    fresh = {name for task in command.tasks_of("fresh") for name in task.reporting}
    assert fresh and not fresh & others


def test_a_peer_that_ends_in_an_error_has_no_score_and_ours_must_not():
    def fails(data, seed):
        raise ValueError("covars must be positive definite")

    peers = [Contender("Ours()", "ours", lambda data, seed: 1.0), Contender("P()", "peer", fails)]
    entries = list(run(_task(contenders=peers)))
    (first, *_) = verdicts(_task(), entries)
    assert first.peer is None and first.against_peer == ""
    assert {e.said for e in entries if e.kind == "peer"} == {
        ("UserWarning: ValueError: covars must be positive definite",)
    }
    with pytest.raises(ValueError, match="covars"):
        list(run(_task(contenders=[Contender("Ours()", "ours", fails)])))


def test_fits_that_two_tasks_score_are_made_once_and_warn_every_time():
    kept: Kept[float] = Kept()
    made = []

    def fit() -> float:
        made.append(1)
        warnings.warn("learnt little", UserWarning, stacklevel=2)
        return 2.0

    scores = [Contender("A()", "ours", lambda data, seed: kept((data, seed), fit))]
    tasks = [_task(contenders=scores, reporting={"b": lambda: 0.0}, seeds=(0,)) for _ in range(2)]
    entries = [entry for task in tasks for entry in run(task)]
    assert made == [1]
    assert [entry.said for entry in entries] == [("UserWarning: learnt little",)] * 2


def test_ratios_of_times_are_medians_over_tables():
    def entry(name: str, kind: Kind, table: str, seconds: float) -> Entry:
        return Entry("densities", table, name, kind, 0.0, seconds, ())

    times = {"a": (6.0, 2.0), "b": (8.0, 1.0), "c": (10.0, 10.0)}
    entries = [entry("Ours()", "ours", t, ours) for t, (ours, _) in times.items()]
    entries += [entry("Peer()", "peer", t, peer) for t, (_, peer) in times.items()]
    assert list(time_ratios(entries)) == ["Median CPU time of `Ours()` over that of `Peer()` 3."]


def test_tables_are_chosen_by_a_word():
    assert {entry.table for entry in run(_task(), named="c")} == {"c"}
