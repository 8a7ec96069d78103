"""`kikuchi info`: what a model is, and what exact inference in it would cost."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kikuchi import __version__
from kikuchi.cli import options
from kikuchi.cli.command import Output, finish, grouped
from kikuchi.core.answer import Answer, TextTable

if TYPE_CHECKING:
    from kikuchi.reports.facts import MethodFit, ModelFacts


@grouped
def info(
    model: options.Model,
    evidence: options.Evidence = None,
    memory: options.Memory = None,
    format: options.Format = None,
    *,
    output: Output,
) -> None:
    """Describe a model and what exact inference would cost.

    Sizes, structure, elimination width, bytes and operations, and which methods fit. Of a trained
    model (.safetensors): the estimator, its options, how its fit ended, and its arrays.
    """
    from kikuchi.cli.trained import facts_of_trained, is_trained, refuse_for_trained

    if is_trained(model):
        refuse_for_trained(model, evidence=evidence, format=format)
        output.check(model)
        finish(facts_of_trained(model), output)
        return
    from kikuchi.cli.inputs import load_evidence, load_model, make_budget
    from kikuchi.reports.facts import describe

    allowed = make_budget(None, memory).bytes
    output.check(model)
    graph = load_model(model, format)
    facts = describe(graph, load_evidence(graph, evidence))
    finish(ModelAnswer(model, facts, facts.fitting_methods(allowed)), output)


@dataclass(frozen=True)
class ModelAnswer(Answer):
    """Facts of a model and which methods suit it, as the screen and JSON show them."""

    model: str
    about: ModelFacts
    methods: list[MethodFit]

    def facts(self) -> list[tuple[str, str]]:
        """Sizes, structure and the cost of exact inference."""
        return [("model", self.model), *self.about.lines()]

    def table(self) -> TextTable:
        """Whether each method suits the model, and why."""
        rows = [[fit.method, "yes" if fit.fits else "no", fit.why] for fit in self.methods]
        return TextTable(["method", "fits", "why"], rows)

    def to_dict(self) -> dict[str, Any]:
        """The facts and methods with the model and the version."""
        methods = [dataclasses.asdict(fit) for fit in self.methods]
        head = {"model": self.model, "version": __version__}
        return {**head, **self.about.to_dict(), "methods": methods}
