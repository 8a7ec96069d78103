"""Figures of the toys (HOJ-E0, LAW-E1, LAW-E2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_MIDDLE = ("KL(q||p), middle", style.BLUE, "-")
_WELL = ("KL(q||p), one well", style.VERMILLION, "-")
_COVER = ("KL(p||q)", style.GREEN, "--")
_SAMPLER = "hybrid Monte Carlo"


def double_well_panels(
    results: Mapping[float, Any], densities: Mapping[float, Any], kappa: float
) -> Figure:
    """Mean, precision and divergence by alpha above; densities at some alphas below.

    >>> one = {"symmetric": [0, 2, 1], "broken": None, "covering": [0, 1], "sampled": [0, 1, 1]}
    >>> len(double_well_panels({1.0: one}, {}, 3.0).axes)
    3
    """
    alphas = np.array(sorted(results))
    rows = 2 if densities else 1
    with style.styled():
        figure, axes = style.new_figure(9.6, 0.8 + 2.7 * rows, 3, rows)
        _branch(axes[0], results, alphas, 0, "size of the mean")
        _branch(axes[1], results, alphas, 1, "precision")
        axes[1].set_yscale("log")
        _divergences(axes[2], results, alphas)
        for panel in axes[:3]:
            panel.axvline((3.0 / kappa) ** 0.25, color=style.SOFT, lw=0.9, zorder=1)
            panel.set_xlabel("alpha (wells at ±alpha)")
        for panel, (alpha, curves) in zip(axes[3:], densities.items(), strict=False):
            _densities(panel, alpha, curves)
        for panel in axes[3 + len(densities) :]:
            figure.delaxes(panel)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=5)
    return figure


def _branch(axes: Axes, results: Mapping[float, Any], alphas: Array, k: int, title: str) -> None:
    middle = [results[a]["symmetric"][k] for a in alphas]
    axes.plot(alphas, middle, _MIDDLE[2], color=_MIDDLE[1], label=_MIDDLE[0])
    broken = [a for a in alphas if results[a]["broken"] is not None]
    axes.plot(
        broken, [results[a]["broken"][k] for a in broken], _WELL[2], color=_WELL[1], label=_WELL[0]
    )
    covering = [results[a]["covering"][k] for a in alphas]
    axes.plot(alphas, covering, _COVER[2], color=_COVER[1], label=_COVER[0])
    sampled = [results[a]["sampled"][k] for a in alphas]
    axes.plot(alphas, sampled, "o", color=style.INK, ms=4, mfc="white", label=_SAMPLER)
    axes.set_title(title)


def _divergences(axes: Axes, results: Mapping[float, Any], alphas: Array) -> None:
    middle = np.array([results[a]["symmetric"][2] for a in alphas])
    axes.plot(alphas, middle, color=_MIDDLE[1])
    broken = [a for a in alphas if results[a]["broken"] is not None]
    axes.plot(broken, [results[a]["broken"][2] for a in broken], color=_WELL[1])
    axes.axhline(np.log(2.0), color=style.SOFT, lw=0.9, ls=":")
    axes.text(alphas[0], np.log(2.0), "log 2", va="bottom", fontsize=8, color=style.SOFT)
    axes.set(ylim=(0.0, 1.4), title="KL(q||p)")


def _densities(axes: Axes, alpha: float, curves: Mapping[str, Any]) -> None:
    x = curves["x"]
    axes.fill_between(x, curves["p"], color="#c9ced4", lw=0)
    for name, (_, colour, line) in (
        ("symmetric", _MIDDLE),
        ("broken", _WELL),
        ("covering", _COVER),
    ):
        if name in curves:
            axes.plot(x, curves[name], line, color=colour, lw=1.4)
    axes.set(title=f"densities at alpha = {alpha:g} (p in grey)", yticks=[], xlabel="x")


def gaussian_panels(
    covariance: Array, fits: Mapping[str, float], variances: Array, curves: Mapping[str, Any]
) -> Figure:
    """Contours of one standard deviation, and divergences by the variance of the round Gaussian.

    >>> fits = {"covers": 1.0, "inside": 1.0}
    >>> len(gaussian_panels(np.eye(2), fits, np.ones(2), {"KL(p||q)": [0, 1]}).axes)
    2
    """
    from matplotlib.patches import Circle

    colours = {"KL(p||q)": style.GREEN, "KL(q||p)": style.VERMILLION}
    with style.styled():
        figure, axes = style.new_figure(8.4, 3.9, 2)
        angle = np.linspace(0.0, 2 * np.pi, 200)
        values, vectors = np.linalg.eigh(covariance)
        ring = vectors @ (np.sqrt(values)[:, None] * np.array([np.cos(angle), np.sin(angle)]))
        axes[0].fill(ring[0], ring[1], color="#c9ced4")
        for key, name, line in (("covers", "KL(p||q)", "--"), ("inside", "KL(q||p)", "-")):
            radius = float(np.sqrt(fits[key]))
            axes[0].add_patch(
                Circle((0, 0), radius, fill=False, color=colours[name], lw=1.8, ls=line)
            )
        axes[0].set(
            xlim=(-1.1, 1.1),
            ylim=(-1.1, 1.1),
            aspect="equal",
            title="p in grey, best round q in each direction",
        )
        for name, line in (("KL(p||q)", "--"), ("KL(q||p)", "-")):
            if name in curves:
                axes[1].plot(variances, curves[name], line, color=colours[name], label=name)
        for key, name in (("covers", "KL(p||q)"), ("inside", "KL(q||p)")):
            axes[1].axvline(fits[key], color=colours[name], lw=0.9, ls=":")
        axes[1].set(
            xscale="log", yscale="log", xlabel="variance of the round Gaussian", title="divergence"
        )
        axes[1].legend(loc="upper center")
    return figure


def juror_bars(result: Mapping[str, float]) -> Figure:
    """Probabilities of guilt and of a visit as evidence comes in.

    >>> stages = ("prior", "found", "known")
    >>> figure = juror_bars({f"{v} {s}": 0.5 for v in ("guilty", "visited") for s in stages})
    >>> len(figure.axes)
    1
    """
    stages: Sequence[tuple[str, str]] = (
        ("prior", "beforehand"),
        ("found", "fingerprints\nfound"),
        ("known", "… and a visit\nknown"),
    )
    with style.styled():
        figure, (axes,) = style.new_figure(6.6, 3.4)
        for shift, (variable, colour) in zip(
            (-0.19, 0.19), (("guilty", style.VERMILLION), ("visited", style.BLUE)), strict=True
        ):
            heights = [result[f"{variable} {stage}"] for stage, _ in stages]
            places = np.arange(len(stages)) + shift
            axes.bar(places, heights, width=0.34, color=colour, label=variable)
            for place, height in zip(places, heights, strict=True):
                axes.text(place, height + 0.015, f"{height:.3g}", ha="center", fontsize=8.5)
        axes.set_xticks(range(len(stages)), [label for _, label in stages])
        axes.set(
            ylim=(0.0, 1.12), ylabel="probability", title="The visit takes the blame from guilt"
        )
        axes.legend(loc="upper left")
    return figure
