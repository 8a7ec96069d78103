"""The estimators of this family, declared for the registry of estimators."""

from __future__ import annotations

from kikuchi.training.kinds import Kind

_GROUP = "Flows"
_WORKFLOW = "kikuchi.flows.evaluation:FlowWorkflow"

FLOW = Kind(
    name="flow",
    estimator="kikuchi.flows:LatentMixtureFlow",
    summary="One normalising flow to a Gaussian mixture.",
    group=_GROUP,
    takes="rows",
    gives=("density", "samples", "features", "classes"),
    workflow=_WORKFLOW,
    resumes=True,
)
MIXTURE = Kind(
    name="flow-mixture",
    estimator="kikuchi.flows:FlowMixture",
    summary="Mixture of normalising flows.",
    group=_GROUP,
    takes="rows",
    gives=("density", "samples", "features", "classes"),
    workflow=_WORKFLOW,
    resumes=True,
)
CLASSIFIER = Kind(
    name="flow-classes",
    estimator="kikuchi.flows:FlowClassifier",
    summary="Normalising flows of each class.",
    group=_GROUP,
    takes="labelled rows",
    gives=("classes",),
    workflow=_WORKFLOW,
    resumes=True,
)
TRANSPORT = Kind(
    name="transport",
    estimator="kikuchi.flows:TransportGenerator",
    summary="Generator of rows, learnt by optimal transport.",
    group=_GROUP,
    takes="rows",
    gives=("samples",),
    resumes=True,
)
CHAIN = Kind(
    name="flow-hmm",
    estimator="kikuchi.flows:FlowHMM",
    summary="Hidden Markov model with flows as emissions.",
    group="Sequences",
    takes="sequences",
    gives=("density", "samples", "states", "forecasts"),
    workflow="kikuchi.temporal.workflow:ChainWorkflow",
)
KINDS = (FLOW, MIXTURE, CLASSIFIER, TRANSPORT, CHAIN)
