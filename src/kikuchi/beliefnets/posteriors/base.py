"""`UnitPosterior`: a family of distributions of hidden units given the others.

States of all units are rows with NaN for what is unknown. Rows with the same unknown units are
fitted together; every family answers with a `PosteriorFit`.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from kikuchi.beliefnets.models import SigmoidNetwork
from kikuchi.core.arrays import Array, Ints, Mask
from kikuchi.core.budget import Budget, Clock
from kikuchi.core.errors import BudgetError, MethodError
from kikuchi.core.options import Configured, Registry
from kikuchi.training.model import Parameters

Start = Mapping[str, Array]


@dataclass
class PosteriorFit:
    """What a posterior says of rows.

    Attributes
    ----------
    bound : lower bound on the log-likelihood of each row; exact where `exact` says so; NaN of
        families that have none.
    means : probability that each unit is 1 (known units: their states).
    converged : whether each row met its criterion.
    state : parameters of the posterior by row, from which another fit may start.
    remarks : what a reader must know.
    """

    bound: Array
    means: Array
    converged: Mask
    state: dict[str, Array] = field(default_factory=dict)
    exact: bool = False
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class UnitPosterior(Configured, kind="posterior"):
    """Base of the families."""

    main_option: ClassVar[str] = ""  # that of "mixture:5"
    bounds: ClassVar[bool] = True  # whether `bound` is a lower bound
    costly: ClassVar[bool] = False  # whether rows are fitted one by one: trainings are short

    @abstractmethod
    def fit_group(
        self, network: SigmoidNetwork, states: Array, free: Ints, rng: np.random.Generator,
        start: Start | None, clock: Clock,
    ) -> PosteriorFit:  # fmt: skip
        """Fit rows whose unknown units are `free`."""

    @abstractmethod
    def gradient(self, network: SigmoidNetwork, states: Array, fit: PosteriorFit) -> Parameters:
        """Gradient of the sum of the rows' bounds by weights and biases, the posterior held."""

    def draw(
        self, network: SigmoidNetwork, fit: PosteriorFit, row: int, free: Ints, count: int,
        rng: np.random.Generator,
    ) -> tuple[Array, Array]:  # fmt: skip
        """States (count, free units) drawn from the posterior of a row, with log-probabilities."""
        if not fit.state:
            raise MethodError("draws need rows with the same unknown units; give one at a time")
        state = {name: array[row] for name, array in fit.state.items()}
        return self._drawn(network, state, free, count, rng)

    def _drawn(
        self, network: SigmoidNetwork, state: Start, free: Ints, count: int,
        rng: np.random.Generator,
    ) -> tuple[Array, Array]:  # fmt: skip
        """Draws from the posterior of a row with this state."""
        raise MethodError(f"posterior {self.name} gives no independent draws; use mean-field")

    def partial(self, sweeps: int) -> Self:
        """The family for one update of a training, with at most so many sweeps: the posteriors of
        rows go on from where the last update of these rows left them.
        """
        if any(f.name == "max_iter" for f in dataclasses.fields(self)):
            changed: Any = {"max_iter": sweeps}
            return dataclasses.replace(self, **changed)
        return self

    def check(self, network: SigmoidNetwork) -> None:
        """Refuse networks that the family cannot treat."""

    def fit(
        self,
        network: SigmoidNetwork,
        states: Array,
        *,
        rng: np.random.Generator,
        start: Start | None = None,
        clock: Clock | None = None,
    ) -> PosteriorFit:
        """Fit the posterior of each row of states; NaN is unknown."""
        self.check(network)
        clock = clock or Budget().start()
        groups = list(unknown_groups(states))
        if len(groups) == 1:
            rows, free = groups[0]
            return self.fit_group(network, states, free, rng, start, clock)
        fits = [
            (rows, self.fit_group(network, states[rows], free, rng, None, clock))
            for rows, free in groups
        ]
        joined = PosteriorFit(
            np.empty(len(states)),
            np.empty_like(states),
            np.empty(len(states), dtype=bool),
            exact=all(fit.exact for _, fit in fits),
        )
        for rows, fit in fits:
            joined.bound[rows], joined.means[rows] = fit.bound, fit.means
            joined.converged[rows] = fit.converged
            joined.remarks += [r for r in fit.remarks if r not in joined.remarks]
        return joined


def require_time(clock: Clock) -> None:
    """Refuse to go on when the time is over."""
    if clock.expired:
        raise BudgetError("the time ended before the posterior of every row was found; give more")


def unknown_groups(states: Array) -> Iterator[tuple[Ints, Ints]]:
    """Row numbers that share their unknown units, and these units."""
    unknown = np.isnan(states)
    if not len(states) or np.all(unknown == unknown[0]):
        yield np.arange(len(states)), np.flatnonzero(unknown[0]) if len(states) else np.arange(0)
        return
    patterns, which = np.unique(unknown, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        yield np.flatnonzero(which.reshape(-1) == number), np.flatnonzero(pattern)


POSTERIORS: Registry[UnitPosterior] = Registry(
    "kikuchi.beliefnets.posteriors",
    "posterior",
    {
        "mean-field": "tilted:MeanFieldUnits",
        "mixture": "tilted:MixtureUnits",
        "chain": "chain:ChainUnits",
        "quadratic": "quadratic:QuadraticUnits",
        "third-order": "third_order:ThirdOrderUnits",
        "tree-mf": "structured:StructuredUnits",
        "gibbs": "sampled:GibbsUnits",
        "gibbs-proposals": "sampled:ProposedUnits",
        "exact": "exact:EnumeratedUnits",
        "recognition": "recognised:RecognisedUnits",
    },
)


def parse_posterior(text: str | UnitPosterior) -> UnitPosterior:
    """The posterior of a text such as `mixture:5`, `mixture:components=5,tol=1e-5` or `exact`.

    >>> parse_posterior("mixture:3").text
    'mixture:components=3'
    """
    if isinstance(text, str):
        name, _, rest = text.strip().partition(":")
        if rest.strip().isdigit():
            cls: Any = POSTERIORS.find(name.strip())
            if not cls.main_option:
                raise MethodError(f"posterior {name} takes no number; known: {_options(cls)}")
            text = f"{name}:{cls.main_option}={rest.strip()}"
    return POSTERIORS.parse(text)


def _options(cls: Any) -> str:
    return ", ".join(f.name for f in dataclasses.fields(cls)) or "no options"


def blocks(n_rows: int, cost: float) -> Iterator[slice]:
    """Slices of rows that keep each call of a compiled loop short; `cost` is that of one row."""
    size = max(1, int(2e6 / max(cost, 1.0)))
    for first in range(0, n_rows, size):
        yield slice(first, min(first + size, n_rows))
