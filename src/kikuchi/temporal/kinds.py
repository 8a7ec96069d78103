"""The estimators of this family, declared for the registry of estimators."""

from __future__ import annotations

from kikuchi.training.kinds import Gives, Kind

_GROUP = "Sequences"
_GIVES: tuple[Gives, ...] = ("density", "samples", "states", "forecasts")

SSM = Kind(
    name="ssm",
    estimator="kikuchi.temporal:LinearGaussianSSM",
    summary="Linear Gaussian state space (Kalman filter).",
    group=_GROUP,
    takes="sequences with inputs",
    gives=_GIVES,
    workflow="kikuchi.temporal.workflow:StateSpaceWorkflow",
)
CHAIN = Kind(
    name="hmm",
    estimator="kikuchi.temporal:HMM",
    summary="Hidden Markov model.",
    group=_GROUP,
    takes="sequences",
    gives=_GIVES,
    workflow="kikuchi.temporal.workflow:ChainWorkflow",
)
FACTORIAL = Kind(
    name="factorial",
    estimator="kikuchi.temporal:FactorialHMM",
    summary="Several hidden chains that produce each row together.",
    group=_GROUP,
    takes="sequences",
    gives=_GIVES,
    workflow="kikuchi.temporal.workflow:FactorialWorkflow",
)
HOPPING = Kind(
    name="hopping",
    estimator="kikuchi.temporal:FrameHoppingHMM",
    summary="Hidden chains that skip frames.",
    group=_GROUP,
    takes="sequences",
    gives=_GIVES,
    workflow="kikuchi.temporal.workflow:FactorialWorkflow",
)
BLOOD = Kind(
    name="haemodynamic",
    estimator="kikuchi.temporal:HaemodynamicHMM",
    summary="Hidden on-off chain and the response of the blood.",
    group=_GROUP,
    takes="sequences",
    gives=_GIVES,
    workflow="kikuchi.temporal.workflow:SequenceWorkflow",
)
WALKS = Kind(
    name="temporal-ica",
    estimator="kikuchi.temporal:TemporalICA",
    summary="Sources that move by Laplace steps, mixed linearly.",
    group=_GROUP,
    takes="sequences",
    gives=(*_GIVES, "sources"),
    workflow="kikuchi.temporal.workflow:WalkWorkflow",
)
PROBIT = Kind(
    name="probit",
    estimator="kikuchi.temporal:ProbitFilter",
    summary="On-line classifier whose weights may drift.",
    group=_GROUP,
    takes="labelled sequences",
    gives=("classes", "states"),
    workflow="kikuchi.temporal.workflow:ProbitWorkflow",
)
KINDS = (SSM, CHAIN, FACTORIAL, HOPPING, BLOOD, WALKS, PROBIT)
