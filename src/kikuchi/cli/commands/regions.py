"""`kikuchi regions`: a region graph as a plan with its cost, as data, and as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kikuchi import __version__
from kikuchi.cli import options
from kikuchi.cli.command import Output, finish, grouped
from kikuchi.core.answer import Answer, TextTable

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.graphs.regions.region_graph import RegionGraph

Text = Annotated[str, options.option("--regions -r TEXT", "Which regions; see above.")]


@grouped
def regions(
    model: options.Model,
    text: Text = "auto",
    memory: options.Memory = None,
    plot: options.Plot = None,
    format: options.Format = None,
    *,
    output: Output,
) -> None:
    """Show the regions of a model and what they cost.

    Sizes, counting numbers and memory. TEXT is the option regions= of gbp and kikuchi:

    auto (short loops if few), bethe, cvm (factors and their overlaps), faces, faces+outer, loops:K
    (cycles of at most K variables, K in 3..6), cycles (a shortest basis), star[:ROOT], tree-robust,
    blocks:RxC (windows on a grid), buckets:K (mini-buckets of at most K variables and their
    overlaps), ijgp:K (the same as a junction graph), hubs:H (H variables in every region),
    junction:K (cliques of at most K variables), junction-tree (exact), file:ROOTS.json (lists of
    variables).
    """
    from kikuchi.cli.inputs import load_model, make_budget
    from kikuchi.cli.outputs import check_picture_suffix
    from kikuchi.graphs.regions.builders import region_graph

    budget = make_budget(None, memory)
    output.check(model, plot)
    check_picture_suffix(plot)
    graph = load_model(model, format)
    answer = RegionsAnswer(model, text, graph, region_graph(graph, text, budget=budget))
    finish(answer, output, files=[(plot, answer.draw)])


@dataclass(frozen=True)
class RegionsAnswer(Answer):
    """A region graph as the screen, JSON and a picture show it."""

    model: str
    text: str
    graph: FactorGraph
    regions: RegionGraph

    def facts(self) -> list[tuple[str, str]]:
        """Sizes and memory, and what was proved about the regions."""
        from kikuchi.core.budget import format_bytes
        from kikuchi.graphs.regions.builders import robustness

        regions = self.regions
        verdict = robustness(self.graph, self.text.strip())
        tested = [] if verdict is None else [f"tested: {verdict}"]
        return [
            ("model", self.model),
            ("regions", f"{self.text}: {len(regions.regions)}, {regions.n_roots} of them roots"),
            ("edges", f"{len(regions.edges)}"),
            ("largest", f"{regions.sizes.max(initial=0):.6g} states"),
            ("tables", format_bytes(regions.bytes)),
            *(("remark", remark) for remark in [*regions.remarks(), *tested]),
        ]

    def table(self) -> TextTable:
        """Regions of the same size and counting number together."""
        rows = [[str(size), f"{c:+d}", str(count)] for size, c, count in self.regions.groups()]
        return TextTable(["variables", "counted", "regions"], rows, [0, 1, 2])

    def to_dict(self) -> dict[str, Any]:
        """The regions with the model and the version."""
        head = {"model": self.model, "version": __version__, "text": self.text}
        return {**head, **self.regions.to_dict()}

    def draw(self, path: Path) -> None:
        """Write a picture of the regions."""
        from kikuchi.cli.outputs import write_picture
        from kikuchi.graphs.shapes import grid_shape
        from kikuchi.plots.regions import draw_regions

        graph = self.graph
        shape = grid_shape(graph)
        figure = draw_regions(
            [region.variables for region in self.regions.regions],
            self.regions.counting,
            self.regions.edges,
            names=graph.names,
            grid=shape,
            periodic=shape is not None and len(graph.pairs()) == 2 * graph.n_variables,
            title=f"{Path(self.model).name}: {self.text}",
        )
        write_picture(figure, path)
