from kikuchi.energy.annealing import annealed_log_z as annealed_log_z
from kikuchi.energy.energies import clamped_energy as clamped_energy
from kikuchi.energy.estimator import EnergyModel as EnergyModel
from kikuchi.energy.estimator import ExpertICA as ExpertICA
from kikuchi.energy.preparation import Patches as Patches
from kikuchi.energy.preparation import patches as patches
from kikuchi.energy.whitening import Whitening as Whitening
