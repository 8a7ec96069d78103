"""`kikuchi query`: distributions of named variables given evidence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kikuchi import __version__
from kikuchi.cli import options
from kikuchi.cli.command import Limits, PageOutput, WritePage, finish, grouped
from kikuchi.cli.options import argument, option
from kikuchi.cli.questions import LikelihoodTexts, Observations
from kikuchi.core.answer import Answer, TextTable

if TYPE_CHECKING:
    from kikuchi.core.budget import Budget
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.queries.answers import Distributions, JointDistribution

Asked = Annotated[
    list[str] | None, argument("[VARIABLE]...", "Variables asked for.  [all that are not observed]")
]
Together = Annotated[bool, option("--joint", "The joint distribution of the variables.")]
MethodText = Annotated[
    str,
    option(
        "--method -m TEXT", "auto, exact, or a method with its options, such as bp:damping=0.5."
    ),
]


_MOST_ROWS = 60


@grouped
def query(
    model: options.Model,
    variables: Asked = None,
    observed: Observations = None,
    likelihood: LikelihoodTexts = None,
    joint: Together = False,
    method: MethodText = "auto",
    format: options.Format = None,
    *,
    limits: Limits,
    output: PageOutput,
) -> None:
    """Answer a question: distributions given evidence.

    Exact where that is affordable, and said if it is not.
    """
    from kikuchi.cli.inputs import load_model, variable_number
    from kikuchi.cli.questions import by_name, evidence_of, given_text, likelihoods_of, named
    from kikuchi.core.errors import ModelError

    budget = limits.budget
    output.check(model)
    from kikuchi.queries.query import query as ask

    graph = load_model(model, format)
    states, marginals = evidence_of(graph, observed)
    asked = [named(graph, variable_number(graph, word)) for word in variables or []]
    if joint and not asked:
        raise ModelError("--joint: name the variables whose joint distribution is wanted")
    evidence: dict[str, Any] = {
        "evidence": by_name(graph, states),
        "likelihood": by_name(graph, likelihoods_of(graph, likelihood)),
        "observed_marginals": by_name(graph, marginals),
    }
    wanted = {"joint": asked} if joint else {"variables": asked or None}
    found = ask(graph, **wanted, **evidence, method=method, budget=budget)
    answer = QuestionAnswer(model, given_text(graph, states), found)

    settings = {**evidence, "method": method}
    page = question_page(graph, answer, wanted, settings, budget)
    finish(answer, output, page=page)


def question_page(
    graph: FactorGraph,
    answer: QuestionAnswer,
    wanted: dict[str, Any],
    settings: dict[str, Any],
    budget: Budget,
) -> WritePage:
    """Writes the page of an answer; `wanted` and `settings` are the arguments of the question."""
    from kikuchi.queries.query import query as ask

    def distributions(numbers: list[int]) -> dict[int, Any]:
        from kikuchi.cli.questions import named

        names = [named(graph, v) for v in numbers]
        if not names:
            return {}
        several = ask(graph, names, **settings, budget=budget)
        found = [several[name] for name in several]  # in the order of the question
        return {v: one.values_array for v, one in zip(numbers, found, strict=True)}

    def page(path: Path, command: str) -> None:
        from kikuchi.reports.answer_pages import python_call, query_page
        from kikuchi.reports.evidence import as_observed, observed_states
        from kikuchi.reports.network_part import network_part

        asked = next(iter(wanted.values())) or []
        chosen = [graph.index(name) for name in asked] or range(graph.n_variables)
        states = observed_states(as_observed(graph, settings["evidence"]))
        known = {name: value for name, value in settings.items() if value}
        query_page(
            answer,
            answer.answer,
            asked=[str(name) for name in asked],
            given=answer.given,
            model=answer.model,
            network=network_part(graph, chosen, states, distributions),
            python=python_call(answer.model, "answer = kk.query", **wanted, **known),
        ).write(path, command)

    return page


@dataclass(frozen=True)
class QuestionAnswer(Answer):
    """An answer to a query as the screen and JSON show it."""

    model: str
    given: str
    answer: Distributions | JointDistribution

    @property
    def converged(self) -> bool:
        """As the method says."""
        return self.answer.converged

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of the method."""
        return self.answer.warnings

    def facts(self) -> list[tuple[str, str]]:
        """The question, and how far to trust the answer."""
        from kikuchi.core import text

        exact = "exact" if self.answer.exact else "approximate"
        facts = [("model", self.model), ("given", self.given)]
        facts.append(("method", f"{self.answer.method}, {exact}"))
        if self.answer.log_evidence is not None:
            facts.append(("log evidence", text.log_z(self.answer.log_evidence)))
        return facts

    def table(self) -> TextTable:
        """Variables, states and probabilities."""
        from kikuchi.queries.answers import JointDistribution

        if isinstance(self.answer, JointDistribution):
            rows = [[*states, f"{p:.6g}"] for states, p in self.answer.most_probable(_MOST_ROWS)]
            return TextTable([*self.answer.names, "probability"], rows, [len(self.answer.names)])
        rows = [
            [name if k == 0 else "", state, f"{p:.6g}"]
            for name in self.answer
            for k, (state, p) in enumerate(self.answer[name].items())
        ]
        return TextTable(["variable", "state", "probability"], rows[:_MOST_ROWS], [2])

    def remarks(self) -> list[str]:
        """How to see what the screen leaves out."""
        from kikuchi.queries.answers import JointDistribution

        joint = isinstance(self.answer, JointDistribution)
        size = (
            self.answer.table.size
            if isinstance(self.answer, JointDistribution)
            else sum(len(self.answer[name]) for name in self.answer)
        )
        order = "less probable " if joint else ""
        more = size - _MOST_ROWS
        return [f"... and {more} {order}rows more: --json OUT"] if more > 0 else []

    def to_dict(self) -> dict[str, Any]:
        """The answer with the model, what was given, and the version."""
        head = {"model": self.model, "version": __version__, "given": self.given}
        return {**head, **self.answer.to_dict()}
