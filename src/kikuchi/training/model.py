"""`Trainable`: the interface of models to the trainer, and pytrees as named arrays.

Parameters are either a dictionary of NumPy arrays, which training modifies in place, or any JAX
pytree, which training replaces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kikuchi.core.errors import DataError, MethodError
from kikuchi.training.checkpoint import CHECKPOINT, Arrays, load, part, prefixed, reading, save
from kikuchi.training.rows import check_values

Array = NDArray[Any]
Parameters = dict[str, Array]
"""NumPy arrays by name. Gradients and statistics have the same names and shapes."""

T = TypeVar("T", bound="Trainable")


class Trainable(Protocol):
    """A model that the trainer can train, save and identify.

    `kind` is its name in files and messages: a file of a machine is a "kikuchi machine".
    `weight_limit` is the absolute value at which weights count as diverged. `batch_dtype` is the
    type of the numbers in a batch; None leaves them as the data are.
    """

    kind: ClassVar[str]
    weight_limit: ClassVar[float]

    @property
    def parameters(self) -> Any:
        """The trained arrays; a pytree must be settable."""

    @property
    def batch_dtype(self) -> DTypeLike | None:
        """Type of the numbers in a batch."""

    def copy(self) -> Self:
        """Return a copy of the model with its own parameters; training does not change the
        original.
        """

    def check_data(self, data: Any) -> Any:
        """Return the training data as checked arrays."""

    def rule(self, text: str) -> Any:
        """Return the learning rule of a specification string such as `pcd:k=1`."""

    def constrain(self, direction: Any) -> None:
        """Make a direction one that the model can take, in place: masks, symmetry, ties.

        Called by rules that answer with NumPy arrays; a loss in JAX constrains its own parameters.
        """

    def describe(self) -> dict[str, Any]:
        """Return the structure of the model as JSON: sizes, units, options."""

    def to_arrays(self) -> Arrays:
        """Return all arrays, by their names in files."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> Self:
        """Return the model of a file; `facts` are those of `describe`."""


