"""`kikuchi ica`: independent sources of tables, sound and brain scans."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kikuchi.cli import ica_data, options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kikuchi.cli.console import ProgressBar
    from kikuchi.ica.evaluation import SourceEvaluation

METHODS = ("mean-field", "bayesian", "infomax")
ORIENTATIONS = ("spatial", "temporal")
_ONLY = {  # options that one method alone has, by their names on the command line
    "posterior": ("mean-field",),
    "mixing": ("mean-field",),
    "mixing-prior": ("mean-field",),
    "noise": ("mean-field",),
    "missing": ("mean-field",),
    "most": ("mean-field",),
    "restarts": ("mean-field", "bayesian"),
    "threads": ("mean-field",),
    "adapt": ("bayesian",),
}
_MOST = 10  # sources that `auto` tries
_PRIORS = {"mean-field": "laplace", "bayesian": "sparse", "infomax": "auto"}

app = typer.Typer(
    help="Find independent sources in recordings.", no_args_is_help=True, rich_markup_mode=None
)

Word = str | None


@app.callback()
def ica() -> None:
    """Find independent sources in recordings."""


@app.command()
def fit(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA...",
            help="A table (.csv, .tsv, .parquet, .npz, .npy), wave files of one recording, or "
            "brain scans (.nii, .nii.gz).",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="A new folder for the answer.")
    ],
    sources: Annotated[
        str, typer.Option("--sources", "-n", metavar="N", help="How many, or auto: by BIC.")
    ] = "auto",
    method: Annotated[
        str, typer.Option("--method", "-m", metavar="M", help="mean-field, bayesian or infomax.")
    ] = "mean-field",
    prior: Annotated[
        list[str] | None,
        typer.Option(
            "--prior",
            metavar="TEXT",
            help="Of the sources, such as laplace, binary01:rate=0.3, exponential; several times "
            "for one a source. bayesian: sparse, bimodal, gaussian. infomax: a density.",
        ),
    ] = None,
    posterior: Annotated[
        Word,
        typer.Option(
            "--posterior", metavar="TEXT", help="lr, adatap, naive, exact, variational.  [lr]"
        ),
    ] = None,
    mixing: Annotated[
        Word,
        typer.Option("--mixing", metavar="M", help="free, nonnegative or multiplicative.  [free]"),
    ] = None,
    mixing_prior: Annotated[
        Word, typer.Option("--mixing-prior", metavar="TEXT", help="flat, gaussian:..., laplace:...")
    ] = None,
    noise: Annotated[
        Word,
        typer.Option(
            "--noise", metavar="N", help="isotropic, diagonal or full; or known: v or v1,v2,..."
        ),
    ] = None,
    most: Annotated[
        int | None, typer.Option("--most", metavar="N", help="Most sources that auto tries.  [10]")
    ] = None,
    restarts: Annotated[
        int | None,
        typer.Option(
            "--restarts", metavar="N", help="Fits from different starts, the best is kept."
        ),
    ] = None,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Of bayesian: learn the densities of sources; slower.")
    ] = False,
    orientation: Annotated[
        Word,
        typer.Option(
            "--orientation", metavar="O", help="Of scans: spatial or temporal.  [spatial]"
        ),
    ] = None,
    mask: Annotated[
        Word,
        typer.Option("--mask", metavar="FILE", help="Of scans: NIfTI file, auto or none.  [auto]"),
    ] = None,
    detrend: Annotated[
        Word,
        typer.Option(
            "--detrend",
            metavar="KIND",
            help="Trends to remove: constant, polynomial[:order], cosine[:seconds], none.  "
            "[none; polynomial of scans]",
        ),
    ] = None,
    stimulus: Annotated[
        Word, typer.Option("--stimulus", metavar="FILE", help="Of scans: one value a scan.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="HZ", help="Samples a second, if the file does not say."),
    ] = None,
    image: Annotated[
        Word,
        typer.Option(
            "--image", metavar="HxW", help="Sensors are pixels; constant ones are left out."
        ),
    ] = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="Empty cells were not observed; go on without them.")
    ] = False,
    wide: Annotated[
        bool, typer.Option("--wide", help="Allow fewer samples than sensors in a table.")
    ] = False,
    iterations: Annotated[
        int | None, typer.Option("--iterations", metavar="N", help="At most so many in a fit.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Random numbers.")] = 0,
    seconds: options.Seconds = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", metavar="N", help="Restarts at the same time.  [1]"),
    ] = None,
    json: options.Json = None,
    report: options.Report = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 when not converged or a source is lost.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Find sources, their mixing and the noise; DIR gets mixing, sources and the model.

    Tables: mixing.csv and sources.npz. Sound: mixing.csv and a wave file a source. Scans:
    maps.nii.gz, courses.csv and mixing.csv. model.json holds everything else.
    """
    from kikuchi.cli import outputs
    from kikuchi.cli.console import ProgressBar, Screen
    from kikuchi.core.errors import MethodError
    from kikuchi.ica.evaluation import evaluate
    from kikuchi.reports.ica_page import ica_report

    given = {
        "posterior": posterior,
        "mixing": mixing,
        "mixing-prior": mixing_prior,
        "noise": noise,
        "missing": missing or None,
        "most": most,
        "restarts": restarts,
        "threads": threads,
        "adapt": adapt or None,
    }
    _check_words(
        method, orientation, given, {"threads": threads, "most": most, "restarts": restarts}
    )
    if seed < 0:
        raise MethodError(f"--seed must be a whole number >= 0, got {seed}")
    _check_folder(out)
    for name in (*data, *(word for word in (mask, stimulus) if word is not None)):
        outputs.check_outputs(name, json, report)
    recording = ica_data.read(data, rate, mask, stimulus, orientation)
    where = (orientation or "spatial") if recording.mask is not None else None
    shown = ica_data.read_stimulus(stimulus, recording)
    shape, pixels = ica_data.image_shape(image, recording.n_sensors, where), None
    if shape is not None:
        recording, pixels = ica_data.without_constant_pixels(recording)
    samples = ica_data.prepared(recording, where, detrend, missing=missing, wide=wide)
    begin = time.perf_counter()
    with ProgressBar(f"ica {method}", quiet=quiet) as progress:
        estimator, choice = _fitted(
            method, samples, sources, list(prior or []), given, iterations, seed, seconds, progress
        )
    taken = time.perf_counter() - begin
    found = evaluate(estimator, method, recording, samples, where, shown, taken)
    found.choice, found.shape, found.pixels = choice, shape, pixels
    write_folder(out, found)
    screen = Screen(quiet=quiet or json == outputs.STANDARD_OUTPUT)
    screen.facts(found.facts())
    screen.line()
    screen.table(*found.table())
    for warning in () if quiet else found.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if json is not None:
        outputs.write_json({"out": str(out), **found.to_dict()}, json)
    if report is not None:
        words = {
            "sources": sources,
            "method": method,
            **given,
            "orientation": orientation,
            "mask": mask,
            "detrend": detrend,
            "stimulus": stimulus,
            "rate": rate,
            "image": image,
            "wide": wide or None,
            "iterations": iterations,
            "seed": seed or None,
        }
        ica_report(found, report, command=_command(data, list(prior or []), words, out))
    for path in (out, json, report):
        if path is not None and path != outputs.STANDARD_OUTPUT:
            screen.note(f"written: {path}")
    if strict and (found.lost or not estimator.converged_):
        raise typer.Exit(3)


