"""What all methods share: texts, options, evidence, and the way back from the reduced graph."""

from __future__ import annotations

import dataclasses
import json
from typing import ClassVar

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import (
    BudgetError,
    EvidenceError,
    ImpossibleEvidenceError,
    MethodError,
    ModelError,
    OutOfTimeError,
)
from kikuchi.core.options import option_range
from kikuchi.engines.run import MethodRun, Solution
from kikuchi.methods.method import Method
from kikuchi.methods.registry import METHODS, parse_method
from oracle import enumerate_exact, random_model

TEXTS = list(METHODS)
EXACT = ["enumerate", "jt", "jt:propagation=hugin"]


# ---------------------------------------------------------------------- texts


def test_text_round_trip() -> None:
    method = parse_method(" bp:damping=0.5, schedule=residual ")
    assert method == kk.methods.BeliefPropagation(schedule="residual", damping=0.5)
    assert parse_method(method.text) == method
    assert parse_method("bp").text == "bp"


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_of_any_method_names_it_fully(name: str) -> None:
    """Numbers of every length, in every option that takes them."""
    rng = np.random.default_rng(0)
    for f in dataclasses.fields(METHODS.find(name)):
        if not isinstance(f.default, float):
            continue
        low, high = (f.metadata[k] for k in ("low", "high"))
        low = f.metadata["above"] if low is None else low
        high = f.metadata["below"] if high is None else high
        for value in rng.uniform(low or 0.0, 1.0 if high is None else high, 20) * 10.0**-12:
            value = max(float(value), low or 0.0) or 0.1
            try:
                method = METHODS.find(name)(**{f.name: value})
            except MethodError:  # a value that excludes the default of another option
                continue
            assert parse_method(method.text) == method


@pytest.mark.parametrize(
    "text", ["bp", "loopy-is", "is-bp", "alpha", "fractional", "bp:schedule=residual"]
)
@pytest.mark.parametrize("damping", [0.0, 0.5, 0.9])
def test_no_method_advises_what_was_tried(text: str, damping: float) -> None:
    joiner = "," if ":" in text else ":"
    limit = "" if text == "is-bp" else ",max_iter=1"
    graph = kk.grid(3, 3, seed=0, coupling=3.0)
    tried = f"{text}{joiner}damping={damping}{limit}"
    beliefs = kk.infer(graph, tried, budget=kk.Budget(iterations=1))
    for warning in beliefs.warnings:
        assert f"damping={damping:g}" not in warning.replace(",", " ").split()
        assert "schedule=residual" not in warning or "residual" not in text


@pytest.mark.parametrize("name", TEXTS)
def test_every_option_can_be_written_in_a_text(name: str) -> None:
    cls = METHODS.find(name)
    method = cls()
    every = ",".join(
        f"{f.name}={str(getattr(method, f.name)).lower()}" for f in dataclasses.fields(cls)
    )
    assert parse_method(f"{name}:{every}") == method
    for f in dataclasses.fields(cls):
        assert f.metadata["help"], f"option {f.name} of {name} has no description"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("bq", "there is no method 'bq'; did you mean 'bp'"),
        ("nonsense", "known: auto, enumerate, jt, bp"),
        ("bp:dampin=0.5", "did you mean 'damping'"),
        ("bp:damping", "not of the form option=value"),
        ("bp:damping=half", "cannot be 'half'; it takes a number"),
        ("bp:max_iter=1.5", "it takes a whole number"),
        ("bp:damping=1", r"must be in \[0, 1\), got 1"),
        ("bp:damping=nan", r"must be in \[0, 1\)"),
        ("bp:damping=0.1,damping=0.2", "given twice"),
        ("bp:schedule=fast", "must be one of parallel, sequential"),
        ("bp:trace_energy=maybe", "it takes true or false"),
        ("", "there is no method ''"),
    ],
)
def test_bad_texts_say_what_to_do(text: str, complaint: str) -> None:
    with pytest.raises(MethodError, match=complaint):
        parse_method(text)


def test_options_are_checked_when_built() -> None:
    with pytest.raises(MethodError, match="option damping"):
        kk.methods.BeliefPropagation(damping=-0.1)
    with pytest.raises(MethodError, match="whole number"):
        kk.methods.BeliefPropagation(max_iter=3.5)  # type: ignore[arg-type]
    with pytest.raises(MethodError, match="whole number"):
        kk.methods.BeliefPropagation(max_iter=True)
    assert kk.methods.BeliefPropagation(damping=0).damping == 0.0
    assert kk.methods.BeliefPropagation(damping_end=None).damping_end is None
    ranges = {f.name: option_range(f) for f in dataclasses.fields(kk.methods.BeliefPropagation)}
    assert ranges["damping"] == "[0, 1)"
    assert ranges["schedule"] == ""


