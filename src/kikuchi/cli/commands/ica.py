"""`kikuchi ica`: independent sources of tables, sound and brain scans."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from kikuchi.cli import options
from kikuchi.cli.command import StrictOutput, finish, grouped
from kikuchi.cli.estimators import EstimatorCommand, EstimatorOptions, Given, fit_quietly
from kikuchi.cli.ica_data import RecordingOptions
from kikuchi.cli.options import argument, flag, option
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.text import is_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kikuchi.ica.order import Choice

METHODS = EstimatorOptions(
    "kikuchi.ica",
    {"mean-field": "MeanFieldICA", "bayesian": "BayesianICA", "infomax": "InfomaxICA"},
    {
        "posterior": "--posterior TEXT",
        "mixing": "--mixing M",
        "mixing_prior": "--mixing-prior TEXT",
        "noise": "--noise N",
        "n_init": "--restarts N",
        "adapt": "--adapt",
        "max_iter": "--iterations N",
        "processes": "--processes N",
    },
    learning=("n_init", "max_iter", "processes"),
    elsewhere={
        "n_components": "--sources",
        "prior": "--prior",
        "random_state": "--seed",
    },
)
_MOST = 10  # sources that `auto` tries

app = typer.Typer(
    help="Find independent sources in recordings.", no_args_is_help=True, rich_markup_mode=None
)

DataFiles = Annotated[
    list[str],
    argument(
        "DATA...",
        "A table (.csv, .tsv, .parquet, .npz, .npy), wave files of one recording, or brain scans "
        "(.nii, .nii.gz).",
    ),
]
Folder = Annotated[Path, option("--out -o DIR", "A new folder for the answer.")]
LostOrNotConverged = Annotated[
    bool, option("--strict", "Exit with 3 when not converged or a source is lost.")
]


@dataclass(frozen=True)
class SourceOptions:
    """Which model is fitted, how many sources it has, and how they are distributed."""

    HEADING: ClassVar[str] = "Model"

    sources: str = flag("--sources -n N", "How many, or auto: by BIC.", "auto")
    method: str = flag("--method -m M", "mean-field, bayesian or infomax.", "mean-field")
    prior: list[str] | None = flag(
        "--prior TEXT",
        "Of the sources, such as laplace, binary01:rate=0.3, exponential; several times for one "
        "per source. bayesian: sparse, bimodal, gaussian. infomax: a density.",
    )
    most: int | None = flag("--most N", "Most sources that auto tries.  [10]")

    def estimator(self, settings: Given, **more: Any) -> Any:
        """The estimator before it is fitted; what it does not know is refused."""
        priors, most, method = self.prior or [], self.most, self.method
        METHODS.check(method)
        if len(priors) > 1 and (method != "mean-field" or self.count is None):
            raise MethodError(f"{method} with --sources {self.sources} takes one --prior for all")
        if priors or method == "infomax":
            prior: Any = priors if len(priors) > 1 else (priors or ["auto"])[0]
            more["prior"] = prior
        given = dict(settings)
        if "noise" in given:
            given["noise"] = _noise(given["noise"])
        estimator = METHODS.make(method, given, n_components=self.count, **more)
        if method == "infomax" and self.count is None:
            raise MethodError("method infomax cannot choose a number of sources; give --sources N")
        if most is not None and (method != "mean-field" or self.count is not None):
            raise MethodError("--most is for --sources auto of mean-field; leave it out")
        if most is not None and most < 1:
            raise MethodError(f"--most must be at least 1, got {most}")
        return estimator

    @property
    def count(self) -> int | None:
        """The number of sources; None if it is to be chosen."""
        if self.sources == "auto":
            return None
        if not is_whole(self.sources) or int(self.sources) < 1:
            raise MethodError(
                f"--sources must be auto or a whole number >= 1, got '{self.sources}'"
            )
        return int(self.sources)

    def fit(self, estimator: Any, samples: NDArray[Any]) -> tuple[Any, Choice | None]:
        """The fitted estimator, and how its number of sources was chosen (None if it was given)."""
        if self.method == "mean-field":
            largest = self.count or self.most
            largest = largest or max(1, min(_MOST, samples.shape[1], len(samples) - 1))
            _check_enumeration(estimator, largest)
            if self.count is None:
                return _choose(estimator, samples, largest)
        elif self.method == "infomax" and estimator.n_components > samples.shape[1]:
            estimator.set_params(view="causal")
        return fit_quietly(estimator, samples), None


@dataclass(frozen=True)
class SourceOutput(StrictOutput):
    """Where the answer goes; a lost source counts as not converged."""

    strict: LostOrNotConverged = False


@app.callback()
def ica() -> None:
    """Find independent sources in recordings."""


@app.command(cls=EstimatorCommand)
@grouped
def fit(
    data: DataFiles,
    out: Folder,
    *,
    sources: SourceOptions,
    settings: Annotated[Given, METHODS],
    preparation: RecordingOptions,
    seed: options.FitSeed = 0,
    seconds: options.Seconds = None,
    cluster: options.Cluster = None,
    output: SourceOutput,
) -> None:
    """Find sources, their mixing and the noise.

    DIR gets mixing, sources and the model. Tables: mixing.csv and sources.csv (.tsv and .npz for
    such data). Sound: mixing.csv and a wave file per source. Scans: maps.nii.gz, courses.csv and
    mixing.csv. model.json holds everything else.
    """
    from kikuchi.cli.console import ProgressBar
    from kikuchi.cli.folders import check_folder, write_folder
    from kikuchi.core.cluster import optional_cluster
    from kikuchi.ica.evaluation import evaluate

    bar = ProgressBar(f"ica {sources.method}", quiet=output.quiet)
    preparation.check()
    if seed < 0:
        raise MethodError(f"--seed must be a whole number >= 0, got {seed}")
    if cluster is not None and "processes" in settings:
        raise MethodError("give --processes or --cluster, not both")
    given = settings | ({"missing": "hidden"} if preparation.missing else {})
    estimator = sources.estimator(given, random_state=seed, seconds=seconds, progress=bar)
    check_folder(out)
    for name in (*data, *preparation.files):
        output.check(name)
    prepared = preparation.read(data)
    begin = time.perf_counter()
    with optional_cluster(cluster), bar:
        estimator, choice = sources.fit(estimator, prepared.samples)
    taken = time.perf_counter() - begin
    evaluation = evaluate(estimator, sources.method, prepared, choice=choice, seconds=taken)
    write_folder(out, evaluation)

    def page(path: Path, command: str) -> None:
        from kikuchi.reports.ica_page import ica_report

        ica_report(evaluation, path, command=command)

    finish(evaluation, output, head={"out": str(out)}, page=page, written=[out])


def _noise(text: str) -> Any:
    """A structure, or known variances."""
    if text in ("auto", "isotropic", "diagonal", "full"):
        return text
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        raise MethodError(
            f"--noise is auto, isotropic, diagonal, full, or known variances, got '{text}'"
        ) from None
    return values[0] if len(values) == 1 else values


def _choose(estimator: Any, samples: NDArray[Any], largest: int) -> tuple[Any, Choice]:
    """The fit with the best BIC among all numbers of sources up to `largest`."""
    import warnings

    if estimator.seconds is not None:
        estimator.set_params(seconds=estimator.seconds / largest)
    with warnings.catch_warnings(action="ignore"):  # they are in warnings_, and shown once
        choice = estimator.choose_sources(samples, range(largest + 1))
    if choice.best is None:
        raise DataError(
            "no sources were found: a Gaussian without any explains the data better; try another "
            "--prior, or ask for a number with --sources"
        )
    return choice.best, choice


def _check_enumeration(estimator: Any, count: int) -> None:
    """Refuse enumeration over too many states before anything is computed."""
    import numpy as np

    from kikuchi.ica.posteriors.posterior import Problem
    from kikuchi.ica.priors.prior import as_priors

    priors = as_priors(estimator.prior, count)
    posterior, _ = estimator.method_for(priors)
    if posterior.name == "exact":
        posterior.solve(Problem(np.eye(count), np.zeros((count, 1)), priors))
