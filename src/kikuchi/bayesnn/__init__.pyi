from kikuchi.bayesnn.classifier import BayesianMLPClassifier as BayesianMLPClassifier
from kikuchi.bayesnn.network import Network as Network
from kikuchi.bayesnn.regressor import BayesianMLPRegressor as BayesianMLPRegressor
