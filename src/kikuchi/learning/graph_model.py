"""Factor graphs on the training floor: their free parameters as a model, and penalised rules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import MethodError
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.learning.data import Data
from kikuchi.learning.learner import FitRun, Learned
from kikuchi.learning.ties import FeatureMatrix, Parameters
from kikuchi.training.checkpoint import Arrays
from kikuchi.training.optimiser import Optimiser
from kikuchi.training.rule import GradientEstimate, Rule, State
from kikuchi.training.trainer import Training, train

if TYPE_CHECKING:
    from kikuchi.learning.local.gibbs_sampler import GibbsSampler

_STRUCTURE = ("cardinalities", "scopes", "scope_offsets", "log_tables")


@dataclass(eq=False)
class GraphModel:
    """The free parameters theta of a graph's log-tables, as the trainer changes them.

    `data` are the rows to sample from, for rules with Markov chains (`training.contrastive`).

    >>> pair = FactorGraph([2, 2], [((0, 1), np.zeros(4) + 1.0)])
    >>> model = GraphModel(pair)
    >>> model.parameters["theta"] += np.log([2.0, 1.0, 1.0, 2.0])
    >>> model.fitted.table(0).round(6).tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """

    kind: ClassVar[str] = "graph"
    weight_limit: ClassVar[float] = np.inf
    batch_dtype: ClassVar[None] = None

    graph: FactorGraph
    ties: str | None = None
    features: FeatureMatrix | None = None
    data: Data | None = None

    def __post_init__(self) -> None:
        self.map = Parameters(self.graph, self.ties, self.features)
        self.parameters = {"theta": np.array(self.map.start)}
        self._sampler: GibbsSampler | None = None

    @property
    def theta(self) -> Array:
        """The parameters, in place."""
        return self.parameters["theta"]

    @property
    def tables(self) -> Array:
        """The log-tables of the present parameters."""
        return self.map.tables(self.theta)

    @property
    def fitted(self) -> FactorGraph:
        """The graph with these log-tables."""
        return self.graph.with_log_tables(self.tables)

    def copy(self) -> Self:
        """The same model with parameters of its own."""
        other = type(self)(self.graph, self.ties, self.features, self.data)
        other.theta[:] = self.theta
        return other

    def check_data(self, data: Any) -> Any:
        """The weights of the rows; rules know the states, and are told which rows count."""
        return Data.of(data, self.graph).weights

    def rule(self, text: str) -> Any:
        """Graphs are fitted by learners, which give the trainer their rules."""
        raise MethodError(f"'{text}' is no rule of the trainer for graphs; use kikuchi.learn")

    def sampler(self, workspace: State) -> GibbsSampler:
        """Gibbs chains at the present parameters."""
        from kikuchi.learning.local.gibbs_sampler import GibbsSampler

        if self._sampler is None:
            if self.data is None:
                raise MethodError("a graph model is sampled beside rows of data; give it some")
            self._sampler = GibbsSampler(self.graph, self.map, self.data)
        self._sampler.set_tables(self.tables)
        return self._sampler

    def constrain(self, direction: Any) -> None:
        """All directions of theta are allowed."""

    def describe(self) -> dict[str, Any]:
        """Sizes, ties and features."""
        sizes = [self.graph.n_variables, self.graph.n_factors, self.map.n_free]
        return {"sizes": sizes, "ties": self.ties, "features": str(self.features)}

    def to_arrays(self) -> Arrays:
        """The arrays of the graph as it was at the start, theta, and the matrix of features."""
        arrays = {f"graph/{name}": np.array(getattr(self.graph, name)) for name in _STRUCTURE}
        if self.features is not None:
            arrays["features"] = self.features.matrix.toarray()
        return arrays | {"parameters/theta": self.theta}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> Self:
        """The model of a file."""
        graph = FactorGraph.from_arrays(*(arrays[f"graph/{name}"] for name in _STRUCTURE))
        features = FeatureMatrix(arrays["features"]) if "features" in arrays else None
        model = cls(graph, facts["ties"], features)
        model.theta[:] = arrays["parameters/theta"]
        return model


@dataclass(frozen=True)
class PenalisedRule(Rule[GraphModel]):
    """Base of rules for graphs: `l2` in the gradient, `l1` by proximal steps that give zeros.

    Of the learner it needs the options `l1` and `l2`, and its text for checkpoints.
    """

    learner: Any

    def __post_init__(self) -> None:
        """The learner has checked its options."""

    def __repr__(self) -> str:
        return str(self.learner.text)

    @abstractmethod
    def unpenalised(
        self, model: GraphModel, batch: Any, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """The gradient by theta without the penalties, from some rows."""

    def gradient(
        self, model: GraphModel, batch: Any, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """The penalised gradient by theta."""
        estimate = self.unpenalised(model, batch, np.sort(rows), state, rng)
        if self.learner.l2:
            estimate.ascent["theta"] -= self.learner.l2 * model.theta
        if estimate.objective is not None and (self.learner.l1 or self.learner.l2):
            estimate.objective -= penalty(model.theta, self.learner.l1, self.learner.l2)
        return estimate

    def project(self, model: GraphModel, rate: float) -> None:
        """Shrink theta towards 0 by l1 times the length of a step, which momentum lengthens."""
        if self.learner.l1:
            length = rate / (1.0 - getattr(self.learner, "momentum", 0.0))
            model.theta[:] = _shrunk(model.theta, length * self.learner.l1)

    def stationarity(self, gradient: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
        """How far a proximal step of length 1 would move; the gradient itself without l1."""
        return _shrunk(values + gradient, self.learner.l1) - values if self.learner.l1 else gradient

    def train(
        self,
        model: GraphModel,
        data: Data,
        run: FitRun,
        *,
        optimiser: Optimiser,
        batch_size: int,
        average: float = 0.0,
        last: bool = False,
    ) -> tuple[Training[GraphModel], Learned]:
        """Train on rows by the trainer; its answer, and the same as learners give it."""
        learner = self.learner
        done = train(
            model,
            data,
            self,
            optimiser=optimiser,
            epochs=learner.max_iter,
            batch_size=batch_size,
            seed=learner.seed,
            run=run,
            checkpoint=run.checkpoint,
            threads=None,
            tol=learner.tol,
            average=average,
            last=last,
        )
        run.stopped = "iterations" if done.stopped == "epochs" else done.stopped
        learned = Learned(done.model.tables, None, done.converged, done.epochs)
        learned.warnings += done.warnings
        return done, learned


def penalty(theta: Array, l1: float, l2: float) -> float:
    """l1 |theta|_1 + l2 / 2 |theta|^2."""
    return l1 * float(np.abs(theta).sum()) + 0.5 * l2 * float(theta @ theta)


def _shrunk(values: Array, threshold: float) -> Array:
    """The proximal operator of threshold |x|_1."""
    return np.sign(values) * np.maximum(np.abs(values) - threshold, 0.0)
