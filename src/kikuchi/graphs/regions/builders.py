"""Region graphs by name: `region_graph(graph, "faces")`.

Specification strings of the option `regions=` are parsed here; `REGION_TEXTS` describes them.

Reference: LIU-I10, LIU-I11, LIU-I12, TEH-M27.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from kikuchi.core.budget import Budget, limits
from kikuchi.core.errors import BudgetError, FormatError, MethodError, ModelError, suggestion
from kikuchi.core.files import parse_json, read_text
from kikuchi.core.text import is_whole
from kikuchi.graphs.elimination import eliminate
from kikuchi.graphs.factor_graph import Conditioned, FactorGraph, Variable, check_graph
from kikuchi.graphs.junction_tree import junction_tree
from kikuchi.graphs.regions import cycles
from kikuchi.graphs.regions.hubs import hub_roots, strong_hubs
from kikuchi.graphs.regions.junction import grown_cliques, mini_buckets
from kikuchi.graphs.regions.parts import Region
from kikuchi.graphs.regions.pruning import without_idle_regions
from kikuchi.graphs.regions.region_graph import RegionGraph
from kikuchi.graphs.regions.robustness import (
    TreeRobustness,
    grow_roots,
    is_tree_robust,
    random_trees,
    tree_exact,
)
from kikuchi.graphs.shapes import grid_shape

REGION_TEXTS: dict[str, str] = {
    "auto": "loops:4 on sparse graphs, independent loops if all of them are harmful; a star on "
    "complete graphs, else bethe",
    "bethe": "one region per factor and one per variable: belief propagation",
    "blocks:RxC": "all windows of R by C variables on a grid, such as blocks:3x3",
    "buckets:K": "mini-buckets of at most K variables and all their intersections",
    "cvm": "the scopes of the factors and all their intersections",
    "cycles": "a shortest cycle basis",
    "faces": "faces of a grid or planar graph without the outer one",
    "faces+outer": "the same with the outer face",
    "file:ROOTS.json": "roots from a file: lists of variables by number or name",
    "hubs:H": "each factor and H strongly coupled variables: BP with these clamped",
    "ijgp:K": "junction graph of the same mini-buckets: iterative join-graph propagation",
    "junction-tree": "cliques and separators of a junction tree: exact",
    "junction:K": "junction graph with cliques grown to at most K variables",
    "loops:K": "all cycles of at most K variables, K in 3..6",
    "star[:ROOT]": "triangles at one variable",
    "tree-robust": "faces if planar, star if complete, else both kinds and further cycles",
}
"""The specification strings of `region_graph`, each with a short description."""

_MOST_STATES = 2**12  # longer cycles are cut; a fan of pieces costs far less
_MOST_OUTER_STATES = 2**16
_SPARSE = 3  # edges for each variable: no planar graph has more
_AUTO_STEPS = 100_000
_MOST_TESTED_EDGES = 500
_TESTED_TREES = 100


def region_graph(
    graph: FactorGraph,
    text: str,
    *,
    budget: Budget | None = None,
    memory: int | str | None = None,
    reduced: Conditioned | None = None,
) -> RegionGraph:
    """Return the region graph of a specification string of `REGION_TEXTS`.

    Factors contained in no root become additional roots. With a `budget`, or a limit of `memory` in
    bytes or as "2GB", regions whose tables would not fit raise an error before anything of their
    size is allocated. If `graph` is the result of reducing another graph by evidence, pass that as
    `reduced`: variables in the specification then refer to the original graph, and observed ones
    are removed from the roots.

    `text` is a specification string such as "faces" or "loops:4".

    >>> from kikuchi.graphs.generators import grid
    >>> print(region_graph(grid(3, 3), "faces").describe())
    9 regions, 4 of them roots, 12 edges
    largest region 16 states, tables 1.5 kB
           4 regions of 4 variables, counted +1
           4 regions of 2 variables, counted -1
           1 region  of 1 variable, counted +1
    faces of a 3 by 3 grid: a tree-robust cycle basis
    """
    check_graph(graph, "region_graph")
    name, colon, argument = (part.strip() for part in text.strip().partition(":"))
    if name not in _BUILDERS:
        known = suggestion(name, REGION_TEXTS)
        raise MethodError(f"there are no regions '{text}'; {known}")
    takes = _TAKES.get(name)
    if colon and takes is None:
        raise MethodError(f"regions '{name}' take nothing after a colon, got '{argument}'")
    if not argument and takes == "needed":
        form = next(known for known in REGION_TEXTS if known.startswith(f"{name}:"))
        raise MethodError(f"regions '{text}' are not complete; write {form}")
    regions = _BUILDERS[name](graph, argument, reduced)
    regions.require(None if budget is None and memory is None else limits(budget, None, memory))
    return regions


# ---------------------------------------------------------------------- the builders


def _auto(graph: FactorGraph, *_: object) -> RegionGraph:
    """Choose short loops if they are few; on dense graphs they overlap so often that they are
    harmful.

    If they fail the test of robustness, choose independent ones.
    """
    loops = _few_short_loops(graph)
    if loops is not None:
        note = f"{_counted(len(loops), 'cycle')} of at most 4 variables"
        if _against_cycles(graph, loops):
            loops = cycles.independent_cycles(_neighbours(graph), loops)
            note = f"{len(loops)} independent ones of the {note}"
        return RegionGraph.closure(graph, loops, note=note)
    return _star(graph) if _is_complete(graph) else _bethe(graph)


def _few_short_loops(graph: FactorGraph) -> list[cycles.Cycle] | None:
    """Return the cycles of at most 4 variables, or None if there are more than edges."""
    pairs = graph.pairs()
    most = len(pairs)
    if most > _SPARSE * graph.n_variables:
        return None
    try:
        steps = _AUTO_STEPS + 50 * most
        return cycles.loops(graph.n_variables, pairs, 4, most=most, steps=steps)
    except BudgetError:
        return None


def _bethe(graph: FactorGraph, *_: object) -> RegionGraph:
    return RegionGraph.bethe(graph)


def _cvm(graph: FactorGraph, *_: object) -> RegionGraph:
    return RegionGraph.closure(graph, [], note="the scopes of the factors are the roots")


def _junction_tree(graph: FactorGraph, *_: object) -> RegionGraph:
    tree = junction_tree(eliminate(graph))
    return RegionGraph.junction_graph(graph, tree.cliques, tree.separators)


def _junction(graph: FactorGraph, argument: str, *_: object) -> RegionGraph:
    most = _whole_number(argument, f"junction:{argument}", 2, 1000)
    grown, note = grown_cliques(graph, most)
    return RegionGraph.junction_graph(graph, grown, note=f"junction graph: {note}")


def _buckets(graph: FactorGraph, argument: str, *_: object) -> RegionGraph:
    most = _whole_number(argument, f"buckets:{argument}", 2, 1000)
    cliques, _joins, note = mini_buckets(graph, most)
    return without_idle_regions(RegionGraph.closure(graph, cliques, note=note))


def _ijgp(graph: FactorGraph, argument: str, *_: object) -> RegionGraph:
    most = _whole_number(argument, f"ijgp:{argument}", 2, 1000)
    cliques, separators, note = mini_buckets(graph, most)
    return RegionGraph.junction_graph(graph, cliques, separators, note=f"junction graph: {note}")


def _hubs(graph: FactorGraph, argument: str, *_: object) -> RegionGraph:
    count = _whole_number(argument, f"hubs:{argument}", 1, 1000)
    hubs = strong_hubs(graph, count)
    names = ", ".join(graph.label(v) for v in hubs)
    return RegionGraph.closure(graph, hub_roots(graph, hubs), note=f"hubs in every region: {names}")


def _faces(graph: FactorGraph, *_: object) -> RegionGraph:
    faces, note = _face_cycles(graph, outer=False)
    return _closure_of_cycles(graph, faces, note)


def _faces_outer(graph: FactorGraph, *_: object) -> RegionGraph:
    faces, note = _face_cycles(graph, outer=True)
    index = cycles.FactorIndex(graph)
    roots: list[Region] = []
    cut = 0
    for cycle in faces:
        pieces = cycles.cut_cycle(cycle, graph.cardinalities.tolist(), _MOST_OUTER_STATES)
        # Only its own edges: the outer face does not contain all edges between its variables.
        along = cycles.edges_of_cycle(cycle)
        roots += [index.region(piece, along) for piece in pieces]
        cut += len(pieces) > 1
    return RegionGraph.closure(graph, roots, note=note + _note_on_cuts(cut))


def _face_cycles(graph: FactorGraph, *, outer: bool) -> tuple[list[cycles.Cycle], str]:
    shape = grid_shape(graph)
    if shape is None:
        return _planar_face_cycles(graph, outer=outer)
    rows, cols = shape
    periodic = len(graph.pairs()) == 2 * rows * cols
    faces = cycles.grid_faces(rows, cols, periodic=periodic)
    if periodic:
        return faces, f"all faces of a periodic {rows} by {cols} grid, which has no outer face"
    if outer:
        return [*faces, cycles.grid_border(rows, cols)], f"all faces of a {rows} by {cols} grid"
    return faces, f"faces of a {rows} by {cols} grid: a tree-robust cycle basis"


def _blocks(graph: FactorGraph, argument: str, reduced: Conditioned | None = None) -> RegionGraph:
    """Return sliding windows on the grid before evidence, as roots."""
    whole = graph if reduced is None else reduced.original
    shape = grid_shape(whole)
    if shape is None:
        raise ModelError(
            "the model is not a grid numbered row by row, so it has no blocks; "
            "use loops:4, cycles or junction:K"
        )
    rows, cols = shape
    high, wide = _block_sides(argument, rows, cols)
    periodic = len(whole.pairs()) == 2 * rows * cols
    roots = cycles.grid_windows(rows, cols, high, wide, periodic=periodic)
    if reduced is not None:
        left = {int(v): k for k, v in enumerate(reduced.variables)}
        kept = [tuple(left[v] for v in root if v in left) for root in roots]
        roots = [root for root in kept if root]
    note = f"windows of {high} by {wide} variables on a {rows} by {cols} grid"
    return without_idle_regions(RegionGraph.closure(graph, roots, note=note))


def _block_sides(argument: str, rows: int, cols: int) -> tuple[int, int]:
    words = argument.lower().split("x")
    if len(words) != 2 or not all(is_whole(word.strip()) for word in words):
        raise MethodError(f"regions 'blocks:{argument}': write rows x columns, such as blocks:3x3")
    high, wide = (int(word) for word in words)
    if not 1 <= high <= rows or not 1 <= wide <= cols:
        raise MethodError(
            f"regions 'blocks:{argument}': the grid has {rows} by {cols} variables; give window "
            "sizes between 1 and these"
        )
    return high, wide


def _planar_face_cycles(graph: FactorGraph, *, outer: bool) -> tuple[list[cycles.Cycle], str]:
    faces = cycles.planar_faces(cycles.pair_edges(graph), outer=outer)
    if faces is None:
        raise ModelError(
            "the pair graph is not planar, so it has no faces; use tree-robust, loops:4, cycles or "
            "junction:K"
        )
    if outer:
        return faces, "all faces of a planar embedding"
    return faces, "faces of a planar embedding: a tree-robust cycle basis"


def _loops(graph: FactorGraph, argument: str, *_: object) -> RegionGraph:
    longest = _whole_number(argument, f"loops:{argument}", 3, 6)
    loops = cycles.loops(graph.n_variables, graph.pairs(), longest)
    note = f"{_counted(len(loops), 'cycle')} of at most {longest} variables"
    regions = RegionGraph.closure(graph, loops, note=note)
    regions.caution = _against_cycles(graph, loops)
    return regions


def _against_cycles(graph: FactorGraph, loops: Sequence[cycles.Cycle]) -> str:
    """Return why cycles may be harmful as regions: not tree-robust; an empty string if nothing is
    known.

    More cycles than a basis are never tree-robust. Otherwise they are tested with random spanning
    trees if the graph is connected and has at most 500 pairs; faces of grids need no test.
    """
    pairs = graph.pairs()
    rank = cycles.n_independent(graph.n_variables, pairs)
    if len(loops) > rank:
        found = f"{_counted(len(loops), 'cycle')}, where a basis has {rank},"
    elif (
        not loops
        or len(pairs) > _MOST_TESTED_EDGES
        or graph.n_components > 1
        or grid_shape(graph) is not None
        or all(
            tree_exact(loops, tree)
            for tree in random_trees(cycles.pair_edges(graph), _TESTED_TREES, 0)
        )
    ):
        return ""
    else:
        found = f"these {_counted(len(loops), 'cycle')}"
    return (
        f"{found} are not tree-robust and may be harmful: compare with regions=cycles, or with bp"
    )


def _cycles(graph: FactorGraph, *_: object) -> RegionGraph:
    basis = cycles.minimum_cycle_basis(graph.n_variables, cycles.pair_edges(graph))
    note = f"a shortest cycle basis of {_counted(len(basis), 'cycle')}"
    return _closure_of_cycles(graph, basis, note)


def _star(
    graph: FactorGraph, argument: str = "", reduced: Conditioned | None = None
) -> RegionGraph:
    neighbours = _neighbours(graph)
    triangles: list[cycles.Cycle] = []
    roots = [_star_root(graph, argument, reduced)] if argument else _by_degree(neighbours)
    for root in roots:
        triangles = cycles.star_triangles(neighbours, root)
        if triangles:
            break
    if not triangles and argument:
        raise ModelError(
            f"variable {argument} is in no triangle, so there is no star; "
            "use cycles, faces or loops:4"
        )
    if not triangles and not _is_forest(graph):
        raise ModelError("the model has no triangle, so no star; use cycles, faces or loops:4")
    if not triangles:
        return RegionGraph.closure(graph, [], note="no cycle: the scopes are the roots")
    complete = _is_complete(graph)
    note = f"{_counted(len(triangles), 'triangle')} at variable {graph.label(root)}" + (
        ": a tree-robust cycle basis of the complete graph" if complete else ""
    )
    return RegionGraph.closure(graph, triangles, note=note)


def _tree_robust(graph: FactorGraph, *_: object) -> RegionGraph:
    if graph.n_variables > 2 and _is_complete(graph):
        return _star(graph)
    shape, edges = grid_shape(graph), cycles.pair_edges(graph)
    if shape is not None and len(edges) < 2 * graph.n_variables:
        return _faces(graph)
    faces = cycles.planar_faces(edges)
    if faces is not None:
        note = "faces of a planar embedding: a tree-robust cycle basis"
        return _closure_of_cycles(graph, faces, note)
    grown = grow_roots(graph.n_variables, edges)
    note = (
        f"{_counted(grown.n_core, 'cycle')} of a {grown.core} part are a tree-robust basis of it, "
        f"{len(grown.roots) - grown.n_core} further roots cover the rest"
    )
    return _closure_of_cycles(graph, grown.roots, note)


def _file(graph: FactorGraph, argument: str, reduced: Conditioned | None) -> RegionGraph:
    roots = read_roots(argument)
    try:
        if reduced is not None:
            numbers = [[reduced.original.index(v) for v in root] for root in roots]
            left = {int(v): k for k, v in enumerate(reduced.variables)}
            kept = [[left[v] for v in root if v in left] for root in numbers]
            roots = [list(root) for root in kept if root]
        return RegionGraph.closure(graph, roots, note=f"roots from {argument}")
    except ModelError as error:
        raise ModelError(f"{argument}: {error}") from None


_BUILDERS: dict[str, Callable[[FactorGraph, str, Conditioned | None], RegionGraph]] = {
    "auto": _auto,
    "bethe": _bethe,
    "blocks": _blocks,
    "buckets": _buckets,
    "cvm": _cvm,
    "cycles": _cycles,
    "faces": _faces,
    "faces+outer": _faces_outer,
    "file": _file,
    "hubs": _hubs,
    "ijgp": _ijgp,
    "junction": _junction,
    "junction-tree": _junction_tree,
    "loops": _loops,
    "star": _star,
    "tree-robust": _tree_robust,
}
_TAKES = {
    "blocks": "needed",
    "buckets": "needed",
    "file": "needed",
    "hubs": "needed",
    "ijgp": "needed",
    "junction": "needed",
    "loops": "needed",
    "star": "optional",
}


# ---------------------------------------------------------------------- parts


def read_roots(path: str | Path) -> list[list[Variable]]:
    """Root regions from a JSON file: lists of variables, alone or under the key `roots`."""
    wanted = "give a list of lists of variables such as [[0, 1, 2], [2, 3]]"
    data = parse_json(path, read_text(path, FormatError), wanted)
    if isinstance(data, dict):
        data = data.get("roots")
    if not isinstance(data, list):
        raise FormatError(path, None, f"found {type(data).__name__}, not a list of roots", wanted)
    for number, root in enumerate(data):
        if not isinstance(root, list) or not all(_is_variable(v) for v in root):
            raise FormatError(path, None, f"root {number} is {json.dumps(root)[:60]}", wanted)
    return data


def _is_variable(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def robustness(graph: FactorGraph, text: str) -> TreeRobustness | None:
    """Whether the cycles of `cycles`, `faces` or `star` are tree-robust, if it is small.

    Returns None for other specifications, and for models with over 500 pairs or not connected.

    >>> from kikuchi.graphs.generators import grid
    >>> print(robustness(grid(3, 3), "faces"))
    tree-robust: exact for 192 of 192 spanning trees
    """
    edges = cycles.pair_edges(graph)
    if not 0 < len(edges) <= _MOST_TESTED_EDGES or graph.n_components > 1:
        return None
    if text == "cycles":
        basis = cycles.minimum_cycle_basis(graph.n_variables, edges)
    elif text == "faces":
        basis = _face_cycles(graph, outer=False)[0]
    elif text == "star" and _is_complete(graph):
        basis = cycles.star_triangles(_neighbours(graph), 0)
    else:
        return None
    return is_tree_robust(edges, basis, samples=_TESTED_TREES)


def _closure_of_cycles(
    graph: FactorGraph, loops: Iterable[Sequence[int]], note: str
) -> RegionGraph:
    """Closure of cycles and edges; cycles with very many states are cut into pieces."""
    cards = graph.cardinalities.tolist()
    pieces = [cycles.cut_cycle(tuple(cycle), cards, _MOST_STATES) for cycle in loops]
    note += _note_on_cuts(sum(len(p) > 1 for p in pieces))
    return RegionGraph.closure(graph, [p for parts in pieces for p in parts], note=note)


def _note_on_cuts(count: int) -> str:
    return f"; {_counted(count, 'long cycle')} cut into pieces" if count else ""


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _neighbours(graph: FactorGraph) -> cycles.Neighbours:
    return cycles.neighbour_sets(graph.n_variables, cycles.pair_edges(graph))


def _is_complete(graph: FactorGraph) -> bool:
    return 2 * len(graph.pairs()) == graph.n_variables * (graph.n_variables - 1)


def _is_forest(graph: FactorGraph) -> bool:
    return cycles.n_independent(graph.n_variables, graph.pairs()) == 0


def _by_degree(neighbours: cycles.Neighbours) -> list[int]:
    """Return the variables by decreasing number of neighbours."""
    return sorted(range(len(neighbours)), key=lambda v: (-len(neighbours[v]), v))


def _star_root(graph: FactorGraph, word: str, reduced: Conditioned | None) -> int:
    """Return the variable of a word: by name if there is such a name, else by number."""
    named = graph if reduced is None else reduced.original
    known = named.names is not None and word in named.names
    v = named.index(int(word) if not known and is_whole(word) else word)
    if reduced is None:
        return v
    if v in reduced.observed:
        raise ModelError(f"star:{word}: that variable is observed; choose another root")
    return int(np.searchsorted(reduced.variables, v))


def _whole_number(word: str, text: str, low: int, high: int) -> int:
    if not is_whole(word) or not low <= int(word) <= high:
        raise MethodError(f"regions '{text}': give a whole number in {low}..{high}")
    return int(word)