# ---------------------------------------------------------------------- words


def _check_words(
    method: str, orientation: str | None, given: dict[str, Any], counts: dict[str, int | None]
) -> None:
    from kikuchi.core.errors import MethodError, suggestion

    if method not in METHODS:
        raise MethodError(f"there is no method '{method}'; {suggestion(method, METHODS)}")
    if orientation is not None and orientation not in ORIENTATIONS:
        known = suggestion(orientation, ORIENTATIONS)
        raise MethodError(f"there is no orientation '{orientation}'; {known}")
    for name, value in given.items():
        if value is not None and method not in _ONLY[name]:
            raise MethodError(f"method {method} has no option --{name}; leave it out")
    for name, number in counts.items():
        if number is not None and number < 1:
            raise MethodError(f"--{name} must be at least 1, got {number}")


def _check_folder(out: Path) -> None:
    """Refuse at once a folder that holds something, or that cannot be made."""
    import tempfile

    from kikuchi.core.errors import KikuchiError

    if out.exists() and not out.is_dir():
        raise KikuchiError(f"cannot write {out}: it is a file; give the name of a new folder")
    if out.is_dir() and any(out.iterdir()):
        raise KikuchiError(f"cannot write {out}: the folder is not empty; name a new one")
    try:
        with tempfile.TemporaryFile(dir=out.resolve().parent):
            pass
    except OSError as error:
        raise KikuchiError(f"cannot write {out}: {error.strerror or error}") from None


