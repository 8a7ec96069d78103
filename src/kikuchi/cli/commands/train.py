"""`kikuchi train`: machines, energy models, Bayesian and belief networks, flows from tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from kikuchi import __version__
from kikuchi.cli import options
from kikuchi.cli.command import PageOutput, finish, grouped
from kikuchi.cli.estimators import EstimatorOptions, Given, fit_quietly
from kikuchi.cli.options import argument, flag, option
from kikuchi.cli.rows import RowOptions
from kikuchi.core.errors import DataError, KikuchiError
from kikuchi.core.progress import phase

if TYPE_CHECKING:
    from kikuchi.training.estimator import TrainedEstimator

ENERGY = "energy"
NETWORKS = ("bayesnn", "bayesnn-classes")
BELIEF_NETWORKS = ("sbn", "noisy-or", "threshold")
FLOWS = ("flow", "flow-mixture", "flow-classes")
MACHINES = ("rbm", "machine")
PREDICTING = (*NETWORKS, "threshold", "flow-classes")
LOG_Z = ("exact", "ais")

MODELS = EstimatorOptions(
    "kikuchi.boltzmann",
    {
        "rbm": "RBM",
        "machine": "BoltzmannMachine",
        ENERGY: "kikuchi.energy:ExpertICA",
        "bayesnn": "kikuchi.bayesnn:BayesianMLPRegressor",
        "bayesnn-classes": "kikuchi.bayesnn:BayesianMLPClassifier",
        "sbn": "kikuchi.beliefnets:SigmoidBeliefNetwork",
        "noisy-or": "kikuchi.beliefnets:NoisyOrNetwork",
        "threshold": "kikuchi.beliefnets:ThresholdNetworkClassifier",
        "flow": "kikuchi.flows:LatentMixtureFlow",
        "flow-mixture": "kikuchi.flows:FlowMixture",
        "flow-classes": "kikuchi.flows:FlowClassifier",
    },
    {
        "n_components": "--hidden --layers --features --components N",
        "architecture": "--architecture A",
        "visible": "--visible U",
        "grey": "--grey HOW",
        "expert": "--expert E",
        "energy": "--energy TEXT",
        "start": "--start HOW",
        "whiten": "--whiten HOW",
        "pca_components": "--pca-components N",
        "ard": "--ard",
        "C": "--price C",
        "margin": "--margin X",
        "committee": "--committee N",
        "learner": "--learner --rule -l TEXT",
        "solver": "--optimiser TEXT",
        "learning_rate": "--rate X",
        "momentum": "--momentum X",
        "weight_decay": "--decay X",
        "schedule": "--schedule S",
        "batch_size": "--batch N",
        "max_iter": "--epochs --steps N",
        "posterior": "--posterior P",
        "prior": "--prior P",
        "skip": "--skip/--no-skip",
        "scale": "--scale S",
        "n_init": "--restarts --networks N",
        "average": "--average FRACTION",
        "flow": "--flow TEXT",
        "dequantise": "--dequantise HOW",
        "patience": "--patience N",
        "noise": "--noise X",
    },
    noun="kind of model",
    same={"hidden_layer_sizes": "n_components"},
    elsewhere={"random_state": "--seed", "dtype": "--double"},
    learning=(
        "learner",
        "solver",
        "learning_rate",
        "momentum",
        "weight_decay",
        "schedule",
        "batch_size",
        "n_init",
        "max_iter",
        "average",
        "patience",
    ),
)

Kind = Annotated[
    str,
    argument(
        "KIND",
        "rbm (restricted), machine (any --architecture), energy (experts); Bayesian neural "
        "networks: bayesnn (of numbers), bayesnn-classes; belief networks: sbn (sigmoid units), "
        "noisy-or, threshold (classifier of hard units); flows: flow (one, to a Gaussian mixture), "
        "flow-mixture, flow-classes.",
    ),
]
Rows = Annotated[str, argument("DATA", "Rows of numbers: .csv, .tsv, .parquet, .npy or .npz.")]
ModelFile = Annotated[Path, option("--out -o MODEL", "File to write: .safetensors.")]


@dataclass(frozen=True)
class TrainingOptions:
    """How the training is run and measured."""

    HEADING: ClassVar[str] = "Learning"

    target: str | None = flag(
        "--target COLUMN",
        "Column to predict: needed by bayesnn, bayesnn-classes, threshold and flow-classes.",
        only=PREDICTING,
    )
    prune: bool = flag(
        "--prune", "Remove inputs and units of a Bayesian neural network.", False, only=NETWORKS
    )
    log_z: str | None = flag(
        "--log-z HOW", "Log-likelihoods too: exact or ais.",
        only=(*MACHINES, ENERGY, *BELIEF_NETWORKS),
    )  # fmt: skip
    double: bool = flag("--double", "float64; otherwise float32.", False, only=(*MACHINES, *FLOWS))
    transposed: bool = flag(
        "--transposed", "energy: pixels are the rows and images the columns.", False, only=(ENERGY,)
    )
    resume: bool = flag("--resume", "Go on from MODEL.part if there is one.", False)
    seconds: options.Seconds = None
    seed: options.FitSeed = 0

    def check(self, part: Path) -> None:
        """Refuse to begin anew where a training was ended."""
        if part.exists() and not self.resume:
            raise DataError(
                f"{part}: a training was ended here; give --resume to go on from it, or delete it "
                "to begin anew"
            )

    def estimator(self, kind: str, given: Given, part: Path, progress: Any) -> TrainedEstimator:
        """The estimator, which keeps its state in `part`."""
        plain = kind == ENERGY or kind in NETWORKS or kind in BELIEF_NETWORKS
        more = {} if plain else {"dtype": "float64" if self.double else "float32"}
        estimator: TrainedEstimator = MODELS.make(
            kind,
            given,
            seconds=self.seconds,
            checkpoint=part,
            random_state=self.seed,
            progress=progress,
            **more,
        )
        return estimator


@grouped
def train(
    kind: Kind,
    data: Rows,
    out: ModelFile,
    *,
    settings: Annotated[Given, MODELS],
    preparation: RowOptions,
    training: TrainingOptions,
    output: PageOutput,
) -> None:
    """Train a model on rows of data and save it.

    The options depend on KIND: `kikuchi train rbm --help` shows those of that kind only.
    `kikuchi train energy PATCHES.npz` learns overcomplete features of what `kikuchi patches` wrote,
    `kikuchi train bayesnn TABLE.csv --target COLUMN` predicts a column by all others.
    While it runs, MODEL.part holds the state of the training, from which --resume goes on.
    """
    _check_names(kind, out, training, settings.get("n_hidden"))
    output.check(data, out)
    job = TrainingJob(kind, data, out, settings, preparation, training, output)
    training.check(job.part)
    if kind in FLOWS:
        import_module("kikuchi.cli.flow_models").train_flow(job)
    elif kind in BELIEF_NETWORKS:
        import_module("kikuchi.cli.belief_networks").train_belief_network(job)
    elif kind in NETWORKS:
        _train_network(job)
    else:
        _train_machine(job)


@dataclass(frozen=True)
class TrainingJob:
    """One call of `kikuchi train`: what is trained on what, how, and where the results go."""

    kind: str
    data: str
    out: Path
    settings: Given
    preparation: RowOptions
    training: TrainingOptions
    output: PageOutput

    @property
    def part(self) -> Path:
        """The file that holds the state while the training runs."""
        return self.out.with_name(self.out.name + ".part")

    @contextmanager
    def estimator(self, names: list[str] | None) -> Iterator[Any]:
        """The estimator, to be fitted below a progress bar; it is saved at the end.

        `names` are those of the columns that it learns from, if they have any.
        """
        from kikuchi.cli.console import ProgressBar

        learner = self.settings.get("learner", "")
        with ProgressBar(f"{self.kind} {learner}".strip(), quiet=self.output.quiet) as bar:
            estimator = self.training.estimator(self.kind, self.settings, self.part, bar)
            yield estimator
        self.save(estimator.set_params(checkpoint=None, progress=None), names)

    def save(self, estimator: Any, names: list[str] | None) -> None:
        """Write the model with the names of its columns, by which later rows are put in order, and
        with what was done to its rows.

        Afterwards the estimator is without them: what it is asked here are arrays, and those have
        no names.
        """
        import numpy as np

        if names is not None:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        if self.preparation.scaling:
            estimator.row_scaling_ = self.preparation.scaling
        estimator.save(self.out)
        if names is not None:
            del estimator.feature_names_in_

    def finish(self, evaluation: Any, page: str, function: str, *, complete: bool) -> None:
        """Show and write the evaluation; without a complete training, say how to go on.

        The report page is written by `function` of the module `page` of `kikuchi.reports`.
        """
        if complete:
            self.part.unlink(missing_ok=True)
        notes = []
        if self.part.exists():
            stopped = evaluation.estimator.stopped_
            notes = [f"stopped ({stopped}); --resume goes on from {self.part}"]

        def write(path: Path, command: str) -> None:
            report = getattr(import_module(f"kikuchi.reports.{page}"), function)
            report(evaluation, path, command=command)

        head = {"data": self.data, "out": str(self.out), "version": __version__}
        finish(evaluation, self.output, head=head, page=write, written=[self.out], notes=notes)


def _train_machine(job: TrainingJob) -> None:
    """Fit a Boltzmann machine or an energy model to rows."""
    import numpy as np

    from kikuchi.training.trainer import COMPLETE

    room = "energy" if job.kind == ENERGY else "boltzmann"
    evaluate: Any = import_module(f"kikuchi.{room}.evaluation").evaluate
    training = job.training
    if job.kind == ENERGY:
        read = job.preparation.read_numbers(job.data, training.seed)
    else:
        visible = job.settings.get("visible", "binary")
        read = job.preparation.read(job.data, visible, training.seed)
    rows, held_out, shape, names = read
    names = None if training.transposed else names  # the columns learnt from are images then
    more: dict[str, Any] = {"log_z": training.log_z, "shape": shape, "source": job.data}
    with job.estimator(names) as estimator:
        if training.transposed:
            rows, more = _pixels(rows, held_out, estimator), {**more, "transposed": True}
        fit_quietly(estimator, rows)
    with phase("measuring"):
        evaluation = evaluate(estimator, np.asarray(rows), held_out, **more)
    if training.log_z is not None:
        job.save(estimator, names)  # again, with log Z
    page = (
        ("energy_page", "energy_report") if job.kind == ENERGY else ("train_page", "train_report")
    )
    job.finish(evaluation, *page, complete=estimator.stopped_ in COMPLETE)


def _train_network(job: TrainingJob) -> None:
    """Fit a Bayesian network to a column by all others."""
    target = job.training.target
    assert target is not None
    classes = job.kind == "bayesnn-classes"
    table = job.preparation.read_target(job.data, target, job.training.seed, classes=classes)
    with job.estimator(None) as estimator:  # columns_ holds the names, the target's too
        fit_quietly(estimator, table.x, table.y)
        complete = estimator.stopped_ not in ("seconds", "interrupted")
        if job.training.prune and complete:
            estimator.prune()
        estimator.columns_ = table.names
    evaluation: Any = import_module("kikuchi.bayesnn.evaluation").NetworkEvaluation(
        estimator, job.data, table.x, table.y, table.held_out, table.held_out_y
    )
    job.finish(evaluation, "bayesnn_page", "network_report", complete=complete)


def _pixels(rows: Any, held_out: Any, estimator: Any) -> Any:
    """The pixels of images as rows, before any whitening of the images."""
    from kikuchi.energy import Patches
    from kikuchi.energy.transposed import prepare_transposed

    if held_out is not None:
        raise DataError(
            "--hold-out keeps images, and --transposed learns from pixels: leave it out"
        )
    return prepare_transposed(rows.undone() if isinstance(rows, Patches) else rows, estimator)


def _check_names(kind: str, out: Path, training: TrainingOptions, hidden: int | str | None) -> None:
    MODELS.check(kind)
    if kind != ENERGY and isinstance(hidden, int) and hidden < 1:
        raise KikuchiError(f"--hidden must be at least 1, got {hidden}")
    if out.suffix.lower() != ".safetensors":
        raise KikuchiError(f"{out}: models are written as .safetensors files")
    if training.log_z not in (None, *LOG_Z):
        raise KikuchiError(f"--log-z is {' or '.join(LOG_Z)}, got '{training.log_z}'")
    if kind != ENERGY and training.transposed:
        raise KikuchiError(f"--transposed is for energy, not for {kind}")
    if kind == ENERGY and training.double:
        raise KikuchiError("energy models learn in float32; leave --double out")
    if kind in PREDICTING:
        if training.target is None:
            raise KikuchiError(f"{kind} predicts a column: give its name as --target")
    elif training.target is not None:
        raise KikuchiError(f"--target is for {', '.join(NETWORKS)}, threshold and flow-classes")
    if training.prune and kind not in NETWORKS:
        raise KikuchiError(f"--prune is for {' and '.join(NETWORKS)}")
    if kind in NETWORKS and (training.double or training.log_z is not None):
        raise KikuchiError(f"{kind} is fitted in float64 by a bound: no --double, no --log-z")
    if kind in FLOWS and training.log_z is not None:
        raise KikuchiError("the densities of flows have Z = 1; leave --log-z out")
    if kind in BELIEF_NETWORKS and (training.double or training.log_z == "exact"):
        raise KikuchiError("belief networks have Z = 1 and learn in float64; leave these out")
