"""Sigmoid networks as data: forms, probabilities, draws, and what is refused."""

import itertools
from typing import Any

import numpy as np
import pytest

from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.core.errors import DataError, EvidenceError, MethodError, ModelError
from kikuchi.core.options import layer_sizes


def test_probabilities_sum_to_one_in_any_form():
    # LAW-M1
    layered = SigmoidNetwork.random((2, 2, 3), span=2.0, random_state=0)
    edges = {(int(t), int(h)): w for t, h, w in zip(
        layered.tails, layered.heads, layered.parameters["weights"], strict=True
    )}  # fmt: skip
    free = SigmoidNetwork.from_edges(layered.parameters["bias"], edges, layered.visible)
    states = np.array(list(itertools.product([0, 1], repeat=7)), dtype=float)
    assert np.exp(layered.log_joint(states)).sum() == pytest.approx(1.0, abs=1e-12)
    assert free.log_joint(states) == pytest.approx(layered.log_joint(states), abs=1e-12)
    graph = layered.to_factor_graph()
    assert graph.log_score(states.astype(int)) == pytest.approx(layered.log_joint(states))


@pytest.mark.parametrize("form", ["layered", "edges"])
def test_draws_have_the_probabilities_of_the_model(form):
    net = SigmoidNetwork.random((1, 2), span=2.0, random_state=1)
    if form == "edges":
        w = net.parameters["weights"]
        net = SigmoidNetwork.from_edges(
            net.parameters["bias"], {(0, 1): w[0], (0, 2): w[1]}, [1, 2]
        )
    states = np.array(list(itertools.product([0, 1], repeat=3)), dtype=float)
    drawn = net.sample_states(40_000, 0) @ [4, 2, 1]
    found = np.bincount(drawn.astype(int), minlength=8) / 40_000
    assert found == pytest.approx(np.exp(net.log_joint(states)), abs=0.012)


def test_spins_are_bits_with_other_weights():
    """LAW-M3 on units of -1 and 1: P(s = 1) = sigmoid(sum w s + b)."""
    w, top, bottom = np.array([[1.0, -2.0]]), [0.3], [0.1, -0.4]
    net = SigmoidNetwork.layered([w], [top, bottom], units="spins")
    for spin in (-1.0, 1.0):
        bits = net.to_bits([[spin, 1.0, 1.0]])
        assert net.inputs(bits)[0, 1:] == pytest.approx(spin * w[0] + bottom)
    back = net.spin_parameters()
    assert back["weights"] == pytest.approx(w.ravel()) and back["bias"] == pytest.approx(
        [*top, *bottom]
    )


def test_files_give_the_network_back():
    net = SigmoidNetwork.from_edges([0.1, 0.2, 0.3], {(2, 0): 1.0, (2, 1): -1.0}, [1, 0])
    again = SigmoidNetwork.from_arrays(net.to_arrays(), net.describe())
    assert again.describe() == net.describe() and np.array_equal(again.order[:1], [2])


def test_networks_that_cannot_be_are_refused():
    with pytest.raises(ModelError, match=r"cycle, .*; remove an edge"):
        SigmoidNetwork.from_edges([0, 0, 0], {(0, 1): 1.0, (1, 2): 1.0, (2, 0): 1.0}, [2])
    with pytest.raises(ModelError, match="hidden unit 0 has no visible descendant"):
        SigmoidNetwork.from_edges([0, 0, 0], {(1, 2): 1.0}, [2])
    with pytest.raises(ModelError, match="thresholds"):
        SigmoidNetwork.from_edges([0, 0], {(0, 1): 1e4}, [1])
    with pytest.raises(ModelError, match="thresholds"):
        SigmoidNetwork.from_edges([0, np.nan], {(0, 1): 1.0}, [1])
    with pytest.raises(ModelError, match="visible"):
        SigmoidNetwork.from_edges([0, 0], {(0, 1): 1.0}, [])
    with pytest.raises(ModelError, match="unit 7"):
        SigmoidNetwork.from_edges([0, 0], {(0, 7): 1.0}, [1])
    with pytest.raises(ModelError, match="one row per unit above"):
        SigmoidNetwork.layered([np.zeros((3, 2))], [[0.0], [0.0, 0.0]])
    with pytest.raises(ModelError, match="at least one"):
        SigmoidNetwork.random((0, 2))
    wide = SigmoidNetwork.random((21, 1), random_state=0)
    with pytest.raises(ModelError, match="too large"):
        wide.to_factor_graph()


def test_evidence_that_cannot_be_is_refused():
    net = SigmoidNetwork.random((1, 2), random_state=0)
    with pytest.raises(EvidenceError, match="units are 0 to 2"):
        net.evidence_row({5: 1})
    with pytest.raises(EvidenceError, match="one per unit"):
        net.evidence_row([1.0, 0.0])
    with pytest.raises(EvidenceError, match="0 and 1"):
        net.evidence_row({1: 0.5})
    with pytest.raises(DataError, match="one column per visible unit"):
        net.clamped(np.zeros((2, 5)))


@pytest.mark.parametrize("given", [0, -1, 2.5, "8,,2", (), (3, 0), [np.inf], None])
def test_sizes_of_layers_that_cannot_be_are_told_as_they_were_given(given: Any) -> None:
    with pytest.raises(MethodError) as told:
        layer_sizes(given, "layers")
    assert str(told.value).endswith(f"got {given!r}")
