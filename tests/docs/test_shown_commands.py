"""Commands of the guides that name files of the reader run as printed, on files of that kind.

Commands of `console` fences are run with their output by `tools/examples.py`. Those here train and
separate, so that they are among the slow tests; that their options exist is tested always.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from cli_runner import run
from project_tools import ROOT

GUIDES = ROOT / "docs" / "how-to"
GROUPS = ("fit",)  # commands with commands below them
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)  # any language
_INLINE = re.compile(r"`(kikuchi [a-z][^`]*)`", re.DOTALL)
_WORDS = {"MODEL": "example:grid10", "IMAGES.npy": "images.npy"}


def fenced(page: Path) -> list[str]:
    """Commands of plain fences and of `sh` fences."""
    found = _FENCE.findall(page.read_text())
    blocks = [block.replace("\\\n", " ") for language, block in found if language in ("", "sh")]
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("kikuchi ")]


def inline(page: Path) -> list[str]:
    """Commands within sentences that are whole: with a file or a model."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = [" ".join(command.split()) for command in _INLINE.findall(text)]
    return [c for c in found if re.search(r" (?:MODEL|[\w.]+\.(?:csv|npz|npy))(?: |$)", c)]


PAGES = {page.stem: page for page in sorted(GUIDES.glob("*.md"))}
SHOWN = {stem: [*fenced(page), *inline(page)] for stem, page in PAGES.items()}


def words_of(line: str) -> list[str]:
    return [_WORDS.get(word, word) for word in shlex.split(line, comments=True)[1:]]


def test_the_commands_are_found() -> None:
    assert sum(map(len, SHOWN.values())) >= 30
    assert any("hill-climb" in line for line in SHOWN["query"])
    assert set(FILES) <= {stem for stem, lines in SHOWN.items() if lines}


@pytest.mark.parametrize("stem", [stem for stem, lines in SHOWN.items() if lines])
def test_options_exist(stem: str) -> None:
    for line in SHOWN[stem]:
        words = words_of(line)
        names = words[:2] if words[0] in GROUPS else words[:1]
        told = run(*names, "--help").stdout
        for word in words[len(names) :]:
            option = word.partition("=")[0]
            if option.startswith("-") and len(option) > 1:
                assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", told), (option, line)


# ------------------------------------------------------------------ files of the reader


def table(name: str, values: np.ndarray, columns: str, labels: list[str] | None = None) -> None:
    """Write a CSV file with a header, and with a last column of labels."""
    rows = [",".join(f"{x:.6g}" for x in row) for row in values]
    if labels is not None:
        rows = [f"{row},{label}" for row, label in zip(rows, labels, strict=True)]
    Path(name).write_text("\n".join([columns, *rows]) + "\n")


def files_of_bayesnn(rng: np.random.Generator) -> None:
    for name, count in (("meat.csv", 60), ("new.csv", 20)):
        X = rng.normal(size=(count, 3))
        table(name, np.column_stack([X, X[:, 0] + 0.1 * rng.normal(size=count)]), "a,b,c,fat")
    X = rng.normal(size=(60, 2))
    table("cells.csv", X, "size,shade,kind", ["round" if x > 0 else "long" for x in X[:, 0]])


def files_of_beliefnets(rng: np.random.Generator) -> None:
    names = ",".join(f"pixel{k}" for k in range(16))  # a line of numbers would be a row
    table("digits.csv", (rng.random((80, 16)) < 0.3).astype(float), names)


def files_of_energy(rng: np.random.Generator) -> None:
    from matplotlib.image import imsave
    from sklearn.datasets import load_digits

    picture = np.cumsum(np.cumsum(rng.normal(size=(120, 160)), axis=0), axis=1)
    imsave("other.jpg", picture, cmap="gray")
    np.save("images.npy", load_digits().data[:40] / 16)  # fewer than their pixels


def files_of_flows(rng: np.random.Generator) -> None:
    table("table.csv", rng.normal(size=(200, 3)) ** 3, "a,b,c")
    X = rng.normal(size=(200, 2))
    table("letters.csv", X, "width,height,class", ["I" if x < 0 else "M" for x in X[:, 0]])
    for name in ("one.csv", "two.csv", "three.csv"):
        steps = np.repeat([-2.0, 0.0, 2.0], 12)[:, None]
        table(name, steps + 0.5 * rng.normal(size=(36, 2)), "x,y")


def files_of_ica(rng: np.random.Generator) -> None:
    import nibabel
    from scipy.io import wavfile

    from kikuchi_experiments.data.brain import simulate_brain

    bits = (rng.random((400, 3)) < 0.4).astype(float)
    noise = 0.1 * rng.normal(size=(400, 4))
    table("recording.csv", bits @ rng.normal(size=(3, 4)) + noise, "a,b,c,d")
    sound = rng.laplace(size=(2000, 3)) @ rng.normal(size=(3, 2))
    for name, column in zip(("left.wav", "right.wav"), sound.T, strict=True):
        wavfile.write(name, 8000, (3000 * column / np.abs(column).max()).astype(np.int16))
    brain = simulate_brain((16, 16, 8), 40, seed=1)
    nibabel.save(nibabel.Nifti1Image(brain.scans, brain.affine), "bold.nii.gz")
    table("blocks.csv", np.asarray(brain.stimulus, dtype=float)[:, None], "on")


def files_of_query(rng: np.random.Generator) -> None:
    import kikuchi as kk

    asia = kk.example("asia")
    states = kk.plan(asia).calibrate().sample(200, seed=0)
    lines = [",".join(n[s] for n, s in zip(asia.states, row, strict=True)) for row in states]
    Path("rows.csv").write_text("\n".join([",".join(asia.names), *lines]) + "\n")


def files_of_temporal(rng: np.random.Generator) -> None:
    for name in ("recording.csv", "monday.csv", "tuesday.csv", "notes.csv", "data.csv"):
        table(name, np.cumsum(rng.normal(size=(80, 2)), axis=0), "x,y")
    X = rng.normal(size=(100, 2))
    table("stream.csv", X, "length,links,spam", ["1" if x > 0 else "0" for x in X[:, 0]])


def files_of_train(rng: np.random.Generator) -> None:
    from sklearn.datasets import load_digits

    np.savez("digits.npz", data=load_digits().data[:200])


FILES: dict[str, Callable[[np.random.Generator], None]] = {
    "bayesnn": files_of_bayesnn,
    "beliefnets": files_of_beliefnets,
    "energy": files_of_energy,
    "flows": files_of_flows,
    "ica": files_of_ica,
    "query": files_of_query,
    "temporal": files_of_temporal,
    "train": files_of_train,
}


@pytest.mark.slow
@pytest.mark.parametrize("stem", [stem for stem, lines in SHOWN.items() if lines])
def test_commands_run_as_printed(
    stem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    FILES.get(stem, lambda rng: None)(np.random.default_rng(0))
    for line in SHOWN[stem]:
        result = run(*words_of(line))
        assert result.exit_code == 0, f"{line}\n{result.stderr}"
        words = words_of(line)
        for word, following in pairwise(words):
            if word in ("--out", "-o", "--report", "--table", "--plot"):
                assert Path(following).exists(), f"{line} does not write {following}"