class PytreeModel:
    """A model whose parameters are a pytree of JAX arrays; the base class for families with a loss.

    Nested dictionaries are restored from files unchanged; for other trees override `from_arrays`.

    >>> model = PytreeModel({"layer": {"weights": np.ones((2, 3))}}, {"hidden": 3})
    >>> sorted(model.to_arrays())
    ['parameters/layer/weights']
    >>> again = PytreeModel.from_arrays(model.to_arrays(), model.describe())
    >>> again.parameters["layer"]["weights"].shape, again.facts
    ((2, 3), {'hidden': 3})
    """

    kind: ClassVar[str] = "model"
    weight_limit: ClassVar[float] = np.inf
    batch_dtype: DTypeLike | None = None

    def __init__(self, parameters: Any, facts: Mapping[str, Any] | None = None) -> None:
        self.parameters = parameters
        self.facts = dict(facts or {})

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle: parameters as NumPy arrays, since JAX unpickles its own
        arrays of double precision in single precision.
        """
        import jax

        return {**self.__dict__, "parameters": jax.tree.map(np.asarray, self.parameters)}

    def copy(self) -> Self:
        """Return the same model; named arrays are copied, other trees are replaced and never
        modified.
        """
        tree = self.parameters
        values = {n: a.copy() for n, a in tree.items()} if is_named(tree) else tree
        return type(self)(values, self.facts)

    def check_data(self, data: Any) -> Any:
        """Return the `data` as finite numbers, one case per row, or a tuple of such arrays."""
        if isinstance(data, tuple):
            return tuple(self.check_data(part) for part in data)
        rows = np.asarray(data)
        if rows.dtype.kind not in "biuf" or not rows.ndim:
            raise DataError(f"data of type {rows.dtype}: give numbers, one case per row")
        if rows.size:
            check_values(rows.reshape(len(rows), -1), (-np.inf, np.inf), "")
        return rows

    def rule(self, text: str) -> Any:
        """Raise an error for any `text`; families with named rules override this."""
        raise MethodError(f"a {self.kind} has no learner '{text}'; give a rule such as LossRule")

    def constrain(self, direction: Any) -> None:
        """Do nothing: every `direction` is allowed."""

    def describe(self) -> dict[str, Any]:
        """Return the facts, and the shapes and types of the parameters."""
        leaves = named_leaves(self.parameters)
        shapes = {n: [str(a.dtype), *map(int, a.shape)] for n, a in leaves.items()}
        return {**self.facts, "parameters": shapes}

    def to_arrays(self) -> Arrays:
        """Return the leaves of the tree, by their paths."""
        return prefixed(named_leaves(self.parameters), "parameters")

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> Self:
        """Return a model with nested dictionaries of parameters, from the `arrays` and the `facts`
        of a file.
        """
        tree: dict[str, Any] = {}
        for path, array in part(arrays, "parameters").items():
            *branches, leaf = path.split("/")
            node = tree
            for branch in branches:
                node = node.setdefault(branch, {})
            node[leaf] = array
        return cls(tree, {n: value for n, value in facts.items() if n != "parameters"})


# ---------------------------------------------------------------------- models as files


def save_model(
    path: str | PathLike[str], model: Trainable, about: Mapping[str, Any] | None = None
) -> None:
    """Write a model, with further JSON facts in `about`.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "small.safetensors"
    >>> save_model(file, PytreeModel({"mean": np.zeros(2)}), {"learner": "loss"})
    >>> model, about = load_model(file, PytreeModel)
    >>> model.parameters["mean"].shape, about["learner"]
    ((2,), 'loss')
    """
    facts = {model.kind: model.describe(), "about": dict(about or {})}
    save(path, f"kikuchi {model.kind}", model.to_arrays(), facts)


def load_model(path: str | PathLike[str], cls: type[T]) -> tuple[T, dict[str, Any]]:
    """Load a model of this class and its facts; checkpoints can also be read."""
    arrays, facts = load(path, (f"kikuchi {cls.kind}", CHECKPOINT))
    with reading(path, f"the file of a {cls.kind}"):
        return restored(cls, arrays, facts), dict(facts.get("about", {}))


def restored(cls: type[T], arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> T:
    """Return the model of arrays and facts; raise an error if the arrays do not match the facts."""
    model = cls.from_arrays(arrays, facts[cls.kind])
    here = json.loads(json.dumps(model.describe()))
    told = dict(facts[cls.kind])
    for name in sorted(here | told):
        if here.get(name) != told.get(name):
            raise DataError(
                f"its {name} should be {told.get(name)}, and its arrays give {here.get(name)}"
            )
    return model


# ---------------------------------------------------------------------- trees as named arrays


def is_named(parameters: Any) -> bool:
    """Return whether these are named NumPy arrays, which are modified in place."""
    return isinstance(parameters, dict) and all(
        isinstance(array, np.ndarray) for array in parameters.values()
    )


def named_leaves(tree: Any) -> dict[str, Any]:
    """Return the arrays of a pytree by their paths, such as `layer/weights`.

    >>> list(named_leaves({"layer": [np.zeros(1), np.zeros(2)]}))
    ['layer/0', 'layer/1']
    """
    if is_named(tree):
        return dict(tree)
    import jax

    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def with_leaves(tree: Any, arrays: Mapping[str, Array]) -> Any:
    """Return a tree of this form with these arrays, named as by `named_leaves`."""
    if is_named(tree):
        return {name: np.asarray(arrays[name]) for name in tree}
    import jax

    names = list(named_leaves(tree))
    return jax.tree.unflatten(jax.tree.structure(tree), [arrays[name] for name in names])


def set_parameters(model: Any, values: Any) -> None:
    """Set the parameters of the model, in place if they are named NumPy arrays."""
    if is_named(model.parameters):
        for name, array in model.parameters.items():
            array[...] = np.asarray(values[name])
    else:
        model.parameters = values
