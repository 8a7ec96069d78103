"""`kikuchi generate KIND`: seeded models of many kinds, written to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kikuchi.cli import options

app = typer.Typer(
    help="Make a seeded model and write it to a file.", no_args_is_help=True, rich_markup_mode=None
)

Out = Annotated[
    Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write: .uai, .bif or .fg.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seed: same seed, same model.")]
Coupling = Annotated[
    float, typer.Option("--coupling", metavar="S", help="Standard deviation of the couplings.")
]
Field = Annotated[
    float, typer.Option("--field", metavar="S", help="Standard deviation of the fields.")
]
States = Annotated[int, typer.Option("--states", metavar="K", help="States of each variable.")]


def _argument(name: str, help: str) -> Any:
    return typer.Argument(metavar=name, help=help, show_default=False)


Variables = Annotated[int, _argument("N", "Number of variables.")]


def _write(kind: str, out: Path, quiet: bool, **arguments: Any) -> None:
    from kikuchi.cli.console import Screen
    from kikuchi.cli.outputs import check_model_suffix, check_outputs
    from kikuchi.graphs.formats import write
    from kikuchi.graphs.generators import GENERATORS

    check_model_suffix(out)
    check_outputs("", out)
    graph = GENERATORS[kind](**arguments)
    write(graph, out)
    Screen(quiet=quiet).line(f"{out}: {graph!r}")


@app.command()
def grid(
    rows: Annotated[int, _argument("ROWS", "Number of rows.")],
    cols: Annotated[int, _argument("COLS", "Number of columns.")],
    out: Out,
    seed: Seed = 0,
    coupling: Coupling = 1.0,
    field: Field = 1.0,
    states: States = 2,
    periodic: Annotated[bool, typer.Option("--periodic", help="Join opposite borders.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """A rectangular grid, open or periodic."""
    given = {"seed": seed, "coupling": coupling, "field": field, "states": states}
    _write("grid", out, quiet, rows=rows, cols=cols, periodic=periodic, **given)


@app.command()
def complete(
    n: Variables,
    out: Out,
    seed: Seed = 0,
    coupling: Coupling = 1.0,
    field: Field = 1.0,
    states: States = 2,
    quiet: options.Quiet = False,
) -> None:
    """All variables joined pairwise."""
    given = {"seed": seed, "coupling": coupling, "field": field, "states": states}
    _write("complete", out, quiet, n=n, **given)


@app.command()
def random(
    n: Variables,
    p: Annotated[float, _argument("P", "Probability that two variables are joined.")],
    out: Out,
    seed: Seed = 0,
    coupling: Coupling = 1.0,
    field: Field = 1.0,
    states: States = 2,
    quiet: options.Quiet = False,
) -> None:
    """A random (Erdős–Rényi) graph."""
    given = {"seed": seed, "coupling": coupling, "field": field, "states": states}
    _write("random", out, quiet, n=n, p=p, **given)


@app.command()
def regular(
    n: Variables,
    degree: Annotated[int, _argument("DEGREE", "Neighbours of each variable.")],
    out: Out,
    seed: Seed = 0,
    coupling: Coupling = 1.0,
    field: Field = 1.0,
    states: States = 2,
    quiet: options.Quiet = False,
) -> None:
    """A random graph in which all variables have as many neighbours."""
    given = {"seed": seed, "coupling": coupling, "field": field, "states": states}
    _write("regular", out, quiet, n=n, degree=degree, **given)


@app.command()
def tree(
    n: Variables,
    out: Out,
    seed: Seed = 0,
    coupling: Coupling = 1.0,
    field: Field = 1.0,
    states: States = 2,
    quiet: options.Quiet = False,
) -> None:
    """A random tree, uniform over all labelled trees."""
    given = {"seed": seed, "coupling": coupling, "field": field, "states": states}
    _write("tree", out, quiet, n=n, **given)


@app.command()
def ldpc(
    n: Annotated[int, _argument("N", "Number of bits, a multiple of the row weight.")],
    out: Out,
    column_weight: Annotated[
        int, typer.Option("--column-weight", metavar="W", help="Parity checks of each bit.")
    ] = 3,
    row_weight: Annotated[
        int, typer.Option("--row-weight", metavar="W", help="Bits in each parity check.")
    ] = 6,
    noise: Annotated[
        float, typer.Option("--noise", metavar="P", help="Probability that a bit is flipped.")
    ] = 0.05,
    seed: Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Decoding of a low-density parity-check code after a noisy channel."""
    weights = {"column_weight": column_weight, "row_weight": row_weight}
    _write("ldpc", out, quiet, n=n, noise=noise, seed=seed, **weights)


@app.command()
def tables(
    n: Variables,
    n_factors: Annotated[int, _argument("FACTORS", "Number of factors.")],
    max_order: Annotated[int, _argument("ORDER", "Most variables in a factor.")],
    max_states: Annotated[int, _argument("STATES", "Most states of a variable.")],
    out: Out,
    zeros: Annotated[
        float, typer.Option("--zeros", metavar="P", help="Share of weights that are zero.")
    ] = 0.0,
    scale: Annotated[
        float, typer.Option("--scale", metavar="S", help="Standard deviation of log-weights.")
    ] = 1.0,
    seed: Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Random tables of mixed order and cardinality."""
    sizes = {"n_factors": n_factors, "max_order": max_order, "max_states": max_states}
    _write("tables", out, quiet, n=n, zeros=zeros, scale=scale, seed=seed, **sizes)
