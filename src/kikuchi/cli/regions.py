"""`kikuchi regions`: a region graph as a plan with its cost, as data, and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kikuchi.cli import options

if TYPE_CHECKING:
    from kikuchi.cli.console import Screen
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.graphs.regions.region_graph import RegionGraph

Text = Annotated[
    str, typer.Option("--regions", "-r", metavar="TEXT", help="Which regions; see above.")
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="OUT", help="Draw them to a .png or .svg file."),
]


def regions(
    model: options.Model,
    text: Text = "auto",
    memory: options.Memory = None,
    json: options.Json = None,
    plot: Plot = None,
    quiet: options.Quiet = False,
) -> None:
    """Show the regions of a model: sizes, counting numbers, memory.

    TEXT is the option regions= of gbp and kikuchi:

    auto (short loops if few), bethe, cvm (factors and their overlaps), faces, faces+outer, loops:K
    (cycles of at most K variables, K in 3..6), cycles (a shortest basis), star[:ROOT], tree-robust,
    blocks:RxC (windows on a grid), buckets:K (mini-buckets of at most K variables and their
    overlaps), ijgp:K (the same as a junction graph), hubs:H (H variables in every region),
    junction:K (cliques of at most K variables), junction-tree (exact), file:ROOTS.json (lists of
    variables).
    """
    from kikuchi.cli.console import Screen
    from kikuchi.cli.inputs import load_model, make_budget
    from kikuchi.cli.outputs import (
        STANDARD_OUTPUT,
        check_outputs,
        check_picture_suffix,
        write_json,
    )
    from kikuchi.graphs.regions.builders import region_graph, robustness

    budget = make_budget(None, memory)
    check_outputs(model, json, plot)
    check_picture_suffix(plot)
    graph = load_model(model)
    found = region_graph(graph, text, budget=budget)
    if json is not None:
        from kikuchi import __version__

        data = {"model": model, "version": __version__, "text": text, **found.to_dict()}
        write_json(data, json)
    if plot is not None:
        _draw(graph, found, plot, f"{Path(model).name}: {text}")
    screen = Screen(quiet=quiet or json == STANDARD_OUTPUT)
    if not screen.quiet:
        verdict = robustness(graph, text.strip())
        _show(screen, model, text, found, [] if verdict is None else [f"tested: {verdict}"])


def _show(screen: Screen, model: str, text: str, found: RegionGraph, tested: list[str]) -> None:
    from kikuchi.core.budget import format_bytes

    facts = [
        ("model", model),
        ("regions", f"{text}: {len(found.regions)}, {found.n_roots} of them roots"),
        ("edges", f"{len(found.edges)}"),
        ("largest", f"{found.sizes.max(initial=0):.6g} states"),
        ("tables", format_bytes(found.bytes)),
    ]
    screen.facts([*facts, *(("remark", remark) for remark in [*found.remarks(), *tested])])
    screen.line()
    rows = [[str(size), f"{c:+d}", str(count)] for size, c, count in found.groups()]
    screen.table(["variables", "counted", "regions"], rows, right=[0, 1, 2])


def _draw(graph: FactorGraph, found: RegionGraph, plot: Path, title: str) -> None:
    from kikuchi.cli.outputs import write_picture
    from kikuchi.graphs.shapes import grid_shape
    from kikuchi.plots.regions import draw_regions

    shape = grid_shape(graph)
    figure = draw_regions(
        [region.variables for region in found.regions],
        found.counting,
        found.edges,
        names=graph.names,
        grid=shape,
        periodic=shape is not None and len(graph.pairs()) == 2 * graph.n_variables,
        title=title,
    )
    write_picture(figure, plot)
