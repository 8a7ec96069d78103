"""Learning rules of machines: one module per way of estimating the gradient.

Exact, sampled (contrastive divergence and relatives), mean field, mixtures, contrastive free
energies, pseudo-likelihood, linear response; `RULES` knows them by their short names.
"""

from __future__ import annotations

from typing import Any

from kikuchi.core.options import Registry
from kikuchi.training.rule import Rule

RULES: Registry[Rule[Any]] = Registry(
    "kikuchi.boltzmann.rules",
    "learner",
    {
        "exact": "exact:ExactLikelihood",
        "gibbs": "sampling:Equilibrium",
        "cd": "sampling:ContrastiveDivergence",
        "pcd": "sampling:PersistentDivergence",
        "brief-gibbs": "sampling:BriefGibbs",
        "pseudo": "pseudo:PseudoLikelihood",
        "one-shot": "one_shot:OneShot",
        "rate-cd": "rate_coded:RateCodedDivergence",
        "cf": "contrastive:ContrastiveFreeEnergy",
        "mf-star": "mean_field:MeanFieldStar",
        "mf-joint": "mean_field:JointMeanField",
        "mixture": "mixture:MixtureMeanField",
    },
)
parse_rule = RULES.parse
