"""The figures of the report page of a model of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from kikuchi.core.page import Facts, Item, Picture, Sections
from kikuchi.plots import temporal as plots
from kikuchi.plots.convergence import convergence

_BACK = 100  # rows of data before a forecast


def sequence_figures(evaluation: Any) -> Sections:
    """States with bands, forecasts, gains and transitions, and the course of the fit."""
    trace = evaluation.estimator.trace_
    heading = "Forecast" if evaluation.task == "forecast" else "States"
    fit: list[Item] = []
    if len(trace) > 1:
        fit = [Picture(convergence({"fit": trace}), "Log-likelihood or bound.")]
    return {
        heading: [*_answer(evaluation), evaluation.table()],
        "Next steps": _forecast(evaluation),
        "Parameters": _parameters(evaluation),
        "Fit": fit,
    }


def _parameters(evaluation: Any) -> list[Item]:
    kind, e = evaluation.kind, evaluation.estimator
    if kind == "ssm":
        m = e.model_
        if m.varying:
            return []
        states = [f"state {k}" for k in range(m.n_states)]
        outputs = evaluation.names
        tables, names = [m.transition, m.output], ["transition", "outputs by states"]
        rows, columns = [states, outputs], [states, states]
        if m.radius < 1.5:
            tables.append(e.gain())
            names.append("steady gain")
            rows.append(states)
            columns.append(outputs)
        return [Picture(plots.matrices(tables, names, signed=True, rows=rows, columns=columns),
                        "Transition of the states, what each state adds to each output, and the "
                        "gain by which the errors of the outputs correct the states.")]  # fmt: skip
    if kind == "hmm":
        labels = [[f"state {k}" for k in range(e.model_.n_states)]]
        figure = plots.matrices([e.model_.transition], ["transition"], rows=labels, columns=labels)
        return [Picture(figure, "Probability of each state (column) after each state (row)."),
                *_emission(e.model_.emission)]  # fmt: skip
    if kind == "factorial":
        names = [f"chain {c + 1}, lag {lag}" for c, lag in enumerate(e.model_.lags)]
        return [Picture(plots.matrices(e.model_.transitions, names),
                        "Probability of each state (column) after each state (row), of each "
                        "chain.")]  # fmt: skip
    if kind == "ica":
        sources = [f"source {k + 1}" for k in range(e.model_.mixing.shape[1])]
        return [Picture(plots.matrices([e.model_.mixing], ["mixing"], signed=True,
                                       rows=[evaluation.names], columns=[sources]),
                        "What each source (column) adds to each output (row).")]  # fmt: skip
    if kind == "blood":
        return []
    pairs = zip(e.mean_, np.sqrt(np.diagonal(e.covariance_)), strict=True)
    names = [*evaluation.names, "intercept"][: len(e.mean_)]
    return [Facts([(n, f"{m:.3f} ± {s:.3f}") for n, (m, s) in zip(names, pairs, strict=True)])]


def _emission(emission: Any) -> list[Item]:
    """Probabilities of the categories that the states emit; moments are in the table of states."""
    if emission.kind != "categorical":
        return []
    figure = plots.matrices([emission.probabilities], ["outputs"])
    return [Picture(figure, "Probability of each category (column) in each state (row).")]


def _forecast(evaluation: Any) -> list[Item]:
    """The steps after the last row, where a fit was asked for them."""
    found = evaluation.forecast
    if found is None:
        return []
    back = evaluation.tables[0][-_BACK:]
    figure = plots.bands(
        found.mean, found.deviation, data=back, names=evaluation.names, start=len(back),
        first=len(evaluation.tables[0]) - len(back) + 1,
        times=_ahead(evaluation, len(back), len(found.mean)),
    )  # fmt: skip
    caption = f"The last {len(back)} rows and the forecast with two standard deviations."
    return [Picture(figure, caption), *(table for _, table in evaluation.parts())]


def _ahead(evaluation: Any, back: int, steps: int) -> Any:
    """Dates of the last rows and of the steps after them, if the rows have dates."""
    times = evaluation.times(steps)
    return None if times is None else times[-(back + steps) :]


def _answer(evaluation: Any) -> list[Item]:
    kind, answer, data = evaluation.kind, evaluation.result, evaluation.tables[0]
    times = evaluation.times()
    if answer is None:
        return []
    if evaluation.task == "forecast":
        back = data[-_BACK:]
        figure = plots.bands(answer.mean, answer.deviation, data=back, names=evaluation.names,
                             start=len(back), first=len(data) - len(back) + 1,
                             times=_ahead(evaluation, len(back), len(answer.mean)))  # fmt: skip
        return [Picture(figure, f"The last {len(back)} rows of the data and the forecast with "
                                "two standard deviations.")]  # fmt: skip
    if kind in ("probit", "blood"):
        p = np.asarray(answer if kind == "probit" else answer.probability)[:, None]
        figure = plots.bands(p, np.zeros(p.shape), names=["probability"], first=1)
        caption = "Probability that the state is on." if kind == "blood" else (
            "Probability of the second class: before each label was seen, or by the final weights "
            "of a model that was fitted before."
        )  # fmt: skip
        return [Picture(figure, caption)]
    if kind in ("hmm", "factorial"):
        parts: Any = answer.probabilities
        parts = [parts] if kind == "hmm" else parts
        names = ["probability"] if kind == "hmm" else []
        caption = "Probabilities of the states at each step."
        stacked = plots.probabilities(parts, names, times, first=1)
        shown: list[Item] = [Picture(stacked, caption)]
        if kind == "hmm" and len(data) == len(parts[0]):
            best = parts[0].argmax(axis=1)
            figure = plots.coloured_series(data, best, evaluation.names, times, first=1)
            shown.insert(0, Picture(figure, "The series, coloured by the most probable state."))
        return shown
    items: list[Item] = [
        Picture(plots.bands(answer.mean, answer.deviation,
                            names=[f"state {k}" for k in range(answer.mean.shape[1])],
                            times=times, first=1),
                "States with two standard deviations.")
    ]  # fmt: skip
    if kind == "ssm" and not evaluation.estimator.model_.varying:
        m = evaluation.estimator.model_
        if not m.n_inputs:
            spread = np.einsum("mi,tij,mj->tm", m.output, answer.covariance, m.output)
            mean = answer.mean @ m.output.T + m.output_offset
            finite = np.sqrt(np.where(np.isfinite(spread), np.maximum(spread, 0), np.inf))
            figure = plots.bands(
                mean, finite, data=data, names=evaluation.names, times=times, first=1
            )
            items.append(Picture(figure, "What the states say about the outputs, and the data."))
    return items
