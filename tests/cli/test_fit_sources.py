"""`kikuchi fit ica`: tables, sound and scans, the folder and the page, and every refusal."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import fails, run

pytest.importorskip("sklearn")

from kikuchi.cli import folders
from kikuchi.data.speech import speech_like
from kikuchi.ica.measures import column_angles, matched_correlation
from kikuchi.ica.recordings import read_recording, write_wav
from kikuchi_experiments.data.brain import simulate_brain


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are written beside the data."""
    monkeypatch.chdir(tmp_path)


MIXING = np.array([[1.0, 0.3], [-0.5, 1.0], [0.2, 0.8]])


@pytest.fixture(scope="module")
def sources() -> np.ndarray:
    return np.random.default_rng(0).laplace(size=(600, 2))


@pytest.fixture
def table(tmp_path: Path, sources: np.ndarray) -> Path:
    noise = 0.1 * np.random.default_rng(1).standard_normal((600, 3))
    place = tmp_path / "mixed.csv"
    rows = sources @ MIXING.T + noise
    np.savetxt(place, rows, delimiter=",", header="left,middle,right", comments="")
    return place


def matrix(place: Path) -> np.ndarray:
    """The numbers, without the names of columns and rows."""
    lines = list(csv.reader(place.read_text().splitlines()))
    return np.array([[float(cell) for cell in line[1:]] for line in lines[1:]])


# ---------------------------------------------------------------------- answers


