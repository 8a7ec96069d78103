"""Learning rules of machines: one module per way of estimating the gradient.

Exact likelihood, mean field, mixtures, contrastive free energies and rate coding are here; rules
that other families share are in `training`; `RULES` knows them by their short names.
"""

from __future__ import annotations

from typing import Any

from kikuchi.core.options import Registry
from kikuchi.training.rule import Rule

RULES: Registry[Rule[Any]] = Registry(
    "kikuchi",
    "learner",
    {
        "exact": "boltzmann.rules.exact:ExactLikelihood",
        "gibbs": "training.contrastive:EquilibriumRule",
        "cd": "training.contrastive:ContrastiveDivergenceRule",
        "pcd": "training.contrastive:PersistentDivergenceRule",
        "brief-gibbs": "training.contrastive:BriefGibbsRule",
        "pseudo": "training.local:PseudoLikelihoodRule",
        "one-shot": "training.local:OneShotRule",
        "rate-cd": "boltzmann.rules.rate_coded:RateCodedDivergence",
        "cf": "boltzmann.rules.contrastive:ContrastiveFreeEnergy",
        "mf-star": "boltzmann.rules.mean_field:MeanFieldStar",
        "mf-joint": "boltzmann.rules.mean_field:JointMeanField",
        "mixture": "boltzmann.rules.mixture:MixtureRule",
    },
)
parse_rule = RULES.parse
