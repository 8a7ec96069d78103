"""`FreeEnergyClassifier`: one machine a class, and logistic regression on free energies.

A machine knows the probability of a row up to its log Z. The regression learns these constants, and
how far to trust each machine.

Reference: WH-L10.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.boltzmann.estimators.boltzmann_machine import BoltzmannMachine
from kikuchi.boltzmann.estimators.estimator import MachineEstimator
from kikuchi.core.errors import DataError, MissingExtraError
from kikuchi.core.extras import install
from kikuchi.core.seeds import generator
from kikuchi.training.estimator import RandomState

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline, make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingExtraError(f"these estimators need scikit-learn; {install('learn')}") from None

Array = NDArray[Any]


class FreeEnergyClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """One machine for each class, then multinomial logistic regression on free energies.

    Attributes: `classes_`, `machines_` (fitted, in the order of the classes), `regression_`,
    `n_iter_` and `converged_` (of the regression), `warnings_` (of all machines and of the
    regression).

    Parameters
    ----------
    machine: estimator that is cloned for each class; by default a `BoltzmannMachine` with 25 hidden
        units and connected visible ones. Limits of its data are best given as numbers: "data" are
        those of the rows of each class.
    classes: labels that must occur; by default those that do.
    C: inverse strength of the regression's penalty.
    max_iter: iterations of the regression.
    random_state: seed of the machines of all classes, in place of that of `machine`; None leaves
        the `random_state` of `machine` as it is.

    >>> from kikuchi.boltzmann import RBM
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.random((50, 6)) < p for p in ([0.9] * 3 + [0.1] * 3, [0.1, 0.9] * 3)])
    >>> y = ["left"] * 50 + ["odd"] * 50
    >>> model = FreeEnergyClassifier(RBM(3, max_iter=20, random_state=0)).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        machine: MachineEstimator | None = None,
        *,
        classes: ArrayLike | None = None,
        C: float = 1.0,
        max_iter: int = 1000,
        random_state: RandomState = None,
    ) -> None:
        self.machine = machine
        self.classes = classes
        self.C = C
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike, *, X_more: Any = None, y_more: Any = None) -> Self:
        """Train a machine on the rows of `X` (rows, visible units) of each class in `y` (rows,),
        then the regression on all of them.

        `X_more`, `y_more` are rows for the regression only, such as a validation set.
        """
        rows, labels = validate_data(self, X, y, accept_sparse="csr")
        check_classification_targets(labels)
        self.classes_ = self._classes(labels)
        self.machines_ = []
        template = self._scaled_alike(rows)
        rng = None if self.random_state is None else generator(self.random_state)
        for label in self.classes_:
            members = np.flatnonzero(labels == label)
            machine = clone(template)
            if rng is not None:
                machine.set_params(random_state=int(rng.integers(2**31)))
            self.machines_.append(machine.fit(rows[members]))
            if self.machines_[-1].stopped_ == "interrupted":
                raise KeyboardInterrupt  # without machines of the classes that follow: no answer
        energies = self._free_energies(rows)
        if X_more is not None:
            extra = validate_data(self, X_more, reset=False, accept_sparse="csr")
            more = np.asarray(y_more)
            strange = np.setdiff1d(more, self.classes_)
            if more.shape != (extra.shape[0],) or strange.size:
                raise DataError("X_more and y_more: give one known label for each row")
            energies = np.vstack([energies, self._free_energies(extra)])
            labels = np.concatenate([labels, more])
        self.regression_: Pipeline = make_pipeline(
            StandardScaler(), LogisticRegression(C=self.C, max_iter=self.max_iter)
        )
        self.regression_.fit(energies, labels)
        self.n_iter_ = int(np.max(self.regression_[-1].n_iter_))
        self.converged_ = self.n_iter_ < self.max_iter
        self.warnings_ = [
            f"machine of class {label}: {text}"
            for label, machine in zip(self.classes_, self.machines_, strict=True)
            for text in machine.warnings_
        ]
        if not self.converged_:
            self.warnings_.append(
                f"the regression had not converged in {self.n_iter_} iterations; raise max_iter"
            )
        return self

    def _classes(self, labels: Array) -> Array:
        found = np.unique(labels)
        if self.classes is not None:
            wanted = np.unique(np.asarray(self.classes))
            empty = np.setdiff1d(wanted, found)
            strange = np.setdiff1d(found, wanted)
            if empty.size:
                raise DataError(
                    f"class {empty.tolist()[0]!r} has no rows; give some, or leave it out"
                )
            if strange.size:
                raise DataError(f"label {strange.tolist()[0]!r} is none of the classes given")
        if len(found) < 2:
            raise DataError(
                f"all rows are of one class ({found.tolist()[0]!r}); a classifier needs rows of "
                "two classes"
            )
        return found

    def _scaled_alike(self, rows: Any) -> MachineEstimator:
        """The machine with one scaling for all classes: free energies of rows that were scaled by
        the limits of each class could not be compared.
        """
        template: MachineEstimator = clone(self._template())
        if template.limits is None:
            template.set_params(limits="strict")
        elif isinstance(template.limits, str) and template.limits == "data":
            low, high = float(rows.min()), float(rows.max())
            if low < high:
                template.set_params(limits=(low, high))
        return template

    def _template(self) -> MachineEstimator:
        if self.machine is None:
            return BoltzmannMachine(25, architecture="poe")
        return self.machine

    def _free_energies(self, rows: Any) -> Array:
        return np.column_stack([machine.free_energy(rows) for machine in self.machines_])

    def free_energies(self, X: Any) -> Array:
        """Free energy of each row of `X` under the machine of each class, (rows, classes)."""
        check_is_fitted(self, "regression_")
        return self._free_energies(validate_data(self, X, reset=False, accept_sparse="csr"))

    def predict(self, X: Any) -> Array:
        """Most probable label of each row of `X` (rows, visible units)."""
        energies = self.free_energies(X)
        return np.asarray(self.regression_.predict(energies))

    def predict_proba(self, X: Any) -> Array:
        """Probability of each class for each row of `X`, (rows, classes)."""
        energies = self.free_energies(X)
        return np.asarray(self.regression_.predict_proba(energies))

    def decision_function(self, X: Any) -> Array:
        """Scores of the regression for each row of `X`: one column for each class, one alone for
        two classes.
        """
        energies = self.free_energies(X)
        return np.asarray(self.regression_.decision_function(energies))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
