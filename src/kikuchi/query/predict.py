"""Many cases at once: `predict_proba` through shared trees, each distinct case answered once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from kikuchi.core import parallel
from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import BudgetError, ImpossibleEvidenceError
from kikuchi.core.labelled import pandas_module
from kikuchi.core.progress import Progress, silent
from kikuchi.graphs.factor_graph import FactorGraph, Variable
from kikuchi.inference.method import Method
from kikuchi.inference.registry import infer, parse_method
from kikuchi.query.cache import cache_of, empty_weights
from kikuchi.query.cases import UNSEEN, Cases, read_cases
from kikuchi.query.conflicts import impossible
from kikuchi.query.foreign import as_model
from kikuchi.query.pattern_tree import EvidencePattern, PatternTree, States
from kikuchi.query.query import affordable
from kikuchi.query.question import Given, asked_variables, state_labels

Impossible = Literal["error", "missing"]

_OWN_TREE = 200  # rows that are worth a tree of their own pattern
_CHUNK = 8192  # distinct rows between two looks at the clock
_DENSE = 4  # codes per row that are worth a table of all codes
_MOST_CODES = 2**62


def predict_proba(
    model: Any,
    frame: Any,
    targets: Sequence[Variable] | Variable | None = None,
    *,
    method: str | Method = "auto",
    impossible: Impossible = "error",
    processes: int | None = 1,
    budget: Budget | None = None,
    seconds: float | None = None,
    progress: Progress = silent,
) -> Any:
    """Distributions of the targets in every case of a table: a DataFrame, one row an answer.

    Rows with the same cells observed share one junction tree and run through it side by side;
    equal rows are answered once. Approximate methods answer each distinct row by one run.

    The columns of the answer are `variable=state`, and `log_evidence` for the logarithm of the
    probability of each case.

    Parameters
    ----------
    model : as in `query`.
    frame : a DataFrame, a mapping of columns, or a list of mappings; a cell is the name of a state
        (or its number, where states have no numbers as names), or missing.
    targets : variables asked for, which are then not read as evidence if they are columns; by
        default every variable, those observed in a case with certainty.
    method : as in `query`.
    impossible : what to do with a case of probability zero: an "error" that names it and what
        contradicts what, or "missing" for a row without numbers.
    processes : number of worker processes that share the rows; None for one for each core.
    budget, seconds, progress : limits of the run, and who is told about it. Without enough time
        it ends with an error, as half a table would be no answer.

    >>> import kikuchi as kk
    >>> cases = {"xray": ["yes", None], "smoke": ["yes", "no"]}
    >>> kk.predict_proba(kk.example("asia"), cases, ["lung"]).round(4)
       lung=no  lung=yes  log_evidence
    0    0.354     0.646       -2.5790
    1    0.990     0.010       -0.6931
    """
    graph = model if isinstance(model, FactorGraph) else as_model(model)
    asked = (
        list(range(graph.n_variables))
        if targets is None
        else asked_variables(graph, targets, "targets")
    )
    cases = read_cases(graph, frame, set() if targets is None else set(asked))
    clock = (budget or Budget(seconds=seconds)).start()
    log_z, values = answer_cases(
        graph, cases, asked, method, clock, processes=processes, progress=progress
    )
    if impossible == "error":
        require_possible_rows(graph, cases, log_z)
    columns = {name: values[:, k] for k, name in enumerate(answer_columns(graph, asked))}
    gone = log_z == -np.inf
    if gone.any():
        values[gone] = np.nan
    return pandas_module().DataFrame(
        {**columns, "log_evidence": log_z}, index=cases.index, copy=False
    )


def answer_columns(graph: FactorGraph, asked: Sequence[int]) -> list[str]:
    """Names of the columns of an answer: `variable=state`.

    >>> answer_columns(FactorGraph([2], [], names=["a"], states=[["no", "yes"]]), [0])
    ['a=no', 'a=yes']
    """
    return [f"{graph.label(v)}={state}" for v in asked for state in state_labels(graph, v)]


def require_possible_rows(
    graph: FactorGraph, cases: Cases, log_z: Array, first: int = 0, where: str = ""
) -> None:
    """Refuse the first case of probability zero, with what contradicts what."""
    bad = np.flatnonzero(log_z == -np.inf)
    if not len(bad):
        return
    row = int(bad[0])
    pairs = zip(cases.variables, cases.states[row].tolist(), strict=True)
    known = Given({v: k for v, k in pairs if k != UNSEEN}, {}, {})
    name = first + row if cases.index is None else cases.index[row]
    raise ImpossibleEvidenceError(f"{where}row {name}: {impossible(graph, known)}")


# ---------------------------------------------------------------------- the rows


def answer_cases(
    graph: FactorGraph,
    cases: Cases,
    asked: Sequence[int],
    method: str | Method,
    clock: Clock,
    *,
    processes: int | None = 1,
    progress: Progress = silent,
) -> tuple[Array, Array]:
    """log Z of each case (-inf where it is impossible) and the distributions of all targets."""
    first, inverse = distinct_rows(cases.states, graph.cardinalities[cases.variables])
    states = np.ascontiguousarray(cases.states[first])
    work = partial(_answers, graph, cases.variables, list(asked), method, clock.budget)
    parts = np.array_split(np.arange(len(states)), max(len(states) // _CHUNK, 1))
    if not parallel.in_this_process(processes) and len(states) > 1:
        workers = parallel.worker_count(processes, len(states))
        parts = np.array_split(np.arange(len(states)), max(4 * workers, len(parts)))
    log_z = np.empty(len(states))
    width = int(graph.cardinalities[list(asked)].sum()) if asked else 0
    values = np.zeros((len(states), width))

    def keep(number: int, result: tuple[Array, Array]) -> None:
        rows = parts[number]
        log_z[rows], values[rows] = result

    mapped = parallel.map(
        work,
        [states[rows] for rows in parts],
        processes=processes,
        budget=_left(clock),
        progress=progress,
        finished=keep,
    )
    if mapped.stopped == "interrupted":
        raise KeyboardInterrupt
    if not mapped.complete:
        raise BudgetError(
            f"{len(mapped.results)} of {mapped.total} parts of the cases were answered when the "
            f"{clock.budget.seconds:g} seconds were over; allow more seconds or ask for fewer cases"
        )
    return log_z[inverse], values[inverse]


def _left(clock: Clock) -> Budget:
    limit = clock.budget.seconds
    seconds = None if limit is None else max(limit - clock.seconds, 1e-6)
    return Budget(clock.budget.iterations, seconds, clock.budget.bytes)


def distinct_rows(states: States, cards: Any) -> tuple[Ints, Ints]:
    """A row of each kind, and the kind of each row; missing cells count as a state.

    >>> distinct_rows(np.array([[0, 1], [0, 1], [-1, 0]], dtype=np.int32), [2, 2])[1].tolist()
    [1, 1, 0]
    """
    n = len(states)
    sizes = [int(c) + 1 for c in cards]
    total = int(np.prod([float(s) for s in sizes])) if sizes else 1
    if total > _MOST_CODES:
        _, first, inverse = np.unique(states, axis=0, return_index=True, return_inverse=True)
        return first.astype(np.int64), inverse.ravel().astype(np.int64)
    code = np.zeros(n, dtype=np.int64)
    for k, size in enumerate(sizes):
        code *= size
        code += states[:, k]
        code += 1
    if total > _DENSE * n + 1024:
        _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
        return first.astype(np.int64), inverse.astype(np.int64)
    place = np.full(total, -1, dtype=np.int64)
    place[code[::-1]] = np.arange(n - 1, -1, -1)
    kinds = np.flatnonzero(place >= 0)
    number = np.empty(total, dtype=np.int64)
    number[kinds] = np.arange(len(kinds))
    return place[kinds], number[code]


def _answers(
    graph: FactorGraph,
    variables: list[int],
    asked: list[int],
    method: str | Method,
    budget: Budget,
    states: States,
) -> tuple[Array, Array]:
    """Answers of distinct rows; a function of its own so that workers can call it."""
    clock = budget.start()
    width = int(graph.cardinalities[asked].sum()) if asked else 0
    log_z, values = np.empty(len(states)), np.zeros((len(states), width))
    exact = isinstance(method, str) and method in ("auto", "exact", "jt")
    for rows, tree in _groups(graph, variables, asked, states, clock) if exact else ():
        if method == "auto" and not affordable(tree, budget):
            exact = False
            break
        _tree_rows(graph, tree, variables, asked, states, rows, log_z, values, clock)
    if not exact:
        _inferred_rows(graph, variables, asked, method, states, log_z, values, budget)
    return log_z, values


def _groups(
    graph: FactorGraph, variables: list[int], asked: list[int], states: States, clock: Clock
) -> Iterator[tuple[Ints, PatternTree]]:
    """Rows that share a tree: those of one pattern if they are many, all others together."""
    cache = cache_of(graph)
    seen = states != UNSEEN
    patterns, which = np.unique(seen, axis=0, return_inverse=True)
    which = which.ravel()
    counts = np.bincount(which, minlength=len(patterns))
    own = (counts >= _OWN_TREE) | (len(patterns) == 1)
    needed = set(asked)
    for k in np.flatnonzero(own).tolist():
        observed = tuple(sorted(v for v, s in zip(variables, patterns[k], strict=True) if s))
        yield np.flatnonzero(which == k), cache.tree_for(observed, (), needed, (), clock)
    rest = np.flatnonzero(~own[which])
    if len(rest):
        always, sometimes = seen[rest].all(axis=0), seen[rest].any(axis=0)
        observed = tuple(sorted(v for v, s in zip(variables, always, strict=True) if s))
        changing = sometimes & ~always
        weighted = tuple(sorted(v for v, s in zip(variables, changing, strict=True) if s))
        yield rest, cache.tree_for(observed, weighted, needed, (), clock)


def _tree_rows(
    graph: FactorGraph,
    tree: PatternTree,
    variables: list[int],
    asked: list[int],
    states: States,
    rows: Ints,
    log_z: Array,
    values: Array,
    clock: Clock,
) -> None:
    """Fill the answers of rows that share a tree."""
    column = {v: k for k, v in enumerate(variables)}
    pattern: EvidencePattern = tree.pattern
    here = states[rows]
    observed = np.ascontiguousarray(here[:, [column[v] for v in pattern.observed]])
    weights = empty_weights(len(rows))
    if pattern.weighted:
        weights = np.concatenate([_seen(graph, v, here[:, column[v]]) for v in pattern.weighted], 1)
    log_z[rows], out = tree.run(observed, weights, clock)
    at = 0
    for v in asked:
        size = int(graph.cardinalities[v])
        if v in pattern.observed:
            values[rows, at + here[:, column[v]]] = 1.0
        elif size == 1 and v not in pattern.weighted:
            values[rows, at] = 1.0
        else:
            k = int(tree.target_at[int(tree.number[v])])
            values[rows, at : at + size] = out[:, k : k + size]
        at += size
    values[rows[log_z[rows] == -np.inf]] = 0.0


def _seen(graph: FactorGraph, v: int, states: Any) -> Array:
    """Weights of a variable's states in each row: one state where it is observed, else all."""
    size = int(graph.cardinalities[v])
    weights: Array = (states[:, None] == np.arange(size)[None, :]).astype(np.float64)
    weights[states == UNSEEN] = 1.0
    return weights


def _inferred_rows(
    graph: FactorGraph,
    variables: list[int],
    asked: list[int],
    method: str | Method,
    states: States,
    log_z: Array,
    values: Array,
    budget: Budget,
) -> None:
    """Each row by a run of its own, with any method."""
    chosen = parse_method(method)
    for row, cells in enumerate(states.tolist()):
        observed = {v: k for v, k in zip(variables, cells, strict=True) if k != UNSEEN}
        try:
            beliefs = infer(graph, chosen, evidence=observed, budget=budget)
        except ImpossibleEvidenceError:
            log_z[row] = -np.inf
            continue
        log_z[row] = 0.0 if beliefs.log_z is None else beliefs.log_z
        if asked:
            values[row] = np.concatenate([beliefs[v] for v in asked])
