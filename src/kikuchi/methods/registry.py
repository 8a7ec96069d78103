"""Specification strings of methods, `name:option=value,...`, for the command line and Python."""

from __future__ import annotations

from logging import INFO
from typing import Any

from kikuchi.core.budget import Budget, limits
from kikuchi.core.log import log_warnings, logger
from kikuchi.core.options import Registry
from kikuchi.core.progress import ProgressOption
from kikuchi.graphs.factor_graph import Evidence, FactorGraph, check_graph
from kikuchi.methods import names
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.method import Method

DEFAULT = "auto"
_LOG = logger("methods")

METHODS: Registry[Method] = names.METHODS


def parse_method(text: str | Method) -> Method:
    """Return the method of a specification string; a method object is returned unchanged.

    A value in parentheses may contain commas, so that one method can contain another.

    `text` is a name, optionally with options, as in "bp:damping=0.5".

    >>> parse_method("bp:damping=0.5,schedule=residual").text
    'bp:schedule=residual,damping=0.5'
    >>> parse_method("clamp:method=(mf:restarts=9,tol=1e-6),k=3").text
    'clamp:method=(mf:restarts=9,tol=1e-6),k=3'
    """
    return METHODS.parse(text)


def infer(
    graph: FactorGraph,
    method: str | Method = DEFAULT,
    *,
    evidence: Evidence | None = None,
    budget: Budget | None = None,
    seconds: float | None = None,
    memory: int | str | None = None,
    progress: ProgressOption = None,
    start: Beliefs | str | None = None,
    **options: Any,
) -> Beliefs:
    """Return the marginals and log Z of `graph`, computed by `method`.

    Parameters
    ----------
    graph : FactorGraph
        The model.
    method : str or Method
        A method object such as `kk.methods.BeliefPropagation(damping=0.5)`, or a specification
        string such as "bp:damping=0.5"; "auto" is exact if that fits the limits, else the best
        approximation. `kikuchi methods` and the page of methods list all of them with their
        options.
    evidence : Evidence, optional
        Observed states by variable, given by name or number; or observed marginals, a distribution
        instead of a state, if the method supports them.
    budget : Budget, optional
        Limits as a `Budget`, instead of the next two.
    seconds : float, optional
        Time limit; iterations stop with the best result so far, marked as not converged.
    memory : int or str, optional
        Limit of the memory that the run adds, in bytes or as a string such as "2GB"; 4 GB by
        default.
    progress : ProgressOption, optional
        True for a bar, or a progress callback.
    start : Beliefs or str, optional
        The result of an earlier run, with other tables or evidence, to continue from: if little has
        changed, a few sweeps suffice. For bp, fractional, alpha, trw, gbp, kikuchi and mf. If a
        method has several fixed points, the one near the start is found. A string is the option
        `start` of methods that have one.
    options : any
        Options of the method by name, as in `kk.infer(graph, "bp", damping=0.5)`.

    Returns
    -------
    Beliefs
        marginals of variables and factors, log Z and its bounds, whether it converged, and
        warnings. Records go to the loggers `kikuchi.methods` and below.

    >>> from kikuchi import FactorGraph
    >>> infer(FactorGraph([2], [((0,), [1, 3])]), "bp")[0].round(6).tolist()
    [0.25, 0.75]
    """
    check_graph(graph, "infer")
    allowed = limits(budget, seconds, memory)
    if isinstance(start, str):
        options["start"], start = start, None
    chosen_method = METHODS.parse(method, options)
    beliefs = chosen_method.run(
        graph, evidence=evidence, budget=allowed, progress=progress, start=start
    )
    if _LOG.isEnabledFor(INFO) and "chosen" in beliefs.diagnostics:
        chosen, why = beliefs.diagnostics["chosen"], beliefs.diagnostics.get("why")
        _LOG.info("%s chose %s: %s", beliefs.method, chosen, why)
    log_warnings(_LOG, beliefs.method, beliefs.warnings)
    return beliefs