def _number_of_sources(text: str) -> int | None:
    from kikuchi.core.errors import MethodError

    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise MethodError(f"--sources must be auto or a whole number >= 1, got '{text}'")
    return int(text)


def _noise(text: str) -> Any:
    """A structure, or known variances."""
    from kikuchi.core.errors import MethodError

    if text in ("isotropic", "diagonal", "full"):
        return text
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        raise MethodError(
            f"--noise is isotropic, diagonal, full, or known variances, got '{text}'"
        ) from None
    return values[0] if len(values) == 1 else values


# ---------------------------------------------------------------------- fitting


def _fitted(
    method: str,
    samples: NDArray[Any],
    sources: str,
    priors: list[str],
    given: dict[str, Any],
    iterations: int | None,
    seed: int,
    seconds: float | None,
    progress: ProgressBar,
) -> tuple[Any, Any]:
    """The fitted estimator, and how its number of sources was chosen (None if it was given)."""
    import warnings

    from kikuchi.core.errors import MethodError

    count = _number_of_sources(sources)
    if method != "mean-field" and len(priors) > 1:
        raise MethodError(f"method {method} takes one --prior for all sources")
    shared: dict[str, Any] = {"random_state": seed, "seconds": seconds, "progress": progress}
    if iterations is not None:
        shared["max_iter"] = iterations
    first = priors[0] if priors else _PRIORS[method]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are in warnings_, and shown once
        if method == "mean-field":
            shared |= _mean_field_options(priors or [first], given)
            return _mean_field(samples, count, shared, given["most"])
        if method == "bayesian":
            from kikuchi.ica import BayesianICA

            starts = given["restarts"] or 1
            adapt = bool(given["adapt"])
            estimator = BayesianICA(count, first, adapt=adapt, restarts=starts, **shared)
            return estimator.fit(samples), None
        from kikuchi.ica import InfomaxICA

        if count is None:
            raise MethodError("method infomax cannot choose a number of sources; give --sources N")
        shared["view"] = "causal" if count > samples.shape[1] else "infomax"
        return InfomaxICA(count, density=first, **shared).fit(samples), None


def _mean_field_options(priors: list[str], given: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "prior": priors[0] if len(priors) == 1 else priors,
        "processes": given["threads"] or 1,
    }
    for flag, name in (("posterior", "posterior"), ("mixing", "mixing"), ("restarts", "restarts")):
        if given[flag] is not None:
            found[name] = given[flag]
    if given["mixing-prior"] is not None:
        found["mixing_prior"] = given["mixing-prior"]
    if given["noise"] is not None:
        found["noise"] = _noise(given["noise"])
    if given["missing"]:
        found["missing"] = "hidden"
    return found


