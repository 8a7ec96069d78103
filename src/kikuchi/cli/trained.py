"""Trained models in files, as the commands for models take them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kikuchi.core.errors import DataError, KikuchiError
from kikuchi.core.files import atomic_write, suffix_of

if TYPE_CHECKING:
    from kikuchi.core.answer import Answer


def is_trained(model: str) -> bool:
    """Whether a word names the file of a trained model."""
    return suffix_of(model) == ".safetensors"


def score_of_trained(model: str, data: str, seconds: float | None) -> Answer:
    """How well an energy model explains the rows of a file."""
    import numpy as np

    from kikuchi.cli.rows import RowOptions
    from kikuchi.energy import ExpertICA, Patches
    from kikuchi.energy.evaluation import evaluate

    estimator = ExpertICA.load(model)
    rows, _, shape = RowOptions().read_numbers(data, 0)
    if isinstance(rows, Patches) and estimator.preparation_ is not None:
        ours, theirs = (p.whitening for p in (estimator.preparation_, rows.preparation))
        if not np.array_equal(ours.forward, theirs.forward):
            raise DataError(
                f"{data}: these patches were prepared in another way than those that {model} was "
                "trained on; make them with kikuchi patches --like"
            )
    values = np.asarray(rows)
    if values.shape[1] != estimator.n_features_in_:
        raise DataError(
            f"{data}: {values.shape[1]} columns, but {model} has {estimator.n_features_in_}"
        )
    estimator.log_z(seconds=seconds)
    return evaluate(estimator, values, log_z="ais", shape=shape, source=data, new=True)


def write_samples(model: str, out: Path, count: int, seed: int) -> str:
    """Draw rows of an energy model and write them; answers what was done."""
    import dataclasses

    import numpy as np

    from kikuchi.core import text
    from kikuchi.energy import ExpertICA, Patches

    if suffix_of(out) not in (".csv", ".npz") or out.name.lower().endswith(".gz"):
        raise KikuchiError(f"{out}: rows are written as .csv or .npz; choose such a name")
    estimator = ExpertICA.load(model)
    rows = estimator.sample(count, random_state=seed)
    told = estimator.preparation_
    if suffix_of(out) == ".csv":
        with atomic_write(out) as file:
            np.savetxt(file, rows, delimiter=",", fmt="%.9g")
    elif told is None:
        arrays: dict[str, Any] = {"data": rows}
        with atomic_write(out, "wb") as file:
            np.savez(file, **arrays)
    else:
        kept = dataclasses.replace(told, drawn=0, flat=0, rows=count, sources=(model,))
        Patches(rows.astype(np.float32), kept).save(out)
    how = "exact" if estimator.is_square else "chains that began at rows of the data"
    return f"{out}: {text.count(count, 'row')}, {how}"
