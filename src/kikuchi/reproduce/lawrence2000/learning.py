"""Lawrence's thesis, section 4.5.2: learning Boltzmann machines (LAW-E12 to E14).

All machines here have spins of ±1, as in the thesis: gradients and steps are those of couplings and
fields of spins, which are not those of the weights and biases of bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kikuchi.boltzmann.conversion import connections, spin_ascent, to_spins
from kikuchi.boltzmann.exact import log_likelihood
from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.rules import parse_rule
from kikuchi.boltzmann.rules.mean_field import (
    JointMeanField,
    conditional_means,
    observed_log_score,
    read_temperatures,
)
from kikuchi.boltzmann.settling import settle_joint
from kikuchi.core.seeds import generator
from kikuchi.graphs.binary import spins_to_bits
from kikuchi.plots import style
from kikuchi.reproduce.experiment import Case, Experiment, Finished, Result, Row, Setting, Status
from kikuchi.reproduce.lawrence2000.machines import DOCUMENT
from kikuchi.training.model import Parameters

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

_MOST_POINTS = 300  # of a curve that is kept
_ROUNDING = 1e-9


# ---------------------------------------------------------------------- machines of spins


def random_spins(
    n_visible: int,
    n_hidden: int,
    masks: Mapping[str, NDArray[np.bool_]],
    scale: float,
    rng: np.random.Generator,
) -> Machine:
    """A machine whose couplings and fields of spins are normal with this deviation.

    >>> machine = random_spins(2, 0, {"visible_weights": np.ones((2, 2), bool)}, 0.1,
    ...                        np.random.default_rng(0))
    >>> spins = to_spins(machine)
    >>> bool(spins.couplings[0, 1] != 0), float(spins.couplings[0, 0])
    (True, 0.0)
    """
    machine = Machine.random(n_visible, n_hidden, masks=masks, scale=0.0, random_state=rng)
    drawn = np.triu(rng.normal(0.0, scale, size=(n_visible + n_hidden,) * 2), 1)
    couplings = np.where(connections(machine), drawn + drawn.T, 0.0)
    _add_spins(machine, couplings, rng.normal(0.0, scale, size=n_visible + n_hidden))
    return machine


def step_in_spins(machine: Machine, ascent: Parameters, rate: float) -> None:
    """Move the couplings and fields of spins along a gradient of bits (4.6, LAW-L6)."""
    couplings, fields = spin_ascent(machine, ascent)
    _add_spins(machine, rate * couplings, rate * fields)


def _add_spins(machine: Machine, couplings: Array, fields: Array) -> None:
    """Add to couplings and fields; weights and biases of bits are linear in them."""
    weights, biases, _ = spins_to_bits(couplings, fields)
    d = machine.n_visible
    moves = {
        "weights": weights[:d, d:],
        "visible_weights": weights[:d, :d],
        "hidden_weights": weights[d:, d:],
        "visible_bias": biases[:d],
        "hidden_bias": biases[d:],
    }
    for name, array in machine.parameters.items():
        array += moves[name]


# ---------------------------------------------------------------------- LAW-E12

_RATES = {"zeros": 0.001, "conditional": 0.01}
_TEMPERATURES = "60,33.4,18.6,10.4,5.78,3.22,1.79,1"


class VectorAssociation(Experiment):
    """Mean field learning with the joint started at zero or at the conditional (LAW-E12)."""

    id: ClassVar[str] = "LAW-E12"
    document: ClassVar[str] = DOCUMENT
    title: ClassVar[str] = "Association of vectors by layered Boltzmann machines"
    claim: ClassVar[str] = (
        "Ten random pairs of vectors of 6 bits, layers of 6 units. With both phases started at "
        "zero (Galland) learning fails with three hidden layers: F and the score of the outputs "
        "part. With the joint started from the conditional F is never above zero, the two curves "
        "lie on each other, and learning converges (98 iterations with three hidden layers)."
    )
    caption: ClassVar[str] = (
        "F = L+ - L- (full) and log-score of the outputs (dashed), both summed over the ten "
        "patterns, one panel for each number of hidden layers; first seed. Vermillion: joint "
        "started at zero with annealing; blue: joint started from the conditional. A circle marks "
        "where all outputs are within 0.2 of their targets."
    )
    status: ClassVar[Status] = "agrees in part"
    quick: ClassVar[Setting] = Setting(
        2, {"layers": [1, 3], "patterns": 10, "width": 6, "most": {"zeros": 400,
            "conditional": 1000}}, "8 s"
    )  # fmt: skip
    full: ClassVar[Setting] = Setting(
        10, {"layers": [1, 2, 3], "patterns": 10, "width": 6, "most": {"zeros": 3000,
             "conditional": 3000}}, "4 min"
    )  # fmt: skip

    def cases(self, parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Case]:
        """One case for each number of layers, rule and seed."""
        return [
            {
                "layers": layers,
                "start": start,
                "seed": seed,
                "patterns": parameters["patterns"],
                "width": parameters["width"],
                "most": parameters["most"][start],
                "rate": _RATES[start],
            }
            for layers in parameters["layers"]
            for start in ("zeros", "conditional")
            for seed in seeds
        ]

    def run_case(self, case: Case) -> Result:
        """Learn one set of pairs until every output is near its target."""
        rng = generator(case["seed"])
        data = rng.integers(0, 2, size=(case["patterns"], 2 * case["width"])).astype(np.float64)
        machine = layered_machine(case["width"], case["layers"], rng)
        rule = JointMeanField(inputs=f"0-{case['width'] - 1}")
        if case["start"] == "zeros":
            rule = replace(rule, init="zeros", damping=0.5, temperatures=_TEMPERATURES)
        return _associate(machine, rule, data, case, rng)

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """Convergence, sign of F and distance of the two curves, by rule and layers."""
        rows: list[Row] = []
        for layers in sorted({one.case["layers"] for one in finished}):
            for start in ("conditional", "zeros"):
                own = [
                    one
                    for one in finished
                    if (one.case["layers"], one.case["start"]) == (layers, start)
                ]
                if start == "conditional":
                    needed = _work(own)
                if own:
                    rows += _association_rows(layers, start, own, needed)
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """F and the outputs' score against iterations, as figures 4.3 and 4.4."""
        sizes = sorted({one.case["layers"] for one in finished})
        first = min(one.case["seed"] for one in finished)
        with style.styled():
            figure, panels = style.new_figure(3.6 * len(sizes) + 0.4, 3.2, len(sizes))
            for axes, layers in zip(panels, sizes, strict=True):
                for one in finished:
                    if one.case["layers"] == layers and one.case["seed"] == first:
                        _draw_association(axes, one)
                axes.set_title(f"{layers} hidden layer" + ("s" if layers > 1 else ""))
                axes.set_xlabel("iterations")
                axes.set_xscale("log")
            panels[0].set_ylabel("nats, all patterns")
            handles, labels = panels[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=2)
        return figure