def _mean_field(
    samples: NDArray[Any], count: int | None, shared: dict[str, Any], most: int | None
) -> tuple[Any, Any]:
    from kikuchi.core.errors import DataError, MethodError
    from kikuchi.ica import MeanFieldICA

    if count is not None:
        if most is not None:
            raise MethodError("--most is for --sources auto; leave it out")
        _refuse_many(shared, count)
        return MeanFieldICA(count, **shared).fit(samples), None
    if not isinstance(shared["prior"], str):
        raise MethodError("--sources auto takes one --prior for all sources")
    largest = most or max(1, min(_MOST, samples.shape[1], len(samples) - 1))
    _refuse_many(shared, largest)
    if shared["seconds"] is not None:
        shared = {**shared, "seconds": shared["seconds"] / largest}
    choice = MeanFieldICA.choose_sources(samples, range(largest + 1), criterion="bic", **shared)
    if choice.best is None:
        raise DataError(
            "no sources were found: a Gaussian without any explains the data better; try another "
            "--prior, or ask for a number with --sources"
        )
    return choice.best, choice


def _refuse_many(shared: dict[str, Any], count: int) -> None:
    """Enumeration over too many states is refused before anything is computed."""
    import numpy as np

    from kikuchi.ica.posteriors.posterior import Problem, parse_posterior
    from kikuchi.ica.priors.prior import as_priors

    priors = as_priors(shared["prior"], count)
    posterior = parse_posterior(shared.get("posterior", "lr"))
    if posterior.name == "exact":
        posterior.solve(Problem(np.eye(count), np.zeros((count, 1)), priors))


# ---------------------------------------------------------------------- answers


def write_folder(out: Path, found: SourceEvaluation) -> None:
    """The answer in a new folder: all files, or none."""
    import os
    import shutil
    import tempfile

    from kikuchi.core.errors import KikuchiError

    place = out.resolve()
    try:
        work = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    except OSError as error:
        raise KikuchiError(f"cannot write {out}: {error.strerror or error}") from None
    try:
        _write_files(work, found)
        umask = os.umask(0)
        os.umask(umask)
        work.chmod(0o777 & ~umask)
        if place.is_dir():
            place.rmdir()
        work.rename(place)
    except BaseException as error:
        shutil.rmtree(work, ignore_errors=True)
        if isinstance(error, OSError):
            raise KikuchiError(f"cannot write {out}: {error.strerror or error}") from None
        raise


def _write_files(folder: Path, found: SourceEvaluation) -> None:
    from kikuchi.cli.outputs import write_json
    from kikuchi.ica.fmri import write_maps
    from kikuchi.ica.recordings import Recording, write_recording, write_wav

    names = tuple(source.name for source in found.sources)
    recording = found.recording
    write_recording(folder / "mixing.csv", Recording(found.mixing, names))
    more: dict[str, Any] = {}
    if found.components is not None:
        write_maps(folder / "maps.nii.gz", found.components.maps, recording)
        courses = Recording(found.components.courses.T, names, recording.rate)
        write_recording(folder / "courses.csv", courses)
    elif recording.source.lower().endswith(".wav") and recording.rate is not None:
        more["gains"] = [
            write_wav(folder / f"source_{k + 1}.wav", signal, recording.rate)
            for k, signal in enumerate(found.values.T)
        ]
    else:
        write_recording(folder / "sources.npz", Recording(found.values, names, recording.rate))
    found.files = sorted([*(path.name for path in folder.iterdir()), "model.json"])
    from kikuchi import __version__

    if found.orientation is None:
        more["sensors"] = list(recording.names)  # of each row of mixing.csv
    write_json({"version": __version__, **found.to_dict(), **more}, folder / "model.json")


def _command(data: list[str], priors: list[str], given: dict[str, Any], out: Path) -> str:
    words = ["kikuchi", "ica", "fit", *data]
    for prior in priors:
        words += ["--prior", prior]
    for name, value in given.items():
        if value is True:
            words.append(f"--{name}")
        elif value is not None:
            words += [f"--{name}", str(value)]
    return shlex.join([*words, "--out", str(out)])
