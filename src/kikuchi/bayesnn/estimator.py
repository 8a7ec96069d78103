"""Base class of regressors and classifiers: options, the fit, relevance, removal, and files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from kikuchi.bayesnn.bound import Data, EvidenceBound, GammaDensity, Hyper, output
from kikuchi.bayesnn.fitting import (
    MOST_HELD,
    NetworkProblem,
    VariationalFit,
    final_bound,
    random_starts,
)
from kikuchi.bayesnn.network import Network, precisions
from kikuchi.bayesnn.posteriors import OutputMoments, WeightPosterior, Weights
from kikuchi.bayesnn.structure import Pruning
from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.interrupts import safe_interrupts
from kikuchi.core.options import layer_sizes, option
from kikuchi.core.run import Run
from kikuchi.core.seeds import generator
from kikuchi.engines.loops.iterate import iterate
from kikuchi.engines.loops.state import Iterations
from kikuchi.training.checkpoint import Arrays
from kikuchi.training.estimator import (
    Estimator,
    check_is_fitted,
    ending_remarks,
    of_type,
    validate_data,
)
from kikuchi.training.resuming import fit_store

_BLOCK = 512  # rows of one prediction; fewer are padded to a power of two, so that few are compiled
_NO_EFFECT = 0.01  # standard deviations of the output per standard deviation of an input
_FITTED = (
    "flat", "scale", "kept", "input_mean", "input_scale", "relevance_", "hidden_relevance_",
)  # fmt: skip


class Trivial(NamedTuple):
    """A prediction that needs no inputs: its log-likelihood of the targets of the fit, in their
    standardised units, less one nat for each of its parameters.
    """

    name: str
    score: float


class NetworkResults:
    """Fitted attributes; as annotations of a dataclass they would be options."""

    bound_: float
    relevance_: Array
    hidden_relevance_: Array
    hidden_kept_: Array
    inputs_kept_: Array
    weights_kept_: Array
    precisions_: dict[str, float]
    pruning_: list[dict[str, Any]]
    columns_: list[str]


@partial(jax.jit, static_argnames=("posterior",))
def _slopes(posterior: WeightPosterior, flat: Any, weights: Weights, x: Any) -> Any:
    """Squared slopes of the mean outputs at each row, by each input, summed over networks."""
    q = posterior.read(flat[: posterior.size], weights)
    count = posterior.n_networks

    def mean(rows: Any) -> Any:
        return jnp.sum(posterior.output(q, rows).mean.reshape(count, -1), axis=1)

    each = jax.jacobian(mean)(x)
    return jnp.sum(each**2, axis=0)[:, :-1]


@dataclass(eq=False, repr=False)
class BayesianNetworkEstimator(Estimator, NetworkResults):
    """Options and the fit of networks of one hidden layer with a posterior of the weights."""

    file_kind: ClassVar[str] = "bayesian-network"

    hidden_layer_sizes: int | tuple[int, ...] | list[int] = option(
        8, "Number of hidden units, in one layer."
    )
    posterior: str = option(
        "layered", "Posterior of the weights: diagonal, layered, full, or mixture:M (diagonal)."
    )
    prior: Literal["single", "grouped", "ard", "nrd"] = option(
        "ard", "Weights that share a precision: single, grouped, ard (by input) or nrd (by nodes)."
    )
    _: KW_ONLY
    skip: bool = option(False, "Also connect inputs with the output.")
    n_init: int = option(5, "Random starts, of which the best bound is kept.", low=1)
    max_iter: int = option(1000, "Largest number of steps of each restart and of the rest.", low=1)
    tol: float = option(
        0.01, "The fit has converged when ten steps raise the bound by less (nats).", low=0
    )
    weight_shape: float = option(3e-4, "Shape of the gamma prior of weight precisions.", above=0)
    weight_rate: float = option(1e-3, "Rate of the gamma prior of weight precisions.", above=0)

    # ------------------------------------------------------------------ for regressor, classifier

    @abstractmethod
    def _read(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[Array, Array]:
        """Checked rows and targets; with `reset` what the fit must know of them is kept."""

    @abstractmethod
    def _data(self, rows: Array, targets: Array) -> Data:
        """Standardised rows that end with a 1, and targets as the bound takes them."""

    @abstractmethod
    def _family(self) -> WeightPosterior:
        """The family of posteriors of all networks."""

    @property
    def _n_hidden(self) -> int:
        """Units of the hidden layer."""
        sizes = layer_sizes(self.hidden_layer_sizes, "hidden_layer_sizes")
        if len(sizes) > 1:
            raise MethodError(
                f"{type(self).__name__} has one hidden layer; give hidden_layer_sizes a number, "
                f"got {self.hidden_layer_sizes!r}"
            )
        return sizes[0]

    def _noise_prior(self) -> GammaDensity:
        """Prior of the precision of the noise."""
        return GammaDensity(1.0, 1.0)

    def _shift(self) -> float:
        """Return the change of the bound from standardised targets to the targets."""
        return 0.0

    def _learnt(self, found: EvidenceBound) -> None:
        """Store further results of the bound."""

    @abstractmethod
    def _trivial(self, problem: NetworkProblem) -> Trivial:
        """Return the baseline without the inputs, and its quality."""

    @abstractmethod
    def _log_probability(self, problem: NetworkProblem, output: OutputMoments) -> float:
        """Log predictive probability of the targets of the fit, standardised, added over rows."""

    # ------------------------------------------------------------------ fitting

    @safe_interrupts()
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit the posterior to rows `X` (rows, inputs) and their targets `y` (rows,), or continue
        from the checkpoint. There must be at least three rows, at least as many rows as inputs, and
        no constant column.
        """
        self._check_options()
        rows, targets = self._read(X, y, reset=True)
        self._network = Network(rows.shape[1], self._n_hidden, self.skip)
        networks = self._family().n_networks
        rng = generator(self.random_state)
        with jax.enable_x64(True):
            problem = self._problem(rows, targets)
            starts = random_starts(self._network, self.n_init, rng, networks)
            fit = VariationalFit(problem, starts, self.max_iter, self.tol)
            run = self._bound_run()
            store = fit_store(self, np.column_stack([rows, targets]))
            limit = (self.n_init + 2) * (self.max_iter + 1) + MOST_HELD
            ended = iterate(VariationalFit.step, fit, run, tol=self.tol, limit=limit, store=store)
            if fit.ascent is None:
                raise KeyboardInterrupt
            flat, weights = fit.answer()
            self._problem_, self.pruning_, self.columns_ = problem, [], []
            self._keep(flat, weights)
        self._conclude(run, ended.iterations, ended.converged)
        return self

    def _standardise(self, rows: Array) -> None:
        """Keep means and spreads of the inputs; refuse tables that decide nothing."""
        count, inputs = rows.shape
        if count < 3:
            raise DataError(f"n_samples = {count}: at least 3 rows are needed")
        if count < inputs:
            raise DataError(
                f"{count} rows for {inputs} inputs: at least as many rows as inputs are needed; "
                "leave inputs out or reduce them, such as by PCA"
            )
        spread = rows.std(axis=0)
        constant = np.flatnonzero(spread <= 1e-12 * np.maximum(1.0, np.abs(rows).max(axis=0)))
        if len(constant):
            raise DataError(f"column {constant[0]} of X is constant; leave it out")
        self._input_mean, self._input_scale = rows.mean(axis=0), spread

    def _problem(self, rows: Array, targets: Array) -> NetworkProblem:
        weights = GammaDensity(self.weight_shape, self.weight_rate)
        hyper = Hyper(weights, self._noise_prior())
        return NetworkProblem(self._family(), self.prior, self._data(rows, targets), hyper)

    def _inputs(self, rows: Array) -> Any:
        """Standardised rows that end with a 1."""
        white = (rows - self._input_mean) / self._input_scale
        return jnp.asarray(np.column_stack([white, np.ones(len(rows))]))

    def _bound_run(self) -> Run:
        run = self._run()
        run.trace.objective_name = "bound"
        run.offset = self._shift()
        return run

    def _keep(self, flat: Array, weights: Weights) -> None:
        """Set the fitted attributes from the parameters of a posterior."""
        problem, network = self._problem_, self._network
        self._flat = np.asarray(flat)
        self._weights = Weights(*(np.asarray(a, dtype=np.float64) for a in weights))
        found = final_bound(problem, flat, weights)
        self.bound_ = float(found.value) + self._shift()
        self._learnt(found)
        groups = precisions(network, self.prior).names
        count = problem.posterior.n_networks
        means = np.asarray(found.alpha.mean).ravel().tolist()
        labels = [n if count == 1 else f"class {k}, {n}" for k in range(count) for n in groups]
        self.precisions_ = dict(zip(labels, means, strict=True))
        slopes = _slopes(problem.posterior, jnp.asarray(flat), weights, problem.filled.x)
        self.relevance_ = np.sqrt(np.mean(np.asarray(slopes)[: len(problem.data.y)], axis=0))
        pruning = Pruning(problem, self._flat, weights, self.tol)
        units, effective = pruning.owners()["unit"], pruning.effective_parameters(found)
        each = [effective[units == h].sum() for h in range(count * network.n_hidden)]
        self.hidden_relevance_ = np.array(each)
        rows = len(problem.data.y)
        moments = OutputMoments(*(np.asarray(a)[..., :rows] for a in found.output))
        self._score = self._log_probability(problem, moments) - float(np.sum(effective))
        self._set_kept()

    def _set_kept(self) -> None:
        network = self._network
        kept = (self._weights.kept > 0).reshape(-1, network.n_weights)
        self.weights_kept_ = kept if len(kept) > 1 else kept[0]
        left = [np.any(kept[:, network.units == h], axis=1) for h in range(network.n_hidden)]
        self.hidden_kept_ = np.array(left).T if len(kept) > 1 else np.ravel(left)
        begun = [network.inputs == i for i in range(network.n_inputs)]
        self.inputs_kept_ = np.array([bool(np.any(kept[:, own])) for own in begun])

    def _way_out(self) -> str:
        """Return advice if the inputs do not help."""
        other = " or prior='grouped'" if self.prior != "grouped" else ""
        return f"try a larger n_init{other}, fewer inputs, or more rows"

    def _conclude(self, run: Run, done: int, converged: bool) -> None:
        remarks = ending_remarks(run.stopped, converged, "bound", f"{done} steps")
        trivial = self._trivial(self._problem_)
        if np.all(self.relevance_ < _NO_EFFECT):
            remarks.append(
                "the fit has fallen to the prior: no input has an effect, and predictions are the "
                f"same for all rows; {self._way_out()}"
            )
        elif self._score < trivial.score:
            remarks.append(
                f"predictions are not better than {trivial.name}: {self._score:.1f} nats against "
                f"{trivial.score:.1f}, less one for each parameter that the data determine; "
                f"{self._way_out()}"
            )
        self.n_iter_, self.stopped_, self.converged_ = done, run.stopped, converged
        self.warnings_, self.trace_ = remarks, run.trace
        self._log_fit()

    # ------------------------------------------------------------------ answers

    def _rows(self, X: ArrayLike) -> Array:
        check_is_fitted(self, "precisions_")
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))

    def _moments(self, rows: Array) -> tuple[Array, Array]:
        """Mean and variance of the standardised output, block by block; rows are the last axis."""
        parts = []
        with jax.enable_x64(True):
            family, flat = self._family(), jnp.asarray(self._flat)
            weights = Weights(*map(jnp.asarray, self._weights))
            for first in range(0, len(rows), _BLOCK):
                block = rows[first : first + _BLOCK]
                size = min(_BLOCK, 1 << max(4, (len(block) - 1).bit_length()))
                padded = np.concatenate([block, np.zeros((size - len(block), rows.shape[1]))])
                found = output(family, flat, weights, self._inputs(padded))
                parts.append([np.asarray(a)[..., : len(block)] for a in found])
        mean, variance = (np.concatenate(both, axis=-1) for both in zip(*parts, strict=True))
        return mean, np.maximum(variance, 0.0)

    def _draws(self, count: int, rng: np.random.Generator) -> Any:
        """Vectors of weights (count, weights) of the posterior."""
        family = self._family()
        weights = Weights(*map(jnp.asarray, self._weights))
        q = family.read(jnp.asarray(self._flat[: family.size]), weights)
        return family.sample(q, jax.random.key(int(rng.integers(2**31))), count)

    # ------------------------------------------------------------------ structure

    @safe_interrupts()
    def prune(
        self, X: ArrayLike | None = None, y: ArrayLike | None = None, *, weights: bool = False
    ) -> Self:
        """Remove hidden units and inputs, with `weights` also single weights, for as long as the
        bound rises. `X` and `y` are the rows and targets of the fit.

        Each trial is in `pruning_`. A network that was read from a file needs the data again.

        Reference: LAW-L11.
        """
        check_is_fitted(self, "bound_")
        with jax.enable_x64(True):
            if X is not None and y is not None:
                self._problem_ = self._problem(*self._read(X, y, reset=False))
            elif not hasattr(self, "_problem_"):
                raise MethodError("prune: a network that was read from a file needs X and y")
            units = Weights(*map(jnp.asarray, self._weights))
            pruning = Pruning(self._problem_, self._flat, units, self.tol, weights)
            run = self._bound_run()
            limit = 2 * len(self._weights.kept) + 64
            iterate(lambda _: pruning.step(), Iterations(), run, tol=0.0, limit=limit)
            self._keep(pruning.flat, pruning.weights)
            shift = run.offset
        for trial in pruning.path():
            told = {"before": trial["before"] + shift, "after": trial["after"] + shift}
            self.pruning_ = [*self.pruning_, {**trial, **told}]
        if run.stopped in ("seconds", "interrupted"):
            self.warnings_.append(f"pruning stopped early ({run.stopped})")
        return self

    # ------------------------------------------------------------------ files

    positive: ClassVar[tuple[str, ...]] = ("input_scale",)

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        held = (
            self._flat, *self._weights, self._input_mean, self._input_scale,
            self.relevance_, self.hidden_relevance_,
        )  # fmt: skip
        about = {
            "bound": self.bound_,
            "precisions": self.precisions_,
            "pruning": self.pruning_,
            "columns": self.columns_,
            **self._facts(),
        }
        return dict(zip(_FITTED, held, strict=True)), {}, about

    @abstractmethod
    def _facts(self) -> dict[str, Any]:
        """Return the further content of a file, as plain data."""

    @abstractmethod
    def _restore_facts(self, about: Mapping[str, Any]) -> None:
        """Set what `_facts` gave."""

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        self.trace_.objective_name = "bound"
        held = {name: np.asarray(arrays[name], dtype=np.float64) for name in _FITTED}
        self._restore_facts(about)
        self._network = Network(self.n_features_in_, self._n_hidden, self.skip)
        family = self._family()
        free = family.n_networks * len(precisions(self._network, self.prior).free)
        weights = (family.n_weights,)
        shapes = {"flat": (family.size + free,), "scale": weights, "kept": weights}
        shapes["hidden_relevance_"] = (family.n_networks * self._n_hidden,)
        for name, array in held.items():
            wanted = shapes.get(name, (self.n_features_in_,))
            if array.shape != wanted or not np.all(np.isfinite(array)):
                raise DataError(f"its {name} is not that of such a network")
        self._flat, self._weights = held["flat"], Weights(held["scale"], held["kept"])
        self._input_mean, self._input_scale = held["input_mean"], held["input_scale"]
        self.relevance_, self.hidden_relevance_ = held["relevance_"], held["hidden_relevance_"]
        self.bound_ = of_type(about, "bound", float)
        self.precisions_ = dict(of_type(about, "precisions", dict))
        self.pruning_ = of_type(about, "pruning", list)
        self.columns_ = [str(name) for name in of_type(about, "columns", list)]
        self._set_kept()
