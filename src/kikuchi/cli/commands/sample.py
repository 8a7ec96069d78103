"""`kikuchi sample`: rows drawn from a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from kikuchi.cli import options
from kikuchi.cli.command import Limits, grouped
from kikuchi.core import text
from kikuchi.core.errors import KikuchiError

Rows = Annotated[
    Path,
    options.option(
        "--out -o S.csv", "Where to write the rows: .csv (.npz of a trained model too)."
    ),
]
Count = Annotated[int, options.option("-n N", "Number of rows.", min=1)]


@grouped
def sample(
    model: options.Model,
    out: Rows,
    n: Count = 1000,
    evidence: options.Evidence = None,
    seed: options.Seed = None,
    format: options.Format = None,
    *,
    limits: Limits,
    quiet: options.Quiet = False,
) -> None:
    """Draw rows from a model.

    Exactly where a junction tree fits, otherwise by Gibbs sampling. MODEL may be a trained model of
    any family with a distribution of rows (.safetensors, as `kikuchi train`, `kikuchi temporal` and
    `save` in Python write it): machines, energy models, belief networks, components with noise,
    models in time (one sequence), flows.
    """
    from kikuchi.cli.console import Screen
    from kikuchi.cli.inputs import load_evidence, load_model
    from kikuchi.cli.outputs import check_outputs
    from kikuchi.cli.trained import is_trained, refuse_for_trained, write_samples
    from kikuchi.core.files import suffix_of
    from kikuchi.learning.files import write_states
    from kikuchi.learning.sampling import draw_samples
    from kikuchi.reports import wording

    if is_trained(model):
        refuse_for_trained(model, evidence=evidence, format=format)
        check_outputs(model, out)
        Screen(quiet=quiet).line(write_samples(model, out, n, seed or 0))
        return
    if suffix_of(out) != ".csv" or out.name.lower().endswith(".gz"):
        raise KikuchiError(f"{out}: rows are written as .csv; choose such a name")
    check_outputs(model, out, others=[] if evidence is None else [Path(evidence)])
    budget = limits.budget
    graph = load_model(model, format)
    observed = load_evidence(graph, evidence)
    samples = draw_samples(graph, n, evidence=observed, seed=seed or 0, budget=budget)
    names = [wording.variable_name(graph, v) for v in range(graph.n_variables)]
    write_states(out, samples.states, names, graph.states)
    Screen(quiet=quiet).line(f"{out}: {text.count(n, 'row')}, {samples.how}")
