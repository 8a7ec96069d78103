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


def kind_of_trained(model: str) -> str:
    """What a file says that it holds; nothing if it is no file of ours."""
    from kikuchi.core.files import guarded_reading

    with guarded_reading(model, "a trained model"):
        from safetensors import safe_open

        with safe_open(model, framework="np") as file:
            return str((file.metadata() or {}).get("format", "")).removeprefix("kikuchi ")


def _score_of_network(model: str, data: str) -> Answer:
    """How well a Bayesian network predicts the column of a file that it was trained for."""
    from kikuchi.bayesnn import BayesianMLPClassifier, BayesianMLPRegressor
    from kikuchi.bayesnn.evaluation import NetworkEvaluation
    from kikuchi.cli.rows import RowOptions
    from kikuchi.training.checkpoint import load

    _, facts = load(model, (f"kikuchi {BayesianMLPRegressor.file_kind}",))
    kinds = {c.__name__: c for c in (BayesianMLPRegressor, BayesianMLPClassifier)}
    name = str(facts.get("about", {}).get("estimator"))
    estimator: Any = kinds.get(name, BayesianMLPRegressor).load(model)
    target = estimator.columns_[-1] if estimator.columns_ else "-1"
    table = RowOptions().read_target(data, target, 0)
    if table.x.shape[1] != estimator.n_features_in_:
        raise DataError(
            f"{data}: {table.x.shape[1]} columns beside {target}, but {model} has "
            f"{estimator.n_features_in_} inputs"
        )
    if estimator.columns_ and table.names != estimator.columns_:
        wanted = ", ".join(estimator.columns_[:8])
        raise DataError(f"{data}: other columns than those of {model} ({wanted})")
    return NetworkEvaluation(estimator, data, table.x, table.y, new=True)


def score_of_trained(model: str, data: str, seconds: float | None) -> Answer:
    """How well an energy model or a Bayesian network explains the rows of a file."""
    if kind_of_trained(model) == "bayesian-network":
        return _score_of_network(model, data)
    return _score_of_energy(model, data, seconds)


def _score_of_energy(model: str, data: str, seconds: float | None) -> Answer:
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
