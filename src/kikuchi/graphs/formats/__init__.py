"""File formats of models, evidence and results.

The suffix of a name gives the format, in any case, and `.gz` after it compression:

| suffix | format | keeps |
|---|---|---|
| .uai | UAI, MARKOV or BAYES | everything but names |
| .fg | libDAI | everything but names and the direction of arrows |
| .bif | Bayesian Interchange Format | everything, directed models only |
| .xmlbif, .bifxml, .xml | XMLBIF | everything, directed models only |
| .net | Hugin | directed models; names as identifiers |
| .xdsl, .dsl | GeNIe | directed models; names as identifiers |
| .json | JSON, see `json_model` | everything, to the last bit |

A malformed file raises a `FormatError` with the file, the line, what was found and what was
expected.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from os import fspath
from typing import TYPE_CHECKING, Any

from kikuchi.core.errors import FormatError, KikuchiError, ModelError
from kikuchi.core.files import PathName, suffix_of
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.graphs.formats.source import load, save

if TYPE_CHECKING:
    from kikuchi.graphs.formats.marginals import Marginals

__all__ = ["SUFFIXES", "read", "read_evidence", "write", "write_marginals", "write_pr"]

# Module, reader and writer of each format; modules are imported on first use.
_MODELS = {
    ".uai": ("uai", "read_uai", "uai_text"),
    ".fg": ("fg", "read_fg", "fg_text"),
    ".bif": ("bif", "read_bif", "bif_text"),
    ".xmlbif": ("xml_models", "read_xmlbif", "xmlbif_text"),
    ".bifxml": ("xml_models", "read_xmlbif", "xmlbif_text"),
    ".xml": ("xml_models", "read_xmlbif", "xmlbif_text"),
    ".net": ("brace_models", "read_net", "net_text"),
    ".xdsl": ("xml_models", "read_xdsl", "xdsl_text"),
    ".dsl": ("brace_models", "read_dsl", "dsl_text"),
    ".json": ("json_model", "read_json", "json_text"),
}
SUFFIXES = tuple(_MODELS)
"""Suffixes of model files."""
_MARGINALS = {".mar": "mar_text", ".csv": "csv_text"}


def read(path: PathName) -> FactorGraph:
    """Read a model; the suffix gives the format.

    `path` is a file name, optionally with .gz.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "coin.uai"
    >>> _ = file.write_text("MARKOV 1  2  1  1 0  2  0.5 1.5")
    >>> read(file)
    FactorGraph(1 variable, 1 factor, 2 table entries)
    """
    from kikuchi.graphs.formats.names import with_names

    suffix = _known_suffix(path, _MODELS)
    data = load(path)
    return with_names(parse(fspath(path), data, suffix), path, data)


def parse(path: str, data: bytes, suffix: str) -> FactorGraph:
    """Parse a model from the bytes of a file in the format of this suffix; `path` is for messages.

    >>> parse("coin", b"MARKOV 1  2  1  1 0  2  0.5 1.5", ".uai")
    FactorGraph(1 variable, 1 factor, 2 table entries)
    """
    module, reader, _ = _MODELS[suffix]
    try:
        graph: FactorGraph = _part(module, reader)(path, data)
        _check_rows(path, graph, suffix)
        return graph
    except FormatError:
        raise
    except ModelError as error:
        raise FormatError(path, None, str(error), "correct the model") from error


def write(graph: FactorGraph, path: PathName) -> None:
    """Write a model atomically; the suffix determines the format.

    Reading the file gives identical tables if they came from a file, and equal tables to 1e-15
    otherwise. A `log_constant` is multiplied into the first factor of an undirected model. A
    directed model whose conditional tables do not sum to 1 raises an error, here and in `read`.
    Names that the format cannot store are written to `PATH.names.json`, where `read` finds them;
    formats that allow only identifiers (.net, .dsl, .xdsl) get changed names, with a warning.

    `graph` is the model, `path` the file name, optionally with .gz.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "coin.fg.gz"
    >>> graph = FactorGraph([2], [((0,), [0.1, 0.7])])
    >>> write(graph, file)
    >>> read(file) == graph
    True
    """
    from kikuchi.graphs.formats.names import save_with_names

    save_with_names(path, _pieces(graph, path), graph)


def check_writable(graph: FactorGraph, path: PathName) -> None:
    """Raise an error if the format of `path` cannot represent the model, before its tables are
    processed.

    >>> check_writable(FactorGraph([2], []), "coin.bif")
    Traceback (most recent call last):
    ...
    kikuchi.core.errors.ModelError: only directed models can be written as BIF; write .uai or .fg \
instead
    """
    for _ in _pieces(graph, path):
        pass


def _pieces(graph: FactorGraph, path: PathName) -> Iterable[str]:
    """Yield the text of a model in pieces; raise an error if rows of conditional tables do not sum
    to 1.
    """
    module, _, writer = _MODELS[_known_suffix(path, _MODELS)]
    pieces: Iterable[str] = _part(module, writer)(graph)
    fault = _row_fault(graph)
    if fault is not None:
        raise ModelError(
            f"cannot write {fspath(path)}: {fault}, not to 1; normalise it, or write the model "
            "without directions: graph.replaced(children=None)"
        )
    return pieces


def _check_rows(path: str, graph: FactorGraph, suffix: str) -> None:
    """Raise an error if the tables of a directed model are not conditional distributions."""
    fault = _row_fault(graph)
    if fault is not None:
        plain = {".uai": "; MARKOV in place of BAYES allows any weights"}
        plain[".json"] = '; without the entries "child" any weights are allowed'
        raise FormatError(path, None, fault, f"expected 1{plain.get(suffix, '')}")


def _row_fault(graph: FactorGraph) -> str | None:
    if not graph.is_directed:
        return None
    from kikuchi.graphs.formats.directed import row_fault

    return row_fault(graph)


def read_evidence(path: PathName, graph: FactorGraph) -> dict[int, Any]:
    """Read observed states of variables of `graph`: {variable number: state number}.

    The file is in the UAI format, with or without the number of cases before it, or JSON (`{"rain":
    1, "sky": "grey"}`), where a list of numbers is returned unchanged.

    `path` is the file.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "coin.evid"
    >>> _ = file.write_text("1  0 1")
    >>> read_evidence(file, FactorGraph([2], []))
    {0: 1}
    """
    from kikuchi.graphs.formats.evidence import parse_evidence

    return parse_evidence(fspath(path), load(path), graph)


def write_marginals(beliefs: Marginals, path: PathName) -> None:
    """Write the marginals of all variables: `.MAR` for the UAI format, `.csv` for a table."""
    writer = _MARGINALS[_known_suffix(path, _MARGINALS)]
    save(path, _part("marginals", writer)(beliefs))


def write_pr(log_z: float, path: PathName) -> None:
    """Write log Z in the UAI format PR, to base 10."""
    from kikuchi.graphs.formats.marginals import pr_text

    save(path, [pr_text(log_z)])


def _part(module: str, name: str) -> Any:
    return getattr(import_module(f"kikuchi.graphs.formats.{module}"), name)


def _known_suffix(path: PathName, known: Iterable[str]) -> str:
    found, name = suffix_of(path), str(fspath(path))
    if found in known:
        return found
    if name.startswith("example:"):
        raise KikuchiError(f"{name} is not a file; kk.example('{name[8:]}') is the bundled model")
    what = f"the extension '{found}' is not supported" if found else "the name has no extension"
    raise KikuchiError(f"{name}: {what}; use one of {', '.join(known)} (each also with .gz)")
