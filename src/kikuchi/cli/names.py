"""Names beside model files that cannot hold them: `MODEL.uai.names.json`.

UAI and .fg files number their variables and states. A model that was learnt from a table has names,
and the next table must be read with the same ones, so they are written beside the model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kikuchi.core.errors import FormatError, ModelError
from kikuchi.core.files import atomic_write

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph

_ENDING = ".names.json"


def names_file(model: str | Path) -> Path:
    """Where the names of a model file stand."""
    return Path(f"{model}{_ENDING}")


def write_names(graph: FactorGraph, model: Path) -> Path | None:
    """Write the names of a model that its file leaves out; take away those of an older one."""
    target = names_file(model)
    keeps_names = model.name.lower().removesuffix(".gz").endswith(".bif")
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
    from kikuchi.graphs.factor_graph import FactorGraph

    try:
        content: Any = json.loads(source.read_text(encoding="utf-8"))
        return FactorGraph.from_arrays(
            graph.cardinalities,
            graph.scopes,
            graph.scope_offsets,
            graph.log_tables,
            names=content["names"],
            states=content["states"],
            children=graph.children,
            log_constant=graph.log_constant,
            validate=False,
        )
    except (OSError, ValueError, KeyError, TypeError, ModelError) as error:
        raise FormatError(
            source, None, f"not the names of this model ({error})", "delete or mend the file"
        ) from None
