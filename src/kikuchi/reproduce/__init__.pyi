from kikuchi.reproduce.catalogue import EXPERIMENTS as EXPERIMENTS
from kikuchi.reproduce.catalogue import find_experiment as find_experiment
from kikuchi.reproduce.experiment import Experiment as Experiment
from kikuchi.reproduce.experiment import Row as Row
from kikuchi.reproduce.runner import Outcome as Outcome
from kikuchi.reproduce.runner import reproduce as reproduce
