"""Options and checks that all estimators of flows share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.options import option
from kikuchi.core.seeds import generator
from kikuchi.flows.bijections import FLOWS
from kikuchi.flows.densities import FlowDensity, FlowSpec
from kikuchi.flows.preparation import Dequantisation, RowPreparation, prepare
from kikuchi.training.checkpoint import Arrays
from kikuchi.training.estimator import TrainedEstimator, validate_data

_SCORES = ("gaussian_score", "start_score", "mixture_score")  # of Gaussians on held-out rows


class PreparedEstimator(TrainedEstimator):
    """Fitted attributes of fits to prepared rows, and their files; not a dataclass, since it has no
    options.
    """

    dequantise: Dequantisation
    preparation_: RowPreparation
    validation_scores_: list[float]
    gaussian_score_: float = np.nan
    start_score_: float = np.nan
    mixture_score_: float = np.nan

    def _checked(self, X: Any, *, reset: bool = False) -> Array:
        """Rows as numbers."""
        return np.asarray(validate_data(self, X, reset=reset, dtype=np.float64))

    def _rows(self, X: Any, *, reset: bool = False) -> Any:
        """Rows with noise in columns of whole numbers, standardised."""
        rows, rng = self._checked(X, reset=reset), generator(self.random_state)
        if not reset:
            return self.preparation_.standardised(self.preparation_.dequantised(rows, rng))
        self.preparation_, prepared, self._said = prepare(rows, self.dequantise, rng)
        return prepared

    file_layout: ClassVar[Mapping[str, str]] = {
        f"preparation/{name}": "columns" for name in ("cells", "means", "scales")
    }

    def _fitted_state(self) -> tuple[Arrays, dict[str, Any], dict[str, Any]]:
        arrays, facts, about = super()._fitted_state()
        told = {f"preparation/{n}": a for n, a in self.preparation_.arrays().items()}
        about |= {
            "validation_scores": self.validation_scores_,
        }
        for name in _SCORES:
            score = getattr(self, f"{name}_")
            about[name] = None if np.isnan(score) else score
        return arrays | told, facts, about

    def _restore_state(
        self, arrays: Arrays, facts: Mapping[str, Any], about: Mapping[str, Any]
    ) -> None:
        super()._restore_state(arrays, facts, about)
        self.preparation_ = RowPreparation.read(arrays)
        self.validation_scores_ = [float(s) for s in about["validation_scores"]]
        for name in _SCORES:
            score = about.get(name)
            setattr(self, f"{name}_", np.nan if score is None else float(score))


@dataclass(eq=False, repr=False, kw_only=True)
class FlowOptions(PreparedEstimator):
    """Options of the preparation and training of flows; the classes below name their `flow`."""

    model_class: ClassVar[Any] = FlowDensity

    dequantise: Dequantisation = option(
        "auto",
        "Uniform noise for whole numbers: auto (columns that hold nothing else), uniform (all "
        "columns), or none (refuses whole numbers).",
    )
    image_shape: tuple[int, ...] | None = option(
        None, "Height, width and channels of rows that are images; for flow image."
    )
    validation_fraction: float = option(
        0.1, "Fraction of the rows held out to stop by; 0: all epochs.", low=0, below=1
    )
    patience: int = option(40, "Epochs without a better held-out score before the end.", low=1)
    noise: float = option(
        0.01, "Gaussian noise on rows while learning, in deviations of the columns.", low=0
    )
    floor: float = option(
        1e-3, "Least deviation of a Gaussian, in deviations of the columns.", above=0
    )
    dtype: Literal["float32", "float64"] = option("float32", "Precision: float32 or float64.")
    solver: str = option("adam", "Optimiser of optax, or sgd.")
    learning_rate: float = option(2e-3, "Initial learning rate.", above=0)
    schedule: str = option(
        "cosine",
        'Learning rate: "cosine" (to 0 in the last epoch), "constant", "linear", '
        '"exponential:factor=0.95", "inverse-time:decay=0.05" or "warmup-cosine".',
    )
    weight_decay: float = option(1e-3, "Decay of the flows towards the identity.", low=0)
    batch_size: int = option(128, "Number of rows per update.", low=1)
    max_iter: int = option(200, "Passes over the rows at most (rounds of em).", low=1)

    def _check_options(self) -> None:
        super()._check_options()
        flow = FLOWS.parse(self.flow_text)
        if flow.needs_image and self.image_shape is None:
            raise MethodError(f"flow {flow.name} is for images: give image_shape=(height, width)")

    @property
    def flow_text(self) -> str:
        """The specification string of the flow."""
        return str(getattr(self, "flow"))  # noqa: B009  (a field of the classes below)

    def _shape(self, columns: int) -> tuple[int, int, int] | None:
        if self.image_shape is None:
            return None
        sides = tuple(int(n) for n in self.image_shape)
        h, w, c = (*sides, 1)[:3] if len(sides) in (2, 3) else (0, 0, 0)
        if h * w * c != columns:
            raise DataError(
                f"rows of {columns} columns are not images of shape {sides}; give image_shape="
                "(height, width) or (height, width, channels)"
            )
        return h, w, c

    @property
    def _spec(self) -> FlowSpec:
        spec: FlowSpec = self._model.spec
        return spec
