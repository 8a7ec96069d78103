"""What the estimators of ICA share: options, files, scores, and why a fit stopped."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.options import Configured
from kikuchi.core.run import Run
from kikuchi.ica.priors.prior import SourcePrior, prior_texts
from kikuchi.ica.recordings import checked_sources
from kikuchi.training.checkpoint import Arrays, of_type, part, prefixed
from kikuchi.training.estimator import (
    Estimator,
    FeatureTransformer,
    check_is_fitted,
    ending_remarks,
)

_OF_THE_SHELL = frozenset({"n_iter_", "stopped_", "converged_", "warnings_", "trace_"})


class _Fitted:
    """What every fit leaves behind; annotations of a dataclass would be options."""

    mixing_: Array
    components_: Array
    mean_: Array


@dataclass(eq=False, repr=False, kw_only=True)
class IcaEstimator(FeatureTransformer, Estimator, _Fitted):
    """Base of the estimators of ICA: rows are samples, `mixing_` is (sensors, sources)."""

    file_kind: ClassVar[str] = "ica"

    @abstractmethod
    def score_samples(self, X: ArrayLike) -> Array:
        """Log density of each row of `X` (samples, sensors)."""

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean of `score_samples` over the rows of `X`; `y` is ignored."""
        return float(np.mean(self.score_samples(X)))

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Sensor values without noise that rows `X` of sources (samples, sources) make."""
        check_is_fitted(self)
        sources = checked_sources(self, X, self.mixing_.shape[1])
        return np.asarray(sources @ self.mixing_.T + self.mean_)

    @property
    def _n_features_out(self) -> int:
        return int(self.mixing_.shape[1])

    # ------------------------------------------------------------------ fitting

    def _conclude(
        self, run: Run, iterations: int, converged: bool, limit: str = "max_iter or tol"
    ) -> None:
        """Keep how the fit ended, with a warning unless it has converged."""
        done = f"{iterations} iterations"
        remarks = list(getattr(self, "warnings_", []))
        remarks += ending_remarks(run.stopped, converged, "objective", done, limit)
        stopped = run.stopped if converged or run.stopped != "converged" else "iterations"
        self.n_iter_, self.stopped_, self.converged_ = iterations, stopped, converged
        self.warnings_, self.trace_ = remarks, run.trace
        self._log_fit()

    # ------------------------------------------------------------------ files

    def plain_options(self) -> dict[str, Any]:
        """The options as a file can hold them: priors and posteriors as texts, arrays as lists."""
        options = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        return {name: value for name, value in options.items() if value is not _NOT_STORED}

    file_layout: ClassVar[Mapping[str, str]] = {
        "fitted/mixing_": "columns sources",
        "fitted/components_": "sources columns",
        "fitted/mean_": "columns",
    }
    file_values: ClassVar[Mapping[str, type]] = {}  # those that questions need, with their types

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        fitted = {n: v for n, v in vars(self).items() if n.endswith("_") and n not in _OF_THE_SHELL}
        fitted = {n: v for n, v in fitted.items() if not n.endswith("_in_")}
        arrays = {n: v for n, v in fitted.items() if isinstance(v, np.ndarray)}
        values = {n: v for n, v in fitted.items() if n not in arrays and _is_json(v)}
        return prefixed(arrays, "fitted"), {}, {"values": values}

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        for name, kind in self.file_values.items():
            of_type(about["values"], name, kind)
        for name, value in {**part(arrays, "fitted"), **about["values"]}.items():
            if not name.endswith("_") or hasattr(type(self), name):
                raise DataError(f"{name} is no result of a fit")
            setattr(self, name, value)


def drawn_seeds(random_state: Any, count: int) -> list[int]:
    """Return `count` seeds drawn from a generator, or from one seeded by a whole number."""
    from sklearn.utils import check_random_state

    if isinstance(random_state, np.random.Generator):
        return [int(seed) for seed in random_state.integers(2**31 - 1, size=count)]
    try:
        drawn = check_random_state(random_state).randint(2**31 - 1, size=count)
    except ValueError:
        raise MethodError(
            "MeanFieldICA: random_state must be a whole number from 0 to 2**32 - 1 or a generator, "
            f"got {random_state!r}"
        ) from None
    return [int(seed) for seed in drawn]


_NOT_STORED = object()


def _plain(value: Any) -> Any:
    if isinstance(value, SourcePrior):
        return prior_texts([value])[0]
    if isinstance(value, Configured):
        return value.text
    if isinstance(value, list | tuple):
        return (tuple if isinstance(value, tuple) else list)(map(_plain, value))
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value if _is_json(value) else _NOT_STORED


def _is_json(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return value is None or isinstance(value, str | int | float)
