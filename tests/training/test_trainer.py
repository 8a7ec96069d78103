"""The trainer on NumPy models: averages, early stopping, Ctrl-C, files of checkpoints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.progress import silent
from kikuchi.core.run import Run
from kikuchi.core.trace import Trace
from kikuchi.training.checkpoint import Checkpoint, load, save
from kikuchi.training.model import PytreeModel, load_model
from kikuchi.training.rule import GradientEstimate, Rule
from kikuchi.training.trainer import Validation, train
from kikuchi.training.updates import TrainerState

ROWS = np.random.default_rng(0).normal(2.0, 1.0, size=(60, 1))


@dataclass(frozen=True)
class MeanRule(Rule[Any]):
    """Gradient of -(x - mean)^2 / 2, with noise of its own; its objective is that mean."""

    name: ClassVar[str] = "mean"
    summary: ClassVar[str] = "a mean"

    noise: float = 0.0

    def gradient(self, model, batch, rows, state, rng) -> GradientEstimate:
        """The mean difference."""
        difference = batch - model.parameters["mean"]
        moved = difference.mean(axis=0) + self.noise * rng.normal(size=1)
        return GradientEstimate({"mean": moved}, -0.5 * float(np.mean(difference**2)))

    def score(self, model, rows) -> float:
        """Minus the squared error."""
        return -float(np.mean((rows - model.parameters["mean"]) ** 2))


def start() -> PytreeModel:
    return PytreeModel({"mean": np.zeros(1)})


def mean(training) -> float:
    return float(training.model.parameters["mean"][0])


def test_tol_is_a_stopping_criterion_and_epochs_are_none() -> None:
    done = train(start(), ROWS, MeanRule(), epochs=5, batch_size=60, seed=0)
    assert done.stopped == "epochs" and not done.converged
    options = {"epochs": 500, "batch_size": 60, "seed": 0, "tol": 1e-3}
    done = train(start(), ROWS, MeanRule(), optimiser="sgd:learning_rate=0.3", **options)
    assert done.stopped == "converged" and done.converged and done.epochs < 50
    assert mean(done) == pytest.approx(ROWS.mean(), abs=2e-3)


def test_averages_vary_less_than_last_parameters() -> None:
    shared = {"optimiser": "sgd:learning_rate=0.5", "epochs": 40, "batch_size": 10}
    last = [mean(train(start(), ROWS, MeanRule(1.0), seed=s, **shared)) for s in range(20)]
    tail = [
        mean(train(start(), ROWS, MeanRule(1.0), seed=s, average=0.5, **shared)) for s in range(20)
    ]
    assert np.std(tail) < 0.3 * np.std(last)
    assert np.mean(tail) == pytest.approx(ROWS.mean(), abs=0.1)


def test_the_average_is_the_mean_over_the_last_updates() -> None:
    seen = []

    @dataclass(frozen=True)
    class Recorded(MeanRule):
        def project(self, model, rate) -> None:
            seen.append(float(model.parameters["mean"][0]))

    done = train(start(), ROWS, Recorded(), epochs=4, batch_size=20, seed=0, average=0.5)
    assert mean(done) == pytest.approx(np.mean(seen[6:]), abs=1e-12)


def test_early_stopping_answers_with_the_best_epoch() -> None:
    target = np.full((5, 1), 1.0)  # the training data pull past it
    options = {"optimiser": "sgd:learning_rate=0.01", "batch_size": 10, "seed": 0}
    done = train(start(), ROWS, MeanRule(), epochs=300, validation=Validation(target, 4), **options)
    assert done.stopped == "validation" and done.converged
    best = int(np.argmax(done.scores))
    assert len(done.scores) == best + 5 == done.epochs < 100
    assert mean(done) == mean(train(start(), ROWS, MeanRule(), epochs=best + 1, **options))
    other = train(
        start(),
        ROWS,
        MeanRule(),
        epochs=20,
        validation=Validation(target, score=lambda model, _: float(model.parameters["mean"][0])),
        **options,
    )
    assert other.stopped == "epochs" and not other.converged and len(other.scores) == 20


def test_gains_below_the_least_gain_do_not_prolong_a_training() -> None:
    """A score that rises by 1 in each of ten epochs, then by 0.01."""
    heights = iter(np.concatenate([np.arange(10.0), 9.0 + 0.01 * np.arange(1, 100)]))
    validation = Validation(ROWS, 4, least_gain=0.1, score=lambda *_: next(heights))
    done = train(start(), ROWS, MeanRule(), epochs=100, seed=0, validation=validation)
    assert done.stopped == "validation" and done.epochs == 14
    assert done.scores[-1] == max(done.scores)  # the answer is still that of the best epoch


def test_rules_without_a_score_need_one() -> None:
    from kikuchi.boltzmann.machine import Machine

    rows = np.eye(3)
    with pytest.raises(MethodError, match="learner cd has no score"):
        train(Machine.random(3, 2), rows, "cd", validation=Validation(rows))
    judged = Validation(rows)
    done = train(Machine.random(3, 2), rows, "pseudo", validation=judged, epochs=2, seed=0)
    assert len(done.scores) == 2
    with pytest.raises(MethodError, match="average must be in"):
        train(start(), ROWS, MeanRule(), average=2.0)


def test_state_of_a_training_goes_on_in_the_next() -> None:
    options = {"optimiser": "sgd:learning_rate=0.01,momentum=0.9", "batch_size": 60, "seed": 0}
    first = train(start(), ROWS, MeanRule(), epochs=3, **options)
    assert isinstance(first.state, TrainerState)
    rest = train(first.model, ROWS, MeanRule(), epochs=2, state=first.state, **options)
    assert mean(rest) == pytest.approx(mean(train(start(), ROWS, MeanRule(), epochs=5, **options)))


# ---------------------------------------------------------------------- Ctrl-C

INTERRUPTED = """
import sys, time
import numpy as np
from dataclasses import dataclass
from typing import ClassVar
from kikuchi.training.model import PytreeModel
from kikuchi.training.rule import GradientEstimate, Rule
from kikuchi.training.trainer import train