def layered_machine(width: int, layers: int, rng: np.random.Generator) -> Machine:
    """Inputs, hidden layers and outputs of `width` units each, joined to the next layer only.

    >>> machine = layered_machine(2, 2, np.random.default_rng(0))
    >>> machine.n_visible, machine.n_hidden, int(connections(machine).sum()) // 2
    (4, 4, 12)
    """
    n = width * layers
    weights = np.zeros((2 * width, n), dtype=np.bool_)
    weights[:width, :width] = True
    weights[width:, n - width :] = True
    place = np.arange(n) // width
    masks = {"weights": weights, "hidden_weights": np.abs(place[:, None] - place[None]) == 1}
    if layers == 1:
        del masks["hidden_weights"]
    return random_spins(2 * width, n, masks, 0.1, rng)


def _associate(
    machine: Machine, rule: JointMeanField, data: Array, case: Case, rng: np.random.Generator
) -> Result:
    rows = np.arange(len(data))
    inputs = np.arange(machine.n_visible) < case["width"]
    state = rule.begin(machine, data, rng)
    bounds, scores = [], []
    converged = False
    for _ in range(case["most"]):
        slope = rule.gradient(machine, data, rows, state, rng)
        means = free_outputs(machine, rule, data, inputs)
        bounds.append(len(data) * (slope.objective or 0.0))
        scores.append(float(observed_log_score(data, means, ~inputs).sum()))
        converged = bool(np.abs(2.0 * (means - data)[:, ~inputs]).max() <= 0.2)
        if converged:
            break
        step_in_spins(machine, slope.ascent, case["rate"] * len(data))
    kept = np.unique(np.geomspace(1, len(bounds), _MOST_POINTS).astype(np.int64)) - 1
    return {
        "converged": converged,
        "iterations": len(bounds),
        "largest_bound": max(bounds),
        "largest_gap": float(np.max(np.abs(np.array(bounds) - np.array(scores)))),
        "final_bound": bounds[-1],
        "final_score": scores[-1],
        "at": (kept + 1).tolist(),
        "bound": [round(bounds[k], 5) for k in kept],
        "score": [round(scores[k], 5) for k in kept],
    }


