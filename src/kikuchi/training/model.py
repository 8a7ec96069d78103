"""`Trainable`: what the trainer needs to know of a model, and pytrees as named arrays.

Parameters are either a dictionary of NumPy arrays, which training changes in place, or any JAX
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
    """A model that the trainer can train, save and recognise again.

    `kind` is its word in files and messages: a file of a machine is a "kikuchi machine".
    `weight_limit` is the absolute value at which weights count as diverged. `batch_dtype` is the
    type of the numbers in a batch; None leaves them as the data are.
    """

    kind: ClassVar[str]
    weight_limit: ClassVar[float]

    @property
    def parameters(self) -> Any:
        """The arrays that learning changes; a pytree must be settable."""

    @property
    def batch_dtype(self) -> DTypeLike | None:
        """Type of the numbers in a batch."""

    def copy(self) -> Self:
        """The same model with parameters of its own: training leaves the given one as it is."""

    def check_data(self, data: Any) -> Any:
        """Data that the model can be trained on, as arrays, or an error that says what is wrong."""

    def rule(self, text: str) -> Any:
        """The learning rule that a text names, such as `pcd:k=1`."""

    def constrain(self, direction: Any) -> None:
        """Make a direction one that the model can take, in place: masks, symmetry, ties.

        Called by rules that answer with NumPy arrays; a loss in JAX constrains its own parameters.
        """

    def describe(self) -> dict[str, Any]:
        """What the model is apart from its numbers, as JSON: sizes, units, options."""

    def to_arrays(self) -> Arrays:
        """Everything with numbers, by the names that arrays have in files."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> Self:
        """The model of a file: `facts` are those of `describe`."""


class PytreeModel:
    """A model whose parameters are a pytree of JAX arrays: what a family with a loss begins from.

    Nested dictionaries come back from files as they were; for other trees override `from_arrays`.

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
        """What pickle keeps: parameters as NumPy arrays, since JAX reads its own arrays of double
        precision in single precision.
        """
        import jax

        return {**self.__dict__, "parameters": jax.tree.map(np.asarray, self.parameters)}

    def copy(self) -> Self:
        """The same model; arrays by name are copied, other trees are replaced and never changed."""
        tree = self.parameters
        values = {n: a.copy() for n, a in tree.items()} if is_named(tree) else tree
        return type(self)(values, self.facts)

    def check_data(self, data: Any) -> Any:
        """The `data` as finite numbers, one case per row, or a tuple of such arrays."""
        if isinstance(data, tuple):
            return tuple(self.check_data(part) for part in data)
        rows = np.asarray(data)
        if rows.dtype.kind not in "biuf" or not rows.ndim:
            raise DataError(f"data of type {rows.dtype}: give numbers, one case per row")
        if rows.size:
            check_values(rows.reshape(len(rows), -1), (-np.inf, np.inf), "")
        return rows

    def rule(self, text: str) -> Any:
        """Refuses every `text`; families with named rules override this."""
        raise MethodError(f"a {self.kind} has no learner '{text}'; give a rule such as LossRule")

    def constrain(self, direction: Any) -> None:
        """Every `direction` is allowed."""

    def describe(self) -> dict[str, Any]:
        """The facts, and the shapes and types of the parameters."""
        leaves = named_leaves(self.parameters)
        shapes = {n: [str(a.dtype), *map(int, a.shape)] for n, a in leaves.items()}
        return {**self.facts, "parameters": shapes}

    def to_arrays(self) -> Arrays:
        """The leaves of the tree, by their paths."""
        return prefixed(named_leaves(self.parameters), "parameters")

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> Self:
        """A model with nested dictionaries of parameters, from the `arrays` and the `facts` of a
        file.
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
    """Write a model, and in `about` whatever JSON can say of it.

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
    """A model of this class and what was said of it; checkpoints are read too."""
    arrays, facts = load(path, (f"kikuchi {cls.kind}", CHECKPOINT))
    with reading(path, f"the file of a {cls.kind}"):
        return restored(cls, arrays, facts), dict(facts.get("about", {}))


def restored(cls: type[T], arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> T:
    """The model of arrays and facts; refuses arrays that are not those which the facts describe."""
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
    """Whether these are NumPy arrays by name, which are changed in place."""
    return isinstance(parameters, dict) and all(
        isinstance(array, np.ndarray) for array in parameters.values()
    )


def named_leaves(tree: Any) -> dict[str, Any]:
    """The arrays of a pytree by their paths, such as `layer/weights`.

    >>> list(named_leaves({"layer": [np.zeros(1), np.zeros(2)]}))
    ['layer/0', 'layer/1']
    """
    if is_named(tree):
        return dict(tree)
    import jax

    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def with_leaves(tree: Any, arrays: Mapping[str, Array]) -> Any:
    """A tree of this form that holds these arrays, named as `named_leaves` names them."""
    if is_named(tree):
        return {name: np.asarray(arrays[name]) for name in tree}
    import jax

    names = list(named_leaves(tree))
    return jax.tree.unflatten(jax.tree.structure(tree), [arrays[name] for name in names])


def set_parameters(model: Any, values: Any) -> None:
    """Give the model these parameters: in place where they are NumPy arrays by name."""
    if is_named(model.parameters):
        for name, array in model.parameters.items():
            array[...] = np.asarray(values[name])
    else:
        model.parameters = values
