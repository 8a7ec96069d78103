from kikuchi.bayesnn.baselines import LaplaceMLPRegressor as LaplaceMLPRegressor
from kikuchi.bayesnn.baselines import SampledMLPRegressor as SampledMLPRegressor
from kikuchi.bayesnn.classifier import BayesianMLPClassifier as BayesianMLPClassifier
from kikuchi.bayesnn.evidence import log_evidence as log_evidence
from kikuchi.bayesnn.network import Network as Network
from kikuchi.bayesnn.regressor import BayesianMLPRegressor as BayesianMLPRegressor