def free_outputs(
    machine: Machine, rule: JointMeanField, data: Array, inputs: NDArray[np.bool_]
) -> Array:
    """Visible means in the free phase of a rule, the inputs held."""
    temperatures: tuple[float, ...] = ()
    if rule.init == "conditional":
        hidden, _ = conditional_means(machine, data, tol=rule.tol, max_sweeps=rule.max_sweeps)
        start = data
    else:
        hidden = np.full((len(data), machine.n_hidden), 0.5)
        start = np.where(inputs, data, 0.5)
        temperatures = read_temperatures(rule.temperatures)
    return settle_joint(
        machine,
        start,
        hidden,
        inputs=inputs,
        temperatures=temperatures,
        tol=rule.tol,
        max_sweeps=rule.max_sweeps,
        damping=rule.damping,
    ).visible


_REFERENCE = {(1, "conditional"): "165 and 177", (3, "conditional"): "212 and 221"}


def _work(finished: Sequence[Finished]) -> float:
    """The most iterations times rate that a training needed; infinite if none converged."""
    done = [
        one.result["iterations"] * one.case["rate"] for one in finished if one.result["converged"]
    ]
    return max(done, default=math.inf)


def _association_rows(layers: int, start: str, own: Sequence[Finished], needed: float) -> list[Row]:
    """`needed` is the work that the other rule took: with less than that, not to converge is no
    failure.
    """
    word = "layer" if layers == 1 else "layers"
    name = f"{layers} hidden {word}, joint from {'the conditional' if start != 'zeros' else 'zero'}"
    results = [one.result for one in own]
    solved = [result["iterations"] for result in results if result["converged"]]
    ours = f"{len(solved)} of {len(results)}"
    if solved:
        ours += f", {min(solved)} to {max(solved)} iterations"
    largest = float(f"{max(result['largest_bound'] for result in results):.4g}")
    parted = np.median([abs(r["final_bound"] - r["final_score"]) for r in results])
    gap = float(f"{parted:.3g}")
    most = own[0].case["most"]
    if start == "conditional":
        return [
            Row(f"{name}: converged", ours, "98 iterations" if layers == 3 else "yes",
                _REFERENCE.get((layers, start)), f"at most {most} iterations; reference: two "
                "other seeds", len(solved) == len(results)),
            Row(f"{name}: largest F", largest, "<= 0", "<= 0", "all seeds and iterations",
                largest <= _ROUNDING),
            Row(f"{name}: final |F - F_obs|", gap, "curves overlay", "0.005 to 0.03",
                "median over the seeds, summed over patterns", gap < 0.1),
        ]  # fmt: skip
    failing = len(solved) <= 0.5 * len(results)
    fair = most * own[0].case["rate"] >= needed
    note = f"at most {most} iterations" + ("" if fair else ", too few at this rate to tell")
    return [
        Row(f"{name}: converged", ours, "no" if layers == 3 else None, "0 of 2 in 3000"
            if layers == 1 else None, note, failing if layers == 3 and fair else None),
        Row(f"{name}: largest F", largest, None, "0.9 and 8.1" if layers == 1 else None,
            "an estimated probability above one" if largest > 0 else "", None),
        Row(f"{name}: final |F - F_obs|", gap, "curves part" if layers == 3 else None,
            "9.4 and 14.9" if layers == 1 else None, "median over the seeds, summed over patterns",
            gap > 0.1 if layers == 3 else None),
    ]  # fmt: skip


