"""The shell of estimators: options are described where people look for them."""

from __future__ import annotations

import dataclasses

import pytest

pytest.importorskip("sklearn")

from kikuchi.boltzmann import RBM, BoltzmannMachine, RateCodedRBM
from kikuchi.ica import BayesianICA, InfomaxICA, MeanFieldICA


@pytest.mark.parametrize(
    "estimator", [RBM, BoltzmannMachine, RateCodedRBM, MeanFieldICA, BayesianICA, InfomaxICA]
)
def test_help_lists_every_option_with_its_meaning_and_default(estimator: type) -> None:
    document = estimator.__doc__ or ""
    assert document.count("Parameters\n----------") == 1
    for field in dataclasses.fields(estimator):
        (line,) = [words for words in document.splitlines() if words.startswith(f"{field.name} : ")]
        assert field.metadata["help"] in line and f"Default: {field.default!r}." in line
