"""Trained models and checkpoints whose digest is right and whose contents are not.

One array of a file is left out, gets another shape or another type, or a number that is not finite,
or one of its facts is left out or replaced; the digest is computed again, as by a program that
writes such files itself. A fault is any exception but a `KikuchiError`: when the file is read, when
a fit goes on from it, or when the estimator is used afterwards. So is an answer that is not a
number, and an unchanged file that is refused.
"""

from __future__ import annotations

import copy
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attack.tally import Tally
from common.estimators import FAMILIES, Family
from kikuchi.core.errors import KikuchiError
from kikuchi.training import checkpoint as files

UNCHANGED = "nothing changed"
LEARNERS = (
    "em", "gradient", "gradient:inference=bp", "pseudo", "surrogate", "cd", "pcd", "mf-trw",
     "ups-jt", "ipf", "gis", "iis", "loopy-is", "min-max", "mf-trw-net",
)  # fmt: skip
_USES = ("score", "transform", "predict", "predict_proba", "log_likelihood", "score_samples")
_TOLD_APART = ("trace/", "/trace/")  # times and bounds of a fit, which may be NaN
_ODD = (None, "odd", -7, 10**400, math.nan, [], {})
Arrays = Mapping[str, Any]
Facts = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """A kind of file: `make(place)` writes one, `use(place)` reads it and does what follows."""

    make: Callable[[Path], Any]
    use: Callable[[Path], Any]
    kind: str


# ---------------------------------------------------------------------- what is changed


def mutations(arrays: Arrays, facts: Facts) -> Iterator[tuple[str, Arrays, Facts]]:
    """What was changed, and the contents of the file with that change."""
    for name, array in arrays.items():
        if any(part in name for part in _TOLD_APART):
            continue
        others = {n: a for n, a in arrays.items() if n != name}
        yield f"{name} left out", others, facts
        for how, changed in _changed(array):
            yield f"{name} {how}", others | {name: changed}, facts
    for path in _paths(facts):
        for how, changed in _changed_fact(facts, path):
            yield f"{'.'.join(map(str, path))} {how}", arrays, changed


def _changed(array: Any) -> Iterator[tuple[str, Any]]:
    yield "with another axis", array[None]
    if array.ndim:
        one = array[-1:] if len(array) else np.zeros((1, *array.shape[1:]), dtype=array.dtype)
        yield "one longer", np.concatenate([array, one])
        yield "empty", array[:0]
        yield "flat", np.zeros(3, dtype=array.dtype)
    if array.ndim > 1:
        yield "one wider", np.concatenate([array, array[..., -1:]], axis=-1)
    if array.dtype.kind == "f":
        for odd in (math.nan, math.inf):
            changed = np.array(array)
            changed.reshape(-1)[:1] = odd
            yield f"with {odd}", changed
        yield "as whole numbers", np.zeros(array.shape, dtype=np.int32)
    else:
        yield "as fractions", np.full(array.shape, 0.5)


