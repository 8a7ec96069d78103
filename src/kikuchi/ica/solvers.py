"""Which solvers fit which models."""

from __future__ import annotations

from collections.abc import Sequence

from kikuchi.core.arrays import Array
from kikuchi.core.errors import MethodError
from kikuchi.ica.em import CONSISTENT, GRADIENTS, Rules
from kikuchi.ica.posteriors.posterior import Posterior
from kikuchi.ica.priors.prior import SourcePrior


def check_solver(
    solver: str,
    posterior: Posterior,
    rules: Rules,
    priors: Sequence[SourcePrior],
    noise: str | Array,
) -> None:
    """What follows gradients needs moments that give them, and no constraints."""
    if solver not in GRADIENTS:
        return
    unknown = sorted({prior.name for prior in priors if not prior.has_log_partition})
    if unknown:
        raise MethodError(
            f"solver {solver}: prior {', '.join(unknown)} has no likelihood to maximise; use em"
        )
    if solver == "lbfgs" and posterior.name not in CONSISTENT:
        raise MethodError(
            f"solver lbfgs: the energy of posterior {posterior.name} does not belong to its "
            f"moments; use scoring or over-relaxed, or one of {', '.join(CONSISTENT)}"
        )
    if rules.mixing != "free" or rules.mixing_prior.beta > 0:
        raise MethodError(
            f"solver {solver} takes free mixing with a flat or gaussian prior; "
            "use em or over-relaxed"
        )
    if solver == "scoring" and isinstance(noise, str) and noise == "full":
        raise MethodError("solver scoring learns isotropic or diagonal noise; use em for full")
