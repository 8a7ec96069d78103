"""`kikuchi transform`: features or sources of rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from kikuchi import __version__
from kikuchi.cli import options
from kikuchi.cli.command import Output, finish, grouped
from kikuchi.core import text
from kikuchi.core.answer import Answer, TextTable

Table = Annotated[Path, options.option("--out -o OUT", "Where to write them: .csv or .npz.")]
Data = Annotated[list[str], options.argument("DATA...", options.ROWS_OR_STATES)]


@grouped
def transform(model: options.FittedModel, data: Data, out: Table, *, output: Output) -> None:
    """Compute the features or sources of rows by a fitted model.

    MODEL is of any kind that gives features or sources; the columns are matched by name.
    """
    import numpy as np

    from kikuchi.cli.outputs import check_table_suffix, write_columns
    from kikuchi.cli.trained import load_trained

    check_table_suffix(out, ".csv", ".npz")
    output.check(model, out)
    trained = load_trained(model, "features", "sources")
    names, values = trained.workflow.transform(trained.estimator, trained.read(data))
    answer = ColumnsAnswer(model, trained.kind.name, data, names, np.asarray(values))
    finish(answer, output, files=[(out, lambda path: write_columns(path, names, values))])


@dataclass(frozen=True)
class ColumnsAnswer(Answer):
    """The columns that were computed, with their means and standard deviations."""

    model: str
    kind: str
    data: list[str]
    columns: list[str]
    values: Any

    def facts(self) -> list[tuple[str, str]]:
        """The model, the data and the size of the answer."""
        size = f"{text.count(len(self.values), 'row')}, {text.count(len(self.columns), 'column')}"
        return [("model", f"{self.model} ({self.kind})"), ("data", ", ".join(self.data)),
                ("answer", size)]  # fmt: skip

    def table(self) -> TextTable:
        """The first columns."""
        means, spreads = self.values.mean(axis=0), self.values.std(axis=0)
        rows = [
            [name, f"{mean:.4g}", f"{spread:.4g}"]
            for name, mean, spread in zip(self.columns[:12], means, spreads, strict=False)
        ]
        return TextTable(["column", "mean", "deviation"], rows, [1, 2])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "kind": self.kind,
            "model": self.model,
            "data": self.data,
            "version": __version__,
            "columns": self.columns,
            "rows": self.values.tolist(),
        }
