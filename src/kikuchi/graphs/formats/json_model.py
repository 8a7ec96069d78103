"""Models as JSON, directed or not, without loss of information.

```
{"format": "kikuchi-model", "version": 1,
 "variables": [{"name": "rain", "states": ["no", "yes"]}, {"name": null, "states": 2}],
 "factors": [{"scope": [0, 1], "child": 1, "log_table": [-0.1, null, ...]}],
 "log_constant": 0.0}
```

Names are null (for all variables or for none); states are a list of names or their number. A scope
lists variables by number or name; the last variable varies fastest in a table. A factor has a
`log_table`, natural logarithms with null for a weight of zero, or a `table` of weights. Either all
factors have a `child`, and the model is directed, or none has. Reading a written file gives
identical numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from kikuchi.core import numerics
from kikuchi.core.arrays import Array
from kikuchi.core.errors import FormatError
from kikuchi.core.files import parse_json
from kikuchi.core.numerics import count_states
from kikuchi.graphs.factor_graph import FactorGraph

_FORMAT = "kikuchi-model"
_VERSION = 1


def read_json(path: str, data: bytes) -> FactorGraph:
    """Read a model; `path` is only for errors.

    >>> text = b'''{"format": "kikuchi-model", "version": 1, "log_constant": 0,
    ... "variables": [{"name": "c", "states": 2}], "factors": [{"scope": [0], "table": [1, 3]}]}'''
    >>> read_json("coin.json", text).names
    ('c',)
    """
    content = parse_json(path, data, f"expected a model of format {_FORMAT}")
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise FormatError(path, None, "found no model", f'expected "format": "{_FORMAT}"')
    if content.get("version") != _VERSION:
        found = f"found version {content.get('version')!r}"
        raise FormatError(path, None, found, f"expected {_VERSION}")
    reader = _ModelReader(path)
    variables = reader.listing(content, "variables")
    factors = reader.listing(content, "factors")
    names, states, cards = reader.variables(variables)
    number = {name: v for v, name in enumerate(names or ())}
    parts = [reader.factor(k, factor, number, cards) for k, factor in enumerate(factors)]
    children = [child for *_, child in parts if child is not None]
    if children and len(children) < len(parts):
        raise FormatError(path, None, "some factors have a child", "expected all or none")
    constant = content.get("log_constant", 0.0)
    if not _is_finite(constant):
        raise FormatError(
            path, None, "found a log_constant that is not a finite number", "expected one"
        )
    return FactorGraph(
        cards,
        [(scope, table) for scope, table, _ in parts],
        log=True,
        names=names,
        states=states,
        children=children or None,
        log_constant=float(constant),
    )


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class _ModelReader:
    def __init__(self, path: str) -> None:
        self.path = path

    def error(self, found: str, expected: str) -> FormatError:
        return FormatError(self.path, None, found, expected)

    def listing(self, content: dict[str, Any], key: str) -> list[dict[str, Any]]:
        found = content.get(key)
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise self.error(f"found no list of {key}", f'expected "{key}": [{{...}}, ...]')
        return found

    def variables(
        self, variables: list[dict[str, Any]]
    ) -> tuple[list[str] | None, list[list[str]] | None, list[int]]:
        names = [item.get("name") for item in variables]
        states = [item.get("states") for item in variables]
        named = all(isinstance(name, str) for name in names)
        if not named and any(name is not None for name in names):
            raise self.error("some variables have a name", "expected all or none")
        words = all(
            isinstance(group, list) and group and all(isinstance(word, str) for word in group)
            for group in states
        )
        counts = all(isinstance(k, int) and not isinstance(k, bool) and k >= 1 for k in states)
        if variables and not words and not counts:
            raise self.error("found other states", "expected names for all, or numbers for all")
        if words and variables:
            return names if named else None, states, [len(group) for group in states]  # type: ignore
        return (names if named and names else None), None, states  # type: ignore[return-value]

    def factor(
        self, k: int, factor: dict[str, Any], names: dict[str, int], cards: list[int]
    ) -> tuple[list[int], Array, int | None]:
        scope = factor.get("scope")
        if not isinstance(scope, list):
            raise self.error(f"factor {k} has no scope", "expected a list of variables")
        numbers = [self.number(k, v, names, len(cards)) for v in scope]
        child = factor.get("child")
        table = self.table(k, factor)
        size = count_states([cards[v] for v in numbers])
        if len(table) != size:
            raise self.error(f"factor {k} has {len(table)} numbers", f"expected {size:.0f}")
        found = None if child is None else self.number(k, child, names, len(cards))
        return numbers, table, found

    def number(self, k: int, v: Any, names: dict[str, int], n: int) -> int:
        if isinstance(v, str) and v in names:
            return names[v]
        if isinstance(v, int) and not isinstance(v, bool) and 0 <= v < n:
            return v
        raise self.error(f"factor {k} names {str(v)[:40]!r}", "expected a variable")

    def table(self, k: int, factor: dict[str, Any]) -> Array:
        log = "log_table" in factor
        values = factor.get("log_table" if log else "table")
        if not isinstance(values, list):
            raise self.error(f"factor {k} has no table", 'expected "log_table" or "table"')
        for value in values:
            if not (_is_finite(value) or (log and value is None)):
                raise self.error(f"factor {k} holds {str(value)[:40]!r}", "expected a number")
        array = np.array([-np.inf if v is None else v for v in values], dtype=np.float64)
        if log:
            return array
        if np.any(array < 0):
            raise self.error(f"factor {k} holds a negative weight", "expected at least 0")
        return numerics.log(array)


def json_text(graph: FactorGraph) -> Iterator[str]:
    """The text of a model in pieces.

    >>> graph = FactorGraph([2], [((0,), [1, 3])])
    >>> read_json("", "".join(json_text(graph)).encode()) == graph
    True
    """
    variables = [
        {
            "name": None if graph.names is None else graph.names[v],
            "states": int(c) if graph.states is None else list(graph.states[v]),
        }
        for v, c in enumerate(graph.cardinalities)
    ]
    yield f'{{"format": "{_FORMAT}", "version": {_VERSION},\n'
    yield f' "log_constant": {graph.log_constant!r},\n "variables": ['
    yield ",\n  ".join(json.dumps(item, ensure_ascii=False) for item in variables)
    yield '],\n "factors": ['
    for a in range(graph.n_factors):
        logs = graph.log_table(a).ravel().tolist()
        factor: dict[str, Any] = {"scope": list(graph.scope(a))}
        if graph.children is not None:
            factor["child"] = int(graph.children[a])
        factor["log_table"] = [None if x == -math.inf else x for x in logs]
        yield (",\n  " if a else "") + json.dumps(factor)
    yield "]}\n"
