"""Pages of answers to questions about a model: `query`, `most-probable`, `predict`, `bounds`,
`certify` and `evaluate`.

Each shows what the screen shows (facts, table, remarks, warnings), with pictures above it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kikuchi.core import text
from kikuchi.core.page import Facts, Item, Picture, Tile
from kikuchi.plots.beliefs import marginal_bars
from kikuchi.reports import html
from kikuchi.reports.page import Report, versions

if TYPE_CHECKING:
    from kikuchi.brackets.log_z_bounds import LogZBounds
    from kikuchi.core.answer import Answer
    from kikuchi.queries.answers import Distributions, JointDistribution
    from kikuchi.queries.case_files import Prediction

_MOST_BARS = 20  # targets drawn


def answer_page(
    answer: Answer,
    *,
    title: str,
    subtitle: str,
    python: str,
    tiles: Sequence[Tile] = (),
    pictures: Sequence[Item] = (),
    sections: Mapping[str, Sequence[Item]] | None = None,
) -> Report:
    """The page of anything that a command shows.

    Parameters
    ----------
    answer : Answer
        Its warnings stand first, its table after the pictures, its facts at the end.
    title, subtitle, python, tiles
        As of `Report`.
    pictures : Sequence[Item]
        Shown right below the tiles.
    sections : Mapping[str, Sequence[Item]], optional
        Further sections by title, before the facts.

    >>> from kikuchi.core.answer import Answer
    >>> class Coin(Answer):
    ...     def to_dict(self):
    ...         return {}
    ...     def facts(self):
    ...         return [("coin", "fair")]
    >>> page = answer_page(Coin(), title="A coin", subtitle="Tossed", python="pass")
    >>> "<td>fair</td>" in page.html()
    True
    """
    remarks: list[Item] = [
        f'<p class="note">{html.escape(line)}</p>' for line in answer.remarks() if line
    ]
    for lines, table in answer.parts():
        remarks += [*(f"<p>{html.escape(line)}</p>" for line in lines if line), table]
    return Report(
        title=title,
        subtitle=subtitle,
        warnings=list(answer.warnings),
        tiles=tiles,
        answer=[*pictures, answer.table(), *remarks],
        sections={
            **(sections or {}),
            "Summary": [Facts([(k[:1].upper() + k[1:], v) for k, v in answer.facts()])],
            "Versions": [Facts(versions())],
        },
        python=python,
    )


# ---------------------------------------------------------------------- questions


def query_page(
    answer: Answer,
    found: Distributions | JointDistribution,
    *,
    asked: Sequence[str],
    given: str,
    model: str,
    network: Sequence[Item],
    python: str,
) -> Report:
    """The page of distributions given evidence, with the network around them."""
    names = ", ".join(asked) if 0 < len(asked) <= 4 else text.count(len(found.names), "variable")
    tiles = [
        Tile("answer", "exact" if found.exact else "approximate", "good" if found.exact else ""),
        Tile("method", found.method),
    ]
    if found.log_evidence is not None:
        tiles.append(Tile("log-probability of the evidence", text.log_z(found.log_evidence, 6)))
    if not found.converged:
        tiles.append(Tile.judged("converged", found.converged))
    return answer_page(
        answer,
        title=f"{names} given {given}",
        subtitle=f"Distributions in {model}",
        tiles=tiles,
        pictures=network,
        python=python,
    )


def most_probable_page(
    answer: Answer, *, given: str, model: str, tiles: Sequence[Tile], network: Sequence[Item],
    python: str,
) -> Report:  # fmt: skip
    """The page of most probable states, drawn as if they were observed."""
    return answer_page(
        answer,
        title=f"Most probable states given {given}",
        subtitle=f"In {model}",
        tiles=tiles,
        pictures=network,
        python=python,
    )


def predict_page(
    answer: Answer, done: Prediction, *, model: str, cases: str, python: str
) -> Report:
    """The page of a file of cases: the mean answers, and the first cases."""
    tiles = [Tile("cases", text.whole(done.rows)), Tile("method", done.method)]
    if done.impossible:
        tiles.append(Tile("impossible cases", text.whole(done.impossible), "bad"))
    if done.not_converged:
        tiles.append(Tile("not converged", text.whole(done.not_converged), "bad"))
    pictures: list[Item] = []
    if done.targets and done.rows > done.impossible:
        shown = done.targets[:_MOST_BARS]
        bars = marginal_bars(
            [np.asarray(target.mean) for target in shown],
            [target.name for target in shown],
            [target.states for target in shown],
            title="Mean over the cases",
        )
        more = len(done.targets) - len(shown)
        caption = "Probabilities of each target, averaged over the cases"
        pictures.append(
            Picture(bars, f"{caption}; {more} more are not drawn." if more else f"{caption}.")
        )
    return answer_page(
        answer,
        title=f"Answers to {cases}",
        subtitle=f"Distributions for every case, by {model}",
        tiles=tiles,
        pictures=pictures,
        sections={"First cases": [done.preview()]},
        python=python,
    )


# ---------------------------------------------------------------------- bounds and scores


def bounds_page(answer: Answer, result: LogZBounds, *, model: str, python: str) -> Report:
    """The page of bounds on log Z: how they closed in time."""
    figure = result.plot() if len(result.history) > 1 else None
    caption = "Certified bounds on log Z against time; the gap is shaded."
    return answer_page(
        answer,
        title=f"Bounds on log Z of {model}",
        subtitle="Certified from both sides, as they closed in time",
        tiles=[
            Tile("lower bound", text.log_z(result.lower, 6)),
            Tile("upper bound", text.log_z(result.upper, 6)),
            Tile("gap in nats", "0: exact" if result.closed else f"{result.gap:.4g}",
                 "good" if result.closed else ""),
        ],
        pictures=[] if figure is None else [Picture(figure, caption)],
        python=python,
    )  # fmt: skip


def certify_page(answer: Answer, *, model: str, certified: bool, python: str) -> Report:
    """The page of a certificate of belief propagation."""
    return answer_page(
        answer,
        title=f"Belief propagation on {model}",
        subtitle="Whether it is certain to converge to one fixed point",
        tiles=[Tile.judged("certain to converge", certified, ("yes", "not known"))],
        python=python,
    )


def evaluate_page(
    answer: Answer, *, model: str, data: str, figures: Sequence[tuple[str, str]],
    pictures: Sequence[Item], python: str,
) -> Report:  # fmt: skip
    """The page of how well a model explains rows; `figures` are the scores."""
    return answer_page(
        answer,
        title=f"{model} on {data}",
        subtitle="How well a model explains rows of data",
        tiles=[Tile(label, value) for label, value in figures],
        pictures=pictures,
        python=python,
    )


def read_model(model: str) -> str:
    """The lines of Python that read a model.

    >>> print(read_model("example:asia"))
    import kikuchi as kk
    graph = kk.example('asia')
    """
    name = model.removeprefix("example:")
    source = f"kk.example({name!r})" if name != model else f"kk.read({model!r})"
    return f"import kikuchi as kk\ngraph = {source}"


def python_call(model: str, call: str, **arguments: Any) -> str:
    """The lines of Python that read a model and ask the same question.

    >>> print(python_call("m.uai", "found = kk.most_probable", best=2))
    import kikuchi as kk
    graph = kk.read('m.uai')
    found = kk.most_probable(graph, best=2)
    """
    words = [f"{name}={value!r}" for name, value in arguments.items() if value is not None]
    return f"{read_model(model)}\n{call}({', '.join(['graph', *words])})"
