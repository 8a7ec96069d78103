"""The estimators of this family, declared for the registry of estimators."""

from __future__ import annotations

from kikuchi.training.kinds import Kind

_GROUP = "Networks"
_WORKFLOW = "kikuchi.bayesnn.evaluation:NetworkWorkflow"

REGRESSOR = Kind(
    name="bayesnn",
    estimator="kikuchi.bayesnn:BayesianMLPRegressor",
    summary="Bayesian neural network that predicts a number.",
    group=_GROUP,
    takes="labelled rows",
    gives=("numbers",),
    workflow=_WORKFLOW,
    resumes=True,
)
CLASSIFIER = Kind(
    name="bayesnn-classes",
    estimator="kikuchi.bayesnn:BayesianMLPClassifier",
    summary="Bayesian neural network that predicts a class.",
    group=_GROUP,
    takes="labelled rows",
    gives=("classes",),
    workflow=_WORKFLOW,
    resumes=True,
)
LAPLACE = Kind(
    name="bayesnn-laplace",
    estimator="kikuchi.bayesnn:LaplaceMLPRegressor",
    summary="The same by Laplace's approximation (of numbers).",
    group=_GROUP,
    takes="labelled rows",
    gives=("numbers",),
    workflow=_WORKFLOW,
)
SAMPLED = Kind(
    name="bayesnn-nuts",
    estimator="kikuchi.bayesnn:SampledMLPRegressor",
    summary="The same with weights sampled by NUTS (of numbers).",
    group=_GROUP,
    takes="labelled rows",
    gives=("numbers",),
    workflow=_WORKFLOW,
)
KINDS = (REGRESSOR, CLASSIFIER, LAPLACE, SAMPLED)
