from kikuchi.beliefnets.estimator import SigmoidBeliefNetwork as SigmoidBeliefNetwork
from kikuchi.beliefnets.models import SigmoidNetwork as SigmoidNetwork
