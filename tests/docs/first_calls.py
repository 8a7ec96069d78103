"""Call every method, learner, question and compiled family once; print the loops compiled by each.

A program for an environment of its own, with nothing in its cache; the last line is JSON.
"""

from __future__ import annotations

import json
import warnings

import numpy as np

import kikuchi as kk
from kikuchi.core.compiling import COMPILING
from kikuchi.core.errors import KikuchiError
from kikuchi.learning.registry import LEARNERS
from kikuchi.methods.registry import METHODS

warnings.simplefilter("ignore")
rng = np.random.default_rng(5)
states = [3, 2, 4, 2, 3, 2, 2] * 3
scopes = [(v, v + 1, (v + 4) % 21) for v in range(20)] + [(v,) for v in range(21)]
mixed = kk.FactorGraph(
    states, [(s, rng.uniform(0.3, 2.0, size=[states[v] for v in s])) for s in scopes]
)
spins = kk.grid(11, 11, seed=4)
chain = kk.grid(1, 300, seed=4)
bits = (rng.random((70, 20)) < 0.4).astype(float)
real = rng.normal(size=(150, 3))
found: dict[str, object] = {"package": kk.__file__}


def call(name: str, work: object) -> None:
    before = COMPILING.loops
    try:
        work()  # type: ignore[operator]
        found[name] = COMPILING.loops - before
    except KikuchiError as error:  # a method that needs another kind of model
        found[name] = str(error)


for method in METHODS:
    for name, graph in (("mixed", mixed), ("spins", spins), ("chain", chain)):
        observed = {0: [0.3, 0.7], 9: [0.6, 0.4]} if method == "ups-t" else None
        call(
            f"{method} on {name}",
            lambda m=method, g=graph, o=observed: kk.infer(
                g, m, evidence=o, budget=kk.Budget(seconds=2, iterations=20)
            ),
        )
small = kk.grid(5, 5, seed=1)
rows = rng.integers(0, 2, size=(40, 25))
for learner in LEARNERS:
    call(
        f"learner {learner}",
        lambda t=learner: kk.learn(small, rows, t, budget=kk.Budget(seconds=2, iterations=3)),
    )
asia = kk.example("asia")
call("query", lambda: kk.query(mixed, [2], evidence={5: 1}))
call("most probable", lambda: kk.most_probable(mixed, {5: 1}, best=3))
call("bounds", lambda: kk.bounds(spins, seconds=2))
call("certificate", lambda: kk.brackets.certify(mixed))
call("plan", lambda: kk.plan(spins).calibrate().sample(3, seed=0))


def fit(module: str, name: str, *data: object, **options: object) -> None:
    from importlib import import_module

    call(name, lambda: getattr(import_module(f"kikuchi.{module}"), name)(**options).fit(*data))


fit("ica", "MeanFieldICA", real, n_components=2, max_iter=5, random_state=0)
fit("temporal", "LinearGaussianSSM", real, n_components=2, max_iter=3)
fit("temporal", "HMM", real, n_states=3, max_iter=3, random_state=0)
fit("temporal", "FactorialHMM", real, n_states=(2, 2), max_iter=2, random_state=0)
fit("boltzmann", "RBM", bits, n_components=9, max_iter=1, random_state=0)
fit("beliefnets", "SigmoidBeliefNetwork", bits, hidden_layer_sizes=(3,), max_iter=1, random_state=0)
fit(
    "beliefnets",
    "ThresholdNetworkClassifier",
    bits,
    bits[:, 0],
    hidden_layer_sizes=2,
    C=1,
    random_state=0,
)
print(json.dumps(found))
