"""What a new user waits for: first calls in new processes with empty caches.

Each row runs in a process of its own whose cache folders are empty, and reports CPU seconds without
imports, the number of loops that Numba compiled and of programs that JAX compiled. With `--readme`,
`--notebooks` and `--guides` programs run on a terminal (`benchmarks.waits`), which may stay silent
for at most two seconds at a time.

    python -m benchmarks first_contact                            from the clone
    python -m benchmarks.first_contact --python ENV/bin/python    from a wheel in an environment
    python -m benchmarks.first_contact --readme                   silences of the README's commands
    python -m benchmarks.first_contact --notebooks                of the first cells of notebooks
    python -m benchmarks.first_contact --guides                   of the first programs of guides
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import HERE, Row
from benchmarks.waits import fresh, guide_waits, notebook_waits, readme_waits

_HEAD = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
import kikuchi as kk
rng = np.random.default_rng(0)
rows = rng.normal(size=(200, 3))
bits = (rng.random((60, 16)) < 0.4).astype(float)
"""
_TAIL = """
begin = time.process_time()
work()
taken = time.process_time() - begin
loops, programs = 0, 0
if "kikuchi.core.compiling" in sys.modules:
    from kikuchi.core.compiling import COMPILING
    loops, programs = COMPILING.loops, COMPILING.programs
print(json.dumps({"seconds": taken, "loops": loops, "programs": programs}))
"""


class Contact(NamedTuple):
    """A first call: lines that prepare it, the call, its budget of seconds, and targets in CPU
    seconds beyond the budget from a clone and from a wheel.
    """

    what: str
    prepare: str
    call: str
    clone: float
    wheel: float = 1.5
    budget: float = 0.0
    again: bool = False  # measured in a second process, which finds the caches of the first


_ASIA = 'model = kk.example("asia")'
_GRID = 'model = kk.example("grid10")'

CONTACTS = [
    Contact("query of asia, 1st", _ASIA, 'kk.query(model, "lung")', 0.1, 0.1),
    Contact(
        "query of asia, 2nd",
        f'{_ASIA}\nkk.query(model, "lung", evidence={{"xray": "yes"}})',
        'kk.query(model, "lung", evidence={"xray": "yes"})',
        0.1,
        0.1,
    ),
    Contact(
        "query of asia, 100th",
        f'{_ASIA}\nfor _ in range(99): kk.query(model, "lung", evidence={{"xray": "yes"}})',
        'kk.query(model, "lung", evidence={"xray": "yes"})',
        0.1,
        0.1,
    ),
    Contact("bp on sprinkler", 'model = kk.example("sprinkler")', 'kk.infer(model, "bp")', 1.0),
    Contact("plan of asia", _ASIA, "kk.plan(model)", 1.0),
    Contact(
        "predict 3 cases of asia",
        _ASIA,
        'kk.predict_proba(model, {"xray": ["yes", "no", None]}, ["lung"])',
        1.0,
    ),
    Contact("most probable state of asia", _ASIA, "kk.most_probable(model)", 1.0),
    Contact("jt on grid10", _GRID, 'kk.infer(model, "jt")', 15.0),
    Contact("bounds on grid10 for 5 s", _GRID, "kk.bounds(model, seconds=5)", 25.0, budget=5.0),
    Contact(
        "auto on a 30 x 30 grid for 10 s",
        "model = kk.grid(30, 30, seed=0)",
        'kk.infer(model, "auto", seconds=10)',
        40.0,
        budget=10.0,
    ),
    Contact(
        "MeanFieldICA",
        "from kikuchi.ica import MeanFieldICA as E",
        "E(n_components=2, random_state=0).fit(rows)",
        8.0,
    ),
    Contact(
        "SigmoidBeliefNetwork",
        "from kikuchi.beliefnets import SigmoidBeliefNetwork as E",
        "E(hidden_layer_sizes=(2,), max_iter=1, random_state=0).fit(bits)",
        8.0,
    ),
    Contact(
        "LinearGaussianSSM",
        "from kikuchi.temporal import LinearGaussianSSM as E",
        "E(n_components=2, max_iter=5).fit(rows)",
        8.0,
    ),
    Contact(
        "HMM",
        "from kikuchi.temporal import HMM as E",
        "E(2, max_iter=5, random_state=0).fit(rows)",
        8.0,
    ),
    Contact(
        "RBM",
        "from kikuchi.boltzmann import RBM as E",
        "E(n_components=8, max_iter=1, random_state=0).fit(bits)",
        8.0,
    ),
    Contact(
        "BayesianMLPRegressor, 2nd process",
        "from kikuchi.bayesnn import BayesianMLPRegressor as E",
        "E(hidden_layer_sizes=3, random_state=0).fit(rows, rows[:, 0])",
        2.0,
        2.0,
        again=True,
    ),
    Contact(
        "FlowMixture, 2nd process",
        "from kikuchi.flows import FlowMixture as E",
        "E(max_iter=2, random_state=0).fit(rows)",
        2.0,
        2.0,
        again=True,
    ),
    Contact(
        "ExpertICA, 2nd process",
        "from kikuchi.energy import ExpertICA as E",
        "E(random_state=0).fit(rows)",
        2.0,
        2.0,
        again=True,
    ),
    Contact(
        "EnergyModel, 2nd process",
        "from kikuchi.energy import EnergyModel as E",
        "E(max_iter=1, random_state=0).fit(rows)",
        2.0,
        2.0,
        again=True,
    ),
]


