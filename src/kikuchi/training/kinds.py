"""The registry of estimators: what each is, takes and gives, known without loading it.

A family declares its estimators in a module `kinds.py` of its own package, as a tuple `KINDS`; the
class refers to its declaration as `kind`. A package outside declares an estimator by an entry point
of the group `kikuchi.estimators` whose value is a `Kind`. The command line and the report pages
read this registry, and a common test checks that every estimator is in it. Reading it imports
neither JAX nor scikit-learn.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

from kikuchi.core.errors import MethodError, suggestion
from kikuchi.core.extras import extras_named

ENTRY_POINTS = "kikuchi.estimators"

Takes = Literal[
    "rows", "labelled rows", "sequences", "sequences with inputs", "labelled sequences",
    "recordings",
]  # fmt: skip
Gives = Literal[
    "density", "samples", "classes", "numbers", "states", "sources", "forecasts", "features"
]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The declaration of an estimator.

    Parameters
    ----------
    name : str
        The word of the command line, as in `kikuchi fit NAME DATA`.
    estimator : str
        The class, as "package:Class".
    summary : str
        What it is, in one line.
    group : str
        The heading of its group in lists.
    takes : str
        What it is fitted to: one of `Takes`.
    gives : tuple of str
        What a fitted one provides: any of `Gives`.
    workflow : str
        How it is fitted and measured, as "module:Class" of a `Workflow`.
    resumes : bool
        Whether a fit can be stopped and resumed from a checkpoint on the command line.
    """

    name: str
    estimator: str
    summary: str
    group: str
    takes: Takes
    gives: tuple[Gives, ...]
    workflow: str = "kikuchi.training.workflow:Workflow"
    resumes: bool = False

    def __post_init__(self) -> None:
        if self.takes not in get_args(Takes):
            raise MethodError(f"kind {self.name}: unknown data '{self.takes}' in takes")
        for word in self.gives:
            if word not in get_args(Gives):
                raise MethodError(f"kind {self.name}: unknown result '{word}' in gives")

    @property
    def package(self) -> str:
        """The package from which the class is imported."""
        return self.estimator.partition(":")[0]

    @property
    def class_name(self) -> str:
        """The name of the class."""
        return self.estimator.partition(":")[2]

    def load(self) -> Any:
        """The class."""
        return _loaded(self.estimator)

    def make_workflow(self) -> Any:
        """Return the `Workflow` by which this kind is fitted and evaluated."""
        return _loaded(self.workflow)(self)


def _loaded(place: str) -> Any:
    module, _, name = place.partition(":")
    with extras_named():
        return getattr(import_module(module), name)


_ADDED: dict[str, Kind] = {}


def all_kinds() -> Mapping[str, Kind]:
    """Every kind by its name: those of the library, of other packages, and those registered.

    >>> all_kinds()["rbm"].class_name
    'RBM'
    """
    return {**_declared(), **_ADDED}


def register(kind: Kind) -> None:
    """Add a kind in this process; packages declare theirs by an entry point instead."""
    if kind.name in _declared():
        raise MethodError(f"there is a kind '{kind.name}' already; choose another name")
    _ADDED[kind.name] = kind


def forget_registered() -> None:
    """Remove the kinds that `register` added in this process."""
    _ADDED.clear()


@functools.cache
def _declared() -> Mapping[str, Kind]:
    found: dict[str, Kind] = {}
    for kind in (*_own_kinds(), *_foreign_kinds()):
        if kind.name in found:
            raise MethodError(
                f"two estimators are called '{kind.name}': {found[kind.name].estimator} and "
                f"{kind.estimator}; rename one"
            )
        found[kind.name] = kind
    return found


def find_kind(name: str) -> Kind:
    """The kind of a name; raises an error with a suggestion if there is none."""
    known = all_kinds()
    if name not in known:
        raise MethodError(f"there is no kind of model '{name}'; {suggestion(name, known)}")
    return known[name]


def kind_of_class(class_name: str) -> Kind | None:
    """The kind whose class has this name, as files of fitted models store it."""
    return next((k for k in all_kinds().values() if k.class_name == class_name), None)


def _own_kinds() -> Iterator[Kind]:
    """The declarations of the families of the library, found by their module `kinds`."""
    home = Path(__file__).parents[1]
    for package in pkgutil.iter_modules([str(home)]):
        module = home / package.name / "kinds.py"
        if package.ispkg and package.name != "training" and module.is_file():
            yield from import_module(f"kikuchi.{package.name}.kinds").KINDS


def _foreign_kinds() -> Iterator[Kind]:
    """The declarations of other packages."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINTS):
        yield entry.load()
