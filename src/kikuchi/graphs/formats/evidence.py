"""Evidence files: the UAI format, and JSON.

The UAI format is "count variable state variable state ...". Some programs write the number of cases
first, so two interpretations of the numbers `t` are tried:

- without cases: the file contains 1 + 2 t[0] numbers;
- with cases: t[0] cases follow, each a count and as many pairs.

One case gives an even count of numbers, no cases an odd one, so the two cannot be confused. A file
of several cases that can also be read without cases is read so. `0` and an empty file mean no
evidence. JSON is one object, `{"rain": 1, "sky": "grey"}`: variables and states by name or number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kikuchi.core.errors import FormatError, KikuchiError
from kikuchi.core.files import parse_json
from kikuchi.core.text import is_whole
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.formats.kinds import INTEGER
from kikuchi.graphs.formats.tokens import Check, Tokens, shown, tokenise

Observations = dict[int, Any]


def parse_evidence(path: str, data: bytes, graph: FactorGraph) -> Observations:
    """Evidence from the bytes of a file, as {variable number: state number}.

    A JSON list of numbers, an observed marginal, is returned unchanged.

    >>> graph = FactorGraph([2, 3], [], names=["a", "b"])
    >>> parse_evidence("x.evid", b"1  1 1 2", graph), parse_evidence("x", b'{"b": 0}', graph)
    ({1: 2}, {1: 0})
    """
    if data.lstrip().startswith(b"{"):
        return _parse_json(path, data, graph)
    return _parse_uai(path, data, graph)


# ---------------------------------------------------------------------- UAI


def _parse_uai(path: str, data: bytes, graph: FactorGraph) -> Observations:
    tokens = tokenise(path, data)
    if not len(tokens):
        return {}
    first = _first_pair(tokens)
    variables, states = tokens.values[first::2], tokens.values[first + 1 :: 2]
    whole = tokens.kinds == INTEGER
    known = whole[first::2] & (variables < graph.n_variables)
    numbers = np.where(known, variables, 0).astype(np.int64)
    limits = graph.cardinalities[numbers] if known.any() else np.zeros(len(known))

    def in_range(k: int) -> str:
        return f"a state of variable {graph.label(numbers[k])} in 0..{int(limits[k]) - 1}"

    tokens.require(
        Check(
            known, lambda k: first + 2 * k, lambda _: f"a variable in 0..{graph.n_variables - 1}"
        ),
        Check(
            whole[first + 1 :: 2] & ((states < limits) | ~known),
            lambda k: first + 2 * k + 1,
            in_range,
        ),
    )
    _, first_mention, same = np.unique(numbers, return_index=True, return_inverse=True)
    before = states[first_mention][same.ravel()]
    tokens.require(
        Check(
            states == before,
            lambda k: first + 2 * k + 1,
            lambda k: f"state {before[k]:.0f} of variable {graph.label(numbers[k])}, as before",
        )
    )
    return dict(zip(numbers.tolist(), states.astype(np.int64).tolist(), strict=True))


def _first_pair(tokens: Tokens) -> int:
    """The token where the pairs begin, after the counts."""
    count = tokens.whole(0, "the number of observations")
    if len(tokens) == 1 + 2 * count:
        return 1
    if count == 1 and len(tokens) % 2 == 0:
        pairs = tokens.whole(1, "the number of observations")
        if len(tokens) == 2 + 2 * pairs:
            return 2
        raise _wrong_count(tokens, 1, pairs, len(tokens) - 2)
    if count > 1 and _is_cases(tokens, count):
        raise tokens.error(0, "one; keep one case in the file", f"found {count} cases of evidence")
    raise _wrong_count(tokens, 0, count, len(tokens) - 1)


def _is_cases(tokens: Tokens, cases: int) -> bool:
    """Whether the numbers are exactly `cases` lists of pairs, each after its count."""
    place = 1
    for _ in range(cases):
        if place >= len(tokens) or tokens.kinds[place] != INTEGER:
            return False
        if tokens.values[place] > len(tokens):
            return False
        place += 1 + 2 * int(tokens.values[place])
    return place == len(tokens)


def _wrong_count(tokens: Tokens, token: int, pairs: int, numbers: int) -> FormatError:
    numeric = tokens.kinds[token + 1 :] == INTEGER
    if not numeric.all():
        bad = token + 1 + int(np.argmin(numeric))
        return tokens.error(bad, "variables and states, whole numbers >= 0")
    found = f"found {pairs} as the number of observations, and {numbers} numbers after it"
    return tokens.error(token, f"{2 * pairs}, a variable and a state for each", found)


# ---------------------------------------------------------------------- JSON


def _parse_json(path: str, data: bytes, graph: FactorGraph) -> Observations:
    pairs = parse_json(path, data, _EXAMPLE, pairs=list)
    observed: Observations = {}
    for key, value in pairs:
        v, state = _resolved(path, key, value, graph)
        if v in observed and observed[v] != state:
            found = f"variable {shown(key)} is observed twice, differently"
            raise FormatError(path, None, found, "expected one state for each variable")
        observed[v] = state
    return observed


_EXAMPLE = 'expected for example {"rain": 1, "sky": "grey"}'


def _resolved(path: str, key: str, value: Any, graph: FactorGraph) -> tuple[int, Any]:
    try:
        number = graph.names is None or key not in graph.names
        v = graph.index(int(key) if number and is_whole(key) else key)
        if _is_distribution(value):
            return v, value
        return v, graph.state_index(v, value)
    except KikuchiError as error:
        raise FormatError(path, None, str(error), _EXAMPLE) from error


def _is_distribution(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(x, int | float) and not isinstance(x, bool) for x in value)
    )
