"""Tables with a row per step as models of sequences take them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from kikuchi.cli.options import flag
from kikuchi.core.errors import DataError, MethodError, suggestion

if TYPE_CHECKING:
    from kikuchi.core.arrays import Array
    from kikuchi.core.tables import Table
    from kikuchi.temporal.evaluation import DatedRows
    from kikuchi.temporal.workflow import SequenceData
    from kikuchi.training.kinds import Kind


@dataclass(frozen=True)
class SequenceOptions:
    """Which columns of the tables are modelled."""

    HEADING: ClassVar[str] = "Data"
    columns: str | None = flag("--columns NAMES", "Columns to use, between commas.  [all]")
    inputs: str | None = field(default=None, init=False)
    target: str | None = field(default=None, init=False)

    def read(self, kind: Kind, estimator: Any, data: list[str], seed: int) -> SequenceData:
        """The sequences of files for a fit; columns are in the order of the first file."""
        return self._data(data, None, None, with_labels=kind.takes == "labelled sequences")

    def read_for(self, kind: Kind, estimator: Any, model: str, data: list[str]) -> SequenceData:
        """The sequences of files for a fitted model; columns are in the order of the model's."""
        names = vars(estimator).pop("feature_names_in_", None)
        order = None if names is None else [str(name) for name in names]
        labels = kind.takes == "labelled sequences"
        width = estimator.n_features_in_ if labels else None
        return self._data(data, order, model, with_labels=labels, width=width)

    def _data(
        self, data: list[str], order: list[str] | None, model: str | None, *, with_labels: bool,
        width: int | None = None,
    ) -> SequenceData:  # fmt: skip
        from kikuchi.temporal.workflow import SequenceData

        read: list[_Read] = []
        whose = model or ""
        for source in data:
            found = self._table(source, order, fitted=model is not None, labelled=with_labels,
                                width=width)  # fmt: skip
            if found.has_names and order is None and model is None:
                order, whose = found.names, source
            elif found.has_names and order is not None:
                found = _ordered(source, found, order, whose)
            read.append(found)
        return SequenceData(
            source=", ".join(data[:3]) + (" ..." if len(data) > 3 else ""),
            rows=[r.rows for r in read],
            targets=[r.labels for r in read] if with_labels else None,
            names=read[0].names if read[0].has_names else None,
            inputs=[r.inputs for r in read] if self.inputs else None,
            dates=[r.dates for r in read],
        )

    def _table(
        self, source: str, order: list[str] | None, *, fitted: bool, labelled: bool,
        width: int | None,
    ) -> _Read:  # fmt: skip
        """The columns that are modelled, inputs and labels apart."""
        from kikuchi.core.tables import read_table

        table = read_table(source, texts=True)
        values = table.values if table.values.ndim > 1 else table.values[:, None]
        if values.ndim != 2:
            raise DataError(f"{source}: has {values.ndim} axes; give rows and columns")
        names = list(table.names or _numbered(values.shape[1]))
        dates, values = _dated(source, table, values, names)
        every = [name for name in names if dates is None or name != dates.column]
        if fitted and order is not None and table.names is not None:
            every = [name for name in order if name in names]  # a model takes its own columns
        inputs = _named(source, names, self.inputs) if self.inputs else []
        label = self._label(source, names, order, fitted=fitted, width=width) if labelled else []
        taken = [*inputs, *label]
        wanted = _named(source, names, self.columns) if self.columns else every
        wanted = [name for name in wanted if name not in taken]
        if dates is not None and dates.column in [*wanted, *taken]:
            raise DataError(
                f"{source}: column '{dates.column}' holds the dates of the rows; leave it out of "
                "--columns, --inputs and --target"
            )
        if not wanted:
            raise DataError(f"{source}: no column is left to model; it has {', '.join(names)}")
        pick = [names.index(name) for name in wanted]
        for name in [*wanted, *taken]:
            if names.index(name) in table.texts:
                _refuse_text(source, table, names, name)
        _refuse_infinite(source, values, pick)
        return _Read(
            values[:, pick],
            wanted,
            values[:, [names.index(name) for name in inputs]],
            values[:, names.index(label[0])] if label else None,
            table.names is not None,
            dates,
        )

    def _label(
        self, source: str, names: list[str], order: list[str] | None, *, fitted: bool,
        width: int | None,
    ) -> list[str]:  # fmt: skip
        """The column of labels; a fitted model does without one."""
        if self.target:
            found = _named(source, names, self.target)
            if len(found) > 1:
                raise MethodError(f"--target is one column, got '{self.target}'")
            return found
        if not fitted:
            return names[-1:]
        if order is not None and set(order) <= set(names):
            others = [name for name in names if name not in order]
            return others if len(others) == 1 else []
        return names[-1:] if len(names) == (width or 0) + 1 else []


