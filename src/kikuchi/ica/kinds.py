"""The estimators of this family, declared for the registry of estimators."""

from __future__ import annotations

from kikuchi.training.kinds import Kind

_GROUP = "Sources of recordings"

MEAN_FIELD = Kind(
    name="ica",
    estimator="kikuchi.ica:MeanFieldICA",
    summary="Independent sources with noise, by mean field EM.",
    group=_GROUP,
    takes="recordings",
    gives=("density", "samples", "sources"),
    workflow="kikuchi.ica.workflow:MeanFieldWorkflow",
)
BAYESIAN = Kind(
    name="bayesian-ica",
    estimator="kikuchi.ica:BayesianICA",
    summary="Independent sources, all parameters with a posterior.",
    group=_GROUP,
    takes="recordings",
    gives=("density", "samples", "sources"),
    workflow="kikuchi.ica.workflow:SourceWorkflow",
)
INFOMAX = Kind(
    name="infomax",
    estimator="kikuchi.ica:InfomaxICA",
    summary="Independent sources without noise.",
    group=_GROUP,
    takes="recordings",
    gives=("density", "sources"),
    workflow="kikuchi.ica.workflow:InfomaxWorkflow",
)
KINDS = (MEAN_FIELD, BAYESIAN, INFOMAX)
