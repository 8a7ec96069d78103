"""Densities of mixtures of flows, and of one flow with a Gaussian mixture as latent.

`FlowSpec` describes the structure of a model; its parameters are dictionaries of arrays.
A model has `groups` of `components`: one group for a density, one per class or hidden state.

    mixture:  p(x) = sum_k pi_k N(f_k(W_k (x - m_k)); 0, I) |det f_k'| |det W_k|
    latent:   p(x) = |det f'(x)| sum_k pi_k N(W_k (f(x) - m_k); 0, I) |det W_k|

W_k is lower triangular, so that a mixture whose flows are the identity is a Gaussian mixture with
full covariances (W_k' W_k)^-1.

Reference: LIU-M12, LIU-M13, LIU-M14, LIU-M14..
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.errors import DataError
from kikuchi.flows.bijections import FLOWS, joined_bijection, split_bijection
from kikuchi.training.checkpoint import check_like, part, prefixed
from kikuchi.training.model import PytreeModel
from kikuchi.training.optimiser import precision

_LOG_2PI = math.log(2.0 * math.pi)
_FAR = 1e12  # deviations of the columns from which latent values may overflow
_PARTS = (128, 1024)  # rows of one compiled evaluation


@dataclass(frozen=True)
class FlowSpec:
    """The structure of a model; equal specs share compiled programs.

    `form` is mixture (one flow per component) or latent (one flow per group).
    """

    form: Literal["mixture", "latent"]
    flow: str
    columns: int
    components: int
    groups: int = 1
    image: tuple[int, int, int] | None = None
    double: bool = False
    seed: int = 0

    @property
    def dtype(self) -> Any:
        """Type of the numbers."""
        return np.float64 if self.double else np.float32

    @property
    def flow_axes(self) -> tuple[int, ...]:
        """Leading axes of the parameters of flows."""
        return (self.groups, self.components) if self.form == "mixture" else (self.groups,)

    @property
    def entries(self) -> int:
        """Numbers of a lower triangular matrix."""
        return self.columns * (self.columns + 1) // 2

    def facts(self) -> dict[str, Any]:
        """Plain data for files."""
        return asdict(self) | {"image": None if self.image is None else list(self.image)}

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> FlowSpec:
        """The spec of a file."""
        image = facts["image"]
        told = {name: facts[name] for name in cls.__dataclass_fields__}
        if told["form"] not in ("mixture", "latent"):
            raise DataError(f"there is no flow model of form {told['form']!r}")
        return cls(**(told | {"image": None if image is None else tuple(image)}))


@lru_cache(maxsize=256)
def _built(spec: FlowSpec) -> tuple[dict[str, Any], Any, Any] | None:
    """First parameters of one flow by name, their tree and the rest; None for the identity."""
    with jax.enable_x64(spec.double):  # not compiled as a whole: layers keep arrays in closures
        made = FLOWS.parse(spec.flow).bijection(spec.columns, spec.image, spec.seed)
        return None if made is None else split_bijection(made)


def first_flows(spec: FlowSpec, rng: np.random.Generator) -> dict[str, Array]:
    """Parameters of all flows before learning: identities whose hidden weights differ."""
    built = _built(spec)
    if built is None:
        return {}
    found = {}
    for name, leaf in built[0].items():
        array = np.asarray(leaf, dtype=spec.dtype)
        stacked = np.broadcast_to(array, (*spec.flow_axes, *array.shape)).copy()
        if array.ndim >= 2 and stacked.size > array.size:
            signs = rng.choice([-1.0, 1.0], size=(*spec.flow_axes, *array.shape[:-1], 1))
            stacked = (stacked * signs).astype(spec.dtype)
        found[name] = stacked
    return found


class FlowDensity(PytreeModel):
    """Parameters of a model of flows: `base` arrays in one line each, and those of the flows.

    The base is kept in one line so that weight decay, which is for matrices, leaves it as it is.
    """

    kind: ClassVar[str] = "flow-density"
    weight_limit: ClassVar[float] = 1e5

    def __init__(self, parameters: Any, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__({"flow": {}, **parameters}, facts)  # files do not hold empty branches
        self.spec = FlowSpec.read(self.facts)
        _built(self.spec)  # outside of any compiled function
        self.batch_dtype: DTypeLike | None = self.spec.dtype

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> Self:
        """The model of a file, whose arrays must be those of its spec."""
        spec = FlowSpec.read(facts)
        each = spec.groups * spec.components
        sizes = {"logits": each, "means": each * spec.columns, "whiteners": each * spec.entries}
        wanted = {f"base/{name}": np.zeros(size, spec.dtype) for name, size in sizes.items()}
        wanted |= prefixed(first_flows(spec, np.random.default_rng(0)), "flow")
        check_like(part(arrays, "parameters"), wanted)
        return super().from_arrays(arrays, facts)

    @classmethod
    def of(cls, spec: FlowSpec, base: Mapping[str, Array], rng: np.random.Generator) -> Self:
        """A model that is the Gaussian mixture of `base` (weights, means, covariances)."""
        packed = pack_base(spec, base["weights"], base["means"], base["covariances"])
        return cls({"base": packed, "flow": first_flows(spec, rng)}, spec.facts())


# ---------------------------------------------------------------------- the base


def pack_base(spec: FlowSpec, weights: Array, means: Array, covariances: Array) -> dict[str, Array]:
    """Logits, means and whitening matrices of Gaussians, each in one line.

    Shapes are (groups, components), (.., columns) and (.., columns, columns).
    """
    factors = np.linalg.cholesky(np.asarray(covariances, dtype=np.float64))
    whiteners = np.linalg.inv(factors)
    i, j = np.tril_indices(spec.columns)
    raw = whiteners.copy()
    d = np.arange(spec.columns)
    raw[..., d, d] = np.log(whiteners[..., d, d])
    with np.errstate(divide="ignore"):
        logits = np.maximum(np.log(np.asarray(weights, dtype=np.float64)), -50.0)
    arrays = {"logits": logits, "means": np.asarray(means), "whiteners": raw[..., i, j]}
    return {name: a.astype(spec.dtype).ravel() for name, a in arrays.items()}


def unpack_base(spec: FlowSpec, base: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Log-weights (G, K), means (G, K, d), whiteners (G, K, d, d) and their log-determinants."""
    shape, d = (spec.groups, spec.components), spec.columns
    weights = jax.nn.log_softmax(jnp.asarray(base["logits"]).reshape(shape), axis=-1)
    raw = jnp.asarray(base["whiteners"]).reshape(*shape, spec.entries)
    i, j = np.tril_indices(d)
    diagonal = np.flatnonzero(i == j)
    log_det = jnp.sum(raw[..., diagonal], axis=-1)
    raw = raw.at[..., diagonal].set(jnp.exp(raw[..., diagonal]))
    whiteners = jnp.zeros((*shape, d, d), raw.dtype).at[..., i, j].set(raw)
    return weights, base["means"].reshape(*shape, d), whiteners, log_det


