from kikuchi.flows.bijections import FLOWS as FLOWS
from kikuchi.flows.classifier import FlowClassifier as FlowClassifier
from kikuchi.flows.estimator import FlowMixture as FlowMixture
from kikuchi.flows.estimator import LatentMixtureFlow as LatentMixtureFlow
from kikuchi.flows.hidden_markov import FlowHMM as FlowHMM
from kikuchi.flows.transport import TransportGenerator as TransportGenerator
from kikuchi.flows.two_sample import mmd_test as mmd_test
from kikuchi.flows.two_sample import nearest_neighbour_test as nearest_neighbour_test