def test_restarts_on_a_cluster_give_the_same_mixing(table: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    words = ["fit", "ica", table, "--n-components", 2, "--n-init", 3, "--max-iter", 20]
    for name, more in (("here", []), ("there", ["--cluster", "local:1"])):
        result = run(*words, "-o", "m.safetensors", "--folder", tmp_path / name, *more)
        assert result.exit_code == 0, result.stderr
    here, there = (matrix(tmp_path / name / "mixing.csv") for name in ("here", "there"))
    np.testing.assert_allclose(there, here, rtol=1e-9)
    both = [
        *words,
        "-o",
        "m.safetensors",
        "--folder",
        tmp_path / "both",
        "--cluster",
        "local:1",
        "--processes",
        2,
    ]
    fails(both, "give --processes or --cluster, not both")


def test_a_table(table: Path, tmp_path: Path, sources: np.ndarray) -> None:
    out, page, answer = tmp_path / "out", tmp_path / "page.html", tmp_path / "answer.json"
    words = [
        "fit",
        "ica",
        table,
        "--n-components",
        2,
        "--noise",
        "isotropic",
        "-o",
        "m.safetensors",
        "--folder",
        out,
    ]
    result = run(*words, "--report", page, "--json", answer)
    assert result.exit_code == 0, result.stderr
    assert "MeanFieldICA, 2 sources" in result.stdout and "source 2" in result.stdout
    assert sorted(p.name for p in out.iterdir()) == ["mixing.csv", "model.json", "sources.csv"]
    assert column_angles(matrix(out / "mixing.csv"), MIXING).max() < 5
    found = read_recording(out / "sources.csv")
    assert found.sensors == ("source 1", "source 2")
    lines = (out / "mixing.csv").read_text().splitlines()
    assert lines[0] == "sensor,source 1,source 2" and lines[1].startswith("left,")
    assert matched_correlation(found.data, sources).min() > 0.95
    model = json.loads((out / "model.json").read_text())
    assert model["converged"] and model["collapsed"] == [] and model["sensors"][0] == "left"
    assert 0.005 < model["noise"] < 0.02 and model["files"] == sorted(p.name for p in out.iterdir())
    shares = [source["share"] for source in model["sources"]]
    assert shares == sorted(shares, reverse=True) and 0.9 < sum(shares) < 1.1
    assert json.loads(answer.read_text())["n_components"] == 2
    text = page.read_text()
    assert "--noise isotropic" in text and text.count("<figure>") == 3
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize(
    ("data", "written"),
    [("t.tsv", "sources.tsv"), ("t.npz", "sources.npz"), ("t.npy", "sources.npz")],
)
def test_sources_are_written_as_the_data_were(
    data: str, written: str, tmp_path: Path, sources: np.ndarray
) -> None:
    rows, place = sources @ MIXING.T, tmp_path / data
    rows = rows + 0.1 * np.random.default_rng(1).standard_normal(rows.shape)
    if data.endswith(".tsv"):
        np.savetxt(place, rows, delimiter="\t", header="a\tb\tc", comments="")
    else:
        (np.savez if data.endswith(".npz") else np.save)(place, rows)
    out = tmp_path / "out"
    assert (
        run(
            "fit", "ica", place, "--n-components", 2, "-o", "m.safetensors", "--folder", out
        ).exit_code
        == 0
    )
    assert sorted(p.name for p in out.iterdir()) == ["mixing.csv", "model.json", written]
    assert matched_correlation(read_recording(out / written).data, sources).min() > 0.95


def test_the_page_shows_the_sensors_that_vary_most(tmp_path: Path, sources: np.ndarray) -> None:
    noise = 0.1 * np.random.default_rng(1).standard_normal((600, 4))
    rows = sources @ np.array([[0.01, 1.0, 0.5, -1.0], [0.01, 0.4, 1.0, 1.0]]) + noise
    place, out, page = tmp_path / "four.csv", tmp_path / "out", tmp_path / "page.html"
    np.savetxt(place, rows, delimiter=",", header="dull,b,c,d", comments="")
    words = ["fit", "ica", place, "--n-components", 2, "--posterior", "lr"]
    words += ["--max-iter", 2, "--report", page, "-o", "m.safetensors", "--folder"]
    result = run(*words, out)
    assert "raise --max-iter" in result.stderr and "max_iter" not in result.stderr
    text = page.read_text()
    assert "the three strongest sensors" in text and ">dull<" not in text
    run(*words, tmp_path / "as_images", "--image", "2x2")
    text = page.read_text()
    assert "sensors and the directions" not in text and "each on a scale of its own" in text


def test_the_number_is_chosen(table: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "page.html"
    words = [
        "fit",
        "ica",
        table,
        "--most",
        3,
        "--n-init",
        1,
        "-o",
        "m.safetensors",
        "--folder",
        out,
        "--report",
        page,
    ]
    result = run(*words, "--max-iter", 60, "--json", "-")
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    assert data["n_components"] == 2 and set(data["criterion"]["values"]) == {"0", "1", "2", "3"}
    assert "How many sources" in page.read_text()


def test_bayesian_and_infomax(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sparse = rng.standard_normal((300, 2)) * rng.choice([1.0, 7.0], (300, 2))
    place = tmp_path / "sparse.npz"
    np.savez(place, data=sparse @ MIXING.T + 0.1 * rng.standard_normal((300, 3)))
    for method, more in (("bayesian-ica", []), ("infomax", ["--n-components", 2])):
        out, page = tmp_path / method, tmp_path / f"{method}.html"
        words = ["fit", method, place, *more, "-o", "m.safetensors", "--folder", out, "--quiet"]
        result = run(*words, "--report", page)
        assert result.exit_code == 0 and result.stdout == "", result.stderr
        model = json.loads((out / "model.json").read_text())
        assert model["method"] == method and model["n_components"] == 2
        assert column_angles(matrix(out / "mixing.csv"), MIXING).max() < 8
        assert f"kikuchi fit {method}" in page.read_text()


def test_learned_densities_count_sources_of_another_shape(tmp_path: Path) -> None:
    """Laplace sources are none of the two Gaussians that bayesian begins with."""
    rng = np.random.default_rng(0)
    rows = rng.laplace(size=(400, 1)) @ rng.normal(size=(1, 3)) + 0.2 * rng.normal(size=(400, 3))
    np.savetxt(tmp_path / "one.csv", rows, delimiter=",")
    words = ["fit", "bayesian-ica", tmp_path / "one.csv", "--n-components", 2]
    bounds = []
    for name, more in (("fixed", []), ("learned", ["--adapt"])):
        run(*words, *more, "-o", "m.safetensors", "--folder", tmp_path / name, "--quiet")
        model = json.loads((tmp_path / name / "model.json").read_text())
        bounds.append((model["n_components"], model["objective"]["per_sample"]))
    assert bounds[1][0] == 1 and bounds[1][1] > bounds[0][1], bounds


def test_several_priors_and_missing_values(table: Path, tmp_path: Path) -> None:
    lines = table.read_text().splitlines()
    lines[5] = ",".join(["", *lines[5].split(",")[1:]])
    table.write_text("\n".join(lines) + "\n")
    out = tmp_path / "out"
    words = [
        "fit",
        "ica",
        table,
        "--n-components",
        2,
        "-o",
        "m.safetensors",
        "--folder",
        out,
        "--max-iter",
        20,
    ]
    fails(words, "row 5, 'left' is missing (NaN)", "--missing")
    more = ["--missing", "hidden", "--prior", "laplace,laplace:rate=2", "--image", "3x1"]
    result = run(*words, *more, "--report", tmp_path / "p.html")
    assert result.exit_code == 0, result.stderr
    model = json.loads((out / "model.json").read_text())
    assert {s["prior"] for s in model["sources"]} == {"laplace", "laplace:rate=2"}
    assert "as images" in (tmp_path / "p.html").read_text()


def test_sound(tmp_path: Path) -> None:
    speakers = speech_like(2, 0.5, seed=1)
    mixed = speakers @ np.array([[1.0, 0.5], [0.6, -1.0]])
    files = [tmp_path / "one.wav", tmp_path / "two.wav"]
    for place, signal in zip(files, mixed.T, strict=True):
        write_wav(place, signal, 8000)
    out = tmp_path / "out"
    result = run(
        "fit", "infomax", *files, "--n-components", 2, "-o", "m.safetensors", "--folder", out
    )
    assert result.exit_code == 0, result.stderr
    back = read_recording([out / "source_1.wav", out / "source_2.wav"])
    assert back.rate == 8000 and matched_correlation(back.data, speakers).min() > 0.95
    gains = json.loads((out / "model.json").read_text())["gains"]
    assert len(gains) == 2 and min(gains) > 0


@pytest.fixture
def scans(tmp_path: Path) -> tuple[Path, Path, Any]:
    nibabel = pytest.importorskip("nibabel")
    brain = simulate_brain((14, 14, 8), 40, seed=1)
    image = nibabel.Nifti1Image(brain.scans, brain.affine)
    image.header.set_xyzt_units("mm", "sec")
    image.header.set_zooms((3, 3, 3, brain.interval))
    bold, stimulus = tmp_path / "bold.nii.gz", tmp_path / "stimulus.csv"
    nibabel.save(image, bold)
    np.savetxt(stimulus, brain.stimulus)
    return bold, stimulus, brain


def test_scans(scans: tuple[Path, Path, Any], tmp_path: Path) -> None:
    import nibabel

    bold, stimulus, brain = scans
    out, page = tmp_path / "out", tmp_path / "page.html"
    words = [
        "fit",
        "ica",
        bold,
        "--n-components",
        5,
        "--stimulus",
        stimulus,
        "-o",
        "m.safetensors",
        "--folder",
        out,
    ]
    result = run(*words, "--detrend", "constant", "--report", page)
    assert result.exit_code == 0, result.stderr
    assert "spatial" in result.stdout and "stimulus" in result.stdout
    names = ["courses.csv", "maps.nii.gz", "mixing.csv", "model.json"]
    assert sorted(p.name for p in out.iterdir()) == names
    maps = nibabel.load(out / "maps.nii.gz")
    assert maps.shape == (14, 14, 8, 5) and np.allclose(maps.affine, brain.affine)
    courses = read_recording(out / "courses.csv").data
    assert courses.shape == (40, 5)
    model = json.loads((out / "model.json").read_text())
    best = max(range(5), key=lambda k: abs(model["sources"][k]["stimulus"]))
    assert abs(model["sources"][best]["stimulus"]) > 0.9
    visual = maps.get_fdata()[..., best][brain.mask]
    assert abs(np.corrcoef(visual, brain.voxel_maps[0])[0, 1]) > 0.8
    # maps and courses together make the detrended data, but for noise
    scanned = brain.matrix
    modelled = courses @ maps.get_fdata()[brain.mask].T
    assert np.var(scanned - modelled - (scanned - modelled).mean(0)) < 0.6 * np.var(scanned)
    assert "follows the stimulus best" in page.read_text()


def test_scans_in_time(scans: tuple[Path, Path, Any], tmp_path: Path) -> None:
    bold, _, _ = scans
    out = tmp_path / "out"
    words = [
        "fit",
        "ica",
        bold,
        "--orientation",
        "temporal",
        "--prior",
        "binary01",
        "--n-components",
    ]
    result = run(
        *words, 1, "--posterior", "naive", "--mask", "none", "-o", "m.safetensors", "--folder", out
    )
    assert result.exit_code == 0, result.stderr
    courses = read_recording(out / "courses.csv").data
    assert courses.min() >= 0 and courses.max() <= 1
    assert "voxel" in json.loads((out / "model.json").read_text())["sources"][0]["strongest"]


def test_a_lost_source_is_said(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    angles = np.deg2rad([0, 60, 120])
    mixing = 4 * np.stack([np.cos(angles), np.sin(angles)])
    samples = rng.choice([-1.0, 1.0], (800, 3)) @ mixing.T + rng.standard_normal((800, 2))
    place, out, page = tmp_path / "x.npy", tmp_path / "out", tmp_path / "page.html"
    np.save(place, samples)
    words = ["fit", "ica", place, "--n-components", 3, "--prior", "bi-gaussian:mean=1,variance=0.1"]
    result = run(
        *words,
        "--posterior",
        "naive",
        "-o",
        "m.safetensors",
        "--folder",
        out,
        "--report",
        page,
        "--strict",
    )
    assert result.exit_code == 3, result.stderr
    assert "warning: source 3 collapsed" in result.stderr and "LOST" in result.stdout
    assert json.loads((out / "model.json").read_text())["collapsed"] == ["source 3"]
    assert "Warnings" in page.read_text() and "2 of 3" in page.read_text()


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--n-components", "0"], "--n-components must be in [1, inf), got 0"),
        (["--noise", "pink"], "noise"),
        (["--n-components", "2", "--prior", "laplas"], "did you mean 'laplace'?"),
        (["--n-components", "2", "--posterior", "tap"], "there is no posterior 'tap'"),
        (["--n-components", "2", "--mixing", "sparse"], "--mixing must be one of"),
        (["--n-components", "2", "--noise", "0.1,0.2"], "noise"),
        (["--n-components", "2", "--most", "3"], "leave --n-components out"),
        (["--most", "0"], "--most must be in [1, inf), got 0"),
        (["--processes", "0"], "--processes must be in [1, inf), got 0"),
        (["--n-components", "2", "--seed", "-1"], "--seed must be a whole number >= 0"),
        (["--n-components", "2", "--detrend", "polynomial:1.7"], "with a whole number"),
        (["--n-components", "3", "--prior", "laplace,gaussian"], "2 priors are given"),
        (["--n-components", "2", "--orientation", "spatial"], "is for brain scans"),
        (["--n-components", "2", "--orientation", "up"], "there is no orientation 'up'"),
        (["--n-components", "2", "--mask", "none"], "is for brain scans"),
        (["--n-components", "2", "--stimulus", "s.csv"], "is for brain scans"),
        (["--n-components", "2", "--image", "2x2"], "no images of that size"),
        (["--n-components", "2", "--detrend", "spline"], "use constant, polynomial[:order]"),
        (["--n-components", "2", "--detrend", "cosine:x"], "is no number"),
        (["--n-components", "2", "--detrend", "cosine"], "need the rate"),
        (["--n-components", "30", "--prior", "binary", "--posterior", "exact"], "joint states"),
        (["--n-components", "2", "--posterior", "exact"], "which is not discrete"),
        (["--n-components", "2", "--rate", "-1"], "rate must be a positive number"),
        (
            ["--n-components", "2", "--prior", "exponential", "--mixing", "nonnegative"],
            "values are negative",
        ),
    ],
)
def test_bad_words(table: Path, tmp_path: Path, words: list[str], message: str) -> None:
    out = tmp_path / "out"
    fails(["fit", "ica", table, *words, "-o", "m.safetensors", "--folder", out], message)
    assert not out.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n3,2\n0,2\n", "sensor without change: 'b'"),
        ("a,b\n1,2\ninf,3\n0,2\n", "row 2, 'a' is infinite"),
        ("a,b,c\n1,2,5\n2,3,1\n", "2 samples of 3 sensors"),
        ("a,b\n1,x\n", "'x'"),
        ("", "empty"),
    ],
)
def test_bad_tables(tmp_path: Path, content: str, message: str) -> None:
    place = tmp_path / "bad.csv"
    place.write_text(content)
    fails(
        [
            "fit",
            "ica",
            place,
            "--n-components",
            1,
            "-o",
            "m.safetensors",
            "--folder",
            tmp_path / "out",
        ],
        message,
    )


