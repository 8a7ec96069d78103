"""`StateSpace`: the parameters of a linear Gaussian state space, checked, and its special cases."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, ModelError
from kikuchi.training.checkpoint import Arrays

_SYMMETRIC = 1e-8


@dataclass(frozen=True, eq=False)
class StateSpace:
    """x_0 ~ N(m, P); x_t = A x_t-1 + B u_t + b + N(0, Q); y_t = C x_t + D u_t + d + N(0, R).

    Parameters
    ----------
    transition : A (n, n), or (T, n, n) with one per step; that of step t leads into x_t
    output : C (m, n) or (T, m, n)
    state_noise : Q (n, n) or (T, n, n), positive semidefinite
    output_noise : R (m, m) or (T, m, m), positive semidefinite
    state_offset, output_offset : b (n,) or (T, n), d (m,) or (T, m); zero by default
    state_input, output_input : B (n, k), D (m, k) of k known inputs; none by default
    initial_mean : m (n,); zero by default
    initial_covariance : P (n, n); None: a flat prior, no information about x_0

    >>> walk = StateSpace([[1.0]], [[1.0]], [[0.1]], [[1.0]], initial_covariance=None)
    >>> walk.n_states, walk.n_outputs, walk.is_flat
    (1, 1, True)

    Reference: HOJ-M6.
    """

    transition: Any
    output: Any
    state_noise: Any
    output_noise: Any
    state_offset: Any = None
    output_offset: Any = None
    state_input: Any = None
    output_input: Any = None
    initial_mean: Any = None
    initial_covariance: Any = None

    def __post_init__(self) -> None:
        a, c = self._array("transition", 2), self._array("output", 2)
        n, m = a.shape[-1], c.shape[-2]
        inputs = self.state_input if self.state_input is not None else self.output_input
        k = 0 if inputs is None else np.asarray(inputs).shape[-1]
        shapes = {
            "transition": (n, n), "output": (m, n), "state_noise": (n, n), "output_noise": (m, m),
            "state_offset": (n,), "output_offset": (m,), "state_input": (n, k),
            "output_input": (m, k), "initial_mean": (n,), "initial_covariance": (n, n),
        }  # fmt: skip
        for name, shape in shapes.items():
            if name == "initial_covariance" and getattr(self, name) is None:
                continue
            value = self._array(name, len(shape)) if getattr(self, name) is not None else None
            value = np.zeros(shape) if value is None else value
            constant = name in ("state_input", "output_input", "initial_mean", "initial_covariance")
            if value.shape[value.ndim - len(shape) :] != shape or (
                constant and value.shape != shape
            ):
                raise ModelError(
                    f"{name} has shape {value.shape}; with {n} states, {m} outputs and {k} inputs "
                    f"it must have {shape}" + ("" if constant else f" or {('T', *shape)}")
                )
            if name in ("state_noise", "output_noise", "initial_covariance"):
                value = _covariance(name, value)
            object.__setattr__(self, name, value)

    def _array(self, name: str, axes: int) -> Array:
        try:
            value = np.array(getattr(self, name), dtype=np.float64)
        except (TypeError, ValueError):
            raise ModelError(f"{name} is no array of numbers") from None
        if value.ndim not in (axes, axes + 1) or (
            not value.size and name in ("transition", "output")
        ):
            raise ModelError(f"{name} has shape {value.shape}; it needs {axes} axes")
        if not np.isfinite(value).all():
            raise ModelError(f"{name} has entries that are not finite")
        value.setflags(write=False)
        return value

    # ------------------------------------------------------------------ sizes

    @property
    def n_states(self) -> int:
        """Dimensions of the state."""
        return int(self.transition.shape[-1])

    @property
    def n_outputs(self) -> int:
        """Dimensions of the output."""
        return int(self.output.shape[-2])

    @property
    def n_inputs(self) -> int:
        """Number of known inputs."""
        return int(self.state_input.shape[-1])

    @property
    def is_flat(self) -> bool:
        """Whether nothing is known about the first state."""
        return self.initial_covariance is None

    @property
    def varying(self) -> tuple[str, ...]:
        """Names of the parameters that differ from step to step."""
        axes = {"state_offset": 1, "output_offset": 1}
        names = ("transition", "output", "state_noise", "output_noise", *axes)
        return tuple(name for name in names if getattr(self, name).ndim > axes.get(name, 2))

    @property
    def radius(self) -> float:
        """Largest modulus of the eigenvalues of A (of any step): above 1, states explode."""
        return float(np.abs(np.linalg.eigvals(self.transition)).max())

    def stationary(self) -> tuple[Array, Array]:
        """Mean and covariance that the state tends to; refused where there are none."""
        from scipy.linalg import solve_discrete_lyapunov

        if self.varying or self.radius >= 1.0:
            why = (
                f"{self.varying[0]} varies" if self.varying else f"its radius is {self.radius:.4g}"
            )
            raise ModelError(f"the state has no stationary distribution: {why}")
        n = self.n_states
        mean = np.linalg.solve(np.eye(n) - self.transition, self.state_offset)
        covariance = solve_discrete_lyapunov(self.transition, self.state_noise)
        return mean, 0.5 * (covariance + covariance.T)

    def updated(self, **changes: Any) -> StateSpace:
        """The same with `changes`: other parameters by name."""
        return replace(self, **changes)

    # ------------------------------------------------------------------ files

    def to_arrays(self) -> Arrays:
        """Parameters by name; a flat prior has no entry."""
        pairs = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: np.array(value) for name, value in pairs if value is not None}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> StateSpace:
        """The inverse of `to_arrays`: `arrays` by name."""
        return cls(**{f.name: arrays[f.name] for f in fields(cls) if f.name in arrays})


def _covariance(name: str, value: Array) -> Array:
    """Symmetric and not negative, or an error that says what it is."""
    largest = max(float(np.abs(value).max(initial=0.0)), 1e-300)
    if np.abs(value - np.swapaxes(value, -1, -2)).max(initial=0.0) > _SYMMETRIC * largest:
        raise ModelError(f"{name} must be symmetric")
    sym = 0.5 * (value + np.swapaxes(value, -1, -2))
    least = float(np.linalg.eigvalsh(sym).min()) if sym.size else 0.0
    if least < -_SYMMETRIC * largest:
        raise ModelError(f"{name} is not positive semidefinite: it has the eigenvalue {least:.3g}")
    return sym


# ---------------------------------------------------------------------- special cases


def factor_analysis(
    loadings: ArrayLike, noise: ArrayLike, mean: ArrayLike | None = None
) -> StateSpace:
    """Factor analysis as a state space without dynamics: x_t ~ N(0, I) anew at each step.

    `loadings` (outputs, factors), `noise` the variances of the outputs, `mean` theirs.

    >>> factor_analysis([[1.0], [2.0]], [0.5, 0.5]).transition.tolist()
    [[0.0]]

    Reference: HOJ-M5.
    """
    c = np.asarray(loadings, dtype=np.float64)
    if c.ndim != 2:
        raise ModelError(f"loadings are (outputs, factors), got shape {c.shape}")
    n = c.shape[1]
    return StateSpace(
        np.zeros((n, n)), c, np.eye(n), np.diag(np.asarray(noise, dtype=np.float64)),
        output_offset=mean, initial_covariance=np.eye(n),
    )  # fmt: skip


def probabilistic_pca(data: ArrayLike, components: int) -> StateSpace:
    """Probabilistic PCA of rows in closed form, as a state space without dynamics.

    C = U (S - s2 I)^(1/2) with the leading eigenvectors U and eigenvalues S of the covariance, s2
    the mean of the others.

    `data` are the rows, `components` is the number of eigenvectors.

    >>> rows = np.random.default_rng(0).normal(size=(50, 3))
    >>> probabilistic_pca(rows, 1).n_states
    1

    Reference: HOJ-M5.
    """
    rows = np.asarray(data, dtype=np.float64)
    if rows.ndim != 2 or components not in range(1, rows.shape[1]):
        raise ModelError(
            f"{components} components of an array of shape {rows.shape}; give rows, and fewer "
            "components than columns"
        )
    if not np.isfinite(rows).all():
        raise DataError("probabilistic PCA takes no missing or infinite values; fill them in")
    values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
    values, vectors = values[::-1], vectors[:, ::-1]
    noise = float(values[components:].mean())
    loadings = vectors[:, :components] * np.sqrt(np.maximum(values[:components] - noise, 0.0))
    return factor_analysis(loadings, np.full(rows.shape[1], noise), rows.mean(axis=0))


def local_level(level: float, noise: float, outputs: int = 1) -> StateSpace:
    """A Gaussian random walk per output, seen through noise, with a flat prior.

    `level` and `noise` are the variances of the steps and of the outputs.

    `outputs` is the number of walks.

    >>> local_level(0.1, 1.0).is_flat
    True
    """
    one = np.eye(outputs)
    return StateSpace(one, one, level * one, noise * one)


def autoregression(coefficients: ArrayLike, variance: float, mean: float = 0.0) -> StateSpace:
    """An autoregressive process without output noise: y_t - mean = sum_k a_k (y_t-k - mean) + e_t.

    `coefficients` are the a_k, `variance` is that of e_t, `mean` that of the process.

    >>> autoregression([0.5, 0.2], 1.0).transition.tolist()
    [[0.5, 0.2], [1.0, 0.0]]
    """
    a = np.atleast_1d(np.asarray(coefficients, dtype=np.float64))
    n = len(a)
    transition = np.vstack([a, np.eye(n - 1, n)])
    q = np.zeros((n, n))
    q[0, 0] = variance
    c = np.eye(1, n)
    model = StateSpace(
        transition, c, q, np.zeros((1, 1)), output_offset=[mean], initial_covariance=np.eye(n)
    )
    return model.updated(initial_covariance=model.stationary()[1])
