"""Many cases at once: `predict_proba` through shared trees, each distinct case answered once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack, get_args

import numpy as np

from kikuchi.core import parallel
from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.budget import Budget, Clock, RunLimits, limits, named_limits
from kikuchi.core.cluster import shared_with
from kikuchi.core.errors import BudgetError, DataError, ImpossibleEvidenceError
from kikuchi.core.labelled import pandas_module
from kikuchi.core.log import logger, warn_caller
from kikuchi.core.progress import Progress, ProgressOption, shown, silent
from kikuchi.graphs.cells import UNSEEN
from kikuchi.graphs.factor_graph import FactorGraph, Variable
from kikuchi.methods.method import Method
from kikuchi.methods.registry import infer, parse_method
from kikuchi.queries.cache import cache_of
from kikuchi.queries.cases import Cases, read_cases
from kikuchi.queries.conflicts import impossible
from kikuchi.queries.converters import as_model
from kikuchi.queries.patterns import EvidencePattern, PatternEngine, States, log_of, no_weights
from kikuchi.queries.query import EXACT
from kikuchi.queries.question import Given, asked_variables, state_labels

if TYPE_CHECKING:
    from kikuchi.core.cluster import Client

Impossible = Literal["error", "missing"]

_LOG = logger("queries")
_OWN_TREE = 200  # rows that are worth a tree of their own pattern
_CHUNK = 8192  # distinct rows between two checks of the clock
_DENSE = 4  # codes per row that are worth a table of all codes
_MOST_CODES = 2**62


@named_limits
def predict_proba(
    model: Any,
    frame: Any,
    targets: Sequence[Variable] | Variable | None = None,
    *,
    method: str | Method = "auto",
    impossible: Impossible = "error",
    processes: int | Client | None = 1,
    progress: ProgressOption = None,
    **within: Unpack[RunLimits],
) -> Any:
    """Distributions of the targets in every case of a table: a DataFrame, one row an answer.

    Rows with the same cells observed share one junction tree, or a table of all joint states if
    they are few and the model is small; equal rows are computed once. With the method `bp` rows run
    side by side on the whole graph; other approximate methods run once for each distinct row.

    The columns of the answer are `variable=state`, and `log_evidence` for the logarithm of the
    probability of each case, empty where a method gives none. Rows whose approximation did not
    converge are named in the answer's `attrs["not_converged"]`, with a warning.

    Parameters
    ----------
    model
        As in `query`.
    frame
        A DataFrame, a mapping of columns, or a list of mappings; a cell is the name of a state (or
        its number, where states have no numbers as names), or missing.
    targets : Sequence[Variable] or Variable, optional
        Variables asked for, which are then not read as evidence if they are columns; by default
        every variable, those observed in a case with certainty.
    method : str or Method, default "auto"
        As in `query`.
    impossible : Impossible, default "error"
        What to do with a case of probability zero: an "error" that names it and what contradicts
        what, or "missing" for a row without numbers.
    processes : int or Client, optional
        Number of worker processes that share the rows, None for one for each core; or a client of
        Dask (`distributed.Client`), whose workers then share them.
    budget, seconds, memory
        Limits of the run: a budget, or seconds and memory. Without enough time it ends with an
        error, as half a table would be no answer.
    progress : ProgressOption, optional
        True for a bar, or a progress callback.

    >>> import kikuchi as kk
    >>> cases = {"xray": ["yes", None], "smoke": ["yes", "no"]}
    >>> kk.predict_proba(kk.example("asia"), cases, ["lung"]).round(4)
       lung=no  lung=yes  log_evidence
    0    0.354     0.646       -2.5790
    1    0.990     0.010       -0.6931
    """
    check_impossible(impossible)
    graph = model if isinstance(model, FactorGraph) else as_model(model)
    asked = (
        list(range(graph.n_variables))
        if targets is None
        else asked_variables(graph, targets, "targets")
    )
    cases = read_cases(graph, frame, set() if targets is None else set(asked))
    clock = limits(**within).start()
    with shown(progress, "cases") as report, shared_with(processes) as count:
        found = answer_cases(graph, cases, asked, method, clock, processes=count, progress=report)
    log_z, values = found.log_z, found.values
    if impossible == "error":
        require_possible_rows(graph, cases, log_z)
    columns = {name: values[:, k] for k, name in enumerate(answer_columns(graph, asked))}
    gone = log_z == -np.inf
    if gone.any():
        values[gone] = np.nan
    frame = pandas_module().DataFrame(
        {**columns, "log_evidence": log_z}, index=cases.index, copy=False
    )
    if not found.converged.all():
        frame.attrs["not_converged"] = frame.index[~found.converged].tolist()
        warn_of_rows(int((~found.converged).sum()), len(log_z))
    return frame


def check_impossible(impossible: str) -> None:
    """Validate `impossible`."""
    if impossible not in get_args(Impossible):
        raise DataError(f"impossible must be 'error' or 'missing', got {impossible!r}")


def warn_of_rows(rows: int, total: int, where: str = "") -> None:
    """Warn that so many rows did not converge."""
    text = (
        f"{where}{rows} of {total} cases did not converge, and their answers may be far off; use "
        "another method, more damping or more iterations"
    )
    _LOG.warning("%s", text)
    warn_caller(text)


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


@dataclass
class CaseAnswers:
    """Return for each case log Z (-inf if it is impossible, NaN if the method has none), the
    distributions of all targets, and whether its run converged.
    """

    log_z: Array
    values: Array
    converged: Mask

    @classmethod
    def empty(cls, rows: int, width: int) -> CaseAnswers:
        """Room for so many cases and columns."""
        return cls(np.empty(rows), np.zeros((rows, width)), np.ones(rows, dtype=bool))

    def put(self, rows: Ints, part: CaseAnswers) -> None:
        """Copy the answers of some cases to their places."""
        self.log_z[rows], self.values[rows] = part.log_z, part.values
        self.converged[rows] = part.converged

    def take(self, rows: Ints) -> CaseAnswers:
        """The answers of some cases, in this order."""
        return CaseAnswers(self.log_z[rows], self.values[rows], self.converged[rows])


class _Cells(NamedTuple):
    """The variables of the columns, the variables asked for, and the time."""

    variables: list[int]
    asked: list[int]
    clock: Clock


class _RowGroup(NamedTuple):
    """Rows that share an engine: the pattern of their cells, and how many rows there are.

    Groups are made before rows are shared out to workers, so that answers do not depend on the
    number of workers. Methods without engines have one group without a pattern.
    """

    pattern: EvidencePattern | None
    size: int


def answer_cases(
    graph: FactorGraph,
    cases: Cases,
    asked: Sequence[int],
    method: str | Method,
    clock: Clock,
    *,
    processes: int | None = 1,
    progress: Progress = silent,
) -> CaseAnswers:
    """Answers of all cases, equal ones computed once."""
    first, inverse = distinct_rows(cases.states, graph.cardinalities[cases.variables])
    states = np.ascontiguousarray(cases.states[first])
    if isinstance(method, str) and method not in EXACT:
        method = parse_method(method)
    here = parallel.in_this_process(processes)
    time = clock if here else _left(clock)
    work = partial(_answers, graph, cases.variables, list(asked), method, time)
    largest = _CHUNK
    if not here and len(states) > 1:
        workers = parallel.worker_count(processes, len(states))
        largest = max(min(_CHUNK, len(states) // (4 * workers)), 1)
    parts = [
        _Part(states[rows], rows, group)
        for group, members in _groups(cases.variables, states, method)
        for rows in np.array_split(members, -(-len(members) // largest))
    ]
    width = int(graph.cardinalities[list(asked)].sum()) if asked else 0
    out = CaseAnswers.empty(len(states), width)

    def keep(number: int, result: CaseAnswers) -> None:
        out.put(parts[number].rows, result)

    if here:
        done = 0
        for number, part in enumerate(parts):
            if clock.expired:
                raise _late(done, len(states), clock)
            keep(number, work(part))
            done += len(part.rows)
            progress(number + 1, len(parts), residual=None, objective=None)
        return out.take(inverse)
    mapped = parallel.map(
        work,
        parts,
        processes=processes,
        budget=_left(clock),
        progress=progress,
        finished=keep,
    )
    if mapped.stopped == "interrupted":
        raise KeyboardInterrupt
    if not mapped.complete:
        done = sum(len(parts[number].rows) for number in mapped.results)
        raise _late(done, len(states), clock)
    return out.take(inverse)


@dataclass(frozen=True, repr=False)
class _Part:
    """Some rows of a group, their numbers among all distinct rows; errors name it."""

    states: States
    rows: Ints
    group: _RowGroup

    def __repr__(self) -> str:
        return f"{len(self.states)} cases"


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
    total = math.prod(sizes)
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
    clock: Clock | Budget,
    part: _Part,
) -> CaseAnswers:
    """Answers of distinct rows; a function of its own so that workers can call it."""
    clock = clock.start() if isinstance(clock, Budget) else clock
    width = int(graph.cardinalities[asked].sum()) if asked else 0
    out = CaseAnswers.empty(len(part.states), width)
    pattern, count = part.group
    cells = _Cells(variables, asked, clock)
    if pattern is not None:
        engine = cache_of(graph).engine(
            pattern.observed, pattern.weighted, set(asked), (), clock, rows=count
        )
        if method != "auto" or engine.affordable(clock.budget):
            _exact_rows(graph, engine, cells, part.states, out)
            return out
    _inferred_rows(graph, cells, parse_method(method), part.states, count, out)
    return out


def _groups(
    variables: list[int], states: States, method: str | Method
) -> Iterator[tuple[_RowGroup, Ints]]:
    """Rows of one pattern if they are many, all others together; all rows if there is no engine."""
    everything = np.arange(len(states))
    if not (isinstance(method, str) and method in EXACT):
        if len(states):
            yield _RowGroup(None, len(states)), everything
        return
    seen = states != UNSEEN
    patterns, which = np.unique(seen, axis=0, return_inverse=True)
    which = which.ravel()
    counts = np.bincount(which, minlength=len(patterns))
    own = (counts >= _OWN_TREE) | (len(patterns) == 1)
    for k in np.flatnonzero(own).tolist():
        pattern = EvidencePattern(_chosen(variables, patterns[k]))
        yield _RowGroup(pattern, int(counts[k])), everything[which == k]
    rest = np.flatnonzero(~own[which])
    if len(rest):
        always, sometimes = seen[rest].all(axis=0), seen[rest].any(axis=0)
        changing = _chosen(variables, sometimes & ~always)
        yield _RowGroup(EvidencePattern(_chosen(variables, always), changing), len(rest)), rest


def _chosen(variables: list[int], mask: Mask) -> tuple[int, ...]:
    return tuple(sorted(v for v, chosen in zip(variables, mask, strict=True) if chosen))


def _exact_rows(
    graph: FactorGraph, engine: PatternEngine, cells: _Cells, states: States, out: CaseAnswers
) -> None:
    """Fill the answers of rows that share an engine."""
    column = {v: k for k, v in enumerate(cells.variables)}
    pattern = engine.pattern
    observed = np.ascontiguousarray(states[:, [column[v] for v in pattern.observed]])
    weights = no_weights(len(states))
    if pattern.weighted:
        seen = [_seen(graph, v, states[:, column[v]]) for v in pattern.weighted]
        weights = np.concatenate(seen, axis=1)
    out.log_z[:], found = engine.run(observed, weights, cells.clock)
    at = 0
    for v in cells.asked:
        size = int(graph.cardinalities[v])
        if v in pattern.observed:
            out.values[np.arange(len(states)), at + states[:, column[v]]] = 1.0
        elif engine.is_open[v]:
            k = int(engine.target_at[int(engine.number[v])])
            out.values[:, at : at + size] = found[:, k : k + size]
        else:
            out.values[:, at] = 1.0  # a single state
        at += size
    out.values[out.log_z == -np.inf] = 0.0


def _seen(graph: FactorGraph, v: int, states: Any) -> Array:
    """Log-weights of a variable's states in each row: one state where it is observed, else all."""
    size = int(graph.cardinalities[v])
    weights: Array = (states[:, None] == np.arange(size)[None, :]).astype(np.float64)
    weights[states == UNSEEN] = 1.0
    return log_of(weights)


