"""`kikuchi most-probable`: the best states of all variables, or of some with the others summed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from kikuchi import __version__
from kikuchi.cli import options
from kikuchi.cli.command import Limits, PageOutput, WritePage, finish, grouped
from kikuchi.cli.options import argument, option
from kikuchi.cli.questions import LikelihoodTexts, Observations
from kikuchi.core.answer import Answer, TextTable

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.queries.marginal_map import MarginalMap
    from kikuchi.queries.most_probable import Explanations

Chosen = Annotated[
    list[str] | None,
    argument("[VARIABLE]...", "Variables to maximise over, the others summed out.  [all]"),
]
Best = Annotated[int, option("--best N", "How many states, the best first.")]


@grouped
def most_probable(
    model: options.Model,
    variables: Chosen = None,
    observed: Observations = None,
    likelihood: LikelihoodTexts = None,
    best: Best = 1,
    format: options.Format = None,
    *,
    limits: Limits,
    output: PageOutput,
) -> None:
    """Find the most probable states given evidence, exactly.

    With variables named, their most probable joint state, all others summed out (marginal MAP):
    exact where that fits, else bounded from both sides.
    """
    from kikuchi.cli.inputs import load_model, variable_number
    from kikuchi.cli.questions import by_name, evidence_of, given_text, likelihoods_of, named
    from kikuchi.core.errors import EvidenceError, KikuchiError

    budget = limits.budget
    output.check(model)
    from kikuchi.queries.marginal_map import marginal_map
    from kikuchi.queries.most_probable import most_probable as find

    graph = load_model(model, format)
    states, marginals = evidence_of(graph, observed)
    if marginals:
        raise EvidenceError("--evidence: observed marginals are for `kikuchi query`; give states")
    weights = by_name(graph, likelihoods_of(graph, likelihood))
    given = by_name(graph, states)
    text = given_text(graph, states)
    asked = [named(graph, variable_number(graph, word)) for word in variables or []]
    if asked and best != 1:
        raise KikuchiError("--best is for states of all variables; leave the names out")
    answer: GivenAnswer
    if asked:
        found = marginal_map(graph, asked, given, likelihood=weights, budget=budget)
        answer = MarginalMapAnswer(model, text, found)
    else:
        several = find(graph, given, best=best, likelihood=weights, budget=budget)
        answer = BestStatesAnswer(model, text, several)
    arguments: dict[str, Any] = {"variables": asked} if asked else {"best": best}
    arguments |= {"evidence": given} if given else {}
    arguments |= {"likelihood": weights} if weights else {}
    finish(answer, output, page=answer.page(graph, states, arguments))


@dataclass(frozen=True)
class GivenAnswer(Answer):
    """Base of states found given some evidence, as the screen and JSON show them."""

    model: str
    given: str
    found: Any

    call: ClassVar[str]

    @property
    @abstractmethod
    def best(self) -> Mapping[str, str]:
        """The best states by variable."""

    @property
    @abstractmethod
    def figure(self) -> tuple[str, str]:
        """How probable the best states are."""

    def page(
        self, graph: FactorGraph, observed: dict[int, int], arguments: dict[str, Any]
    ) -> WritePage:
        """Writes the page: the states in the network, as if they were certain."""

        def certain(drawn: list[int]) -> dict[int, list[float]]:
            return {v: [float(state == best[v]) for state in state_labels(graph, v)]
                    for v in drawn if v in best}  # fmt: skip

        def page(path: Path, command: str) -> None:
            most_probable_page(
                self,
                given=self.given,
                model=self.model,
                tiles=[Tile(*self.figure)],
                network=network_part(
                    graph,
                    list(best),
                    observed,
                    certain,
                    caption="The best state of each variable",
                    percentages=False,
                ),
                python=python_call(self.model, f"found = kk.{self.call}", **arguments),
            ).write(path, command)

        from kikuchi.cli.inputs import variable_number
        from kikuchi.core.page import Tile
        from kikuchi.queries.question import state_labels
        from kikuchi.reports.answer_pages import most_probable_page, python_call
        from kikuchi.reports.network_part import network_part

        best = {variable_number(graph, name): state for name, state in self.best.items()}
        return page

    def to_dict(self) -> dict[str, Any]:
        """The answer with the model, what was given, and the version."""
        head = {"model": self.model, "version": __version__, "given": self.given}
        return {**head, **self.found.to_dict()}


class BestStatesAnswer(GivenAnswer):
    """The best states of all variables."""

    found: Explanations
    call = "most_probable"

    @property
    def best(self) -> Mapping[str, str]:
        """The states of the first answer."""
        states: Mapping[str, str] = self.found[0].states
        return states

    @property
    def figure(self) -> tuple[str, str]:
        """The probability of the first answer."""
        return "probability of the best", f"{self.found[0].probability:.6g}"

    def facts(self) -> list[tuple[str, str]]:
        """The question."""
        return [("model", self.model), ("given", self.given), ("method", "jt, exact")]

    def table(self) -> TextTable:
        """A row for each variable, a column for each state of them all."""
        head = ["variable", *(f"{k}." for k in range(1, len(self.found) + 1))]
        rows = [[name, *(item[name] for item in self.found)] for name in self.found[0]]
        rows.append(["probability", *(f"{item.probability:.6g}" for item in self.found)])
        return TextTable(head, rows)


class MarginalMapAnswer(GivenAnswer):
    """A marginal MAP state."""

    found: MarginalMap
    call = "marginal_map"

    @property
    def best(self) -> Mapping[str, str]:
        """The states that were asked for."""
        return self.found.states

    @property
    def figure(self) -> tuple[str, str]:
        """The log-weight, exact or a bound."""
        return "log-weight" + (
            "" if self.found.exact else ", at least"
        ), f"{self.found.log_weight:.6f}"

    def facts(self) -> list[tuple[str, str]]:
        """The question and the weight of the state, or its bounds."""
        weight = f"{self.found.log_weight:.9f}"
        if not self.found.exact:
            weight = f"at least {weight}, that of any at most {self.found.log_weight_upper:.9f}"
        return [("model", self.model), ("given", self.given), ("log-weight", weight)]

    def table(self) -> TextTable:
        """The states."""
        return TextTable(["variable", "state"], [list(pair) for pair in self.found.states.items()])