def test_rows_and_sensors_without_any_value(tmp_path: Path) -> None:
    place = tmp_path / "gaps.csv"
    words = [
        "fit",
        "ica",
        place,
        "--n-components",
        1,
        "--missing",
        "hidden",
        "-o",
        "m.safetensors",
        "--folder",
        tmp_path / "out",
    ]
    place.write_text("a,b\n1,\n2,\n0,\n")
    fails(words, "sensor without change: 'b'")
    place.write_text("a,b\n1,2\n,\n0,1\n")
    fails(words, "row 2 has no value")


def test_no_input_is_overwritten(tmp_path: Path) -> None:
    signals = np.random.default_rng(0).laplace(size=(400, 2)) / 20
    files = [tmp_path / "one.wav", tmp_path / "two.wav"]
    for place, signal in zip(files, signals.T, strict=True):
        write_wav(place, signal, 8000)
    before = files[1].read_bytes()
    words = [
        "fit",
        "ica",
        *files,
        "--n-components",
        2,
        "-o",
        "m.safetensors",
        "--folder",
        tmp_path / "out",
    ]
    fails([*words, "--json", files[1]], "choose another name")
    assert files[1].read_bytes() == before


def test_wide_tables_on_request(tmp_path: Path) -> None:
    place, out = tmp_path / "wide.npy", tmp_path / "out"
    np.save(place, np.random.default_rng(0).laplace(size=(12, 20)))
    words = [
        "fit",
        "ica",
        place,
        "--n-components",
        1,
        "--max-iter",
        5,
        "-o",
        "m.safetensors",
        "--folder",
        out,
    ]
    fails(words, "12 samples of 20 sensors", "--wide")
    assert run(*words, "--wide").exit_code == 0


