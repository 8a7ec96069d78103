"""`kikuchi.graphs.disjoint_sets`, compiled for the loops that join sets of numbers."""

from __future__ import annotations

from kikuchi.core.compiled import njit
from kikuchi.graphs import disjoint_sets

find_root = njit(cache=True, error_model="numpy")(disjoint_sets.find_root)
