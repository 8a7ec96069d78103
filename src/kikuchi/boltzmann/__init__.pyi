from kikuchi.boltzmann.boltzmann_machine import BoltzmannMachine as BoltzmannMachine
from kikuchi.boltzmann.classifier import FreeEnergyClassifier as FreeEnergyClassifier
from kikuchi.boltzmann.machine import Machine as Machine
from kikuchi.boltzmann.rate_coded import RateCodedRBM as RateCodedRBM
from kikuchi.boltzmann.rbm import RBM as RBM
from kikuchi.training.trainer import Training as Training
from kikuchi.training.trainer import train as train