def test_bad_files(tmp_path: Path, table: Path, scans: tuple[Path, Path, Any]) -> None:
    bold, stimulus, _ = scans
    out = tmp_path / "out"
    fails(
        ["fit", "ica", tmp_path / "no.csv", "-o", "m.safetensors", "--folder", out],
        "no such file",
    )
    fails(
        ["fit", "ica", tmp_path / "song.mp3", "-o", "m.safetensors", "--folder", out],
        "not a recording",
    )
    fails(
        ["fit", "ica", table, table, "-o", "m.safetensors", "--folder", out], "only if all are .wav"
    )
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"RIFF\x00\x00\x00\x00WAVEjunk")
    fails(["fit", "ica", broken, "-o", "m.safetensors", "--folder", out], "wave file")
    cut = tmp_path / "cut.nii.gz"
    cut.write_bytes(bold.read_bytes()[:400])
    fails(
        ["fit", "ica", cut, "-o", "m.safetensors", "--folder", out],
        "cut.nii.gz",
        "cannot be read as gzip data",
    )
    short = tmp_path / "short.csv"
    short.write_text("1\n0\n1\n")
    words = ["fit", "ica", bold, "--n-components", 2, "-o", "m.safetensors", "--folder", out]
    fails([*words, "--stimulus", short], "one value for each of 40 scans")
    short.write_text("1\n" * 40)
    fails([*words, "--stimulus", short], "must change")
    fails([*words, "--mask", bold], "the mask has shape")
    fails([*words, "--image", "3x3"], "no images of that size")
    fails([*words, "--missing", "hidden", "--detrend", "constant"], "needs complete rows")
    assert stimulus.exists() and not out.exists()


