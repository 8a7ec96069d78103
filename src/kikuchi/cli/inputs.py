"""From the words of a command line to models, evidence, methods and budgets."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kikuchi.core.bins import interval_edges
from kikuchi.core.budget import DEFAULT_BYTES, Budget, parse_bytes
from kikuchi.core.errors import DataError, EvidenceError, FormatError, MethodError, suggestion
from kikuchi.core.text import is_whole

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph
    from kikuchi.methods.method import Method

EXAMPLE = "example:"
STANDARD_INPUT = "-"


def load_model(word: str, format: str | None = None) -> FactorGraph:
    """The model in a file, on standard input (`-`), or the bundled one of `example:NAME`.

    Names that stand beside the file are put in (`kikuchi.graphs.formats.names`). `format` is the
    ending of the format where the name has none.
    """
    if format is not None or word == STANDARD_INPUT:
        return _model_of_format(word, format)
    if word.startswith(EXAMPLE):
        from kikuchi.data import example

        return example(word.removeprefix(EXAMPLE))
    if not _exists(word):
        from kikuchi.data import examples

        if word in examples():
            raise FormatError(
                word, None, "there is no such file", f"for the bundled model write {EXAMPLE}{word}"
            )
    from kikuchi.graphs.formats import read

    return read(word)


def _model_of_format(word: str, format: str | None) -> FactorGraph:
    from kikuchi.cli.outputs import MODEL_SUFFIXES
    from kikuchi.graphs.formats import parse
    from kikuchi.graphs.formats.source import load, load_stream

    known = [suffix.removeprefix(".") for suffix in MODEL_SUFFIXES]
    if format is None:
        raise FormatError("-", None, "a model has no name", f"give --format {', '.join(known)}")
    if format.lower() not in known:
        raise MethodError(f"there is no format '{format}'; {suggestion(format, known)}")
    if word != STANDARD_INPUT:
        return parse(word, load(word), f".{format.lower()}")
    if sys.stdin is None:
        raise FormatError("-", None, "standard input is closed", "give the model to it")
    return parse(word, load_stream(sys.stdin.buffer, word), f".{format.lower()}")


def load_evidence(graph: FactorGraph, word: str | None) -> dict[int, int | list[float]]:
    """Evidence by number, from a file or from a text such as `rain=yes,x3=0,x4=0.3:0.7`.

    The last is an observed marginal, for the methods that take it.
    """
    if word is None or not word.strip():
        return {}
    from kikuchi.reports.evidence import as_observed

    if not _exists(word) and "=" in word:
        return as_observed(graph, _inline(graph, word))
    if not _exists(word):
        colon = re.fullmatch(r"([^:,/\\]+):([^:,/\\]+)", word)
        if colon is not None and (colon[1] in (graph.names or ()) or graph.names is None):
            raise EvidenceError(
                f"'{word}' is not of the form variable=state; write {colon[1]}={colon[2]}"
            )
        raise EvidenceError(
            f'there is no evidence file {word}; give a file, or observations such as "x3=0"'
        )
    from kikuchi.graphs.formats import read_evidence

    return as_observed(graph, read_evidence(word, graph))


def make_budget(seconds: float | None, memory: str | None) -> Budget:
    """Limits of a run; memory defaults to that of the library."""
    return Budget(seconds=seconds, bytes=DEFAULT_BYTES if memory is None else parse_bytes(memory))


def choose_method(word: str, seed: int | None) -> Method:
    """A method from its text, with the seed put in if it has one."""
    from kikuchi.methods.registry import parse_method

    return with_seed(parse_method(word), seed)


def with_seed(method: Method, seed: int | None) -> Method:
    """The same method with another seed; methods that use no random numbers stay as they are.

    Those are the ones without the option, and those whose seed is none unless it is given.
    """
    random = any(f.name == "seed" and f.default is not None for f in dataclasses.fields(method))
    if seed is None or not random:
        return method
    return dataclasses.replace(method, seed=seed)  # type: ignore[call-arg]


def image_shape(text: str, pixels: int) -> tuple[int, int]:
    """Height and width of images of so many pixels, from a text such as `28x28`.

    >>> image_shape("2x3", 6)
    (2, 3)
    """
    parts = text.lower().split("x")
    if len(parts) == 2 and all(is_whole(p) for p in parts):
        height, width = int(parts[0]), int(parts[1])
        if height * width == pixels:
            return height, width
    raise DataError(f"--image {text}: {pixels} values are no images of that size")


def split_methods(text: str) -> list[str]:
    """Method texts of a list; a comma before `option=` still belongs to the method.

    >>> split_methods("jt,bp:damping=0.5,schedule=residual,mf")
    ['jt', 'bp:damping=0.5,schedule=residual', 'mf']
    """
    texts: list[str] = []
    for piece in (p.strip() for p in text.split(",")):
        if not piece:
            continue
        if texts and re.match(r"\w+\s*=", piece):
            texts[-1] += ("," if ":" in texts[-1] else ":") + piece
        else:
            texts.append(piece)
    if not texts:
        raise MethodError("no method was given; write for example --methods jt,bp,mf")
    return texts


# ---------------------------------------------------------------------- parts


def _exists(word: str) -> bool:
    try:
        return Path(word).exists()
    except (OSError, ValueError):  # too long for a name, or a null byte in it
        return False


def _inline(graph: FactorGraph, word: str) -> dict[int, int | list[float]]:
    observed: dict[int, int | list[float]] = {}
    for part in filter(None, (p.strip() for p in word.split(","))):
        name, state = _parted(graph, part)
        if not (name and state):
            raise EvidenceError(
                f"'{part}' in the evidence is not of the form variable=state; names with commas "
                "can be given in a JSON file"
            )
        v = variable_number(graph, name)
        value = _observation(graph, v, state)
        if observed.setdefault(v, value) != value:
            raise EvidenceError(f"variable {name} is observed twice, differently")
    return observed


def _parted(graph: FactorGraph, part: str) -> tuple[str, str]:
    """A variable and its state; an equals sign may belong to either name.

    The first sign that ends the name of a variable parts them, else the first of all.
    """
    signs = [k for k, letter in enumerate(part) if letter == "="]
    known = graph.names or ()
    for k in [*(k for k in signs if part[:k].strip() in known), *signs[:1]]:
        return part[:k].strip(), part[k + 1 :].strip()
    return part, ""


def variable_number(graph: FactorGraph, name: str) -> int:
    """By name first; then a number counts, with or without an x before it."""
    number = re.fullmatch(r"x?([0-9]{1,18})", name)
    if number and (graph.names is None or name not in graph.names):
        return graph.index(int(number[1]))
    return graph.index(name)


def _observation(graph: FactorGraph, variable: int, state: str) -> int | list[float]:
    named = graph.states is not None and state in graph.states[variable]
    if not named and ":" in state:
        try:
            return [float(p) for p in state.split(":")]
        except ValueError:
            raise EvidenceError(
                f"variable {graph.label(variable)}: '{state}' is not a list of probabilities "
                "such as 0.3:0.7"
            ) from None
    intervals = graph.states is not None and interval_edges(graph.states[variable]) is not None
    if not named and not intervals and re.fullmatch(r"[+-]?[0-9]{1,18}", state):
        return graph.state_index(variable, int(state))
    return graph.state_index(variable, state)
