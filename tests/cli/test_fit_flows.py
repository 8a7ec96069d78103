"""`kikuchi fit` for flows: what it writes, shows and refuses."""

import json

import numpy as np
import pytest
from sklearn.datasets import make_moons
from typer.testing import CliRunner

from kikuchi.cli.main import app
from kikuchi.core.errors import KikuchiError
from kikuchi.flows import FlowClassifier, FlowMixture

SMALL = ("--flow", "coupling:layers=1,width=4", "--max-iter", 2)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    file = tmp_path_factory.mktemp("flows") / "moons.csv"
    x, y = make_moons(120, noise=0.1, random_state=0)
    columns = np.column_stack([x, y])
    np.savetxt(file, columns, "%.6g", ",", header="a,b,class", comments="")
    return file


def run(*words):
    return CliRunner().invoke(app, ["fit", *map(str, words)])


def test_mixture_with_page(table):
    out, page = table.with_name("m.safetensors"), table.with_name("m.html")
    words = ("--n-components", 2, "--drop", "class", "--hold-out", 0.25, "--report", page)
    done = run("flow-mixture", table, "-o", out, *SMALL, *words)
    assert done.exit_code == 0, done.output
    assert "Gaussian mixture, rows held out" in done.output
    assert len(FlowMixture.load(out).weights_) == 2
    text = page.read_text()
    assert "Most probable component" in text or "most probable component" in text
    assert "epoch by epoch" in text and not table.with_name("m.safetensors.part").exists()


def test_samples_as_arrays(table):
    """The preparation of the columns of a flow was taken for that of patches."""
    out, rows = table.with_name("s.safetensors"), table.with_name("s.npz")
    assert run("flow-mixture", table, "-o", out, *SMALL, "--drop", "class").exit_code == 0
    words = ["sample", str(out), "-o", str(rows), "-n", "3", "--seed", "2"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    drawn = FlowMixture.load(out).sample(3, random_state=2)
    np.testing.assert_array_equal(np.load(rows)["data"], drawn)


def test_classes_with_names_as_json(table):
    named, out = table.with_name("named.csv"), table.with_name("c.safetensors")
    lines = [
        line[:-1] + {"0": "upper", "1": "lower", "s": "s"}[line[-1]]
        for line in table.read_text().splitlines()
    ]
    named.write_text("\n".join(lines) + "\n")
    words = ("--target", "class", "--hold-out", 0.25, "--json", "-", "--quiet")
    done = run("flow-classes", named, "-o", out, *SMALL, *words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["measures"]["errors on rows held out"] < 0.4
    assert FlowClassifier.load(out).classes_.tolist() == ["lower", "upper"]
    judged = CliRunner().invoke(app, ["evaluate", str(out), str(named)])
    assert judged.exit_code == 0 and "errors per row" in judged.stdout, judged.output


def test_names_of_classes_are_for_the_target_only(tmp_path):
    from kikuchi.cli.rows import RowOptions

    file = tmp_path / "a.csv"
    file.write_text("x,shade,y,kind\n1,red,2,long\n3,blue,4,short\n5,red,6,long\n")
    found = RowOptions(drop="shade").read_target(str(file), "kind", 0, classes=True)
    assert found.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert found.y.tolist() == ["long", "short", "long"] and found.names == ["x", "y", "kind"]
    with pytest.raises(KikuchiError, match="line 2, column 2: 'red' is not a number"):
        RowOptions().read_target(str(file), "kind", 0, classes=True)
    with pytest.raises(KikuchiError, match="line 2, column 4: 'long' is not a number"):
        RowOptions(drop="shade").read_target(str(file), "kind", 0)
    assert RowOptions(drop="shade,kind").read_numbers(str(file), 0).rows.tolist()[0] == [1, 2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["flow-classes"], "give its name as --target"),
        (["flow-mixture", "--flow", "glow"], "there is no flow 'glow'"),
        (["flow", "--dequantise", "none"], "holds whole numbers only"),
        (["flow-mixture", "--n-components", 0], "--n-components must be"),
    ],
)
def test_refusals(table, words, told):
    kind, *more = words
    done = run(kind, table, "-o", table.with_name("x.safetensors"), *more)
    assert done.exit_code != 0
    assert told in str(done.exception) + done.output


def test_chains_of_flows(tmp_path):
    rng = np.random.default_rng(0)
    files = []
    for k in range(4):
        rows = rng.normal(size=(24, 2)) + np.repeat([[-2.0], [2.0]], 12, axis=0)
        files.append(str(tmp_path / f"s{k}.csv"))
        np.savetxt(files[-1], rows, "%.6g", ",", header="a,b", comments="")
    out = tmp_path / "chain.safetensors"
    words = ["fit", "flow-hmm", *files, "-o", str(out), "--topology", "left-right"]
    words += ["--flow", "coupling:layers=1,width=4", "--max-iter", "2"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code in (0, 3), done.output
    assert "FlowHMM" in done.output and out.exists()
    table = tmp_path / "states.csv"
    words = ["filter", str(out), files[0], "--smooth"]
    done = CliRunner().invoke(app, [*words, "--out", str(table)])
    assert done.exit_code in (0, 3), done.output
    states = np.loadtxt(table, delimiter=",", skiprows=1)
    assert len(states) == 24 and states[0, -2] > 0.9 and states[-1, -1] > 0.9
