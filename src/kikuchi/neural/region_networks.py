"""Region-energy networks: RENN and the Inference Net, as inference methods.

As methods they serve learning too, trained anew at every step of it:
`GradientML(inference="renn", solver="adam")`. `min_max` learns model and network in turn.

Reference: LIU-I14, LIU-I14b, LIU-I15, LIU-L4, LIU-M10.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import Iterations
from kikuchi.engines.regions.engine import region_beliefs
from kikuchi.engines.run import MethodRun, Solution
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.generalised_bp import read_regions
from kikuchi.methods.method import Method, option
from kikuchi.neural.region_energy import EnergyDescent, EnergySettings

_ADVICE = "a larger max_iter or penalty, or kikuchi, which minimises the same energy"


@dataclass(frozen=True)
class Renn(Method, EnergySettings):
    r"""Region free energy over beliefs that a network writes down.

    The logits of the root beliefs are the outputs of a network with one embedding per variable, an
    attention layer and two residual blocks; smaller regions take the mean of their parents'
    marginals. Adam minimises F + penalty sum |b_R - marginal of each parent|^2 over the weights.
    The network does not see the tables and is trained anew for each model. `network=none` has free
    tables in its place, under the same optimiser and budget; `kikuchi` minimises the same energy
    with the agreement exact.

    The default penalty is one value for all models. `converged` means that the energy is stationary
    to `tol` nats, which the usual number of steps rarely reaches (a softmax can also stall where it
    has almost decided): the answer is then that of the lowest penalised energy seen, marked as not
    converged.

    >>> import kikuchi as kk
    >>> grid = kk.grid(3, 3, seed=1, coupling=0.5)
    >>> beliefs = kk.infer(grid, "renn:regions=faces,max_iter=150")
    >>> exact = kk.infer(grid, "jt")
    >>> bool(abs(beliefs.flat_marginals - exact.flat_marginals).mean() < 0.05)
    True
    """

    name: ClassVar[str] = "renn"
    edge_setup_seconds: ClassVar[float | None] = 4e-6
    most_interpreted: ClassVar[int] = 0
    summary: ClassVar[str] = "region free energy over the beliefs of a network (RENN)"
    objective_name: ClassVar[str] = "Kikuchi log Z"

    tol: float = option(
        1e-3, "stop when no slope of the energy towards a state is larger than this, in nats", low=0
    )
    max_iter: int = option(300, "maximum number of steps of Adam", low=1)
    seed: int = option(0, "seed of the first weights", low=0)

    def _solve(self, graph: FactorGraph, run: MethodRun) -> Solution:
        beliefs = region_beliefs(graph, self.regions, run)
        descent = EnergyDescent(beliefs, self, self.seed)
        ended = iterate(descent.step, Iterations(), run, tol=self.tol, limit=self.max_iter)
        descent.take_best()
        ended = replace(ended, residual=beliefs.disagreement())
        solution = read_regions(beliefs, run, ended, _ADVICE)
        solution.diagnostics["penalty"] = self.penalty
        return solution


@dataclass(frozen=True)
class BetheNet(Renn):
    """Inference Net: the Bethe free energy over the beliefs of a network.

    The network of `renn` on the region graph of factors and variables.

    >>> import kikuchi as kk
    >>> grid = kk.grid(3, 3, seed=1, coupling=0.5)
    >>> beliefs = kk.infer(grid, "bethe-net:max_iter=150")
    >>> bool(abs(beliefs.log_z - kk.infer(grid, "jt").log_z) < 1.0)
    True
    """

    name: ClassVar[str] = "bethe-net"
    most_interpreted: ClassVar[int] = 0
    summary: ClassVar[str] = "Bethe free energy over the beliefs of a network (Inference Net)"
    objective_name: ClassVar[str] = "Bethe log Z"

    regions: str = option("bethe", "which regions; the Bethe approximation by default")
