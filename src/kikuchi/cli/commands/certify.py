"""`kikuchi certify`: what is certain about belief propagation before it is run.

Reference: LIU-I9.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kikuchi import __version__
from kikuchi.cli import options
from kikuchi.cli.command import Limits, PageOutput, finish, grouped
from kikuchi.cli.options import option
from kikuchi.core.answer import Answer, TextTable

if TYPE_CHECKING:
    from kikuchi.engines.certificates import Certificate, Condition

Alpha = Annotated[float, option("--alpha A", "Certify alpha-belief propagation; 1 is plain.")]


@grouped
def certify(
    model: options.Model,
    evidence: options.Evidence = None,
    alpha: Alpha = 1.0,
    format: options.Format = None,
    *,
    limits: Limits,
    output: PageOutput,
) -> None:
    """Tell whether belief propagation is sure to converge.

    Where one of the conditions holds, the messages reach the same, only fixed point from every
    start and under every schedule. Where none holds, nothing is known either way.
    """
    from kikuchi.cli.inputs import load_evidence, load_model

    budget = limits.budget
    output.check(model)
    from kikuchi.engines.certificates import certify as prove

    graph = load_model(model, format)
    observed = load_evidence(graph, evidence)
    certificate = prove(graph, observed, alpha, budget=budget)
    answer = CertificateAnswer(model, certificate)

    def page(path: Path, command: str) -> None:
        from kikuchi.reports.answer_pages import certify_page, python_call

        given = {"evidence": observed} if observed else {}
        call = python_call(model, "proof = kk.brackets.certify", **given, alpha=alpha)
        certify_page(answer, model=model, certified=certificate.holds, python=call).write(
            path, command
        )

    finish(answer, output, page=page)


@dataclass(frozen=True)
class CertificateAnswer(Answer):
    """A certificate as the screen and JSON show it."""

    model: str
    certificate: Certificate

    def facts(self) -> list[tuple[str, str]]:
        """The verdict and what it rests on."""
        proof = self.certificate
        pairs = [("model", self.model), ("alpha", f"{proof.alpha:g}"), ("verdict", proof.text)]
        pairs += [("fact", fact) for fact in proof.facts]
        return pairs + [("remark", remark) for remark in proof.remarks]

    def table(self) -> TextTable:
        """The conditions one by one."""
        head = ("condition", "value", "must be", "holds", "")
        return TextTable(head, [_row(c) for c in self.certificate.conditions], [1])

    def to_dict(self) -> dict[str, Any]:
        """The certificate with the model and the version."""
        return {"model": self.model, "version": __version__, **self.certificate.to_dict()}


def _row(condition: Condition) -> list[str]:
    value = "unknown" if condition.value is None else f"{condition.value:.6g}"
    holds = "yes" if condition.holds else "no"
    return [condition.name, value, f"below {condition.threshold:g}", holds, condition.remark]
