"""`kikuchi fit`: options made from the classes of the registry, its help, and its messages."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from cli_runner import fails, run

import kikuchi.cli
from kikuchi.cli.commands.fit import kind_command
from kikuchi.cli.estimators import KindOptions
from kikuchi.cli.flag_names import option_names, with_flags
from kikuchi.core.options import option_hints
from kikuchi.training.kinds import all_kinds, find_kind

SCREEN = 40  # lines of a terminal of 80 columns


@pytest.mark.parametrize("name", all_kinds())
def test_options_are_the_fields_of_the_class_with_its_defaults(name: str) -> None:
    """Every option has the name, the type and the default that the class has in Python."""
    options = KindOptions(find_kind(name))
    fields = {f.name: f for f in dataclasses.fields(options.estimator)}
    assert options.fields and set(options.fields) <= set(fields)
    plain = options.estimator()
    made = options.make({})
    for field in fields.values():
        if field.init:
            assert getattr(made, field.name) is getattr(plain, field.name), field.name
    command = kind_command(find_kind(name))
    flags = {p.name: p for p in command.params}
    for word in options.fields:
        assert f"--{word.replace('_', '-')}" in flags[word].opts
    left_out = set(fields) - set(options.fields)
    hints = option_hints(options.estimator)
    texts = {n for n in left_out if fields[n].init and hints[n] in (int, float, str, bool)}
    assert texts <= {"verbose"}, texts


@pytest.mark.parametrize("name", all_kinds())
def test_what_a_kind_gives_is_what_its_class_can_do(name: str) -> None:
    kind = find_kind(name)
    cls = kind.load()
    assert cls.kind is kind
    needed = {
        "samples": "sample", "classes": "predict", "numbers": "predict", "features": "transform",
        "forecasts": "forecast", "density": "score",
    }  # fmt: skip
    for word in kind.gives:
        assert word not in needed or hasattr(cls, needed[word]), (name, word)
    if "states" in kind.gives:
        assert hasattr(cls, "filter") or hasattr(cls, "predict_proba")
    with pytest.raises(Exception, match="unknown"):
        dataclasses.replace(kind, takes="spoons")


def test_every_concrete_estimator_of_the_library_is_registered() -> None:
    """Estimators are the public classes that derive from `Estimator` and can be made."""
    from importlib import import_module

    from kikuchi.training.estimator import Estimator

    packages = {kind.package for kind in all_kinds().values()}
    found = set()
    for package in packages:
        module = import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) and issubclass(thing, Estimator):
                found |= set() if inspect.isabstract(thing) else {name}
    assert found == {kind.class_name for kind in all_kinds().values()}


def test_the_command_line_names_no_estimator() -> None:
    names = {kind.class_name for kind in all_kinds().values()}
    kinds = {f'"{name}"' for name in all_kinds()}
    kinds -= {'"ica"', '"threshold"'}  # a removed command, and an option of rows
    for path in Path(kikuchi.cli.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name == "warm_up.py":  # compiles the loops of some of them
            continue
        words = {word for word in names | kinds if word in text}
        assert not words, (path.name, words)


def test_listing_the_kinds_loads_neither_jax_nor_scikit_learn() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from kikuchi.training.kinds import all_kinds\n"
        "assert len(all_kinds()) > 20\n"
        "assert not {'jax', 'sklearn', 'scipy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_help_fits_on_screens() -> None:
    shown = run("fit", "--help").stdout.splitlines()
    assert len(shown) <= SCREEN and max(map(len, shown)) <= 80
    assert all(any(line.strip().startswith(name) for line in shown) for name in all_kinds())
    shown = run("fit", "rbm", "--help").stdout.splitlines()
    assert len(shown) <= 2 * SCREEN and max(map(len, shown)) <= 80


KINDS = {
    "rbm": ({"--n-components", "--visible", "--log-z"}, {"--architecture", "--target"}),
    "energy": ({"--n-components", "--transposed"}, {"--dtype", "--hidden-layer-sizes"}),
    "bayesnn": ({"--target", "--prune", "--posterior"}, {"--log-z", "--committee", "--flow"}),
    "threshold": ({"--target", "--committee", "--C"}, {"--posterior", "--flow", "--prune"}),
    "flow": ({"--flow", "--n-components"}, {"--target", "--log-z"}),
    "hmm": ({"--n-states", "--covariance-type"}, {"--inputs", "--target", "--hold-out"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_help_of_a_kind_has_its_options_only_under_headings(kind: str) -> None:
    text = run("fit", kind, "--help").stdout
    shown = {word for line in text.splitlines() for word in line.replace(",", " ").split()[:3]}
    there, elsewhere = KINDS[kind]
    assert there <= shown, there - shown
    assert not elsewhere & shown
    titles = [line[:-1] for line in text.splitlines() if line[:1].isalpha() and line[-1] == ":"]
    assert titles == ["Arguments", "Model", "Learning", "Data", "Output"]


def test_advice_names_the_option_of_the_command() -> None:
    command = kind_command(find_kind("rbm"))
    words = ["ROWS.csv", "--out", "M.safetensors"]
    with command.make_context("rbm", words) as context:
        names = option_names(context)
    text = "not converged after 3 iterations; raise max_iter"
    assert with_flags(text, names) == "not converged after 3 iterations; raise --max-iter"
    advice = (
        "diverged; lower learning_rate or momentum (sgd), raise weight_decay, or scale the data"
    )
    told = (
        "diverged; lower --learning-rate or --momentum (sgd), raise --weight-decay, or scale the "
        "data"
    )
    assert with_flags(advice, names) == told
    assert with_flags("values of binary units; use visible=gaussian", names) == (
        "values of binary units; use --visible gaussian"
    )
    assert with_flags("the visible units and the learner", names) == (
        "the visible units and the learner"
    )


def test_warnings_and_errors_of_a_fit_name_options(tmp_path: Path) -> None:
    rows = tmp_path / "walk.csv"
    values = np.cumsum(np.random.default_rng(0).normal(size=(60, 2)), axis=0)
    np.savetxt(rows, values, delimiter=",", header="a,b", comments="")
    words = ["--n-components", 2, "--max-iter", 2, "-o", tmp_path / "s.safetensors"]
    found = run("fit", "ssm", rows, *words)
    assert found.exit_code == 0, found.output
    assert "raise --max-iter" in found.stderr
    assert "max_iter" not in found.stderr
    line = fails(["fit", "rbm", rows, "--n-components", 2, "--out", tmp_path / "m.safetensors"])
    assert "--visible gaussian" in line


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (["query", "example:asia", "--given", "xray=yes"], "--evidence"),
        (["infer", "example:asia", "--given", "xray=yes"], "--evidence"),
        (["infer", "example:asia", "--output", "m.csv"], "--out"),
        (["predict", "example:asia", "c.csv", "--out", "o.csv", "--targets", "a"], "--target"),
        (["fit", "hmm", "r.csv", "--iterations", "3"], "--max-iter"),
        (["fit", "hmm", "r.csv", "--states", "3"], "--n-states"),
        (["fit", "rbm", "r.csv", "--hidden", "3"], "--n-components"),
        (["fit", "rbm", "r.csv", "--rate", "3"], "--learning-rate"),
        (["fit", "rbm", "r.csv", "--batch_size", "3"], "--batch-size"),
        (["fit", "probit", "r.csv", "--label", "a"], "--target"),
    ],
)
def test_a_removed_option_is_answered_by_the_one_that_replaces_it(
    words: list[str], known: str
) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert f"No such option {words[-2]}; this command takes {known}" in result.stderr


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (["train", "rbm", "r.csv"], "kikuchi fit KIND DATA"),
        (["ica", "fit", "r.csv"], "kikuchi fit ica DATA"),
        (["temporal", "filter", "hmm", "r.csv"], "kikuchi filter"),
    ],
)
def test_a_removed_command_is_answered_by_the_one_that_replaces_it(
    words: list[str], known: str
) -> None:
    fails(words, f"there is no command {words[0]}", known)


def test_one_kind_is_listed_with_the_whole_help_of_its_options() -> None:
    estimator = find_kind("rbm").load()
    shown = run("models", "rbm")
    assert shown.exit_code == 0, shown.stderr
    (told,) = json.loads(run("models", "rbm", "--json", "-").stdout)
    helps = {fact["option"]: fact["help"] for fact in told["options"]}
    whole = {
        f"--{f.name.replace('_', '-')}": f.metadata.get("help")
        for f in dataclasses.fields(estimator)
    }
    shared = helps.keys() & whole.keys()
    assert {"--limits", "--n-components", "--validation-fraction"} <= shared
    assert all(helps[flag] == whole[flag] for flag in shared)
    assert any("; " in helps[flag] for flag in shared)  # the part that --help leaves out
    assert "--log-z" in helps and all(f"\n{flag} " in shown.stdout for flag in helps)
    assert "options" not in json.loads(run("models", "--json", "-").stdout)[0]


def test_a_kind_that_does_not_exist_is_refused_with_a_suggestion() -> None:
    fails(["fit", "rmb", "rows.csv"], "did you mean 'rbm'?")


@pytest.mark.parametrize(
    ("kind", "name", "text", "value"),
    [
        ("factorial", "n_states", "2,3", (2, 3)),
        ("rbm", "limits", "0,255", (0.0, 255.0)),
        ("rbm", "limits", "data", "data"),
        ("ica", "noise", "0.1", 0.1),
        ("ica", "noise", "full", "full"),
        ("ica", "prior", "laplace,laplace:rate=2", ["laplace", "laplace:rate=2"]),
        ("ica", "prior", "bi-gaussian:mean=1,variance=0.1", "bi-gaussian:mean=1,variance=0.1"),
        ("ica", "center", "true", True),
        ("sbn", "hidden_layer_sizes", "4", 4),
        ("sbn", "hidden_layer_sizes", "8,24", (8, 24)),
    ],
)
def test_texts_become_the_values_of_python(kind: str, name: str, text: str, value: object) -> None:
    made = KindOptions(find_kind(kind)).make({name: text})
    found = getattr(made, name)
    assert (list(found) if isinstance(found, tuple) else found) == (
        list(value) if isinstance(value, tuple) else value
    )
