"""Every reader on files that were damaged by chance: an answer or an error of ours, within memory.

Valid files of every format are changed (bits, cuts, splices, larger numbers, repeated words, heads)
and read in a child process whose memory is limited. A fault is an exception that is not ours, a
message that is not one line, a warning of a library, or a crash of the process.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attack.tally import Tally

LIMIT = 100_000_000  # bytes that reading may use
SPARE = 600_000_000  # bytes of address space beyond what the idle process has
MOST_FAULTS = 20

Reader = Callable[[Path], object]
Rng = np.random.Generator


@dataclass(frozen=True)
class Target:
    """A valid content, the suffix of its file, and what reads it."""

    name: str
    suffix: str
    content: bytes
    reader: Reader
    share: int = 1


def attack(count: int, seed: int, seconds: float) -> Tally:
    """Read `count` damaged files in two processes; the seed and the number of a fault repeat it."""
    end = time.monotonic() + seconds
    parts = [(0, count // 2), (count // 2, count)]
    with ThreadPoolExecutor(len(parts)) as threads:
        found = list(threads.map(lambda part: _searched(*part, seed, end), parts))
    faults = [fault for part in found for fault in part.faults]
    return Tally("readers", sum(part.tried for part in found), faults)


def _searched(first: int, last: int, seed: int, end: float) -> Tally:
    """The cases first to last, in a child process that is started anew where a file ends it."""
    tally = Tally("readers")
    number = first
    while number < last and len(tally.faults) < MOST_FAULTS:
        words = map(str, (number, last, seed, end - time.monotonic()))
        child = subprocess.run(
            [sys.executable, "-m", "attack.readers", *words],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = child.stdout.splitlines()
        tally.faults += [line for line in lines if line.startswith("fault ")]
        begun = [int(line.split()[1]) for line in lines if line.startswith("begun ")]
        number = begun[-1] + 1 if begun else number + 1
        if child.returncode == 0:
            break
        last_words = child.stderr[-300:]
        tally.faults.append(f"fault {seed}:{number - 1} exit {child.returncode} {last_words!r}")
    tally.tried = number - first
    return tally


# ---------------------------------------------------------------------- the child


def search(first: int, count: int, seed: int, seconds: float) -> None:
    """Read damaged files and print each fault; `begun K` comes before case K."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        targets = list(make_targets(Path(folder)))
        shares = np.cumsum([t.share for t in targets])
        for target in targets:  # whatever is imported or compiled is there before memory is limited
            place = Path(folder) / f"whole{target.suffix}"
            place.write_bytes(target.content)
            target.reader(place)
        limit_memory()
        faults = 0
        end = max(end, time.monotonic() + 1)
        for number in range(first, count):
            if time.monotonic() > end or faults == MOST_FAULTS:
                break
            print("begun", number, flush=True)
            rng = np.random.default_rng([seed, number])
            target = targets[int(np.searchsorted(shares, rng.integers(shares[-1]), side="right"))]
            fault = trial(target, Path(folder), rng)
            if fault:
                print(f"fault {seed}:{number} {target.name}: {fault}", flush=True)
                faults += 1


def trial(target: Target, folder: Path, rng: Rng) -> str | None:
    """What went wrong with one damaged file."""
    from kikuchi.core.errors import KikuchiError
    from kikuchi.core.files import reading_limit

    place = folder / f"case{target.suffix}"
    place.write_bytes(damaged(target.content, target.suffix, rng))
    try:
        with warnings.catch_warnings(), reading_limit(LIMIT):
            warnings.simplefilter("error")
            target.reader(place)
    except KikuchiError as error:
        return f"message {error!r}" if "\n" in str(error) or not str(error) else None
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)
        ours = [f for f in last if "/kikuchi/" in f.filename][-1:]
        where = f"{Path(ours[0].filename).name}:{ours[0].lineno}" if ours else "nowhere"
        return f"{type(error).__name__} at {where}: {str(error)[:120]!r}"
    return None


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + SPARE
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


# ---------------------------------------------------------------------- damage