@dataclass(frozen=True)
class BaseFloor:
    """Keeps the scales of Gaussians above a floor: no component collapses on a row."""

    spec: FlowSpec
    floor: float

    def __call__(self, parameters: Any) -> Any:
        """Parameters with whitening diagonals of at most 1 / floor."""
        base = parameters["base"]
        i, j = np.tril_indices(self.spec.columns)
        raw = base["whiteners"].reshape(-1, self.spec.entries)
        most = -math.log(self.floor)
        limited = jnp.where((i == j)[None], jnp.minimum(raw, most), raw).ravel()
        return {**parameters, "base": {**base, "whiteners": limited}}


# ---------------------------------------------------------------------- densities


def _through_flow(spec: FlowSpec, leaves: Any, rows: Any) -> tuple[Any, Any]:
    """Latent rows and log-determinants of one flow."""
    built = _built(spec)
    if built is None:
        return rows, jnp.zeros(len(rows), rows.dtype)
    bijection = joined_bijection(leaves, built[1], built[2])
    through: tuple[Any, Any] = jax.vmap(bijection.transform_and_log_det)(rows)
    return through


def _log_normal(z: Any) -> Any:
    return -0.5 * jnp.sum(z * z, axis=-1) - 0.5 * z.shape[-1] * _LOG_2PI


def _group_joint(spec: FlowSpec, leaves: Any, base: Any, rows: Any) -> Any:
    """log pi_k p_k(x) of the rows of one group, (rows, components)."""
    weights, means, whiteners, log_det = base

    def component(leaf: Any, mean: Any, whitener: Any) -> Any:
        z, inner = _through_flow(spec, leaf, (rows - mean) @ whitener.T)
        return _log_normal(z) + inner

    if spec.form == "mixture":
        logs = jax.vmap(component)(leaves, means, whiteners)
    else:
        z, inner = _through_flow(spec, leaves, rows)
        logs = jax.vmap(lambda m, w: _log_normal((z - m) @ w.T) + inner)(means, whiteners)
    return logs.T + weights + log_det


def log_joint(spec: FlowSpec, parameters: Any, rows: Any) -> Any:
    """log pi_k p_k(x) of rows (n, d) in every group: (n, groups, components)."""
    base = unpack_base(spec, parameters["base"])
    each: Any = jax.vmap(lambda f, b: _group_joint(spec, f, b, rows), out_axes=1)
    return each(parameters["flow"], base)


