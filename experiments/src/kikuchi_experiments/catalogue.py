"""Which experiments there are."""

from __future__ import annotations

from kikuchi.core.options import Registry
from kikuchi_experiments.experiment import Experiment

EXPERIMENTS: Registry[Experiment] = Registry(
    "kikuchi_experiments",
    "experiment",
    {
        "TEH-E1": "teh2003.faces:FaceModel",
        "TEH-E2": "teh2003.faces:FaceRecognition",
        "TEH-E3": "teh2003.separation:SourceSeparation",
        "TEH-E4": "teh2003.features:SpeechFeatures",
        "TEH-E5": "teh2003.features:PhotographFeatures",
        "TEH-E6": "teh2003.features:DigitFeatures",
        "TEH-E7": "teh2003.features:FaceFeatures",
        "TEH-E8": "teh2003.counter_example:CounterExample",
        "TEH-E9": "teh2003.lattices:SpeedOfConvergence",
        "TEH-E10": "teh2003.lattices:AccuracyOfMarginals",
        "TEH-E11": "teh2003.learning:LearnedDigits",
        "HOJ-E0": "toys.toys:SymmetryBreaking",
        "HOJ-E1": "hojen2001.ica:MeanFunctions",
        "HOJ-E2": "hojen2001.ica:BinaryLowNoise",
        "HOJ-E3": "hojen2001.ica:BinaryHighNoise",
        "HOJ-E4": "hojen2001.ica:Overcomplete",
        "HOJ-E5": "hojen2001.signals:ThreeSpeakers",
        "HOJ-E6": "hojen2001.signals:DigitParts",
        "HOJ-E7": "hojen2001.brain:NumberOfSources",
        "HOJ-E8": "hojen2001.brain:TemporalBrain",
        "HOJ-E9": "hojen2001.brain:SpatialBrain",
        "HOJ-E10": "hojen2001.online:ProbitGains",
        "HOJ-E11": "hojen2001.graph_example:GraphExample",
        "LAW-E1": "toys.toys:Jurors",
        "LAW-E2": "toys.toys:GaussianAsymmetry",
        "LAW-E3": "lawrence2000.densities:BiasVariance",
        "LAW-E4": "lawrence2000.densities:QuarticDensities",
        "LAW-E5": "lawrence2000.belief_networks:RandomSigmoidNetworks",
        "LAW-E6": "lawrence2000.belief_networks:SpanOfWeights",
        "LAW-E7": "lawrence2000.belief_networks:LearningBars",
        "LAW-E8": "lawrence2000.thresholds:PimaThresholds",
        "LAW-E9": "lawrence2000.thresholds:CrabThresholds",
        "LAW-E10": "lawrence2000.thresholds:CommitteeOfThresholds",
        "LAW-E11": "lawrence2000.machines:RandomBoltzmannMachines",
        "LAW-E12": "lawrence2000.learning:VectorAssociation",
        "LAW-E13": "lawrence2000.learning:TwoModes",
        "LAW-E14": "lawrence2000.digits:DigitsByMixtures",
        "LAW-E15": "lawrence2000.networks:SinePosteriors",
        "LAW-E16": "lawrence2000.densities:DiagonalMixtures",
        "LAW-E17": "lawrence2000.networks:SunspotMethods",
        "LAW-E18": "lawrence2000.networks:MeatMethods",
        "LAW-E19": "lawrence2000.ica:BayesianToy",
        "LAW-E20": "lawrence2000.ica:BayesianImages",
        "LAW-E21": "lawrence2000.networks:RelevantUnits",
        "LAW-E22": "lawrence2000.networks:SunspotPriors",
        "LAW-E23": "lawrence2000.networks:MeatPriors",
        "LIU-E1": "liu2020.alpha:SingularValues",
        "LIU-E2": "liu2020.alpha:MessageTraces",
        "LIU-E3": "liu2020.mimo:DetectionByAlpha",
        "LIU-E4": "liu2020.mimo:DetectionWithPrior",
        "LIU-E5": "liu2020.mimo:DetectionByOthers",
        "LIU-E6": "liu2020.accuracy:WeakFields",
        "LIU-E7": "liu2020.accuracy:UnitFields",
        "LIU-E8": "liu2020.accuracy:OuterFace",
        "LIU-E9": "liu2020.accuracy:CompleteNine",
        "LIU-E10": "liu2020.accuracy:CompleteSixteen",
        "LIU-E11": "liu2020.learning:GridLearning",
        "LIU-E12": "liu2020.learning:CompleteLearning",
        "LIU-E13": "liu2020.learning:EpochSeconds",
        "LIU-X0": "liu2020.annealing:AnnealedAlpha",
        "LIU-X1": "liu2020.ablations:UniformCouplings",
        "LIU-X2": "liu2020.ablations:NoPenalty",
        "LIU-X3": "liu2020.ablations:SizeOfNetwork",
        "LIU-X4": "liu2020.ablations:SecondsOfInference",
        "LIU-X5": "liu2020.likelihoods:LikelihoodsOfMixtures",
        "LIU-X6": "liu2020.flow_models:ClassesByFlows",
        "LIU-X7": "liu2020.flow_models:SpeechByFlows",
        "WH-E1": "welling2001.digits:BinaryDigits",
        "WH-E2": "welling2001.grey:GreyDigits",
        "WH-E3": "welling2001.grey:PicturesOfWeights",
    },
)


def find_experiment(word: str, data: str | None = None) -> Experiment:
    """The experiment with this row id, on a file of data if given; case does not matter.

    >>> find_experiment("teh-e8").title
    'Two-node counter-example to scaling with mean field'
    >>> find_experiment("TEH-8")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    kikuchi.core.errors.MethodError: there is no experiment 'TEH-8'; did you mean 'TEH-E8'? \
known: TEH-E1, ...
    """
    return EXPERIMENTS.find(word.strip().upper())(data)


def all_experiments() -> list[Experiment]:
    """Every experiment, in the order of the list."""
    return [find_experiment(name) for name in EXPERIMENTS]
