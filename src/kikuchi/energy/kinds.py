"""The estimators of this family, declared for the registry of estimators."""

from __future__ import annotations

from kikuchi.training.kinds import Gives, Kind

_GROUP = "Undirected models of rows"
_GIVES: tuple[Gives, ...] = ("density", "samples", "features")
_WORKFLOW = "kikuchi.energy.evaluation:EnergyWorkflow"

EXPERTS = Kind(
    name="energy",
    estimator="kikuchi.energy:ExpertICA",
    summary="Product of experts on linear features.",
    group=_GROUP,
    takes="rows",
    gives=_GIVES,
    workflow=_WORKFLOW,
    resumes=True,
)
DENSITY = Kind(
    name="energy-model",
    estimator="kikuchi.energy:EnergyModel",
    summary="Density exp(-E(x)) / Z with an energy chosen for the data.",
    group=_GROUP,
    takes="rows",
    gives=_GIVES,
    workflow=_WORKFLOW,
    resumes=True,
)
KINDS = (EXPERTS, DENSITY)