def log_joint_of_groups(spec: FlowSpec, parameters: Any, rows: Any) -> Any:
    """The same where every group has rows of its own: (n, groups, d) to (n, groups, components)."""
    base = unpack_base(spec, parameters["base"])
    each: Any = jax.vmap(lambda f, b, x: _group_joint(spec, f, b, x), in_axes=(0, 0, 1), out_axes=1)
    return each(parameters["flow"], base, rows)


def latent_rows(spec: FlowSpec, parameters: Any, rows: Any) -> Any:
    """Latent values: (n, components, d) of a mixture, (n, 1, d) of one flow; the first group."""
    leaves = {name: leaf[0] for name, leaf in parameters["flow"].items()}
    if spec.form == "latent":
        return _through_flow(spec, leaves, rows)[0][:, None]
    _, means, whiteners, _ = unpack_base(spec, parameters["base"])

    def component(leaf: Any, mean: Any, whitener: Any) -> Any:
        return _through_flow(spec, leaf, (rows - mean) @ whitener.T)[0]

    return jax.vmap(component, out_axes=1)(leaves, means[0], whiteners[0])


def drawn_rows(spec: FlowSpec, parameters: Any, noise: Any, groups: Any, components: Any) -> Any:
    """Rows of the model for standard normal `noise`, each from a given group and component."""
    if spec.form == "latent":
        _, means, whiteners, _ = unpack_base(spec, parameters["base"])
        noise = jax.vmap(_unwhitened)(
            means[groups, components], whiteners[groups, components], noise
        )
    return _through_inverse(spec, parameters, noise, groups, components)


def rows_of_latent(spec: FlowSpec, parameters: Any, latent: Any, components: Any) -> Any:
    """Rows of the first group whose latent values, of these components, are given: the inverse of
    `latent_rows`.
    """
    return _through_inverse(spec, parameters, latent, jnp.zeros_like(components), components)


def _unwhitened(mean: Any, whitener: Any, z: Any) -> Any:
    solve: Any = jax.scipy.linalg.solve_triangular
    return solve(whitener, z, lower=True) + mean


def _through_inverse(
    spec: FlowSpec, parameters: Any, latent: Any, groups: Any, components: Any
) -> Any:
    _, means, whiteners, _ = unpack_base(spec, parameters["base"])
    built = _built(spec)

    def one(z: Any, g: Any, k: Any) -> Any:
        if built is not None:
            at = (g, k) if spec.form == "mixture" else (g,)
            leaves = {name: leaf[at] for name, leaf in parameters["flow"].items()}
            z = joined_bijection(leaves, built[1], built[2]).inverse(z)
        return _unwhitened(means[g, k], whiteners[g, k], z) if spec.form == "mixture" else z

    return jax.vmap(one)(latent, groups, components)


# ---------------------------------------------------------------------- compiled, in parts


@cache
def _compiled(spec: FlowSpec, what: Any) -> Any:
    return jax.jit(lambda parameters, *parts: what(spec, parameters, *parts))


def in_parts(spec: FlowSpec, what: Any, parameters: Any, *arrays: Any) -> Array:
    """`what(spec, parameters, *arrays)` in parts of one of two fixed sizes, so that any number of
    rows shares two compiled programs.
    """
    count = len(arrays[0])
    size = _PARTS[0] if count <= _PARTS[0] else _PARTS[1]
    program = _compiled(spec, what)
    answers = []
    with precision(parameters):
        for first in range(0, count, size):
            cut = [a[first : first + size] for a in arrays]
            here = len(cut[0])
            padded = [np.concatenate([c, np.repeat(c[:1], size - here, axis=0)]) for c in cut]
            answers.append(np.asarray(program(parameters, *padded))[:here])
    return np.concatenate(answers)


def evaluate_joint(spec: FlowSpec, parameters: Any, rows: Array) -> Array:
    """`log_joint` of any number of rows, in float64; minus infinity for rows so far away that the
    squares of their latent values overflow.
    """
    with np.errstate(over="ignore"):
        typed = rows.astype(spec.dtype)
    logs = in_parts(spec, log_joint, parameters, typed).astype(np.float64)
    far = np.abs(rows).max(axis=1) > _FAR
    logs[far] = np.where(np.isnan(logs[far]), -np.inf, logs[far])
    return logs


def require_density(joint: Array) -> Array:
    """Return joint log-densities of rows; raise an error for a row without one, which has no
    responsibilities.
    """
    flat = joint.reshape(len(joint), -1).max(axis=1)
    if np.any(flat == -np.inf):
        raise DataError(
            f"row {int(np.argmin(flat))} lies so far from the training rows that its density is "
            "zero everywhere; leave it out"
        )
    return joint


def choose(weights: Array, count: int, rng: np.random.Generator) -> Ints:
    """Indices drawn with these probabilities."""
    return rng.choice(len(weights), size=count, p=weights / weights.sum())
