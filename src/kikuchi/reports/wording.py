"""Models, evidence, answers and fits as short texts, the same on the screen and on a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kikuchi.core import text

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.learning.data import Data
    from kikuchi.learning.evaluation import Score
    from kikuchi.learning.fit import Fit
    from kikuchi.methods.beliefs import Beliefs
    from kikuchi.reports.evidence import Observed


# ---------------------------------------------------------------------- models and evidence


def model_size(graph: FactorGraph) -> str:
    """Variables and factors of a model.

    >>> import kikuchi as kk
    >>> model_size(kk.grid(2, 2))
    '4 variables, 8 factors'
    """
    return f"{text.count(graph.n_variables, 'variable')}, {text.count(graph.n_factors, 'factor')}"


def state_names(graph: FactorGraph, variable: int) -> Sequence[str]:
    """Names of the states of a variable, or their numbers."""
    if graph.states is not None:
        return list(graph.states[variable])
    return [str(k) for k in range(int(graph.cardinalities[variable]))]


def variable_name(graph: FactorGraph, variable: int) -> str:
    """The name of a variable, or x and its number."""
    return graph.names[variable] if graph.names is not None else f"x{variable}"


def observations(graph: FactorGraph, evidence: Observed, most: int = 20) -> str:
    """Return evidence as a string such as `rain=yes, x3=0, x4=0.3:0.7` (the last an observed
    marginal).

    >>> import kikuchi as kk
    >>> observations(kk.FactorGraph([2, 2], []), {0: 1, 1: [0.25, 0.75]})
    'x0=1, x1=0.25:0.75'
    """
    if not evidence:
        return "none"
    parts = [
        f"{variable_name(graph, v)}={_observation(graph, v, value)}"
        for v, value in list(evidence.items())[:most]
    ]
    more = len(evidence) - len(parts)
    return ", ".join(parts) + (f", and {more} more" if more else "")


def _observation(graph: FactorGraph, variable: int, value: int | list[float]) -> str:
    if isinstance(value, int):
        return state_names(graph, variable)[value]
    return ":".join(f"{p:.4g}" for p in value)


def marginal_text(
    graph: FactorGraph, variable: int, marginal: Sequence[float], most: int = 6
) -> str:
    """A marginal in one line: its states in order, or the most probable ones of many.

    >>> import kikuchi as kk
    >>> marginal_text(kk.FactorGraph([2], [((0,), [1, 3])]), 0, [0.25, 0.75])
    '0: 0.250000  1: 0.750000'
    """
    names = state_names(graph, variable)
    order = list(range(len(names)))
    if len(order) > most:
        order = sorted(sorted(order, key=lambda k: -marginal[k])[:most])
    shown = "  ".join(f"{names[k]}: {marginal[k]:.6f}" for k in order)
    more = len(names) - len(order)
    return shown + (f"  ({more} less probable states)" if more else "")


# ---------------------------------------------------------------------- runs


def verdict(run: Beliefs | Fit, diverged: str = "diverged") -> str:
    """Return whether a run converged, and if not, what stopped it; `diverged` describes divergence.

    >>> import kikuchi as kk
    >>> verdict(kk.infer(kk.FactorGraph([2], [((0,), [1, 3])]), "enumerate"))
    'yes'
    """
    if run.converged:
        return "yes"
    reasons = {
        "iterations": "no: the limit of iterations was reached",
        "seconds": "no: the time budget ended",
        "diverged": f"no: {diverged}",
        "converged": "no",
    }
    return reasons.get(run.stopped, f"no: {run.stopped}")


def work(run: Beliefs | Fit) -> str:
    """Iterations and time of a run."""
    return f"{text.count(run.iterations, 'iteration')}, {text.seconds(run.seconds)}"


def bounds(beliefs: Beliefs, decimals: int = 9, unknown: str = "none certified") -> str:
    """The certified bounds on log Z: one side, an interval, or exact.

    The ends of an interval have three digits of its width, rounded outwards.
    """
    low, high = beliefs.log_z_lower, beliefs.log_z_upper
    if low is None and high is None:
        return unknown
    if low is not None and high is not None and high - low <= 1e-9 * max(1.0, abs(low)):
        return "exact"
    if low is None or high is None:
        side, value = ("≥", low) if high is None else ("≤", high)
        return f"{side} {text.log_z(value, decimals)}"
    decimals = min(max(2 - math.floor(math.log10(high - low)), 1), decimals)
    unit = 10.0**decimals
    low, high = math.floor(low * unit) / unit, math.ceil(high * unit) / unit
    return f"[{text.log_z(low, decimals)}, {text.log_z(high, decimals)}]"


def choice(beliefs: Beliefs) -> list[tuple[str, str]]:
    """Return the choice of `auto`, its reason, and the methods of its bounds; empty for other
    methods.
    """
    facts = beliefs.diagnostics
    if "chosen" not in facts:
        return []
    lines = [("chosen", f"{facts['chosen']}: {facts['why']}")]
    if "lower_method" in facts:
        sides = [f"{s} by {facts[f'{s}_method']}" for s in ("lower", "upper")]
        shown = [side for side in sides if not side.endswith("by ")]
        lines.append(("bounded", ", ".join(shown) or "no bound was found"))
    return lines


# ---------------------------------------------------------------------- fits


def data_text(data: Data) -> str:
    """Rows, their weight if it differs, and missing cells in one line.

    >>> from kikuchi.learning.data import Data
    >>> data_text(Data.of([[0, 1], [0, -1]]))
    '2 rows of 2 variables, 1 cell missing'
    """
    missing = int(np.count_nonzero(data.states < 0))
    gaps = f", {text.count(missing, 'cell')} missing" if missing else ""
    rows = text.count(data.n_rows, "row")
    if data.total != data.n_rows:
        rows += f" (weight {data.total:g})"
    return f"{rows} of {text.count(data.n_variables, 'variable')}{gaps}"


def score_pairs(score: Score) -> list[tuple[str, str]]:
    """Return the fit of a model to rows, for a table."""
    pairs = [("log-likelihood per row", likelihood(score))]
    if score.pseudo is not None:
        pairs.append(("pseudo-log-likelihood per row", text.log_z(score.pseudo, 6)))
    if score.marginal_l1 is not None:
        pairs.append(("mean L1 distance of marginals", text.figure(score.marginal_l1, 4)))
    return pairs


def likelihood(score: Score) -> str:
    """The log-likelihood: exact, an interval, one side, or unknown.

    >>> from kikuchi.learning.evaluation import Score
    >>> likelihood(Score(3, None, -2.5, -2.25)), likelihood(Score(3, -2.0, -2.0, -2.0))
    ('between -2.500000 and -2.250000', '-2.000000 (exact)')
    """
    low, high = score.lower, score.upper
    if score.log_likelihood is not None:
        return f"{text.log_z(score.log_likelihood, 6)} (exact)"
    if low is not None and high is not None:
        return f"between {text.log_z(low, 6)} and {text.log_z(high, 6)}"
    if low is None and high is None:
        return "not known"
    side, value = ("at least", low) if high is None else ("at most", high)
    return f"{side} {text.log_z(value, 6)}"


def certified_pairs(fit: Fit) -> list[tuple[str, str]]:
    """The lower bound on the log-likelihood that the learner itself certifies, if it does."""
    bound = fit.diagnostics.get("certified_lower")
    return [] if bound is None else [("certified by the learner", f"at least {bound:.6f} per row")]


def objective_name(fit: Fit) -> str:
    """Return the name of the objective, and whether penalties are subtracted from it."""
    from kikuchi.learning.registry import parse_learner

    learner = parse_learner(fit.learner)
    penalised = any(getattr(learner, name, 0.0) > 0 for name in ("l1", "l2"))
    return fit.trace.objective_name + (", penalties taken off" if penalised else "")


def fit_verdict(fit: Fit) -> str:
    """Whether the learner converged, and if not, what stopped it."""
    return verdict(fit, diverged="no better point was found")
