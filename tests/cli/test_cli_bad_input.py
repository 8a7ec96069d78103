"""Every kind of bad input is one line on standard error and exit code 2."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from cli_runner import fails, run

COMMANDS = (["info"], ["infer"], ["compare"])


@pytest.mark.parametrize("command", COMMANDS)
def test_missing_file(command: list[str], tmp_path: Path) -> None:
    fails([*command, tmp_path / "nowhere.uai"], "nowhere.uai", "No such file")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_is_no_model(command: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "folder.uai"
    folder.mkdir()
    fails([*command, folder], "folder.uai")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "content",
    [b"", b"\x00\xff\xfe" * 50, b"MARKOV", b"MARKOV 1000000000 2", b"MARKOV 1 2 1 1 0 2 1 -1"],
)
def test_garbage_file(command: list[str], content: bytes, tmp_path: Path) -> None:
    model = tmp_path / "bad.uai"
    model.write_bytes(content)
    fails([*command, model], "bad.uai")


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_format(command: list[str], tmp_path: Path) -> None:
    model = tmp_path / "model.docx"
    model.write_text("MARKOV")
    fails([*command, model], ".docx", ".uai")


def test_unknown_example() -> None:
    fails(["infer", "example:asiaa"], "asiaa", "did you mean 'asia'")


@pytest.mark.parametrize(
    ("method", "fragments"),
    [
        ("bpp", ["there is no method 'bpp'", "did you mean 'bp'"]),
        ("bp:dampin=0.5", ["no option 'dampin'", "did you mean 'damping'"]),
        ("bp:damping=2", ["option damping must be in [0, 1), got 2"]),
        ("bp:damping=high", ["option damping cannot be 'high'"]),
        ("bp:schedule=upwards", ["must be one of", "residual"]),
        ("bp:damping", ["not of the form option=value"]),
        ("", ["there is no method ''"]),
    ],
)
def test_bad_method_text(pair: Path, method: str, fragments: list[str]) -> None:
    fails(["infer", pair, "--method", method], *fragments)


def test_bad_method_among_several(pair: Path) -> None:
    fails(["compare", pair, "--methods", "bp,xyz"], "there is no method 'xyz'")
    fails(["compare", pair, "--methods", " , "], "no method was given")


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["--memory", "lots"], "'lots' is not a size"),
        (["--seconds", "0"], "seconds must be positive"),
        (["--seconds", "-1"], "seconds must be positive"),
        (["--seconds", "nan"], "seconds must be positive"),
        (["--method", "gibbs", "--seed", "-1"], "option seed must be in"),
    ],
)
def test_bad_option_values(pair: Path, words: list[str], fragment: str) -> None:
    fails(["infer", pair, *words], fragment)


@pytest.mark.parametrize(
    "words",
    [
        ["infer"],
        ["infer", "a.uai", "--seconds", "soon"],
        ["infer", "a.uai", "--no-such-option"],
        ["nonsense"],
        ["generate", "grid", "3"],
        ["generate", "grid", "3", "three", "--out", "x.uai"],
        ["generate", "triangle"],
        ["convert", "a.uai"],
    ],
)
def test_usage_errors(words: list[str]) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert "Usage: " in result.stderr and "Traceback" not in result.stderr


# ---------------------------------------------------------------------- outputs


def test_outputs_are_checked_before_the_work(tmp_path: Path) -> None:
    missing = tmp_path / "no" / "folder"
    for option, name in (("--json", "a.json"), ("--out", "a.csv"), ("--report", "a.html")):
        # The model does not exist either: that the output is named shows the order of the checks.
        line = fails(["infer", "nowhere.uai", option, missing / name], f"cannot write {missing}")
        assert "No such file or directory" in line
    fails(["compare", "nowhere.uai", "--report", missing / "a.html"], "cannot write")
    fails(["info", "nowhere.uai", "--json", missing / "a.json"], "cannot write")
    fails(["convert", "nowhere.uai", missing / "b.uai"], "cannot write")
    fails(["generate", "grid", 3, 3, "--out", missing / "g.uai"], "cannot write")


def test_an_output_that_is_a_folder_or_a_device(pair: Path, tmp_path: Path) -> None:
    fails(["infer", pair, "--json", tmp_path], "it is a folder")
    fails(["infer", pair, "--json", "/dev/null"], "not an ordinary file")
    assert Path("/dev/null").is_char_device()


def test_an_unknown_form_of_output(pair: Path, tmp_path: Path) -> None:
    fails(["infer", pair, "--out", tmp_path / "out.txt"], ".mar, .csv, .pr")
    fails(["convert", pair, tmp_path / "out.txt"], ".uai, .fg, .bif")
    fails(["generate", "tree", 5, "--out", tmp_path / "out.csv"], ".uai, .fg, .bif")


def test_outputs_may_not_destroy_the_model_or_each_other(pair: Path, tmp_path: Path) -> None:
    before = pair.read_text()
    fails(["infer", pair, "--json", pair], "is an input of this command")
    fails(["convert", pair, pair], "is an input of this command")
    same = tmp_path / "same.csv"
    fails(["infer", pair, "--json", same, "--out", same], "two outputs go to")
    assert pair.read_text() == before


@pytest.mark.parametrize(
    "words",
    [
        ["infer", "pair.uai", "-e", "seen.json", "--json", "seen.json"],
        ["infer", "pair.uai", "-e", "seen.json", "--report", "./seen.json"],
        ["info", "pair.uai", "-e", "seen.json", "--json", "seen.json"],
        ["compare", "pair.uai", "-e", "seen.json", "--json", "seen.json"],
        ["certify", "pair.uai", "-e", "seen.json", "--json", "seen.json"],
        ["bounds", "pair.uai", "-e", "seen.json", "--json", "seen.json"],
        ["query", "pair.uai", "-e", "x0=1", "-e", "seen.json", "--json", "seen.json"],
        ["most-probable", "pair.uai", "-e", "seen.json", "--json", "seen.json"],
        ["sample", "pair.uai", "-e", "rows.csv", "-o", "rows.csv"],
        ["evaluate", "pair.uai", "rows.csv", "--json", "rows.csv"],
        ["predict", "pair.uai", "rows.csv", "-o", "rows.csv"],
        ["predict", "pair.uai", "rows.csv", "-o", "out.csv", "--json", "rows.csv"],
        ["learn", "rows.csv", "-g", "pair.uai", "-o", "pair.uai"],
        ["learn", "rows.csv", "-g", "pair.uai", "-o", "out.uai", "--json", "pair.uai"],
        ["regions", "pair.uai", "-r", "file:seen.json", "--json", "seen.json"],
    ],
)
def test_outputs_may_not_destroy_any_other_input(
    words: list[str], pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    contents = {"pair.uai": pair.read_text(), "seen.json": '{"x0": 1}', "rows.csv": "x0,x1\n0,1\n"}
    for name, text in contents.items():
        Path(name).write_text(text)
    fails(words, "is an input of this command")
    assert {name: Path(name).read_text() for name in contents} == contents


def test_a_failed_run_leaves_old_output_alone(pair: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_text("old")
    fails(["infer", pair, "--evidence", "x0=7", "--json", out], "got 7")
    assert out.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.json", "pair.uai"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_packed_model_that_grows_beyond_the_memory(command: list[str], tmp_path: Path) -> None:
    model = tmp_path / "grows.uai.gz"
    model.write_bytes(gzip.compress(b"MARKOV " + b"1 " * 6_000_000))
    fails([*command, model, "--memory", "5MB"], "grows.uai.gz", "10 MB is the limit", "--memory")
    fails([*command, model, "--memory", "50MB"], "numbers takes 252 MB to read", "50 MB")


@pytest.mark.parametrize("name", ["rows.npz", "rows.npy", "rows.csv.gz", "rows.parquet"])
def test_data_files_of_something_else(name: str, tmp_path: Path) -> None:
    place = tmp_path / name
    place.write_bytes(b"PK\x03\x04" + bytes(range(256)))
    out = tmp_path / "out.uai"
    fails(["learn", place, "--graph", "chow-liu", "--out", out], name, "cannot be read")
    fails(["fit", "ica", place, "--out", tmp_path / "m.safetensors"], name, "cannot be read")
    fails(["fit", "rbm", place, "--out", tmp_path / "m.safetensors"], name, "cannot be read")


@pytest.mark.parametrize("number", ["9" * 5000, "²"])
def test_numbers_that_no_integer_holds(pair: Path, number: str, tmp_path: Path) -> None:
    fails(["infer", pair, "--evidence", f"x{number}=1"], "no variable")
    fails(["infer", pair, "--evidence", f"x0={number}"], "variable 0")
    fails(["infer", pair, "--method", f"clamp:variables={number}"], "kikuchi: ")
    fails(["regions", pair, "--regions", f"loops:{number}"], "whole number")
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n0,1\n1,0\n")
    for graph in (f"grid:{number}x1", "edges.csv"):
        (tmp_path / "edges.csv").write_text(f"a,{number}\n")
        word = graph if graph.startswith("grid") else tmp_path / graph
        fails(["learn", rows, "--graph", word, "--out", tmp_path / "o.uai"], "kikuchi: ")


def test_names_of_bundled_models_and_colons_in_evidence_are_explained():
    fails(["infer", "asia"], "for the bundled model write example:asia")
    fails(["query", "example:asia", "lung", "--evidence", "xray:yes"], "write xray=yes")
