"""What every registered method says of itself, held against what it does, and what all promise."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest

import kikuchi as kk
from common.estimators import ctrl_c_works
from kikuchi.core import run as core_run
from kikuchi.core.errors import (
    BudgetError,
    EvidenceError,
    ImpossibleEvidenceError,
    KikuchiError,
    MethodError,
)
from kikuchi.methods.method import Method
from kikuchi.methods.registry import METHODS
from kikuchi.reports.facts import describe
from oracle import enumerate_exact

CLASSES = list(METHODS.values())
each_method = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.name)


def _ring(seed: int, cards: tuple[int, ...], extra: tuple[int, ...] = ()) -> kk.FactorGraph:
    """A cycle over all variables, and one more factor over `extra`."""
    rng = np.random.default_rng(seed)
    scopes = [(v, (v + 1) % len(cards)) for v in range(len(cards))] + ([extra] if extra else [])
    tables = [np.exp(rng.normal(size=[cards[v] for v in scope])) for scope in scopes]
    return kk.FactorGraph(cards, list(zip(scopes, tables, strict=True)))


def _forest(seed: int, cards: tuple[int, ...]) -> kk.FactorGraph:
    rng = np.random.default_rng(seed)
    scopes = [(int(rng.integers(v)), v) for v in range(1, len(cards))] + [(0,)]
    tables = [np.exp(rng.normal(size=[cards[v] for v in scope])) for scope in scopes]
    return kk.FactorGraph(cards, list(zip(scopes, tables, strict=True)))


def _with_zero(graph: kk.FactorGraph) -> kk.FactorGraph:
    tables = [np.exp(graph.log_table(a)) for a in range(graph.n_factors)]
    tables[0] = tables[0].copy()
    tables[0].flat[0] = 0.0
    scopes = [graph.scope(a) for a in range(graph.n_factors)]
    return kk.FactorGraph(graph.cardinalities, list(zip(scopes, tables, strict=True)))


BINARY = (2, 2, 2, 2, 2)
MIXED = (2, 3, 2, 2, 3)
PAIRWISE = _ring(0, BINARY)
MODELS = {
    "binary pairwise": PAIRWISE,
    "binary pairwise with a zero": _with_zero(PAIRWISE),
    "triple": _ring(1, BINARY, (0, 2, 4)),
    "mixed": _ring(2, MIXED),
    "forest": _forest(3, MIXED + MIXED),
    "binary forest": _forest(4, BINARY),
}


def _takes(cls: type[Method], name: str) -> bool:
    """Whether a method should take a model, by what it says."""
    if cls.needs_forest and "forest" not in name:
        return False
    if cls.needs_binary_pairwise and name in ("triple", "mixed", "forest"):
        return False
    return not (cls.needs_positive_tables and "zero" in name)


def _is_exact(beliefs: kk.Beliefs, graph: kk.FactorGraph) -> bool:
    log_z, singles, _ = enumerate_exact(graph)
    close = np.abs(beliefs.flat_marginals - np.concatenate(singles)).max() < 1e-6
    return bool(close) and beliefs.log_z is not None and abs(beliefs.log_z - log_z) < 1e-6


@each_method
@pytest.mark.parametrize("name", MODELS)
def test_a_method_takes_the_models_it_says_and_refuses_others(cls: type[Method], name: str) -> None:
    graph = MODELS[name]
    fits = {fit.method: fit.fits for fit in describe(graph).fitting_methods()}
    if not _takes(cls, name):
        with pytest.raises(MethodError):
            cls().run(graph)
        assert fits[cls.name] is False
        return
    assert fits[cls.name] is not cls.only_for_observed_marginals
    beliefs = cls().run(graph)
    log_z, _, _ = enumerate_exact(graph)
    assert (beliefs.log_z is not None) is cls.gives_log_z
    if "lower" in cls.certifies:
        assert beliefs.log_z_lower is not None
    if "upper" in cls.certifies:
        assert beliefs.log_z_upper is not None
    assert beliefs.log_z_lower is None or beliefs.log_z_lower <= log_z + 1e-9
    assert beliefs.log_z_upper is None or beliefs.log_z_upper >= log_z - 1e-9
    always = cls.exactness in ("always", "affordable")
    if always or (cls.exactness == "forests" and "forest" in name):
        assert _is_exact(beliefs, graph)


@each_method
def test_what_a_method_does_not_say_it_does_not_do(cls: type[Method]) -> None:
    """On some model without cycles, or with them, the answer of an approximation differs."""
    takes = [name for name in MODELS if _takes(cls, name)]
    answers = {name: cls().run(MODELS[name]) for name in takes}
    if cls.exactness == "never" and cls.certifies != ("lower", "upper"):
        assert any(not _is_exact(answers[n], MODELS[n]) for n in takes if "forest" in n)
    if "lower" not in cls.certifies:
        assert any(beliefs.log_z_lower is None for beliefs in answers.values())
    if "upper" not in cls.certifies:
        assert any(beliefs.log_z_upper is None for beliefs in answers.values())


@each_method
def test_observed_marginals_are_met_or_refused(cls: type[Method]) -> None:
    graph = MODELS["binary forest"]
    evidence = {1: [0.3, 0.7]}
    fits = {fit.method: fit.fits for fit in describe(graph, evidence).fitting_methods()}
    assert fits[cls.name] is cls.takes_observed_marginals
    if cls.takes_observed_marginals:
        np.testing.assert_allclose(cls().run(graph, evidence=evidence)[1], [0.3, 0.7], atol=1e-6)
    else:
        with pytest.raises(EvidenceError, match="not observed marginals"):
            cls().run(graph, evidence=evidence)


@each_method
def test_factor_beliefs_are_given_or_refused(cls: type[Method]) -> None:
    beliefs = cls().run(MODELS["binary forest"])
    if cls.gives_factor_beliefs:
        assert beliefs.factor(0).shape == (2, 2)
    else:
        with pytest.raises(KikuchiError, match="gives no factor beliefs"):
            beliefs.factor(0)


@each_method
def test_covariances_are_given_or_refused(cls: type[Method]) -> None:
    beliefs = cls().run(MODELS["binary forest"])
    if cls.gives_covariance:
        assert beliefs.covariance().shape == (10, 10)
    else:
        with pytest.raises(KikuchiError, match="gives no covariances; use one of auto, enumerate"):
            beliefs.covariance()


@each_method
def test_costs_that_exceed_the_budget_are_known_before(cls: type[Method]) -> None:
    graph = kk.grid(6, 6, seed=0)
    tree = describe(graph)
    fits = {fit.method: fit.fits for fit in tree.fitting_methods(tree.exact_bytes - 1)}
    if cls.most_joint_states is not None:
        assert not fits[cls.name]
        with pytest.raises(BudgetError):
            cls().run(graph)
    if cls.needs_junction_tree:
        assert not fits[cls.name]
        with pytest.raises(BudgetError):
            cls().run(graph, budget=kk.Budget(bytes=1000))


def test_methods_that_maximise_give_no_marginals() -> None:
    for text in ("jt", "bp"):
        assert kk.methods.parse_method(text).gives_marginals
        assert not kk.methods.parse_method(f"{text}:mode=max").gives_marginals


@pytest.mark.parametrize("text", ["jt", "bp", "jt:propagation=hugin"])
def test_max_marginals_are_never_read_as_marginals(text: str) -> None:
    graph = kk.grid(2, 2, seed=1)
    joiner = "," if ":" in text else ":"
    best, plain = kk.infer(graph, f"{text}{joiner}mode=max"), kk.infer(graph, text)
    for asked in (
        lambda: best[0],
        lambda: best.marginals,
        lambda: best.flat_marginals,
        lambda: best.factor(0),
    ):
        with pytest.raises(kk.KikuchiError, match=r"max-marginals|no factor beliefs"):
            asked()
    with pytest.raises(kk.KikuchiError, match="mode=max"):
        _ = plain.max_marginals
    assert np.allclose([m.sum() for m in best.max_marginals], 1.0)
    assert "marginals" not in best.to_dict() and "max_marginals" not in plain.to_dict()
    axes = best.plot().axes[1]
    assert "Max-marginal" in axes.get_title(loc="left")


def test_max_marginals_are_not_summed_over_branches() -> None:
    with pytest.raises(kk.KikuchiError, match="mode=sum"):
        kk.methods.parse_method("clamp:method=(jt:mode=max)")


# ---------------------------------------------------------------------- runs


def _hard(cls: type[Method]) -> kk.FactorGraph:
    """A model on which a method takes several iterations, if it takes any."""
    if cls.needs_forest:
        return MODELS["binary forest"]
    if cls.needs_binary_pairwise:
        return kk.grid(4, 4, seed=0, coupling=0.8, field=0.3)
    return _ring(5, MIXED, (0, 2, 4))


def _numbers(beliefs: kk.Beliefs) -> list[Any]:
    bounds = beliefs.log_z, beliefs.log_z_lower, beliefs.log_z_upper
    factors = beliefs.flat_factors.tolist() if beliefs._factor_tables is not None else []
    ends = beliefs.converged, beliefs.stopped, beliefs.iterations, beliefs.warnings
    return [*bounds, *ends, beliefs.flat_beliefs.tolist(), factors]


def _sound(cls: type[Method], graph: kk.FactorGraph, beliefs: kk.Beliefs) -> None:
    """Whenever a run ends its numbers are distributions, and its bounds hold."""
    log_z = enumerate_exact(graph)[0]
    for marginal in beliefs.marginals:
        assert np.isfinite(marginal).all() and marginal.sum() == pytest.approx(1.0, abs=1e-9)
    if cls.name != "gibbs" or beliefs.stopped == "interrupted":  # draws are judged at any time
        assert beliefs.converged == (beliefs.stopped == "converged") or beliefs.warnings
    assert beliefs.log_z_lower is None or beliefs.log_z_lower <= log_z + 1e-9
    assert beliefs.log_z_upper is None or beliefs.log_z_upper >= log_z - 1e-9
    assert all("\n" not in warning for warning in beliefs.warnings)


@contextmanager
def _ctrl_c(after: int) -> Iterator[list[int]]:
    """Ctrl-C once the step of this number was recorded; yields the steps that were."""
    seen: list[int] = []
    record = core_run.Run.record

    def recorded(self: Any, step: Any, limit: int) -> None:
        record(self, step, limit)
        seen.append(step.iterations)
        if len(seen) == after:
            signal.raise_signal(signal.SIGINT)

    with ctrl_c_works(), mock.patch.object(core_run.Run, "record", recorded):
        yield seen


@each_method
def test_a_run_is_the_same_twice_and_leaves_the_model_alone(cls: type[Method]) -> None:
    graph = _hard(cls)
    tables = graph.log_tables.copy()
    tilted = np.arange(1.0, graph.cardinalities[1] + 1)
    evidence: Any = {1: tilted / tilted.sum() if cls.only_for_observed_marginals else 1}
    for given in (None, evidence):
        first, again = (_numbers(cls().run(graph, evidence=given)) for _ in range(2))
        assert first == again
    assert np.array_equal(graph.log_tables, tables)


@each_method
@pytest.mark.parametrize("after", [1, 2])
def test_ctrl_c_leaves_a_marked_answer_or_none(cls: type[Method], after: int) -> None:
    graph = _hard(cls)
    cls().run(graph)
    with _ctrl_c(after) as seen:
        try:
            beliefs = cls().run(graph)
        except (KeyboardInterrupt, BudgetError):
            assert cls.exactness in ("always", "affordable")  # no half of an exact answer
            return
    _sound(cls, graph, beliefs)
    if len(seen) >= after and not beliefs.converged:
        assert beliefs.stopped == "interrupted"


@each_method
@pytest.mark.parametrize("limits", [{"seconds": 1e-9}, {"iterations": 1}], ids=str)
def test_limits_leave_a_marked_answer_or_none(cls: type[Method], limits: Any) -> None:
    graph = _hard(cls)
    cls().run(graph)
    try:
        beliefs = cls().run(graph, budget=kk.Budget(**limits))
    except KikuchiError as error:
        assert isinstance(error, BudgetError) and "\n" not in str(error)
        return
    _sound(cls, graph, beliefs)
    assert beliefs.stopped in ("converged", *limits)


@each_method
def test_a_model_without_a_possible_state_is_refused(cls: type[Method]) -> None:
    never = kk.FactorGraph([2, 2], [((0, 1), np.eye(2)), ((0, 1), 1 - np.eye(2))])
    with pytest.raises((ImpossibleEvidenceError, MethodError)) as raised:
        cls().run(never)
    assert "\n" not in str(raised.value)
    if not (cls.needs_positive_tables or cls.needs_forest):
        assert isinstance(raised.value, ImpossibleEvidenceError)


@each_method
def test_options_out_of_range_are_refused_by_name(cls: type[Method]) -> None:
    for f in dataclasses.fields(cls):
        low, above = f.metadata.get("low"), f.metadata.get("above")
        high, below = f.metadata.get("high"), f.metadata.get("below")
        wrong = [bound - 1 for bound in (low, above) if bound is not None]
        wrong += [bound + 1 for bound in (high, below) if bound is not None]
        wrong += [bound for bound in (above, below) if bound is not None]
        for value in wrong:
            with pytest.raises(MethodError, match=f.name) as raised:
                cls(**{f.name: value})
            assert "\n" not in str(raised.value)
    with pytest.raises(MethodError, match="colour"):
        kk.methods.parse_method(f"{cls.name}:colour=red")
