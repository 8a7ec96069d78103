"""Learner texts: `name:option=value,...`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from kikuchi.core.budget import Budget, limits
from kikuchi.core.options import Registry
from kikuchi.core.progress import ProgressOption
from kikuchi.graphs.factor_graph import FactorGraph, check_graph
from kikuchi.learning.data import Data
from kikuchi.learning.fit import Fit
from kikuchi.learning.learner import Learner

DEFAULT = "auto"
COUNTING = "em:prior=0.2"
"""The default for directed models; `benchmarks/table_prior.py` measures why 0.2."""

LEARNERS: Registry[Learner] = Registry(
    "kikuchi.learning",
    "learner",
    {
        "gradient": "likelihood.gradient:GradientML",
        "em": "likelihood.em:EM",
        "vbem": "likelihood.em:VariationalEM",
        "pseudo": "local.pseudo:PseudoLikelihood",
        "piecewise": "local.piecewise:Piecewise",
        "surrogate": "likelihood.surrogate:Surrogate",
        "cd": "local.contrastive:ContrastiveDivergence",
        "pcd": "local.contrastive:PersistentDivergence",
        "brief-gibbs": "local.contrastive:BriefGibbs",
        "one-shot": "local.one_shot:OneShot",
        "mf-trw": "likelihood.bound:MeanFieldMinusTrw",
        "ups-jt": "scaling.ups_jt:UnifiedScalingML",
        "ipf": "scaling.scaling:ProportionalFitting",
        "gis": "scaling.scaling:GeneralisedScalingML",
        "iis": "scaling.improved_scaling:ImprovedScalingML",
        "loopy-is": "scaling.loopy_scaling:LoopyScalingML",
    },
)


def parse_learner(text: str | Learner) -> Learner:
    """A learner from its text, such as "gradient:inference=bp,l2=0.1".

    `text` is a name with options; a learner is returned as it is.
    """
    return LEARNERS.parse(text)


def choose_learner(
    learner: str | Learner, graph: FactorGraph, options: Mapping[str, Any] | None = None
) -> Learner:
    """The learner that a text names for a model; "auto" is a text too.

    "auto" counts for directed models, with 0.2 pseudo-counts for each table cell
    (`em:prior=0.2`), and climbs the likelihood of others (`gradient`). `options` are further
    options by name.

    >>> import kikuchi as kk
    >>> choose_learner("auto", kk.example("asia")).text
    'em:prior=0.2'
    """
    if isinstance(learner, str) and learner.strip() == DEFAULT:
        learner = COUNTING if graph.is_directed else "gradient"
    return LEARNERS.parse(learner, options)


def learn(
    graph: FactorGraph,
    data: Data | ArrayLike,
    learner: str | Learner = DEFAULT,
    *,
    budget: Budget | None = None,
    seconds: float | None = None,
    memory: int | str | None = None,
    progress: ProgressOption = None,
    checkpoint: str | Path | None = None,
    hold_out: float = 0.0,
    **options: Any,
) -> Fit:
    """Fit the tables of `graph` to `data` by `learner`.

    Parameters
    ----------
    graph : the model; its tables are where the learner starts, and their zeros stay.
    data : rows of states: a `Data`, a DataFrame or an array, -1 where a state is missing.
    learner : a learner object, or its specification string such as
        "gradient:inference=bp,l2=0.1"; `kikuchi learners` lists all of them. "auto" counts for
        directed models, with 0.2 pseudo-counts for each table cell (`em:prior=0.2`), and is
        `gradient` for others.
    budget : limits as a `Budget`, in place of the next two.
    seconds, memory : most seconds (the best fit so far comes back, marked), and most memory in
        bytes or as a text such as "2GB".
    progress : True for a bar, or a function that is told how far the fit is.
    checkpoint : a file that keeps the state of the fit, from which a later call goes on.
    hold_out : fraction of the rows to set aside, drawn at random: a fit to the other rows gives
        `fit.held_out`, their log-likelihood. The model that is returned is fitted to all rows.
    options : options of the learner by name, as in `kk.learn(graph, data, "em", prior=1)`.

    >>> import kikuchi as kk
    >>> fit = learn(kk.FactorGraph([2], [((0,), [1, 1])]), [[1], [1], [0]], "pseudo", seconds=5)
    >>> kk.infer(fit.graph, "jt")[0].round(3).tolist()
    [0.333, 0.667]
    """
    check_graph(graph, "learn")
    chosen = choose_learner(learner, graph, options)
    allowed = limits(budget, seconds, memory)
    rows = Data.of(data, graph)
    held_out = None
    if hold_out:
        from kikuchi.learning.networks import held_out_score

        held_out = held_out_score(
            lambda part: chosen.fit(graph, part, budget=allowed, score=False).graph,
            rows,
            hold_out,
            budget=allowed,
        )
    fit = chosen.fit(graph, rows, budget=allowed, progress=progress, checkpoint=checkpoint)
    return fit if held_out is None else replace(fit, held_out=held_out)
