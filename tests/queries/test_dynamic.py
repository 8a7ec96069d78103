"""Networks in time against their unrolled models; canonical tables by their definitions."""

from __future__ import annotations

import tracemalloc
from itertools import product

import numpy as np
import pytest

import kikuchi as kk
from kikuchi.core.errors import EvidenceError, ImpossibleEvidenceError, ModelError
from kikuchi.graphs.canonical import deterministic, noisy_max, noisy_or
from kikuchi.queries.dynamic import TwoSliceNetwork


@pytest.fixture(scope="module")
def network() -> TwoSliceNetwork:
    """Two interface variables, one that only looks on, and one behind it."""
    rng = np.random.default_rng(0)

    def table(*shape: int) -> np.ndarray:
        return rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])

    variables = {"z": 2, "b": ["u", "v", "w"], "o": ["n", "y"], "p": 3}
    initial = {
        "b": ([], table(3)),
        "z": (["b"], table(3, 2)),
        "o": (["z", "b"], table(2, 3, 2)),
        "p": (["o"], table(2, 3)),
    }
    transition = {
        "b": (["b[-1]", "z[-1]"], table(3, 2, 3)),
        "z": (["z[-1]", "b"], table(2, 3, 2)),
        "o": (["z", "b"], table(2, 3, 2)),
        "p": (["o"], table(2, 3)),
    }
    return TwoSliceNetwork(variables, initial, transition)


def unrolled(network: TwoSliceNetwork, evidence: list[dict], upto: int, t: int) -> kk.Distributions:
    graph = network.unroll(upto + 1)
    seen = {f"{n}[{s}]": v for s, case in enumerate(evidence[: upto + 1]) for n, v in case.items()}
    return kk.query(graph, [f"{n}[{t}]" for n in network.names], evidence=seen)


def cases(n: int) -> list[dict]:
    rng = np.random.default_rng(4)
    return [
        {"o": int(rng.integers(2))} if t % 3 else {"o": "y", "p": int(rng.integers(3))}
        for t in range(n)
    ]


