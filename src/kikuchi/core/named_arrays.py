"""Dictionaries of arrays for files and states: entries under a prefix, and facts as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def part(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """Return the arrays whose names begin with `prefix/`, with the prefix removed.

    >>> list(part({"rule/hidden": np.zeros(1), "trace/seconds": np.zeros(1)}, "rule"))
    ['hidden']
    """
    start = f"{prefix}/"
    return {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}


def prefixed(arrays: Mapping[str, Any], prefix: str) -> Arrays:
    """Return the arrays under names that begin with `prefix/`: the inverse of `part`."""
    return {f"{prefix}/{name}": np.asarray(array) for name, array in arrays.items()}


def json_array(facts: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Return facts as the bytes of a JSON string, for states that contain only arrays.

    >>> from_json_array(json_array({"kind": "isotropic"}))
    {'kind': 'isotropic'}
    """
    text = json.dumps(facts, default=lambda array: array.tolist())
    return np.frombuffer(text.encode(), dtype=np.uint8)


def from_json_array(array: NDArray[Any]) -> dict[str, Any]:
    """Return the facts encoded by `json_array`."""
    facts: dict[str, Any] = json.loads(array.tobytes())
    return facts
