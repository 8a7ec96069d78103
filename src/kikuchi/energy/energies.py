"""Energies of rows: linear experts and richer ones, each a function of parameters and rows.

An `EnergyFunction` is called as `energy(parameters, rows)` and answers one number per row; JAX
differentiates it by both arguments, which is all that learning and sampling need (contrastive
backpropagation). A user's own function of that form is a model too.

Reference: TEH-I11, TEH-L11, TEH-M6, TEH-M7, TEH-M12 to M14, TEH-M13, TEH-M14, TEH-M18, TEH-M19,
TEH-M20.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kikuchi.core.errors import MethodError
from kikuchi.core.options import Configured, Registry, option
from kikuchi.energy.experts import EXPERTS, Expert

Array = NDArray[Any]
Parameters = dict[str, Any]
Energy = Callable[[Any, Any], Any]

INFINITE = "Z is infinite"
"""How the reason begins why a density has no Z."""


@dataclass(frozen=True)
class EnergyFunction(Configured, ABC, kind="energy"):
    """An energy with its first parameters; frozen, so that compiled loops are kept for it."""

    @abstractmethod
    def initial(self, n_columns: int, n_features: int, rng: np.random.Generator) -> Parameters:
        """Parameters before learning."""

    @abstractmethod
    def __call__(self, parameters: Any, x: Any) -> Any:
        """Energy of each row."""

    @abstractmethod
    def features(self, parameters: Any, x: Any) -> Any:
        """The features of each row: one pass forward."""

    def proper(self, parameters: Any) -> str | None:
        """Why Z may be infinite; None where it is known to be finite."""
        return None


def random_filters(n_features: int, n_columns: int, rng: np.random.Generator) -> Array:
    """Filters of length 1 in random directions, one per row."""
    filters = rng.normal(size=(n_features, n_columns))
    lengths = np.linalg.norm(filters, axis=1, keepdims=True)
    return np.asarray(filters / lengths, dtype=np.float32)


@dataclass(frozen=True)
class LinearExperts(EnergyFunction):
    """E(x) = sum_i E_i(w_i' x) + g(|x|): one expert on each linear feature.

    Products of experts of one scale each cannot describe rows whose lengths, the contrasts of
    patches, differ by orders of magnitude. With `contrast` steps g(r) in D dimensions is
    D sum_k v_k r² / (r² + l_k²) + (D + 1) / 2 log(1 + r² / L²), with learnt v_k and fixed l_k and
    L, the last twice the largest l_k; otherwise it is 0. The steps are bounded and the tail is that
    of a Cauchy distribution of D dimensions: Z is finite whatever was learnt, but has no closed
    form.

    >>> energy = LinearExperts(expert="logistic")
    >>> parameters = {"filters": np.array([[1.0, 0.5], [-0.3, 0.8]])}
    >>> round(float(energy(parameters, np.zeros((1, 2)))[0]), 5)  # twice log 4
    2.77259
    """

    name: ClassVar[str] = "linear"
    summary: ClassVar[str] = "one expert on each linear feature"

    expert: str = option("student-t", "density of one feature")
    contrast: int = option(0, "steps of a learnt energy of the row's length; 0: none", low=0)

    @cached_property
    def experts(self) -> Expert:
        """The expert that the text names."""
        return EXPERTS.parse(self.expert)

    def initial(self, n_columns: int, n_features: int, rng: np.random.Generator) -> Parameters:
        """Filters of length 1 in random directions."""
        parameters: Parameters = {"filters": random_filters(n_features, n_columns, rng)}
        if self.experts.first_shape is not None:
            first = np.log(self.experts.first_shape)
            parameters["log_shapes"] = np.full(n_features, first, dtype=np.float32)
        if self.contrast:
            parameters["contrast"] = np.zeros(self.contrast, dtype=np.float32)
            spread = np.linspace(-2.0, 2.0, self.contrast, dtype=np.float32)
            parameters["log_lengths"] = spread + np.float32(0.5 * np.log(n_columns))
        return parameters

    def __call__(self, parameters: Any, x: Any) -> Any:
        """Sum of the experts' energies, and that of the length."""
        energies = self.experts.energy(self.features(parameters, x), shapes_of(parameters))
        total = jnp.sum(energies, axis=-1)
        if not self.contrast:
            return total
        return total + contrast_energy(parameters, jnp.sum(x * x, axis=-1))

    def features(self, parameters: Any, x: Any) -> Any:
        """w_i' x."""
        return x @ parameters["filters"].T

    def proper(self, parameters: Any) -> str | None:
        """Full rank, and for Student's t enough weight in every subspace; the tail of contrast."""
        if self.contrast:
            return None
        shapes = shapes_of(parameters)
        return improper(parameters["filters"], None if shapes is None else np.asarray(shapes))

    def log_z(self, parameters: Any) -> Any:
        """log Z of a square model: the experts' normalisers over |det filters|."""
        self.need_exact()
        normalisers = self.experts.log_normaliser(shapes_of(parameters))
        count = parameters["filters"].shape[0]
        total = jnp.sum(jnp.broadcast_to(normalisers, (count,)))
        return total - jnp.linalg.slogdet(parameters["filters"])[1]

    def draw(self, parameters: Any, count: int, key: Any) -> Any:
        """Exact samples of a square model: features drawn alone, and the rows that have them."""
        self.need_exact()
        filters = parameters["filters"]
        u = self.experts.draw(key, (count, filters.shape[0]), shapes_of(parameters))
        return jnp.linalg.solve(filters, u.T.astype(filters.dtype)).T

    def need_exact(self) -> None:
        """Refuse an energy of the length, with which features are not independent."""
        if self.contrast:
            raise MethodError(
                f"energy {self.text}: with contrast there is no exact Z, also where there are as "
                "many features as columns; leave contrast out, or use cd and log Z by ais"
            )


def contrast_energy(parameters: Any, squares: Any) -> Any:
    """g of rows with these squared lengths; the places of its steps are not learnt."""
    log_lengths = jax.lax.stop_gradient(parameters["log_lengths"])
    ratios = squares[..., None] * jnp.exp(-2.0 * log_lengths)
    steps = 1.0 - 1.0 / (1.0 + ratios)
    dimension = parameters["filters"].shape[1]
    tail = 0.5 * (dimension + 1) * jnp.log1p(0.25 * ratios[..., -1])
    return dimension * (steps @ parameters["contrast"]) + tail


def begin_contrast(parameters: Parameters, rows: Array) -> Parameters:
    """First parameters with the places l_k of the steps spread over the log lengths of these rows,
    extremes left out.

    Student-t experts begin in their tails: filters so long that the features of three quarters of
    the rows have a mean square above 1, and shapes that sum to no more than the dimension. From
    filters of length 1 the steps would explain all lengths, and many filters stay short.

    >>> energy = LinearExperts(contrast=3)
    >>> rows = np.diag(np.exp(np.linspace(0.0, 4.0, 5001)))
    >>> first = energy.initial(5001, 4, np.random.default_rng(0))
    >>> begin_contrast(first, rows)["log_lengths"].round(2).tolist()
    [0.0, 2.0, 4.0]
    """
    count, dimension = parameters["filters"].shape
    lengths = np.linalg.norm(rows, axis=1)
    low, quarter, high = np.quantile(np.log(lengths[lengths > 0]), (0.001, 0.25, 0.999))
    places = np.linspace(low, high, len(parameters["contrast"]), dtype=np.float32)
    first = {**parameters, "log_lengths": places}
    if "log_shapes" in parameters:
        scale = np.sqrt(dimension) / np.exp(quarter)
        first["filters"] = (scale * parameters["filters"]).astype(np.float32)
        most = np.float32(np.log(dimension / count))
        first["log_shapes"] = np.minimum(parameters["log_shapes"], most)
    return first


def square_experts(energy: Energy, parameters: Any) -> LinearExperts | None:
    """The linear experts of a model with as many features as columns, whose Z is exact."""
    if not isinstance(energy, LinearExperts) or energy.contrast:
        return None
    features, columns = parameters["filters"].shape
    return energy if features == columns else None


def shapes_of(parameters: Any) -> Any:
    """The positive shapes of the experts, if they have some."""
    return jnp.exp(parameters["log_shapes"]) if "log_shapes" in parameters else None


def improper(filters: Any, shapes: Array | None) -> str | None:
    """Why the integral of a product of experts is or may be infinite; None where it is finite.

    Without shapes (tails at least exponential) full rank is enough. For Student's t the integral is
    finite when 2 sum of the shapes of filters not orthogonal to L exceeds dim L for every subspace
    L that is not zero. That it is not is seen at the complements of what the filters with the
    largest shapes span. That it is, is proved by weights under which every filter's leverage
    v_i w_i' (sum_j v_j w_j w_j')^-1 w_i is less than twice its shape: those of filters orthogonal
    to L sum to at most the rest of the dimensions, and all of them to all.

    >>> improper(np.eye(2), np.array([1.0, 0.4]))
    'Z is infinite: shapes that sum to 0.4 stand alone in a subspace of dimension 1; raise them'
    """
    filters = np.asarray(filters, dtype=np.float64)
    dimension = filters.shape[1]
    rank = int(np.linalg.matrix_rank(filters))
    if rank < dimension:
        return (
            f"{INFINITE}: {len(filters)} filters span {rank} of {dimension} dimensions; use "
            "more features, or fewer columns"
        )
    if shapes is None:
        return None
    strong = filters[shapes > 0.5]
    if len(strong) and np.linalg.matrix_rank(strong) == dimension:
        return None
    spanned, basis = 0, np.zeros((dimension, dimension))  # of the filters with the largest shapes
    order = np.argsort(-shapes)
    for count, row in enumerate(filters[order]):
        rest = float(shapes[order[count:]].sum())
        if 2.0 * rest <= dimension - spanned:
            return (
                f"{INFINITE}: shapes that sum to {rest:g} stand alone in a subspace of "
                f"dimension {dimension - spanned}; raise them"
            )
        left = row - basis.T @ (basis @ row)
        left -= basis.T @ (basis @ left)
        if np.linalg.norm(left) > 1e-10 * np.linalg.norm(row):
            basis[spanned] = left / np.linalg.norm(left)
            spanned += 1
        if spanned == dimension:
            break
    if _outweighed(filters, 2.0 * shapes):
        return None
    return "Z may be infinite: no proof was found that the shapes suffice in every subspace"


def _outweighed(filters: Array, limits: Array, rounds: int = 200) -> bool:
    """Whether weights were found under which the leverages of all filters are below limits."""
    lengths = np.linalg.norm(filters, axis=1)
    filters, limits = filters[lengths > 0] / lengths[lengths > 0, None], limits[lengths > 0]
    weights = np.ones(len(filters))
    for _ in range(rounds):
        parts, triangle = np.linalg.qr(filters * np.sqrt(weights)[:, None])
        if np.linalg.cond(triangle) > 1e7:
            return False  # leverages would be rounding
        leverages = np.sum(parts**2, axis=1)
        if np.all(leverages < limits):
            return True
        weights *= np.minimum(limits, 1.0) / leverages
        weights /= weights.max()
    return False


@dataclass(frozen=True)
class FilterEnergy(EnergyFunction):
    """Base of energies that are proper if their linear features are: what stands above them is
    bounded. Of sequences the filters are those of one frame.
    """

    def proper(self, parameters: Any) -> str | None:
        """The test of linear experts."""
        return improper(parameters["filters"], np.asarray(shapes_of(parameters)))


@dataclass(frozen=True)
class Topographic(FilterEnergy):
    """E(x) = sum_i shape_i log(1 + sum of (w_j' x)² over the neighbours j of i).

    Features lie on a square grid that is closed at its borders; neighbours learn filters alike.
    """

    name: ClassVar[str] = "topographic"
    summary: ClassVar[str] = "two layers: experts on sums of squares of neighbouring features"

    reach: int = option(1, "neighbours on each side of the grid", low=0)

    def initial(self, n_columns: int, n_features: int, rng: np.random.Generator) -> Parameters:
        """Random filters; the number of features must be a square."""
        side = round(n_features**0.5)
        if side * side != n_features or side <= 2 * self.reach:
            better = max(side, 2 * self.reach + 1) ** 2
            raise MethodError(
                f"energy topographic: {n_features} features are no square grid wider than "
                f"{2 * self.reach}; give a square number such as {better}"
            )
        shapes = np.zeros(n_features, dtype=np.float32)
        return {"filters": random_filters(n_features, n_columns, rng), "log_shapes": shapes}

    def pooled(self, u: Any) -> Any:
        """Sums of squares over the neighbourhood of each feature."""
        side = round(u.shape[-1] ** 0.5)
        squares = (u * u).reshape(*u.shape[:-1], side, side)
        shifts = range(-self.reach, self.reach + 1)
        rows = sum(jnp.roll(squares, s, axis=-1) for s in shifts)
        total: Any = sum(jnp.roll(rows, s, axis=-2) for s in shifts)
        return total.reshape(u.shape)

    def __call__(self, parameters: Any, x: Any) -> Any:
        """Student's t on pooled squares."""
        pooled = self.pooled(x @ parameters["filters"].T)
        return jnp.sum(shapes_of(parameters) * jnp.log1p(pooled), axis=-1)

    def features(self, parameters: Any, x: Any) -> Any:
        """w_i' x of the first layer."""
        return x @ parameters["filters"].T

    def proper(self, parameters: Any) -> str | None:
        """A pool grows at least as its own feature does: proper where linear experts are, and
        perhaps elsewhere.
        """
        filters, shapes = parameters["filters"], np.asarray(shapes_of(parameters))
        if (fault := improper(filters, None)) or improper(filters, shapes) is None:
            return fault
        return "Z may be infinite: linear experts with these shapes are not known to have one"


@dataclass(frozen=True)
class FeedForward(FilterEnergy):
    """Student's t on a linear layer and on the outputs of tanh layers above it."""

    name: ClassVar[str] = "feed-forward"
    summary: ClassVar[str] = "tanh layers above linear features, experts on every layer"

    layers: int = option(1, "tanh layers above the linear one", low=1)

    def initial(self, n_columns: int, n_features: int, rng: np.random.Generator) -> Parameters:
        """Random layers of equal size."""
        zeros = np.zeros(n_features, dtype=np.float32)
        parameters: Parameters = {
            "filters": random_filters(n_features, n_columns, rng),
            "log_shapes": zeros,
        }
        for k in range(self.layers):
            weights = rng.normal(size=(n_features, n_features)) / np.sqrt(n_features)
            parameters[f"weights{k}"] = weights.astype(np.float32)
            parameters[f"bias{k}"] = zeros.copy()
            parameters[f"strengths{k}"] = np.full(n_features, 0.1, dtype=np.float32)
        return parameters

    def _layers(self, parameters: Any, x: Any) -> list[Any]:
        outputs = [x @ parameters["filters"].T]
        for k in range(self.layers):
            inputs = outputs[-1] @ parameters[f"weights{k}"] + parameters[f"bias{k}"]
            outputs.append(jnp.tanh(inputs))
        return outputs

    def __call__(self, parameters: Any, x: Any) -> Any:
        """Experts on the linear layer, and on each output times its strength above."""
        first, *above = self._layers(parameters, x)
        energy = jnp.sum(shapes_of(parameters) * jnp.log1p(first * first), axis=-1)
        for k, y in enumerate(above):
            energy = energy + jnp.sum(parameters[f"strengths{k}"] * y * y, axis=-1)
        return energy

    def features(self, parameters: Any, x: Any) -> Any:
        """Outputs of the last layer."""
        return self._layers(parameters, x)[-1]


@dataclass(frozen=True)
class ActivityEnergy(FilterEnergy):
    """Base of energies of a linear input and of the history of the activities that it sets off."""

    @abstractmethod
    def _history(self, parameters: Any, x: Any) -> tuple[Any, list[Any]]:
        """The linear inputs, and the activities of each step or frame."""

    def __call__(self, parameters: Any, x: Any) -> Any:
        """Experts on the inputs and on the activities of all steps or frames."""
        inputs, history = self._history(parameters, x)
        axes = tuple(range(x.ndim - 1, inputs.ndim))
        energy = jnp.sum(shapes_of(parameters) * jnp.log1p(inputs * inputs), axis=axes)
        return energy + sum(jnp.sum(parameters["strengths"] * y * y, axis=-1) for y in history)

    def features(self, parameters: Any, x: Any) -> Any:
        """Activities after the last step or frame."""
        return self._history(parameters, x)[1][-1]


@dataclass(frozen=True)
class Recurrent(ActivityEnergy):
    """Features that act on each other for a fixed number of steps, y <- tanh(W x + V y).

    The energy is Student's t on the linear input and on the history of the activities. With
    `inhibition` V is minus a symmetric matrix of positive numbers without diagonal: features
    compete, and settle half way to their new values in each step.
    """

    name: ClassVar[str] = "recurrent"
    summary: ClassVar[str] = "features that act on each other, a fixed number of steps"

    steps: int = option(5, "steps of the activities", low=1)
    inhibition: bool = option(False, "connections that inhibit only, symmetric")

    def initial(self, n_columns: int, n_features: int, rng: np.random.Generator) -> Parameters:
        """Random filters, weak connections."""
        zeros = np.zeros(n_features, dtype=np.float32)
        weak = 0.1 * rng.normal(size=(n_features, n_features)) / np.sqrt(n_features)
        return {
            "filters": random_filters(n_features, n_columns, rng),
            "log_shapes": zeros,
            "lateral": weak.astype(np.float32),
            "strengths": np.full(n_features, 0.1, dtype=np.float32),
        }

    def _connections(self, parameters: Any) -> Any:
        raw = parameters["lateral"]
        if not self.inhibition:
            return raw
        positive = jax.nn.softplus(raw + raw.T) / raw.shape[0]
        return -positive * (1.0 - jnp.eye(raw.shape[0], dtype=raw.dtype))

    def _history(self, parameters: Any, x: Any) -> tuple[Any, list[Any]]:
        inputs, connections = x @ parameters["filters"].T, self._connections(parameters)
        history = [jnp.tanh(inputs)]
        for _ in range(self.steps - 1):
            new = jnp.tanh(inputs + history[-1] @ connections)
            history.append(0.5 * (history[-1] + new) if self.inhibition else new)
        return inputs, history


@dataclass(frozen=True)
class SequenceEnergy(ActivityEnergy):
    """Rows that are sequences: activities y_t = tanh(W x_t + V y_(t-1)) see one frame after the
    other.

    A row is `frames` frames of equal size, one behind the other. The energy is Student's t on the
    linear input of every frame and on the activities, so that what came before changes what is
    expected.
    """

    name: ClassVar[str] = "sequence"
    summary: ClassVar[str] = "recurrent features of rows that are sequences of frames"

    frames: int = option(2, "frames of a row", low=1)

    def initial(self, n_columns: int, n_features: int, rng: np.random.Generator) -> Parameters:
        """Random filters of one frame, weak connections."""
        if n_columns % self.frames:
            raise MethodError(
                f"energy sequence: {n_columns} columns are not {self.frames} frames of equal size; "
                "whiten='none' keeps the columns of the rows"
            )
        return Recurrent().initial(n_columns // self.frames, n_features, rng)

    def _history(self, parameters: Any, x: Any) -> tuple[Any, list[Any]]:
        sequence = x.reshape(*x.shape[:-1], self.frames, -1)
        inputs = sequence @ parameters["filters"].T
        activity = jnp.zeros_like(inputs[..., 0, :])
        history = []
        for t in range(self.frames):
            activity = jnp.tanh(inputs[..., t, :] + activity @ parameters["lateral"])
            history.append(activity)
        return inputs, history


@dataclass(frozen=True)
class InfomaxManifold(EnergyFunction):
    """E(x) = -1/2 log det J'J of the sigmoid outputs y = sigmoid(B x).

    Rows are mapped to the uniform distribution on the manifold of all outputs; Z is its volume.
    Costs the cube of the number of columns per row.
    """

    name: ClassVar[str] = "manifold"
    summary: ClassVar[str] = "volume of the map to sigmoid outputs, as overcomplete infomax"

    def initial(self, n_columns: int, n_features: int, rng: np.random.Generator) -> Parameters:
        """Random filters."""
        return {"filters": random_filters(n_features, n_columns, rng)}

    def __call__(self, parameters: Any, x: Any) -> Any:
        """Minus half the log determinant of the Gram matrix."""
        filters = parameters["filters"]
        u = x @ filters.T
        slopes = jax.nn.sigmoid(u) * jax.nn.sigmoid(-u)
        gram = jnp.einsum("...i,ia,ib->...ab", slopes * slopes, filters, filters)
        return -0.5 * jnp.linalg.slogdet(gram)[1]

    def features(self, parameters: Any, x: Any) -> Any:
        """sigmoid(B x)."""
        return jax.nn.sigmoid(x @ parameters["filters"].T)

    def proper(self, parameters: Any) -> str | None:
        """The manifold lies within a cube: full rank is enough."""
        return improper(parameters["filters"], None)


@dataclass(frozen=True)
class UniformGaussian(EnergyFunction):
    """Experts that mix a Gaussian with a uniform density, and one broad Gaussian.

    The thesis's negative result: it learns toy data and fails on images, and so do its extensions:
    Gaussians with the covariance of a factor analyser (`factors`), and a second one in the place of
    the uniform density (`pairs`). The broad Gaussian makes the product proper; `log_odds` are those
    of the Gaussian against the uniform part at its centre.
    """

    name: ClassVar[str] = "uniform-gaussian"
    summary: ClassVar[str] = "mixtures of a Gaussian and a uniform density; a negative result"

    factors: int = option(0, "factors of each Gaussian's covariance", low=0)
    pairs: bool = option(False, "mixtures of two Gaussians, without a uniform density")

    def initial(self, n_columns: int, n_features: int, rng: np.random.Generator) -> Parameters:
        """Centres, widths and factors at random."""
        shape = (2 if self.pairs else 1, n_features, n_columns)
        loadings = 0.1 * rng.normal(size=(*shape, self.factors))
        parameters = {
            "centres": rng.normal(size=shape),
            "log_widths": np.zeros(shape),
            "log_odds": np.zeros(shape[:2]),
            "log_breadth": np.array(np.log(3.0)),
            **({"loadings": loadings} if self.factors else {}),
        }
        return {name: value.astype(np.float32) for name, value in parameters.items()}

    def _log_ratios(self, parameters: Any, x: Any) -> Any:
        """Log of each Gaussian over the uniform density: (..., Gaussians of an expert, experts).

        With z = (x - centre) / width and loadings L of z the inverse of the covariance 1 + L L' is
        1 - L (1 + L' L)^-1 L'.
        """
        z = (x[..., None, None, :] - parameters["centres"]) * jnp.exp(-parameters["log_widths"])
        squares = jnp.sum(z * z, axis=-1)
        if self.factors:
            loadings = parameters["loadings"]
            gram = jnp.einsum("gedf,gedh->gefh", loadings, loadings)
            inverse = jnp.linalg.inv(gram + jnp.eye(self.factors, dtype=loadings.dtype))
            seen = jnp.einsum("...ged,gedf->...gef", z, loadings)
            squares = squares - jnp.einsum("...gef,gefh,...geh->...ge", seen, inverse, seen)
        return parameters["log_odds"] - 0.5 * squares

    def __call__(self, parameters: Any, x: Any) -> Any:
        """Minus the logs of the experts, and the broad Gaussian's energy."""
        breadth = jnp.exp(-2.0 * parameters["log_breadth"])
        ratios = self._log_ratios(parameters, x)
        first = ratios[..., 0, :]
        experts = jnp.logaddexp(first, ratios[..., 1, :]) if self.pairs else jax.nn.softplus(first)
        return 0.5 * breadth * jnp.sum(x * x, axis=-1) - jnp.sum(experts, axis=-1)

    def features(self, parameters: Any, x: Any) -> Any:
        """Probability that each expert's (first) Gaussian made the row."""
        ratios = self._log_ratios(parameters, x)
        other = ratios[..., 1, :] if self.pairs else 0.0
        return jax.nn.sigmoid(ratios[..., 0, :] - other)


def clamped_energy(expert: str, filters: Array, auxiliary: Array, x: Any, z: Any) -> Any:
    """-log p(x, z) of the larger ICA whose auxiliary inputs z, at 0, give the overcomplete model.

    `auxiliary` are the filters of z, (features, features - columns), so that the filters together
    are square. p(x | z = 0) does not depend on them.

    `expert` is the kind of experts, `filters` are those of `x`, the rows; `z` are the auxiliary
    inputs.

    >>> filters, auxiliary = np.array([[1.0], [2.0]]), np.array([[0.5], [1.0]])
    >>> clamped_energy("logistic", filters, auxiliary, np.zeros((1, 1)), np.ones((1, 1)))
    Traceback (most recent call last):
    ...
    kikuchi.core.errors.MethodError: filters and auxiliary filters must be a regular square matrix
    """
    whole = np.hstack([filters, auxiliary])
    if whole.shape[0] != whole.shape[1] or np.linalg.matrix_rank(whole) < len(whole):
        raise MethodError("filters and auxiliary filters must be a regular square matrix")
    square = LinearExperts(expert=expert)
    parameters = {"filters": jnp.asarray(whole)}
    rows = jnp.concatenate([jnp.asarray(x), jnp.asarray(z)], axis=1)
    return square(parameters, rows) + square.log_z(parameters)


ENERGIES: Registry[EnergyFunction] = Registry(
    "kikuchi.energy",
    "energy",
    {
        cls.name: cls
        for cls in (
            LinearExperts,
            Topographic,
            FeedForward,
            Recurrent,
            SequenceEnergy,
            InfomaxManifold,
            UniformGaussian,
        )
    },
)
