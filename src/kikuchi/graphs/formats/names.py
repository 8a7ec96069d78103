"""Names beside model files that cannot hold them: `MODEL.uai.names.json`.

UAI and .fg files number their variables and states. A model that was learnt from a table has names,
and the next table must be read with the same ones, so they are written beside the model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kikuchi.core.errors import FormatError, ModelError
from kikuchi.core.files import atomic_write, parse_json, read_text, suffix_of

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph

_ENDING = ".names.json"
_KEEPS_NAMES = (".bif", ".xmlbif", ".bifxml", ".xml", ".json")


def names_file(model: str | Path) -> Path:
    """Where the names of a model file stand."""
    return Path(f"{model}{_ENDING}")


def write_names(graph: FactorGraph, model: Path) -> Path | None:
    """Write the names of a model that its file leaves out; take away those of an older one."""
    target = names_file(model)
    keeps_names = suffix_of(model) in _KEEPS_NAMES
    if keeps_names or (graph.names is None and graph.states is None):
        target.unlink(missing_ok=True)
        return None
    content = {"names": graph.names, "states": graph.states}
    with atomic_write(target) as file:
        file.write(json.dumps(content, ensure_ascii=False) + "\n")
    return target


def with_names(graph: FactorGraph, model: str | Path) -> FactorGraph:
    """The model with the names that stand beside its file, if any do."""
    source = names_file(model)
    if graph.names is not None or not source.is_file():
        return graph
    wanted = "delete or mend the file"
    content = parse_json(source, read_text(source, FormatError), wanted)
    if not _holds_names(content):
        found = "found something else than names of variables and of their states"
        raise FormatError(source, None, found, wanted)
    try:
        return graph.replaced(names=content["names"], states=content["states"])
    except ModelError as error:
        found = f"not the names of this model ({error})"
        raise FormatError(source, None, found, wanted) from None


def _holds_names(content: Any) -> bool:
    if not isinstance(content, dict) or not content.keys() >= {"names", "states"}:
        return False
    names, states = content["names"], content["states"]
    return (names is None or _is_texts(names)) and (
        states is None or (isinstance(states, list) and all(map(_is_texts, states)))
    )


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
