"""JAX programs of the package are kept on disk, those of the user are not touched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kikuchi.core import programs
from kikuchi.core.compiling import PROGRAMS_NOTICE, CompilingTime
from kikuchi.core.progress import current_phase, phase

pytest.importorskip("jax")

_RUN = """
import sys
import jax
import jax.numpy as jnp
from kikuchi.core.compiling import COMPILING
from kikuchi.core.programs import keeping, kept

own = sys.argv[1]
if own:
    jax.config.update("jax_compilation_cache_dir", own)
before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
x = jnp.arange(3.0)
jax.jit(lambda x: jnp.sin(x) + 1)(x)  # of the user, before
inside = kept(jax.jit(lambda x: jnp.cos(x) + 2))
with keeping():
    assert inside(x).shape == (3,)
jax.jit(lambda x: jnp.tan(x) + 3)(x)  # and after
after = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
assert before == after, (before, after)
print(COMPILING.programs, COMPILING.loading > 0)
"""


def _run(home: Path, own: str = "", **environment: str) -> list[str]:
    """Compile in a new process: the programs that were, and whether some were loaded."""
    inherited = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", _RUN, own],
        env={**inherited, "XDG_CACHE_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    return done.stdout.split()


def _programs(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.glob("*-cache"))


@pytest.mark.skipif(sys.platform != "linux", reason="the cache folder is named by XDG_CACHE_HOME")
def test_a_second_process_loads_what_the_first_compiled_and_nothing_else_is_kept(tmp_path):
    everything = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    assert _run(tmp_path, **everything) == ["1", "False"]
    (name,) = _programs(tmp_path / "kikuchi" / "jax")
    assert "lambda" in name
    assert _run(tmp_path, **everything) == ["0", "True"]
    assert _programs(tmp_path / "kikuchi" / "jax") == [name]


@pytest.mark.skipif(sys.platform != "linux", reason="the cache folder is named by XDG_CACHE_HOME")
def test_a_folder_that_the_user_chose_stays_in_use(tmp_path):
    assert _run(tmp_path, own=str(tmp_path / "own"))[0] == "1"
    assert not (tmp_path / "kikuchi" / "jax").exists()


def test_every_public_method_of_an_estimator_keeps_its_programs():
    from kikuchi.bayesnn import BayesianMLPRegressor
    from kikuchi.flows import FlowMixture

    for method in (BayesianMLPRegressor.fit, BayesianMLPRegressor.predict, FlowMixture.sample):
        assert method.__wrapped__.__code__.co_filename != programs.__file__
        assert method.__code__.co_filename == programs.__file__


@pytest.fixture
def taken(monkeypatch):
    found = CompilingTime()
    monkeypatch.setattr(programs, "COMPILING", found)
    monkeypatch.setattr(programs, "_users", 1)
    monkeypatch.setattr(programs, "SAID_AFTER", 0.05)
    return found


def test_a_long_compilation_is_announced_while_it_lasts(taken):
    told = []
    taken.tell = told.append
    watch = programs._ProgramListener()
    watch.begins_or_hit(programs._BEGINS)
    watch.ends(programs._ENDS, 0.01)
    time.sleep(0.1)
    assert told == [] and taken.seconds == 0.01 and taken.programs == 1
    watch.begins_or_hit(programs._BEGINS)
    time.sleep(0.2)
    assert told == [PROGRAMS_NOTICE]
    watch.ends(programs._ENDS, 0.2)
    assert taken.compiled == pytest.approx(0.21)


def test_a_program_from_disk_is_loaded_not_compiled(taken):
    watch = programs._ProgramListener()
    watch.begins_or_hit(programs._BEGINS)
    watch.begins_or_hit(programs._HIT)
    watch.ends(programs._ENDS, 0.02)
    assert (taken.compiled, taken.loading, taken.programs) == (0.0, 0.02, 0)


def test_programs_of_the_user_are_neither_counted_nor_announced(taken, monkeypatch):
    monkeypatch.setattr(programs, "_users", 0)
    watch = programs._ProgramListener()
    watch.begins_or_hit(programs._BEGINS)
    watch.ends(programs._ENDS, 5.0)
    assert taken.seconds == 0.0 and not taken.told


def test_the_progress_line_names_the_compilation_of_a_program() -> None:
    """The phase was that of the run while JAX compiled for seconds."""
    import jax
    from jax import monitoring

    seen: list[str] = []

    def listen(event: str, **_: object) -> None:
        if event == programs._BEGINS:
            seen.append(current_phase())

    watching = programs.kept(lambda f, x: f(x))
    watching(lambda x: x, 0)  # its own listener stands before ours
    monitoring.register_event_listener(listen)
    try:
        with phase("fitting"):
            watching(jax.jit(lambda x: x * 3.25 + 1.125), 2.0)
            assert "compiling (once)" in seen and current_phase() == "fitting"
    finally:
        monitoring.unregister_event_listener(listen)


def test_a_compilation_that_fails_does_not_stay_in_the_progress_line() -> None:
    with programs.keeping(), phase("fitting"):
        programs.COMPILING.in_program = True  # begun, and no word of its end
        assert current_phase() == "compiling (once)"
    with phase("fitting"):
        assert current_phase() == "fitting"
