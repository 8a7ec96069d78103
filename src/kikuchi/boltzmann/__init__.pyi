from kikuchi.boltzmann.estimators.boltzmann_machine import BoltzmannMachine as BoltzmannMachine
from kikuchi.boltzmann.estimators.classifier import FreeEnergyClassifier as FreeEnergyClassifier
from kikuchi.boltzmann.estimators.rate_coded import RateCodedRBM as RateCodedRBM
from kikuchi.boltzmann.estimators.rbm import RBM as RBM
from kikuchi.boltzmann.machine import Machine as Machine
from kikuchi.training.trainer import Training as Training
from kikuchi.training.trainer import train as train
