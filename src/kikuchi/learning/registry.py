"""Learner texts: `name:option=value,...`."""

from __future__ import annotations

from pathlib import Path

from numpy.typing import ArrayLike

from kikuchi.core.budget import Budget
from kikuchi.core.options import Registry
from kikuchi.core.progress import Progress
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.fit import Fit
from kikuchi.learning.learner import Learner

DEFAULT = "gradient"

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
    """A learner from its text, such as "gradient:inference=bp,l2=0.1"."""
    return LEARNERS.parse(text)


def learn(
    graph: FactorGraph,
    data: Data | ArrayLike,
    learner: str | Learner = DEFAULT,
    *,
    budget: Budget | None = None,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
) -> Fit:
    """Fit the tables of `graph` to `data` by `learner`, an object or a text."""
    chosen = LEARNERS.parse(learner)
    return chosen.fit(graph, data, budget=budget, progress=progress, checkpoint=checkpoint)