def test_methods_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        kk.methods.BeliefPropagation().damping = 0.5  # type: ignore[misc]


# ---------------------------------------------------------------------- every method


@pytest.mark.parametrize("text", TEXTS)
def test_every_method_answers_in_the_same_shape(text: str) -> None:
    # Some methods take only some models: a mixed one, a binary pairwise one, a forest.
    models = [
        random_model(np.random.default_rng(1), n=5, n_factors=6),
        kk.grid(2, 3, seed=0),
        kk.generate.random_tree(6, seed=0),
    ]
    answers = [(graph, answer) for graph in models if (answer := _unless_refused(graph, text))]
    assert answers, "refused every model"
    for graph, beliefs in answers:
        _check_shape(graph, beliefs)


def _unless_refused(graph: kk.FactorGraph, text: str) -> kk.Beliefs | None:
    try:
        return kk.infer(graph, text)
    except MethodError:
        return None


def _check_shape(graph: kk.FactorGraph, beliefs: kk.Beliefs) -> None:
    log_z, _, _ = enumerate_exact(graph)
    assert [len(m) for m in beliefs.marginals] == graph.cardinalities.tolist()
    for marginal in beliefs.marginals:
        assert marginal.min() >= 0
        assert marginal.sum() == pytest.approx(1.0, abs=1e-12)
    method = parse_method(beliefs.method)
    for a in range(graph.n_factors if method.gives_factor_beliefs else 0):
        assert beliefs.factor(a).shape == graph.shape(a)
        assert beliefs.factor(a).sum() == pytest.approx(1.0, abs=1e-9)
    if beliefs.log_z_lower is not None:
        assert beliefs.log_z_lower <= log_z + 1e-9
    if beliefs.log_z_upper is not None:
        assert beliefs.log_z_upper >= log_z - 1e-9
    plain = json.loads(json.dumps(beliefs.to_dict(), allow_nan=False))
    contract = {"method", "log_z", "log_z_lower", "log_z_upper", "converged", "iterations"}
    assert contract | {"seconds", "marginals", "warnings"} <= set(plain)
    assert isinstance(beliefs.to_dict()["converged"], bool)


@pytest.mark.parametrize("text", TEXTS)
def test_evidence_reaches_every_method(text: str) -> None:
    """Observed variables get all mass; a fully observed model has its weight as Z."""
    graph = random_model(np.random.default_rng(2), n=4, n_factors=5)
    state = {v: int(c) - 1 for v, c in enumerate(graph.cardinalities)}
    beliefs = kk.infer(graph, text, evidence=state)
    score = graph.log_score([state[v] for v in range(4)])
    assert beliefs.log_z == pytest.approx(score)
    assert beliefs.log_z_lower == pytest.approx(score)
    for v, k in state.items():
        assert beliefs[v][k] == 1.0
    assert beliefs.factor(0).max() == 1.0


@pytest.mark.parametrize("text", EXACT)
def test_conditioning_agrees_with_enumeration(text: str) -> None:
    for seed in range(10):
        graph = random_model(np.random.default_rng(seed), n=6, n_factors=7, zeros=0.1)
        evidence = {1: 0, 3: int(graph.cardinalities[3]) - 1}
        clamped = graph.clamp(evidence)
        with np.errstate(all="ignore"):
            log_z, singles, tables = enumerate_exact(clamped)
        if not np.isfinite(log_z):
            with pytest.raises(ImpossibleEvidenceError, match="probability zero"):
                kk.infer(graph, text, evidence=evidence)
            continue
        beliefs = kk.infer(graph, text, evidence=evidence)
        assert beliefs.log_z == pytest.approx(log_z, abs=1e-10)
        np.testing.assert_allclose(beliefs.flat_marginals, np.concatenate(singles), atol=1e-11)
        flat = np.concatenate([t.ravel() for t in tables[: graph.n_factors]])
        np.testing.assert_allclose(beliefs.flat_factors, flat, atol=1e-11)