def _inferred_rows(
    graph: FactorGraph,
    cells: _Cells,
    method: Method,
    states: States,
    count: int,
    out: CaseAnswers,
) -> None:
    """Rows by an approximate method: side by side where it is `bp` and there are several rows in
    all, else by a run for each.
    """
    from kikuchi.methods.belief_propagation import BeliefPropagation
    from kikuchi.queries.message_rows import MessageRows, takes

    rows = np.arange(len(states))
    clock = cells.clock
    if count > 1 and isinstance(method, BeliefPropagation) and takes(method, graph):
        found = MessageRows(graph, method).solve(cells.variables, states, clock)
        offsets = graph.state_offsets
        places = [np.arange(offsets[v], offsets[v + 1]) for v in cells.asked]
        done = np.flatnonzero(~found.left)
        out.log_z[done], out.converged[done] = found.log_z[done], found.converged[done]
        if places:
            out.values[done] = found.marginals[done][:, np.concatenate(places)]
        rows = np.flatnonzero(found.left)
    for number, row in enumerate(rows.tolist()):
        if clock.expired:
            raise _late(len(states) - len(rows) + number, len(states), clock)
        _inferred_row(graph, cells, method, states, row, len(rows) - number, out)


def _inferred_row(
    graph: FactorGraph,
    question: _Cells,
    method: Method,
    states: States,
    row: int,
    left: int,
    out: CaseAnswers,
) -> None:
    """One row by a run of its own; `auto` gets its share of the time of the rows that are left."""
    limit = question.clock.budget.seconds
    seconds = None if limit is None else max(question.clock.seconds_left, 1e-3)
    if seconds is not None and method.name == "auto":
        seconds /= left
    budget = Budget(question.clock.budget.iterations, seconds, question.clock.budget.bytes)
    cells = zip(question.variables, states[row].tolist(), strict=True)
    observed = {v: k for v, k in cells if k != UNSEEN}
    try:
        beliefs = infer(graph, method, evidence=observed, budget=budget)
    except ImpossibleEvidenceError:
        out.log_z[row] = -np.inf
        return
    if beliefs.stopped == "interrupted":
        raise KeyboardInterrupt
    out.log_z[row] = np.nan if beliefs.log_z is None else beliefs.log_z
    out.converged[row] = beliefs.converged
    if question.asked:
        out.values[row] = np.concatenate([beliefs[v] for v in question.asked])


def _late(done: int, total: int, clock: Clock) -> BudgetError:
    return BudgetError(
        f"{done} of {total} distinct cases were completed when the {clock.budget.seconds:g} "
        f"seconds "
        "were over; allow more seconds or request fewer cases"
    )
