"""`kikuchi train`: Boltzmann machines from tables of numbers."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kikuchi.cli import options

if TYPE_CHECKING:
    from kikuchi.boltzmann.estimator import MachineEstimator
    from kikuchi.boltzmann.evaluation import MachineEvaluation

KINDS = ("rbm", "machine")
LOG_Z = ("exact", "ais")

Number = float | None


def train(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="rbm (restricted), or machine (any --architecture).",
            show_default=False,
        ),
    ],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Rows of numbers: .csv, .tsv, .parquet, .npy or .npz.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="MODEL", help="File to write: .safetensors."),
    ],
    hidden: Annotated[int, typer.Option("--hidden", metavar="N", help="Hidden units.")] = 100,
    architecture: Annotated[
        str | None,
        typer.Option("--architecture", metavar="A", help="Of a machine: brf, hrf, poe or fcrf."),
    ] = None,
    visible: Annotated[
        str | None,
        typer.Option("--visible", metavar="U", help="Of an rbm: binary, gaussian or binomial:..."),
    ] = None,
    learner: Annotated[
        str | None,
        typer.Option(
            "--learner",
            "-l",
            metavar="TEXT",
            help="Rule such as pcd:k=1; see kikuchi learners --machines.",
        ),
    ] = None,
    optimiser: Annotated[
        str | None, typer.Option("--optimiser", metavar="TEXT", help="sgd, adam, ...")
    ] = None,
    rate: Annotated[Number, typer.Option("--rate", metavar="X", help="Learning rate.")] = None,
    momentum: Annotated[Number, typer.Option("--momentum", metavar="X", help="Of sgd.")] = None,
    decay: Annotated[Number, typer.Option("--decay", metavar="X", help="Weight decay.")] = None,
    schedule: Annotated[
        str | None,
        typer.Option("--schedule", metavar="S", help="constant, linear, cosine, exponential:..."),
    ] = None,
    batch: Annotated[int | None, typer.Option("--batch", metavar="N", help="Rows a step.")] = None,
    epochs: Annotated[
        int, typer.Option("--epochs", metavar="N", help="Passes over all rows.")
    ] = 10,
    divide: Annotated[
        Number, typer.Option("--divide", metavar="X", help="Divide all values, such as by 255.")
    ] = None,
    threshold: Annotated[
        Number, typer.Option("--threshold", metavar="X", help="Values become 1 from X up, 0 below.")
    ] = None,
    drop: Annotated[
        str | None,
        typer.Option(
            "--drop", metavar="C1,C2", help="Columns to leave out: names, or numbers from 0."
        ),
    ] = None,
    hold_out: Annotated[
        float,
        typer.Option(
            "--hold-out", metavar="SHARE", help="Part of the rows (0 to 1) kept for testing."
        ),
    ] = 0.0,
    log_z: Annotated[
        str | None,
        typer.Option("--log-z", metavar="HOW", help="Log-likelihoods too: exact or ais."),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="HxW", help="Rows are images.  [square ones are seen]"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from MODEL.part if there is one.")
    ] = False,
    double: Annotated[bool, typer.Option("--double", help="float64; otherwise float32.")] = False,
    json: options.Json = None,
    report: options.Report = None,
    seconds: options.Seconds = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Random numbers.")] = 0,
    quiet: options.Quiet = False,
) -> None:
    """Train a Boltzmann machine and save it.

    While it runs, MODEL.part holds the state of the training, from which --resume goes on.
    """
    from kikuchi.boltzmann.evaluation import evaluate
    from kikuchi.cli import outputs
    from kikuchi.cli.console import ProgressBar, Screen
    from kikuchi.cli.startup import defer_blas
    from kikuchi.reports.train_page import train_report

    defer_blas()
    _check_names(kind, out, log_z)
    part = out.with_name(out.name + ".part")
    outputs.check_outputs(data, out, json, report)
    _check_part(part, resume)
    rows, held, shape = read_rows(data, divide, threshold, drop, hold_out, image, seed, visible)
    given = {
        "architecture": architecture,
        "visible": visible,
        "learner": learner,
        "optimiser": optimiser,
        "learning_rate": rate,
        "momentum": momentum,
        "weight_decay": decay,
        "schedule": schedule,
        "batch_size": batch,
    }
    with ProgressBar(f"{kind} {learner or ''}".strip(), quiet=quiet) as progress:
        estimator = make_estimator(
            kind,
            {name: value for name, value in given.items() if value is not None},
            n_hidden=hidden,
            epochs=epochs,
            dtype="float64" if double else "float32",
            seconds=seconds,
            checkpoint=part,
            random_state=seed,
            progress=progress,
        )
        fit_quietly(estimator, rows)
    estimator.set_params(checkpoint=None, progress=None).save(out)
    found = evaluate(estimator, rows, held, log_z=log_z, shape=shape, source=data)
    if log_z is not None:
        estimator.save(out)  # again, with log Z
    if estimator.stopped_ in ("epochs", "converged"):
        part.unlink(missing_ok=True)
    screen = Screen(quiet=quiet or json == outputs.STANDARD_OUTPUT)
    screen.facts(found.facts())
    for warning in () if quiet else found.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if json is not None:
        outputs.write_json(_as_json(data, out, found), json)
    if report is not None:
        words = {
            "hidden": hidden,
            "epochs": epochs,
            **given,
            "divide": divide,
            "threshold": threshold,
            "drop": drop,
            "hold-out": hold_out or None,
            "log-z": log_z,
            "image": image,
            "seed": seed or None,
        }
        train_report(found, report, command=_command(kind, data, words, double, out))
    for path in (out, json, report):
        if path is not None and path != outputs.STANDARD_OUTPUT:
            screen.note(f"written: {path}")
    if part.exists():
        screen.note(f"stopped ({estimator.stopped_}); --resume goes on from {part}")


# ---------------------------------------------------------------------- words


def _check_names(kind: str, out: Path, log_z: str | None) -> None:
    from kikuchi.core.errors import KikuchiError, suggestion

    if kind not in KINDS:
        raise KikuchiError(f"there is no kind of machine '{kind}'; {suggestion(kind, KINDS)}")
    if out.suffix.lower() != ".safetensors":
        raise KikuchiError(f"{out}: machines are written as .safetensors files")
    if log_z not in (None, *LOG_Z):
        raise KikuchiError(f"--log-z is {' or '.join(LOG_Z)}, got '{log_z}'")


def _check_part(part: Path, resume: bool) -> None:
    from kikuchi.core.errors import DataError

    if part.exists() and not resume:
        raise DataError(
            f"{part}: a training was ended here; give --resume to go on from it, or delete it to "
            "begin anew"
        )


def make_estimator(kind: str, given: dict[str, Any], **shared: Any) -> MachineEstimator:
    """The estimator of a kind; options that it does not have are refused."""
    from kikuchi.boltzmann import RBM, BoltzmannMachine
    from kikuchi.core.errors import MethodError

    cls: Any = {"rbm": RBM, "machine": BoltzmannMachine}[kind]
    known = set(cls._get_param_names())
    for name in given:
        if name not in known:
            raise MethodError(f"{kind} has no option --{name}; leave it out")
    if shared["n_hidden"] < 1:
        raise MethodError(f"--hidden must be at least 1, got {shared['n_hidden']}")
    estimator: MachineEstimator = cls(**shared, **given)
    return estimator


def fit_quietly(estimator: MachineEstimator, rows: Any) -> None:
    """Fit; what there is to say is in `warnings_`, and shown once at the end."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(rows)


