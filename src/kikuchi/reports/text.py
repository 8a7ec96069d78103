"""Numbers, names and findings as short texts, the same on the screen and on a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.inference.beliefs import Beliefs
    from kikuchi.reports.evidence import Observed

UNKNOWN = "–"


def figure(value: float | None, digits: int = 12) -> str:
    """A number to so many significant digits; a dash where it is unknown.

    >>> figure(165.647464292), figure(None), figure(math.inf)
    ('165.647464292', '–', 'inf')
    """
    return UNKNOWN if value is None or math.isnan(value) else f"{value:.{digits}g}"


def log_z(value: float | None, decimals: int = 9) -> str:
    """A log Z to nine decimals, as reference tables print it.

    >>> log_z(165.6474642921), log_z(-1e-16), log_z(None)
    ('165.647464292', '0.000000000', '–')
    """
    if value is None or math.isnan(value):
        return UNKNOWN
    return (
        figure(value, 16) if abs(value) >= 1e7 else f"{round(value, decimals) + 0.0:.{decimals}f}"
    )


def power_of_ten(exponent: float) -> str:
    """A number given by its decimal logarithm: written out while that is short.

    >>> power_of_ten(2.1072), power_of_ten(90.3)
    ('128', '10^90.3')
    """
    return whole(round(10**exponent)) if exponent < 9 else f"10^{exponent:.1f}"


def error(value: float | None) -> str:
    """An error to three digits.

    >>> error(0.107834), error(0.0), error(None)
    ('0.108', '0', '–')
    """
    return figure(value, 3)


def seconds(value: float) -> str:
    """A duration with its unit.

    >>> seconds(0.00321), seconds(2.5), seconds(75.0)
    ('3.2 ms', '2.5 s', '75 s')
    """
    return (
        f"{value * 1e3:.2g} ms"
        if value < 0.0995
        else f"{value:.2g} s"
        if value < 9.95
        else (f"{value:.0f} s")
    )


def count(number: float, noun: str, plural: str | None = None) -> str:
    """A number with its noun; above a million in powers of ten.

    >>> count(1, "factor"), count(1234, "factor"), count(2, "entry", "entries")
    ('1 factor', '1,234 factors', '2 entries')
    """
    word = noun if number == 1 else plural or noun + "s"
    return f"{whole(number)} {word}"


def whole(number: float) -> str:
    """A whole number with separators, or its order of magnitude when it is very long.

    >>> whole(90000), whole(2**80)
    ('90,000', '1.21e+24')
    """
    return f"{int(number):,}" if number < 1e15 else f"{float(min(number, 1e300)):.3g}"


def tally(counts: Mapping[int, int]) -> str:
    """A histogram of a few values in one line.

    >>> tally({2: 37, 4: 1})
    '2 (37 times), 4 (once)'
    """
    shown = list(counts.items())[:8]
    parts = [f"{k} ({'once' if c == 1 else f'{c:,} times'})" for k, c in shown]
    more = len(counts) - len(shown)
    return ", ".join(parts) + (f", and {more} more" if more else "")


def verdict(beliefs: Beliefs) -> str:
    """Whether the run converged, and if not, what stopped it.

    >>> import kikuchi as kk
    >>> verdict(kk.infer(kk.FactorGraph([2], [((0,), [1, 3])]), "enumerate"))
    'yes'
    """
    if beliefs.converged:
        return "yes"
    reasons = {
        "iterations": "no: the limit of iterations was reached",
        "seconds": "no: the time budget ended",
        "interrupted": "no: interrupted",
        "converged": "no",
    }
    return reasons.get(beliefs.stopped, f"no: {beliefs.stopped}")


def bounds(beliefs: Beliefs, decimals: int = 9) -> str:
    """The certified bounds on log Z: one side, an interval, or exact."""
    low, high = beliefs.log_z_lower, beliefs.log_z_upper
    if low is None and high is None:
        return "none certified"
    if low is not None and high is not None and high - low <= 1e-9 * max(1.0, abs(low)):
        return "exact"
    if low is None or high is None:
        side, value = ("≥", low) if high is None else ("≤", high)
        return f"{side} {log_z(value, decimals)}"
    return f"[{log_z(low, decimals)}, {log_z(high, decimals)}]"


def choice(beliefs: Beliefs) -> list[tuple[str, str]]:
    """What `auto` chose and why, and which methods proved its bounds; empty for other methods."""
    found = beliefs.diagnostics
    if "chosen" not in found:
        return []
    lines = [("chosen", f"{found['chosen']}: {found['why']}")]
    if "lower_method" in found:
        sides = [f"{s} by {found[f'{s}_method']}" for s in ("lower", "upper")]
        shown = [side for side in sides if not side.endswith("by ")]
        lines.append(("bounded", ", ".join(shown) or "no bound was found"))
    return lines


def state_names(graph: FactorGraph, variable: int) -> Sequence[str]:
    """Names of the states of a variable, or their numbers."""
    if graph.states is not None:
        return graph.states[variable]
    return [str(k) for k in range(int(graph.cardinalities[variable]))]


def variable_name(graph: FactorGraph, variable: int) -> str:
    """The name of a variable, or x and its number."""
    return graph.names[variable] if graph.names is not None else f"x{variable}"


def observations(graph: FactorGraph, evidence: Observed, most: int = 20) -> str:
    """Evidence as a text such as `rain=yes, x3=0, x4=0.3:0.7` (the last an observed marginal).

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
