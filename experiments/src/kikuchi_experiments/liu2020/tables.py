"""What Liu's thesis publishes in tables and figures, and the catalogue's own values beside them.

Numbers only, as printed (LIU-E3 to LIU-E13). A cell of tables 4.1 to 4.5 holds mean and deviation
over 20 random models of the l1 error, the correlation and the error of log Z.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from math import isnan
from typing import Any, NamedTuple


class Errors(NamedTuple):
    """l1 error, correlation and log Z error: means, then deviations where they are known."""

    l1: float
    rho: float | None
    log_z: float | None
    l1_std: float | None = None
    rho_std: float | None = None
    log_z_std: float | None = None

    @property
    def text(self) -> str:
        """The three means as one text."""
        parts = [f"{self.l1:.3g}"]
        parts.append("–" if self.rho is None else f"{self.rho:.3f}")
        parts.append("–" if self.log_z is None else f"{self.log_z:.3g}")
        return " / ".join(parts)


Column = Mapping[float, Errors]
"""By number of variables (grids) or deviation of the fields (complete graphs)."""


COLUMNS = ("mean field", "loopy BP", "damped BP", "GBP", "Inference Net", "RENN")
NEURAL = ("Inference Net", "RENN")


@lru_cache(maxsize=1)
def _tables() -> dict[str, Any]:
    file = files("kikuchi_experiments.liu2020") / "tables.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _columns(experiment: str, kind: str) -> dict[str, Column]:
    columns = _tables()[experiment].get(kind, {})
    return {
        name: {float(x): Errors(*map(_known, cell)) for x, cell in column.items()}
        for name, column in columns.items()
    }


def _known(value: float) -> Any:
    return None if isnan(value) else value


def lines(experiment: str) -> str:
    """Where the table stands in the document."""
    return str(_tables()[experiment]["lines"])


def published(experiment: str) -> dict[str, Column]:
    """The published table by column.

    >>> published("LIU-E6")["RENN"][400].text
    '0.061 / 0.912 / 7.6'
    """
    return _columns(experiment, "published")


def curves(experiment: str) -> dict[str, tuple[float | None, ...]]:
    """The published curves by name; None where a point could not be read.

    >>> curves("LIU-E3")["map"][0]
    0.399
    """
    rows = _tables()[experiment]["published"]
    return {name: tuple(map(_known, row)) for name, row in rows.items()}


def by_size(experiment: str) -> dict[str, dict[int, float]]:
    """The published column of each learner by number of variables.

    >>> by_size("LIU-E12")["RENN"]
    {9: 3.414, 16: 5.178}
    """
    columns = _tables()[experiment]["published"]
    return {name: {int(n): x for n, x in column.items()} for name, column in columns.items()}


def corrected(experiment: str) -> dict[str, Column]:
    """The catalogue's values by column; not every column and row has one."""
    return _columns(experiment, "corrected")
