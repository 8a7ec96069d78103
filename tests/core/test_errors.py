"""Errors: one family, one line each; and seeds, which raise them."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from kikuchi.core import errors
from kikuchi.core.seeds import generator, kernel_seeds

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, Exception)
]


def test_every_error_is_a_kikuchi_error() -> None:
    assert len(CLASSES) >= 8
    assert all(issubclass(cls, errors.KikuchiError) for cls in CLASSES)


def test_errors_are_also_what_python_programs_expect() -> None:
    assert issubclass(errors.ModelError, ValueError)
    assert issubclass(errors.EvidenceError, ValueError)
    assert issubclass(errors.MethodError, ValueError)
    assert issubclass(errors.MissingExtraError, ImportError)
    assert issubclass(errors.ImpossibleEvidenceError, errors.EvidenceError)
    assert issubclass(errors.FormatError, errors.ModelError)


def test_format_errors_say_where() -> None:
    error = errors.FormatError(Path("a.uai"), 3, "found 'x'", "expected a number")
    assert str(error) == "a.uai, line 3: found 'x'; expected a number"
    assert (error.path, error.line) == ("a.uai", 3)
    assert str(errors.FormatError("b", None, "empty", "expected text")) == "b: empty; expected text"


def test_suggestions() -> None:
    assert errors.suggestion("dampin", ["damping", "tol"]).startswith("did you mean 'damping'?")
    assert errors.suggestion("xyz", ["damping", "tol"]) == "known: damping, tol"
    assert errors.suggestion("tl", iter(["tol"])) == "did you mean 'tol'? known: tol"
    assert errors.suggestion("bq", ["auto", "bp"]) == "did you mean 'bp'? known: auto, bp"
    assert errors.suggestion("maybe", ["no", "yes"]) == "known: no, yes"
    assert errors.suggestion("belief", ["bp", "plefka"]) == "known: bp, plefka"


def test_seeds_give_the_same_numbers() -> None:
    assert generator(3).random() == generator(3).random()
    assert generator(3).random() != generator(4).random()
    rng = np.random.default_rng(0)
    assert generator(rng) is rng
    assert generator(np.random.SeedSequence(3)).random() == generator(3).random()


@pytest.mark.parametrize("seed", [-1, 1.5, "seven"])
def test_bad_seeds_are_refused(seed: object) -> None:
    with pytest.raises(errors.KikuchiError, match="seed must be a non-negative integer, got"):
        generator(seed)  # type: ignore[arg-type]


def test_kernel_seeds_are_not_zero_and_differ() -> None:
    seeds = kernel_seeds(0, 1000)
    assert seeds.dtype == np.uint64
    assert seeds.min() > 0
    assert len(set(seeds.tolist())) == 1000
    assert np.array_equal(seeds, kernel_seeds(0, 1000))


def test_texts_of_errors_are_one_line_of_some_length() -> None:
    assert len(str(errors.DataError("a.csv: " + "9" * 10_000 + " is no number"))) < 2100
    assert str(errors.DataError("a.csv: 'two\nlines' is not a number")) == (
        "a.csv: 'two lines' is not a number"
    )
    assert str(errors.FormatError("a\nb.uai", None, "found  two", "expected\none")) == (
        "a b.uai: found two; expected one"
    )


def test_errors_come_back_from_workers_as_they_were() -> None:
    sent = errors.FormatError("a.uai", 3, "found 'x'", "expected a whole number")
    back = pickle.loads(pickle.dumps(sent))
    assert (str(back), back.path, back.line) == (str(sent), "a.uai", 3)
