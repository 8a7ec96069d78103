"""Names of models in formats without names: `MODEL.uai.names.json`.

UAI and .fg files number their variables and states. A model learned from a table has names, and
later tables must be read with the same names, so they are written to a file next to the model:

```
{"digest": "sha256:...", "names": ["rain", "sky"], "states": [["no", "yes"], ["clear", "grey"]]}
```

The digest is computed from the decompressed text of the model. If a program is killed between the
two writes, or another program replaces the model alone, the digest shows that the names belong to
another model. While a model is being replaced, the file also contains the names of its predecessor,
under the key `before`, so that `read` returns a model with its own names at every moment. A file
without a digest, written by hand, is used for any model that it fits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kikuchi.core.errors import FormatError, KikuchiError, ModelError
from kikuchi.core.files import PathName, atomic_write, parse_json, read_text, suffix_of
from kikuchi.graphs.formats.source import load, save

if TYPE_CHECKING:
    from kikuchi.graphs.factor_graph import FactorGraph

_ENDING = ".names.json"
_WITHOUT_NAMES = (".uai", ".fg")
_MEND = "delete or mend the file"

Entry = dict[str, Any]


def names_file(model: PathName) -> Path:
    """Return the path of the names of a model file."""
    return Path(f"{fspath(model)}{_ENDING}")


def save_with_names(model: PathName, pieces: Iterable[str], graph: FactorGraph) -> None:
    """Write the text of a model, and beside it the names of `graph` that its format leaves out.

    Killed at any moment, it leaves the old model with its names or the new one with its own.
    """
    beside = names_file(model)
    unnamed = graph.names is None and graph.states is None
    needed = suffix_of(model) in _WITHOUT_NAMES and not unnamed
    if not needed and not beside.is_file():
        save(model, pieces)
        return
    entry: Entry = {"names": graph.names, "states": graph.states} if needed else {}
    before = _entry_of_file(Path(fspath(model)), beside)

    def announce(digest: str) -> None:
        entry["digest"] = digest
        _write(beside, entry if before is None else {**entry, "before": before})

    save(model, pieces, finished=announce)
    if not needed:
        beside.unlink(missing_ok=True)
    elif before is not None:
        _write(beside, entry)


def with_names(graph: FactorGraph, model: PathName, data: bytes) -> FactorGraph:
    """Return the model with the names beside its file, if there are any; `data` is its text."""
    source = names_file(model)
    if graph.names is not None or not source.is_file():
        return graph
    entry = _matching(_entries(source), _digest(data))
    if entry is None:
        raise FormatError(
            source,
            None,
            f"found the names of another model than {Path(fspath(model)).name} holds now",
            "write the model again, or delete this file to read the model without names",
        )
    try:
        return graph.replaced(names=entry.get("names"), states=entry.get("states"))
    except ModelError as error:
        found = f"not the names of this model ({error})"
        raise FormatError(source, None, found, _MEND) from None


# ---------------------------------------------------------------------- the file


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _write(beside: Path, content: Entry) -> None:
    with atomic_write(beside) as file:
        file.write(json.dumps(content, ensure_ascii=False) + "\n")


def _entries(source: Path) -> list[Entry]:
    """Return the checked names of a file: of the model and perhaps of its predecessor."""
    content = parse_json(source, read_text(source, FormatError), _MEND)
    found = list(_chain(content))
    if not all(map(_is_entry, found)):
        what = "found something other than names of variables and of their states"
        raise FormatError(source, None, what, _MEND)
    return found


def _chain(content: Any) -> Iterator[Any]:
    yield content
    if isinstance(content, dict) and "before" in content:
        yield content["before"]


def _matching(entries: list[Entry], digest: str) -> Entry | None:
    return next((e for e in entries if e.get("digest", digest) == digest), None)


def _entry_of_file(model: Path, beside: Path) -> Entry | None:
    """Return the names of the present model; None if it does not exist or cannot be read."""
    if not model.is_file():
        return None
    try:
        digest = _digest(load(model))
        entry = _matching(_entries(beside), digest) if beside.is_file() else {}
    except KikuchiError:  # it is about to be replaced: an unreadable file has no names to preserve
        return None
    if entry is None:
        return None
    return {"digest": digest, "names": entry.get("names"), "states": entry.get("states")}


def _is_entry(content: Any) -> bool:
    if not isinstance(content, dict) or not content.keys() & {"names", "states", "digest"}:
        return False
    digest, names, states = (content.get(key) for key in ("digest", "names", "states"))
    return (
        (digest is None or isinstance(digest, str))
        and (names is None or _is_texts(names))
        and (states is None or (isinstance(states, list) and all(map(_is_texts, states))))
    )


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