def test_folders_are_kept(table: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("dear")
    words = [
        "fit",
        "ica",
        table,
        "--n-components",
        1,
        "--max-iter",
        3,
        "-o",
        "m.safetensors",
        "--folder",
    ]
    fails([*words, full], "the folder is not empty")
    fails([*words, table], "it is a file")
    fails([*words, tmp_path / "none" / "out"], "cannot write")
    fails([*words, tmp_path / "out", "--json", table], "is an input of this command")
    assert [p.name for p in full.iterdir()] == ["thesis.txt"]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run(*words, empty).exit_code == 0 and (empty / "model.json").exists()


def test_a_folder_is_whole_or_not_there(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path, found: Any) -> None:
        (folder / "mixing.csv").write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "_write_files", fail)
    words = [
        "fit",
        "ica",
        table,
        "--n-components",
        1,
        "--max-iter",
        3,
        "-o",
        "m.safetensors",
        "--folder",
        tmp_path / "out",
    ]
    fails(words, "No space left on device")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.safetensors", "mixed.csv"]


def test_noise_alone_has_no_sources(tmp_path: Path) -> None:
    place = tmp_path / "noise.npy"
    np.save(place, np.random.default_rng(0).standard_normal((400, 3)))
    words = [
        "fit",
        "ica",
        place,
        "--most",
        1,
        "--n-init",
        1,
        "-o",
        "m.safetensors",
        "--folder",
        tmp_path / "out",
    ]
    fails(words, "no sources were found")


def test_pixels_that_never_change_are_left_out_of_images(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    threes = digits.data[digits.target == 3]
    np.savetxt(tmp_path / "threes.csv", threes, delimiter=",")
    words = ["fit", "ica", tmp_path / "threes.csv", "--n-components", 3, "--prior", "exponential"]
    words += ["--mixing", "nonnegative", "--max-iter", 5]
    fails([*words, "-o", "m.safetensors", "--folder", tmp_path / "all"], "without change")
    page = tmp_path / "threes.html"
    result = run(
        *words,
        "--image",
        "8x8",
        "-o",
        "m.safetensors",
        "--folder",
        tmp_path / "found",
        "--report",
        page,
    )
    changing = int(np.sum(np.ptp(threes, axis=0) > 0))
    assert changing < 64
    assert f"183 images of 64 pixels, {changing} of which change" in result.stdout
    assert "as images" in page.read_text()
    about = json.loads((tmp_path / "found" / "model.json").read_text())
    assert len(about["sensors"]) == changing
