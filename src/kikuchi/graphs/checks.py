"""Validation and conversion for `FactorGraph`: every array is checked once, when it enters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kikuchi.core import numerics
from kikuchi.core.arrays import U4, Array, Ints
from kikuchi.core.bins import interval_given
from kikuchi.core.errors import EvidenceError, ModelError, suggestion

INDEX = np.uint32  # unsigned: compiled loops then skip the wrap-around of negative indices
MAX_STATES = 2**31 - 1


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, made read-only."""
    array.flags.writeable = False
    return array


def same(a: NDArray[Any] | None, b: NDArray[Any] | None) -> bool:
    """Whether two arrays are equal, or both are missing."""
    if a is None or b is None:
        return a is b
    return bool(np.array_equal(a, b))


def part_of_factor(offsets: NDArray[Any], factor: Any) -> slice:
    """Return the slice of the entries of factor `factor` in an array with these `offsets`."""
    last = len(offsets) - 2
    if isinstance(factor, int | np.integer) and 0 <= factor <= last:
        return slice(offsets[factor], offsets[factor + 1])
    known = f"the model has factors 0..{last}"
    if isinstance(factor, str):
        known += f"; in directed models graph.cpt({factor!r}) is the table of a variable"
    raise ModelError(f"there is no factor {factor!r}; {known}")


def as_cardinalities(cardinalities: ArrayLike) -> U4:
    """Return numbers of states as an index array, or raise a `ModelError`."""
    raw = np.asarray(cardinalities)
    if raw.dtype == INDEX and raw.ndim == 1 and raw.size and raw.min() >= 1:
        return np.ascontiguousarray(raw)
    large = raw.dtype == object and all(type(k) is int for k in raw.flat)  # beyond 64 bits
    if raw.ndim != 1 or (raw.size and not large and not np.issubdtype(raw.dtype, np.integer)):
        raise ModelError("cardinalities must be a list of integers, one for each variable")
    bad = np.flatnonzero((raw < 1) | (raw > MAX_STATES))
    if bad.size:
        states = raw[bad[0]]
        if states < 1:
            raise ModelError(f"variable {bad[0]} has {states} states; give it at least 1")
        shown = str(states) if states < 1e15 else f"more than {MAX_STATES}"
        raise ModelError(f"variable {bad[0]} has {shown} states; give it at most {MAX_STATES}")
    return np.ascontiguousarray(raw, dtype=INDEX)


def variable_number(variable: int | str, index: Mapping[str, int], count: int) -> int:
    """Return the number of a variable given by name or number, or raise a `ModelError`."""
    if isinstance(variable, str):
        if variable in index:
            return index[variable]
        number = variable.removeprefix("x")  # reports label unnamed variables x0, x1, ...
        is_number = number.isascii() and number.isdecimal() and len(number) < 10
        if index or not is_number or int(number) >= count:
            unnamed = f"the variables have no names; give a number or a string in x0..x{count - 1}"
            hint = suggestion(variable, list(index)) if index else unnamed
            raise ModelError(f"there is no variable '{variable}'; {hint}")
        return int(number)
    if not isinstance(variable, int | np.integer) or isinstance(variable, bool | np.bool_):
        raise ModelError(f"{variable!r} is not a variable; give a number or a name")
    if not 0 <= variable < count:
        raise ModelError(f"there is no variable {variable}; the model has variables 0..{count - 1}")
    return int(variable)


def state_number(state: Any, names: Sequence[str] | None, count: int, label: str) -> int:
    """Return the number of a state, given by number, name or value, of the variable `label`."""
    interval = None if names is None else interval_given(names, state)
    if interval is not None:
        return interval
    if isinstance(state, str):
        if names is None:
            raise EvidenceError(
                f"variable {label}: state '{state}' is a name, but the states have "
                f"none; give a number in 0..{count - 1}"
            )
        if state in names:
            return names.index(state)
        raise EvidenceError(f"variable {label} has no state '{state}'; {suggestion(state, names)}")
    if not isinstance(state, int | np.integer) or isinstance(state, bool | np.bool_):
        known = known_states(names, count)
        raise EvidenceError(f"variable {label}: {state!r} is not a state; give {known}")
    if not 0 <= state < count:
        raise EvidenceError(f"variable {label} has states 0..{count - 1}, got {state}")
    return int(state)


