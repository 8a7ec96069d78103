"""Commands whose options come from estimators, under every version of typer that we allow."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import typer.main
from cli_runner import fails, run

from kikuchi.cli.estimators import EstimatorCommand
from kikuchi.cli.flag_names import option_names, with_flags
from kikuchi.cli.main import app


def _commands(command, name=""):
    if hasattr(command, "commands"):
        for word, below in command.commands.items():
            yield from _commands(below, f"{name} {word}")
    elif isinstance(command, EstimatorCommand) and getattr(command.callback, "generated", []):
        yield name.strip(), command


COMMANDS = dict(_commands(typer.main.get_command(app)))


def test_the_commands_are_found():
    assert set(WORDS) <= set(COMMANDS)


WORDS = {
    "train": ["rbm", "ROWS.csv", "--hidden", "7", "--out", "M.safetensors"],
    "ica fit": ["ROWS.csv", "--sources", "3", "--out", "M"],
    "temporal fit": ["hmm", "ROWS.csv", "--states", "3"],
}


@pytest.mark.parametrize("name", WORDS)
def test_the_function_gets_the_parameters_of_its_signature_only(name, monkeypatch):
    """Typer 0.29 refuses to hand on others."""
    command, words = COMMANDS[name], list(WORDS[name])
    got = {}
    monkeypatch.setattr(command, "callback", _recorder(command.callback, got))
    with command.make_context(name, words) as context:
        command.invoke(context)
        given = context.params
    declared = set(inspect.signature(command.callback).parameters)
    assert set(got) <= declared
    assert set(given) > set(got)  # the options of estimators stay in the context


def _recorder(callback, got):
    def record(**values):
        got.update(values)

    record.generated = callback.generated
    record.__signature__ = inspect.signature(inspect.unwrap(callback, stop=_has_signature))
    return record


def _has_signature(function):
    return hasattr(function, "__signature__")


def _context(name, words):
    command = COMMANDS[name]
    return command.make_context(name, list(words))


@pytest.mark.parametrize("name", WORDS)
def test_every_option_of_an_estimator_has_its_name_in_python(name):
    """Each field of a class that the command offers as an option is named by that option."""
    with _context(name, WORDS[name]) as context:
        names = option_names(context)
        [options] = context.command.named_options(context)
        own = {flag for p in context.command.get_params(context) for flag in p.opts}
        for word, fields in options.fields.items():
            for option, field in fields.items():
                spec = options.flags.get(option)
                assert spec is None or names[field.name] == spec.split()[0], (word, field.name)
        assert {flag for flag in names.values() if flag is not None} <= own
        assert names["random_state"] == "--seed"
        assert names["seconds"] == "--seconds"


def test_advice_names_the_option_of_the_command():
    with _context("temporal fit", WORDS["temporal fit"]) as context:
        names = option_names(context)
    text = "not converged after 3 iterations; raise max_iter"
    assert with_flags(text, names) == "not converged after 3 iterations; raise --iterations"
    with _context("train", WORDS["train"]) as context:
        names = option_names(context)
    advice = (
        "diverged; lower learning_rate or momentum (sgd), raise weight_decay, or scale the data"
    )
    told = "diverged; lower --rate or --momentum (sgd), raise --decay, or scale the data"
    assert with_flags(advice, names) == told
    assert with_flags("values of binary units; use visible=gaussian", names) == (
        "values of binary units; use --visible gaussian"
    )
    assert with_flags("the visible units and the learner", names) == (
        "the visible units and the learner"
    )
    assert with_flags("use threads=1", names) == "use threads=1 (in Python)"


def test_warnings_and_errors_of_a_fit_name_options(tmp_path):
    rows = tmp_path / "walk.csv"
    values = np.cumsum(np.random.default_rng(0).normal(size=(60, 2)), axis=0)
    np.savetxt(rows, values, delimiter=",", header="a,b", comments="")
    found = run("temporal", "fit", "ssm", rows, "--state", 2, "--iterations", 2)
    assert found.exit_code == 0, found.output
    assert "raise --iterations" in found.stderr
    assert "max_iter" not in found.stderr
    line = fails(["train", "rbm", rows, "--hidden", 2, "--out", tmp_path / "m.safetensors"])
    assert "--visible gaussian" in line


KINDS = {
    "rbm": ({"--hidden", "--visible", "--log-z"}, {"--architecture", "--target", "--transposed"}),
    "energy": ({"--features", "--transposed"}, {"--hidden", "--double", "--layers"}),
    "bayesnn": ({"--target", "--prune", "--posterior"}, {"--log-z", "--committee", "--flow"}),
    "threshold": ({"--target", "--committee", "--price"}, {"--posterior", "--flow", "--prune"}),
    "flow": ({"--flow", "--components"}, {"--target", "--log-z", "--layers"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_help_of_a_kind_has_its_options_only_under_headings(kind):
    text = run("train", kind, "--help").stdout
    shown = {word for line in text.splitlines() for word in line.replace(",", " ").split()[:3]}
    there, elsewhere = KINDS[kind]
    assert there <= shown, there - shown
    assert not elsewhere & shown
    titles = [line[:-1] for line in text.splitlines() if line[:1].isalpha() and line[-1] == ":"]
    assert titles == ["Arguments", "Model", "Learning", "Data", "Output"]
    assert "only of" not in text


def test_an_option_of_another_kind_is_refused_by_name(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n0,1\n1,0\n")
    words = ["train", "rbm", rows, "--out", tmp_path / "m.safetensors"]
    fails([*words, "--committee", 3], "rbm has no option --committee")
    fails([*words, "--target", "a"], "--target is for")


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (["query", "example:asia", "--evidence", "xray=yes"], "--given"),
        (["infer", "example:asia", "--given", "xray=yes"], "--evidence"),
        (["infer", "example:asia", "--out", "m.csv"], "--output"),
        (["predict", "example:asia", "c.csv", "--out", "o.csv", "--target", "a"], "--targets"),
        (["temporal", "fit", "hmm", "r.csv", "--max-iter", "3"], "--iterations"),
        (["train", "rbm", "r.csv", "--learning-rate", "3"], "--rate"),
        (["train", "rbm", "r.csv", "--batch_size", "3"], "--batch"),
    ],
)
def test_an_option_by_the_name_of_another_command_or_of_python_is_named(words, known):
    result = run(*words)
    assert result.exit_code == 2
    bad = words[-2]
    assert f"No such option {bad}; this command takes {known}" in result.stderr
