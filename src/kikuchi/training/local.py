"""Rules that need no partition function: pseudo-likelihood, and linear response in one step.

They support any model with the methods of `PseudoModel` or `PairwiseModel`.

Reference: TEH-L7, TEH-L10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import DataError
from kikuchi.core.options import option
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.training.model import Parameters, Trainable
from kikuchi.training.rule import GradientEstimate, Ints, Rule, State

Array = NDArray[Any]
Floats = NDArray[np.float64]

_SINGULAR = 1e-12  # smallest eigenvalue of a covariance that is inverted


class PseudoModel(Trainable, Protocol):
    """A model whose conditionals of one variable given all others have a closed form."""

    def check_pseudo(self, data: Any) -> None:
        """Raise an error for models and data without such conditionals."""

    def pseudo_gradient(self, batch: Any, rows: Ints) -> GradientEstimate:
        """Return the pseudo-log-likelihood per row of the batch, and its gradient."""


class PairwiseModel(Trainable, Protocol):
    """A model of binary variables with biases and pairwise couplings, without hidden variables."""

    def check_pairwise(self) -> None:
        """Raise an error for other models."""

    def bits(self, data: Any) -> tuple[Floats, Floats]:
        """Return the data as rows of 0 and 1, and the weight of each row."""

    def couple(self, means: Floats, couplings: Floats) -> Parameters:
        """Return parameters with these couplings, and the biases that yield these mean-field means:
        b_i = logit(m_i) - sum_j W_ij m_j, over the couplings that the model has.
        """

    def pairwise_graph(self, parameters: Parameters) -> FactorGraph:
        """Return the model with these parameters as a graph with variables in the order of the
        bits.
        """

    def label(self, variable: int) -> str:
        """Return the name of a variable for messages."""


class PseudoLikelihoodRule(Rule[Any]):
    """The gradient of sum_i log p(x_i | all other variables), a true objective."""

    name: ClassVar[str] = "pseudo"
    summary: ClassVar[str] = "pseudo-likelihood: each visible unit given all others"
    objective_name: ClassVar[str] = "pseudo-log-likelihood per row"
    takes_sparse: ClassVar[bool] = True

    def begin(self, model: PseudoModel, data: Any, rng: np.random.Generator) -> State:
        """Raise an error for models and rows without closed-form conditionals."""
        model.check_pseudo(data)
        return {}

    def gradient(
        self, model: PseudoModel, batch: Any, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """Return the gradient and value per row."""
        return model.pseudo_gradient(batch, rows)

    def score(self, model: PseudoModel, rows: Any) -> float:
        """Return the pseudo-log-likelihood per row."""
        model.check_pseudo(rows)
        dense = rows.toarray() if hasattr(rows, "toarray") else rows
        return float(model.pseudo_gradient(dense, np.arange(len(dense))).objective or 0.0)


@dataclass(frozen=True)
class OneShotRule(Rule[Any]):
    """Fully visible machines by linear response: one matrix inversion.

    The error is of second order in the couplings. `prior` rows of the uniform distribution are
    added to the data, so that means are not 0 or 1. Couplings that are not in the model are
    dropped.

    >>> from kikuchi.boltzmann import Machine, train
    >>> rows = np.array([[1, 1], [1, 1], [1, 0], [0, 1], [0, 0], [0, 0]])
    >>> done = train(Machine.random(2, 0, architecture="poe", random_state=0), rows, "one-shot")
    >>> done.stopped, bool(done.model.visible_weights[0, 1] > 0)
    ('converged', True)
    """

    name: ClassVar[str] = "one-shot"

    prior: float = option(1.0, "number of added rows of the uniform distribution", low=0)

    def begin(self, model: PairwiseModel, data: Any, rng: np.random.Generator) -> State:
        """Raise an error for models with hidden variables, or without pairwise couplings."""
        model.check_pairwise()
        return {}

    def solve(self, model: PairwiseModel, data: Any) -> Parameters:
        """Return couplings and biases from the moments of all rows."""
        model.check_pairwise()
        rows, weights = model.bits(data)
        means, covariance = moments(rows, weights, self.prior)
        constant = np.flatnonzero((means <= 0) | (means >= 1))
        if constant.size:
            name = model.label(int(constant[0]))
            raise DataError(f"data: {name} is in the same state in every row; raise prior")
        return model.couple(means, linear_response_couplings(covariance))

    def doubts(self, model: PairwiseModel, data: Any, solution: Parameters) -> list[str]:
        """Return a warning if independent variables certainly explain the rows better, since mean
        field bounds log Z from below.
        """
        from kikuchi.graphs.binary import couplings_and_fields
        from kikuchi.methods.mean_field import MeanField

        rows, weights = model.bits(data)
        means = (weights @ rows + 0.5 * self.prior) / (weights.sum() + self.prior)
        alone = float(np.average(rows @ np.log(means) + (1 - rows) @ np.log1p(-means), 0, weights))
        graph = model.pairwise_graph(solution)
        form, spins = couplings_and_fields(graph), 2.0 * rows - 1.0
        pairs = 0.5 * np.sum((form.couplings @ spins.T).T * spins, axis=1)
        score = form.constant + float(np.average(pairs + spins @ form.fields, 0, weights))
        log_z = MeanField().run(graph).log_z
        if log_z is None or score - log_z >= alone:
            return []
        return [
            "the couplings are too strong for linear response, and the moments of the model are "
            f"not those of the data: its log-likelihood per row is at most {score - log_z:.4g}, "
            f"and {alone:.4g} with independent variables; use learner pseudo with a small l2, or "
            "raise prior"
        ]

    def gradient(
        self, model: PairwiseModel, batch: Any, rows: Ints, state: State, rng: np.random.Generator
    ) -> GradientEstimate:
        """Return the step from the current parameters to the solution for this batch."""
        wanted = self.solve(model, batch)
        return GradientEstimate({n: wanted[n] - a for n, a in model.parameters.items()})


def moments(rows: Floats, weights: Floats, prior: float) -> tuple[Floats, Floats]:
    """Return means and covariances of weighted rows of bits and `prior` rows of the uniform
    distribution.

    >>> means, covariance = moments(np.array([[1.0], [0.0]]), np.ones(2), prior=2.0)
    >>> means.tolist(), covariance.tolist()
    ([0.5], [[0.25]])
    """
    total = weights.sum() + prior
    p, uniform = weights / total, prior / total
    means = p @ rows + 0.5 * uniform
    second = (rows * p[:, None]).T @ rows + uniform * (0.25 + 0.25 * np.eye(rows.shape[1]))
    return means, second - np.outer(means, means)


def linear_response_couplings(covariance: Floats) -> Floats:
    """Return couplings of the mean field model with this covariance of bits: W_ij = -[C^-1]_ij.

    In the mean field approximation [C^-1]_ij = delta_ij / (m_i (1 - m_i)) - W_ij; the diagonal of
    the result has no meaning.

    >>> linear_response_couplings(np.array([[0.25, 0.05], [0.05, 0.25]])).round(3)[0, 1]
    np.float64(0.833)
    """
    values, vectors = np.linalg.eigh(covariance)
    if values[0] < _SINGULAR:
        raise DataError(
            "data: the covariance of the variables is singular (some are functions of others); "
            "raise prior"
        )
    return np.asarray(-(vectors / values) @ vectors.T)