def _draw_association(axes: Axes, one: Finished) -> None:
    zero = one.case["start"] == "zeros"
    colour = style.VERMILLION if zero else style.BLUE
    name = "from zero" if zero else "from the conditional"
    at, bound, score = (one.result[key] for key in ("at", "bound", "score"))
    axes.plot(at, bound, color=colour, label=f"F, joint {name}")
    axes.plot(at, score, "--", color=colour, label=f"score of outputs, joint {name}")
    if one.result["converged"]:
        axes.plot([at[-1]], [score[-1]], "o", mfc="none", mec=colour)


# ---------------------------------------------------------------------- LAW-E13

_STEPS = (10, 50, 100, 300)
_TOY_CURVES = {
    "exact": (0.0975, 0.0203, 0.0101, 0.0034),
    "mixture": (0.0858, 0.0197, 0.0100, 0.0033),
    "mean field": (0.58, 0.72, 0.033, 0.20),
}
_TOY_RULES = {
    "exact": "exact",
    "mixture": "mixture:components=2,tol=1e-4,max_sweeps=20",
    "mean field": "mf-joint:init=previous,tol=1e-4,max_sweeps=20",
}
_TOY_LINES = {"exact": "-", "mixture": "--", "mean field": "-"}
_TOY_COLOURS = {"exact": style.INK, "mixture": style.BLUE, "mean field": style.VERMILLION}