def scope_and_table(factor: Any, number: int) -> tuple[Sequence[int | str], ArrayLike]:
    """Return the scope and the table of a factor, or raise a `ModelError` with its number."""
    try:
        scope, table = factor
        return list(scope), table
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"factor {number} must be a pair (scope, table), such as ((0, 1), [[1, 2], [3, 4]])"
        ) from error


def as_table(table: ArrayLike, shape: tuple[int, ...], number: int) -> Array:
    """Return the table of a factor in the shape of its scope, or raise a `ModelError`."""
    try:
        values = np.asarray(table, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"factor {number}: the table is not an array of numbers") from error
    if values.size != int(np.prod(shape, dtype=np.int64)) or (
        values.ndim > 1 and values.shape != shape
    ):
        raise ModelError(f"factor {number}: table of shape {values.shape}, scope needs {shape}")
    return values


def log_of_weights(values: Array, number: int) -> Array:
    """Return the logarithm of a table of weights, or raise a `ModelError`."""
    if not np.all(values >= 0) or np.any(np.isinf(values)):
        worst = values[~(values >= 0) | np.isinf(values)][0]
        raise ModelError(f"factor {number}: weights must be finite and not negative, got {worst}")
    return numerics.log(values)


def scope_rows(scopes: U4, offsets: Ints, orders: NDArray[Any], order: int) -> U4:
    """Scopes of all factors of one order, as the rows of a matrix."""
    starts = offsets[:-1][orders == order]
    rows: U4 = scopes[starts[:, None] + np.arange(order)]
    return rows


def check_scopes(cards: U4, scopes: U4, offsets: Ints) -> None:
    """Raise a `ModelError` unless all scopes hold known variables, each once."""
    orders = np.diff(offsets)
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(scopes) or np.any(orders < 1):
        raise ModelError("scope_offsets must increase from 0 to the number of scope entries")
    beyond = np.flatnonzero(scopes >= len(cards))
    if beyond.size:
        factor = int(np.searchsorted(offsets, beyond[0], side="right")) - 1
        raise ModelError(
            f"factor {factor}: variable {scopes[beyond[0]]} does not exist; "
            f"the model has variables 0..{len(cards) - 1}"
        )
    for order in np.flatnonzero(np.bincount(orders)):  # np.unique would load numpy.ma
        rows = np.sort(scope_rows(scopes, offsets, orders, int(order)), axis=1)
        repeated = np.any(rows[:, 1:] == rows[:, :-1], axis=1)
        if np.any(repeated):
            factor = int(np.flatnonzero(orders == order)[np.flatnonzero(repeated)[0]])
            raise ModelError(f"factor {factor} contains a variable twice in its scope")


def offsets_of_tables(cards: U4, scopes: U4, offsets: Ints) -> Ints:
    """Return where the table of each factor begins in the array of all tables."""
    if len(offsets) == 1:
        return np.zeros(1, dtype=np.int64)
    sizes = np.multiply.reduceat(cards[scopes].astype(np.float64), offsets[:-1])
    if sizes.sum() > 2**53:
        factor = int(np.argmax(sizes))
        raise ModelError(f"factor {factor} would need {sizes[factor]:.3g} table entries")
    return np.concatenate([[0], np.cumsum(sizes.astype(np.int64))]).astype(np.int64)


def all_zero_factors(log_tables: Array, offsets: Ints) -> Ints:
    """Return the factors whose tables are zero everywhere."""
    if len(offsets) == 1:
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(np.maximum.reduceat(log_tables, offsets[:-1]) == -np.inf)


