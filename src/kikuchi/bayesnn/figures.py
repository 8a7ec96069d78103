"""The figures of the report page of a Bayesian network."""

from __future__ import annotations

from typing import Any

import numpy as np

from kikuchi.core.page import Item, Picture, Sections, Tile
from kikuchi.plots import networks as plots
from kikuchi.plots.convergence import convergence

_MOST_ROWS = 400  # drawn


def score_tiles(evaluation: Any) -> list[Tile]:
    """Errors and calibration."""
    scores = evaluation.scores
    if evaluation.regression:
        return [
            Tile("RMSE", f"{scores['rmse']:.4g}"),
            Tile("R²", f"{scores['r_squared']:.3f}"),
            Tile("in 95 % intervals", f"{scores['coverage_95']:.0%}"),
        ]
    return [
        Tile("accuracy", f"{scores['accuracy']:.1%}"),
        Tile("log-probability per row", f"{scores['log_probability']:.3f}"),
    ]


def network_figures(evaluation: Any) -> Sections:
    """Predictions with bands, calibration, relevance, and the bound."""
    e = evaluation.estimator
    return {
        "Predictions": _predictions(evaluation),
        "Relevance": [_relevance(evaluation), evaluation.table()],
        "Structure": _structure(evaluation),
        "Bound": [
            Picture(
                convergence({e.posterior: e.trace_}),
                "The bound step by step: restarts with independent weights one after the other, "
                "then the chosen posterior from the best of them. It falls only where the next "
                "restart begins.",
            )
        ],
    }


def _predictions(evaluation: Any) -> list[Item]:
    from kikuchi.bayesnn import BayesianMLPRegressor

    x, y = evaluation.judged_rows
    e, shown = evaluation.estimator, evaluation.judged
    if not isinstance(e, BayesianMLPRegressor):
        expected, found, count = evaluation.reliability()
        figure = plots.calibration(
            expected, found, int(np.median(count)), xlabel="predicted probability",
            ylabel="share that came true",
        )  # fmt: skip
        return [Picture(figure, f"Probabilities of all classes in ten bins, {shown}.")]
    some = np.unique(np.linspace(0, len(y) - 1, min(len(y), _MOST_ROWS)).astype(np.intp))
    low, high = e.predict_interval(x[some])
    target = e.columns_[-1] if e.columns_ else "target"
    levels = list(evaluation.coverage)
    return [
        Picture(
            plots.predictions(y[some], np.asarray(e.predict(x[some])), low, high, target),
            f"Predictions with 95 % intervals that include the noise, {shown}; vermillion: targets "
            "outside their interval.",
        ),
        Picture(
            plots.calibration(
                levels, list(evaluation.coverage.values()), len(y), xlabel="level of the intervals",
                ylabel="share of targets inside",
            ),
            f"Share of targets within central intervals, {shown}. Grey: 95 % of what chance gives "
            f"with {len(y)} rows.",
        ),
    ]  # fmt: skip


def _relevance(evaluation: Any) -> Picture:
    e = evaluation.estimator
    inputs = dict(zip(evaluation.names, e.relevance_.tolist(), strict=True))
    figure = plots.relevances(inputs, e.inputs_kept_, e.hidden_relevance_, e.hidden_kept_)
    return Picture(
        figure,
        "Left: slope of the prediction by each input. Right: of each hidden unit, how many of its "
        "weights the data determine (0: the unit is as its prior). Grey: removed.",
    )


def _structure(evaluation: Any) -> list[Item]:
    trials = evaluation.estimator.pruning_
    if not trials:
        return []
    caption = (
        "The bound after each trial; a removal stays if the bound has risen. Trials far below are "
        "cut off."
    )
    return [Picture(plots.pruning_path(trials), caption)]