class TwoModes(Experiment):
    """KL divergence while two units learn two modes (LAW-E13, figures 4.5 and 4.6)."""

    id: ClassVar[str] = "LAW-E13"
    document: ClassVar[str] = DOCUMENT
    title: ClassVar[str] = "Two units, two modes: mean field hops"
    claim: ClassVar[str] = (
        "Two visible units of ±1 learn (1, 1), (1, 1), (-1, -1) at rate 0.25. With one mean field "
        "for the joint the divergence from the data is wildly unstable: means and biases flip "
        "between the modes. With a mixture of two it cannot be told from the exact gradient."
    )
    caption: ClassVar[str] = (
        "Left: KL(data, model) after each step, thin lines the seeds, thick the first. Right: the "
        "fields of the first unit; dotted: its value for the data, (ln 2) / 4."
    )
    status: ClassVar[Status] = "agrees"
    quick: ClassVar[Setting] = Setting(2, {"steps": 300, "rate": 0.25}, "3 s")
    full: ClassVar[Setting] = Setting(20, {"steps": 300, "rate": 0.25}, "30 s")

    def cases(self, parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[Case]:
        """One case for each rule and seed."""
        return [{"rule": rule, "seed": seed, **parameters} for rule in _TOY_RULES for seed in seeds]

    def run_case(self, case: Case) -> Result:
        """KL divergence and field after each step."""
        rng = generator(case["seed"])
        data = np.array([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
        both = np.ones((2, 2), dtype=np.bool_)
        machine = random_spins(2, 0, {"visible_weights": both}, 0.1, rng)
        rule = parse_rule(_TOY_RULES[case["rule"]])
        state = rule.begin(machine, data, rng)
        negative_entropy = (2 * np.log(2 / 3) + np.log(1 / 3)) / 3
        divergences, fields = [], []
        for _ in range(case["steps"]):
            slope = rule.gradient(machine, data, np.arange(3), state, rng)
            step_in_spins(machine, slope.ascent, case["rate"])
            likelihood = float(log_likelihood(machine, data).mean())
            divergences.append(float(negative_entropy - likelihood))
            fields.append(float(to_spins(machine).fields[0]))
        return {"divergence": divergences, "field": fields}

    def rows(self, finished: Sequence[Finished]) -> list[Row]:
        """The curves at a few steps, and the two statements about them."""
        curves = {
            rule: np.array([o.result["divergence"] for o in finished if o.case["rule"] == rule])
            for rule in _TOY_RULES
        }
        rows = [
            Row(
                f"KL after {step} steps, {rule}",
                float(f"{np.median(found[:, step - 1]):.4g}"),
                None,
                _TOY_CURVES[rule][k],
                f"median of {len(found)} seeds, {found[:, step - 1].min():.3g} to "
                f"{found[:, step - 1].max():.3g}; reference: one other seed",
            )
            for rule, found in curves.items()
            for k, step in enumerate(_STEPS)
            if len(found) and found.shape[1] >= step
        ]
        if len(curves["exact"]) and len(curves["exact"]) == len(curves["mixture"]):
            rows.append(_tracking_row(curves["mixture"] / curves["exact"]))
        if len(curves["mean field"]):
            rows += _hopping_rows(
                curves["mean field"],
                np.array([o.result["field"] for o in finished if o.case["rule"] == "mean field"]),
            )
        return rows

    def figure(self, finished: Sequence[Finished]) -> Figure:
        """Divergences, and fields."""
        seen: set[str] = set()
        with style.styled():
            figure, (left, right) = style.new_figure(8.2, 3.3, 2)
            for one in finished:
                rule = one.case["rule"]
                first = rule not in seen
                seen.add(rule)
                look: dict[str, Any] = {
                    "color": _TOY_COLOURS[rule],
                    "ls": _TOY_LINES[rule],
                    "lw": 1.5 if first else 0.5,
                    "alpha": 1.0 if first else 0.35,
                }
                at = np.arange(1, len(one.result["field"]) + 1)
                left.plot(at, one.result["divergence"], label=rule if first else None, **look)
                right.plot(at, one.result["field"], **look)
            right.axhline(0.25 * np.log(2.0), color=style.SOFT, ls=":")
            left.set_yscale("log")
            left.set_ylabel("KL (nats)")
            right.set_ylabel("field of the first unit")
            left.set_title("Divergence from the data")
            right.set_title("Field")
            for axes in (left, right):
                axes.set_xlabel("learning steps")
            handles, labels = left.get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=3)
        return figure


def _tracking_row(ratios: Array) -> Row:
    late = ratios[:, 49:]
    worst = float(np.abs(late - 1.0).max())
    return Row(
        "mixture of 2 against the exact gradient, from step 50: largest difference of KL",
        f"{worst:.1%}",
        "indistinguishable",
        "3 %",
        "all seeds",
        worst < 0.1,
    )


def _hopping_rows(curves: Array, fields: Array) -> list[Row]:
    late = curves[:, 50:]
    flips = np.count_nonzero(np.diff(np.sign(fields), axis=1), axis=1)
    return [
        Row(
            "mean field: largest KL after step 50",
            float(f"{late.max(axis=1).min():.3g}"),
            "wildly unstable",
            5.9,
            f"the calmest seed; the wildest reaches {late.max():.3g}",
            bool((late.max(axis=1) > 1.0).all()),
        ),
        Row(
            "mean field: changes of sign of the field",
            f"{flips.min()} to {flips.max()}",
            "oscillates",
            None,
            f"fields from {fields.min():.3g} to {fields.max():.3g}; reference: ±2.46",
            bool((flips >= 2).all()),
        ),
    ]