@pytest.fixture(params=["table", "tree"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both engines of a slice, however small it is."""
    if request.param == "tree":
        monkeypatch.setattr("kikuchi.queries.dynamic.fits", lambda *_: False)
    return str(request.param)


@pytest.mark.usefixtures("engine")
def test_filtering_and_smoothing_equal_the_unrolled_model(network: TwoSliceNetwork) -> None:
    evidence = cases(7)
    evidence[4] = {}
    filtered = list(network.filter(evidence))
    smoothed = network.smooth(evidence)
    assert len(filtered) == len(smoothed) == 7
    for t in range(7):
        for answer, upto in ((filtered[t], t), (smoothed[t], 6)):
            expected = unrolled(network, evidence, upto, t)
            assert answer.log_evidence == pytest.approx(expected.log_evidence, abs=1e-10)
            for name in network.names:
                np.testing.assert_allclose(
                    answer[name].values_array, expected[f"{name}[{t}]"].values_array, atol=1e-12
                )
    assert filtered[0]["b"].states == ("u", "v", "w")


@pytest.mark.parametrize("lag", [1, 3, 9])
def test_answers_may_wait_for_later_slices(network: TwoSliceNetwork, lag: int) -> None:
    evidence = cases(7)
    found = list(network.filter(iter(evidence), lag=lag))
    assert len(found) == 7
    for t, answer in enumerate(found):
        expected = unrolled(network, evidence, min(t + lag, 6), t)
        assert answer.log_evidence == pytest.approx(expected.log_evidence, abs=1e-10)
        for name in network.names:
            np.testing.assert_allclose(
                answer[name].values_array, expected[f"{name}[{t}]"].values_array, atol=1e-12
            )


def test_memory_does_not_grow_with_time(network: TwoSliceNetwork) -> None:
    def peak(slices: int) -> int:
        tracemalloc.start()
        for _ in network.filter((case for case in cases(slices)), lag=2):
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    list(network.filter(cases(4), lag=2))  # loads what was compiled
    few = peak(40)
    assert peak(400) < few + 360 * 500  # of the evidence itself, which is a list here


def test_long_sequences_stream(network: TwoSliceNetwork) -> None:
    evidence = cases(300)
    last = None
    for answer in network.filter(iter(evidence)):
        last = answer
    assert last is not None
    smoothed = network.smooth(evidence)
    np.testing.assert_allclose(smoothed[-1]["b"].values_array, last["b"].values_array, atol=1e-10)
    assert smoothed[0].log_evidence == pytest.approx(last.log_evidence, rel=1e-12)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("slices", [4, 12])
def test_tiny_numbers_do_not_underflow(slices: int) -> None:
    """Transitions of 1e-200: plain products of a few slices would vanish."""
    rare = [[1.0, 1e-200], [1e-200, 1.0]]
    seen = [[1.0, 1e-150], [1e-150, 1.0]]
    net = TwoSliceNetwork(
        {"x": 2, "o": 2},
        {"x": ([], [0.5, 0.5]), "o": (["x"], seen)},
        {"x": (["x[-1]"], rare), "o": (["x"], seen)},
    )
    evidence = [{"o": t // 3 % 2} for t in range(slices)]
    logs = np.log(rare)
    score = {x: np.log(0.5) + np.log(seen)[x[0], evidence[0]["o"]] for x in product((0, 1))}
    for t in range(1, slices):  # every path, in logarithms
        score = {
            (*path, x): s + logs[path[-1], x] + np.log(seen)[x, evidence[t]["o"]]
            for path, s in score.items()
            for x in (0, 1)
        }
    paths, scores = np.array(list(score)), np.array(list(score.values()))
    total = np.logaddexp.reduce(scores)
    for answers in (net.smooth(evidence), net.smooth(evidence)):
        for t, answer in enumerate(answers):
            assert answer.log_evidence == pytest.approx(total, rel=1e-12)
            sums = [np.logaddexp.reduce(scores[paths[:, t] == x]) for x in (0, 1)]
            expected = np.exp(np.array(sums) - total)
            np.testing.assert_allclose(answer["x"].values_array, expected, rtol=1e-9)


def test_bad_networks_and_evidence(network: TwoSliceNetwork) -> None:
    with pytest.raises(EvidenceError, match="slice 1: there is no variable 'q'"):
        list(network.filter([{}, {"q": 0}]))
    for state, says in (("x", "'x'"), (7, "7"), (0.7, "0.7"), (None, "None")):
        with pytest.raises(EvidenceError, match=f"slice 0: b has no state {says}"):
            network.smooth([{"b": state}])
    with pytest.raises(ModelError, match="lag must be an integer of at least 0, got -1"):
        list(network.filter([{}], lag=-1))
    stuck = TwoSliceNetwork({"x": 2}, {"x": ([], [1, 0])}, {"x": (["x[-1]"], np.eye(2))})
    with pytest.raises(ImpossibleEvidenceError, match="slice 2"):
        list(stuck.filter([{}, {}, {"x": 1}]))
    with pytest.raises(ModelError, match="there is no variable 'y'"):
        TwoSliceNetwork({"x": 2}, {"x": ([], [1, 0])}, {"x": (["y[-1]"], np.eye(2))})


def test_noisy_or_and_max_by_their_definitions() -> None:
    chances, leak = [0.3, 0.9, 0.5], 0.2
    table = noisy_or(chances, leak)
    for state in product((0, 1), repeat=3):
        none = (1 - leak) * np.prod([1 - p for p, s in zip(chances, state, strict=True) if s])
        np.testing.assert_allclose(table[state], [none, 1 - none], atol=1e-15)
    rng = np.random.default_rng(0)
    tables = [rng.dirichlet(np.ones(3), size=2), rng.dirichlet(np.ones(3), size=3)]
    start = rng.dirichlet(np.ones(3))
    found = noisy_max(tables, start)
    for i, j in product(range(2), range(3)):
        expected = np.zeros(3)
        for a, b, c in product(range(3), repeat=3):
            expected[max(a, b, c)] += tables[0][i, a] * tables[1][j, b] * start[c]
        np.testing.assert_allclose(found[i, j], expected, atol=1e-14)
    assert deterministic(lambda a, b: max(a, b), [2, 3], 3)[1, 2].tolist() == [0, 0, 1]
    for bad in ([1.2], [[0.5]]):
        with pytest.raises(ModelError):
            noisy_or(bad)


@pytest.mark.parametrize("lag", [0, 1])
def test_variables_of_a_single_state_may_reach_the_next_slice(lag: int) -> None:
    """Alone or beside others, and both when a slice is met first and when it is met again."""
    alone = TwoSliceNetwork(
        {"x": 1, "y": 2},
        {"x": ([], [1.0]), "y": (["x"], [[0.3, 0.7]])},
        {"x": ([], [1.0]), "y": (["x[-1]"], [[0.4, 0.6]])},
    )
    days = [{}, {"y": 1}, {}, {}]
    for found in (alone.smooth(days), list(alone.filter(days, lag=lag))):
        chances = [day["y"]["1"] for day in found]
        np.testing.assert_allclose(chances, [0.7, 1.0, 0.6, 0.6], atol=1e-12)
        assert all(day["x"]["0"] == 1.0 for day in found)
