"""`kikuchi sample`: rows drawn from a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from kikuchi.cli import options
from kikuchi.cli.command import Limits, grouped
from kikuchi.core import text
from kikuchi.core.errors import KikuchiError

Rows = Annotated[
    Path,
    options.option("--out -o S.csv", "Where to write the rows: .csv (.npz of a fitted model too)."),
]
Count = Annotated[int, options.option("-n N", "Number of rows; of sequences, the length.", min=1)]
Latents = Annotated[
    bool,
    options.option("--latents", "Write the states or sources too, in columns before the rows."),
]


@grouped
def sample(
    model: options.Model,
    out: Rows,
    n: Count = 1000,
    evidence: options.Evidence = None,
    seed: options.Seed = None,
    format: options.Format = None,
    latents: Latents = False,
    *,
    limits: Limits,
    quiet: options.Quiet = False,
) -> None:
    """Draw rows from a model.

    Of a graph exactly where a junction tree fits, otherwise by Gibbs sampling. MODEL may be a
    fitted model (.safetensors) of any kind that gives samples; of models of sequences one sequence
    is drawn.
    """
    from kikuchi.cli.console import Screen
    from kikuchi.cli.inputs import load_evidence, load_model
    from kikuchi.cli.outputs import check_outputs
    from kikuchi.cli.trained import is_trained, refuse_for_trained
    from kikuchi.core.files import suffix_of
    from kikuchi.learning.files import write_states
    from kikuchi.learning.sampling import draw_samples
    from kikuchi.reports import wording

    if is_trained(model):
        refuse_for_trained(model, evidence=evidence, format=format)
        check_outputs(model, out)
        Screen(quiet=quiet).line(_write_samples(model, out, n, seed or 0, latents=latents))
        return
    if latents:
        raise KikuchiError("--latents is for fitted models; leave it out")
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


def _write_samples(model: str, out: Path, count: int, seed: int, *, latents: bool) -> str:
    """Draw rows of a fitted model and write them; return what was done."""
    import numpy as np

    from kikuchi.cli.outputs import write_columns
    from kikuchi.cli.trained import load_trained
    from kikuchi.core.files import suffix_of

    if suffix_of(out) not in (".csv", ".npz") or out.name.lower().endswith(".gz"):
        raise KikuchiError(f"{out}: rows are written as .csv or .npz; choose such a name")
    trained = load_trained(model, "samples")
    draw: Any = trained.estimator.sample
    found = draw(count, random_state=seed, **({"return_latents": True} if latents else {}))
    rows = np.asarray(found[0] if latents else found)
    rows = rows[:, None] if rows.ndim == 1 else rows
    names = [str(n) for n in getattr(trained.estimator, "feature_names_in_", ())]
    if latents:
        rows, names = _with_latents(rows, np.asarray(found[1], dtype=float), names)
    bundle: Any = None
    if suffix_of(out) == ".npz" and not latents:
        bundle = trained.workflow.bundle(trained.estimator, rows, model)
    if bundle is not None:
        bundle.save(out)
    else:
        write_columns(out, names, rows)
    return f"{out}: {text.count(count, 'row')}, {trained.workflow.how_drawn(trained.estimator)}"


def _with_latents(rows: Any, latents: Any, names: list[str]) -> tuple[Any, list[str]]:
    """Latent variables and rows side by side, with the names of the columns."""
    import numpy as np

    latents = latents.reshape(len(rows), -1)
    own = names or [f"output{k}" for k in range(rows.shape[1])]
    return np.hstack([latents, rows]), [*(f"state{k}" for k in range(latents.shape[1])), *own]
