"""The trainer: epochs, time, divergence, and checkpoints that survive a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from kikuchi.boltzmann.machine import Machine
from kikuchi.boltzmann.units import GaussianUnits
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, MethodError
from kikuchi.core.progress import silent
from kikuchi.core.run import Run
from kikuchi.core.trace import Trace
from kikuchi.training.checkpoint import Checkpoint
from kikuchi.training.model import load_model
from kikuchi.training.trainer import train

ROWS = (np.random.default_rng(0).random((230, 12)) < 0.3).astype(np.float64)
ROWS[:, 6:] = ROWS[:, :6]  # something to learn


def machine_of(architecture: str = "brf", dtype=np.float64) -> Machine:
    return Machine.random(12, 5, architecture=architecture, dtype=dtype, random_state=1)


def run_of(**budget) -> Run:
    return Run(Budget(**budget).start(), silent, Trace())


def same(a: Machine, b: Machine) -> bool:
    return all(np.array_equal(x, b.parameters[n]) for n, x in a.parameters.items())


# ---------------------------------------------------------------------- training


def test_exact_training_climbs_and_converges() -> None:
    done = train(
        machine_of(),
        ROWS,
        "exact",
        optimiser="sgd:learning_rate=0.5,momentum=0.9,weight_decay=0.01",
        epochs=400,
        batch_size=1000,
        seed=0,
        tol=2e-3,
    )
    assert done.converged and done.stopped == "converged" and done.epochs < 400
    assert done.trace.residual[-1] <= 2e-3 < done.trace.residual[0]
    objective = np.array(done.trace.objective)
    independent = np.sum(
        [p * np.log(p) + (1 - p) * np.log(1 - p) for p in ROWS.mean(axis=0)]
    )  # what a machine without weights reaches
    assert objective[-1] > independent + 1.0
    assert done.trace.objective_name == "log-likelihood per row"


def test_the_machine_given_stays_as_it_is_and_seeds_repeat() -> None:
    machine = machine_of()
    before = machine.copy()
    first = train(machine, ROWS, "pcd", epochs=3, batch_size=50, seed=7)
    again = train(machine, ROWS, "pcd", epochs=3, batch_size=50, seed=7)
    other = train(machine, ROWS, "pcd", epochs=3, batch_size=50, seed=8)
    assert same(machine, before)
    assert same(first.model, again.model) and not same(first.model, other.model)
    assert first.epochs == 3 and first.stopped == "epochs" and not first.warnings
    assert first.trace.iterations == [1, 2, 3]


@pytest.mark.parametrize("text", ["cd", "pcd", "brief-gibbs", "pseudo", "exact"])
def test_sparse_boolean_and_integer_rows_are_the_same_data(text: str) -> None:
    machine = machine_of()
    kinds = [ROWS, ROWS.astype(bool), ROWS.astype(np.int8), scipy.sparse.csc_matrix(ROWS)]
    found = [train(machine, rows, text, epochs=2, batch_size=64, seed=3).model for rows in kinds]
    assert all(same(found[0], other) for other in found[1:])


def test_memory_layout_of_the_machine_does_not_matter() -> None:
    machine = machine_of("fcrf")
    turned = Machine(
        np.asfortranarray(machine.weights),
        machine.visible_bias,
        machine.hidden_bias,
        np.asfortranarray(machine.visible_weights),
        machine.hidden_weights,
    )
    a, b = (train(m, ROWS, "cd", epochs=2, seed=0).model for m in (machine, turned))
    assert same(a, b)


def test_time_iterations_and_interrupts_end_training_early() -> None:
    done = train(machine_of(), ROWS, "cd", epochs=10**6, seed=0, run=run_of(seconds=0.3))
    assert done.stopped == "seconds" and 0 < done.epochs < 10**6
    assert "seconds" in done.warnings[0]
    done = train(machine_of(), ROWS, "cd", epochs=10, seed=0, run=run_of(iterations=4))
    assert done.stopped == "iterations" and done.epochs == 4

    class Impatient(Run):
        def record(self, step, limit) -> None:
            super().record(step, limit)
            if step.iterations == 3:
                raise KeyboardInterrupt

    run = Impatient(Budget().start(), silent, Trace())
    done = train(machine_of(), ROWS, "cd", epochs=10, seed=0, run=run)
    assert done.stopped == "interrupted" and done.epochs == 3
    assert same(done.model, train(machine_of(), ROWS, "cd", epochs=3, seed=0).model)


def test_time_ends_within_an_epoch_too() -> None:
    rows = np.tile(ROWS, (400, 1))
    done = train(machine_of(), rows, "cd:k=50", epochs=2, batch_size=10, run=run_of(seconds=0.2))
    assert done.stopped == "seconds" and done.epochs == 0
    assert not same(done.model, machine_of())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_divergence_stops_at_the_last_good_state(dtype) -> None:
    machine = Machine.random(12, 5, scale=0.1, visible=GaussianUnits(), dtype=dtype, random_state=0)
    rows = 3.0 * np.random.default_rng(0).normal(size=(200, 12))
    with np.errstate(all="ignore"):
        done = train(machine, rows, "cd", optimiser="sgd:learning_rate=2", epochs=50, seed=0)
    assert done.stopped == "diverged" and not done.converged
    assert "lower learning_rate" in done.warnings[0]
    assert all(np.isfinite(a).all() for a in done.model.parameters.values())
    assert np.abs(done.model.weights).max() < Machine.weight_limit / 10
    good = train(machine, rows, "cd", optimiser="sgd:learning_rate=0.001", epochs=20, seed=0)
    assert good.stopped == "epochs"


def test_bad_data_and_options_are_refused_in_one_line() -> None:
    machine = machine_of()
    bad = ROWS.copy()
    bad[3, 4] = np.nan
    cases = [
        (bad, "row 3, column 4 is nan"),
        (ROWS * 2, r"outside \[0, 1\] of binary units"),
        (ROWS[:, :5], "5 columns; the machine has 12"),
        (ROWS[:0], "at least one row"),
        (ROWS.astype(str), "give numbers"),
        (scipy.sparse.csr_matrix(-ROWS), "is -1, outside"),
    ]
    for rows, message in cases:
        with pytest.raises(DataError, match=message) as caught:
            train(machine, rows, "cd")
        assert "\n" not in str(caught.value)
    sparse = scipy.sparse.csr_matrix(bad)
    with pytest.raises(DataError, match="row 3, column 4 is nan"):
        train(machine, sparse, "cd")
    with pytest.raises(MethodError, match="epochs"):
        train(machine, ROWS, "cd", epochs=0)
    with pytest.raises(MethodError, match="threads"):
        train(machine, ROWS, "cd", threads=0)
    with pytest.raises(MethodError, match="no learner 'pdc'"):
        train(machine, ROWS, "pdc")


# ---------------------------------------------------------------------- checkpoints

OPTIMISER = "sgd:learning_rate=0.1,momentum=0.8,weight_decay=0.001"


@pytest.mark.parametrize(
    "rule, optimiser",
    [
        ("pcd:chains=17", OPTIMISER),
        ("brief-gibbs", "adam:learning_rate=0.01,schedule=cosine"),
        ("cd:k=2", OPTIMISER + ",schedule=linear"),
        ("exact", "sgd"),
    ],
)
def test_a_training_cut_in_two_ends_as_one(tmp_path: Path, rule: str, optimiser: str) -> None:
    """Stopped by iterations after 3 epochs, resumed with the checkpoint: the same bits."""
    options = {"optimiser": optimiser, "epochs": 6, "batch_size": 40}
    whole = train(machine_of("poe"), ROWS, rule, seed=5, **options)
    file = tmp_path / "state.safetensors"
    first = train(
        machine_of("poe"), ROWS, rule, seed=5, checkpoint=file, run=run_of(iterations=3), **options
    )
    assert first.epochs == 3 and file.exists()
    rest = train(machine_of("poe"), ROWS, rule, seed=99, checkpoint=file, **options)
    assert rest.epochs == 6 and same(rest.model, whole.model)
    assert rest.trace.objective == whole.trace.objective
    assert rest.trace.iterations == whole.trace.iterations
    third = train(machine_of("poe"), ROWS, rule, checkpoint=file, **options)
    assert third.stopped == "epochs" and same(third.model, whole.model)
    assert same(load_model(file, Machine)[0], whole.model)


def test_more_epochs_go_on_from_a_finished_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "state.safetensors"
    train(machine_of(), ROWS, "pcd", epochs=2, seed=1, checkpoint=file)
    more = train(machine_of(), ROWS, "pcd", epochs=5, seed=1, checkpoint=file)
    assert same(more.model, train(machine_of(), ROWS, "pcd", epochs=5, seed=1).model)


CHILD = """
import sys, numpy as np
from kikuchi.training.checkpoint import Checkpoint
from kikuchi.boltzmann.machine import Machine
from kikuchi.training.trainer import train
rows = (np.random.default_rng(0).random((2000, 30)) < 0.3).astype(np.float32)
machine = Machine.random(30, 20, architecture="{architecture}", dtype=np.float32, random_state=2)
done = train(
    machine, rows, "{rule}", optimiser="{optimiser}", epochs={epochs}, batch_size=10, seed=3,
    checkpoint=Checkpoint(sys.argv[1], every=0.05) if len(sys.argv) > 1 else None,
)
np.savez(sys.stdout.buffer, objective=done.trace.objective, **done.model.parameters)
"""


def test_a_killed_training_resumes_bit_for_bit(tmp_path: Path) -> None:
    """kill -9 of a real process, twice; what it has written is whole each time."""
    code = CHILD.format(architecture="fcrf", rule="pcd:k=1", optimiser=OPTIMISER, epochs=10)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    whole = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, env=environment
    ).stdout
    file = tmp_path / "state.safetensors"
    command = [sys.executable, "-c", code, str(file)]
    seen = None
    for _ in range(2):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        limit = time.monotonic() + 60
        while time.monotonic() < limit and child.poll() is None:
            if file.exists() and file.stat().st_mtime_ns != seen:
                break
            time.sleep(0.002)
        seen = file.stat().st_mtime_ns
        time.sleep(0.03)  # into the next batches, or the next save
        assert child.poll() is None, "the child ended before it could be killed"
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
        load_model(file, Machine)
    resumed = subprocess.run(command, check=True, capture_output=True, env=environment).stdout
    assert resumed == whole


def test_checkpoints_of_another_training_are_refused_and_stand(tmp_path: Path) -> None:
    file = tmp_path / "state.safetensors"
    options = {"optimiser": OPTIMISER, "epochs": 2, "batch_size": 40}
    about = {"random_state": "0"}
    train(machine_of(), ROWS, "pcd", checkpoint=Checkpoint(file, about=about), seed=0, **options)
    kept = file.read_bytes()
    other = ROWS.copy()
    other[0, 0] = 1 - other[0, 0]
    cases = [
        (machine_of(), other, "pcd", {}, "its data is"),
        (machine_of(), ROWS, "cd", {}, "its learner is"),
        (machine_of("poe"), ROWS, "pcd", {}, "its machine is"),
        (machine_of(dtype=np.float32), ROWS, "pcd", {}, "its machine is"),
        (machine_of(), ROWS, "pcd", {"batch_size": 41}, "its batch size is 40, here it is 41"),
        (machine_of(), ROWS, "pcd", {"optimiser": "sgd"}, "its optimiser is"),
    ]
    for machine, rows, rule, changed, message in cases:
        with pytest.raises(DataError, match=message):
            checkpoint = Checkpoint(file, about=about)
            train(machine, rows, rule, checkpoint=checkpoint, seed=0, **(options | changed))
        assert file.read_bytes() == kept
    with pytest.raises(DataError, match="its random_state is"):
        checkpoint = Checkpoint(file, about={"random_state": "1"})
        train(machine_of(), ROWS, "pcd", checkpoint=checkpoint, **options)
    for count in (0, 5, 100, len(kept) // 2, len(kept) - 1):
        file.write_bytes(kept[:count])
        with pytest.raises(DataError, match="cannot be read") as caught:
            train(machine_of(), ROWS, "pcd", checkpoint=Checkpoint(file, about=about), **options)
        assert "\n" not in str(caught.value)
        assert file.read_bytes() == kept[:count]