@pytest.mark.parametrize("text", TEXTS)
def test_graph_without_factors_is_uniform(text: str) -> None:
    beliefs = kk.infer(kk.FactorGraph([2, 3, 1], []), text)
    assert beliefs.log_z == pytest.approx(np.log(6))
    np.testing.assert_allclose(beliefs.flat_marginals, [0.5, 0.5, 1 / 3, 1 / 3, 1 / 3, 1.0])


def test_bad_evidence_is_named() -> None:
    graph = kk.FactorGraph(
        [2, 2], [((0, 1), np.ones((2, 2)))], names=["rain", "wet"], states=[["no", "yes"]] * 2
    )
    for evidence, complaint in [
        ({"ran": 1}, "did you mean 'rain'"),
        ({"rain": 2}, "states 0..1, got 2"),
        ({"rain": "maybe"}, "no state 'maybe'"),
        ({"rain": -1}, "states 0..1, got -1"),
        ({"rain": 0.5}, "is not a state"),
        ({5: 1}, "no variable 5"),
        ({"rain": 0, 0: 1}, "observed twice"),
    ]:
        with pytest.raises(EvidenceError, match=complaint):
            kk.infer(graph, "jt", evidence=evidence)
    assert kk.infer(graph, "jt", evidence={"rain": "yes"})["rain"].tolist() == [0.0, 1.0]


@dataclasses.dataclass(frozen=True)
class Flat(Method):
    name: ClassVar[str] = "flat"
    summary: ClassVar[str] = "Says nothing"

    def _solve(self, graph: kk.FactorGraph, run: MethodRun) -> Solution:
        cards = graph.cardinalities
        return Solution(np.repeat(1.0 / cards, cards))


def test_a_new_method_needs_only_its_mathematics() -> None:
    """The promise of the design: options and `_solve` make a method."""
    beliefs = Flat().run(kk.FactorGraph([2, 4], [((0, 1), np.ones(8))]), evidence={0: 1})
    assert beliefs[1].tolist() == [0.25] * 4
    assert beliefs[0].tolist() == [0.0, 1.0]
    assert beliefs.log_z is None


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("kikuchi", kk.grid(20, 20, seed=0)),
        ("gbp:regions=loops:4", kk.grid(20, 20, seed=0)),
        ("ups", kk.generate.complete(20, seed=0)),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_set_up_ends_with_its_seconds(text: str, model: kk.FactorGraph) -> None:
    kk.infer(kk.grid(3, 3, seed=0), text)
    with pytest.raises(OutOfTimeError, match="give more seconds or"):
        kk.infer(model, text, budget=kk.Budget(seconds=1e-6))


def test_regions_that_do_not_fit_are_refused_before_they_are_listed() -> None:
    with pytest.raises(BudgetError, match="listing the regions needs"):
        kk.infer(kk.grid(20, 20, seed=0), "kikuchi", budget=kk.Budget(bytes=100_000))


def test_options_are_given_by_name_too() -> None:
    import kikuchi as kk

    graph = kk.grid(3, 3, seed=0)
    by_name = kk.infer(graph, "bp", damping=0.5, schedule="residual")
    assert by_name.method == kk.infer(graph, "bp:damping=0.5,schedule=residual").method
    assert kk.infer(graph, kk.methods.BeliefPropagation(), damping=0.5).method == "bp:damping=0.5"
    with pytest.raises(MethodError, match=r"bp has no option 'dampng'.*damping"):
        kk.infer(graph, "bp", dampng=0.5)
    with pytest.raises(MethodError, match="damping"):
        kk.infer(graph, "bp", damping=2.0)


def test_marginals_take_names_of_states_and_are_arrays() -> None:
    import pickle

    import kikuchi as kk

    asia = kk.example("asia")
    lung = kk.infer(asia, "jt", evidence={"xray": "yes"})["lung"]
    assert lung["yes"] == pytest.approx(0.488711, abs=1e-6)
    assert lung["yes"] == lung[1] and isinstance(lung, np.ndarray)
    assert type(lung + 1) is np.ndarray and type(lung[::-1]) is np.ndarray
    assert lung.sum() == pytest.approx(1.0)
    again = pickle.loads(pickle.dumps(lung))
    assert again["no"] == lung["no"] and again.states == ("no", "yes")
    with pytest.raises(ModelError, match="lung has no state 'maybe'; its states are no, yes"):
        lung["maybe"]
    assert kk.infer(kk.grid(2, 2, seed=0), "jt")["x1"]["1"] > 0
