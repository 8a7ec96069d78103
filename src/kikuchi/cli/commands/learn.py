"""`kikuchi learn`: fit the tables of a model to a table of data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kikuchi import __version__
from kikuchi.cli import options
from kikuchi.cli.command import Limits, StrictOutput, finish, grouped
from kikuchi.cli.options import flag, option
from kikuchi.core import text
from kikuchi.core.answer import ResultAnswer, TextTable
from kikuchi.core.errors import DataError, KikuchiError, MethodError, ModelError
from kikuchi.core.text import is_whole

if TYPE_CHECKING:
    from kikuchi.graphs.conditional import ConditionalTable
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.learning.data import Data
    from kikuchi.learning.evaluation import Score
    from kikuchi.learning.fit import Fit
    from kikuchi.learning.learner import Learner

_SHOWN_TABLES, _SHOWN_ROWS = 10, 8  # on the screen

Graph = Annotated[
    str,
    option(
        "--graph -g G",
        "Model file, example:NAME, chow-liu, hill-climb:bic, pc, grid:RxC, or EDGES.csv.",
    ),
]
Fitted = Annotated[
    Path,
    option("--out -o FITTED", options.MODEL_TO_WRITE),
]
Hidden = Annotated[
    str | None,
    option(
        "--hidden V1,V2",
        "Variables to treat as never observed; h:3 with a new name has 3 states.",
    ),
]


Bins = Annotated[
    int | None,
    option("--bins N", "Divide columns of real numbers into N quantile bins each."),
]
HoldOut = Annotated[
    float | None,
    option(
        "--hold-out X",
        "Fraction of the rows to set aside for the held-out log-likelihood; the model written is "
        "fitted to all rows.  [0.2 for directed models, 0 for others]",
    ),
]


@dataclass(frozen=True)
class LearnerOptions:
    """A learner as its text, and options of it that have a name of their own."""

    learner: str = flag(
        "--learner -l TEXT",
        "Learner, such as pseudo:l2=0.1 (see `kikuchi learners`); auto counts for directed models "
        "(em:prior=0.2) and is gradient for others.",
        "auto",
    )
    inference: str | None = flag("--inference TEXT", "Method inside the learner, such as bp.")
    l1: float | None = flag("--l1 X", "Penalty on sizes of parameters.")
    l2: float | None = flag("--l2 X", "Penalty on squares of parameters.")
    seed: options.Seed = None

    def choose(self, model: FactorGraph) -> Learner:
        """The learner with its options; one that it does not have is refused, except the seed."""
        from kikuchi.learning.registry import LEARNERS, choose_learner

        chosen = choose_learner(self.learner, model)
        known = _field_names(chosen)
        names = ("inference", "l1", "l2", *(["seed"] if "seed" in known else []))
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        for name in given.keys() - known:
            having = [other for other in LEARNERS if name in _field_names(LEARNERS.find(other))]
            raise MethodError(
                f"learner {chosen.name} has no option {name}; learners with it: {', '.join(having)}"
            )
        return dataclasses.replace(chosen, **given) if given else chosen


def _field_names(learner: Any) -> set[str]:
    return {f.name for f in dataclasses.fields(learner)}


@dataclass(frozen=True)
class Checkpointing:
    """Where a fit keeps its state, and whether to go on from there."""

    checkpoint: Path | None = flag("--checkpoint F", "Save the state of the fit here.")
    resume: bool = flag("--resume", "Go on from the checkpoint of a fit that was ended.", False)

    def check(self) -> None:
        """Refuse a checkpoint that would be overwritten, and a resumption from nowhere."""
        if self.resume and self.checkpoint is None:
            raise DataError("--resume needs --checkpoint F, the file that the fit was saved in")
        if self.checkpoint is not None and self.checkpoint.exists() and not self.resume:
            raise DataError(
                f"{self.checkpoint}: there is a checkpoint already; give --resume to go on from "
                "it, or delete it to begin anew"
            )


@grouped
def learn(
    data: options.DataFile,
    graph: Graph,
    out: Fitted,
    hidden: Hidden = None,
    bins: Bins = None,
    hold_out: HoldOut = None,
    *,
    learner: LearnerOptions,
    saving: Checkpointing,
    limits: Limits,
    output: StrictOutput,
) -> None:
    """Learn the parameters of a model from a table of data."""
    from kikuchi.cli.console import ProgressBar
    from kikuchi.cli.outputs import check_model_suffix
    from kikuchi.graphs.formats import check_writable, write
    from kikuchi.graphs.formats.names import names_file

    budget = limits.budget
    check_model_suffix(out)
    output.check(data, out, saving.checkpoint)
    saving.check()
    model, rows = load_graph_and_data(graph, data, hidden, bins)
    chosen = learner.choose(model)
    _check_direction(out, model)
    check_writable(model, out)
    with ProgressBar(chosen.text, quiet=output.quiet) as progress:
        fit = chosen.fit(
            model, rows, budget=budget, progress=progress, checkpoint=saving.checkpoint
        )
    share = (0.2 if model.is_directed else 0.0) if hold_out is None else hold_out
    fit = dataclasses.replace(fit, held_out=_held_out(graph, model, rows, chosen, share, limits))
    write(fit.graph, out)
    names = names_file(out) if names_file(out).is_file() else None
    if saving.checkpoint is not None and fit.converged:
        saving.checkpoint.unlink(missing_ok=True)  # only now that the result is on the disk

    def page(path: Path, command: str) -> None:
        from kikuchi.reports.learn_page import learn_report

        learn_report(fit, rows, path, source=data, graph=graph, command=command)

    finish(FitAnswer(data, graph, out, rows, fit), output, page=page, written=[out, names])


def _held_out(
    graph: str, model: FactorGraph, rows: Data, learner: Learner, share: float, limits: Limits
) -> Score | None:
    """The score of rows set aside; a structure that was searched for is searched for again."""
    from kikuchi.learning.networks import held_out_score
    from kikuchi.learning.structure.graphs import graph_from_text

    searched = _is_searched(graph) and rows.complete

    def fit(part: Data) -> FactorGraph:
        start = graph_from_text(graph, part) if searched else model
        return learner.fit(start, part.matched(start), budget=limits.budget, score=False).graph

    try:
        return held_out_score(fit, rows, share, budget=limits.budget)
    except DataError as error:
        raise DataError(str(error).replace("hold_out", "--hold-out")) from None


def _is_searched(graph: str) -> bool:
    """Whether the graph is the text of a search for arrows or edges."""
    return graph.strip().lower().partition(":")[0] in ("hill-climb", "pc", "chow-liu")


@dataclass(frozen=True)
class FitAnswer(ResultAnswer):
    """A fit as the screen and JSON show it."""

    source: str
    graph: str
    out: Path
    rows: Data
    result: Fit

    def facts(self) -> list[tuple[str, str]]:
        """The question, how well the model explains the data, and how the fit went."""
        from kikuchi.reports import wording

        fit = self.result
        if fit.graph.is_directed:
            return self._network_facts()
        objective = f"{text.log_z(fit.objective, 6)} ({wording.objective_name(fit)})"
        return [
            ("data", f"{self.source}: {wording.data_text(self.rows)}"),
            ("graph", f"{self.graph}: {wording.model_size(fit.graph)}"),
            ("learner", fit.learner),
            ("objective", objective),
            *([] if fit.score is None else wording.score_pairs(fit.score)),
            *self._held_out(),
            *wording.certified_pairs(fit),
            ("converged", f"{wording.fit_verdict(fit)} ({wording.work(fit)})"),
        ]

    def _network_facts(self) -> list[tuple[str, str]]:
        """Of a Bayesian network: arrows, score, and likelihoods of training and held-out rows."""
        from kikuchi.learning.fit import arrows_text
        from kikuchi.reports import wording

        fit, count = self.result, len(self.result.graph.edges)
        arrows = f"{count} arrow" + "s" * (count != 1)
        pairs = [
            ("data", f"{self.source}: {wording.data_text(self.rows)}"),
            ("graph", f"{self.graph}: {fit.graph.n_variables} variables, {arrows}"),
            ("arrows", arrows_text(fit.graph)),
        ]
        if self.rows.complete:
            name = self.score_name
            pairs.append((name.upper(), f"{self.structure_score:.3f}"))
        pairs.append(("learner", fit.learner))
        if fit.score is not None:
            pairs.append(("log-likelihood per row", wording.likelihood(fit.score)))
        return [
            *pairs,
            *self._held_out(),
            *wording.certified_pairs(fit),
            ("converged", f"{wording.fit_verdict(fit)} ({wording.work(fit)})"),
        ]

    def _held_out(self) -> list[tuple[str, str]]:
        from kikuchi.reports import wording

        score = self.result.held_out
        if score is None:
            return []
        rest = self.rows.n_rows - score.rows
        figure = wording.likelihood(score).removesuffix(" (exact)")
        return [("held-out", f"{figure} per row ({score.rows} rows, model of the other {rest})")]

    @property
    def score_name(self) -> str:
        """The score that the search for arrows used, else bic."""
        name, _, score = self.graph.strip().lower().partition(":")
        return score if name == "hill-climb" and score else "bic"

    @property
    def structure_score(self) -> float | None:
        """Score of the arrows for the rows; None without arrows, or if cells are missing."""
        from kikuchi.learning.networks import structure_score

        if not (self.rows.complete and self.result.graph.is_directed):
            return None
        return structure_score(self.result.graph, self.rows, self.score_name)

    def parts(self) -> list[tuple[list[str], TextTable]]:
        """The first conditional probability tables of a network, and the first rows of each."""
        graph = self.result.graph
        if not graph.is_directed:
            return []
        shown = range(min(graph.n_variables, _SHOWN_TABLES))
        return [_short_table(graph.cpt(v)) for v in shown]

    def remarks(self) -> list[str]:
        """Where the tables are that are not shown."""
        more = self.result.graph.n_variables - _SHOWN_TABLES
        if not self.result.graph.is_directed or more <= 0:
            return []
        return [f"{more} more tables: kk.read({str(self.out)!r}).cpt(name) in Python, or --report"]

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract: `Fit.to_dict` with the data, the graph, the file and the version."""
        head = {"data": self.source, "graph": self.graph, "out": str(self.out)}
        score = {"structure_score": self.structure_score, "structure_score_name": self.score_name}
        fields = score if self.result.graph.is_directed else {}
        return {**head, "version": __version__, **self.result.to_dict(), **fields}


