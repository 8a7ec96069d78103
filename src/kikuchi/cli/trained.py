"""Trained models in files, as commands take them: loaded by the kind that their header names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kikuchi.core import text
from kikuchi.core.answer import Answer, TextTable
from kikuchi.core.errors import DataError, KikuchiError
from kikuchi.core.files import suffix_of
from kikuchi.training.kinds import Gives, Kind, all_kinds, kind_of_class

if TYPE_CHECKING:
    from kikuchi.training.checkpoint import Arrays
    from kikuchi.training.workflow import Workflow


class Trained(NamedTuple):
    """A fitted estimator of a file, its kind and its workflow."""

    estimator: Any
    kind: Kind
    workflow: Workflow
    model: str

    def read(self, data: list[str]) -> Any:
        """The data of files, as this model takes them."""
        from kikuchi.cli.data_options import options_for

        return options_for(self.kind)().read_for(self.kind, self.estimator, self.model, data)


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
        raise DataError(f"{model}: no such file")
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


def kind_of(model: str) -> Kind:
    """The kind of the model in a file, without loading its class."""
    name = str(read_header(model)[1]["estimator"])
    kind = kind_of_class(name)
    if kind is None:
        raise DataError(
            f"{model}: holds a {name}, which the command line does not know; use Python"
        )
    return kind


def load_trained(model: str, *gives: Gives) -> Trained:
    """The estimator of a file; one that gives none of `gives` is refused."""
    if not is_trained(model):
        raise KikuchiError(
            f"{model}: a fitted model is needed, a .safetensors file; kikuchi fit writes them"
        )
    kind = kind_of(model)
    if gives and not set(gives) & set(kind.gives):
        able = [k.name for k in all_kinds().values() if set(gives) & set(k.gives)]
        raise KikuchiError(
            f"{model}: a model of kind {kind.name} gives {', '.join(kind.gives)}; "
            f"{' or '.join(gives)} come from {', '.join(able)}"
        )
    return Trained(kind.load().load(model), kind, kind.make_workflow(), model)


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
        kind = kind_of_class(str(about["estimator"]))
        package = "?" if kind is None else kind.package
        facts = [
            ("model", self.model),
            ("estimator", f"{package}.{about['estimator']} ({self.kind})"),
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