def check_size(log_tables: Array, offsets: Ints) -> None:
    """Raise a `ModelError` unless the tables have the size that the scopes need."""
    if offsets[-1] != log_tables.size:
        raise ModelError(
            f"the scopes need {offsets[-1]} table entries, there are {log_tables.size}"
        )


def check_tables(log_tables: Array, offsets: Ints) -> None:
    """Raise a `ModelError` if a logarithm is NaN or positive infinity."""
    bad = np.flatnonzero(~(log_tables < np.inf))
    if bad.size:
        factor = int(np.searchsorted(offsets, bad[0], side="right")) - 1
        raise ModelError(
            f"factor {factor}: log-potentials must be below infinity, got {log_tables[bad[0]]}"
        )
    zero = all_zero_factors(log_tables, offsets)
    if zero.size:
        raise ModelError(f"factor {zero[0]} is zero everywhere, so no state has any probability")


def _texts(words: Sequence[str]) -> tuple[str, ...]:
    result = tuple(str(word) for word in words)
    try:
        "".join(result).encode()
    except UnicodeEncodeError as error:
        raise ModelError(
            f"a name holds {error.object[error.start]!r}, which is not valid Unicode"
        ) from None
    return result


def as_names(names: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    """Return the names of variables as texts, each different, or raise a `ModelError`."""
    if names is None:
        return None
    result = _texts(names)
    if len(result) != count:
        raise ModelError(f"{len(result)} names for {count} variables")
    if len(set(result)) != count:
        twice = next(name for name in result if result.count(name) > 1)
        raise ModelError(f"two variables are named '{twice}'; names must differ")
    return result


def as_states(
    states: Sequence[Sequence[str]] | None, cards: U4
) -> tuple[tuple[str, ...], ...] | None:
    """Return the names of the states of every variable, or raise a `ModelError`."""
    if states is None:
        return None
    result = tuple(_texts(group) for group in states)
    if len(result) != len(cards):
        raise ModelError(
            f"state names are needed for all {len(cards)} variables, got {len(result)}"
        )
    for v, group in enumerate(result):
        if len(group) != cards[v] or len(set(group)) != len(group):
            raise ModelError(f"variable {v} needs {cards[v]} different state names, got {group}")
    return result


def known_states(states: Sequence[str] | None, count: int) -> str:
    """Return the valid states of a variable, for messages."""
    numbers = f"a number in 0..{count - 1}"
    if states is None:
        return numbers
    shown = ", ".join(map(repr, states[:12])) + (", ..." if count > 12 else "")
    return f"a name ({shown}) or {numbers}"


def check_children(children: U4, count: int, scopes: U4, offsets: Ints) -> None:
    """Raise a `ModelError` unless every factor has one variable of its own as its child."""
    if len(children) != len(offsets) - 1 or not np.array_equal(
        np.sort(children), np.arange(count, dtype=INDEX)
    ):
        raise ModelError("a directed model needs one factor for each variable, its child")
    holds = np.add.reduceat(scopes == np.repeat(children, np.diff(offsets)), offsets[:-1])
    if not np.all(holds == 1):
        factor = int(np.flatnonzero(holds != 1)[0])
        raise ModelError(f"factor {factor} does not contain its child {children[factor]}")


def as_distribution(value: ArrayLike, states: int, label: str) -> Array:
    """Return a normalised observed marginal; the given values must already be close to a
    distribution.
    """
    try:
        target = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise EvidenceError(f"variable {label}: {value!r:.60} is not a list of numbers") from error
    if target.shape != (states,):
        raise EvidenceError(
            f"variable {label} has {states} states; an observed marginal needs as many numbers"
        )
    total = target.sum()
    if not target.min() >= 0 or not abs(total - 1.0) < 1e-6:
        raise EvidenceError(
            f"variable {label}: an observed marginal must be >= 0 and sum to 1, got {target}"
        )
    normalised: Array = target / total
    return normalised
