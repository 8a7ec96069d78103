"""Methods that say on what they are called: none drops the options of an estimator."""

from __future__ import annotations

import inspect
import pydoc

import numpy as np
import pytest

from kikuchi.beliefnets import NoisyOrNetwork
from kikuchi.core.errors import MethodError
from kikuchi.core.methods import constructor, instance_method
from kikuchi.temporal import HMM, FactorialHMM, LinearGaussianSSM, TemporalICA
from kikuchi.temporal.state_space.parameters import StateSpace


class Base:
    def __init__(self, size=1):
        self.size = size

    @instance_method
    def search(self, rows, *, more=0):
        """Search."""
        return self.size + len(rows) + more

    @constructor
    def known(cls, size, **options):
        """Make."""
        return cls(size, **options)


class Derived(Base):
    @constructor
    def known(cls, size):
        return super().known(size + 1)


def test_the_right_calls_work_also_through_inheritance():
    assert Base(2).search([1], more=3) == 6
    assert Derived(2).search([1]) == 3
    made = Derived.known(4)
    assert type(made) is Derived
    assert made.size == 5


def test_the_wrong_calls_name_the_right_ones():
    with pytest.raises(MethodError, match=r"write Derived\(\.\.\.\)\.search\(\.\.\.\)"):
        Derived.search([1], 2, other=3)
    with pytest.raises(MethodError, match=r"write Derived\.known\(\.\.\.\) with these options"):
        Derived().known(4)


def test_both_keep_their_help():
    assert list(inspect.signature(Base.search).parameters) == ["self", "rows", "more"]
    assert list(inspect.signature(Base().search).parameters) == ["rows", "more"]
    assert list(inspect.signature(Base.known).parameters) == ["size", "options"]
    assert "Search." in pydoc.render_doc(Base.search)
    assert Base.known.__doc__ == "Make."


@pytest.mark.parametrize(
    "estimator", [HMM(2), FactorialHMM((2, 2)), LinearGaussianSSM(1), TemporalICA(1)]
)
def test_estimators_of_known_parameters_are_made_by_their_class(estimator):
    walk = StateSpace([[1.0]], [[1.0]], [[0.1]], [[1.0]])
    with pytest.raises(MethodError, match=r"would drop the options of this one"):
        estimator.from_parameters(walk)
    kept = LinearGaussianSSM.from_parameters(walk, arithmetic="information")
    assert kept.arithmetic == "information"


def test_so_are_networks_of_known_causes():
    known = [0.1], np.ones((1, 2)), [0.1, 0.1]
    assert NoisyOrNetwork.from_parameters(*known, max_iter=7).max_iter == 7
    with pytest.raises(MethodError, match=r"write NoisyOrNetwork\.from_parameters"):
        NoisyOrNetwork(max_iter=7).from_parameters(*known)
