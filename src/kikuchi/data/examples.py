"""Small example models by name; `models/README.md` lists the sources of their numbers.

Reference: LAW-E1, LAW-M2.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kikuchi.core.errors import ModelError, suggestion
from kikuchi.graphs.binary import boltzmann_graph
from kikuchi.graphs.directed import bayesian_network
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.generators import grid, ldpc

_FOLDER = Path(__file__).parent / "models"


def example(name: str) -> FactorGraph:
    """Return a bundled example model.

    `name` is sprinkler, asia, juror, cycle4, grid10, ldpc24, hmm30 or mixed5; `kikuchi examples`
    describes them. In the shell, `example:NAME` stands for a file.

    >>> example("cycle4")
    FactorGraph(4 variables, 8 factors, 24 table entries)
    """
    return _entry(name).build()


def examples() -> dict[str, str]:
    """Return the names of the bundled models and their descriptions.

    >>> list(examples())
    ['sprinkler', 'asia', 'juror', 'cycle4', 'grid10', 'ldpc24', 'hmm30', 'mixed5']
    """
    return {name: entry.description for name, entry in _EXAMPLES.items()}


def example_path(name: str) -> Path:
    """Return the file of a bundled model that has one: sprinkler, asia and grid10.

    >>> example_path("asia").name
    'asia.bif'
    """
    file = _entry(name).file
    if file is None:
        with_file = [key for key, entry in _EXAMPLES.items() if entry.file is not None]
        raise ModelError(f"example '{name}' has no file; these have one: {', '.join(with_file)}")
    return _FOLDER / file


# ---------------------------------------------------------------------- the models


def _read(file: str) -> FactorGraph:
    from kikuchi.graphs.formats import read

    return read(_FOLDER / file)


def _juror() -> FactorGraph:
    """Guilt, a legitimate visit, and fingerprints that either can cause."""
    rare = [0.99, 0.01]
    found = np.array([[1e-6, 0.7], [0.05, 0.2]])
    return bayesian_network(
        {name: ["no", "yes"] for name in ("guilty", "visited", "fingerprints")},
        {
            "guilty": ([], rare),
            "visited": ([], rare),
            "fingerprints": (["guilty", "visited"], np.stack([1 - found, found], axis=-1)),
        },
    )


def _cycle4() -> FactorGraph:
    """A cycle of four units."""
    weights = {(0, 1): 2.0, (1, 2): -1.5, (2, 3): 1.0, (3, 0): 3.0}
    return boltzmann_graph(weights, [0.1, -0.4, 0.3, -1.0])


def _hmm30(steps: int = 30) -> FactorGraph:
    """The occasionally dishonest casino: a fair or loaded die, and its rolls."""
    start = [0.5, 0.5]
    change = [[0.95, 0.05], [0.1, 0.9]]
    faces = [[1 / 6] * 6, [0.1] * 5 + [0.5]]
    dice = [f"die_{t:02}" for t in range(1, steps + 1)]
    rolls = [f"roll_{t:02}" for t in range(1, steps + 1)]
    return bayesian_network(
        {
            **{die: ["fair", "loaded"] for die in dice},
            **{roll: ["1", "2", "3", "4", "5", "6"] for roll in rolls},
        },
        {
            dice[0]: ([], start),
            **{dice[t]: ([dice[t - 1]], change) for t in range(1, steps)},
            **{roll: ([die], faces) for die, roll in zip(dice, rolls, strict=True)},
        },
    )


def _mixed5() -> FactorGraph:
    """Two loops, cardinalities 2 to 4, a factor of order three, and impossible states."""
    three = np.array(
        [
            [[1.0, 0.0, 2.0, 0.5], [0.3, 1.5, 0.0, 1.0], [2.0, 0.2, 0.7, 0.0]],
            [[0.0, 1.2, 0.4, 3.0], [1.0, 0.0, 0.6, 0.9], [0.5, 2.5, 0.0, 1.1]],
        ]
    )
    return FactorGraph(
        [2, 3, 4, 2, 3],
        [
            ("abc", three),
            ("cd", [[1.0, 2.0], [0.5, 0.0], [3.0, 1.0], [0.0, 1.5]]),
            ("de", [[1.0, 0.0, 2.0], [0.4, 1.3, 0.0]]),
            ("be", [[1.0, 0.5, 2.0], [0.2, 1.0, 1.0], [2.0, 0.1, 0.6]]),
            ("c", [0.4, 1.0, 0.7, 1.6]),
        ],
        names="abcde",
    )


class _Example(NamedTuple):
    description: str
    build: Callable[[], FactorGraph]
    file: str | None = None


_EXAMPLES = {
    "sprinkler": _Example(
        "is the grass wet from rain or from the sprinkler? 4 binary variables, directed",
        lambda: _read("sprinkler.bif"),
        "sprinkler.bif",
    ),
    "asia": _Example(
        "diagnosis in a chest clinic, 8 binary variables, directed, with a deterministic or",
        lambda: _read("asia.bif"),
        "asia.bif",
    ),
    "juror": _Example("fingerprints explained away, 3 binary variables, directed", _juror),
    "cycle4": _Example("a Boltzmann machine of 4 units in a cycle", _cycle4),
    "grid10": _Example(
        "a 10 x 10 spin glass with random fields", lambda: grid(10, 10, seed=0), "grid10.uai"
    ),
    "ldpc24": _Example(
        "decoding a Gallager code of 24 bits, hard parity checks",
        lambda: ldpc(24, 3, 6, noise=0.05, seed=40),
    ),
    "hmm30": _Example("a casino with a loaded die: a hidden Markov chain of 30 steps", _hmm30),
    "mixed5": _Example("5 variables of 2 to 4 states, order three, hard zeros", _mixed5),
}


def _entry(name: str) -> _Example:
    if name not in _EXAMPLES:
        raise ModelError(f"there is no example '{name}'; {suggestion(name, _EXAMPLES)}")
    return _EXAMPLES[name]
