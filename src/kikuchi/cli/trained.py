"""Trained models in files, as the commands for models take them: `info`, `sample`, `evaluate`.

`ESTIMATORS` is the one place that a family registers its estimators in: where the class is, what
its `sample` answers, and how rows are judged by it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kikuchi.core import text
from kikuchi.core.answer import Answer, TextTable
from kikuchi.core.errors import DataError, KikuchiError
from kikuchi.core.files import atomic_write, suffix_of

if TYPE_CHECKING:
    from kikuchi.training.checkpoint import Arrays

Draws = Literal["rows", "pairs", "steps", "nothing"]
Judged = Literal["machine", "energy", "network", "belief", "density", "sequence", "classes"]


class TrainedKind(NamedTuple):
    """An estimator that files hold.

    `room` is the package of the class. `draws`: "rows" (`sample(n, random_state=)` gives rows),
    "pairs" (rows and what made them), "steps" (`sample(n, seed=)` gives what made them and rows),
    or "nothing". `judged` names the evaluation: "density" and "sequence" by `score_samples` or
    `score`, "classes" by errors of `predict`, the others by the evaluation of their family.
    """

    room: str
    draws: Draws
    judged: Judged


ESTIMATORS: dict[str, TrainedKind] = {
    "RBM": TrainedKind("boltzmann", "rows", "machine"),
    "RateCodedRBM": TrainedKind("boltzmann", "rows", "machine"),
    "BoltzmannMachine": TrainedKind("boltzmann", "rows", "machine"),
    "ExpertICA": TrainedKind("energy", "rows", "energy"),
    "EnergyModel": TrainedKind("energy", "rows", "energy"),
    "MeanFieldICA": TrainedKind("ica", "pairs", "density"),
    "BayesianICA": TrainedKind("ica", "pairs", "density"),
    "InfomaxICA": TrainedKind("ica", "nothing", "density"),
    "BayesianMLPRegressor": TrainedKind("bayesnn", "nothing", "network"),
    "BayesianMLPClassifier": TrainedKind("bayesnn", "nothing", "network"),
    "LaplaceMLPRegressor": TrainedKind("bayesnn", "nothing", "network"),
    "SampledMLPRegressor": TrainedKind("bayesnn", "nothing", "network"),
    "SigmoidBeliefNetwork": TrainedKind("beliefnets", "rows", "belief"),
    "NoisyOrNetwork": TrainedKind("beliefnets", "rows", "belief"),
    "ThresholdNetworkClassifier": TrainedKind("beliefnets", "nothing", "classes"),
    "HMM": TrainedKind("temporal", "steps", "sequence"),
    "FactorialHMM": TrainedKind("temporal", "steps", "sequence"),
    "FrameHoppingHMM": TrainedKind("temporal", "steps", "sequence"),
    "HaemodynamicHMM": TrainedKind("temporal", "steps", "sequence"),
    "LinearGaussianSSM": TrainedKind("temporal", "steps", "sequence"),
    "TemporalICA": TrainedKind("temporal", "steps", "sequence"),
    "ProbitFilter": TrainedKind("temporal", "nothing", "classes"),
    "FlowMixture": TrainedKind("flows", "rows", "density"),
    "LatentMixtureFlow": TrainedKind("flows", "rows", "density"),
    "FlowClassifier": TrainedKind("flows", "nothing", "classes"),
    "FlowHMM": TrainedKind("flows", "steps", "sequence"),
}


def is_trained(model: str) -> bool:
    """Whether a word names the file of a trained model."""
    return suffix_of(model) == ".safetensors"


def refuse_for_trained(model: str, **given: str | None) -> None:
    """Refuse options of models of variables that would be passed over for a trained model."""
    for name, value in given.items():
        if value is not None:
            raise KikuchiError(f"--{name} is not for trained models such as {model}; leave it out")


def read_header(model: str) -> tuple[str, dict[str, Any], Arrays]:
    """The kind of a file of ours, what it says about its estimator, and its arrays."""
    from kikuchi.core.files import guarded_reading
    from kikuchi.training.checkpoint import CHECKPOINT, load

    if not Path(model).is_file():
        raise DataError(f"{model}: there is no such file")
    with guarded_reading(model, "a trained model"):
        from safetensors import safe_open

        with safe_open(model, framework="np") as file:
            kind = str((file.metadata() or {}).get("format", ""))
    if not kind.startswith("kikuchi "):
        raise DataError(f"{model}: no trained model of this program, but some other safetensors")
    arrays, facts = load(model, (kind,))
    about = facts.get("about")
    if kind == CHECKPOINT or not isinstance(about, dict) or "estimator" not in about:
        what = "a checkpoint of a fit" if kind == CHECKPOINT else f"a {kind[8:]} without its fit"
        raise DataError(f"{model}: {what}; give the file of a trained model")
    return kind.removeprefix("kikuchi "), about, arrays


def load_trained(model: str) -> tuple[Any, TrainedKind]:
    """The estimator of a file, and what can be asked of it."""
    _, about, _ = read_header(model)
    name = str(about["estimator"])
    if name not in ESTIMATORS:
        raise DataError(
            f"{model}: holds a {name}, which the command line does not know; use Python"
        )
    kind = ESTIMATORS[name]
    return getattr(importlib.import_module(f"kikuchi.{kind.room}"), name).load(model), kind


def class_of(model: str) -> tuple[str, str]:
    """The package and the name of the class of a file."""
    name = str(read_header(model)[1]["estimator"])
    return f"kikuchi.{ESTIMATORS[name].room}", name


# ---------------------------------------------------------------------- info


@dataclass(frozen=True)
class TrainedFacts(Answer):
    """What a file of a trained model says about itself."""

    model: str
    kind: str
    about: dict[str, Any]
    arrays: Arrays

    @property
    def converged(self) -> bool:
        """As the fit says."""
        return bool(self.about.get("converged", True))

    @property
    def warnings(self) -> list[str]:
        """Those of the fit."""
        return list(self.about.get("warnings", []))

    @property
    def parameters(self) -> dict[str, Any]:
        """Arrays of the model itself."""
        return {n: a for n, a in self.arrays.items() if not n.startswith("trace/")}

    def facts(self) -> list[tuple[str, str]]:
        """The estimator, its fit and its size."""
        about = self.about
        count = sum(int(a.size) for a in self.parameters.values())
        room = ESTIMATORS[about["estimator"]].room if about["estimator"] in ESTIMATORS else "?"
        facts = [
            ("model", self.model),
            ("estimator", f"kikuchi.{room}.{about['estimator']} ({self.kind})"),
            ("fit", f"{about.get('stopped')} after {about.get('iterations')} iterations"),
            ("numbers", f"{count} in {text.count(len(self.parameters), 'array')}"),
        ]
        if "n_features_in" in about:
            names = about.get("feature_names_in") or []
            shown = f": {', '.join(names[:8])}{' ...' if len(names) > 8 else ''}" if names else ""
            facts.append(("columns", f"{about['n_features_in']}{shown}"))
        options = about.get("options", {})
        facts.append(
            ("options", ", ".join(f"{k}={v}" for k, v in options.items() if v is not None))
        )
        return facts

    def table(self) -> TextTable:
        """Names and shapes of the arrays."""
        rows = [[n, " x ".join(map(str, a.shape)) or "one"] for n, a in self.parameters.items()]
        return TextTable(["array", "shape"], rows)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        from kikuchi import __version__

        shapes = {n: list(a.shape) for n, a in self.parameters.items()}
        head = {"model": self.model, "version": __version__, "kind": self.kind}
        return {**head, **{k: v for k, v in self.about.items() if k != "arrays"}, "arrays": shapes}


def facts_of_trained(model: str) -> TrainedFacts:
    """What a file says about its model, without loading the family."""
    return TrainedFacts(model, *read_header(model))


# ---------------------------------------------------------------------- evaluate


def score_of_trained(model: str, data: str, seconds: float | None) -> Answer:
    """How well a trained model explains, or predicts, the rows of a file."""
    from kikuchi.cli.rows import RowOptions

    estimator, kind = load_trained(model)
    if kind.judged == "network":
        return _score_of_network(estimator, model, data)
    if kind.judged == "energy":
        return _score_of_energy(estimator, model, data, seconds)
    if kind.judged == "classes":
        return _score_of_classes(estimator, model, data)
    read = RowOptions.of(estimator).read_numbers(data, 0, gaps=kind.judged == "sequence")
    shape: Any = read.shape
    source = _source(estimator, data)
    values = _checked_columns(estimator, model, data, read.rows, read.names)
    if kind.judged == "machine":
        from kikuchi.boltzmann.evaluation import evaluate

        return evaluate(estimator, values, log_z="auto", shape=shape, source=source)
    if kind.judged == "belief":
        from kikuchi.beliefnets.evaluation import evaluate as evaluate_network

        return evaluate_network(estimator, values, shape=shape, source=source, new=True)
    return _score_of_density(estimator, source, values, kind)


def _source(estimator: Any, data: str) -> str:
    """A file, and what is done to its values because it was done to those of the training."""
    words = {"divide": "divided by {:g}", "threshold": "1 from {:g} up"}
    steps = getattr(estimator, "row_scaling_", {})
    told = [words[name].format(value) for name, value in steps.items() if name in words]
    return f"{data} ({', '.join(told)}, as in training)" if told else data


def _checked_columns(
    estimator: Any,
    model: str,
    data: str,
    rows: Any,
    names: list[str] | None,
    learnt: list[str] | None = None,
) -> Any:
    """The columns that a model learnt from, in its order where both have names; `learnt` are those
    of the model, if not its `feature_names_in_`.

    The estimator is left without the names, as what it is asked from now on is an array.
    """
    import numpy as np

    values = np.asarray(rows)
    own_names = [str(name) for name in vars(estimator).pop("feature_names_in_", ())]
    wanted_names = own_names if learnt is None else learnt
    if names is not None and wanted_names and len(names) == len(wanted_names):
        if set(names) != set(wanted_names):
            raise _other_columns(data, model, wanted_names)
        values = values[:, [names.index(name) for name in wanted_names]]
    wanted = getattr(estimator, "n_features_in_", values.shape[1])
    if values.shape[1] != wanted:
        raise DataError(f"{data}: {values.shape[1]} columns, but {model} has {wanted}")
    return values


def _other_columns(data: str, model: str, wanted: list[str]) -> DataError:
    shown = ", ".join(wanted[:8]) + (" ..." if len(wanted) > 8 else "")
    return DataError(f"{data}: other columns than those of {model} ({shown})")


@dataclass(frozen=True)
class RowScores(Answer):
    """A score per row of a file, or per step of a sequence."""

    estimator: Any
    source: str
    rows: int
    label: str
    mean: float
    error: float | None = None
    note: str = ""
    about_rows: Sequence[str] = ()

    @property
    def warnings(self) -> list[str]:
        """Those of the fit, and what must be said of the rows."""
        return [*self.estimator.warnings_, *self.about_rows]

    def facts(self) -> list[tuple[str, str]]:
        """The data, the model and the score."""
        spread = "" if self.error is None else f" ± {self.error:.2g}"
        return [
            ("data", f"{self.source}: {text.count(self.rows, 'row')}"),
            ("estimator", type(self.estimator).__name__),
            (self.label, f"{self.mean:.6g}{spread}{self.note}"),
        ]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "estimator": type(self.estimator).__name__,
            "rows": self.rows,
            "measure": self.label,
            "mean": self.mean,
            "standard_error": self.error,
            "warnings": self.warnings,
        }


def _score_of_density(estimator: Any, data: str, values: Any, kind: TrainedKind) -> RowScores:
    import numpy as np

    if kind.judged == "sequence":
        label = "log-likelihood per step"
        return RowScores(estimator, data, len(values), label, float(estimator.score(values)))
    scores = np.asarray(estimator.score_samples(values))
    error = float(scores.std(ddof=1) / np.sqrt(len(scores))) if len(scores) > 1 else None
    label = "log-likelihood per row"
    return RowScores(estimator, data, len(values), label, float(scores.mean()), error)


class _Labelled(NamedTuple):
    """Columns that a model learnt from, in its order, the column to predict, and its name."""

    inputs: Any
    targets: Any
    column: str


def _read_labelled(estimator: Any, model: str, data: str, *, classes: bool) -> _Labelled:
    """The column to predict is the one beside those learnt from; without names it is found by
    place: where it was in training, or the last.
    """
    from kikuchi.cli.rows import RowOptions

    options = RowOptions.of(estimator)
    columns = list(getattr(estimator, "columns_", ()))  # of a network; its target is the last
    numbered = sorted(columns) == sorted(map(str, range(len(columns))))
    named = [] if numbered else columns
    learnt = named[:-1] or [str(name) for name in getattr(estimator, "feature_names_in_", ())]
    names, target = options.column_names(data), columns[-1] if columns and numbered else "-1"
    if learnt and names is not None:
        others = [name for name in names if name not in learnt]
        if len(others) != 1 or (named and others != named[-1:]):
            raise _other_columns(data, model, named or learnt)
        target = others[0]
    table = options.read_target(data, target, 0, classes=classes)
    inputs = _checked_columns(estimator, model, data, table.x, table.input_names, learnt)
    column = f"{'the last column, ' if target == '-1' else 'column '}{table.names[-1]}"
    targets = (
        _known_labels(estimator.classes_, table.y, f"{data}: {column}") if classes else table.y
    )
    return _Labelled(inputs, targets, column)


def _known_labels(known: Any, labels: Any, where: str) -> Any:
    """Labels of the kind of those learnt, some of which were learnt."""
    import numpy as np

    texts = known.dtype.kind in "US"
    if texts and labels.dtype.kind not in "US":
        labels = np.array(_words(labels))  # rows of classes that are all named by numbers
    if texts != (labels.dtype.kind in "US") or not np.isin(labels, known).any():
        shown = ", ".join(_words(known[:8])) + (" ..." if len(known) > 8 else "")
        first = _words(labels[:1])[0]
        raise DataError(f"{where}: '{first}' is none of the classes learnt ({shown})")
    return labels


def _words(labels: Any) -> list[str]:
    return [str(x) if isinstance(x, str | bytes) else f"{x:g}" for x in labels]


def _score_of_classes(estimator: Any, model: str, data: str) -> RowScores:
    """Errors of predictions of the column beside those learnt from; without names, the last."""
    import numpy as np

    found = _read_labelled(estimator, model, data, classes=True)
    wrong = estimator.predict(found.inputs) != found.targets
    share, rows = float(np.mean(wrong)), len(wrong)
    error = float(np.sqrt(share * (1 - share) / rows))
    note = f" ({int(wrong.sum())} of {rows}; {found.column})"
    new = int(np.sum(~np.isin(found.targets, estimator.classes_)))
    told = [f"{text.count(new, 'row')} of classes that were not learnt: all are errors"]
    return RowScores(
        estimator, _source(estimator, data), rows, "errors per row", share, error, note,
        told if new else [],
    )  # fmt: skip


def _score_of_network(estimator: Any, model: str, data: str) -> Answer:
    """How well a Bayesian network predicts the column of a file that it was trained for."""
    from kikuchi.bayesnn.evaluation import NetworkEvaluation

    found = _read_labelled(estimator, model, data, classes=hasattr(estimator, "classes_"))
    source = _source(estimator, data)
    return NetworkEvaluation(estimator, source, found.inputs, found.targets, new=True)


def _score_of_energy(estimator: Any, model: str, data: str, seconds: float | None) -> Answer:
    from kikuchi.cli.rows import RowOptions
    from kikuchi.energy import Patches
    from kikuchi.energy.evaluation import evaluate

    rows, _, shape, names = RowOptions.of(estimator).read_numbers(data, 0)
    if isinstance(rows, Patches):
        estimator.check_patches(rows)
    values = _checked_columns(estimator, model, data, rows, names)
    estimator.log_z(seconds=seconds)
    source = _source(estimator, data)
    return evaluate(estimator, values, log_z="ais", shape=shape, source=source, new=True)


# ---------------------------------------------------------------------- sample


def write_samples(model: str, out: Path, count: int, seed: int) -> str:
    """Draw rows of a trained model and write them; answers what was done."""
    if suffix_of(out) not in (".csv", ".npz") or out.name.lower().endswith(".gz"):
        raise KikuchiError(f"{out}: rows are written as .csv or .npz; choose such a name")
    estimator, kind = load_trained(model)
    if kind.draws == "nothing":
        raise KikuchiError(
            f"{model}: a {type(estimator).__name__} predicts or transforms rows and has no "
            "distribution to draw them from; kikuchi evaluate takes it"
        )
    how = "independent"
    if kind.draws == "rows":
        rows = estimator.sample(count, random_state=seed)
        if kind.judged in ("machine", "energy"):
            exact = kind.judged == "energy" and estimator.is_square
            how = "exact" if exact else "chains of a sampler, not independent of their start"
    else:
        rows = estimator.sample(count, random_state=seed)
        how = how if kind.draws == "pairs" else "one sequence"
    told = getattr(estimator, "preparation_", None) if kind.judged == "energy" else None
    _write_rows(out, rows, estimator, model, told)
    return f"{out}: {text.count(count, 'row')}, {how}"


def _write_rows(out: Path, rows: Any, estimator: Any, model: str, told: Any) -> None:
    """Rows as a table, or as arrays: patches where `told` says how those of the fit were made."""
    import csv
    import dataclasses

    import numpy as np

    from kikuchi.core.text import spreadsheet_cell

    rows = np.asarray(rows)
    rows = rows[:, None] if rows.ndim == 1 else rows
    if suffix_of(out) == ".csv":
        names = [spreadsheet_cell(str(n)) for n in getattr(estimator, "feature_names_in_", ())]
        with atomic_write(out) as file:
            if names:
                csv.writer(file, lineterminator="\n").writerow(names)
            np.savetxt(file, rows, delimiter=",", fmt="%.9g")
    elif told is None:
        arrays: dict[str, Any] = {"data": rows}
        with atomic_write(out, "wb") as file:
            np.savez(file, **arrays)
    else:
        from kikuchi.energy import Patches

        kept = dataclasses.replace(told, drawn=0, flat=0, rows=len(rows), sources=(model,))
        Patches(rows.astype(np.float32), kept).save(out)