def _paths(facts: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the facts have a value; of a list the first place only."""
    inner = facts.items() if isinstance(facts, dict) else enumerate(facts[:1])
    for key, value in inner:
        if (*above, key) == ("about", "arrays"):  # written anew with each change
            continue
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from _paths(value, (*above, key))


def _changed_fact(facts: Facts, path: tuple[Any, ...]) -> Iterator[tuple[str, Facts]]:
    *above, last = path
    for odd in ("left out", *_ODD):
        changed = copy.deepcopy(facts)
        node: Any = changed
        for key in above:
            node = node[key]
        if odd == "left out":
            del node[last]
        elif odd == node[last]:
            continue
        else:
            node[last] = odd
        yield "left out" if odd == "left out" else f"is {str(odd)[:9]!r}", changed


# ---------------------------------------------------------------------- what is tried


def faults(
    subject: Subject, folder: Path, count: int | None = None, seed: int = 0, end: float = math.inf
) -> tuple[int, list[str]]:
    """How many changed files were tried, and what was wrong with them.

    Of all changes, `count` are drawn by the `seed`; none begins after the monotonic time `end`.
    """
    place = folder / "file"
    _quietly(lambda: subject.make(place))
    arrays, facts = files.load(place, (subject.kind,))
    every = list(mutations(arrays, facts))
    order = np.random.default_rng(seed).permutation(len(every))[:count]
    tried, found = 1, _fault(UNCHANGED, lambda: subject.use(place))
    for what, *contents in (every[k] for k in order):
        if time.monotonic() > end:
            break
        _write(place, subject.kind, *contents)
        found += _fault(what, lambda: subject.use(place))
        tried += 1
    return tried, found


def _write(place: Path, kind: str, arrays: Arrays, facts: Facts) -> None:
    if isinstance(facts.get("about"), dict) and "arrays" in facts["about"]:
        forms = {n: [str(a.dtype), *a.shape] for n, a in sorted(arrays.items())}
        facts = {**facts, "about": {**facts["about"], "arrays": forms}}
    files.save(place, kind, arrays, facts)


def _fault(what: str, attempt: Callable[[], Any]) -> list[str]:
    try:
        _quietly(attempt)
    except KikuchiError as error:
        if what == UNCHANGED:
            return [f"{what}: refused: {error}"]
        return [] if str(error) else [f"{what}: a message without a word"]
    except Exception as error:
        return [f"{what}: {type(error).__name__}: {error}"]
    return []


def _quietly(call: Callable[[], Any]) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return call()


# ---------------------------------------------------------------------- the files


def subjects() -> Iterator[tuple[str, Subject]]:
    """The checkpoints of all learners, and the models and checkpoints of all estimators."""
    for text in LEARNERS:
        yield f"checkpoint of {text}", learned(text)
    for name, family in FAMILIES.items():
        yield f"model {name}", trained(family)
        if family.resumable:
            yield f"checkpoint {name}", interrupted(family)


def trained(family: Family) -> Subject:
    """The file of a trained model."""
    kind = type(family.make()).file_kind

    def use(place: Path) -> None:
        estimator = type(family.make()).load(place)
        for name in _USES:
            if hasattr(estimator, name):
                values = getattr(estimator, name)(*family.data[: 2 if name == "score" else 1])
                _check_numbers(name, values)
        if hasattr(estimator, "sample"):
            estimator.sample(3)

    return Subject(lambda place: family.fit().save(place), use, f"kikuchi {kind}")


def interrupted(family: Family) -> Subject:
    """The checkpoint of an estimator."""

    def fit(place: Path) -> None:
        fitted = family.fit(checkpoint=place)
        for name, array in fitted._fitted_state()[0].items():
            if not any(part in name for part in _TOLD_APART):
                _check_numbers(name, array)

    return Subject(fit, fit, files.CHECKPOINT)


def learned(text: str) -> Subject:
    """The checkpoint of a learner of a small lattice."""
    import kikuchi as kk

    rows = np.random.default_rng(0).integers(0, 2, (100, 9))

    def fit(place: Path) -> None:
        done = kk.learn(kk.grid(3, 3, seed=1), rows, text, checkpoint=place)
        _check_numbers("log_tables", done.graph.log_tables)

    return Subject(fit, fit, files.CHECKPOINT)


def _check_numbers(name: str, values: Any) -> None:
    array = np.asarray(values)
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise ArithmeticError(f"{name} is NaN")


# ---------------------------------------------------------------------- the attack


def attack(count: int, seed: int, seconds: float) -> Tally:
    """Change `count` files, as many of each kind, until the `seconds` are over.

    Loading the libraries of all kinds is not counted. The kinds come in an order of the seed: a
    slow machine reaches other kinds with another seed.
    """
    tally = Tally("resigned")
    every = list(subjects())
    end = time.monotonic() + seconds
    each = max(8, -(-count // len(every)))
    with tempfile.TemporaryDirectory() as place, checkpoints_always():
        for number in np.random.default_rng(seed).permutation(len(every)).tolist():
            name, subject = every[number]
            if tally.tried >= count or time.monotonic() > end:
                break
            folder = Path(place) / str(number)
            folder.mkdir()
            tried, found = faults(subject, folder, each, seed + number, end)
            tally.tried += tried
            tally.faults += [f"{name}: {fault}" for fault in found]
    return tally


@contextmanager
def checkpoints_always() -> Iterator[None]:
    """Let checkpoints be written after every step."""
    default = files.Checkpoint.__init__.__kwdefaults__
    assert default is not None
    before = default["every"]
    default["every"] = 0.0
    try:
        yield
    finally:
        default["every"] = before