def _short_table(table: ConditionalTable) -> tuple[list[str], TextTable]:
    """The first rows of a table, with the names of its states as columns."""
    head, *rows = table.cells(digits=4)
    right = range(len(table.parents), len(head))
    count = int(table.table[..., 0].size)
    part = f", the first {_SHOWN_ROWS} of {count} rows" if count > _SHOWN_ROWS else ""
    lines = ["", table.title + part]
    return lines, TextTable(head, rows[:_SHOWN_ROWS], list(right))


# ---------------------------------------------------------------------- graph and data


def load_graph_and_data(
    graph: str, data: str, hidden: str | None, bins: int | None = None
) -> tuple[FactorGraph, Data]:
    """The graph that a text names and the rows over its variables, hidden ones masked."""
    from kikuchi.cli.inputs import EXAMPLE, load_model
    from kikuchi.cli.outputs import MODEL_SUFFIXES
    from kikuchi.core.files import suffix_of
    from kikuchi.learning.files import read_data

    words = [word.strip() for word in (hidden or "").split(",") if word.strip()]
    if graph.startswith(EXAMPLE) or suffix_of(graph) in MODEL_SUFFIXES:
        if bins is not None:
            raise DataError(
                f"--bins {bins}: {graph} has its states already; leave --bins out, or learn the "
                "graph from the rows, as with --graph hill-climb:bic"
            )
        model = load_model(graph)
        return model, _masked(model, read_data(data, model), words)
    from kikuchi.learning.structure.graphs import graph_from_text

    rows = read_data(data, bins=bins)
    rows, shown = _with_new_columns(rows, words, graph)
    model = graph_from_text(graph, shown)
    names = [word.partition(":")[0] for word in words]
    return model, _masked(model, rows.matched(model), names)


