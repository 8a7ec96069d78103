"""What `kikuchi filter` and `kikuchi forecast` share: a task of a fitted model of sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from kikuchi import __version__
from kikuchi.cli import options
from kikuchi.cli.command import StrictOutput, finish, page_of
from kikuchi.training.kinds import Gives

DataFiles = Annotated[
    list[str],
    options.argument("DATA...", "Tables with a row per step, one per sequence."),
]
OutTable = Annotated[
    Path | None, options.option("--out -o OUT.csv", "Write the answer as a table.")
]
Posterior = Annotated[
    str | None,
    options.option("--method M", "Posterior of several chains: mean-field, bp or exact."),
]


def carry_out(
    task: str, gives: Gives, model: str, data: list[str], out: Path | None, output: StrictOutput,
    **how: Any,
) -> None:  # fmt: skip
    """Load a model, read the sequences, carry out the task and show the answer."""
    from kikuchi.cli.outputs import check_table_suffix
    from kikuchi.cli.trained import load_trained

    if out is not None:
        check_table_suffix(out, ".csv")
    for source in (model, *data):
        output.check(source, out)
    trained = load_trained(model, gives)
    answer: Any = trained.workflow.carry_out(task, trained.estimator, trained.read(data), **how)
    head = {"kind": trained.kind.name, "model_file": model, "data": data, "version": __version__}
    files = [(out, lambda path: _write(answer, path))]
    finish(answer, output, head=head, page=page_of(answer), files=files)


def _write(answer: Any, path: Path) -> None:
    """The answer as a CSV table."""
    from kikuchi.core.files import atomic_write
    from kikuchi.core.text import spreadsheet_cell

    with atomic_write(path) as file:
        index = answer.index()
        head = [*([] if index is None else [index.column]), *answer.columns]
        file.write(",".join(map(spreadsheet_cell, head)) + "\n")
        whole = [name in ("sequence", "state") for name in answer.columns]
        for k, row in enumerate(answer.rows.tolist()):
            cells = [repr(int(x) if n else x) for x, n in zip(row, whole, strict=True)]
            file.write(",".join(cells if index is None else [index.labels[k], *cells]) + "\n")
