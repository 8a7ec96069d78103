"""The estimators of this family, declared for the registry of estimators."""

from __future__ import annotations

from kikuchi.training.kinds import Kind

_GROUP = "Networks"
_WORKFLOW = "kikuchi.beliefnets.evaluation:BeliefWorkflow"

SIGMOID = Kind(
    name="sbn",
    estimator="kikuchi.beliefnets:SigmoidBeliefNetwork",
    summary="Sigmoid belief network.",
    group=_GROUP,
    takes="rows",
    gives=("density", "samples", "features"),
    workflow=_WORKFLOW,
    resumes=True,
)
NOISY_OR = Kind(
    name="noisy-or",
    estimator="kikuchi.beliefnets:NoisyOrNetwork",
    summary="Noisy-or network of causes and findings.",
    group=_GROUP,
    takes="rows",
    gives=("density", "samples", "features"),
    workflow=_WORKFLOW,
    resumes=True,
)
THRESHOLD = Kind(
    name="threshold",
    estimator="kikuchi.beliefnets:ThresholdNetworkClassifier",
    summary="Classifier of hard threshold units.",
    group=_GROUP,
    takes="labelled rows",
    gives=("classes",),
    workflow="kikuchi.beliefnets.evaluation:ThresholdWorkflow",
    resumes=True,
)
KINDS = (SIGMOID, NOISY_OR, THRESHOLD)