def _with_new_columns(rows: Data, words: list[str], graph: str) -> tuple[Data, Data]:
    """The rows with a missing column for each new hidden variable; and as if they were seen."""
    import numpy as np

    from kikuchi.learning.data import Data

    known = rows.names or tuple(f"x{k}" for k in range(rows.n_variables))
    new = [word for word in words if word.partition(":")[0] not in known]
    if not new:
        return rows, rows
    if graph.strip().lower() == "chow-liu":
        raise DataError(
            f"--hidden {new[0]}: no column has that name, and chow-liu has no place for a "
            "variable that is never seen; give edges or a model"
        )
    counts = [_states(word) for word in new]
    cards = np.concatenate([rows.cardinalities, counts])
    gaps = np.full((rows.n_rows, len(new)), -1, dtype=np.int32)
    seen = np.arange(rows.n_rows)[:, None] % np.array(counts)
    names = (*known, *(word.partition(":")[0] for word in new))
    states = None
    if rows.state_names is not None:
        states = (*rows.state_names, *(tuple(map(str, range(c))) for c in counts))
    hidden, shown = (
        Data(np.hstack([rows.states, added]).astype(np.int32), rows.weights, cards, names, states)
        for added in (gaps, seen)
    )
    return hidden, shown


def _states(word: str) -> int:
    name, colon, count = word.partition(":")
    if not colon:
        return 2
    if not is_whole(count) or int(count) < 2:
        raise DataError(f"--hidden {name}:{count}: give a number of states from 2 up, such as h:3")
    return int(count)


def _masked(graph: FactorGraph, rows: Data, words: list[str]) -> Data:
    """The rows without what they say about some variables."""
    from kikuchi.cli.inputs import variable_number

    if not words:
        return rows
    states = rows.states.copy()
    for word in words:
        try:
            states[:, variable_number(graph, word)] = -1
        except ModelError as error:
            raise DataError(f"--hidden {word}: {error}") from None
    if not (states >= 0).any():
        raise DataError("--hidden: no variable is left that a row observes")
    return rows.like(states, rows.weights)


def _check_direction(out: Path, graph: FactorGraph) -> None:
    from kikuchi.core.files import suffix_of

    if suffix_of(out) == ".bif" and not graph.is_directed:
        raise KikuchiError(f"{out}: .bif holds directed models only; write .uai or .fg")