# ---------------------------------------------------------------------- rows


def read_rows(
    data: str,
    divide: float | None,
    threshold: float | None,
    drop: str | None,
    hold_out: float,
    image: str | None,
    seed: int,
    visible: str | None,
) -> tuple[Any, Any, tuple[int, int] | None]:
    """Training rows, rows held out (None without), and the shape of an image."""
    import numpy as np

    from kikuchi.boltzmann.units import parse_units
    from kikuchi.core.errors import DataError
    from kikuchi.core.seeds import generator
    from kikuchi.core.tables import read_table
    from kikuchi.plots.images import square_shape
    from kikuchi.training.rows import check_values

    table = read_table(data, arrays=("data", "images", "X"))
    if table.values.ndim < 2 or not table.values.size:
        raise DataError(f"{data}: rows of numbers are needed, got shape {table.values.shape}")
    values = table.values.reshape(len(table.values), -1)
    values = np.delete(values, _dropped(drop, table.names, values.shape[1]), axis=1)
    if not values.size:
        raise DataError(f"--drop {drop}: leaves no column of {data}")
    gaps = np.argwhere(~np.isfinite(values))
    if len(gaps):
        row, column = (int(k) for k in gaps[0])
        raise DataError(
            f"{data}: row {row + 1}, column {column + 1} is missing or not finite (NaN); complete "
            "the rows or leave them out"
        )
    if divide is not None:
        if not 0 < divide < math.inf:
            raise DataError(f"--divide must be positive and finite, got {divide:g}")
        values = values / divide
    if threshold is not None:
        if not math.isfinite(threshold):
            raise DataError(f"--threshold must be a finite number, got {threshold:g}")
        values = (values >= threshold).astype(np.float64)
    units = parse_units(visible or "binary")
    told = f"of {units.name} units; use --divide, --threshold or rbm with --visible gaussian"
    check_values(values, units.limits, told, name=data, first=1)
    shape = square_shape(values.shape[1]) if image is None else _image(image, values.shape[1])
    if not 0.0 <= hold_out < 1.0:
        raise DataError(f"--hold-out must be a share from 0 up to 1, got {hold_out:g}")
    kept = round(hold_out * len(values))
    if kept == len(values):
        raise DataError(f"--hold-out {hold_out:g} leaves none of {kept} rows to learn from")
    if not kept:
        return values, None, shape
    order = generator(seed).permutation(len(values))
    return values[np.sort(order[kept:])], values[np.sort(order[:kept])], shape


