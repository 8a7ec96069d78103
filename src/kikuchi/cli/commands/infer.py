"""`kikuchi infer`: marginals and log Z of a model by one method."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kikuchi.cli import options
from kikuchi.cli.command import Limits, StrictOutput, finish, grouped
from kikuchi.cli.options import option
from kikuchi.core import text
from kikuchi.core.answer import ResultAnswer, TextTable

if TYPE_CHECKING:
    from kikuchi.core.budget import Budget
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.methods.beliefs import Beliefs
    from kikuchi.methods.method import Method
    from kikuchi.reports.evidence import Observed

_MOST_ROWS = 40

MethodText = Annotated[
    str, option("--method -m TEXT", "Method text such as bp:damping=0.5; see `kikuchi methods`.")
]
MarginalsFile = Annotated[
    Path | None,
    option("--out -o OUT", "Write marginals to OUT.MAR or OUT.csv, or log Z to OUT.PR."),
]


@grouped
def infer(
    model: options.Model,
    evidence: options.Evidence = None,
    method: MethodText = "auto",
    marginals: MarginalsFile = None,
    seed: options.Seed = None,
    format: options.Format = None,
    *,
    limits: Limits,
    output: StrictOutput,
) -> None:
    """Infer the marginals of all variables and log Z."""
    from kikuchi.cli import outputs
    from kikuchi.cli.console import ProgressBar
    from kikuchi.cli.inputs import choose_method, load_evidence, load_model

    chosen = choose_method(method, seed)
    budget = limits.budget
    outputs.check_marginals_suffix(marginals, chosen)
    output.check(model, marginals)
    graph = load_model(model, format)
    observed = load_evidence(graph, evidence)
    with ProgressBar(chosen.text, quiet=output.quiet) as progress:
        beliefs = chosen.run(graph, evidence=observed, budget=budget, progress=progress)

    def page(path: Path, command: str) -> None:
        from kikuchi.reports.infer_page import infer_report

        exact = _exact_for_report(chosen, graph, observed, budget)
        infer_report(beliefs, path, exact, model=model, evidence=observed, command=command)

    write = functools.partial(outputs.write_marginals_file, beliefs)
    answer = InferenceAnswer(model, graph, observed, beliefs)
    finish(answer, output, page=page, files=[(marginals, write)])


@dataclass(frozen=True)
class InferenceAnswer(ResultAnswer):
    """What a method answers about a model; as JSON `Beliefs.to_dict` with what it was given."""

    model: str
    graph: FactorGraph
    observed: Observed
    result: Beliefs

    def facts(self) -> list[tuple[str, str]]:
        """The question, log Z with its bounds, and whether the method converged."""
        from kikuchi.reports import wording

        facts = [("model", f"{self.model}: {wording.model_size(self.graph)}")]
        if self.observed:
            facts.append(("evidence", wording.observations(self.graph, self.observed)))
        facts += [
            ("method", self.result.method),
            *wording.choice(self.result),
            ("log Z", text.log_z(self.result.log_z)),
            ("bounds on log Z", wording.bounds(self.result)),
            ("converged", f"{wording.verdict(self.result)} ({wording.work(self.result)})"),
        ]
        if self.result.score is not None:
            facts.append(("best state", f"log-weight {text.log_z(self.result.score)}"))
        return facts

    def table(self) -> TextTable:
        """The first marginals; with a best state, its entry for each variable too."""
        from kikuchi.reports import wording

        graph, state = self.graph, self.result.state
        rows, numbers = [], self.result.variable_beliefs
        for v in range(min(graph.n_variables, _MOST_ROWS)):
            marginal = wording.marginal_text(graph, v, numbers[v].tolist())
            best = [] if state is None else [wording.state_names(graph, v)[int(state[v])]]
            rows.append([wording.variable_name(graph, v), marginal, *best])
        kind = "max-marginal" if self.result.max_product else "marginal"
        head = ["variable", kind, *([] if state is None else ["best state"])]
        return TextTable(head, rows)

    def remarks(self) -> list[str]:
        """How to see the marginals that the screen leaves out."""
        hidden = self.graph.n_variables - _MOST_ROWS
        if hidden <= 0:
            return []
        more = text.count(hidden, "variable")
        return [f"... and {more} more: --out OUT.csv or --json OUT"]

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract: the answer with the model, the evidence and the version."""
        from kikuchi.reports.evidence import question

        return {**question(self.model, self.graph, self.observed), **self.result.to_dict()}


def _exact_for_report(
    method: Method, graph: FactorGraph, observed: Observed, budget: Budget
) -> Beliefs | None:
    """What an approximate answer is held against on its page, if that is cheap to have."""
    from kikuchi.reports.comparison import cheap_exact

    if method.exactness in ("always", "affordable") or not method.gives_marginals:
        return None
    return cheap_exact(graph, observed, budget)
