from kikuchi.bayesnn.estimator import BayesianMLPRegressor as BayesianMLPRegressor
from kikuchi.bayesnn.network import Network as Network
