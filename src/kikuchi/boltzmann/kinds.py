"""The estimators of this family, declared for the registry of estimators."""

from __future__ import annotations

from kikuchi.training.kinds import Gives, Kind

_GROUP = "Undirected models of rows"
_GIVES: tuple[Gives, ...] = ("density", "samples", "features")
_WORKFLOW = "kikuchi.boltzmann.evaluation:MachineWorkflow"

RBM = Kind(
    name="rbm",
    estimator="kikuchi.boltzmann:RBM",
    summary="Restricted Boltzmann machine.",
    group=_GROUP,
    takes="rows",
    gives=_GIVES,
    workflow=_WORKFLOW,
    resumes=True,
)
RATE_RBM = Kind(
    name="rate-rbm",
    estimator="kikuchi.boltzmann:RateCodedRBM",
    summary="Restricted Boltzmann machine of firing rates.",
    group=_GROUP,
    takes="rows",
    gives=_GIVES,
    workflow=_WORKFLOW,
    resumes=True,
)
MACHINE = Kind(
    name="machine",
    estimator="kikuchi.boltzmann:BoltzmannMachine",
    summary="Boltzmann machine with any --architecture.",
    group=_GROUP,
    takes="rows",
    gives=_GIVES,
    workflow=_WORKFLOW,
    resumes=True,
)
KINDS = (RBM, RATE_RBM, MACHINE)
