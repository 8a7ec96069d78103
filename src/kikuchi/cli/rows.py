"""Rows of numbers as `kikuchi train` takes them: read, scaled, checked, and divided for testing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kikuchi.cli.options import flag
from kikuchi.core.errors import DataError
from kikuchi.core.progress import phase
from kikuchi.core.text import is_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kikuchi.core.tables import Table


class TrainingRows(NamedTuple):
    """Rows to learn from, rows held out (None without), the shape of images (None if none), and
    the names of the columns (None if the file has none).
    """

    rows: Any  # an array, or patches
    held_out: NDArray[Any] | None
    shape: tuple[int, ...] | None
    names: list[str] | None = None


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

    def read(self, path: str, visible: str, seed: int) -> TrainingRows:
        """The rows of a file, within the range of the visible units."""
        from kikuchi.boltzmann.units import parse_units
        from kikuchi.cli.inputs import image_shape
        from kikuchi.plots.images import square_shape
        from kikuchi.training.rows import check_values

        values, names = self._columns(path)
        values = self._scaled(values)
        units = parse_units(visible)
        advice = f"of {units.name} units; use --divide, --threshold or rbm with --visible gaussian"
        check_values(values, units.limits, advice, name=path, first=1)
        pixels = values.shape[1]
        shape = square_shape(pixels) if self.image is None else image_shape(self.image, pixels)
        return TrainingRows(*self._divided(values, seed), shape, names)

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
        return TrainingRows(*self._divided(values, seed), shape, names)

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
        rows, held_out = self._divided(np.column_stack([scaled, values[:, -1]]), seed)
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

    def _divided(self, values: NDArray[Any], seed: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Rows to learn from, and a random part held out."""
        import numpy as np

        from kikuchi.core.seeds import generator

        self._check_fraction()
        fraction = self.hold_out
        kept = round(fraction * len(values))
        if kept == len(values):
            raise DataError(f"--hold-out {fraction:g} leaves none of {kept} rows to learn from")
        if not kept:
            return values, None
        order = generator(seed).permutation(len(values))
        return values[np.sort(order[kept:])], values[np.sort(order[:kept])]


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
