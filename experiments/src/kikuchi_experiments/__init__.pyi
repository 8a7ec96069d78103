from kikuchi_experiments.catalogue import EXPERIMENTS as EXPERIMENTS
from kikuchi_experiments.catalogue import find_experiment as find_experiment
from kikuchi_experiments.experiment import Experiment as Experiment
from kikuchi_experiments.experiment import Row as Row
from kikuchi_experiments.runner import Outcome as Outcome
from kikuchi_experiments.runner import reproduce as reproduce