@dataclass(frozen=True)
class DrivenSequenceOptions(SequenceOptions):
    """Which columns are modelled, and which are known inputs."""

    inputs: str | None = flag("--inputs NAMES", "Columns that are known inputs.")


@dataclass(frozen=True)
class LabelledSequenceOptions(SequenceOptions):
    """Which columns are modelled, and which is the label."""

    target: str | None = flag("--target NAME", "Column of labels.  [the last]")


@dataclass(frozen=True)
class _Read:
    rows: Array
    names: list[str]
    inputs: Any
    labels: Any
    has_names: bool
    dates: DatedRows | None = None


def _ordered(source: str, found: _Read, order: list[str], whose: str) -> _Read:
    """The same columns in another order; other columns are refused."""
    for name in order:
        if name not in found.names:
            raise DataError(f"{source}: there is no column '{name}', which {whose} has")
    for name in found.names:
        if name not in order:
            raise DataError(
                f"{source}: column '{name}' is none of {whose}; choose columns with --columns"
            )
    pick = [found.names.index(name) for name in order]
    return replace(found, rows=found.rows[:, pick], names=order)


def _dated(
    source: str, table: Table, values: Array, names: list[str]
) -> tuple[DatedRows | None, Array]:
    """The dates of the rows, if a column holds some, and the rows with one for each date: dates
    that are not in the file have rows of missing values.
    """
    import numpy as np

    from kikuchi.core.dates import looks_like_date, read_dates
    from kikuchi.temporal.evaluation import DatedRows

    for k, name in enumerate(names):
        column, known = values[:, k], table.texts.get(k)
        if known is not None and all(map(looks_like_date, known)):
            words = ["" if np.isnan(code) else str(known[int(code)]) for code in column]
        elif known is None and name.lower() == "year" and _are_years(column):
            words = [f"{int(year)}" for year in column]
        else:
            continue
        place = f"{source}, column '{name}'"
        index, steps = read_dates(words, place=place, lines=table.lines)
        filled = np.full((index.count, values.shape[1]), np.nan)
        filled[steps] = values
        return DatedRows(name, index, index.count - len(values)), filled
    return None, values


def _are_years(column: Array) -> bool:
    import numpy as np

    whole = np.isfinite(column).all() and (column == np.round(column)).all()
    return bool(whole and ((column >= 1000) & (column < 3000)).all())


def _refuse_infinite(source: str, values: Array, columns: list[int]) -> None:
    import numpy as np

    found = np.argwhere(np.isinf(values[:, columns]))
    if len(found):
        row, place = (int(k) for k in found[0])
        raise DataError(
            f"{source}: row {row + 1}, column {columns[place] + 1} is infinite; write a number, or "
            "leave the cell empty"
        )


def _numbered(count: int) -> list[str]:
    """Names of columns of files without names."""
    return [f"column{k}" for k in range(count)]


def _refuse_text(source: str, table: Table, names: list[str], name: str) -> None:
    """Say where a column that is needed holds texts, and how to leave it out."""
    numbers = [n for k, n in enumerate(names) if k not in table.texts]
    advice = "write numbers there"
    if numbers and table.names is not None:
        advice = f"leave column '{name}' out with --columns {','.join(numbers)}"
    raise DataError(f"{source}: {table.fault_of(names.index(name))}; {advice}")


def _named(source: str, names: list[str], text: str) -> list[str]:
    chosen = [word.strip() for word in text.split(",")]
    for word in chosen:
        if word not in names:
            raise DataError(f"{source}: there is no column '{word}'; {suggestion(word, names)}")
        if chosen.count(word) > 1:
            raise DataError(f"{source}: column '{word}' is asked for twice; name it once")
    return chosen