NUMBER = re.compile(rb"\d+")
EXTREMES = [
    *(b"0", b"-1", b"1e999", b"nan", b"99999999999999999999", b"4294967296", b"2147483648"),
    *(b"9" * 309, b"9" * 4300, b"1000000000000"),  # beyond a double; below the limit of int
    *(b"1000000000", b"65536", b"", b"1_0", b"0x10", "٣".encode(), b"9" * 5000, b"-0.0"),
]
BITS = [0, 1, 0x7F, 0x80, 0xFF]


def damaged(content: bytes, suffix: str, rng: Rng) -> bytes:
    """The content after one to three changes; packed content is often changed inside."""
    if suffix.endswith(".gz") and rng.random() < 0.5:
        return gzip.compress(damaged(gzip.decompress(content), "", rng), 1)
    if suffix == ".npz" and rng.random() < 0.5:
        return _damaged_member(content, rng)
    for _ in range(int(rng.integers(1, 4))):
        content = DAMAGES[int(rng.integers(len(DAMAGES)))](content, rng)
    return content


def _damaged_member(content: bytes, rng: Rng) -> bytes:
    """An archive with one member that is damaged, and checksums that are right."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    chosen = list(members)[int(rng.integers(len(members)))]
    members[chosen] = damaged(members[chosen], "", rng)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return buffer.getvalue()


def _flip(content: bytes, rng: Rng) -> bytes:
    out = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        if out:
            out[int(rng.integers(len(out)))] ^= 1 << int(rng.integers(8))
    return bytes(out)


def _cut(content: bytes, rng: Rng) -> bytes:
    return content[: int(rng.integers(len(content) + 1))]


def _splice(content: bytes, rng: Rng) -> bytes:
    a, b, c = np.sort(rng.integers(0, len(content) + 1, 3))
    return content[:b] + content[a:c] + content[c:]


def _remove(content: bytes, rng: Rng) -> bytes:
    a, b = np.sort(rng.integers(0, len(content) + 1, 2))
    return content[:a] + content[min(b, a + 64) :]


def _number(content: bytes, rng: Rng) -> bytes:
    places = list(NUMBER.finditer(content))
    if not places:
        return content
    match = places[int(rng.integers(len(places)))]
    return (
        content[: match.start()]
        + EXTREMES[int(rng.integers(len(EXTREMES)))]
        + content[match.end() :]
    )


def _repeat(content: bytes, rng: Rng) -> bytes:
    a = int(rng.integers(len(content) + 1))
    piece = content[a : a + int(rng.integers(1, 12))]
    return content[:a] + piece * int(rng.choice([2, 10, 1000])) + content[a:]


def _head(content: bytes, rng: Rng) -> bytes:
    out = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        if out:
            k = int(rng.integers(min(len(out), 400)))
            size = int(rng.choice([1, 2, 4, 8]))
            out[k : k + size] = bytes([BITS[int(rng.integers(len(BITS)))]]) * len(out[k : k + size])
    return bytes(out)


DAMAGES = [_flip, _cut, _splice, _remove, _number, _number, _repeat, _head]


# ---------------------------------------------------------------------- what is read


def make_targets(folder: Path) -> Iterator[Target]:
    """Valid files of every format, small."""
    yield from graph_targets()
    yield from table_targets(folder)
    yield from case_targets(folder)
    yield from picture_targets(folder)
    yield from recording_targets(folder)
    yield from model_targets(folder)
    yield from text_targets()


def graph_targets() -> Iterator[Target]:
    from kikuchi.data import example
    from kikuchi.graphs.formats import parse, read, read_evidence
    from kikuchi.graphs.formats.bif import bif_text
    from kikuchi.graphs.formats.brace_models import dsl_text, net_text
    from kikuchi.graphs.formats.fg import fg_text, read_fg
    from kikuchi.graphs.formats.json_model import json_text
    from kikuchi.graphs.formats.names import names_file, with_names
    from kikuchi.graphs.formats.uai import read_uai, uai_text
    from kikuchi.graphs.formats.xml_models import xdsl_text, xmlbif_text
    from kikuchi.graphs.regions.builders import read_roots

    graph = example("asia")
    texts = {".uai": uai_text, ".fg": fg_text, ".bif": bif_text}
    texts |= {".xmlbif": xmlbif_text, ".xdsl": xdsl_text, ".net": net_text, ".dsl": dsl_text}
    texts |= {".json": json_text}
    for suffix, text in texts.items():
        content = "".join(text(graph)).encode()
        yield Target(suffix, suffix, content, read, 3)
        yield Target(f"{suffix}.gz", f"{suffix}.gz", gzip.compress(content, mtime=0), read)

    def compiled(reader: Any) -> Reader:
        return lambda place: reader(str(place), place.read_bytes(), compiled=True)

    yield Target("compiled uai", ".uai", "".join(uai_text(graph)).encode(), compiled(read_uai))
    yield Target("compiled fg", ".fg", "".join(fg_text(graph)).encode(), compiled(read_fg))
    yield Target("evidence", ".evid", b"3  0 1  2 0  5 1", lambda p: read_evidence(p, graph))
    facts = json.dumps({"smoke": "yes", "tub": 1, "xray": [0.3, 0.7]}).encode()
    yield Target("evidence json", ".json", facts, lambda p: read_evidence(p, graph))
    roots = json.dumps({"roots": [[0, 1, 2], [2, 3], ["smoke"]]}).encode()
    yield Target("roots", ".json", roots, read_roots)
    text = "".join(uai_text(graph)).encode()
    plain = parse("asia", text, ".uai")
    ending = str(names_file("case.uai")).removeprefix("case")
    entry = {"names": graph.names, "states": graph.states}
    names = json.dumps({**entry, "digest": "sha256:0", "before": entry}).encode()

    def named(place: Path) -> object:
        return with_names(plain, str(place).removesuffix(".names.json"), text)

    yield Target("names", ending, names, named, 2)


def table_targets(folder: Path) -> Iterator[Target]:
    from kikuchi.core.tables import read_table
    from kikuchi.data.faces import read_pgm
    from kikuchi.learning.data import Data
    from kikuchi.learning.files import read_data
    from kikuchi.learning.structure.graphs import read_edges

    states = np.arange(24).reshape(8, 3) % 3
    numbers = states / 2 + 0.25
    rows = "rain,sky,'=x\n" + "\n".join(f"{a},{b}, {c} " for a, b, c in states.tolist())
    words = 'a;b\nyes;no\n;yes\n?;"no"\n'
    texts = {"csv": rows, "words": words, "numbers": "1.5,2e3\n-3,?\n\n4,nan\n"}
    for name, text in texts.items():
        for suffix in (".csv", ".tsv", ".csv.gz"):
            content = text.replace(",", "\t" if suffix == ".tsv" else ",").encode()
            packed = gzip.compress(content, mtime=0) if suffix.endswith("gz") else content
            yield Target(f"{name} data", suffix, packed, read_data)
            if name != "words":
                yield Target(f"{name} table", suffix, packed, read_table)
    for kind in (np.int64, np.uint8, np.float32, np.bool_, np.dtype("U3")):
        buffer = io.BytesIO()
        np.save(buffer, states.astype(kind))
        yield Target(f"npy {kind}", ".npy", buffer.getvalue(), read_data)
        if kind != np.dtype("U3"):
            yield Target(f"npy {kind}", ".npy", buffer.getvalue(), read_table)
    for save in (np.savez, np.savez_compressed):
        buffer = io.BytesIO()
        save(buffer, states=states, weights=np.ones(8))
        yield Target("npz data", ".npz", buffer.getvalue(), read_data, 2)
        buffer = io.BytesIO()
        save(buffer, data=numbers, rate=np.array(8.0), sensors=np.array(["a", "b", "c"]))
        yield Target("npz table", ".npz", buffer.getvalue(), read_table, 2)
    edges = Data.of(states)
    yield Target("edges", ".csv", b"x0,x1\n1;2\n0\t2\n", lambda p: read_edges(p, edges))
    yield Target("picture", ".pgm", b"P5\n# grey\n3 2\n255\n" + bytes(range(6)), read_pgm)
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(
        {"a": states[:, 0], "b": numbers[:, 1], "c": [True, None] * 4, "d": ["x", "y"] * 4}
    )
    for packing in ("none", "snappy", "gzip"):
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(table.drop(["b"]), buffer, compression=packing)
        yield Target(f"parquet {packing}", ".parquet", buffer.getvalue(), read_data)
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(table.drop(["d"]), buffer, compression=packing)
        yield Target(f"parquet {packing}", ".parquet", buffer.getvalue(), read_table)


def case_targets(folder: Path) -> Iterator[Target]:
    """Cases of `predict`."""
    import pyarrow
    import pyarrow.parquet

    from kikuchi.data import example
    from kikuchi.queries.case_files import predict_file

    graph = example("asia")

    def predicted(place: Path) -> object:
        return predict_file(graph, place, folder / "answers.csv", ["lung"], memory=LIMIT)

    words = {"smoke": ["yes", "no", None, "yes"] * 3, "xray": ["no", "no", "yes", None] * 3}
    rows = zip(*words.values(), strict=True)
    content = "\n".join(",".join(w or "" for w in row) for row in (words, *rows)).encode()
    yield Target("cases", ".csv", content, predicted, 2)
    yield Target("cases tsv", ".tsv", content.replace(b",", b"\t"), predicted)
    yield Target("cases quoted", ".csv", content.replace(b"yes", b'"yes"'), predicted)
    yield Target("cases gz", ".csv.gz", gzip.compress(content, mtime=0), predicted)
    columns = {**words, "dysp": [0, 1, None, 1] * 3}
    for packing in ("none", "snappy"):
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(columns), buffer, compression=packing)
        yield Target(f"cases parquet {packing}", ".parquet", buffer.getvalue(), predicted)


def picture_targets(folder: Path) -> Iterator[Target]:
    """Pictures, photographs and patches of them."""
    from PIL import Image

    from kikuchi.data.images import read_images
    from kikuchi.data.photographs import read_photograph
    from kikuchi.energy.preparation import Patches, patches

    rng = np.random.default_rng(0)
    grey = rng.integers(0, 256, (8, 9))
    np.save(folder / "a.npy", grey.reshape(8, 3, 3))
    np.savez(folder / "a.npz", images=grey, labels=np.arange(8) % 2)
    text = "\n".join(",".join(map(str, [*row, k % 2])) for k, row in enumerate(grey.tolist()))
    (folder / "a.csv").write_text(text)
    for suffix in (".npy", ".npz", ".csv"):
        content = (folder / f"a{suffix}").read_bytes()
        yield Target(f"pictures {suffix}", suffix, content, read_images)
    for suffix in (".png", ".jpg", ".pgm"):
        place = folder / f"a{suffix}"
        Image.fromarray(rng.integers(0, 256, (12, 16)).astype(np.uint8)).save(place)
        yield Target(f"photograph {suffix}", suffix, place.read_bytes(), read_photograph)
    place = folder / "patches.npz"
    patches([rng.normal(size=(20, 20))], size=3, count=30, seed=0).save(place)
    yield Target("patches", ".npz", place.read_bytes(), Patches.load, 2)
    with np.load(place) as archive:
        arrays = dict(archive)

    def told(place: Path) -> object:
        text = np.array(place.read_text(errors="replace"))
        return Patches.of_arrays({**arrays, "preparation": text}, str(place))

    yield Target("patches told", ".json", str(arrays["preparation"]).encode(), told, 2)


def recording_targets(folder: Path) -> Iterator[Target]:
    import nibabel

    from kikuchi.ica.fmri import read_nifti
    from kikuchi.ica.recording import Recording
    from kikuchi.ica.recordings import read_recording, write_recording, write_wav

    rng = np.random.default_rng(0)
    signal = rng.normal(size=(50, 2))
    write_wav(folder / "a.wav", signal, 8000)
    yield Target("wave", ".wav", (folder / "a.wav").read_bytes(), read_recording, 3)
    for suffix in (".csv", ".npz"):
        place = folder / f"a{suffix}"
        write_recording(place, Recording(signal, ("left", "=right"), 8.0))
        yield Target(f"recording {suffix}", suffix, place.read_bytes(), read_recording)
    scans = rng.normal(size=(4, 3, 2, 5)).astype(np.float32)
    for kind in (nibabel.Nifti1Image, nibabel.Nifti2Image):
        content = kind(scans, np.eye(4)).to_bytes()
        packed = gzip.compress(content, mtime=0)

        def every_voxel(place: Path) -> object:
            return read_nifti(place, mask=None)

        def masked(place: Path) -> object:
            with warnings.catch_warnings():  # our own, where few voxels are left
                warnings.filterwarnings("ignore", "the automatic mask kept")
                return read_recording(place)

        yield Target(kind.__name__, ".nii", content, masked, 2)
        yield Target(kind.__name__, ".nii.gz", packed, masked)
        yield Target(f"{kind.__name__} whole", ".nii", content, every_voxel)


def model_targets(folder: Path) -> Iterator[Target]:
    from kikuchi.boltzmann import RBM, Machine
    from kikuchi.ica import InfomaxICA
    from kikuchi.training.checkpoint import CHECKPOINT, Checkpoint, load
    from kikuchi.training.model import PytreeModel, load_model, save_model

    rng = np.random.default_rng(0)
    rows = (rng.random((20, 4)) < 0.5).astype(np.float64)
    place = folder / "model.safetensors"
    save_model(place, Machine.random(4, 2, masks={"weights": rng.random((4, 2)) < 0.7}))
    yield Target("machine", ".safetensors", place.read_bytes(), lambda p: load_model(p, Machine), 3)
    save_model(place, PytreeModel({"a": {"b": np.ones(2)}, "c": np.ones((2, 2))}))
    yield Target("pytree", ".safetensors", place.read_bytes(), lambda p: load_model(p, PytreeModel))
    RBM(3, max_iter=1, random_state=0).fit(rows).save(place)
    yield Target("rbm", ".safetensors", place.read_bytes(), RBM.load, 2)
    InfomaxICA(random_state=0, max_iter=3).fit(rng.laplace(size=(60, 3))).save(place)
    yield Target("ica", ".safetensors", place.read_bytes(), InfomaxICA.load)
    options: dict[str, Any] = {"random_state": 0, "batch_size": 10}
    state = folder / "state"
    RBM(3, max_iter=1, checkpoint=state, **options).fit(rows)
    identity = load(state, (CHECKPOINT,))[1]["identity"]

    def resumed(place: Path) -> object:
        checkpoint = Checkpoint(place)
        checkpoint.identity = identity
        return checkpoint.load()

    yield Target("checkpoint", ".part", state.read_bytes(), resumed, 3)


def text_targets() -> Iterator[Target]:
    from kikuchi.cli.inputs import load_evidence, split_methods
    from kikuchi.core.budget import parse_bytes
    from kikuchi.data import example
    from kikuchi.ica.posteriors.posterior import POSTERIORS
    from kikuchi.ica.priors.prior import PRIORS
    from kikuchi.learning.registry import LEARNERS
    from kikuchi.methods.registry import METHODS

    graph = example("asia")

    def of(parse: Callable[[str], object]) -> Reader:
        return lambda place: parse(place.read_text(errors="replace"))

    methods = ["bp:damping=0.5,schedule=residual,tol=1e-6", "clamp:method=(mf:restarts=2),k=3"]
    for text in [*methods, "gibbs:seed=3", "kikuchi:regions=loops:4", "jt:order=min-fill"]:
        yield Target("method", ".txt", text.encode(), of(METHODS.parse), 2)
    learner = "gradient:inference=(bp:damping=0.5,tol=1e-4),l2=0.1"
    yield Target("learner", ".txt", learner.encode(), of(LEARNERS.parse))
    yield Target("prior", ".txt", b"mixture:", of(PRIORS.parse))
    yield Target("posterior", ".txt", b"adatap", of(POSTERIORS.parse))
    yield Target("size", ".txt", b"1.5GiB", of(parse_bytes))
    yield Target("methods", ".txt", b"jt,bp:damping=0.5,tol=1,mf", of(split_methods))
    yield Target(
        "observations",
        ".txt",
        b"smoke=yes,x3=0,tub=0.3:0.7",
        of(lambda text: load_evidence(graph, text)),
        2,
    )


if __name__ == "__main__":
    search(*map(int, sys.argv[1:4]), float(sys.argv[4]))
