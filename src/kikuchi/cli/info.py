"""`kikuchi info`: what a model is, and what exact inference in it would cost."""

from __future__ import annotations

from kikuchi.cli import options


def info(
    model: options.Model,
    evidence: options.Evidence = None,
    memory: options.Memory = None,
    json: options.Json = None,
    quiet: options.Quiet = False,
) -> None:
    """Describe a model and what exact inference would cost.

    Sizes, structure, elimination width, bytes and operations, and which methods fit.
    """
    from kikuchi.cli.console import Screen
    from kikuchi.cli.inputs import load_evidence, load_model, make_budget
    from kikuchi.cli.outputs import STANDARD_OUTPUT, check_outputs, write_json
    from kikuchi.reports.facts import describe

    allowed = make_budget(None, memory).bytes
    check_outputs(model, json)
    graph = load_model(model)
    facts = describe(graph, load_evidence(graph, evidence))
    fits = facts.fitting_methods(allowed)
    if json is not None:
        import dataclasses

        from kikuchi import __version__

        methods = [dataclasses.asdict(fit) for fit in fits]
        data = {"model": model, "version": __version__, **facts.to_dict(), "methods": methods}
        write_json(data, json)
    screen = Screen(quiet=quiet or json == STANDARD_OUTPUT)
    screen.facts([("model", model), *facts.lines()])
    screen.line()
    words = {True: "yes", False: "no", None: "maybe"}
    rows = [[fit.method, words[fit.fits], fit.why] for fit in fits]
    screen.table(["method", "fits", "why"], rows)
