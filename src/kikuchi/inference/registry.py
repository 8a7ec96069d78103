"""Method texts: `name:option=value,...`, read once for the command line and for Python alike."""

from __future__ import annotations

import dataclasses
import typing
from importlib import import_module
from typing import Any

from kikuchi.core.budget import Budget
from kikuchi.core.errors import MethodError, suggestion
from kikuchi.core.progress import Progress
from kikuchi.graphs.factor_graph import Evidence, FactorGraph
from kikuchi.inference.beliefs import Beliefs
from kikuchi.inference.method import Method, option_hints, option_type

DEFAULT = "jt"
_HOME = "kikuchi.inference."

METHODS: dict[str, str] = {
    "enumerate": "enumeration:Enumeration",
    "jt": "junction_tree:JunctionTree",
    "bp": "belief_propagation:BeliefPropagation",
    "mf": "mean_field:MeanField",
    "is": "iterative_scaling:IterativeScaling",
    "gis": "iterative_scaling:GeneralisedScaling",
    "is-bp": "iterative_scaling:PropagatedScaling",
    "gis-bp": "iterative_scaling:GeneralisedPropagatedScaling",
    "bo": "belief_optimisation:BeliefOptimisation",
    "loopy-is": "loopy_scaling:LoopyScaling",
    "ups": "unified_scaling:UnifiedScaling",
    "ups-t": "unified_scaling:UnifiedTreeScaling",
    "gbp": "generalised_bp:GeneralisedBP",
    "kikuchi": "kikuchi:Kikuchi",
    "gibbs": "gibbs:Gibbs",
}


def method_class(name: str) -> type[Method]:
    """The class of a registered method."""
    if name not in METHODS:
        raise MethodError(f"there is no method '{name}'; {suggestion(name, METHODS)}")
    module, attribute = METHODS[name].split(":")
    cls: type[Method] = getattr(import_module(_HOME + module), attribute)
    return cls


def parse_method(text: str) -> Method:
    """A method from its text.

    >>> parse_method("bp:damping=0.5,schedule=residual").text
    'bp:schedule=residual,damping=0.5'
    """
    name, _, options = text.strip().partition(":")
    cls = method_class(name.strip())
    hints = option_hints(cls)
    known = [f.name for f in dataclasses.fields(cls)]
    values: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in options.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise MethodError(f"method {name}: '{part}' is not of the form option=value")
        if key not in known:
            raise MethodError(f"method {name} has no option '{key}'; {suggestion(key, known)}")
        if key in values:
            raise MethodError(f"method {name}: option {key} is given twice")
        values[key] = _read_value(name, key, value, hints[key])
    return cls(**values)


def as_method(method: str | Method) -> Method:
    """A method given as such or as a text."""
    return method if isinstance(method, Method) else parse_method(method)


def infer(
    graph: FactorGraph,
    method: str | Method = DEFAULT,
    *,
    evidence: Evidence | None = None,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> Beliefs:
    """Marginals and log Z of `graph` by `method`, an object or a text such as "bp:damping=0.5".

    >>> from kikuchi import FactorGraph
    >>> infer(FactorGraph([2], [((0,), [1, 3])]), "bp")[0].round(6).tolist()
    [0.25, 0.75]
    """
    return as_method(method).run(graph, evidence=evidence, budget=budget, progress=progress)


def _read_value(name: str, key: str, text: str, hint: Any) -> Any:
    kind, optional = option_type(hint)
    if optional and text.lower() == "none":
        return None
    if typing.get_origin(kind) is typing.Literal:
        return next((c for c in typing.get_args(kind) if str(c) == text), text)
    if kind is bool:
        word = text.lower()
        if word in ("true", "yes", "on", "1"):
            return True
        if word in ("false", "no", "off", "0"):
            return False
    elif kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    elif kind is str:
        return text
    raise MethodError(f"method {name}: option {key} cannot be '{text}'; it takes {_kind(kind)}")


def _kind(kind: Any) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "a text")
