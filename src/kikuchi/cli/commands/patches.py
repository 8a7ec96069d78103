"""`kikuchi patches`: pieces of pictures and sounds as rows to learn from."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kikuchi import __version__
from kikuchi.cli import options
from kikuchi.cli.command import PageOutput, finish, grouped
from kikuchi.cli.options import argument, flag, option
from kikuchi.core.answer import Answer
from kikuchi.core.errors import DataError, KikuchiError, MethodError

if TYPE_CHECKING:
    from kikuchi.core.arrays import Array
    from kikuchi.energy.preparation import Patches

WHOLE = ("digits", "mnist", "faces")
"""Collections of pictures that are taken whole."""

SPEECH = "speech"
_PHOTOGRAPHS = 100_000  # patches of photographs, if no count is given
_SIZES = {"sounds": 100, "faces": 64}
_SPEECH_SECONDS, _SPEECH_RATE, _SPEAKERS = 20.0, 8000, 10

Sources = Annotated[
    list[str],
    argument(
        "SOURCES...",
        "Picture files or folders, photographs (of installed packages), .wav files, speech "
        "(synthetic), digits, mnist or faces.",
    ),
]
PatchFile = Annotated[Path, option("--out -o PATCHES.npz", "File to write: .npz.")]


@dataclass(frozen=True)
class PatchOptions:
    """What is done to the pieces."""

    size: int | None = flag(
        "--size N", "Side of a patch, or samples of a window.  [16; sounds 100; faces 64]"
    )
    count: int | None = flag(
        "--count N", "Pieces to keep.  [photographs 100000; otherwise every place]"
    )
    log: bool = flag("--log", "Logarithms of the grey values.", False)
    keep_mean: bool = flag(
        "--keep-mean", "Do not subtract its mean from each patch of a photograph.", False
    )
    normalise: bool = flag("--normalise", "Divide each piece by its spread.", False)
    reject_flat: float = flag("--reject-flat X", "Draw pieces with a smaller spread again.", 0.0)
    whiten: str = flag("--whiten HOW", "zca, pca or none.", "zca")
    components: int | None = flag("--components N", "Principal components to keep.  [all]")
    like: Path | None = flag(
        "--like PATCHES.npz", "Same size, steps and whitening as in that file."
    )
    rate: int | None = flag("--rate HZ", "Bring sounds to so many samples per second.")

    def refuse_beside_like(self) -> None:
        """Refuse options that --like would pass over: its file says what they are."""
        for option_field in fields(self):
            name = option_field.name
            if name in ("count", "like", "rate"):
                continue
            if getattr(self, name) != option_field.default:
                flag_name = name.replace("_", "-")
                raise MethodError(
                    f"--{flag_name} is as in the file of --like ({self.like}); leave it out"
                )


@grouped
def patches(
    sources: Sources,
    out: PatchFile,
    *,
    steps: PatchOptions,
    seed: options.FitSeed = 0,
    output: PageOutput,
) -> None:
    """Cut pictures or sounds into rows to learn from.

    The pieces are prepared and whitened, and what was rejected is said. The file holds the rows and
    every step, which models trained on it keep; `kikuchi fit energy` and every other command that
    reads .npz files take it.
    """
    from kikuchi.energy.preparation import Patches
    from kikuchi.energy.preparation import patches as cut

    if out.suffix.lower() != ".npz":
        raise KikuchiError(f"{out}: patches are written as .npz files")
    for source in sources:
        output.check(source, out)
    like = None if steps.like is None else Patches.load(steps.like).preparation
    if like is not None:
        steps.refuse_beside_like()
    size = steps.size if like is None else like.shape[0]
    found = _read(sources, size, steps.rate)
    given: dict[str, Any] = {} if like is not None else {
        "log": steps.log,
        "remove_mean": found.kind == "photographs" and not steps.keep_mean,
        "normalise": steps.normalise,
        "reject_flat": steps.reject_flat,
        "whiten": steps.whiten,
        "components": steps.components,
    }  # fmt: skip
    count = steps.count
    if count is None and found.kind == "photographs":
        count = _PHOTOGRAPHS
    made = cut(
        found.arrays, found.size, count, like=like, names=found.names, rate=found.rate, seed=seed,
        **given,
    )  # fmt: skip
    made.save(out)

    def page(path: Path, command: str) -> None:
        from kikuchi.reports.patches_page import patches_report

        patches_report(made, path, command=command)

    head = {"out": str(out), "version": __version__}
    finish(PatchesAnswer(made), output, head=head, page=page, written=[out])


@dataclass(frozen=True)
class PatchesAnswer(Answer):
    """What became of the pieces, as the screen and JSON show it."""

    patches: Patches

    @property
    def warnings(self) -> list[str]:
        """What the reader must know."""
        return self.patches.preparation.warnings()

    def facts(self) -> list[tuple[str, str]]:
        """Sources, counts and steps."""
        return self.patches.preparation.facts()

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        told = self.patches.preparation.to_dict()
        return {**told, "columns": self.patches.shape[1], "warnings": self.warnings}


# ---------------------------------------------------------------------- sources


@dataclass(frozen=True)
class _Found:
    kind: str
    arrays: list[Array]
    names: list[str]
    size: int
    rate: float | None = None


def _read(sources: list[str], size: int | None, rate: int | None) -> _Found:
    """The arrays of the sources, all of one kind."""
    kinds = {_kind(source) for source in sources}
    if len(kinds) > 1:
        raise DataError(f"sources of one kind at a time; these are {', '.join(sorted(kinds))}")
    (kind,) = kinds
    if size is not None and size < 1:
        raise MethodError(f"--size must be at least 1, got {size}")
    if rate is not None and (kind != "sounds" or rate < 1):
        raise MethodError(
            f"--rate is for sounds, at least 1 sample per second; got {rate} for {kind}"
        )
    chosen = size or _SIZES.get(kind, 16)
    if kind == "sounds":
        return _sounds(sources, chosen, rate)
    if kind == "photographs":
        from kikuchi.data.photographs import photographs

        found = photographs(*sources)
        return _Found(kind, [p.grey for p in found], [p.name for p in found], chosen)
    return _whole(kind, chosen)


def _kind(source: str) -> str:
    if source in WHOLE:
        return source
    return "sounds" if source == SPEECH or source.lower().endswith(".wav") else "photographs"


def _whole(kind: str, size: int) -> _Found:
    """Digits or faces, averaged to squares of this size."""
    if kind == "faces":
        from kikuchi.data.faces import faces

        images = faces(None, side=size)
    else:
        from kikuchi.data.digits import digits

        images = digits("sklearn" if kind == "digits" else kind, side=None)
        images = images.resized((min(size, images.shape[0]), min(size, images.shape[1])))
    stacked = images.pixels.reshape(-1, *images.shape)
    return _Found(kind, list(stacked), [kind], images.shape[0])


def _sounds(sources: list[str], size: int, rate: int | None) -> _Found:
    """The channels of wave files, each a sound of its own, at one rate."""
    import math

    from scipy.signal import resample_poly

    from kikuchi.data.speech import speech_like
    from kikuchi.ica.recordings import read_recording

    arrays: list[Array] = []
    rates = []
    for source in sources:
        if source == SPEECH:
            made = speech_like(_SPEAKERS, _SPEECH_SECONDS, _SPEECH_RATE, kind="voiced")
            signals, found = made, _SPEECH_RATE
        else:
            recording = read_recording(source)
            signals, found = recording.data, round(recording.rate or 1)
        wanted = rate or found
        shared = math.gcd(wanted, found)
        if wanted != found:
            signals = resample_poly(signals, wanted // shared, found // shared, axis=0)
        arrays += list(signals.T)
        rates.append(wanted)
    if len(set(rates)) > 1:
        raise DataError(f"sounds of {min(rates)} to {max(rates)} samples per second; give --rate")
    return _Found("sounds", arrays, sources, size, float(rates[0]))
