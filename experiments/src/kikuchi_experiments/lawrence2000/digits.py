"""Lawrence's thesis, section 4.5.2: digits by mean field and by mixtures (LAW-E14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kikuchi.boltzmann.conversion import connections
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.rules.mixture import MixtureRule
from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError
from kikuchi.core.seeds import generator
from kikuchi.data.digits import digits
from kikuchi.data.images import Images
from kikuchi.plots import images, style
from kikuchi.training.rule import UNCONVERGED, State
from kikuchi_experiments.aggregate import (
    Claims,
    average,
    counted,
    grouped,
    holds,
    levels,
    results_of,
    significant,
    within,
)
from kikuchi_experiments.experiment import Case, CaseAxes, Experiment, Finished, Result, Row
from kikuchi_experiments.lawrence2000.learning import random_spins, step_in_spins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_CLAIMS = Claims.of(__name__, "LAW-E14")
_SIDE = 8
_TEMPERATURES = "100,50,25,10,5,2,1"
_PICTURES = 8  # of the joint that are kept for the figure


class DigitsByMixtures(Experiment):
    """Smoothness of learning with one mean field and with a mixture (LAW-E14, figures 4.7 to 4.9).

    With `data` the pictures of a file take the place of scikit-learn's digits.
    """

    id: ClassVar[str] = "LAW-E14"
    case_axes: ClassVar[CaseAxes] = {"seed": "seeds", "rate": "rates", "components": "components"}

    def run_case(self, case: Case) -> Result:
        """F after each step, and how far the joint has moved between steps."""
        data = binary_digits(case["data"] or "sklearn", case["each"], case.get("digest", ""))
        rng = generator(case["seed"])
        machine = neighbour_machine(case["hidden"], rng)
        rule = MixtureRule(
            components=case["components"], conditional="joint", temperatures=_TEMPERATURES
        )
        state = rule.begin(machine, data, rng)
        rows = np.arange(len(data))
        bounds: list[float] = []
        joints: list[tuple[Array, Array]] = []
        for _ in range(case["steps"]):
            slope = rule.gradient(machine, data, rows, state, rng)
            bounds.append(slope.objective or 0.0)
            joints.append(_joint(state))
            step_in_spins(machine, slope.ascent, case["rate"])
        return {
            "images": len(data),
            "parameters": _parameter_count(machine),
            "bound": bounds,
            "moves": [_moved(a, b) for a, b in pairwise(joints)],
            "pictures": [_heaviest(joint) for joint in joints[-_PICTURES:]],
            "unsettled": int(state.get(UNCONVERGED, np.zeros(1))[0]),
        }

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Roughness of F and moves of the joint, by number of components."""
        first, case = finished[0].result, finished[0].case
        whole = within(first["parameters"], 969, 0) if case["hidden"] == 10 else None
        rates = grouped(sorted(finished, key=lambda one: -one.case["rate"]), "rate")
        return [
            _CLAIMS.row("parameters", first["parameters"], whole),
            _CLAIMS.row("pictures", first["images"], each=case["each"]),
            *(row for item in rates.items() for row in _rate_rows(*item)),
        ]

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Curves of F, and what the joint looked like."""
        rates = levels(finished, "rate")[::-1]
        sizes = levels(finished, "components")
        columns = max(len(rates), len(sizes))
        with style.styled():
            figure, panels = style.new_figure(8.4, 6.0, columns, 2)
            for axes, rate in zip(panels, rates, strict=False):
                _draw_curves(axes, [one for one in finished if one.case["rate"] == rate], sizes)
                axes.set_title(f"Rate {rate:g}")
            for axes, m in zip(panels[columns:], sizes, strict=False):
                own = [o for o in finished if (o.case["rate"], o.case["components"]) ==
                       (rates[-1], m)]  # fmt: skip
                if own:
                    _draw_joint(axes, own[0].result["pictures"])
                axes.set_title(f"Joint, {counted(m, 'component')}")
            for axes in (*panels[len(rates) : columns], *panels[columns + len(sizes) :]):
                axes.set_axis_off()
            panels[0].set_ylabel("F (nats per picture)")
            panels[0].legend(loc="lower right")
        return figure


@lru_cache(maxsize=2)
def binary_digits(source: str, each: int, digest: str = "") -> Array:
    """Black and white 8x8 pictures, at most `each` of a class, in the order of the set."""
    pictures = digits(source)
    averaged = pictures.shape != (_SIDE, _SIDE)
    pictures = pictures.resized((_SIDE, _SIDE)).thresholded(0.3 if averaged else 0.5)
    return _first_of_each(pictures, each).pixels


def _first_of_each(pictures: Images, each: int) -> Images:
    if pictures.labels is None:
        return pictures.at(np.arange(min(len(pictures), 10 * each)))
    rows = [np.flatnonzero(pictures.labels == label)[:each] for label in np.unique(pictures.labels)]
    if not rows:
        raise DataError(f"{pictures.source}: there are no pictures")
    return pictures.at(np.sort(np.concatenate(rows)))


def neighbour_machine(hidden: int, rng: np.random.Generator) -> Machine:
    """8x8 visible units joined to their 8 neighbours; hidden units joined to all and each other.

    >>> machine = neighbour_machine(10, np.random.default_rng(0))
    >>> int(connections(machine).sum()) // 2 + 74
    969
    """
    row, column = np.divmod(np.arange(_SIDE**2), _SIDE)
    near = np.maximum(np.abs(row[:, None] - row), np.abs(column[:, None] - column)) == 1
    masks = {"visible_weights": near, "hidden_weights": np.ones((hidden, hidden), dtype=np.bool_)}
    return random_spins(_SIDE**2, hidden, masks, 0.1, rng)


def _parameter_count(machine: Machine) -> int:
    return int(connections(machine).sum()) // 2 + machine.n_visible + machine.n_hidden


def _joint(state: State) -> tuple[Array, Array]:
    """Weights of the components and means of their visible units."""
    return state["mixture_weights"].copy(), state["mixture_means"][:, : _SIDE**2].copy()


def _moved(before: tuple[Array, Array], after: tuple[Array, Array]) -> float:
    """Mean absolute change of a visible mean; the weight of a component is its mean weight."""
    weights = 0.5 * (before[0] + after[0])
    return float(weights @ np.abs(after[1] - before[1]).mean(axis=1) / weights.sum())


def _heaviest(joint: tuple[Array, Array], most: int = 5) -> list[list[float]]:
    order = np.sort(np.argsort(-joint[0], kind="stable")[:most])
    return [[round(float(p), 3) for p in joint[1][k]] for k in order]


def _roughness(result: Result) -> float:
    return float(np.abs(np.diff(result["bound"], 2)).mean())


def _mean_move(result: Result) -> float:
    moves = result["moves"]
    return float(np.mean(moves[len(moves) // 2 :]))


def _over_seeds(
    finished: Sequence[Finished], components: int, measure: Callable[[Result], float]
) -> float:
    return average([measure(result) for result in results_of(finished, components=components)])


def _rate_rows(rate: float, own: Sequence[Finished]) -> list[Row]:
    """Roughness of F and moves of the joint at one rate, and whether more components help."""
    sizes = levels(own, "components")
    rows = []
    for m in sizes:
        final = significant(_over_seeds(own, m, lambda result: result["bound"][-1]), 4)
        rows.append(_CLAIMS.row("final", final, rate=rate, size=counted(m, "component")))
    if len(sizes) > 1:
        low, high = sizes[0], sizes[-1]
        for key, measure in (("rough", _roughness), ("moves", _mean_move)):
            before, after = (_over_seeds(own, m, measure) for m in (low, high))
            ours = f"{before:.3g} to {after:.3g}"
            falls = holds(after < 0.9 * before, "less by a tenth")
            rows.append(_CLAIMS.row(key, ours, falls, rate=rate, low=low, high=high))
    return rows


def _draw_curves(axes: Axes, own: Sequence[Finished], sizes: Sequence[int]) -> None:
    named: set[int] = set()
    for one in own:
        m, bound = one.case["components"], one.result["bound"]
        colour = (style.VERMILLION, style.BLUE, *style.COLOURS[2:])[sizes.index(m) % 6]
        label = None if m in named else counted(m, "component")
        named.add(m)
        axes.plot(np.arange(1, len(bound) + 1), bound, color=colour, lw=1.2, label=label)
    axes.set_xlabel("learning steps")
    style.few_ticks(axes.xaxis, 6, whole=True)


def _draw_joint(axes: Axes, pictures: Sequence[Sequence[Sequence[float]]]) -> None:
    """One mean field: its last steps in a row. A mixture: a row of components for each step."""
    columns = len(pictures[0]) if len(pictures[0]) > 1 else max(len(pictures) // 2, 1)
    shown = pictures[-4:] if len(pictures[0]) > 1 else pictures
    stack = images.as_images([picture for step in shown for picture in step], (_SIDE, _SIDE))
    images.draw_tiles(axes, stack, columns=columns)
    axes.set_xlabel("visible means, last steps")