@dataclass(frozen=True)
class Slow(Rule):
    name: ClassVar[str] = "slow"
    def gradient(self, model, batch, rows, state, rng):
        if "half" in state and len(sys.argv) > 2:
            print("ready", flush=True)
        state["half"] = np.ones(1)  # an interrupt now would leave a state from within an update
        time.sleep(0.02)
        state["half"] = np.zeros(1)
        state["count"] = state.get("count", np.zeros(1)) + 1
        return GradientEstimate({"mean": rng.normal(size=2)})

done = train(PytreeModel({"mean": np.zeros(2)}), np.ones((40, 1)), Slow(), epochs=3, batch_size=2,
             seed=1, checkpoint=sys.argv[1])
print(done.stopped, done.state.rule["half"], done.state.rule["count"],
      done.model.parameters["mean"].tolist())
"""


def test_ctrl_c_waits_for_the_update_and_the_rest_ends_with_the_same_numbers(
    tmp_path: Path,
) -> None:
    def run(*words: str) -> subprocess.Popen:
        command = [sys.executable, "-c", INTERRUPTED, *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))

    whole, _ = run(str(tmp_path / "whole")).communicate(timeout=100)
    child = run(str(tmp_path / "cut"), "tell")
    for _ in range(12):
        assert child.stdout.readline().strip() == "ready"
    time.sleep(0.01)  # into the update
    child.send_signal(signal.SIGINT)
    *_, last = child.communicate(timeout=100)[0].strip().splitlines()
    assert child.returncode == 0 and last.startswith("interrupted [0.]")
    arrays, _ = load(tmp_path / "cut", ("kikuchi checkpoint",))
    assert arrays["updates/chains/half"][0] == 0
    assert arrays["updates/chains/count"][0] == arrays["at/update"]
    rest, _ = run(str(tmp_path / "cut")).communicate(timeout=100)
    assert rest == whole and rest.startswith("epochs")


def test_ctrl_c_after_the_last_update_is_not_lost(tmp_path: Path) -> None:
    def score(model, rows) -> float:
        calls.append(None)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return float(len(calls))

    calls: list[None] = []
    options = {"epochs": 3, "seed": 0, "validation": Validation(ROWS[:9], score=score)}
    with pytest.raises(KeyboardInterrupt):
        train(start(), ROWS, MeanRule(), checkpoint=tmp_path / "state", **options)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    done = train(start(), ROWS, MeanRule(), checkpoint=tmp_path / "state", **options)
    assert done.stopped == "epochs" and len(calls) == 3


def test_training_in_another_thread_leaves_signals_alone() -> None:
    answers = []
    work = threading.Thread(
        target=lambda: answers.append(train(start(), ROWS, MeanRule(), epochs=2, seed=0))
    )
    work.start()
    work.join()
    assert answers[0].stopped == "epochs"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# ---------------------------------------------------------------------- files


def test_files_of_models_and_checkpoints(tmp_path: Path) -> None:
    file = tmp_path / "state.safetensors"
    done = train(start(), ROWS, MeanRule(), epochs=2, seed=0, checkpoint=file)
    model, _ = load_model(file, PytreeModel)
    assert np.array_equal(model.parameters["mean"], done.model.parameters["mean"])
    save(tmp_path / "other", "kikuchi tea", {"a": np.zeros(1)}, {})
    with pytest.raises(DataError, match="found kikuchi tea, expected kikuchi model"):
        load_model(tmp_path / "other", PytreeModel)
    checkpoint = Checkpoint(file)
    checkpoint.identity = {"data": "else"}
    with pytest.raises(DataError, match="its data is"):
        checkpoint.load()
    file.unlink()
    assert checkpoint.load() is None


# ---------------------------------------------------------------------- states that are whole


def test_an_epoch_that_used_up_the_time_is_kept(tmp_path: Path) -> None:
    """With one update per epoch, longer than the time, every training must go one epoch on."""

    @dataclass(frozen=True)
    class Slow(MeanRule):
        def gradient(self, *arguments) -> GradientEstimate:
            time.sleep(0.02)
            return super().gradient(*arguments)

    options = {"epochs": 3, "batch_size": 60, "seed": 0, "checkpoint": tmp_path / "state"}
    ends = []
    for _ in range(4):
        run = Run(Budget(seconds=0.01).start(), silent, Trace())
        ends.append(train(start(), ROWS, Slow(), run=run, **options))
    assert [end.epochs for end in ends] == [1, 2, 3, 3]
    whole = train(start(), ROWS, Slow(), **(options | {"checkpoint": None}))
    assert mean(ends[-1]) == mean(whole) and ends[-1].trace.objective == whole.trace.objective


@pytest.mark.parametrize("update", range(1, 7))
def test_an_interrupt_in_any_update_leaves_a_state_to_go_on_from(
    update: int, tmp_path: Path
) -> None:
    """Also in the last one of an epoch, after which the epoch has yet to be closed."""
    calls: list[None] = []

    @dataclass(frozen=True)
    class Interrupting(MeanRule):
        def gradient(self, *arguments) -> GradientEstimate:
            calls.append(None)
            if len(calls) == update:
                signal.raise_signal(signal.SIGINT)
            return super().gradient(*arguments)

    options = {"epochs": 3, "batch_size": 20, "seed": 0}
    whole = train(start(), ROWS, MeanRule(1.0), **options)
    options["checkpoint"] = tmp_path / "state"
    for expected in ("interrupted", "epochs"):
        done = train(start(), ROWS, Interrupting(1.0), **options)
        assert done.stopped == expected
    assert len(calls) == 9
    assert mean(done) == mean(whole) and done.trace.objective == whole.trace.objective


@pytest.mark.parametrize("update", [1, 2, 3, 4])
def test_time_that_ends_in_any_update_leaves_a_state_to_go_on_from(
    update: int, tmp_path: Path
) -> None:
    calls: list[None] = []

    @dataclass(frozen=True)
    class Long(MeanRule):
        def gradient_within(self, *arguments) -> GradientEstimate | None:
            calls.append(None)
            if len(calls) == update:
                while not arguments[-1].expired:
                    time.sleep(0.01)
                return None
            return super().gradient_within(*arguments)

    options = {"epochs": 3, "batch_size": 20, "seed": 0}
    whole = train(start(), ROWS, MeanRule(1.0), **options)
    options["checkpoint"] = tmp_path / "state"
    run = Run(Budget(seconds=0.3).start(), silent, Trace())
    assert train(start(), ROWS, Long(1.0), run=run, **options).stopped == "seconds"
    done = train(start(), ROWS, Long(1.0), **options)
    assert len(calls) == 10
    assert mean(done) == mean(whole) and done.trace.objective == whole.trace.objective


def test_an_interrupt_within_the_score_leaves_no_half_epoch(tmp_path: Path) -> None:
    def score(model, rows) -> float:
        calls.append(None)
        if len(calls) == 3 and interrupted:
            raise KeyboardInterrupt
        return -float(np.mean((rows - model.parameters["mean"]) ** 2))

    validation = Validation(ROWS[:9], score=score)
    options = {"epochs": 6, "batch_size": 20, "seed": 0, "validation": validation}
    calls: list[None] = []
    interrupted = True
    file = tmp_path / "state"
    cut = train(start(), ROWS, MeanRule(1.0), checkpoint=file, **options)
    assert cut.stopped == "interrupted" and "interrupted" in cut.warnings[0]
    interrupted = False
    rest = train(start(), ROWS, MeanRule(1.0), checkpoint=file, **options)
    whole = train(start(), ROWS, MeanRule(1.0), **options)
    assert rest.scores == whole.scores and mean(rest) == mean(whole)


def test_a_checkpoint_knows_the_score_and_the_seed_of_its_training(tmp_path: Path) -> None:
    from kikuchi.boltzmann import RBM

    options = {"epochs": 2, "seed": 0, "checkpoint": tmp_path / "state"}
    train(start(), ROWS, MeanRule(), validation=Validation(ROWS[:9]), **options)
    other = Validation(ROWS[:9], score=lambda model, rows: 0.0)
    with pytest.raises(DataError, match="its validation is"):
        train(start(), ROWS, MeanRule(), validation=other, **options)
    rows, file = np.eye(3), tmp_path / "seeds"
    RBM(2, max_iter=1, random_state=np.int64(3), checkpoint=file).fit(rows)
    RBM(2, max_iter=1, random_state=3, checkpoint=file).fit(rows)
    with pytest.raises(DataError, match="its random_state is"):
        RBM(2, max_iter=1, random_state=np.int64(4), checkpoint=file).fit(rows)


def test_no_rows_and_a_negative_tol_are_refused() -> None:
    with pytest.raises(DataError, match="at least one case"):
        train(start(), np.zeros((0, 1)), MeanRule())
    with pytest.raises(MethodError, match="tol must be at least 0"):
        train(start(), ROWS, MeanRule(), tol=-1.0)
    with pytest.raises(MethodError, match="patience must be an integer of at least 1"):
        Validation(ROWS, patience=0)


def test_what_divergence_spoilt_is_not_carried_on() -> None:
    @dataclass(frozen=True)
    class Broken(MeanRule):
        def gradient(self, *arguments) -> GradientEstimate:
            return GradientEstimate({"mean": np.full(1, np.nan)}, 0.0)

    options = {"optimiser": "sgd:learning_rate=0.1,momentum=0.9", "epochs": 3, "seed": 0}
    done = train(start(), ROWS, Broken(), **options)
    assert done.stopped == "diverged" and mean(done) == 0.0
    again = train(done.model, ROWS, MeanRule(), state=done.state, **options)
    assert again.stopped == "epochs" and mean(again) > 0.1