def measured(contact: Contact, python: str, clone: bool) -> dict[str, float]:
    """One first call: CPU seconds, compiled loops and programs."""
    code = f"{_HEAD}\n{contact.prepare}\ndef work():\n    {contact.call}\n{_TAIL}"
    with tempfile.TemporaryDirectory(prefix="kikuchi-contact-") as folder:
        environment = fresh(Path(folder), clone)
        for _ in range(2 if contact.again else 1):
            done = subprocess.run(
                [python, "-c", code],
                cwd=HERE.parent if clone else folder,
                env=environment,
                capture_output=True,
                text=True,
            )
            if done.returncode:
                raise SystemExit(f"{contact.what}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def rows(python: str = sys.executable, *, clone: bool = True, only: str = "") -> Iterator[Row]:
    """The rows from a clone, or from what is installed for another Python."""
    for contact in CONTACTS:
        if only not in contact.what:
            continue
        found = measured(contact, python, clone)
        target = contact.clone if clone else contact.wheel
        beyond = max(found["seconds"] - contact.budget, 0.0)
        met = beyond <= target and (clone or found["loops"] == 0)
        note = f"{found['loops']:.0f} loops, {found['programs']:.0f} programs compiled"
        what = f"first contact: {contact.what}{'' if clone else ', wheel'}"
        yield Row(what, beyond, "CPU s", target=f"<= {target:g}", met=met, note=note)


_WAITS = {
    "readme": ("the README's commands and programs", readme_waits),
    "notebooks": ("the first cells of notebooks", notebook_waits),
    "guides": ("the first programs of guides", guide_waits),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--python", help="the interpreter of an environment with the wheel")
    for name, what in _WAITS.items():
        parser.add_argument(f"--{name}", action="store_true", help=f"silences of {what[0]}")
    parser.add_argument("--only", default="", help="rows whose name contains this text")
    given = parser.parse_args()
    python, clone = given.python or sys.executable, given.python is None
    waits = [find for name, (_, find) in _WAITS.items() if getattr(given, name)]
    found = itertools.chain.from_iterable(
        find(python, clone=clone, only=given.only) for find in waits or [rows]
    )
    missed = 0
    for row in found:
        missed += row.met is False
        verdict = "yes" if row.met else "NO"
        print(f"{row.what:60} {row.ours:7.2f} {row.unit:12} {row.target:8} {verdict:3} {row.note}")
        sys.stdout.flush()
    print(f"{missed} targets missed")


if __name__ == "__main__":
    main()
