"""Rows of numbers for `kikuchi fit`: read, scaled, checked, and divided for testing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kikuchi.cli.options import flag
from kikuchi.core.errors import DataError
from kikuchi.core.progress import phase
from kikuchi.core.text import is_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kikuchi.core.tables import Table
    from kikuchi.training.kinds import Kind
    from kikuchi.training.workflow import DataSet


def one_file(data: list[str]) -> str:
    """The one file of rows; several are refused."""
    if len(data) > 1:
        raise DataError(f"this kind of model takes one file of rows, got {len(data)}")
    return data[0]


class TrainingRows(NamedTuple):
    """Rows to learn from, rows held out (None without), the shape of images (None if none), the
    names of the columns (None if the file has none), and the numbers from 0 that the rows, and then
    the rows held out, have in the file (None if none are held out).
    """

    rows: Any  # an array, or patches
    held_out: NDArray[Any] | None
    shape: tuple[int, ...] | None
    names: list[str] | None = None
    positions: NDArray[np.int64] | None = None


class SupervisedRows(NamedTuple):
    """Inputs and targets to learn from, those held out (None without), names of the columns, the
    target last, and names of the inputs (None if the file has none).
    """

    x: NDArray[Any]
    y: NDArray[Any]
    held_out: NDArray[Any] | None
    held_out_y: NDArray[Any] | None
    names: list[str]
    input_names: list[str] | None


@dataclass(frozen=True)
class RowOptions:
    """What is done to a table of numbers before a machine learns from it."""

    HEADING: ClassVar[str] = "Data"

    divide: float | None = flag(
        "--divide X", "Divide all values, such as by 255; those of later rows too."
    )
    threshold: float | None = flag(
        "--threshold X", "Values become 1 from X up, 0 below; those of later rows too."
    )
    drop: str | None = flag("--drop C1,C2", "Columns to leave out: names, or numbers from 0.")
    hold_out: float = flag(
        "--hold-out FRACTION",
        "Part of the rows (0 to 1) kept for testing; regions of their own, of patches.",
        0.0,
    )
    image: str | None = flag("--image HxW", "Rows are images.  [square ones are seen]")

    @classmethod
    def of(cls, estimator: Any) -> RowOptions:
        """Those that do to new rows what was done to the rows that a model was trained on."""
        known = getattr(estimator, "row_scaling_", {})
        return cls(divide=known.get("divide"), threshold=known.get("threshold"))

    @property
    def scaling(self) -> dict[str, float]:
        """What is done to all values, by the name of its option."""
        steps = {"divide": self.divide, "threshold": self.threshold}
        return {name: value for name, value in steps.items() if value is not None}

    def read(self, kind: Kind, estimator: Any, data: list[str], seed: int) -> DataSet:
        """The rows of a file for a fit."""
        from kikuchi.training.workflow import DataSet

        path = one_file(data)
        found = self.read_numbers(path, seed)
        return DataSet(
            path, found.rows, held_out=found.held_out, names=found.names, shape=found.shape,
            seed=seed, positions=found.positions,
        )  # fmt: skip

    def read_for(
        self, kind: Kind, estimator: Any, model: str, data: list[str], *, gaps: bool = False
    ) -> DataSet:
        """The rows of a file for a fitted model, prepared as those that it learnt from."""
        from kikuchi.training.workflow import DataSet

        path, prepared = one_file(data), RowOptions.of(estimator)
        rows, _, shape, names, _ = prepared.read_numbers(path, 0, gaps=gaps)
        if hasattr(rows, "preparation"):
            estimator.check_patches(rows)
        values = checked_columns(estimator, model, path, rows, names)
        return DataSet(source_text(estimator, path), values, names=names, shape=shape)

    def read_numbers(self, path: str, seed: int, *, gaps: bool = False) -> TrainingRows:
        """The rows of a file with any numbers; patches keep how they were prepared.

        With `gaps` cells may be missing (NaN).
        """
        from pathlib import Path

        from kikuchi.cli.inputs import image_shape
        from kikuchi.core.files import suffix_of
        from kikuchi.core.tables import read_arrays
        from kikuchi.energy.preparation import Patches
        from kikuchi.plots.images import square_shape

        if suffix_of(path) == ".npz" and Path(path).is_file():
            found = Patches.of_arrays(read_arrays(Path(path)), path)
            if found is not None:
                changed = self.divide, self.threshold, self.drop, self.image
                if any(value is not None for value in changed):
                    raise DataError(f"{path}: patches are prepared; only --hold-out is for them")
                self._check_fraction()
                if not self.hold_out:
                    return TrainingRows(found, None, found.preparation.shape)
                learnt, held = found.split(self.hold_out, seed)
                return TrainingRows(learnt, held.rows, found.preparation.shape)
        values, names = self._columns(path, gaps=gaps)
        values = self._scaled(values)
        pixels = values.shape[1]
        shape = square_shape(pixels) if self.image is None else image_shape(self.image, pixels)
        rows, held_out, positions = self._divided(values, seed)
        return TrainingRows(rows, held_out, shape, names, positions)

    def read_target(
        self, path: str, target: str, seed: int, *, classes: bool = False
    ) -> SupervisedRows:
        """The columns of a file apart from `target`, and that column (a name, or a number).

        With `classes` it may hold names of classes instead of numbers.
        """
        import numpy as np

        table, kept = self._kept(path)
        names = [table.names[k] if table.names else str(place) for place, k in enumerate(kept)]
        if target in names:
            place = names.index(target)
        elif is_whole(target.removeprefix("-")) and -len(names) <= int(target) < len(names):
            place = int(target) % len(names)
        else:
            raise DataError(
                f"--target {target}: {path} has no such column (columns: {', '.join(names[:8])}"
                f"{' ...' if len(names) > 8 else ''})"
            )
        if len(names) < 2:
            raise DataError(f"{path}: no column is left beside the target {target}")
        column = kept.pop(place)
        values = _complete(table, [*kept, column], path, column if classes else None)
        names.append(names.pop(place))
        scaled = self._scaled(values[:, :-1])
        rows, held_out, _ = self._divided(np.column_stack([scaled, values[:, -1]]), seed)
        words = table.texts.get(column)

        def labels(found: NDArray[Any]) -> NDArray[Any]:
            return found if words is None else np.asarray(words[found.astype(int)])

        inputs = None if table.names is None else names[:-1]
        held: tuple[Any, Any] = None, None
        if held_out is not None:
            held = held_out[:, :-1], labels(held_out[:, -1])
        return SupervisedRows(rows[:, :-1], labels(rows[:, -1]), *held, names, inputs)

    def column_names(self, path: str) -> list[str] | None:
        """Names of the columns of a file that are kept, or None if the file has none."""
        table, kept = self._kept(path)
        return None if table.names is None else [table.names[k] for k in kept]

    def width(self, path: str) -> int:
        """The number of columns of a file that are kept."""
        return len(self._kept(path)[1])

    def _columns(self, path: str, *, gaps: bool = False) -> tuple[NDArray[Any], list[str] | None]:
        """The columns that are kept, all of numbers, complete but for `gaps`; and their names, if
        any.
        """
        table, kept = self._kept(path)
        names = None if table.names is None else [table.names[k] for k in kept]
        return _complete(table, kept, path, gaps=gaps), names

    def _kept(self, path: str) -> tuple[Table, list[int]]:
        """The table, with columns that hold texts coded, and which columns are kept."""
        from dataclasses import replace

        from kikuchi.core.tables import read_table

        with phase("reading data"):
            table = read_table(path, arrays=("data", "images", "X"), texts=True)
        if table.values.ndim < 2 or not table.values.size:
            raise DataError(f"{path}: rows of numbers are needed, got shape {table.values.shape}")
        flat = replace(table, values=table.values.reshape(len(table.values), -1))
        width = flat.values.shape[1]
        dropped = {column % width for column in self._dropped(table.names, width)}
        kept = [column for column in range(width) if column not in dropped]
        if not kept:
            raise DataError(f"--drop {self.drop}: leaves no column of {path}")
        return flat, kept

    def _dropped(self, names: tuple[str, ...] | None, width: int) -> list[int]:

        columns = []
        for word in filter(None, (w.strip() for w in (self.drop or "").split(","))):
            if names is not None and word in names:
                columns.append(names.index(word))
            elif is_whole(word.removeprefix("-")) and -width <= int(word) < width:
                columns.append(int(word))
            else:
                known = "" if names is None else f" (columns: {', '.join(names[:8])} ...)"
                raise DataError(f"--drop {word}: there is no such column{known}")
        return columns

    def _scaled(self, values: NDArray[Any]) -> NDArray[Any]:
        import numpy as np

        if self.divide is not None:
            if not 0 < self.divide < math.inf:
                raise DataError(f"--divide must be positive and finite, got {self.divide:g}")
            values = values / self.divide
        if self.threshold is not None:
            if not math.isfinite(self.threshold):
                raise DataError(f"--threshold must be a finite number, got {self.threshold:g}")
            values = (values >= self.threshold).astype(np.float64)
        return values

    def _check_fraction(self) -> None:
        if not 0.0 <= self.hold_out < 1.0:
            raise DataError(f"--hold-out must be a fraction from 0 up to 1, got {self.hold_out:g}")

    def _divided(
        self, values: NDArray[Any], seed: int
    ) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[np.int64] | None]:
        """Rows to learn from, a random part held out, and the places of both in `values`."""
        import numpy as np

        from kikuchi.core.seeds import generator

        self._check_fraction()
        fraction = self.hold_out
        kept = round(fraction * len(values))
        if kept == len(values):
            raise DataError(f"--hold-out {fraction:g} leaves none of {kept} rows to learn from")
        if not kept:
            return values, None, None
        order = generator(seed).permutation(len(values))
        learnt, held_out = np.sort(order[kept:]), np.sort(order[:kept])
        return values[learnt], values[held_out], np.concatenate([learnt, held_out])


@dataclass(frozen=True)
class LabelledRowOptions(RowOptions):
    """The same, with a column to predict."""

    target: str | None = flag("--target COLUMN", "Column to predict: needed.")

    def read(self, kind: Kind, estimator: Any, data: list[str], seed: int) -> DataSet:
        """The rows of a file and the column to predict, for a fit."""
        from kikuchi.training.workflow import DataSet

        path = one_file(data)
        if self.target is None:
            raise DataError(f"{kind.name} predicts a column: give its name as --target")
        classes = "classes" in kind.gives
        table = self.read_target(path, self.target, seed, classes=classes)
        y, held_out_y = table.y, table.held_out_y
        if classes:
            y, held_out_y = class_codes(y, held_out_y, f"--target {self.target}")
        return DataSet(
            path, table.x, y, table.held_out, held_out_y, table.input_names,
            target=table.names[-1], columns=table.names, seed=seed,
        )  # fmt: skip

    def read_for(
        self, kind: Kind, estimator: Any, model: str, data: list[str], *, gaps: bool = False
    ) -> DataSet:
        """The inputs and the column to predict for a fitted model.

        The target is the column beside those learnt from; without names it is where it was in the
        training, or the last. A file with the inputs only has no target.
        """
        from kikuchi.training.workflow import DataSet

        path, options = one_file(data), RowOptions.of(estimator)
        columns = list(getattr(estimator, "columns_", ()))  # the target is the last
        numbered = sorted(columns) == sorted(map(str, range(len(columns))))
        named = [] if numbered else columns
        learnt = named[:-1] or [str(name) for name in getattr(estimator, "feature_names_in_", ())]
        names, target = options.column_names(path), columns[-1] if columns and numbered else "-1"
        width = len(names) if names is not None else options.width(path)
        if width == estimator.n_features_in_:
            rows, _, _, found, _ = options.read_numbers(path, 0)
            values = checked_columns(estimator, model, path, rows, found, learnt)
            return DataSet(source_text(estimator, path), values, names=found)
        if learnt and names is not None:
            others = [name for name in names if name not in learnt]
            if len(others) != 1 or (named and others != named[-1:]):
                raise other_columns(path, model, named or learnt)
            target = others[0]
        classes = "classes" in kind.gives
        table = options.read_target(path, target, 0, classes=classes)
        inputs = checked_columns(estimator, model, path, table.x, table.input_names, learnt)
        column = f"{'the last column, ' if target == '-1' else 'column '}{table.names[-1]}"
        y = known_labels(estimator.classes_, table.y, f"{path}: {column}") if classes else table.y
        return DataSet(
            source_text(estimator, path), inputs, y, names=table.input_names, target=column,
            columns=table.names,
        )  # fmt: skip


def class_codes(y: Any, held_out: Any, where: str) -> tuple[Any, Any]:
    """Labels of classes: names, or whole numbers."""
    import numpy as np

    if y.dtype.kind in "US":
        return y, held_out
    every = y if held_out is None else np.append(y, held_out)
    if np.any(every != np.round(every)):
        raise DataError(f"{where}: classes are names or whole numbers, and this column has neither")
    return y.astype(np.int64), None if held_out is None else held_out.astype(np.int64)


def known_labels(known: Any, labels: Any, where: str) -> Any:
    """Labels of the kind of those learnt, some of which were learnt."""
    import numpy as np

    from kikuchi.training.workflow import label_texts

    texts = known.dtype.kind in "US"
    if texts and labels.dtype.kind not in "US":
        labels = np.array(label_texts(labels))  # rows of classes that are all named by numbers
    if texts != (labels.dtype.kind in "US") or not np.isin(labels, known).any():
        shown = ", ".join(label_texts(known[:8])) + (" ..." if len(known) > 8 else "")
        first = label_texts(labels[:1])[0]
        raise DataError(f"{where}: '{first}' is none of the classes learnt ({shown})")
    return labels


def source_text(estimator: Any, data: str) -> str:
    """A file, and what is done to its values because it was done to those of the training."""
    words = {"divide": "divided by {:g}", "threshold": "1 from {:g} up"}
    steps = getattr(estimator, "row_scaling_", {})
    told = [words[name].format(value) for name, value in steps.items() if name in words]
    return f"{data} ({', '.join(told)}, as in training)" if told else data


def checked_columns(
    estimator: Any,
    model: str,
    data: str,
    rows: Any,
    names: list[str] | None,
    learnt: list[str] | None = None,
) -> Any:
    """The columns that a model learnt from, in its order where both have names; `learnt` are those
    of the model, if not its `feature_names_in_`.

    The estimator is left without the names, as it is given arrays from now on.
    """
    import numpy as np

    values = np.asarray(rows)
    own_names = [str(name) for name in vars(estimator).pop("feature_names_in_", ())]
    wanted_names = own_names if learnt is None else learnt
    if names is not None and wanted_names and len(names) == len(wanted_names):
        if set(names) != set(wanted_names):
            raise other_columns(data, model, wanted_names)
        values = values[:, [names.index(name) for name in wanted_names]]
    wanted = getattr(estimator, "n_features_in_", values.shape[1])
    if values.shape[1] != wanted:
        raise DataError(f"{data}: {values.shape[1]} columns, but {model} has {wanted}")
    return values


def other_columns(data: str, model: str, wanted: list[str]) -> DataError:
    """The error for a file with other columns than those of a model."""
    shown = ", ".join(wanted[:8]) + (" ..." if len(wanted) > 8 else "")
    return DataError(f"{data}: other columns than those of {model} ({shown})")


def _complete(
    table: Table, columns: list[int], path: str, texts: int | None = None, *, gaps: bool = False
) -> NDArray[Any]:
    """Columns of a table, without gaps unless `gaps` are allowed; all but the column `texts` hold
    numbers.
    """
    import numpy as np

    wrong = next((k for k in sorted(columns) if k in table.texts and k != texts), None)
    if wrong is not None:
        raise DataError(f"{path}: {table.fault_of(wrong)}")
    values = table.values[:, columns]
    faults = np.argwhere(np.isinf(values) if gaps else ~np.isfinite(values))
    if len(faults):
        row, place = (int(k) for k in faults[0])
        raise DataError(
            f"{path}: row {row + 1}, column {columns[place] + 1} is missing or not finite (NaN); "
            "complete the rows or leave them out"
        )
    return values