def _dropped(drop: str | None, names: tuple[str, ...] | None, width: int) -> list[int]:
    from kikuchi.core.errors import DataError

    found = []
    for word in filter(None, (w.strip() for w in (drop or "").split(","))):
        if names is not None and word in names:
            found.append(names.index(word))
        elif word.removeprefix("-").isdecimal() and -width <= int(word) < width:
            found.append(int(word))
        else:
            known = "" if names is None else f" (columns: {', '.join(names[:8])} ...)"
            raise DataError(f"--drop {word}: there is no such column{known}")
    return found


def _image(text: str, pixels: int) -> tuple[int, int]:
    from kikuchi.core.errors import DataError

    parts = text.lower().split("x")
    if len(parts) == 2 and all(p.isdecimal() for p in parts):
        height, width = int(parts[0]), int(parts[1])
        if height * width == pixels:
            return height, width
    raise DataError(f"--image {text}: rows of {pixels} values are no images of that size")


# ---------------------------------------------------------------------- answers


def _as_json(data: str, out: Path, found: MachineEvaluation) -> dict[str, Any]:
    from kikuchi import __version__

    return {"data": data, "out": str(out), "version": __version__, **found.to_dict()}


def _command(kind: str, data: str, given: dict[str, Any], double: bool, out: Path) -> str:
    flags = {"learning_rate": "rate", "weight_decay": "decay", "batch_size": "batch"}
    words = ["kikuchi", "train", kind, data]
    for name, value in given.items():
        if value is not None:
            words += [f"--{flags.get(name, name)}", str(value)]
    return shlex.join([*words, *(["--double"] if double else []), "--out", str(out)])
